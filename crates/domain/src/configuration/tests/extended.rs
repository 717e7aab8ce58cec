//! References, elements and sets in configurations.

use serde_json::{Value, json};

use super::*;

fn all_values() -> Value {
    json!({"owner": "o@example.com", "description": "Workers of ${workerType}", "maxCapacity": 1,
        "providers": {"other": {"exact": true, "places": [{"zone": ["r-a", "r-b"]}]}},
        "other": {"machine": "zones/${zone}/n2", "disks": [{"boot": true}], "script": "$${HOME}"}})
}

fn compile(sets: &Value, rules: Value) -> Result<Compilation, String> {
    let document = json!({"workerTypes": ["linux", "windows"], "sets": sets, "rules": rules});
    let configuration = Configuration::parse(&document).map_err(|bad| bad.to_string())?;
    assert_eq!(configuration.to_document()["sets"], *sets);
    Compilation::new(configuration, Arc::new(ProviderCatalog::assumed()))
        .map_err(|bad| bad.to_string())
}

fn rules(values: &Value, more: Value) -> Value {
    let all = json!({"ruleId": "all", "references": true, "values": values});
    let disk = json!({"ruleId": "disk", "conditions": {"workerType": {"set": "windows"}, "zone": {"not": "r-b"}},
        "values": {}, "elements": {"/other/disks/[boot=true]/size": 60}});
    json!([all, disk, more])
}

#[test]
fn launch_configs_have_the_values_of_references_and_elements() {
    let sets = json!({"windows": ["win*"]});
    let more = json!({"ruleId": "more", "values": {}});
    let compilation = compile(&sets, rules(&all_values(), more)).unwrap();
    let pools = &compilation.pools;
    assert_eq!(pools[1].description, "Workers of windows");
    let configurations: Vec<_> = pools[1]
        .launch_configs()
        .map(|(_, config)| Value::Object(config.configuration.clone()))
        .collect();
    assert_eq!(
        configurations,
        [
            json!({"machine": "zones/r-a/n2", "disks": [{"boot": true, "size": 60}], "script": "${HOME}"}),
            json!({"machine": "zones/r-b/n2", "disks": [{"boot": true}], "script": "${HOME}"}),
        ]
    );
}

#[test]
fn errors_of_used_values_have_their_rule_and_evaluation() {
    let sets = json!({"windows": ["win*"]});
    let more = json!({"ruleId": "more", "references": true, "conditions": {"zone": "r-a"},
        "values": {"other": {"image": "${/other/imag}"}, "unused": "${x}"},
        "elements": {"/other/disks/[boot=false]/size": 1}});
    let error = compile(&sets, rules(&all_values(), more)).unwrap_err();
    let wanted = "with provider=other, region=other, workerType=linux, zone=r-a and 1 more: ";
    assert!(error.contains(&format!(
        "{wanted}/other/image: ${{/other/imag}} has no value: no rule that applies sets it (rule \"more\")"
    )), "{error}");
    assert!(error.contains(&format!(
        "{wanted}/other/disks/[boot=false]/size: no element of the list is [boot=false] (rule \"more\")"
    )), "{error}");

    let mut bad = all_values();
    bad["description"] = json!("in ${zone}");
    let error = compile(&sets, rules(&bad, json!({"ruleId": "more", "values": {}}))).unwrap_err();
    assert!(
        error.starts_with("with workerType=linux and 1 more: /description: ${zone} has no value"),
        "{error}"
    );

    let error = compile(&json!({"windows": 7}), json!([])).unwrap_err();
    assert!(
        error.contains("/sets/windows: a set is a list of texts, found a number"),
        "{error}"
    );
}

#[test]
fn a_changed_set_is_a_change_of_the_rules_that_name_it() {
    let more = json!({"ruleId": "more", "values": {}});
    let with =
        |set: Value| compile(&json!({"windows": set}), rules(&all_values(), more.clone())).unwrap();
    let (before, after) = (with(json!(["win*"])), with(json!(["windows", "linux"])));
    let changes = rule_changes(&before.configuration, &after.configuration);
    assert_eq!(
        changes,
        [(
            "disk".to_owned(),
            RuleChange::Changed(vec![ValueChange {
                pointer: "/sets/windows".to_owned(),
                before: Some(json!(["win*"])),
                after: Some(json!(["windows", "linux"])),
            }])
        )]
    );
    let next = before
        .succeed(after.configuration.clone(), before.catalog.clone())
        .unwrap();
    assert_eq!(next.pools, after.pools);
    assert!(Arc::ptr_eq(&next.pools[1], &before.pools[1]));
    assert_eq!(difference(Some(&before), Some(&next)).len(), 1);
}

#[test]
fn elements_of_the_options_of_a_provider_name_it() {
    let rule = json!({"ruleId": "r", "values": {}, "elements": {"/providers/g~1h/places/-": {"zone": "z"}}});
    let rule = Rule::parse(&rule).unwrap();
    assert_eq!(named_providers([&rule]), ["g/h".to_owned()].into());
}
