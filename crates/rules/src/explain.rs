//! Explains one value of a result: what each rule did to it.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::assign::assign;
use crate::attributes::Attributes;
use crate::rule::Rule;

/// The actions of the applying rules on one value, in their order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// The attributes of the evaluation.
    #[serde(rename = "presented")]
    pub attributes: Attributes,
    /// The value, as a JSON pointer.
    pub pointer: String,
    /// The actions of the rules, in their order.
    pub steps: Vec<Step>,
    /// The final value, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// The action of one rule on the value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The rule.
    pub rule_id: String,
    /// Its action on the value.
    #[serde(flatten)]
    pub action: Action,
}

/// An action of a rule on a value. `by` is the rule that last acted on the old value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub enum Action {
    /// Set a value where none was.
    Set {
        /// The new value.
        value: Value,
    },
    /// Replaced the value, possibly with an equal one.
    Override {
        /// The new value.
        value: Value,
        /// The replaced value.
        old: Value,
        /// The rule of the replaced value.
        by: String,
    },
    /// Assigned to members of an object.
    Merge {
        /// The assigned members, with `null` for deleted ones.
        value: Value,
        /// The rule that last acted on the object.
        by: String,
    },
    /// Deleted the value: by `null`, or by replacing an object around it.
    Delete {
        /// The deleted value.
        old: Value,
        /// The rule of the deleted value.
        by: String,
    },
}

impl Explanation {
    pub(crate) fn of(attributes: &Attributes, pointer: &str, rules: &[&Rule]) -> Self {
        let tokens = tokens(pointer);
        let mut values = Map::new();
        let mut steps: Vec<Step> = Vec::new();
        for rule in rules {
            let action = match (find(rule.values(), &tokens), find(&values, &tokens)) {
                (Lookup::Missing, _) => {
                    assign(&mut values, rule.values());
                    None
                }
                (Lookup::Object(value), Lookup::Object(_)) if !steps.is_empty() => {
                    assign(&mut values, rule.values());
                    Some(Action::Merge {
                        value: Value::Object(value.clone()),
                        by: by(&steps),
                    })
                }
                (Lookup::Cut | Lookup::Object(_) | Lookup::Other(_), old) => {
                    // The result is an object before any rule set it.
                    let old = old.value().filter(|_| !steps.is_empty());
                    assign(&mut values, rule.values());
                    replacement(old, find(&values, &tokens).value(), &steps)
                }
            };
            steps.extend(action.map(|action| Step {
                rule_id: rule.id().to_owned(),
                action,
            }));
        }
        Self {
            attributes: attributes.clone(),
            pointer: pointer.to_owned(),
            value: find(&values, &tokens).value(),
            steps,
        }
    }
}

fn by(steps: &[Step]) -> String {
    steps
        .last()
        .map_or_else(String::new, |step| step.rule_id.clone())
}

fn replacement(old: Option<Value>, new: Option<Value>, steps: &[Step]) -> Option<Action> {
    match (old, new) {
        (None, None) => None,
        (None, Some(value)) => Some(Action::Set { value }),
        (Some(old), Some(value)) => Some(Action::Override {
            value,
            old,
            by: by(steps),
        }),
        (Some(old), None) => Some(Action::Delete { old, by: by(steps) }),
    }
}

/// The content at a pointer.
enum Lookup<'a> {
    /// An object on the way lacks the key, so the rule does not affect this place.
    Missing,
    /// A value on the way is not an object.
    Cut,
    /// An object, which merges with others.
    Object(&'a Map<String, Value>),
    /// A value that is replaced completely, or one inside a list.
    Other(&'a Value),
}

impl Lookup<'_> {
    fn value(self) -> Option<Value> {
        match self {
            Self::Missing | Self::Cut => None,
            Self::Object(object) => Some(Value::Object(object.clone())),
            Self::Other(value) => Some(value.clone()),
        }
    }
}

fn find<'a>(root: &'a Map<String, Value>, tokens: &[String]) -> Lookup<'a> {
    let mut object = root;
    for (index, token) in tokens.iter().enumerate() {
        let rest = &tokens[index + 1..];
        match object.get(token) {
            None => return Lookup::Missing,
            Some(Value::Object(next)) => object = next,
            Some(other) if rest.is_empty() && other.is_null() => return Lookup::Cut,
            Some(other) => return find_in_list(other, rest).map_or(Lookup::Cut, Lookup::Other),
        }
    }
    Lookup::Object(object)
}

fn find_in_list<'a>(value: &'a Value, tokens: &[String]) -> Option<&'a Value> {
    tokens.iter().try_fold(value, |value, token| match value {
        Value::Array(list) => list.get(token.parse::<usize>().ok()?),
        Value::Object(object) => object.get(token),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// The steps of a JSON pointer. A missing first slash is added.
fn tokens(pointer: &str) -> Vec<String> {
    if pointer.is_empty() {
        return Vec::new();
    }
    let tokens = pointer.strip_prefix('/').unwrap_or(pointer).split('/');
    tokens
        .map(|token| token.replace("~1", "/").replace("~0", "~"))
        .collect()
}

impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let pointer = match self.pointer.as_str() {
            "" => "the result",
            pointer => pointer,
        };
        writeln!(formatter, "{pointer} with {}:", self.attributes)?;
        for Step { rule_id, action } in &self.steps {
            match action {
                Action::Set { value } => writeln!(formatter, "  {rule_id:?} sets {value}")?,
                Action::Override { value, old, by } => {
                    writeln!(
                        formatter,
                        "  {rule_id:?} overrides {old} of {by:?} with {value}"
                    )?;
                }
                Action::Merge { value, by } => {
                    writeln!(
                        formatter,
                        "  {rule_id:?} merges {value} into the object of {by:?}"
                    )?;
                }
                Action::Delete { old, by } => {
                    writeln!(formatter, "  {rule_id:?} deletes {old} of {by:?}")?;
                }
            }
        }
        match &self.value {
            Some(value) => write!(formatter, "result: {value}"),
            None if self.steps.is_empty() => formatter.write_str("no applying rule sets it"),
            None => formatter.write_str("result: no value"),
        }
    }
}
