//! How one value came to be what it is, told step by step.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::assign::assign;
use crate::presented::Presented;
use crate::rule::Rule;

/// All that the applying rules did to one value, in their order.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    /// In which evaluation.
    pub presented: Presented,
    /// Which value, as a JSON pointer.
    pub pointer: String,
    /// Who did what to it.
    pub steps: Vec<Step>,
    /// The value in the end, if there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// What one rule did to the value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Step {
    /// The rule.
    pub rule_id: String,
    /// What it did.
    #[serde(flatten)]
    pub action: Action,
}

/// What a rule can do to a value. `by` is the rule that had last to do with the old one.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase", tag = "action")]
pub enum Action {
    /// Set it where nothing was.
    Set {
        /// To this.
        value: Value,
    },
    /// Put another value (or the same once more) in its place.
    Override {
        /// The new one.
        value: Value,
        /// The old one.
        old: Value,
        /// Who had set that.
        by: String,
    },
    /// Assigned to some of what is in it; it is an object.
    Merge {
        /// What was assigned, with `null` for what was deleted.
        value: Value,
        /// Who had set or last changed it.
        by: String,
    },
    /// Deleted it: by `null`, or because something else took the place of an object that it was in.
    Delete {
        /// What was there.
        old: Value,
        /// Who had set it.
        by: String,
    },
}

impl Explanation {
    pub(crate) fn of(presented: &Presented, pointer: &str, rules: &[&Rule]) -> Self {
        let tokens = tokens(pointer);
        let mut values = Map::new();
        let mut steps: Vec<Step> = Vec::new();
        for rule in rules {
            let action = match (find(rule.values(), &tokens), find(&values, &tokens)) {
                (Found::Missing, _) => {
                    assign(&mut values, rule.values());
                    None
                }
                (Found::Object(value), Found::Object(_)) if !steps.is_empty() => {
                    assign(&mut values, rule.values());
                    Some(Action::Merge {
                        value: Value::Object(value.clone()),
                        by: by(&steps),
                    })
                }
                (Found::Cut | Found::Object(_) | Found::Other(_), old) => {
                    // The whole result is an object before anybody has set it.
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
            presented: presented.clone(),
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

/// What there is at a pointer.
enum Found<'a> {
    /// An object on the way does not have the key: no word about this place.
    Missing,
    /// Something that is no object stands on the way.
    Cut,
    /// An object that others merge with.
    Object(&'a Map<String, Value>),
    /// Something that is replaced as a whole, or stands in a list that is.
    Other(&'a Value),
}

impl Found<'_> {
    fn value(self) -> Option<Value> {
        match self {
            Self::Missing | Self::Cut => None,
            Self::Object(object) => Some(Value::Object(object.clone())),
            Self::Other(value) => Some(value.clone()),
        }
    }
}

fn find<'a>(root: &'a Map<String, Value>, tokens: &[String]) -> Found<'a> {
    let mut object = root;
    for (index, token) in tokens.iter().enumerate() {
        let rest = &tokens[index + 1..];
        match object.get(token) {
            None => return Found::Missing,
            Some(Value::Object(next)) => object = next,
            Some(other) if rest.is_empty() && other.is_null() => return Found::Cut,
            Some(other) => return find_in_list(other, rest).map_or(Found::Cut, Found::Other),
        }
    }
    Found::Object(object)
}

fn find_in_list<'a>(value: &'a Value, tokens: &[String]) -> Option<&'a Value> {
    tokens.iter().try_fold(value, |value, token| match value {
        Value::Array(list) => list.get(token.parse::<usize>().ok()?),
        Value::Object(object) => object.get(token),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => None,
    })
}

/// The steps of a JSON pointer. One that does not begin with a slash is taken as if it did.
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
            "" => "the whole result",
            pointer => pointer,
        };
        writeln!(formatter, "{pointer} with {}:", self.presented)?;
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
                        "  {rule_id:?} assigns {value} to what {by:?} left"
                    )?;
                }
                Action::Delete { old, by } => {
                    writeln!(formatter, "  {rule_id:?} deletes {old} of {by:?}")?;
                }
            }
        }
        match &self.value {
            Some(value) => write!(formatter, "it is {value}"),
            None if self.steps.is_empty() => formatter.write_str("no rule that applies sets it"),
            None => formatter.write_str("it is not there"),
        }
    }
}
