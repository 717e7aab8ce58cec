//! Finds conditions of rules that are probably misspelt, without knowing the places of providers.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rules::{Conditions, Rule, RuleSet, did_you_mean};
use serde_json::{Map, Value};

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
    place_conditions(set).into_keys().collect()
}

/// Shorter names are like others by chance.
const MIN_LENGTH: usize = 5;

/// A condition that nearly equals another name.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct MisspeltCondition {
    /// The first rule that has it.
    pub(crate) rule: String,
    /// Its place in that rule.
    pub(crate) pointer: String,
    name: String,
    n_more: usize,
    meant: String,
    /// Whether it is a condition of a place of a provider.
    is_of_place: bool,
}

impl fmt::Display for MisspeltCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            rule, name, meant, ..
        } = self;
        write!(f, "rule {rule:?}")?;
        match self.n_more {
            0 => {}
            more => write!(f, " and {more} more")?,
        }
        if self.is_of_place {
            write!(
                f,
                ": no rule has the condition {name:?} of these places{meant}"
            )
        } else {
            write!(f, ": condition {name:?} is not a usual one{meant}")
        }
    }
}

/// The uses of a condition: the rules, and its place in the first of them.
#[derive(Default)]
struct Uses<'a> {
    rules: Vec<&'a str>,
    pointer: String,
}

impl<'a> Uses<'a> {
    fn add(&mut self, rule: &'a Rule, pointer: impl FnOnce() -> String) {
        if self.rules.is_empty() {
            self.pointer = pointer();
        }
        if self.rules.last() != Some(&rule.id()) {
            self.rules.push(rule.id());
        }
    }

    fn misspelt(&self, name: &str, meant: String, is_of_place: bool) -> Option<MisspeltCondition> {
        let rule = self.rules.first().filter(|_| !meant.is_empty())?;
        Some(MisspeltCondition {
            rule: (*rule).to_owned(),
            pointer: self.pointer.clone(),
            name: name.to_owned(),
            n_more: self.rules.len() - 1,
            meant,
            is_of_place,
        })
    }
}

/// Two kinds of conditions: of rules, with a name near a usual one or one of more rules; of places,
/// with a name that no rule has, near a name that rules have.
pub(crate) fn misspelt_conditions(set: &RuleSet) -> Vec<MisspeltCondition> {
    let mut users: BTreeMap<&str, Uses<'_>> = BTreeMap::new();
    for rule in set.rules() {
        let is_list = matches!(rule.conditions(), Conditions::AnyOf(_));
        for (index, mapping) in rule.conditions().mappings().iter().enumerate() {
            for (name, _) in mapping.iter() {
                users.entry(name).or_default().add(rule, || match is_list {
                    true => format!("/conditions/{index}/{name}"),
                    false => format!("/conditions/{name}"),
                });
            }
        }
    }
    let places = place_conditions(set);
    let mut misspelt = Vec::new();
    for (name, uses) in &users {
        if USUAL.contains(name) || places.contains_key(name) {
            continue;
        }
        let common = users.iter();
        let common = common.filter(|(other, used_by)| {
            name.len() >= MIN_LENGTH
                && used_by.rules.len() > uses.rules.len()
                && without_digits(other) != without_digits(name)
        });
        let candidates = USUAL.into_iter().chain(places.keys().copied());
        let candidates = candidates.chain(common.map(|(other, _)| *other));
        misspelt.extend(uses.misspelt(name, did_you_mean(name, candidates), false));
    }
    for (name, uses) in &places {
        if USUAL.contains(name) || users.contains_key(name) || name.len() < MIN_LENGTH {
            continue;
        }
        // A condition of places that rules have is right, however it is written.
        let missing = users.keys().copied();
        let missing = missing.filter(|known| without_digits(known) != without_digits(name));
        misspelt.extend(uses.misspelt(name, did_you_mean(name, missing), true));
    }
    misspelt
}

/// The conditions of the places in the rules.
fn place_conditions(set: &RuleSet) -> BTreeMap<&str, Uses<'_>> {
    let mut found: BTreeMap<&str, Uses<'_>> = BTreeMap::new();
    for rule in set.rules() {
        let providers = rule.values().get("providers").and_then(Value::as_object);
        for (provider, options) in providers.into_iter().flatten() {
            let places = options.get("places").and_then(Value::as_array);
            for (index, place) in places.into_iter().flatten().enumerate() {
                for name in place.as_object().into_iter().flat_map(Map::keys) {
                    let pointer = || format!("/values/providers/{provider}/places/{index}/{name}");
                    found.entry(name).or_default().add(rule, pointer);
                }
            }
        }
    }
    found
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
        said(&rules)
    }

    fn said(rules: &Value) -> Vec<String> {
        let found = misspelt_conditions(&RuleSet::parse(rules).unwrap());
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn a_misspelt_condition_of_a_place_is_found_by_the_rules_that_miss_it() {
        let places = json!({"cloud": {"places": [{"regoin": "r", "rack": "a"}]}});
        let rules = |condition: &str| {
            json!([
                {"ruleId": "all", "values": {"providers": places}},
                {"ruleId": "r", "conditions": {condition: "r"}, "values": {}},
            ])
        };
        assert_eq!(
            said(&rules("region")),
            [
                "rule \"all\": no rule has the condition \"regoin\" of these places, did you mean \"region\"?"
            ]
        );
        assert_eq!(said(&rules("regoin")), [""; 0]);
        assert_eq!(said(&rules("zone")), [""; 0]);
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
