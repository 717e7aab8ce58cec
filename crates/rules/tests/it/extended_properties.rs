//! Properties of rule sets with references, elements and sets.

use fleetwright_rules::{Attributes, Evaluator, RuleSet, Sets, lint};
use proptest::prelude::*;
use serde_json::{Value, json};

use crate::{chance, naive_extended};

fn attributes(pairs: &[(String, String)]) -> Attributes {
    pairs.iter().cloned().collect()
}

fn evaluator(rules: &Value, sets: &Value) -> Evaluator {
    let sets = Sets::parse(sets).unwrap();
    Evaluator::new(&RuleSet::parse_with(rules, sets).unwrap())
}

fn values(rules: &Value, pairs: &[(String, String)]) -> Value {
    let evaluator = evaluator(rules, &Value::Null);
    Value::Object(evaluator.evaluate(&attributes(pairs)).values.clone())
}

proptest! {
    #[test]
    fn every_way_of_evaluating_agrees_with_the_naive_one(
        rules in chance::extended_rules(),
        sets in chance::sets(),
        many in prop::collection::vec(chance::attributes(), 1..8),
    ) {
        let evaluator = evaluator(&rules, &sets);
        for _ in 0..2 {
            for pairs in &many {
                let wanted = naive_extended::evaluate(&rules, &sets, pairs);
                let attributes = attributes(pairs);
                let result = evaluator.evaluate(&attributes);
                prop_assert_eq!(result.errors.is_empty(), wanted.is_some(), "{:?}", result.errors);
                let traced = evaluator.evaluate_with_origins(&attributes);
                prop_assert_eq!(&traced.values, &result.values);
                prop_assert_eq!(&traced.errors, &result.errors);
                let explained = evaluator.explain(&attributes, "").value;
                prop_assert_eq!(explained.unwrap(), Value::Object(result.values.clone()));
                if let Some(wanted) = wanted {
                    prop_assert_eq!(&Value::Object(result.values.clone()), &wanted);
                }
            }
        }
    }

    #[test]
    fn a_reference_sees_the_last_value_whatever_the_order_of_its_own_rule(
        rules in chance::extended_rules(),
        sets in chance::sets(),
        text in chance::template(),
        at in any::<prop::sample::Index>(),
        pairs in chance::attributes(),
    ) {
        let referring = json!({ "ruleId": "t", "references": true, "values": { "t": text } });
        let at_place = |place: usize| {
            let mut rules = rules.as_array().unwrap().clone();
            rules.insert(place, referring.clone());
            let evaluator = evaluator(&Value::Array(rules), &sets);
            let result = evaluator.evaluate(&attributes(&pairs));
            (result.values.clone(), result.errors.len())
        };
        let place = at.index(rules.as_array().unwrap().len() + 1);
        prop_assert_eq!(at_place(place), at_place(0));
    }

    #[test]
    fn a_change_that_is_repeated_changes_nothing_more(
        rules in chance::extended_rules(),
        sets in chance::sets(),
        change in chance::change(),
        pairs in chance::attributes(),
    ) {
        let (path, value) = change;
        let removes_a_position = value.is_null() && path.ends_with(|last: char| last.is_ascii_digit());
        prop_assume!(!removes_a_position);
        let times = |count: usize| {
            let mut rules = rules.as_array().unwrap().clone();
            for number in 0..count {
                rules.push(json!({ "ruleId": format!("last-{number}"), "values": {}, "references": true,
                    "elements": { path.as_str(): value } }));
            }
            let evaluator = evaluator(&Value::Array(rules), &sets);
            evaluator.evaluate(&attributes(&pairs)).values.clone()
        };
        prop_assert_eq!(times(2), times(1));
    }

    #[test]
    fn to_remove_an_element_never_fails_and_leaves_none(
        rules in chance::extended_rules(),
        sets in chance::sets(),
        pairs in chance::attributes(),
    ) {
        let mut rules = rules.as_array().unwrap().clone();
        rules.push(json!({ "ruleId": "last", "values": {},
            "elements": { "/a/[k=x]": null, "/a/9": null, "/q/[=x]": null, "/b/[=x]": null } }));
        let evaluator = evaluator(&Value::Array(rules), &sets);
        let result = evaluator.evaluate(&attributes(&pairs));
        prop_assert!(result.errors.iter().all(|error| error.rule_id != "last"));
        let list = result.values.get("a").and_then(Value::as_array);
        let has_it = |item: &Value| item.get("k") == Some(&json!("x"));
        // A reference may still give this text.
        prop_assert!(result.errors.is_empty() || !list.into_iter().flatten().any(has_it)
            || rules_have_references(&evaluator));
    }

    #[test]
    fn a_successor_equals_a_new_evaluator(
        before in chance::extended_rules(),
        after in chance::extended_rules(),
        sets in (chance::sets(), chance::sets()),
        many in prop::collection::vec(chance::attributes(), 1..8),
    ) {
        let old = evaluator(&before, &sets.0);
        for pairs in &many {
            let _ = old.evaluate(&attributes(pairs));
        }
        // Half of the rules stay.
        let mut rules = before.as_array().unwrap().clone();
        for (rule, new) in rules.iter_mut().step_by(2).zip(after.as_array().unwrap()) {
            let id = rule["ruleId"].take();
            *rule = new.clone();
            rule["ruleId"] = id;
        }
        let rules = Value::Array(rules);
        let fresh = evaluator(&rules, &sets.1);
        let (successor, change) = old.succeed(fresh.set());
        for pairs in &many {
            let attributes = attributes(pairs);
            prop_assert_eq!(successor.evaluate(&attributes), fresh.evaluate(&attributes));
            if !change.affects(&attributes) {
                let (old, new) = (old.evaluate_with_origins(&attributes), successor.evaluate_with_origins(&attributes));
                prop_assert_eq!(old, new);
            }
            prop_assert!(change.may_affect(&attributes) || !change.affects(&attributes));
        }
    }

    #[test]
    fn without_references_a_text_stays_as_it_is(text in "[$]{0,3}[{]?[a/]{0,2}[}]?|\\x00[$=a]{0,3}", pairs in chance::attributes()) {
        let rules = json!([{ "ruleId": "a", "values": { "a": text, "b": [text, { "c": text }] } }]);
        prop_assert_eq!(values(&rules, &pairs), rules[0]["values"].clone());
        // Beside rules with references, too.
        let others = json!([rules[0], { "ruleId": "b", "references": true, "values": { "d": "${/a}" } }]);
        let mut wanted = rules[0]["values"].clone();
        wanted["d"] = json!(text);
        prop_assert_eq!(values(&others, &pairs), wanted);
    }

    #[test]
    fn lints_of_any_set_end(
        rules in chance::extended_rules(),
        sets in chance::sets(),
        many in prop::collection::vec(chance::attributes(), 1..6),
    ) {
        let evaluator = evaluator(&rules, &sets);
        let all: Vec<Attributes> = many.iter().map(|pairs| attributes(pairs)).collect();
        for finding in lint(evaluator.set(), &all) {
            prop_assert!(!finding.to_string().is_empty());
        }
    }
}

fn rules_have_references(evaluator: &Evaluator) -> bool {
    let mut rules = evaluator.set().rules().iter();
    rules.any(fleetwright_rules::Rule::has_references)
}
