//! Plans of large fleets: how much they show, and which errors and warnings.

use serde_json::{Value, json};

use crate::code::{apply, plan};
use crate::world::{Home, Server};

/// Lines that a plan of one changed value may have.
const MAX_LINES: usize = 30;

const GOOGLE: &str = "[providers.cloud]\nkind = \"fake\"\naccepts = \"google\"\n";

fn cloud() -> Server {
    let home = Home::new();
    let file = home.write("cloud.toml", GOOGLE);
    Server::start_in(home, &["--config", &file])
}

/// A fleet of this many pools with six or seven launch configs each.
fn fleet(n_pools: usize) -> Value {
    let zones: Vec<String> = (1..=6).map(|zone| format!("r1-{zone}")).collect();
    let places = json!([{"region": "r1", "zone": zones}]);
    let mut all_zones = zones.clone();
    all_zones.push("r1-7".to_owned());
    let more = json!([{"region": "r1", "zone": all_zones}]);
    let launch_config = json!({"machineType": "m", "region": "r1", "networkInterfaces": [{}],
        "scheduling": {}, "disks": [{"initializeParams": {"diskSizeGb": 60}}],
        "workerConfig": {"idleTimeoutSecs": 15}});
    let zone_rules = (1..=7).map(|zone| {
        let zone = format!("r1-{zone}");
        json!({"ruleId": zone, "conditions": {"zone": zone}, "values": {"google": {"zone": zone}}})
    });
    let mut rules = vec![
        json!({"ruleId": "defaults", "values": {"owner": "o@example.com", "description": "d",
            "maxCapacity": 9, "providers": {"cloud": {"exact": true, "section": "google", "places": places}}}}),
        json!({"ruleId": "google", "conditions": {"provider": "cloud"}, "values": {"google": launch_config}}),
        json!({"ruleId": "more", "conditions": {"workerType": "demo/p*[05]"},
            "values": {"providers": {"cloud": {"places": more}}}}),
    ];
    rules.extend(zone_rules);
    let types: Vec<String> = (0..n_pools).map(|pool| format!("demo/p{pool}")).collect();
    json!({"workerConfigurationId": "fleet", "workerTypes": types, "rules": rules})
}

fn written(server: &Server, fleet: &Value) -> String {
    let text = format!("{}\n", serde_json::to_string_pretty(fleet).unwrap());
    server.home.write("fleet.json", &text)
}

#[test]
fn one_changed_value_of_many_pools_is_shown_once() {
    let server = cloud();
    let mut fleet = fleet(40);
    let file = written(&server, &fleet);
    assert_eq!(apply(&server, &file).code, 0);
    fleet["rules"][1]["values"]["google"]["workerConfig"]["idleTimeoutSecs"] = json!(31);
    written(&server, &fleet);
    let planned = plan(&server, &file, &[]);
    insta::assert_snapshot!(planned.out, @r"
    ~ worker configuration fleet (40 pools, 248 replaced launch configs)
        ~ rule google
            /values/google/workerConfig/idleTimeoutSecs: 15 → 31
        ~ 248 replaced launch configs in 40 pools
            /workerConfig/idleTimeoutSecs: 15 → 31
            in demo/p0 (7), demo/p1 (6), demo/p10 (7) and 37 more pools
    1 to change
    ");
    assert!(
        planned.err.contains("--full shows each launch config"),
        "{}",
        planned.err
    );
    assert!(planned.out.lines().count() <= MAX_LINES);
    let one = plan(&server, &file, &["--pool", "demo/p5"]).out;
    assert_eq!(
        one.matches("/workerConfig/idleTimeoutSecs: 15 → 31")
            .count(),
        1 + 7,
        "{one}"
    );
    assert!(!one.contains("demo/p6"), "{one}");
    let other = plan(&server, &file, &["--pool", "demo/none"]).out;
    assert_eq!(other, "no effect on demo/none\n");
    let full = plan(&server, &file, &["--full"]).out;
    assert_eq!(
        full.matches("/workerConfig/idleTimeoutSecs: 15 → 31")
            .count(),
        1 + 248
    );
}

#[test]
fn errors_are_reported_once_with_their_line() {
    let server = cloud();
    let refused = |change: &dyn Fn(&mut Value)| {
        let mut fleet = fleet(40);
        change(&mut fleet);
        let file = written(&server, &fleet);
        let refused = plan(&server, &file, &[]);
        assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
        refused.err.replace(&file, "fleet.json")
    };
    let missing = refused(&|fleet| {
        let rules = fleet["rules"].to_string().replace("\"cloud\"", "\"clowd\"");
        fleet["rules"] = serde_json::from_str(&rules).unwrap();
    });
    insta::assert_snapshot!(missing, @r#"
    error: the plan cannot be applied: could not plan worker configuration fleet of fleet.json: The worker configuration cannot be used; nothing was changed:
    * with workerType=demo/p0 and 39 more: /providers/clowd: "clowd" is not a provider, did you mean "cloud"? The providers are: cloud, fake, local, static. Correct the name, or add the section [providers.clowd] to the configuration of the server (`fleetwright config example` has some) (rules "defaults", "more"; fleet.json:63)
    "#);
    let invalid = refused(&|fleet| {
        fleet["rules"][1]["values"]["google"]["capacityPerInstance"] = json!(0);
    });
    let expected = " and 247 more, of 40 worker types: /google/capacityPerInstance must be >= 1 \
                    (rule \"google\"; fleet.json:";
    assert!(invalid.contains(expected), "{invalid}");
    assert_eq!(invalid.matches("must be").count(), 1, "{invalid}");
    let misspelt = refused(&|fleet| {
        let rules = fleet["rules"]
            .to_string()
            .replace("{\"zone\":\"r1-3\"}", "{\"zoone\":\"r1-3\"}");
        fleet["rules"] = serde_json::from_str(&rules).unwrap();
    });
    let expected = "rule \"r1-3\": condition \"zoone\" is not a usual one, did you mean \"zone\"?";
    assert!(misspelt.contains(expected), "{misspelt}");
    assert_eq!(misspelt.lines().count(), 1, "{misspelt}");
}

#[test]
fn misspelt_keys_of_launch_configs_are_warned_about() {
    let server = cloud();
    let mut fleet = fleet(2);
    let disk = json!([{"initializeParams": {"diskSizeGB": 60}}]);
    fleet["rules"][1]["values"]["google"]["disks"] = disk;
    let file = written(&server, &fleet);
    let warning = "/google/disks/0/initializeParams: \"diskSizeGB\" is not a key of Google's API, \
                   did you mean \"diskSizeGb\"? (rule \"google\"; ";
    let planned = plan(&server, &file, &[]);
    assert_eq!(planned.code, 0, "{}", planned.err);
    assert!(planned.err.contains(warning), "{}", planned.err);
    let linted = server.run(&["rules", "lint", &file]);
    assert_eq!(linted.code, 0, "{}", linted.out);
    assert!(linted.err.contains(warning), "{}", linted.err);
    let launch_config = json!({"machineType": "m", "region": "r1", "zone": "z", "disks": [{}],
        "networkInterfaces": [{}], "schedulling": {}, "scheduling": {}, "workerConfig": {}});
    let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [launch_config]});
    let config = config.to_string();
    let named = ["pool", "create", "demo/hand", "--owner", "o@example.com"];
    let create = [&named[..], &["--provider", "cloud", "--config", &config]].concat();
    let created = server.run(&create);
    assert_eq!(created.code, 0, "{}", created.err);
    let warning = "warning: /launchConfigs/0: \"schedulling\" is not a key of Google's API, did you \
                   mean \"scheduling\"?";
    assert!(created.err.contains(warning), "{}", created.err);
}
