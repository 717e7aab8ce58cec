//! `import rules --per-file`: files of projects, and further imports into the same folder.

use serde_json::{Value, json};

use crate::import_rules::{effects, pool, rules, same, shown};
use crate::world::{Done, Home, Server};

/// Pools of two projects, each with a capacity of its own.
fn pools_of_projects(capacity: u32) -> Vec<Value> {
    let project = |project: &str, capacity: u32| {
        ["a", "b"].map(|name| {
            let mut one = pool(name, &format!("r-{name}"));
            one["workerPoolId"] = json!(format!("{project}/{name}"));
            one["owner"] = json!(format!("{project}@example.com"));
            one["config"]["maxCapacity"] = json!(capacity);
            one
        })
    };
    [project("demo", 3), project("other", capacity)].concat()
}

#[test]
fn each_project_has_its_file_and_a_further_import_changes_few() {
    let home = Home::new();
    let per_file = ["--per-file", "provisioner", "--json"];
    let import = |pools: &[Value]| -> Value {
        let done = rules(&home, pools, &per_file);
        assert_eq!(done.code, 0, "{}", done.err);
        serde_json::from_str(&done.out).unwrap()
    };
    let names = |report: &Value, key: &str| -> Vec<String> {
        let paths = report[key].as_array().unwrap().iter();
        let names = paths.map(|path| {
            path.as_str()
                .unwrap()
                .rsplit('/')
                .next()
                .unwrap()
                .to_owned()
        });
        names.collect()
    };
    let first = import(&pools_of_projects(5));
    assert_eq!(
        names(&first, "written"),
        ["fleet.yaml", "demo.yaml", "other.yaml"]
    );
    assert_eq!(first["files"][0]["parts"][1]["workerTypes"], 2, "{first}");
    let other = home.read("rules/other.yaml");
    assert!(
        other.starts_with("partOf: fleet\nworkerTypes: [other/a, other/b]\n"),
        "{other}"
    );
    assert!(other.contains("owner: other@example.com"), "{other}");

    // The files have the form that `rules fmt` gives them.
    let files = ["fleet.yaml", "demo.yaml", "other.yaml"].map(|name| {
        let path = home.path("rules").join(name);
        path.to_str().unwrap().to_owned()
    });
    let format = [
        &["rules", "fmt", "--check"][..],
        &files.each_ref().map(String::as_str),
    ]
    .concat();
    let formatted = home.run(&format);
    assert_eq!(formatted.code, 0, "{}{}", formatted.out, formatted.err);

    let second = import(&pools_of_projects(7));
    assert_eq!(names(&second, "written"), ["other.yaml"]);
    assert_eq!(names(&second, "unchanged"), ["fleet.yaml", "demo.yaml"]);

    // The project has no pools now, so its file is removed; files of people stay.
    home.write("rules/mine.yaml", "roles: []\n");
    let mut third = pools_of_projects(7);
    third.truncate(2);
    let third = import(&third);
    assert_eq!(names(&third, "removed"), ["other.yaml"]);
    assert!(!home.path("rules/other.yaml").exists());
    assert!(home.path("rules/mine.yaml").exists());
}

#[test]
fn files_of_projects_are_planned_together_and_give_the_same_pools() {
    let start = || Server::without_pools();
    let fleet = json!({"workerPools": pools_of_projects(5)});
    let by_hand = start();
    let file = by_hand.home.write("fleet.json", &fleet.to_string());
    by_hand.ok(&["import", "taskcluster", "--only", "pools", "--from", &file]);
    for by in ["provisioner", "owner"] {
        let by_rules = start();
        let out = by_rules.home.path("rules");
        let out = out.to_str().unwrap();
        by_rules.ok(&[
            "import",
            "rules",
            "--from",
            &file,
            "--out",
            out,
            "--per-file",
            by,
        ]);
        let plan = by_rules.ok(&["plan", "-f", out]);
        assert!(plan.contains("fleet"), "{plan}");
        by_rules.ok(&["apply", "--yes", "-f", out]);
        same(&shown(&by_rules), &shown(&by_hand));

        // Commands on files read the folder as one configuration.
        by_rules.ok(&["rules", "lint", out]);
        let owner = [
            "rules",
            "explain",
            out,
            "/owner",
            "--set",
            "workerType=other/a",
        ];
        assert!(by_rules.ok(&owner).contains("other@example.com"));

        // An edit in the file of a project changes only its pools.
        let edited = by_rules.home.read("rules/other.yaml");
        let more = edited.replace("maxCapacity: 5", "maxCapacity: 6");
        assert_ne!(more, edited, "{edited}");
        by_rules.home.write("rules/other.yaml", &more);
        assert_eq!(effects(&by_rules, out, &[])["unchangedPools"], 2);
    }
}

#[test]
fn errors_in_the_file_of_a_project_name_that_file_and_its_line() {
    let home = Home::new();
    let done = rules(&home, &pools_of_projects(5), &["--per-file", "provisioner"]);
    assert_eq!(done.code, 0, "{}", done.err);
    let text = home.read("rules/other.yaml");
    let (line, _) = (1..)
        .zip(text.lines())
        .filter(|(_, line)| line.contains("ruleId:"))
        .last()
        .unwrap();
    let wrong = text.replace(
        "conditions: { workerType:",
        "conditions: { workerType: 1, x:",
    );
    assert_ne!(wrong, text);
    let file = home.write("rules/other.yaml", &wrong);
    let folder = home.path("rules");
    let linted = home.run(&["rules", "lint", folder.to_str().unwrap()]);
    assert_eq!(linted.code, 1, "{}", linted.err);
    let place = linted
        .out
        .lines()
        .find_map(|found| found.strip_prefix(&format!("{file}:")));
    let place = place.unwrap_or_else(|| panic!("{}", linted.out));
    let found: usize = place.split(':').next().unwrap().parse().unwrap();
    assert!(found > 2 && found <= line + 3, "{place}\n{wrong}");
}

#[test]
fn an_import_of_only_refused_pools_leaves_the_folder_unchanged() {
    let home = Home::new();
    let pools = [pool("a", "r-a")];
    assert_eq!(rules(&home, &pools, &[]).code, 0);
    let before = home.read("rules/fleet.yaml");
    let mut odd = pool("odd", "r-a");
    odd["config"]["maxCapacity"] = json!(10.5);
    for more in [&[][..], &["--force"][..]] {
        let done = rules(&home, std::slice::from_ref(&odd), more);
        assert_eq!(done.code, 1, "{}", done.err);
        assert!(done.err.contains("nothing was written"), "{}", done.err);
        assert_eq!(home.read("rules/fleet.yaml"), before);
    }
}

#[test]
fn a_name_of_two_files_is_refused_with_the_option_that_made_it() {
    let home = Home::new();
    let pools = ["A", "a"].map(|provisioner| {
        let mut one = pool("x", "r-a");
        one["workerPoolId"] = json!(format!("{provisioner}/x"));
        one
    });
    let done = rules(&home, &pools, &["--per-configuration", "provisioner"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(
        done.err.contains("leave out --per-configuration"),
        "{}",
        done.err
    );
    let done = rules(&home, &pools, &["--per-file", "provisioner"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(home.path("rules/A.yaml").exists());
    assert!(home.path("rules/a-pools.yaml").exists());
}

/// Imports the rules of a server into a folder.
fn import_of_server(server: &Server, more: &[&str]) -> Done {
    let (from, out) = (server.root_url(), server.home.path("rules"));
    let out = out.to_str().unwrap();
    let arguments = ["import", "rules", "--from", &from, "--out", out];
    let mut command = server.home.command(&[&arguments[..], more].concat());
    command
        .env("SOURCE_CLIENT_ID", "static/owner")
        .env("SOURCE_ACCESS_TOKEN", server.home.token());
    Done::of(command.output().unwrap())
}

#[test]
fn an_import_does_not_replace_the_rules_of_pools_that_it_skips() {
    let server = Server::without_pools();
    let add = |pools: &[Value]| {
        let fleet = json!({ "workerPools": pools }).to_string();
        let file = server.home.write("fleet.json", &fleet);
        server.ok(&["import", "taskcluster", "--from", &file]);
    };
    let out_path = server.home.path("rules");
    let out = out_path.to_str().unwrap();
    add(&pools_of_projects(5));
    let per_file = ["--per-file", "provisioner"];
    assert_eq!(import_of_server(&server, &per_file).code, 0);
    server.ok(&["apply", "--yes", "--adopt-pools", "-f", out]);
    let names = ["fleet.yaml", "demo.yaml", "other.yaml"];
    let texts = || names.map(|name| server.home.read(&format!("rules/{name}")));
    let before = texts();

    // Without other pools, nothing is to be converted.
    let done = import_of_server(&server, &[]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("compiled from rules: 4"), "{}", done.err);

    // The first configuration would be written, and the second removed.
    add(&[pool("more", "r-a")]);
    for more in [&[][..], &["--per-configuration", "provisioner"]] {
        let done = import_of_server(&server, more);
        assert_eq!(done.code, 5, "{}", done.err);
        for part in ["4 pools", "worker configuration fleet", "--force"] {
            assert!(done.err.contains(part), "{part}: {}", done.err);
        }
        assert_eq!(texts(), before);
    }
    let forced = import_of_server(&server, &["--force"]);
    assert_eq!(forced.code, 0, "{}", forced.err);
    let rules = server.home.read("rules/fleet.yaml");
    assert!(rules.contains("[demo/more]"), "{rules}");
    assert!(!out_path.join("other.yaml").exists());
}
