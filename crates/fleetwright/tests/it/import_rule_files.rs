//! `import rules --per-file`: files of projects, and further imports into the same folder.

use serde_json::{Value, json};

use crate::import_rules::{effects, pool, rules, same, shown};
use crate::world::{Home, Server};

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
