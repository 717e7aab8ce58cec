//! Properties of every rule set, compared with the naive evaluation.

use fleetwright_rules::{Attributes, Evaluator, Position, Rule, RuleSet, assign};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use crate::{chance, naive};

type Pairs = Vec<(String, String)>;

fn attributes(pairs: &Pairs) -> Attributes {
    pairs.iter().cloned().collect()
}

fn set(rules: &Value) -> RuleSet {
    RuleSet::parse(rules).unwrap()
}

fn fresh(rules: &Value, pairs: &Pairs) -> Value {
    let evaluator = Evaluator::new(&set(rules));
    Value::Object(evaluator.evaluate(&attributes(pairs)).values.clone())
}

proptest! {
    #[test]
    fn every_way_of_evaluating_agrees_with_the_naive_one(
        rules in chance::rules(),
        many in prop::collection::vec(chance::attributes(), 1..8),
    ) {
        let evaluator = Evaluator::new(&set(&rules));
        for _ in 0..2 {
            for pairs in &many {
                let wanted = naive::evaluate(&rules, pairs);
                let attributes = attributes(pairs);
                prop_assert_eq!(&Value::Object(evaluator.evaluate(&attributes).values.clone()), &wanted);
                prop_assert_eq!(&Value::Object(evaluator.evaluate_with_origins(&attributes).values), &wanted);
                prop_assert_eq!(&evaluator.explain(&attributes, "").value.unwrap(), &wanted);
                let applying: Vec<&str> = evaluator.applying(&attributes).iter().map(|rule| rule.id()).collect();
                let rules = rules.as_array().unwrap().iter();
                let holding: Vec<&str> = rules
                    .filter(|rule| naive::holds(&rule["conditions"], &Value::Null, pairs))
                    .map(|rule| rule["ruleId"].as_str().unwrap())
                    .collect();
                prop_assert_eq!(applying, holding);
            }
        }
    }

    #[test]
    fn a_rule_at_the_end_wins(
        rules in chance::rules(),
        values in chance::object(chance::value()),
        pairs in chance::attributes(),
    ) {
        let last = json!({ "ruleId": "last", "values": values });
        let with_last = set(&rules).add(Rule::parse(&last).unwrap(), Position::Last).unwrap();
        let result = fresh(&with_last.to_value(), &pairs);
        for (key, value) in values.as_object().unwrap() {
            match value {
                Value::Null => prop_assert_eq!(result.get(key), None),
                Value::Object(_) => prop_assert!(result[key].is_object()),
                other => prop_assert_eq!(&result[key], other),
            }
        }
    }

    #[test]
    fn a_rule_repeated_next_to_itself_changes_nothing(
        rules in chance::at_least(1),
        index in any::<prop::sample::Index>(),
        pairs in chance::attributes(),
    ) {
        let mut repeated = rules.as_array().unwrap().clone();
        let index = index.index(repeated.len());
        let mut again = repeated[index].clone();
        again["ruleId"] = json!("again");
        repeated.insert(index + 1, again);
        prop_assert_eq!(fresh(&Value::Array(repeated), &pairs), fresh(&rules, &pairs));
    }

    #[test]
    fn null_deletes_any_value(rules in chance::rules(), pairs in chance::attributes()) {
        let before = fresh(&rules, &pairs);
        for (pointer, _) in leaves(&before) {
            // {"a": {"b": null}} for /a/b.
            let nothing = pointer.split('/').skip(1).collect::<Vec<_>>().into_iter().rev().fold(
                Value::Null,
                |inner, token| json!({ token.replace("~1", "/").replace("~0", "~"): inner }),
            );
            let mut all = rules.as_array().unwrap().clone();
            all.push(json!({ "ruleId": "nothing", "values": nothing }));
            let after = fresh(&Value::Array(all), &pairs);
            prop_assert_eq!(after.pointer(&pointer), None);
            for (other, value) in leaves(&after) {
                let kept = before.pointer(&other) == Some(&value);
                prop_assert!(kept || value == json!({}), "{}", other);
            }
        }
    }

    #[test]
    fn the_origin_of_every_leaf_assigns_its_value(rules in chance::rules(), pairs in chance::attributes()) {
        let set = set(&rules);
        let evaluation = Evaluator::new(&set).evaluate_with_origins(&attributes(&pairs));
        let result = Value::Object(evaluation.values);
        let leaves = leaves(&result);
        prop_assert_eq!(evaluation.origins.len(), leaves.len());
        for (pointer, leaf) in leaves {
            let origin = evaluation.origins.get(&pointer).unwrap();
            let rule = set.get(&origin.rule_id).unwrap();
            let mut again = Map::new();
            assign(&mut again, rule.values());
            let again = Value::Object(again);
            prop_assert_eq!(again.pointer(&pointer), Some(&leaf), "{}", pointer);
        }
    }

    #[test]
    fn origins_and_explanations_agree(rules in chance::rules(), pairs in chance::attributes()) {
        let evaluator = Evaluator::new(&set(&rules));
        let attributes = attributes(&pairs);
        let evaluation = evaluator.evaluate_with_origins(&attributes);
        for (pointer, origin) in &evaluation.origins {
            let explanation = evaluator.explain(&attributes, pointer);
            let steps: Vec<_> = explanation.steps.iter().map(|step| {
                let deleted = matches!(step.action, fleetwright_rules::Action::Delete { .. });
                (step.rule_id.clone(), deleted)
            }).collect();
            let mut told: Vec<_> = origin.overrode.iter().map(|earlier| (earlier.rule_id.clone(), earlier.deleted)).collect();
            told.push((origin.rule_id.clone(), false));
            prop_assert_eq!(steps, told, "{}", pointer);
        }
    }

    #[test]
    fn a_successor_equals_a_new_evaluator_and_affects_covers_every_difference(
        before in chance::rules(),
        edits in prop::collection::vec((0..5_u8, any::<prop::sample::Index>(), any::<prop::sample::Index>(), chance::rule()), 1..6),
        many in prop::collection::vec(chance::attributes(), 1..8),
    ) {
        let mut evaluator = Evaluator::new(&set(&before));
        for (number, (kind, from, to, rule)) in edits.into_iter().enumerate() {
            for pairs in &many {
                let _ = evaluator.evaluate(&attributes(pairs));
            }
            let mut list = evaluator.set().to_value().as_array().unwrap().clone();
            edit(&mut list, number, kind, from, to, rule);
            let next = set(&Value::Array(list));
            let (successor, change) = evaluator.succeed(&next);
            prop_assert_eq!(successor.set(), &next);
            for pairs in &many {
                let attributes = attributes(pairs);
                let wanted = naive::evaluate(&next.to_value(), pairs);
                prop_assert_eq!(&Value::Object(successor.evaluate(&attributes).values.clone()), &wanted);
                for known in 0..=pairs.len() {
                    let known: Attributes = pairs.iter().take(known).cloned().collect();
                    prop_assert!(change.may_affect(&known) || !change.affects(&attributes));
                }
                if !change.affects(&attributes) {
                    let (old, new) = (evaluator.evaluate_with_origins(&attributes), successor.evaluate_with_origins(&attributes));
                    prop_assert_eq!(old, new);
                }
            }
            evaluator = successor;
        }
    }
}

fn edit(
    list: &mut Vec<Value>,
    number: usize,
    kind: u8,
    from: prop::sample::Index,
    to: prop::sample::Index,
    mut rule: Value,
) {
    if kind == 0 || list.is_empty() {
        rule["ruleId"] = json!(format!("added-{number}"));
        list.insert(to.index(list.len() + 1), rule);
        return;
    }
    let index = from.index(list.len());
    match kind {
        1 => {
            list.remove(index);
        }
        2 => {
            let moved = list.remove(index);
            list.insert(to.index(list.len() + 1), moved);
        }
        3 => list[index]["values"] = rule["values"].clone(),
        _ => list[index]["conditions"] = rule["conditions"].clone(),
    }
}

/// Every leaf of a result with its JSON pointer.
fn leaves(value: &Value) -> Vec<(String, Value)> {
    fn collect(value: &Value, pointer: &str, into: &mut Vec<(String, Value)>) {
        match value {
            Value::Object(object) if !object.is_empty() || pointer.is_empty() => {
                for (key, value) in object {
                    let key = key.replace('~', "~0").replace('/', "~1");
                    collect(value, &format!("{pointer}/{key}"), into);
                }
            }
            leaf => into.push((pointer.to_owned(), leaf.clone())),
        }
    }
    let mut into = Vec::new();
    collect(value, "", &mut into);
    into
}
