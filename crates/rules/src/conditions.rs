//! The conditions of a rule: none, one mapping, or a list of mappings of which one must hold.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::attributes::Attributes;
use crate::limits::{MAX_MAPPINGS, MAX_NAME_CHARS};
use crate::patterns::Patterns;
use crate::problem::{Place, kind};
use crate::sets::Sets;

/// The conditions of a rule.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Conditions {
    /// `null`: no conditions, so the rule always applies.
    Always,
    /// A mapping: all its names must match.
    All(Mapping),
    /// A list of mappings: one of them must hold.
    AnyOf(Vec<Mapping>),
}

/// Condition names, each with the patterns for its value.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Mapping(BTreeMap<String, Patterns>);

impl Conditions {
    /// Whether a rule with these conditions applies.
    pub fn hold(&self, attributes: &Attributes) -> bool {
        match self {
            Self::Always => true,
            Self::All(mapping) => mapping.holds(attributes),
            Self::AnyOf(mappings) => mappings.iter().any(|mapping| mapping.holds(attributes)),
        }
    }

    /// Whether a rule with these conditions may apply to an evaluation with these attributes,
    /// whatever its other attributes are.
    pub fn may_hold(&self, known: &Attributes) -> bool {
        match self {
            Self::Always => true,
            Self::All(mapping) => mapping.may_hold(known),
            Self::AnyOf(mappings) => mappings.iter().any(|mapping| mapping.may_hold(known)),
        }
    }

    /// The mappings of which one must hold; empty if the rule always applies.
    pub fn mappings(&self) -> &[Mapping] {
        match self {
            Self::Always => &[],
            Self::All(mapping) => std::slice::from_ref(mapping),
            Self::AnyOf(mappings) => mappings,
        }
    }

    /// The names of its sets, each with the place of the condition, as tokens of a JSON pointer.
    pub(crate) fn set_names(&self) -> Vec<(Vec<String>, &str)> {
        let is_list = matches!(self, Self::AnyOf(_));
        let mut found = Vec::new();
        for (index, mapping) in self.mappings().iter().enumerate() {
            for (name, patterns) in mapping.iter() {
                for set in patterns.set_names() {
                    let index = is_list.then(|| index.to_string());
                    let tokens = index.into_iter().chain([name.to_owned()]);
                    found.push((tokens.collect(), set));
                }
            }
        }
        found
    }

    /// The same conditions with the sets that they name.
    pub(crate) fn linked(&self, sets: &Sets) -> Self {
        match self {
            Self::Always => Self::Always,
            Self::All(mapping) => Self::All(mapping.linked(sets)),
            Self::AnyOf(mappings) => Self::AnyOf(
                mappings
                    .iter()
                    .map(|mapping| mapping.linked(sets))
                    .collect(),
            ),
        }
    }

    /// Whether the sets have the same content in both, which are equal otherwise.
    pub(crate) fn has_sets_of(&self, other: &Self) -> bool {
        let patterns = |of: &Self| -> Vec<Patterns> {
            let mappings = of.mappings().iter();
            mappings
                .flat_map(|mapping| mapping.0.values().cloned())
                .collect()
        };
        let (left, right) = (patterns(self), patterns(other));
        left.iter()
            .zip(&right)
            .all(|(left, right)| left.has_sets_of(right))
    }

    pub(crate) fn parse(value: &Value, place: &mut Place<'_>) -> Option<Self> {
        match value {
            Value::Null => Some(Self::Always),
            Value::Object(mapping) => Mapping::parse(mapping, place).map(Self::All),
            Value::Array(list) if list.len() > MAX_MAPPINGS => {
                place.problem(format!(
                    "conditions have at most {MAX_MAPPINGS} mappings, these have {}",
                    list.len()
                ));
                None
            }
            Value::Array(list) => {
                let mappings = list.iter().enumerate().map(|(index, item)| {
                    place.within(&index.to_string(), |place| match item {
                        Value::Object(mapping) => Mapping::parse(mapping, place),
                        Value::Null
                        | Value::Bool(_)
                        | Value::Number(_)
                        | Value::String(_)
                        | Value::Array(_) => {
                            place.problem(format!(
                                "expected a mapping from condition names to patterns, found {}",
                                kind(item)
                            ));
                            None
                        }
                    })
                });
                all(mappings).map(Self::AnyOf)
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) => {
                place.problem(format!(
                    "conditions are null, a mapping from condition names to patterns, or a list of such mappings; found {}",
                    kind(value)
                ));
                None
            }
        }
    }
}

impl Mapping {
    /// Whether every name has an attribute with a matching value.
    pub fn holds(&self, attributes: &Attributes) -> bool {
        self.iter().all(|(name, patterns)| {
            let value = attributes.get(name);
            value.is_some_and(|value| patterns.match_value(value))
        })
    }

    /// Whether no name has an attribute with a value that does not match.
    fn may_hold(&self, known: &Attributes) -> bool {
        self.iter().all(|(name, patterns)| {
            let value = known.get(name);
            value.is_none_or(|value| patterns.match_value(value))
        })
    }

    /// The names with their patterns, by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Patterns)> {
        self.0
            .iter()
            .map(|(name, patterns)| (name.as_str(), patterns))
    }

    /// The patterns of a name, if the mapping has it.
    pub fn get(&self, name: &str) -> Option<&Patterns> {
        self.0.get(name)
    }

    fn linked(&self, sets: &Sets) -> Self {
        let pairs = self.0.iter();
        Self(
            pairs
                .map(|(name, patterns)| (name.clone(), patterns.linked(sets)))
                .collect(),
        )
    }

    fn parse(mapping: &Map<String, Value>, place: &mut Place<'_>) -> Option<Self> {
        let pairs = mapping.iter().map(|(name, value)| {
            place.within(name, |place| {
                let length = name.chars().count();
                if length == 0 || length > MAX_NAME_CHARS {
                    place.problem(format!(
                        "the name of a condition has 1 to {MAX_NAME_CHARS} characters, this one has {length}"
                    ));
                    return None;
                }
                Some((name.clone(), Patterns::parse(value, place)?))
            })
        });
        all(pairs).map(|pairs| Self(pairs.into_iter().collect()))
    }
}

/// All parsed items, or `None` if one failed. Every item is parsed, so that each can report its
/// problems.
fn all<T>(parsed: impl Iterator<Item = Option<T>>) -> Option<Vec<T>> {
    let parsed: Vec<Option<T>> = parsed.collect();
    parsed.into_iter().collect()
}
