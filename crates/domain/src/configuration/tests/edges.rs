//! Edge cases: ids, regions, limits, and edits compared with fresh compilations.

use super::*;
use crate::launch_config::without_id;

fn parsed(worker_types: &[&str], rules: &[Value]) -> Configuration {
    Configuration::parse(&json!({"workerTypes": worker_types, "rules": rules})).unwrap()
}

/// Basics with this provider and these options.
fn opting(provider: &str, options: Value) -> Value {
    basics(json!({"providers": {provider: options}}))
}

#[test]
fn an_edit_is_refused_whenever_the_result_would_be_refused_from_scratch() {
    let all = [
        basics(json!({"later": {"x": 1}})),
        rule(
            "opts in",
            json!({"workerType": "nobody"}),
            json!({"providers": {"later": {}}}),
        ),
    ];
    let first = compile(&["build"], &all).unwrap();
    let fresh = compile(&["build"], &all[..1]).unwrap_err();
    let edited = first.succeed(parsed(&["build"], &all[..1]), catalog());
    assert_eq!(edited.unwrap_err(), fresh);
}

#[test]
fn a_section_of_a_provider_that_is_out_of_service_is_no_mistake() {
    let rules = [basics(json!({"broken": {"x": 1}}))];
    let first = compile(&["build"], &rules).unwrap();
    // Nor is it after it has been stored.
    let stored = ProviderCatalog::from_json(&first.catalog.to_json()).unwrap();
    assert_eq!(stored, *first.catalog);
    assert!(Compilation::new(parsed(&["build"], &rules), Arc::new(stored)).is_ok());
}

fn launch_config_ids(compilation: &Compilation) -> Vec<String> {
    let configs = compilation.pools[0].launch_configs();
    configs.map(|(_, config)| config.id.to_string()).collect()
}

#[test]
fn one_id_cannot_stand_for_two_contents() {
    let rules = |options: Value, values: Value| {
        [
            opting("other", options),
            rule("other", json!({"provider": "other"}), json!({"other": {}})),
            rule("z", json!({"z": "2"}), json!({"other": values})),
        ]
    };
    let places = json!([{"z": ["1", "2"]}]);
    let same = rules(json!({"places": places}), json!({}));
    assert_eq!(
        launch_configs(&compile(&["build"], &same).unwrap()).len(),
        1
    );
    // Computed ids do not depend on the `workerManager` part, so that would be lost.
    let steered = rules(
        json!({"places": places}),
        json!({"workerManager": {"initialWeight": 0.5}}),
    );
    let told = wrong(&steered);
    for part in [
        "/other/workerManager: gives the launch config the id lc-",
        "`launchConfigIds` can give each an id of its own",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
    let computed = launch_config_ids(&compile(&["build"], &same).unwrap()).remove(0);
    let document = json!({"workerTypes": ["build"], "rules": steered,
        "launchConfigIds": {(computed.as_str()): ["one", "two"]}});
    let each = Compilation::new(Configuration::parse(&document).unwrap(), catalog()).unwrap();
    assert_eq!(launch_config_ids(&each), ["one", "two"]);
}

#[test]
fn regions_that_match_nothing_are_mistakes() {
    let with = |regions: Value, providers: Value| {
        compile(
            &["build"],
            &[
                basics(json!({"regions": regions, "providers": providers})),
                rule("ec2", json!({"provider": "ec2"}), json!({"ec2": {"y": 1}})),
                rule("other", json!({"provider": "other"}), json!({"other": {}})),
            ],
        )
    };
    let told = |regions: Value| with(regions, json!({"ec2": {}})).unwrap_err().to_string();
    let all_wrong = told(json!(["r9"]));
    assert!(
        all_wrong.contains(
            "/regions: leaves nothing of the provider ec2: its regions are us-east-1, us-west-2"
        ),
        "{all_wrong}"
    );
    let one_wrong = told(json!(["us-east-1", "r9"]));
    assert!(
        one_wrong.contains("/regions: \"r9\" matches none"),
        "{one_wrong}"
    );
    // Workers without regions are not checked.
    assert!(with(json!(["us-*"]), json!({"ec2": {}, "other": {}})).is_ok());
    assert!(with(json!(["r9"]), json!({"other": {}})).is_ok());
}

#[test]
fn exact_places_are_all_there_are() {
    let places = json!([{"region": ["us-east-1", "eu-1"]}]);
    let rules = [
        opting("ec2", json!({"exact": true, "places": places})),
        rule(
            "here",
            json!({"region": "us-*"}),
            json!({"ec2": {"here": true}}),
        ),
        rule(
            "there",
            json!({"region": "eu-*"}),
            json!({"ec2": {"here": false}}),
        ),
    ];
    let configs = launch_configs(&compile(&["build"], &rules).unwrap());
    assert_eq!(
        configs.iter().map(|(_, config)| config).collect::<Vec<_>>(),
        [&json!({"here": true}), &json!({"here": false})]
    );
    assert!(configs[1].0.contains("region=eu-1"), "{configs:?}");
    let told = wrong(&[opting("ec2", json!({"exact": true}))]);
    assert!(
        told.contains("/providers/ec2/exact: requires `places`"),
        "{told}"
    );
    let told = wrong(&[opting("ec2", json!({"exact": 1, "places": places}))]);
    assert!(
        told.contains("/providers/ec2/exact: must be true or false"),
        "{told}"
    );
}

#[test]
fn too_large_configurations_are_refused_before_they_are_compiled() {
    let numbers: Vec<String> = (0..1_900).map(|number| number.to_string()).collect();
    let names: Vec<String> = (0..100).map(|number| format!("w{number}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let rules = |section: Value| {
        [
            opting("other", json!({"places": [{"n": numbers}]})),
            rule("other", Value::Null, json!({"other": section})),
        ]
    };
    let told = compile(&names, &rules(json!({}))).unwrap_err().to_string();
    assert!(told.contains("more than 50000 places together"), "{told}");
    let mut large = rules(json!({"script": "x".repeat(1_000_000)})).to_vec();
    for number in numbers.iter().take(140) {
        let id = format!("n{number}");
        large.push(rule(
            &id,
            json!({"n": number}),
            json!({"other": {"n": number}}),
        ));
    }
    let told = compile(&["build"], &large).unwrap_err().to_string();
    assert!(told.contains("weigh more than 128 MiB"), "{told}");
}

#[test]
fn a_pool_has_no_more_launch_configs_than_the_api_allows() {
    let numbers: Vec<String> = (0..1_500).map(|number| number.to_string()).collect();
    let mut rules = vec![
        basics(json!({"providers": {
            "other": {"places": [{"n": numbers}]},
            "ec2": {"places": [{"region": "us-west-2", "n": numbers}]},
        }})),
        rule("all", Value::Null, json!({"ec2": {}, "other": {}})),
    ];
    rules.extend(numbers.iter().map(|number| {
        let values = json!({"ec2": {"n": number}, "other": {"n": number}});
        rule(&format!("n{number}"), json!({"n": number}), values)
    }));
    let told = wrong(&rules);
    assert!(
        told.contains("/providers: give 3000 launch configs together; a pool has at most 2000"),
        "{told}"
    );
}

#[test]
fn a_launch_config_that_another_place_still_gives_is_kept() {
    let shared = [
        opting("other", json!({"places": [{"z": ["1", "2"]}]})),
        rule("all", Value::Null, json!({"other": {"x": 1}})),
    ];
    let mut apart = shared.to_vec();
    apart.push(rule("one", json!({"z": "1"}), json!({"other": {"x": 2}})));
    let (before, after) = (
        compile(&["build"], &shared).unwrap(),
        compile(&["build"], &apart).unwrap(),
    );
    let differences = difference(Some(&before), Some(&after));
    let [pool] = differences.as_slice() else {
        panic!("one pool changes: {differences:?}");
    };
    assert_eq!(
        (
            pool.n_kept,
            pool.created.len(),
            pool.replaced.len(),
            pool.archived.len()
        ),
        (1, 1, 0, 0)
    );
}

#[test]
fn an_unused_provider_makes_no_difference() {
    let catalog = catalog();
    let named = ["ec2".to_owned()].into();
    let mut other = (*catalog).clone();
    let entry = other.providers.get_mut(&"other".parse().unwrap()).unwrap();
    entry.places = vec![place(&[("x", "y")])];
    assert!(catalog.is_same_for(&other, &named));
    assert!(!catalog.is_same_for(&other, &["other".to_owned()].into()));
    // The provider fails today and works tomorrow.
    let broken = "broken".parse().unwrap();
    other.out_of_service.remove(&broken);
    other
        .providers
        .insert(broken, ProviderEntry::launching(Vec::new()));
    assert!(catalog.is_same_for(&other, &named));
    other.providers.remove(&"datacentre".parse().unwrap());
    assert!(!catalog.is_same_for(&other, &named));
}

#[test]
fn ids_from_providers_are_stored_with_the_catalog() {
    let mut compilation = compile(
        &["build"],
        &[
            opting("other", json!({})),
            rule("all", Value::Null, json!({"other": {"x": 1}})),
        ],
    )
    .unwrap();
    let pool = Arc::clone(&compilation.pools[0]);
    let (provider, config) = pool.launch_configs().next().unwrap();
    assert_eq!(compilation.known_id(&pool, provider, config), config.id);
    let mut completed = CompletedIds::default();
    let known = "lc-completed".parse().unwrap();
    completed.add(pool.pool_id(), provider, &config.id, &known);
    compilation.complete(completed.clone());
    assert_eq!(compilation.known_id(&pool, provider, config), known);
    let stored = ProviderCatalog::from_json(&compilation.catalog.to_json()).unwrap();
    assert_eq!(stored.completed, completed);
    assert_eq!(
        difference(Some(&compilation), None)[0].archived[0].id,
        known
    );
}

#[test]
fn the_same_content_by_two_providers_is_two_launch_configs_and_one_given_id_is_not() {
    let all = |section: &Value| {
        compile(
            &["build"],
            &[
                basics(json!({"providers": {"ec2": {"places": [{"region": "us-west-2"}]}, "other": {"section": "ec2"}}})),
                rule("all", Value::Null, json!({"ec2": without_id(section.as_object().unwrap())})),
            ],
        )
        .unwrap()
    };
    let line_up = |section: Value| {
        let compilation = all(&section);
        let pool = &compilation.pools[0];
        let mut lineup = Lineup::new(pool.pool_id());
        let mut ids = Vec::new();
        for (at, provider) in pool.providers.iter().enumerate() {
            let config = &provider.launch_configs[0];
            let completed = section.as_object().unwrap().clone();
            ids.push(lineup.add(provider, &config.attributes, at == 0, completed.clone())?);
            // A provider may make one content from two.
            let again = lineup.add(provider, &config.attributes, at == 0, completed)?;
            assert_eq!(again, ids[at]);
        }
        Ok::<_, LineupError>((ids, lineup.into_configs()))
    };
    let (ids, configs) = line_up(json!({"x": 1})).unwrap();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(configs.len(), 2);
    assert_eq!(
        Value::Object(configs[1].configuration.clone()),
        json!({"x": 1, "workerManager": {"providerId": "other", "launchConfigId": ids[1].as_str()}})
    );
    let given = json!({"x": 1, "workerManager": {"launchConfigId": "mine"}});
    let told = line_up(given).unwrap_err().to_string();
    for part in [
        "provider=other",
        "the id mine",
        "(with availabilityZone=us-west-2a, provider=ec2",
    ] {
        assert!(told.contains(part), "{part}: {told}");
    }
}
