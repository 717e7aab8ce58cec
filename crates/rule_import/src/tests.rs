//! Fleets of many kinds become rules that compile to the same fleet.

use std::collections::BTreeSet;

use files::{Format, parse};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::configuration_file::configurations;
use super::tests_common::{
    files_of, google, launching, made_fleet, pool, read_pools, select, written,
};
use super::{ExcludedPool, FilesBy, Grouping, PoolSelection};

fn reasons(list: &[ExcludedPool]) -> String {
    let lines = list
        .iter()
        .map(|pool| format!("{}: {}", pool.id, pool.reason));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn common_values_of_pools_are_in_one_rule() {
    let zones = |machine: &str, more: Value| {
        let zones = ["us-east-a", "us-east-b"];
        launching(&zones.map(|zone| google(zone, machine, more.clone())))
    };
    let pools = vec![
        pool("proj-x/ci", "gcp", zones("n2", json!({}))),
        pool("proj-x/build", "gcp", zones("n2", json!({}))),
        pool(
            "proj-y/ci",
            "gcp",
            zones("n4", json!({"workerConfig": {"idle": 90}})),
        ),
        pool(
            "proj-y/iron",
            "hands",
            json!({"lifecycle": {"reregistrationTimeout": 60}}),
        ),
    ];
    insta::assert_snapshot!(written(pools).text, @r#"
    workerConfigurationId: fleet
    description: d
    workerTypes: [proj-x/build, proj-x/ci, proj-y/ci, proj-y/iron]
    rules:
      - ruleId: all-pools
        description: "Max capacity, owner and 2 more"
        conditions: null
        values:
          owner: o@example.com
          maxCapacity: 5
          providers:
            gcp:
              exact: true
              places: [{ machine: n2, region: us-east, zone: [us-east-a, us-east-b] }]
              section: google
      - ruleId: google
        description: "Disks, machine type and 4 more"
        conditions: { provider: gcp }
        references: true
        values:
          google:
            disks: [{ size: 60 }]
            machineType: "zones/${zone}/machineTypes/${machine}"
            region: us-east
            workerConfig: { idle: 15 }
            workerManager: { capacityPerInstance: 1 }
            zone: "${zone}"
      - ruleId: google-n4-idle
        conditions: { machine: n4 }
        values: { google: { workerConfig: { idle: 90 } } }
      - ruleId: proj-x-description
        conditions: { workerType: proj-x/* }
        values: { description: about proj-x }
      - ruleId: proj-y-description
        conditions: { workerType: proj-y/* }
        values: { description: about proj-y }
      - ruleId: google-proj-y-ci-machine
        conditions: { workerType: proj-y/ci }
        values: {}
        elements: { "/providers/gcp/places/[machine=n2]/machine": n4 }
      - ruleId: proj-y-iron
        description: "Reregistration timeout, max capacity and 2 more"
        conditions: { workerType: proj-y/iron }
        values:
          lifecycle: { reregistrationTimeout: 60 }
          maxCapacity: null
          providers: { gcp: null, hands: {} }
    "#);
}

#[test]
fn a_given_id_is_kept_and_a_computed_one_is_not_written() {
    let given = google(
        "r-a",
        "m",
        json!({"workerManager": {"launchConfigId": "lc-mine"}}),
    );
    let plain = google("r-b", "m", json!({"workerManager": {}}));
    let plain = plain.as_object().unwrap();
    let id = domain::launch_config::id_of(&"p/a".parse().unwrap(), plain).unwrap();
    let mut computed = plain.clone();
    computed["workerManager"] = json!({"launchConfigId": id.to_string()});
    let pools = vec![pool(
        "p/a",
        "g",
        launching(&[given, Value::Object(computed)]),
    )];
    let written = written(pools);
    let ids = written.ids.unwrap();
    assert!(
        ids.starts_with("partOf: fleet\nlaunchConfigIds: { lc-"),
        "{ids}"
    );
    assert!(ids.ends_with(": lc-mine }\n"), "{ids}");
    assert_eq!(written.n_ids, 1);
    for text in [&written.text, &ids] {
        assert!(!text.contains(id.as_str()), "{text}");
    }
}

#[test]
fn launch_configs_that_differ_in_nothing_that_a_place_says_are_numbered() {
    let spot = google("r-a", "m", json!({"scheduling": {"spot": true}}));
    let standard = google("r-a", "m", json!({"scheduling": {}}));
    let text = written(vec![pool("p/a", "g", launching(&[spot, standard]))]).text;
    assert!(text.contains(r#"variant: ["1", "2"]"#), "{text}");
}

#[test]
fn of_the_same_launch_config_twice_one_is_left() {
    let one = google("r-a", "m", json!({}));
    let selection = select(vec![pool("p/a", "g", launching(&[one.clone(), one]))]);
    assert_eq!(selection.sources[0].launch_configs.len(), 1);
}

#[test]
fn pools_that_rules_cannot_express_are_refused_and_the_others_continue() {
    let odd = |more: Value| launching(&[google("r-a", "m", more)]);
    let clash = |size: u32| {
        google(
            "r-a",
            "m",
            json!({"disks": [size], "workerManager": {"launchConfigId": "x"}}),
        )
    };
    let mut pools = read_pools(vec![
        pool("p/null", "g", odd(json!({"scheduling": {"a": null}}))),
        pool(
            "p/nulls-in-lists-are-fine",
            "g",
            odd(json!({"disks": [null]})),
        ),
        pool(
            "p/other",
            "g",
            odd(json!({"workerManager": {"providerId": "h"}})),
        ),
        pool("p/key", "g", json!({"maxCapacity": 1, "colour": "red"})),
        pool("p/clash", "g", launching(&[clash(1), clash(2)])),
        pool(
            "p/list",
            "g",
            json!({"maxCapacity": 1, "launchConfigs": [3]}),
        ),
        pool("p/going", "null-provider", json!({})),
        pool("p/made", "g", launching(&[])),
    ]);
    let made = pools.get_mut(&"p/made".parse().unwrap()).unwrap();
    made.worker_configuration_id = Some("mine".to_owned());
    let selection = PoolSelection::new(&pools);
    insta::assert_snapshot!(reasons(&selection.refused), @"
    p/clash: launch config number 2: it has the id x of a launch config with other content
    p/key: rules have no counterpart to colour in its config
    p/list: launch config number 1: it is not an object
    p/null: launch config number 1: /scheduling/a is null, and in rules a null deletes
    p/other: launch config number 1: it names another provider: write this pool by hand
    ");
    insta::assert_snapshot!(reasons(&selection.left_out), @"
    p/going: it is being deleted
    p/made: it is made of the rules of mine already
    ");
    assert_eq!(selection.sources.len(), 1);
}

#[test]
fn pools_without_launch_configs_and_odd_provider_names_are_pools_too() {
    written(vec![
        pool("p/none", "g", launching(&[])),
        pool("p/missing", "g", json!({"maxCapacity": 0})),
        pool(
            "worker-manager/short",
            "owner",
            launching(&[json!({"a": 1})]),
        ),
        pool(
            "p/hands",
            "description",
            json!({"workerConfig": {}, "lifecycle": {}}),
        ),
        pool(
            "p/cloud",
            "google",
            launching(&[json!({"launchConfig": {}, "region": "r"})]),
        ),
        pool(
            "q/cloud",
            "aws",
            launching(&[google("r-a", "m", json!({}))]),
        ),
    ]);
}

#[test]
fn settings_that_no_rule_set_may_have_are_refused_with_their_reason() {
    let setting = |id: &str, key: &str, value: Value| {
        let mut config = launching(&[google("r-a", "m", json!({}))]);
        config[key] = value;
        pool(id, "g", config)
    };
    let selection = select(vec![
        pool("p/bare", "g", json!({"minCapacity": 0})),
        pool("p/empty", "g", launching(&[json!({})])),
        setting("p/fine", "scalingRatio", json!(0.5)),
        setting("p/half", "maxCapacity", json!(10.5)),
        setting("p/huge", "maxCapacity", json!(10_000_000_000_u64)),
        setting("p/less", "minCapacity", json!(-1)),
        setting("p/much", "scalingRatio", json!(1_000)),
        setting("p/odd", "strategy", json!("luck")),
    ]);
    insta::assert_snapshot!(reasons(&selection.refused), @r#"
    p/bare: in its config maxCapacity is missing
    p/empty: launch config number 1: it is empty
    p/half: in its config maxCapacity must be a whole number from 0 to 1000000000, not 10.5
    p/huge: in its config maxCapacity must be a whole number from 0 to 1000000000, not 10000000000
    p/less: in its config minCapacity must be a whole number from 0 to 1000000000, not -1
    p/much: in its config scalingRatio must be a number from 0 to 100, not 1000
    p/odd: in its config "luck" is not a strategy; use "weighted", "aws-provisioner", "balanced" or "external"
    "#);
    assert_eq!(selection.sources.len(), 1);
}

#[test]
fn a_pool_that_no_configuration_can_hold_is_refused_and_the_others_are_written() {
    let nested = (0..40).fold(json!(1), |inside, _| json!([inside]));
    let fine = || launching(&[google("r-a", "m", json!({}))]);
    let deep = launching(&[google("r-a", "m", json!({ "disks": nested }))]);
    let mut selection = select(vec![
        pool("p/a", "g", fine()),
        pool("p/deep", "g", deep),
        pool("q/b", "g", fine()),
    ]);
    assert_eq!(selection.refused, []);
    let written = selection.configurations(Grouping::One, None).unwrap();
    insta::assert_snapshot!(reasons(&selection.refused), @r#"p/deep: as rules: /rules/1/values: values are nested deeper than 32 objects and lists (rule "google")"#);
    assert_eq!((written.len(), written[0].n_worker_types), (1, 2));
    assert_eq!(selection.sources.len(), 2);
}

fn leaf() -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(json!({})),
        Just(json!([])),
        Just(json!([{"a": null}])),
        (0..3_u8).prop_map(|number| json!(number)),
        Just(json!(1.0)),
        "[ab]{0,2}".prop_map(Value::from),
    ]
}

/// Documents with so few names that values, objects and gaps meet at the same pointers.
fn document() -> impl Strategy<Value = Value> {
    leaf().prop_recursive(3, 12, 3, |inner| {
        let names = prop::sample::select(vec!["a", "b", "c/~", "region", "zone"]);
        let fields = prop::collection::btree_map(names.prop_map(str::to_owned), inner, 0..4);
        fields.prop_map(|fields| Value::Object(fields.into_iter().collect::<Map<_, _>>()))
    })
}

fn launch_config() -> impl Strategy<Value = Value> {
    let places = prop::sample::select(vec![
        json!({"zone": "r-a", "region": "r", "machineType": "zones/r-a/machineTypes/m"}),
        json!({"zone": "r-b", "region": "r", "machineType": "zones/r-b/machineTypes/n"}),
        json!({"zone": "s-a", "region": "s"}),
        json!({"region": "r", "launchConfig": {"Placement": {"AvailabilityZone": "ra"}}}),
        json!({"location": "r*", "hardwareProfile": {"vmSize": "F8"}}),
        json!({}),
    ]);
    let steering = prop_oneof![
        4 => Just(None),
        1 => Just(Some(json!({}))),
        1 => (0..9_u8).prop_map(|weight| Some(json!({"initialWeight": f64::from(weight) / 8.0}))),
    ];
    (places, document(), document(), steering).prop_map(|(mut config, a, b, steering)| {
        config["a"] = a;
        if b != json!({}) {
            config["workerConfig"] = b;
        }
        if let Some(steering) = steering {
            config["workerManager"] = steering;
        }
        config
    })
}

fn fleet() -> impl Strategy<Value = Vec<Value>> {
    let ids = prop::sample::select(vec![
        "proj-x/ci",
        "proj-x/ci-windows",
        "proj-x/build",
        "proj-y/ci",
        "proj-y/build-windows",
        "proj-z/a",
        "worker-manager/ci",
        "worker-manager/x-y",
    ]);
    let providers = prop::sample::select(vec!["g", "h", "aws", "owner"]);
    let launching = (
        prop::collection::vec(launch_config(), 0..6),
        0..3_u8,
        0..3_u8,
    );
    let declared = prop_oneof![
        Just(json!({})),
        Just(json!({"lifecycle": {}})),
        Just(json!({"lifecycle": {"reregistrationTimeout": 9}, "workerConfig": {"a": [1]}})),
    ];
    let one = (ids, providers, launching, declared, 0..4_u8).prop_map(
        |(id, provider, (launch_configs, min, max), declared, kind)| match kind {
            0 => pool(id, "hands", declared),
            _ => {
                let config = json!({"minCapacity": min, "maxCapacity": max, "launchConfigs": launch_configs});
                let mut pool = pool(id, provider, config);
                pool["emailOnError"] = json!(max == 1);
                pool
            }
        },
    );
    prop::collection::vec(one, 1..8).prop_map(|mut pools| {
        pools.sort_by_key(|pool| pool["workerPoolId"].to_string());
        pools.dedup_by_key(|pool| pool["workerPoolId"].to_string());
        pools
    })
}

fn files_by() -> impl Strategy<Value = Option<FilesBy>> {
    prop::sample::select(vec![None, Some(FilesBy::Provisioner), Some(FilesBy::Owner)])
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_fleet_compiles_from_its_rules_unchanged(pools in fleet(), files_by in files_by()) {
        let selection = select(pools.clone());
        prop_assert_eq!(&selection.refused, &[]);
        // The conversion verifies itself; any difference is an error.
        let written = configurations("fleet", "d", &selection.sources, files_by);
        let written = written.map_err(|failure| {
            TestCaseError::fail(format!("{}\n{}", failure, json!(pools)))
        })?;
        prop_assert!(written[0].is_refined, "{}", json!(pools));
        let again = configurations("fleet", "d", &select(pools).sources, files_by).unwrap();
        prop_assert_eq!(files_of(&written[0]), files_of(&again[0]), "the same fleet gave other rules");
        let document = parse("f", &written[0].text, Format::Yaml).unwrap();
        prop_assert_eq!(&document["workerConfigurationId"], "fleet");
    }
}

#[test]
fn the_rules_of_made_fleets_are_short_and_have_names_for_people() {
    for (seed, n_projects, n_pools) in [(1, 2, 6), (2, 6, 2), (3, 4, 4)] {
        let pools = made_fleet(seed, n_projects, n_pools);
        let size: usize = pools.iter().map(|pool| pool.to_string().len()).sum();
        let written = written(pools);
        let text = &written.text;
        assert!(
            text.len() * 3 < size,
            "{seed}: {} of {size}\n{text}",
            text.len()
        );
        let document = parse("f", text, Format::Yaml).unwrap();
        for rule in document["rules"].as_array().unwrap() {
            let id = rule["ruleId"].as_str().unwrap();
            assert!(
                id.chars()
                    .all(|c| c.is_ascii_alphanumeric() || "-.".contains(c)),
                "{id}"
            );
            assert!(!id.is_empty());
            // Without a description, the id says what the rule sets.
            if rule.get("description").is_none() {
                let values = rule["values"].to_string() + &rule["elements"].to_string();
                let said = id
                    .rsplit('-')
                    .any(|word| values.to_lowercase().contains(word));
                assert!(said, "{id}: {rule}");
            }
        }
        // The machine and the disk type of each zone are in one place.
        assert_eq!(
            text.matches("zones/${zone}/machineTypes/${machine}")
                .count(),
            1,
            "{text}"
        );
        assert_eq!(text.matches("zones/us-east1-b/").count(), 0, "{text}");
        // A script beside references is escaped.
        assert_eq!(text.matches("echo $${HOME}").count(), 1, "{text}");
        assert_eq!(text.matches("echo ${HOME}").count(), 0, "{text}");
    }
}

#[test]
fn another_import_after_a_change_differs_in_few_lines() {
    let mut pools = made_fleet(3, 4, 4);
    let before = written(pools.clone()).text;
    pools[5]["config"]["maxCapacity"] = json!(77);
    let after = written(pools.clone()).text;
    let lines = |text: &str| -> BTreeSet<String> { text.lines().map(str::to_owned).collect() };
    let (old, new) = (lines(&before), lines(&after));
    let n_different = old.symmetric_difference(&new).count();
    assert!(
        (1..=6).contains(&n_different),
        "{n_different}:\n{before}\n{after}"
    );
    // A pool like the others needs no rule of its own.
    let mut more = pools[6].clone();
    more["workerPoolId"] = json!("proj-1/worker-more");
    pools.push(more);
    let third = lines(&written(pools).text);
    let n_different = new.symmetric_difference(&third).count();
    assert!(n_different <= 24, "{n_different}");
}
