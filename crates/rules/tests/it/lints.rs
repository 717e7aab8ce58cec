//! What looks wrong is found, and nothing else is called needless.

use std::collections::BTreeSet;

use proptest::prelude::*;
use rules::{Finding, Presented, RuleSet, lint};
use serde_json::{Value, json};

use crate::{chance, naive};

fn places() -> Vec<Presented> {
    let mut places = vec![Presented::nothing().with("workerType", "build")];
    for region in ["us-east-1", "us-west-1"] {
        let alone = Presented::nothing().with("workerType", "build");
        places.push(alone.with("provider", "ec2").with("region", region));
    }
    places
}

/// The findings in a list of rules whose ids are `a`, `b` and so on.
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
fn a_set_without_fault_has_no_findings() {
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
            r#""a": applies to nothing that is presented"#,
            r#""a": /conditions/regoin asks for "regoin", which nobody presents, did you mean "region"?"#,
            r#""b": /conditions/0/region/1: "eu-*" matches none of the values that are presented"#,
            r#""b": /conditions/1/provider: "gcp" matches none of the values that are presented"#,
            r#""c": applies to nothing that is presented"#,
            r#""c": /conditions/workerType: "other" matches none of the values that are presented"#,
            r#""d": applies to nothing that is presented"#,
        ]
    );
}

#[test]
fn values_that_never_count_are_found() {
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
            r#""a": /x never count, as "c" overrides or deletes them"#,
            r#""b": none of its values ever counts, as "d", "e" overrides or deletes them"#,
            r#""c": there is never anything to delete at /nothing"#,
        ]
    );
}

#[test]
fn rules_that_say_the_same_or_nothing_are_found() {
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
            r#""a", "b", "d": have the same values: one rule with a list of conditions could do the same"#,
            r#""b", "d": have the same conditions and values"#,
            r#""b": none of its values ever counts, as "d" overrides or deletes them"#,
            r#""c": has no values"#,
            r#""d", "e": stand together with the same conditions and could be one rule"#,
        ]
    );
}

#[test]
fn rules_that_say_the_same_are_not_called_one_if_another_stands_between_what_they_say() {
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

/// The rules without what findings call needless.
fn without(rules: &Value, findings: &[Finding]) -> Value {
    let mut rules = rules.as_array().unwrap().clone();
    let mut gone: BTreeSet<&str> = BTreeSet::new();
    for finding in findings {
        match finding {
            Finding::NeverApplies { rule_id }
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
    fn what_is_called_needless_can_be_left_out(
        rules in chance::rules(),
        many in prop::collection::vec(chance::presented(), 1..6),
    ) {
        let presentations: Vec<Presented> = many.iter().map(|pairs| pairs.iter().cloned().collect()).collect();
        let findings = lint(&RuleSet::parse(&rules).unwrap(), &presentations);
        let smaller = without(&rules, &findings);
        for pairs in &many {
            prop_assert_eq!(naive::evaluate(&smaller, pairs), naive::evaluate(&rules, pairs));
        }
    }
}
