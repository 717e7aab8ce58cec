//! Lints find errors and unnecessary parts, and report nothing else.

use std::collections::BTreeSet;

use fleetwright_rules::{Attributes, Finding, RuleSet, lint};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{chance, naive};

fn places() -> Vec<Attributes> {
    let mut places = vec![Attributes::nothing().with("workerType", "build")];
    for region in ["us-east-1", "us-west-1"] {
        let alone = Attributes::nothing().with("workerType", "build");
        places.push(alone.with("provider", "ec2").with("region", region));
    }
    places
}

/// The findings in a list of rules with the ids `a`, `b` and so on.
fn found(mut rules: Vec<Value>) -> Vec<String> {
    for (rule, id) in rules.iter_mut().zip('a'..) {
        rule["ruleId"] = json!(id.to_string());
    }
    let set = RuleSet::parse(&Value::Array(rules)).unwrap();
    lint(&set, &places())
        .iter()
        .map(Finding::to_string)
        .collect()
}

#[test]
fn a_correct_set_has_no_findings() {
    let rules = vec![
        json!({ "values": { "owner": "us", "maxCapacity": 1 } }),
        json!({ "conditions": { "region": "us-*" }, "values": { "ec2": { "a": 1, "b": 2 } } }),
        json!({ "conditions": { "region": "us-west-1" }, "values": { "ec2": { "a": 2, "b": null } } }),
    ];
    assert_eq!(found(rules), [""; 0]);
}

#[test]
fn rules_that_never_apply_are_found_with_the_reason() {
    let rules = vec![
        json!({ "conditions": { "regoin": "us-east-1" }, "values": { "x": 1 } }),
        json!({ "conditions": [{ "region": ["us-*", "eu-*"] }, { "provider": "gcp" }], "values": { "y": 1 } }),
        json!({ "conditions": { "region": "us-east-1", "workerType": "other" }, "values": { "z": 1 } }),
        json!({ "conditions": [], "values": { "w": 1 } }),
    ];
    assert_eq!(
        found(rules),
        [
            r#""a": never applies: no place has these conditions"#,
            r#""a": /conditions/regoin: no place has a condition "regoin", did you mean "region"?"#,
            r#""b": /conditions/0/region/1: "eu-*" matches no value of this condition"#,
            r#""b": /conditions/1/provider: "gcp" matches no value of this condition"#,
            r#""c": never applies: no place has these conditions; /conditions/workerType is "build" where all others match"#,
            r#""c": /conditions/workerType: "other" matches no value of this condition"#,
            r#""d": never applies: no place has these conditions"#,
        ]
    );
}

#[test]
fn values_without_effect_are_found() {
    let rules = vec![
        json!({ "values": { "x": 1, "y": { "z": 1 }, "counts": true } }),
        json!({ "conditions": { "provider": "ec2" }, "values": { "only": { "here": 1 } } }),
        json!({ "conditions": { "workerType": "*" }, "values": { "x": 2, "nothing": null } }),
        json!({ "conditions": { "region": "us-east-1" }, "values": { "only": null, "y": null } }),
        json!({ "conditions": { "region": "us-west-1" }, "values": { "only": { "here": [] }, "y": 0 } }),
        json!({ "conditions": { "workerType": "b*" }, "values": { "y": {} } }),
    ];
    assert_eq!(
        found(rules),
        [
            r#""a": /x have no effect: "c" overrides or deletes them"#,
            r#""b": no value has an effect: "d", "e" overrides or deletes them"#,
            r#""c": null at /nothing has nothing to delete"#,
        ]
    );
}

#[test]
fn duplicate_and_empty_rules_are_found() {
    let rules = vec![
        json!({ "conditions": { "region": "us-east-1" }, "values": { "x": { "a": [1], "b": 2 } } }),
        json!({ "conditions": { "region": "us-west-1" }, "values": { "x": { "b": 2, "a": [1] } } }),
        json!({ "values": {} }),
        json!({ "conditions": [{ "region": ["us-west-1"] }], "values": { "x": { "a": [1], "b": 2 } } }),
        json!({ "conditions": { "region": "us-west-1" }, "values": { "y": 1 } }),
    ];
    assert_eq!(
        found(rules),
        [
            r#""a", "b", "d": have the same values: one rule with a list of conditions has the same effect"#,
            r#""b", "d": have the same conditions and values"#,
            r#""b": no value has an effect: "d" overrides or deletes them"#,
            r#""c": has no values"#,
            r#""d", "e": are adjacent and have the same conditions: join them"#,
        ]
    );
}

#[test]
fn rules_with_the_same_values_are_not_reported_if_a_rule_between_them_overlaps() {
    let alike = |worker_type: &str, x: Value| json!({ "conditions": { "workerType": worker_type }, "values": { "a": { "x": x } } });
    let told = |between: Value| {
        let rules = vec![
            alike("build", json!(6)),
            json!({ "conditions": { "region": "us-east-1" }, "values": between }),
            alike("buil?", json!(6)),
            alike("b*", json!(6)),
        ];
        let found = found(rules).into_iter();
        let same = found.filter(|text| text.contains("have the same values"));
        same.map(|text| text.split(':').next().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    let apart = r#""c", "d""#;
    for between in [
        json!({ "a": { "x": 5 } }),
        json!({ "a": 1 }),
        json!({ "a": {} }),
        json!({ "a": { "x": { "y": 1 } } }),
    ] {
        let told = told(between.clone());
        assert!(
            told.len() == 1 && told[0].starts_with(apart),
            "{between}: {told:?}"
        );
    }
    let told = told(json!({ "a": { "z": 5 }, "x": 1 }));
    assert!(
        told.len() == 1 && told[0].starts_with(r#""a", "c", "d""#),
        "{told:?}"
    );
}

#[test]
fn a_rule_that_never_applies_names_the_condition_that_stops_it() {
    let rules = json!([
        { "ruleId": "fixed", "conditions": { "provider": "racks", "region": "us-*" },
          "values": { "x": 1 } },
        { "ruleId": "two", "values": { "y": 1 },
          "conditions": [{ "provider": "ec2", "region": ["racks"] }, { "provider": "gcp", "region": "x" }] },
    ]);
    let at = |provider: &str, region: &str| {
        Attributes::from_iter([("provider", provider), ("region", region)])
    };
    let places = [
        at("racks", "racks"),
        at("ec2", "us-east-1"),
        at("ec2", "us-west-2"),
    ];
    let findings = lint(&RuleSet::parse(&rules).unwrap(), &places);
    let never = findings.iter().map(ToString::to_string);
    let never: Vec<String> = never.filter(|text| text.contains("never")).collect();
    assert_eq!(
        never,
        [
            "\"fixed\": never applies: no place has these conditions; \
             /conditions/provider is \"ec2\" where all others match; \
             /conditions/region is \"racks\" where all others match",
            "\"two\": never applies: no place has these conditions; \
             /conditions/0/provider is \"racks\" where all others match; \
             /conditions/0/region is \"us-east-1\", \"us-west-2\" where all others match",
        ]
    );
}

#[test]
fn rules_without_a_description_are_listed() {
    let rules = json!([
        { "ruleId": "a", "values": { "x": 1 } },
        { "ruleId": "b", "description": "says why", "values": { "x": 1 } },
        { "ruleId": "c", "description": " ", "values": { "x": 1 } },
    ]);
    let set = RuleSet::parse(&rules).unwrap();
    assert_eq!(fleetwright_rules::without_description(&set), ["a", "c"]);
}

#[test]
fn without_presentations_only_what_is_doubled_or_empty_is_found() {
    let rules = json!([
        { "ruleId": "a", "conditions": { "x": "y" }, "values": { "x": 1 } },
        { "ruleId": "b", "conditions": { "x": "y" }, "values": {} },
    ]);
    let findings = lint(&RuleSet::parse(&rules).unwrap(), &[]);
    assert_eq!(findings.len(), 2);
    let wire = serde_json::to_value(&findings).unwrap();
    assert_eq!(
        wire,
        json!([
            { "finding": "couldBeOne", "ruleIds": ["a", "b"] },
            { "finding": "empty", "ruleId": "b" },
        ])
    );
}

/// The rules without the parts that findings call unnecessary.
fn without(rules: &Value, findings: &[Finding]) -> Value {
    let mut rules = rules.as_array().unwrap().clone();
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for finding in findings {
        match finding {
            Finding::NeverApplies { rule_id, .. }
            | Finding::DeadRule { rule_id, .. }
            | Finding::Empty { rule_id } => {
                gone.insert(rule_id);
            }
            Finding::DeadValues {
                rule_id, pointers, ..
            }
            | Finding::DeletesNothing { rule_id, pointers } => {
                let rule = rules
                    .iter_mut()
                    .find(|rule| rule["ruleId"] == **rule_id)
                    .unwrap();
                for pointer in pointers {
                    let (above, key) = pointer.rsplit_once('/').unwrap();
                    let above = rule["values"].pointer_mut(above).unwrap();
                    let key = key.replace("~1", "/").replace("~0", "~");
                    above.as_object_mut().unwrap().remove(&key).unwrap();
                }
            }
            _ => {}
        }
    }
    rules.retain(|rule| !gone.contains(rule["ruleId"].as_str().unwrap()));
    Value::Array(rules)
}

proptest! {
    #[test]
    fn parts_that_are_called_unnecessary_can_be_left_out(
        rules in chance::rules(),
        many in prop::collection::vec(chance::attributes(), 1..6),
    ) {
        let evaluations: Vec<Attributes> = many.iter().map(|pairs| pairs.iter().cloned().collect()).collect();
        let findings = lint(&RuleSet::parse(&rules).unwrap(), &evaluations);
        let smaller = without(&rules, &findings);
        for pairs in &many {
            prop_assert_eq!(naive::evaluate(&smaller, pairs), naive::evaluate(&rules, pairs));
        }
    }
}

fn without_evaluations(rules: &Value, known: &[(&str, &[&str])]) -> String {
    let known = known.iter();
    let known = known.map(|(name, values)| (*name, values.iter().copied().collect()));
    let set = RuleSet::parse(rules).unwrap();
    let findings = fleetwright_rules::lint_without_evaluations(&set, &known.collect());
    let lines: Vec<String> = findings.iter().map(ToString::to_string).collect();
    lines.join("\n")
}

#[test]
fn values_that_a_later_rule_always_replaces_are_found_without_places() {
    let rules = json!([
        {"ruleId": "all", "values": {"a": {"x": 1, "y": 1}, "b": 1, "c": {}}},
        {"ruleId": "east", "conditions": {"region": "us-east-1", "zone": "a"}, "values": {"d": 1}},
        {"ruleId": "some", "conditions": {"region": ["us-*", "eu-1"]}, "values": {"d": 2, "a": {"y": 2}}},
        {"ruleId": "object", "values": {"b": {"merged": true}}},
        {"ruleId": "between", "conditions": {"zone": "b"}, "values": {"e": 1}},
        {"ruleId": "last", "values": {"a": 3, "c": {"z": 1}}},
    ]);
    let expected = [
        "\"all\": /a/x, /a/y have no effect: \"last\" overrides or deletes them",
        "\"east\": no value has an effect: \"some\" overrides or deletes them",
        "\"some\": /a/y have no effect: \"last\" overrides or deletes them",
    ];
    assert_eq!(without_evaluations(&rules, &[]), expected.join("\n"));
}

#[test]
fn a_rule_hides_another_only_if_it_applies_wherever_that_one_does() {
    for (earlier, later, is_hidden) in [
        (json!(null), json!(null), true),
        (json!(null), json!({"a": "*"}), false),
        (json!({"a": "x"}), json!({"a": "*"}), true),
        (json!({"a": "x*"}), json!({"a": "x*"}), true),
        (json!({"a": "x*"}), json!({"a": "x"}), false),
        (
            json!({"a": ["x", "y"]}),
            json!({"a": ["y", "x", "z"]}),
            true,
        ),
        (json!({"a": ["x", "y"]}), json!({"a": "x"}), false),
        (
            json!([{"a": "x"}, {"b": "y"}]),
            json!([{"b": "y"}, {"a": "x"}]),
            true,
        ),
        (json!([{"a": "x"}, {"b": "y"}]), json!({"a": "x"}), false),
        (json!([{"a": "x", "b": "y"}]), json!({"a": "x"}), true),
    ] {
        let rules = json!([
            {"ruleId": "r", "conditions": earlier, "values": {"v": 1}},
            {"ruleId": "between", "conditions": {"unknown": "1"}, "values": {"w": 1}},
            {"ruleId": "s", "conditions": later, "values": {"v": 2}},
        ]);
        let found = without_evaluations(&rules, &[]);
        assert_eq!(
            found.contains("no value has an effect"),
            is_hidden,
            "{rules}: {found}"
        );
    }
}

#[test]
fn conditions_without_a_known_value_are_found_without_places() {
    let rules = json!([
        {"ruleId": "never", "conditions": {"workerType": "lost-*", "region": "x"}, "values": {"a": 1}},
        {"ruleId": "partly", "conditions": {"workerType": ["build", "lost"]}, "values": {"b": 1}},
    ]);
    let expected = [
        "\"never\": never applies: no place has these conditions",
        "\"never\": /conditions/workerType: \"lost-*\" matches no value of this condition",
        "\"partly\": /conditions/workerType/1: \"lost\" matches no value of this condition",
    ];
    let found = without_evaluations(&rules, &[("workerType", &["build"])]);
    assert_eq!(found, expected.join("\n"));
}
