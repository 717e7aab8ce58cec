//! Configuration as code: plan, apply, and plan again.

use serde_json::{Value, json};

use crate::configuration::BUILD;
use crate::world::{Done, Home, Server};

const OWNS: &str = r#"
owns:
  roles: ["team:*"]
  clients: ["team/*"]
  workerPools: ["demo/*"]
  workerConfigurations: ["build*"]
"#;
const PEOPLE: &str = r#"
roles:
  - { roleId: "team:a", scopes: ["b", "a"] }
clients:
  - { clientId: team/ci, expires: "2040-01-01T00:00:00Z", scopes: ["assume:team:a"] }
"#;
const POOL: &str = r#"
workerPoolId = "demo/iron"
providerId = "static"
owner = "you@example.com"

[config]
lifecycle = {}
"#;

/// A folder with an item of each kind, in all formats.
fn fleet(server: &Server) -> String {
    server.home.write("fleet/owns.yaml", OWNS);
    server.home.write("fleet/people.yaml", PEOPLE);
    server.home.write("fleet/iron/pool.toml", POOL);
    server.home.write("fleet/build.yaml", BUILD);
    server.home.path("fleet").to_str().unwrap().to_owned()
}

pub(crate) fn plan(server: &Server, folder: &str, more: &[&str]) -> Done {
    server.run(&[&["plan", "-f", folder][..], more].concat())
}

pub(crate) fn apply(server: &Server, folder: &str) -> Done {
    server.run(&["apply", "-f", folder, "--yes"])
}

#[test]
fn applied_items_exist_and_the_second_plan_is_empty() {
    let server = Server::without_pools();
    let folder = fleet(&server);
    let first = plan(&server, &folder, &[]);
    assert_eq!(first.code, 0, "{}", first.err);
    for part in [
        "+ role team:a (2 scopes)",
        "+ client team/ci (1 scope)",
        "+ worker configuration build (2 pools, 4 new launch configs)",
        "+ pool demo/iron (static)",
        "4 to create",
    ] {
        assert!(first.out.contains(part), "{part}: {}", first.out);
    }
    let roles = server.json(&["role", "list"]);
    assert_eq!(roles["roles"].as_array().unwrap().len(), 1, "{roles}");

    let applied = apply(&server, &folder);
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert!(applied.out.ends_with("created 4\n"), "{}", applied.out);
    assert!(
        applied.err.contains("client reset team/ci"),
        "{}",
        applied.err
    );
    assert_eq!(
        server.json(&["role", "show", "team:a"])["scopes"],
        json!(["b", "a"])
    );
    assert_eq!(server.json(&["rules", "show", "build"])["version"], 1);

    let again = plan(&server, &folder, &["--check"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert_eq!(again.out, "nothing to do, 4 unchanged\n");
    let again = apply(&server, &folder);
    assert_eq!(
        (again.code, again.out.as_str()),
        (
            0,
            "nothing to do, 4 unchanged\nnothing to do, 4 unchanged\n"
        )
    );
    assert_eq!(server.json(&["rules", "show", "build"])["version"], 1);
}

#[test]
fn budgets_are_created_changed_and_removed_with_their_files() {
    let server = Server::without_pools();
    server
        .home
        .write("fleet/owns.yaml", "owns: { budgets: [\"*\"] }\n");
    let write = |limit: &str| {
        let text =
            format!("budgetId: fuzzing\nworkerPools: proj-fuzz/*\nper: day\nlimit: {limit}\n");
        server.home.write("fleet/budget.yaml", &text);
    };
    let folder = server.home.path("fleet").to_str().unwrap().to_owned();
    write("240");
    let first = plan(&server, &folder, &[]);
    assert!(
        first.out.contains("+ budget fuzzing ($240 per day)"),
        "{}{}",
        first.out,
        first.err
    );
    assert_eq!(apply(&server, &folder).code, 0);
    assert_eq!(server.json(&["budget", "show", "fuzzing"])["limit"], 240.0);
    let again = plan(&server, &folder, &["--check"]);
    assert_eq!(again.out, "nothing to do, 1 unchanged\n", "{}", again.err);
    write("120.5");
    let changed = plan(&server, &folder, &[]);
    assert!(changed.out.contains("~ budget fuzzing"), "{}", changed.out);
    assert!(changed.out.contains("120.5"), "{}", changed.out);
    assert_eq!(apply(&server, &folder).code, 0);
    assert!(server.ok(&["budget", "list"]).contains("120.5 a day"));
    server.home.write("fleet/budget.yaml", "");
    assert!(plan(&server, &folder, &[]).out.contains("- budget fuzzing"));
    assert_eq!(apply(&server, &folder).code, 0);
    assert_eq!(server.run(&["budget", "show", "fuzzing"]).code, 3);
    let history = server.ok(&["audit", "show", "budget", "fuzzing"]);
    assert_eq!(history.matches("set").count(), 2, "{history}");

    server
        .home
        .write("fleet/budget.yaml", "budgetId: b\nper: day\nlimit: 1\n");
    let wrong = plan(&server, &folder, &[]);
    assert!(wrong.err.contains("needs one scope"), "{}", wrong.err);
}

#[test]
fn files_folders_and_standard_input_can_be_combined() {
    let server = Server::without_pools();
    server.home.write("one/people.yaml", PEOPLE);
    let pool = server.home.write("iron.toml", POOL);
    let folder = server.home.path("one");
    let both = ["plan", "-f", folder.to_str().unwrap(), "-f", &pool];
    let all = [&both[..], &["-f", "-"]].concat();
    let planned = server.with_input(&all, BUILD);
    assert_eq!(planned.code, 0, "{}", planned.err);
    for part in [
        "+ role team:a",
        "+ pool demo/iron",
        "+ worker configuration build",
        "4 to create",
    ] {
        assert!(planned.out.contains(part), "{part}: {}", planned.out);
    }
    let two = server.run(&both);
    assert!(two.out.contains("3 to create"), "{}", two.out);

    let applied = server.with_input(&["apply", "--yes", "-f", "-"], PEOPLE);
    assert!(
        applied.out.ends_with("created 2\n"),
        "{}{}",
        applied.out,
        applied.err
    );
    let wrong = server.with_input(&["plan", "-f", "-"], "roles: [");
    assert_eq!(wrong.code, 2, "{}", wrong.err);
    assert!(wrong.err.contains("standard input"), "{}", wrong.err);
    let same = server.run(&["plan", "-f", &pool, "-f", &pool]);
    assert!(same.out.contains("1 to create"), "{}{}", same.out, same.err);
}

#[test]
fn changed_values_are_shown_and_check_has_an_exit_code() {
    let server = Server::without_pools();
    let folder = fleet(&server);
    apply(&server, &folder);
    server.home.write(
        "fleet/people.yaml",
        &PEOPLE.replace("[\"b\", \"a\"]", "[\"b\", \"c\"]"),
    );
    server.home.write(
        "fleet/build.yaml",
        &BUILD.replace("machineType: m1", "machineType: m2"),
    );
    let checked = plan(&server, &folder, &["--check"]);
    assert_eq!(checked.code, 7, "{}", checked.err);
    for part in [
        "~ role team:a\n    - /scopes: \"a\"\n    + /scopes: \"c\"\n",
        "~ worker configuration build (2 pools, 4 replaced launch configs)\n    ~ rule machines\n        /values/fake/machineType: \"m1\" → \"m2\"\n",
        "2 to change, 2 unchanged\n",
    ] {
        assert!(checked.out.contains(part), "{part}: {}", checked.out);
    }
    let document: Value = serde_json::from_str(&plan(&server, &folder, &["--json"]).out).unwrap();
    let change = &document["changes"][0];
    assert_eq!(
        (&change["change"]["kind"], &change["change"]["action"]),
        (&json!("role"), &json!("update"))
    );
    assert_eq!(change["values"][0]["pointer"], "/scopes");
    assert_eq!(
        document["changes"][1]["change"]["foreseen"]["launchConfigs"]["replaced"],
        4
    );
    assert_eq!(apply(&server, &folder).code, 0);
    assert_eq!(plan(&server, &folder, &["--check"]).code, 0);
}

#[test]
fn owned_items_without_a_definition_are_removed_and_others_never_changed() {
    let server = Server::without_pools();
    let folder = fleet(&server);
    apply(&server, &folder);
    server.ok(&["role", "create", "team:old"]);
    server.ok(&["role", "create", "theirs"]);
    let pool = |name: &str| {
        server.ok(&[
            "pool",
            "create",
            name,
            "--provider",
            "static",
            "--owner",
            "you@example.com",
        ]);
    };
    pool("demo/old");
    pool("other/theirs");
    std::fs::remove_file(server.home.path("fleet/build.yaml")).unwrap();

    let kept = plan(&server, &folder, &["--no-delete"]);
    assert_eq!(kept.out, "nothing to do, 3 unchanged\n");
    let planned = plan(&server, &folder, &[]);
    let expected = "- pool demo/old\n\
        - worker configuration build (its pools are deleted after their last workers stop: worker-manager/build-dbg, worker-manager/build-opt)\n\
        - role team:old\n3 to remove, 3 unchanged\n";
    assert_eq!(planned.out, expected);
    assert_eq!(server.run(&["apply", "-f", &folder]).code, 2);
    let applied = apply(&server, &folder);
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert_eq!(server.run(&["rules", "show", "build"]).code, 3);
    assert_eq!(server.run(&["role", "show", "team:old"]).code, 3);
    assert_eq!(server.run(&["role", "show", "theirs"]).code, 0);
    assert_eq!(
        server.json(&["pool", "show", "demo/old"])["providerId"],
        "null-provider"
    );
    assert_eq!(
        server.json(&["pool", "show", "other/theirs"])["providerId"],
        "static"
    );
    assert_eq!(plan(&server, &folder, &["--check"]).code, 0);
}

#[test]
fn without_patterns_only_defined_items_are_changed() {
    let server = Server::without_pools();
    server.ok(&["role", "create", "theirs"]);
    let file = server.home.write("one.yaml", "roleId: mine\nscopes: [a]\n");
    assert_eq!(
        plan(&server, &file, &[]).out,
        "+ role mine (1 scope)\n1 to create\n"
    );
    assert_eq!(apply(&server, &file).code, 0);
    assert_eq!(server.run(&["role", "show", "theirs"]).code, 0);
}

#[test]
fn a_saved_plan_is_applied_exactly_and_refused_after_other_changes() {
    let server = Server::without_pools();
    let folder = fleet(&server);
    apply(&server, &folder);
    server.home.write(
        "fleet/people.yaml",
        &PEOPLE.replace("[\"b\", \"a\"]", "[\"b\"]"),
    );
    server.home.write(
        "fleet/build.yaml",
        &BUILD.replace("machineType: m1", "machineType: m2"),
    );
    let saved = server.home.path("plan.json");
    let saved = saved.to_str().unwrap();
    plan(&server, &folder, &["--out", saved]);
    // The files may change; what was planned is what is done.
    server.home.write("fleet/people.yaml", PEOPLE);

    let rule = server
        .home
        .write("rule.yaml", "values: { minCapacity: 0 }\n");
    server.ok(&["rules", "rule", "add", "build", "x", "--file", &rule]);
    let refused = server.run(&["apply", "--plan", saved, "--yes"]);
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert!(
        refused
            .err
            .contains("worker configuration build was changed by another client"),
        "{}",
        refused.err
    );
    assert_eq!(
        server.json(&["role", "show", "team:a"])["scopes"],
        json!(["b", "a"])
    );

    server.ok(&["rules", "revert", "build", "--to", "1", "--yes"]);
    assert_eq!(server.run(&["apply", "--plan", saved, "--yes"]).code, 5);
    server.home.write(
        "fleet/people.yaml",
        &PEOPLE.replace("[\"b\", \"a\"]", "[\"b\"]"),
    );
    plan(&server, &folder, &["--out", saved]);
    server.home.write("fleet/people.yaml", PEOPLE);
    let applied = server.run(&["apply", "--plan", saved, "--yes"]);
    assert_eq!(applied.code, 0, "{}", applied.err);
    assert!(
        applied.out.ends_with("changed 2, 2 unchanged\n"),
        "{}",
        applied.out
    );
    assert_eq!(
        server.json(&["role", "show", "team:a"])["scopes"],
        json!(["b"])
    );
    // Repeated, it finds everything done.
    let again = server.run(&["apply", "--plan", saved, "--yes"]);
    assert_eq!(again.code, 0, "{}", again.err);
    assert!(again.out.contains("nothing to do"), "{}", again.out);
    let changed = server.run(&["role", "update", "team:a", "--scope", "z"]);
    assert_eq!(changed.code, 0);
    assert_eq!(server.run(&["apply", "--plan", saved, "--yes"]).code, 5);
}

#[test]
fn a_failed_item_does_not_stop_the_others() {
    let server = Server::without_pools();
    let folder = fleet(&server);
    // No plan says that roles go in a circle.
    let circle = json!({"roleId": "team:loop:*", "scopes": ["assume:team:loop:x<..>"]});
    server.home.write("fleet/circle.json", &circle.to_string());
    let applied = apply(&server, &folder);
    assert_eq!(applied.code, 1, "{}", applied.err);
    assert!(applied.out.ends_with("created 4\n"), "{}", applied.out);
    for part in ["1 of 5 changes failed", "role team:loop:*"] {
        assert!(applied.err.contains(part), "{part}: {}", applied.err);
    }
    assert_eq!(server.run(&["rules", "show", "build"]).code, 0);
}

#[test]
fn errors_are_reported_before_the_first_change() {
    let server = Server::without_pools();
    let folder = fleet(&server);
    server.home.write(
        "fleet/build.yaml",
        &BUILD.replace("maxCapacity: 4", "maxCapacity: many"),
    );
    let planned = plan(&server, &folder, &[]);
    assert_eq!(planned.code, 1, "{}", planned.err);
    assert!(
        planned.err.contains("build.yaml") && planned.err.contains("workerType=build-opt"),
        "{}",
        planned.err
    );
    assert_eq!(apply(&server, &folder).code, 1);
    assert_eq!(server.run(&["role", "show", "team:a"]).code, 3);
}

#[test]
fn worker_types_move_between_configurations_and_from_hand_made_pools() {
    let server = Server::without_pools();
    let (first, second) = ("workerTypes: [a, b]", "workerTypes: []");
    let configuration = |id: &str, types: &str| {
        format!(
            "workerConfigurationId: {id}\n{types}\nrules:\n  - ruleId: r\n    values: {{ owner: o@example.com, description: d }}\n"
        )
    };
    server
        .home
        .write("moves/one.yaml", &configuration("one", first));
    server
        .home
        .write("moves/two.yaml", &configuration("two", second));
    let folder = server.home.path("moves");
    let folder = folder.to_str().unwrap();
    assert_eq!(apply(&server, folder).code, 0);
    server
        .home
        .write("moves/one.yaml", &configuration("one", "workerTypes: [b]"));
    server.home.write(
        "moves/two.yaml",
        &configuration("two", "workerTypes: [a, hand/made]"),
    );
    server.ok(&[
        "pool",
        "create",
        "hand/made",
        "--provider",
        "static",
        "--owner",
        "o@example.com",
    ]);
    let refused = apply(&server, folder);
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert!(
        refused.err.contains("use --adopt-pools to take it over"),
        "{}",
        refused.err
    );
    assert!(!refused.err.contains("belongs to"), "{}", refused.err);
    let done = server.run(&["apply", "-f", folder, "--yes", "--adopt-pools"]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert_eq!(
        server.json(&["rules", "show", "two"])["workerTypes"],
        json!(["a", "hand/made"])
    );
    assert_eq!(plan(&server, folder, &["--check"]).code, 0);

    // And back: pools that a configuration gave up can be created by hand.
    server
        .home
        .write("moves/two.yaml", &configuration("two", "workerTypes: [a]"));
    server.home.write(
        "moves/pool.yaml",
        "workerPoolId: hand/made\nproviderId: static\nowner: o@example.com\n",
    );
    let back = apply(&server, folder);
    assert_eq!(back.code, 0, "{}", back.err);
    assert_eq!(
        server.json(&["pool", "show", "hand/made"])["providerId"],
        "static"
    );
    assert_eq!(plan(&server, folder, &["--check"]).code, 0);
}

#[test]
fn errors_in_files_are_reported_without_a_request() {
    let server = Server::without_pools();
    let file = server
        .home
        .write("bad.yaml", "roles:\n  - { roleId: r, scope: [] }\n");
    let done = plan(&server, &file, &[]);
    assert_eq!(done.code, 2);
    assert!(
        done.err.contains(&format!("{file}:2: /roles/0/scope: ")),
        "{}",
        done.err
    );
    assert_eq!(server.run(&["plan", "-f", "/no/such/folder"]).code, 2);
    assert_eq!(server.run(&["apply"]).code, 2);
}

#[test]
fn defaults_of_providers_are_no_difference_and_refused_configs_are_errors_of_the_plan() {
    let home = Home::new();
    let config = home.write("clouds.toml", "[providers.generous]\nkind = \"fake\"\n");
    let server = Server::start_in(home, &["--config", &config]);
    let file = |more: &str| {
        let text = format!(
            "workerPoolId: hand/made\nproviderId: generous\nowner: o@example.com\nconfig:\n  maxCapacity: 1\n  minCapacity: 0\n  launchConfigs: [{{ workerConfig: {{}}{more} }}]\n"
        );
        server.home.write("pool.yaml", &text)
    };
    let made = apply(&server, &file(""));
    assert_eq!(made.code, 0, "{}", made.err);
    let shown = server.json(&["pool", "show", "hand/made"]);
    assert_eq!(shown["config"]["launchConfigs"][0]["region"], "fake");
    let again = plan(&server, &file(""), &["--check"]);
    assert_eq!(again.code, 0, "{}", again.out);

    let odd = plan(&server, &file(", colour: red"), &[]);
    assert_eq!(odd.code, 1, "{}", odd.err);
    for part in ["pool.yaml", "pool hand/made", "colour"] {
        assert!(odd.err.contains(part), "{part}: {}", odd.err);
    }
    let given = |region: &str| {
        file(&format!(
            ", region: {region}, workerManager: {{ launchConfigId: mine }}"
        ))
    };
    assert_eq!(apply(&server, &given("one")).code, 0);
    let clash = plan(&server, &given("two"), &[]);
    assert_eq!(clash.code, 5, "{}", clash.err);
    assert!(clash.err.contains("`mine` already exists"), "{}", clash.err);
}
