//! `import rules`: from a file, from a server, and refused pools.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use serde_json::{Value, json};

use crate::configuration::BUILD;
use crate::world::{Done, Home, Server};

pub(crate) fn pool(name: &str, zone: &str) -> Value {
    json!({"kind": "WorkerPool", "workerPoolId": format!("demo/{name}"), "providerId": "fake",
        "owner": "o@example.com", "description": "", "emailOnError": false,
        "config": {"minCapacity": 0, "maxCapacity": 3, "launchConfigs": [launch_config(zone)]}})
}

fn launch_config(zone: &str) -> Value {
    json!({"region": "r", "zone": zone, "machineType": "m", "disks": [{}],
        "networkInterfaces": [{}], "scheduling": {}, "workerConfig": {},
        "workerManager": {"capacityPerInstance": 1}})
}

pub(crate) fn rules(home: &Home, pools: &[Value], more: &[&str]) -> Done {
    let file = home.write("fleet.json", &json!({ "workerPools": pools }).to_string());
    let out = home.path("rules");
    let out = out.to_str().unwrap();
    home.run(
        &[
            &["import", "rules", "--from", &file, "--out", out][..],
            more,
        ]
        .concat(),
    )
}

#[test]
fn items_that_are_no_pools_are_left_out_and_counted() {
    let home = Home::new();
    let role = |id: &str| json!({"roleId": id, "scopes": []});
    let fleet = json!({"workerPools": [pool("a", "r-a")], "roles": [role("x"), role("y")],
        "hooks": [{}]});
    let file = home.write("fleet.json", &fleet.to_string());
    let out = home.path("rules");
    let arguments = [
        "import",
        "rules",
        "--from",
        &file,
        "--out",
        out.to_str().unwrap(),
    ];
    let done = home.run(&arguments);
    assert_eq!(done.code, 0, "{}", done.err);
    let note = "skipped, because only pools become rules: hooks: 1, roles: 2. `fleetwright import \
                taskcluster --only roles` imports roles";
    assert!(done.err.contains(note), "{}", done.err);
}

#[test]
fn a_file_becomes_rules_without_a_server() {
    let home = Home::new();
    let pools = [pool("a", "r-a"), pool("b", "r-b")];
    let done = rules(&home, &pools, &[]);
    assert_eq!(done.code, 0, "{}", done.err);
    assert!(
        done.out.contains("2 pools with 2 launch configs"),
        "{}",
        done.out
    );
    let first = home.read("rules/fleet.yaml");
    assert!(first.contains("workerTypes: [demo/a, demo/b]"), "{first}");

    for part in [
        "the rules need these providers",
        "[providers.fake]\nkind = \"fake\"\naccepts = \"google\"",
    ] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }

    let report = |done: Done| -> Value {
        assert_eq!(done.code, 0, "{}", done.err);
        serde_json::from_str(&done.out).unwrap()
    };
    let again = report(rules(&home, &pools, &["--json"]));
    assert_eq!(again["files"][0]["workerConfigurationId"], "fleet");
    assert_eq!(again["bytes"]["after"], first.len());
    assert_eq!(again["written"], json!([]));
    assert_eq!(again["unchanged"].as_array().unwrap().len(), 1);

    // An edited file is a file of people.
    home.write("rules/fleet.yaml", &format!("{first}# mine\n"));
    let refused = rules(&home, &pools, &[]);
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert!(refused.err.contains("was edited since"), "{}", refused.err);
    assert!(refused.err.contains("--force"), "{}", refused.err);
    report(rules(&home, &pools, &["--force", "--json"]));
    assert_eq!(home.read("rules/fleet.yaml"), first);
    // `plan` would read the files of people too.
    home.write("rules/mine.yaml", "roles: []\n");
    let apart = rules(&home, &pools, &["--per-configuration", "provisioner"]);
    assert_eq!(apart.code, 0, "{}", apart.err);
    assert!(
        apart.err.contains("mine.yaml is not from this import"),
        "{}",
        apart.err
    );
    assert!(!home.path("rules/fleet.yaml").exists());
    assert!(home.read("rules/demo.yaml").contains("demo/a"));
}

#[test]
fn a_pool_that_cannot_be_converted_is_reported_and_the_others_are_written() {
    let home = Home::new();
    let mut odd = pool("odd", "r-a");
    odd["config"]["launchConfigs"][0]["workerConfig"] = json!({"key": null});
    let done = rules(&home, &[odd, pool("a", "r-a")], &[]);
    assert_eq!(done.code, 1);
    assert!(
        done.err
            .contains("demo/odd: launch config number 1: /workerConfig/key is null"),
        "{}",
        done.err
    );
    assert!(!home.read("rules/fleet.yaml").contains("demo/odd"));
}

#[test]
fn unsupported_settings_do_not_stop_the_other_pools() {
    let home = Home::new();
    let mut odd = pool("odd", "r-a");
    odd["config"]["maxCapacity"] = json!(10.5);
    let done = rules(&home, &[odd, pool("a", "r-a")], &[]);
    assert_eq!(done.code, 1);
    let reason = "demo/odd: in its config maxCapacity must be a whole number";
    assert!(done.err.contains(reason), "{}", done.err);
    assert!(!done.err.contains("mistake in fleetwright"), "{}", done.err);
    assert!(home.read("rules/fleet.yaml").contains("demo/a"));
}

#[test]
fn a_source_without_pools_is_an_error() {
    let done = rules(&Home::new(), &[], &[]);
    assert_eq!(done.code, 1);
    assert!(done.err.contains("no pools to convert"), "{}", done.err);
}

#[test]
fn a_missing_file_is_a_usage_error() {
    let done = Home::new().run(&["import", "rules", "--from", "/no/such.json", "--out", "o"]);
    assert_eq!(done.code, 2, "{}", done.err);
    assert!(
        done.err.contains("cannot read /no/such.json"),
        "{}",
        done.err
    );
}

#[test]
fn the_pools_of_a_running_server_become_rules() {
    let server = Server::without_pools();
    let pools = json!({"workerPools": [pool("a", "r-a"), pool("b", "r-b")]});
    let file = server.home.write("fleet.json", &pools.to_string());
    server.ok(&["import", "taskcluster", "--from", &file]);
    let build = server.home.write("build.yaml", BUILD);
    server.ok(&["rules", "create", "build", "--file", &build]);
    let out = server.home.path("rules");
    let from = server.root_url();
    let arguments = ["import", "rules", "--from", &from, "--out"];
    let arguments = [&arguments[..], &[out.to_str().unwrap()]].concat();
    let unsigned = server.home.run(&arguments);
    assert_eq!(unsigned.code, 4, "{}", unsigned.err);
    assert!(
        unsigned.err.contains("set SOURCE_CLIENT_ID"),
        "{}",
        unsigned.err
    );
    let mut command = server.home.command(&arguments);
    command
        .env("SOURCE_CLIENT_ID", "static/owner")
        .env("SOURCE_ACCESS_TOKEN", server.home.token());
    let done = Done::of(command.output().unwrap());
    assert_eq!(done.code, 0, "{}", done.err);
    let text = server.home.read("rules/fleet.yaml");
    assert!(text.contains("workerTypes: [demo/a, demo/b]"), "{text}");
    // The server's ids of launch configs are computed, so that no rule needs to say them.
    assert!(!text.contains("launchConfigId"), "{text}");
    let left_out = "skipped worker-manager/build-opt: it is made of the rules of build already";
    assert!(done.err.contains(left_out), "{}", done.err);
}

/// All fields of a server's pools, except times and counts.
pub(crate) fn shown(server: &Server) -> Value {
    let listed = server.json(&["pool", "list"]);
    let pools = listed["workerPools"].as_array().unwrap().iter();
    let what = [
        "workerPoolId",
        "providerId",
        "owner",
        "description",
        "emailOnError",
        "config",
    ];
    pools
        .map(|pool| what.map(|key| pool[key].clone()))
        .collect()
}

/// Compares pool by pool, so that a failure is readable.
pub(crate) fn same(left: &Value, right: &Value) {
    let (left, right) = (left.as_array().unwrap(), right.as_array().unwrap());
    assert_eq!(left.len(), right.len());
    for (left, right) in left.iter().zip(right) {
        assert_eq!(left, right);
    }
}

/// Creates pools on one server by hand and on another by rules; both must show the same.
fn arrives_the_same(home: impl Fn() -> (Home, Vec<String>), file: &str) -> Value {
    let start = || {
        let (home, more) = home();
        Server::start_in(home, &more.iter().map(String::as_str).collect::<Vec<_>>())
    };
    let by_hand = start();
    by_hand.ok(&["import", "taskcluster", "--only", "pools", "--from", file]);
    let by_rules = start();
    let out = by_rules.home.path("rules");
    let out = out.to_str().unwrap();
    by_rules.ok(&["import", "rules", "--from", file, "--out", out]);
    by_rules.ok(&["apply", "--yes", "--file", out]);
    let pools = shown(&by_rules);
    same(&pools, &shown(&by_hand));

    // Rules take over existing pools unchanged.
    by_hand.ok(&["apply", "--yes", "--adopt-pools", "--file", out]);
    same(&pools, &shown(&by_hand));
    pools
}

#[test]
fn applied_rules_give_the_pools_that_a_direct_import_gives() {
    let mut odd = pool("b", "r-b");
    odd["emailOnError"] = json!(true);
    odd["config"]["lifecycle"] = json!({"registrationTimeout": 600});
    let more = [
        json!({"weight": 1.0, "list": [null, {}]}),
        json!({"weight": 1, "empty": {}}),
    ];
    let launch_configs = more.into_iter().map(|more| {
        let mut config = launch_config("r-b");
        config["workerConfig"] = more;
        config
    });
    odd["config"]["launchConfigs"] = launch_configs.collect();
    odd["config"]["launchConfigs"][1]["workerManager"]["launchConfigId"] = json!("lc-given");
    let mut iron = pool("iron", "r-a");
    iron["providerId"] = json!("static");
    iron["config"] =
        json!({"lifecycle": {"reregistrationTimeout": 3600}, "workerConfig": {"a": {}}});
    let fleet = json!({"workerPools": [pool("a", "r-a"), odd, iron]});
    let home = || {
        let home = Home::new();
        let config = home.write("c.toml", "[providers.local]\nkind = \"static\"\n");
        (home, vec!["--config".to_owned(), config])
    };
    let (place, _) = home();
    let file = place.write("fleet.json", &fleet.to_string());
    let pools = arrives_the_same(home, &file);
    assert_eq!(pools.as_array().unwrap().len(), 3);
    assert!(pools.to_string().contains("lc-given"));
}

/// Pools of two kinds, each with launch configs in several zones under ids of their own.
fn fleet_with_given_ids(n_pools: usize, n_zones: usize) -> Value {
    let pools = (0..n_pools).map(|number| {
        let idle = if number % 2 == 0 { 15 } else { 90 };
        let configs = (0..n_zones).map(|zone| {
            let region = format!("r{}", zone % 3);
            let mut config = launch_config(&format!("{region}-{zone}"));
            config["region"] = json!(region);
            config["machineType"] = json!(format!("m{}", number % 5));
            config["workerConfig"] = json!({"idle": idle, "image": "one"});
            config["workerManager"] = json!({"capacityPerInstance": 1,
                "launchConfigId": format!("own-{number}-{zone}")});
            config
        });
        let configs: Vec<_> = configs.collect();
        let mut made = pool(&format!("p{number}"), "r-a");
        made["config"]["launchConfigs"] = json!(configs);
        made
    });
    json!({ "workerPools": pools.collect::<Vec<_>>() })
}

/// The ids of launch configs, by pool.
fn launch_config_ids(server: &Server) -> BTreeMap<String, Vec<String>> {
    let shown = shown(server);
    let pools = shown.as_array().unwrap().iter().map(|pool| {
        let configs = pool[5]["launchConfigs"].as_array().into_iter().flatten();
        let ids = configs.map(|config| &config["workerManager"]["launchConfigId"]);
        let ids = ids.map(|id| id.as_str().unwrap().to_owned());
        (pool[0].as_str().unwrap().to_owned(), ids.collect())
    });
    pools.collect()
}

/// The effects in a plan of the only configuration.
pub(crate) fn effects(server: &Server, out: &str, more: &[&str]) -> Value {
    let plan = [&["plan", "-f", out][..], more].concat();
    let mut plan = server.json(&plan);
    plan["changes"][0]["change"]["foreseen"].take()
}

#[test]
fn an_edit_of_a_shared_value_replaces_only_affected_launch_configs() {
    let (n_pools, n_zones) = (40, 6);
    let server = Server::without_pools();
    let fleet = fleet_with_given_ids(n_pools, n_zones);
    let file = server.home.write("fleet.json", &fleet.to_string());
    server.ok(&["import", "taskcluster", "--from", &file]);
    let before = launch_config_ids(&server);
    assert!(before["demo/p7"].contains(&"own-7-3".to_owned()));
    let out = server.home.path("rules");
    let out = out.to_str().unwrap();
    server.ok(&["import", "rules", "--from", &file, "--out", out]);
    let rules = server.home.read("rules/fleet.yaml");
    let ids = server.home.read("rules/launch-config-ids.yaml");
    let n_given = ids.matches("own-").count();
    assert_eq!(n_given, n_pools * n_zones, "each id is said once");

    // The pools are taken over unchanged.
    let adopting = effects(&server, out, &["--adopt-pools"]);
    let counts = |created: usize, replaced: usize, kept: usize| {
        json!({"created": created,
        "replaced": replaced, "updated": 0, "archived": 0, "kept": kept})
    };
    assert_eq!(adopting["launchConfigs"], counts(0, 0, n_pools * n_zones));
    let text = server.ok(&["plan", "-f", out, "--adopt-pools"]);
    let told = "40 pools: created by hand, taken over unchanged";
    assert!(text.contains(told), "{text}");
    server.ok(&["apply", "--yes", "--adopt-pools", "-f", out]);
    assert_eq!(launch_config_ids(&server), before);

    // A value that half of the pools share.
    assert_eq!(rules.matches("idle: 15").count(), 1, "{rules}");
    server
        .home
        .write("rules/fleet.yaml", &rules.replace("idle: 15", "idle: 16"));
    let plan = effects(&server, out, &[]);
    assert_eq!(plan["launchConfigs"], counts(0, n_pools / 2 * n_zones, 0));
    assert_eq!(plan["unchangedPools"], n_pools / 2);
    server.ok(&["apply", "--yes", "-f", out]);
    let after = launch_config_ids(&server);
    for (number, (pool, ids)) in (0..n_pools).map(|number| {
        let pool = format!("demo/p{number}");
        (number, (pool.clone(), after[&pool].clone()))
    }) {
        match number % 2 {
            0 => assert!(
                ids.iter().all(|id| id.starts_with("lc-")),
                "{pool}: {ids:?}"
            ),
            _ => assert_eq!(ids, before[&pool], "{pool}"),
        }
    }

    let check = server.home.run(&["rules", "tidy", "--check", out]);
    assert_eq!(check.code, 7, "{}", check.err);
    let n_dead = format!("{} of {} ids", n_pools / 2 * n_zones, n_pools * n_zones);
    assert!(check.out.contains(&n_dead), "{}", check.out);

    // And back: the ids hold for what they were given for.
    server.home.write("rules/fleet.yaml", &rules);
    server.ok(&["apply", "--yes", "-f", out]);
    assert_eq!(launch_config_ids(&server), before);

    // A new place needs no new id.
    let place = "- { machine: m0, region: r2, zone: r2-5 }";
    let further = format!("{place}\n            - {{ machine: m1, region: r0, zone: r0-0 }}");
    let more = rules.replace(place, &further);
    assert_ne!(more, rules, "{rules}");
    server.home.write("rules/fleet.yaml", &more);
    let plan = effects(&server, out, &[]);
    assert_eq!(plan["launchConfigs"]["replaced"], 0, "{plan}");
    assert!(
        plan["launchConfigs"]["created"].as_u64().unwrap() > 0,
        "{plan}"
    );
}

#[test]
fn a_plan_to_adopt_pools_shows_differences() {
    let server = Server::without_pools();
    let file = server
        .home
        .write("fleet.json", &fleet_with_given_ids(2, 3).to_string());
    server.ok(&["import", "taskcluster", "--from", &file]);
    let out = server.home.path("rules");
    let out = out.to_str().unwrap();
    server.ok(&["import", "rules", "--from", &file, "--out", out]);
    let rules = server.home.read("rules/fleet.yaml");
    let rules = rules.replace("owner: o@example.com", "owner: new@example.com");
    let rules = rules.replace("maxCapacity: 3", "maxCapacity: 4");
    server.home.write(
        "rules/fleet.yaml",
        &rules.replace("image: one", "image: two"),
    );
    let text = server.ok(&["plan", "-f", out, "--adopt-pools"]);
    for part in [
        "pool demo/p0: created by hand, taken over: 3 replaced launch configs",
        "/config/maxCapacity: 3 → 4",
        "/owner: \"o@example.com\" → \"new@example.com\"",
        "/workerConfig/image: \"one\" → \"two\"",
        "own-0-0 → lc-",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
    let plan = effects(&server, out, &["--adopt-pools"]);
    assert_eq!(plan["launchConfigs"]["replaced"], 6);
    // Without --adopt-pools, no pool is taken over.
    let refused = server.run(&["plan", "-f", out]);
    assert_eq!(refused.code, 5, "{}", refused.err);
    assert!(
        refused.err.contains("use --adopt-pools to take it over"),
        "{}",
        refused.err
    );
}

/// A real fleet, if a copy is available.
#[test]
fn a_real_fleet_is_the_same_by_rules_in_a_fraction_of_its_size() {
    let file =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/community-fleet.json");
    if !file.exists() {
        eprintln!("skipped: {} is not here", file.display());
        return;
    }
    let file = file.to_str().unwrap();
    let home = Home::new();
    let out = home.path("rules");
    let out = out.to_str().unwrap();
    let done = home.run(&["import", "rules", "--json", "--from", file, "--out", out]);
    assert_eq!(done.code, 0, "{}", done.err);
    let report: Value = serde_json::from_str(&done.out).unwrap();
    let counts = (&report["workerPools"], &report["launchConfigs"]);
    assert_eq!(counts, (&json!(54), &json!(422)));
    let bytes = |when: &str| report["bytes"][when].as_u64().unwrap();
    assert!(bytes("after") * 12 < bytes("before"), "{report}");

    // Clouds have places of which no pool makes use, and do not know all those that pools use.
    let home = || {
        let clouds = ["aws", "azure", "google"].map(|cloud| {
            format!(
                "[providers.community-tc-workers-{cloud}]\nkind = \"fake\"\naccepts = \"{cloud}\"\nplaces = [{{ region = \"us-east-1\", availabilityZone = \"us-east-1z\", zone = \"us-east-1-z\" }}, {{ region = \"mars\", availabilityZone = \"mars-a\", zone = \"mars-b\" }}]\n"
            )
        });
        let home = Home::new();
        let text = format!("[providers.local]\nkind = \"static\"\n{}", clouds.join(""));
        let config = home.write("c.toml", &text);
        (home, vec!["--config".to_owned(), config])
    };
    assert_eq!(arrives_the_same(home, file).as_array().unwrap().len(), 54);
    edited_in_one_value(home, file);
}

/// Most pools of that fleet have the same owner; a new owner changes no launch config, a new
/// image does.
fn edited_in_one_value(home: impl Fn() -> (Home, Vec<String>), file: &str) {
    let (home, more) = home();
    let more: Vec<_> = more.iter().map(String::as_str).collect();
    let server = Server::start_in(home, &more);
    let out = server.home.path("rules");
    let out = out.to_str().unwrap();
    server.ok(&["import", "taskcluster", "--only", "pools", "--from", file]);
    server.ok(&["import", "rules", "--from", file, "--out", out]);
    server.ok(&["apply", "--yes", "--adopt-pools", "--file", out]);
    let before = launch_config_ids_of(&server);
    let rules = server.home.read("rules/fleet.yaml");
    let edited = rules.replacen("idleTimeoutSecs: 15", "idleTimeoutSecs: 16", 1);
    assert_ne!(edited, rules, "the fleet has this idle time");
    server.home.write("rules/fleet.yaml", &edited);
    let plan = effects(&server, out, &[]);
    let count = |what: &str| plan["launchConfigs"][what].as_u64().unwrap();
    assert!(count("replaced") > 0, "{plan}");
    assert_eq!((count("created"), count("archived")), (0, 0));
    server.ok(&["apply", "--yes", "--file", out]);
    let after = launch_config_ids_of(&server);
    let kept = before.intersection(&after).count() as u64;
    assert_eq!(before.len() as u64 - kept, count("replaced"));
    assert_eq!(after.len(), before.len());
}

/// All ids of launch configs, with their pools.
fn launch_config_ids_of(server: &Server) -> BTreeSet<(String, String)> {
    let by_pool = launch_config_ids(server).into_iter();
    let all = by_pool.flat_map(|(pool, ids)| ids.into_iter().map(move |id| (pool.clone(), id)));
    all.collect()
}
