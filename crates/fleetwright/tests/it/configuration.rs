//! Worker configurations in files and on a server.

use serde_json::{Value, json};

use crate::world::{Home, Server};

/// The example of RFC 124.
const RFC: &str = r#"{
  "workerTypes": ["build-opt", "build-dbg"],
  "rules": [
    {
      "ruleId": "basic-options",
      "conditions": null,
      "values": {
        "scalingRatio": 1,
        "owner": "build-team@my-open-source-project.com",
        "description": "configuration for builds"
      },
      "description": "Basic worker options"
    },
    {
      "ruleId": "ec2-ami",
      "conditions": [{ "provider": "ec2", "region": "us-east-1" }],
      "values": { "ec2": { "ImageId": "ami-12345abcdef" } },
      "description": "Configure EC2 AMI images to be used"
    },
    {
      "ruleId": "us-east-1a subnets",
      "conditions": [{ "provider": "ec2", "region": "us-east-1", "availabilityZone": "us-east-1a" }],
      "values": { "ec2": { "SubnetID": "sn-302433abcdef" } },
      "description": "us-east-1a needs own subnet for inter-vpc communication"
    }
  ]
}
"#;

const PRESENTED: [&str; 6] = [
    "--set",
    "provider=ec2",
    "--set",
    "region=us-east-1",
    "--set",
    "availabilityZone=us-east-1a",
];

/// Two worker types in two zones of a simulated cloud.
pub(crate) const BUILD: &str = r#"
workerConfigurationId: build
description: What builds
workerTypes: [build-opt, build-dbg]
rules:
  - ruleId: basics
    values:
      owner: build@example.com
      description: Builds
      maxCapacity: 4
      providers: { fake: { places: [{ zone: [z1, z2] }] } }
  - ruleId: machines
    conditions: { provider: fake }
    values:
      fake: { region: r, machineType: m1, disks: [{}], networkInterfaces: [{}], scheduling: {},
        workerConfig: {}, workerManager: { capacityPerInstance: 1 } }
  - { ruleId: z1, conditions: { zone: z1 }, values: { fake: { zone: z1 } } }
  - { ruleId: z2, conditions: { zone: z2 }, values: { fake: { zone: z2 } } }
"#;

fn server_with_build() -> (Server, String) {
    let server = Server::without_pools();
    let file = server.home.write("build.yaml", BUILD);
    server.ok(&["rules", "create", "build", "--file", &file]);
    (server, file)
}

#[test]
fn the_example_of_the_rfc_gives_exactly_its_result() {
    let home = Home::new();
    let file = home.write("build.json", RFC);
    let done = home.run(&[&["rules", "eval", &file][..], &PRESENTED].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    let result: Value = serde_json::from_str(&done.out).unwrap();
    assert_eq!(
        result,
        json!({
            "scalingRatio": 1,
            "owner": "build-team@my-open-source-project.com",
            "description": "configuration for builds",
            "ec2": { "ImageId": "ami-12345abcdef", "SubnetID": "sn-302433abcdef" },
        })
    );
}

#[test]
fn unknown_conditions_give_a_warning() {
    let home = Home::new();
    let file = home.write("build.yaml", BUILD);
    let slips = ["--set", "workerType=build-otp", "--set", "zne=z1"];
    let done = home.run(&[&["rules", "eval", &file][..], &slips].concat());
    assert_eq!(done.code, 0, "{}", done.err);
    for part in [
        "worker types, did you mean \"build-opt\"?",
        "\"zne\", did you mean \"zone\"?",
    ] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    let known = ["--set", "workerType=build-opt", "--set", "zone=z1"];
    let done = home.run(&[&["rules", "eval", &file][..], &known].concat());
    assert_eq!(done.err, "");
}

#[test]
fn every_value_of_a_file_has_its_origin_and_history() {
    let home = Home::new();
    let file = home.write("build.json", RFC);
    let eval = [&["rules", "eval", &file, "--origins"][..], &PRESENTED].concat();
    let text = home.run(&eval).out;
    let line = text.lines().find(|line| line.starts_with("/ec2/SubnetID"));
    assert!(line.unwrap().contains("us-east-1a subnets"), "{text}");
    let document: Value =
        serde_json::from_str(&home.run(&[&eval[..], &["--json"]].concat()).out).unwrap();
    assert_eq!(document["origins"]["/ec2/ImageId"]["ruleId"], "ec2-ami");
    assert_eq!(document["applying"].as_array().unwrap().len(), 3);

    let explain = [&["rules", "explain", &file, "/ec2/ImageId"][..], &PRESENTED].concat();
    let told = home.run(&explain).out;
    assert!(
        told.contains("\"ec2-ami\" sets \"ami-12345abcdef\""),
        "{told}"
    );
}

#[test]
fn the_server_gives_the_same_result_and_origins_as_the_file() {
    let (server, file) = server_with_build();
    let presented = [
        "--set",
        "workerType=build-opt",
        "--set",
        "provider=fake",
        "--set",
        "zone=z1",
    ];
    for verb in [
        &["rules", "eval"][..],
        &["rules", "eval", "--origins"],
        &["rules", "explain"],
    ] {
        let pointer = if verb.contains(&"explain") {
            &["/fake/zone"][..]
        } else {
            &[]
        };
        let here = [verb, &[&file], pointer, &presented].concat();
        let there = [verb, &["--server", "build"], pointer, &presented].concat();
        // Only the file has lines.
        let local = server.ok(&here).replace(&format!("  ({file}:17)"), "");
        assert_eq!(local, server.ok(&there), "{verb:?}");
    }
}

#[test]
fn a_configuration_is_made_shown_changed_compared_reverted_and_deleted() {
    let (server, _) = server_with_build();
    let listed = server.ok(&["rules", "list"]);
    assert!(listed.contains("build-opt, build-dbg"), "{listed}");
    assert_eq!(
        server.json(&["pool", "show", "worker-manager/build-opt"])["config"]["launchConfigs"]
            .as_array()
            .unwrap()
            .len(),
        2
    );

    // The output can be edited and sent back; its version prevents lost updates.
    let shown = server.ok(&["rules", "show", "build"]);
    let edited = shown.replace("machineType: m1", "machineType: m2");
    assert_ne!(edited, shown);
    let file = server.home.write("edited.yaml", &edited);
    let plan = server.ok(&["rules", "plan", "build", "--file", &file]);
    for part in [
        "~ rule machines",
        "/values/fake/machineType: \"m1\" → \"m2\"",
        "~ pool worker-manager/build-opt: 2 replaced launch configs",
        "2 pools, 4 replaced launch configs",
    ] {
        assert!(plan.contains(part), "{part}: {plan}");
    }
    let update = [
        "rules", "update", "build", "--file", &file, "--reason", "newer",
    ];
    assert!(server.ok(&update).contains("now at version 2"));
    let late = server.run(&update);
    assert_eq!(late.code, 5, "{}", late.err);
    assert!(late.err.contains("somebody changed it"), "{}", late.err);

    let history = server.ok(&["rules", "history", "build"]);
    assert!(
        history.contains("updated") && history.contains("newer"),
        "{history}"
    );
    let diff = server.ok(&["rules", "diff", "build", "1", "2"]);
    assert!(diff.contains("\"m1\" → \"m2\""), "{diff}");
    server.ok(&["rules", "revert", "build", "--to", "1", "--yes"]);
    let now = server.json(&["rules", "show", "build"]);
    assert_eq!(now["version"], 3);
    assert_eq!(now["rules"][1]["values"]["fake"]["machineType"], "m1");

    assert_eq!(server.run(&["rules", "delete", "build"]).code, 2);
    let old = ["rules", "delete", "build", "--yes", "--version", "1"];
    assert_eq!(server.run(&old).code, 5);
    server.ok(&["rules", "delete", "build", "--yes"]);
    assert_eq!(server.run(&["rules", "show", "build"]).code, 3);
}

#[test]
fn one_rule_is_shown_added_replaced_moved_and_removed() {
    let (server, _) = server_with_build();
    let rule = |verb: &str, more: &[&str]| {
        let arguments = [&["rules", "rule", verb, "build"][..], more].concat();
        server.run(&arguments)
    };
    let order = || {
        let shown = server.json(&["rules", "show", "build"]);
        let rules = shown["rules"].as_array().unwrap().iter();
        rules
            .map(|rule| rule["ruleId"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let file = server.home.write(
        "rule.yaml",
        "conditions: { workerType: build-dbg }\nvalues: { maxCapacity: 1 }\n",
    );
    let added = rule("add", &["debug", "--file", &file, "--after", "basics"]);
    assert_eq!(added.code, 0, "{}", added.err);
    assert_eq!(order(), ["basics", "debug", "machines", "z1", "z2"]);
    assert!(rule("show", &["debug"]).out.contains("maxCapacity: 1"));
    assert_eq!(
        server.json(&["pool", "show", "worker-manager/build-dbg"])["config"]["maxCapacity"],
        1
    );

    assert_eq!(rule("move", &["debug", "--first"]).code, 0);
    assert_eq!(order()[0], "debug");
    assert_eq!(rule("move", &["debug"]).code, 2);
    let file = server.home.write(
        "rule.json",
        r#"{"ruleId": "debug", "values": {"minPrice": 1}}"#,
    );
    assert_eq!(
        rule("replace", &["debug", "--file", &file, "--version", "1"]).code,
        5
    );
    let replaced = rule("replace", &["debug", "--file", &file, "--reason", "why"]);
    assert_eq!(replaced.code, 0, "{}", replaced.err);
    assert_eq!(rule("remove", &["debug", "--yes"]).code, 0);
    assert_eq!(order(), ["basics", "machines", "z1", "z2"]);
    assert_eq!(rule("remove", &["debug", "--yes"]).code, 3);
    let misspelt = server
        .home
        .write("rule.yaml", "condition: {}\nvalues: {}\n");
    let done = rule("add", &["x", "--file", &misspelt]);
    assert_eq!(done.code, 2);
    assert!(done.err.contains("\"condition\""), "{}", done.err);
}

#[test]
fn errors_have_conditions_path_and_rules() {
    let server = Server::without_pools();
    let file = server.home.write(
        "build.yaml",
        &BUILD.replace("maxCapacity: 4", "maxCapacity: many"),
    );
    let done = server.run(&["rules", "create", "build", "--file", &file]);
    assert_eq!(done.code, 1, "{}", done.err);
    for part in ["workerType=build-opt", "maxCapacity", "\"many\""] {
        assert!(done.err.contains(part), "{part}: {}", done.err);
    }
    let other = server.run(&["rules", "create", "other", "--file", &file]);
    assert_eq!(other.code, 2);
    assert!(
        other.err.contains("worker configuration build, not other"),
        "{}",
        other.err
    );
}

#[test]
fn the_payload_schema_of_a_worker_type_is_a_value_like_others() {
    let server = Server::without_pools();
    let text = BUILD.replace(
        "maxCapacity: 4",
        "maxCapacity: 4\n      payloadSchema: { required: [image] }",
    );
    let file = server.home.write("build.yaml", &text);
    server.ok(&["rules", "create", "build", "--file", &file]);
    let schema = server.ok(&["rules", "payload-schema", "build-opt"]);
    let schema: Value = serde_json::from_str(&schema).unwrap();
    assert_eq!(schema, json!({"required": ["image"]}));
    assert_eq!(server.run(&["rules", "payload-schema", "nosuch"]).code, 3);
}

#[test]
fn files_are_formatted_and_keep_their_comments() {
    let home = Home::new();
    let messy = "rules:\n- values: {}\n  ruleId: r\nworkerTypes: ['a']\n";
    let tidy = "workerTypes: [a]\nrules: [{ ruleId: r, values: {} }]\n";
    let file = home.write("messy.yaml", messy);
    assert_eq!(home.run(&["rules", "fmt", &file]).out, tidy);
    let check = home.run(&["rules", "fmt", &file, "--check"]);
    assert_eq!((check.code, check.out), (7, format!("{file}\n")));
    assert_eq!(home.run(&["rules", "fmt", &file, "--write"]).code, 0);
    assert_eq!(home.read("messy.yaml"), tidy);
    assert_eq!(home.run(&["rules", "fmt", &file, "--check"]).code, 0);

    let checked = home.run(&["rules", "fmt", &file, "--check"]);
    assert_eq!(checked.out, "1 file already formatted\n");

    let commented = format!("# Why.\n{messy}# The end.\n");
    let file = home.write("commented.yaml", &commented);
    assert_eq!(home.run(&["rules", "fmt", &file, "--write"]).code, 0);
    let kept = format!("# Why.\n{tidy}# The end.\n");
    assert_eq!(home.read("commented.yaml"), kept);

    let aliases = format!("{messy}x: [&a {{}}, *a]\n");
    let file = home.write("aliases.yaml", &aliases);
    let left = home.run(&["rules", "fmt", &file, "--write"]);
    assert_eq!(left.code, 0);
    assert!(
        left.err.contains("would delete its aliases"),
        "{}",
        left.err
    );
    assert_eq!(home.read("aliases.yaml"), aliases);
    home.run(&["rules", "fmt", &file, "--write", "--force"]);
    assert!(!home.read("aliases.yaml").contains('&'));
}

#[test]
fn an_explanation_has_the_line_of_each_step() {
    let home = Home::new();
    let file = home.write("build.yaml", BUILD);
    let set = ["--set", "provider=fake", "--set", "zone=z1"];
    let explain = [&["rules", "explain", &file, "/fake/zone"][..], &set].concat();
    let text = home.run(&explain).out;
    assert!(
        text.contains(&format!("\"z1\" sets \"z1\"  ({file}:17)")),
        "{text}"
    );
    let shown: Value =
        serde_json::from_str(&home.run(&[&explain[..], &["--json"]].concat()).out).unwrap();
    assert_eq!(shown["steps"][0]["place"], format!("{file}:17"));
}

#[test]
fn rules_that_never_match_are_found_if_the_places_are_known() {
    let home = Home::new();
    let dead = "  - { ruleId: z3, conditions: { zone: z3 }, values: { fake: { zone: z3 } } }\n";
    let file = home.write("build.yaml", &format!("{BUILD}{dead}"));
    let done = home.run(&["rules", "lint", &file]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(
        done.out.starts_with(&format!("{file}:")) && done.out.contains(": \"z3\": never applies"),
        "{}",
        done.out
    );
    let document: Value =
        serde_json::from_str(&home.run(&["rules", "lint", &file, "--json"]).out).unwrap();
    assert_eq!(document["files"][0]["findings"][0]["ruleId"], "z3");
    let file = home.write("build.yaml", BUILD);
    let done = home.run(&["rules", "lint", &file]);
    let expected = format!("{file}: no findings in 2 worker types and 4 rules\n");
    assert_eq!((done.code, done.out), (0, expected), "{}", done.err);

    let schema: Value = serde_json::from_str(&home.run(&["rules", "schema"]).out).unwrap();
    assert!(schema["properties"]["rules"].is_object(), "{schema}");
}

#[test]
fn lint_reads_the_places_of_the_server() {
    let home = Home::new();
    let cloud =
        "[providers.fake]\nkind = \"fake\"\nplaces = [{ region = \"r1\" }, { region = \"r2\" }]\n";
    let file = home.write("clouds.toml", cloud);
    let server = Server::start_in(home, &["--config", &file]);
    let places = server.ok(&["provider", "places"]);
    let places = server.home.write("places.yaml", &places);
    let written = |region: &str| {
        let rule = json!({"ruleId": "r", "conditions": {"region": region}, "values": {"fake": {"diskSizeGb": 9}}});
        let name = format!("{region}.yaml");
        let text = BUILD.replace(" places: [{ zone: [z1, z2] }] ", "");
        let text = text.split("  - { ruleId: z1").next().unwrap();
        server.home.write(&name, &format!("{text}  - {rule}\n"))
    };
    let (known, dead) = (written("r1"), written("r3"));
    let lint = |file: &str, more: &[&str]| {
        let arguments = ["rules", "lint", file];
        server.run(&[&arguments[..], more].concat())
    };
    // Without a server and --places, the places are unknown.
    assert!(lint(&dead, &[]).err.contains("unknown places: region"));
    for more in [&["--with-server"][..], &["--places", &places]] {
        assert_eq!(lint(&known, more).code, 0, "{}", lint(&known, more).out);
        let done = lint(&dead, more);
        assert_eq!(done.code, 1, "{}", done.err);
        assert!(done.out.contains("\"r\": never applies"), "{}", done.out);
    }
}

#[test]
fn a_file_can_be_standard_input() {
    let server = Server::without_pools();
    let arguments = ["rules", "create", "build", "--file", "-"];
    let done = server.with_input(&arguments, BUILD);
    assert_eq!(done.code, 0, "{}", done.err);
    let eval = ["rules", "eval", "-", "--set", "zone=z1"];
    assert!(
        server
            .with_input(&eval, BUILD)
            .out
            .contains("\"zone\": \"z1\"")
    );
}
