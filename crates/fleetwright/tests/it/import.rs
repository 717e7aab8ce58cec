//! `import taskcluster`: from a file, from another server, twice.

use std::path::Path;

use serde_json::{Value, json};

use crate::world::{Done, Home, Server};

fn fleet() -> Value {
    json!({
        "about": "made up",
        "roles": [
            {"kind": "Role", "roleId": "team", "description": "d", "scopes": ["b", "a", "a"]},
            {"kind": "Role", "roleId": "other", "description": "", "scopes": ["assume:team"]},
        ],
        "workerPools": [
            {"kind": "WorkerPool", "workerPoolId": "demo/iron", "providerId": "static",
                "owner": "o@example.com", "description": "", "emailOnError": false,
                "config": {"lifecycle": {"reregistrationTimeout": 3600}}},
            {"kind": "WorkerPool", "workerPoolId": "demo/cloud", "providerId": "fake",
                "owner": "o@example.com", "description": "", "emailOnError": false,
                "config": {"minCapacity": 0, "maxCapacity": 3, "lifecycle": {}, "launchConfigs": [
                    launch_config("z1"), launch_config("z2")]}},
        ],
    })
}

fn launch_config(zone: &str) -> Value {
    json!({"region": "r", "zone": zone, "machineType": "m", "disks": [{}],
        "networkInterfaces": [{}], "scheduling": {}, "workerConfig": {},
        "workerManager": {"capacityPerInstance": 1}})
}

fn import(server: &Server, fleet: &Value, more: &[&str]) -> Done {
    let file = server.home.write("fleet.json", &fleet.to_string());
    server.run(&[&["import", "taskcluster", "--from", &file][..], more].concat())
}

/// A fresh server has one role already, `anonymous`.
fn role_names(server: &Server) -> Vec<String> {
    let roles = server.json(&["role", "list"]);
    let names = roles["roles"].as_array().unwrap().iter();
    let names = names.map(|role| role["roleId"].as_str().unwrap().to_owned());
    names.collect()
}

#[test]
fn the_second_import_has_nothing_to_change() {
    let server = Server::without_pools();
    let first = import(&server, &fleet(), &[]);
    assert_eq!(first.code, 0, "{}", first.err);
    assert_eq!(
        first.out,
        "created 2 pools and 2 roles, only on the target: 1 role\n"
    );
    let second = import(&server, &fleet(), &[]);
    assert_eq!(
        second.out,
        "nothing to change, unchanged: 2 pools and 2 roles, only on the target: 1 role\n"
    );
}

#[test]
fn only_what_differs_is_updated_and_nothing_is_deleted() {
    let server = Server::without_pools();
    import(&server, &fleet(), &[]);
    server.ok(&["role", "create", "mine"]);
    let mut changed = fleet();
    changed["workerPools"][1]["config"]["maxCapacity"] = json!(9);
    changed["workerPools"][1]["config"]["launchConfigs"] = json!([launch_config("z1")]);
    changed["roles"].as_array_mut().unwrap().pop();

    let dry = import(&server, &changed, &["--dry-run"]);
    assert!(dry.out.contains("-    \"maxCapacity\": 3,"), "{}", dry.out);
    assert!(dry.out.contains("+    \"maxCapacity\": 9,"), "{}", dry.out);
    let expected =
        "would update 1 pool, unchanged: 1 pool and 1 role, only on the target: 3 roles\n";
    assert!(dry.out.ends_with(expected), "{}", dry.out);
    assert_eq!(
        server.json(&["pool", "show", "demo/cloud"])["config"]["maxCapacity"],
        3
    );

    let real = import(&server, &changed, &[]);
    assert_eq!(real.out, expected.replace("would update", "updated"));
    assert_eq!(
        server.json(&["pool", "show", "demo/cloud"])["config"]["maxCapacity"],
        9
    );
    assert_eq!(
        server.json(&["role", "list"])["roles"]
            .as_array()
            .unwrap()
            .len(),
        4
    );
}

#[test]
fn a_dry_run_of_something_new_writes_nothing() {
    let server = Server::without_pools();
    let dry = import(&server, &fleet(), &["--dry-run", "--json"]);
    let document: Value = serde_json::from_str(&dry.out).unwrap();
    assert_eq!(
        document["create"]["workerPools"],
        json!(["demo/cloud", "demo/iron"])
    );
    let text = import(&server, &fleet(), &["--dry-run"]).out;
    assert_eq!(
        text,
        "+ role other (1 scope)\n+ role team (2 scopes)\n+ pool demo/cloud (fake, 2 launch configs)\n+ pool demo/iron (static)\nwould create 2 pools and 2 roles, only on the target: 1 role\n"
    );
    let full = import(&server, &fleet(), &["--dry-run", "--full"]).out;
    assert!(full.contains("+++ source: pool demo/iron"), "{full}");
    assert_eq!(server.json(&["pool", "list"]), json!({"workerPools": []}));
    assert_eq!(role_names(&server), ["anonymous"]);
}

#[test]
fn only_pools_or_only_roles_can_be_imported() {
    let server = Server::without_pools();
    assert_eq!(
        import(&server, &fleet(), &["--only", "roles"]).out,
        "created 2 roles, only on the target: 1 role\n"
    );
    assert_eq!(
        import(&server, &fleet(), &["--only", "pools"]).out,
        "created 2 pools\n"
    );
}

#[test]
fn missing_providers_are_reported_before_the_first_change() {
    let server = Server::without_pools();
    let mut fleet = fleet();
    fleet["workerPools"][1]["providerId"] = json!("gcp");
    let done = import(&server, &fleet, &[]);
    assert_eq!(done.code, 1);
    let lines = "[providers.gcp]\nkind = \"fake\"\naccepts = \"google\"";
    assert!(done.err.contains(lines), "{}", done.err);
    assert_eq!(role_names(&server), ["anonymous"]);

    let (_, home) = server.terminate();
    let config = format!("{lines}\n[providers.static]\nkind = \"static\"\n");
    let file = home.write("c.toml", &config);
    let server = Server::start_in(home, &["--config", &file]);
    assert_eq!(import(&server, &fleet, &[]).code, 0);
}

#[test]
fn a_failed_item_does_not_stop_the_others() {
    let server = Server::without_pools();
    let mut fleet = fleet();
    fleet["workerPools"][1]["config"] = json!({"launchConfigs": []});
    let done = import(&server, &fleet, &[]);
    assert_eq!(done.code, 1);
    assert_eq!(
        done.out,
        "created 1 pool and 2 roles, only on the target: 1 role\n"
    );
    assert!(
        done.err.contains("1 of 4 could not be imported"),
        "{}",
        done.err
    );
    assert!(done.err.contains("demo/cloud"), "{}", done.err);
}

#[test]
fn a_fleet_moves_from_server_to_server() {
    let source = Server::without_pools();
    import(&source, &fleet(), &[]);
    let target = Server::without_pools();
    let arguments = ["import", "taskcluster", "--from", &source.root_url()];
    let mut command = target.command(&arguments);
    command
        .env("SOURCE_CLIENT_ID", "static/owner")
        .env("SOURCE_ACCESS_TOKEN", source.home.token());
    let done = Done::of(command.output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    let ids = |server: &Server| {
        server.json(&["launch-config", "list", "demo/cloud"])["launchConfigs"]
            .as_array()
            .unwrap()
            .iter()
            .map(|config| config["launchConfigId"].clone())
            .collect::<Vec<_>>()
    };
    assert_eq!(ids(&source), ids(&target));
    assert!(
        Done::of(command.output().unwrap())
            .out
            .starts_with("nothing to change")
    );

    let anybody = Done::of(target.command(&arguments).output().unwrap());
    assert_eq!(anybody.code, 4);
}

#[test]
fn invalid_files_are_reported() {
    let server = Server::without_pools();
    for (text, part) in [
        ("nonsense", "is not JSON"),
        ("{}", "none of the lists workerPools"),
        (
            r#"{"roles": [{"roleId": "r"}]}"#,
            "role number 1: missing field `scopes`",
        ),
    ] {
        let file = server.home.write("f.json", text);
        let done = server.run(&["import", "taskcluster", "--from", &file]);
        assert_eq!(done.code, 2, "{}", done.err);
        assert!(done.err.contains(part), "{}", done.err);
    }
}

/// A real fleet, if a copy is available.
#[test]
fn a_real_fleet_is_imported_completely() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/community-fleet.json");
    if !file.exists() {
        eprintln!("skipped: {} is not here", file.display());
        return;
    }
    let clouds = ["aws", "azure", "google"].map(|cloud| {
        format!(
            "[providers.community-tc-workers-{cloud}]\nkind = \"fake\"\naccepts = \"{cloud}\"\n"
        )
    });
    let home = Home::new();
    let text = format!(
        "[providers.local]\nkind = \"static\"\n[providers.static]\nkind = \"static\"\n{}",
        clouds.join("")
    );
    let config = home.write("c.toml", &text);
    let server = Server::start_in(home, &["--config", &config]);
    let arguments = ["import", "taskcluster", "--from", file.to_str().unwrap()];
    let dry = server.ok(&[&arguments[..], &["--dry-run"]].concat());
    // `up` has made a role of this name, and the fleet brings one.
    assert!(
        dry.ends_with("would create 54 pools and 195 roles, would update 1 role\n"),
        "{dry}"
    );
    assert_eq!(
        server.ok(&arguments),
        "created 54 pools and 195 roles, updated 1 role\n"
    );
    let again = server.ok(&arguments);
    assert_eq!(
        again,
        "nothing to change, unchanged: 54 pools and 196 roles\n"
    );
}
