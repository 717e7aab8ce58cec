//! Finds conditions of rules that are probably misspelt, without knowing the places of providers.

use std::collections::{BTreeMap, BTreeSet};

use rules::{RuleSet, did_you_mean};
use serde_json::Value;

/// Conditions that are always set, or that places of providers have.
const USUAL: [&str; 8] = [
    "workerType",
    "provider",
    "region",
    "zone",
    "availabilityZone",
    "instanceType",
    "machineType",
    "location",
];

/// The conditions that the places in the rules set.
pub(crate) fn own_conditions(set: &RuleSet) -> BTreeSet<&str> {
    let rules = set.rules().iter();
    let places = rules.filter_map(|rule| rule.values().get("providers")?.as_object());
    let places = places.flat_map(|providers| providers.values());
    let places = places
        .filter_map(|options| options.get("places")?.as_array())
        .flatten();
    let places = places.filter_map(Value::as_object);
    places
        .flat_map(|place| place.keys().map(String::as_str))
        .collect()
}

/// Shorter names are like others by chance.
const MIN_LENGTH: usize = 5;

/// A line for each condition that nearly equals a usual one, or one of more rules.
pub(crate) fn misspelt_conditions(set: &RuleSet) -> Vec<String> {
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for rule in set.rules() {
        for mapping in rule.conditions().mappings() {
            for (name, _) in mapping.iter() {
                let rules = users.entry(name).or_default();
                if rules.last() != Some(&rule.id()) {
                    rules.push(rule.id());
                }
            }
        }
    }
    let own = own_conditions(set);
    let mut lines = Vec::new();
    for (name, rules) in &users {
        if USUAL.contains(name) || own.contains(name) {
            continue;
        }
        let common = users.iter();
        let common = common.filter(|(other, used_by)| {
            name.len() >= MIN_LENGTH
                && used_by.len() > rules.len()
                && without_digits(other) != without_digits(name)
        });
        let candidates = USUAL.into_iter().chain(own.iter().copied());
        let candidates = candidates.chain(common.map(|(other, _)| *other));
        let meant = did_you_mean(name, candidates);
        if let (false, Some(first)) = (meant.is_empty(), rules.first()) {
            let more = match rules.len() - 1 {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            lines.push(format!(
                "rule {first:?}{more}: condition {name:?} is not a usual one{meant}"
            ));
        }
    }
    lines
}

/// Names such as `disk1` and `disk2` are different on purpose.
fn without_digits(name: &str) -> String {
    name.chars().filter(|c| !c.is_ascii_digit()).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn lines(conditions: &[Value]) -> Vec<String> {
        let rules = conditions.iter().enumerate();
        let rules: Value = rules
            .map(|(number, conditions)| {
                json!({"ruleId": format!("r{number}"), "conditions": conditions, "values": {}})
            })
            .collect();
        misspelt_conditions(&RuleSet::parse(&rules).unwrap())
    }

    #[test]
    fn a_condition_that_nearly_equals_a_usual_or_frequent_one_is_found() {
        assert_eq!(
            lines(&[json!({"regoin": "x"}), json!({"regoin": "y"})]),
            [
                "rule \"r0\" and 1 more: condition \"regoin\" is not a usual one, did you mean \"region\"?"
            ]
        );
        let frequent = [
            json!({"flavour": "a"}),
            json!({"flavour": "b"}),
            json!({"flavor": "c"}),
        ];
        assert_eq!(
            lines(&frequent),
            ["rule \"r2\": condition \"flavor\" is not a usual one, did you mean \"flavour\"?"]
        );
    }

    #[test]
    fn other_conditions_are_left_alone() {
        let own = [
            json!({"region": "a", "zone": "b", "workerType": "c"}),
            json!({"disk1": "a"}),
            json!({"disk1": "b"}),
            json!({"disk2": "b", "rack": "c"}),
            json!({"os": "a"}),
            json!({"os": "b"}),
            json!({"ok": "b"}),
        ];
        assert_eq!(lines(&own), [""; 0]);
    }
}
