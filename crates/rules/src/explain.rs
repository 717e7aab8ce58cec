//! Explains one value of a result: what each rule did to it.

use std::fmt;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::assign::assign;
use crate::attributes::Attributes;
use crate::origins::{self, references_in};
use crate::references::Part;
use crate::resolve::referenced;
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
    /// The actions of the rules, in their order. Texts are as the rules have them.
    pub steps: Vec<Step>,
    /// The references in the value, by their texts.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<ReferencedValue>,
    /// The errors of this evaluation in the value.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<String>,
    /// The final value, if any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
}

/// A reference in a value.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ReferencedValue {
    /// The name of a condition, or a JSON pointer into the result.
    pub reference: String,
    /// Its value, if it has one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub value: Option<Value>,
    /// The rule that set the value, unless it is a condition.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rule_id: Option<String>,
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
    /// Changed elements of the list, of a list around it, or of a list inside it.
    Change {
        /// The changes of the rule, by their paths.
        elements: Map<String, Value>,
        /// The rule that last acted on the value, if it had one.
        #[serde(skip_serializing_if = "String::is_empty")]
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
            if rule.elements().is_empty() {
                continue;
            }
            if let Some(elements) = changed(&mut values, rule, &tokens) {
                let by = by(&steps);
                steps.push(Step {
                    rule_id: rule.id().to_owned(),
                    action: Action::Change { elements, by },
                });
            }
        }
        let mut explanation = Self {
            attributes: attributes.clone(),
            pointer: pointer.to_owned(),
            value: find(&values, &tokens).value(),
            references: Vec::new(),
            errors: Vec::new(),
            steps,
        };
        if rules.iter().any(|rule| rule.is_extended()) {
            explanation.resolve(rules, &tokens);
        }
        explanation
    }

    /// Adds the references and their values.
    fn resolve(&mut self, rules: &[&Rule], tokens: &[String]) {
        let mut marked = Map::new();
        for rule in rules {
            assign(&mut marked, rule.marked_values());
            rule.elements().apply(&mut marked, |_, _| ());
        }
        let evaluation = origins::evaluate(rules, &self.attributes);
        self.value = find(&evaluation.values, tokens).value();
        let written = find(&marked, tokens).value().unwrap_or_default();
        for reference in references_in(&written) {
            let part = match reference.starts_with('/') {
                true => Part::Pointer(&reference),
                false => Part::Condition(&reference),
            };
            self.references.push(ReferencedValue {
                value: referenced(&marked, &self.attributes, part),
                rule_id: evaluation
                    .origins
                    .get(&reference)
                    .map(|origin| origin.rule_id.clone()),
                reference,
            });
        }
        let is_within = |pointer: &str| {
            let at = self::tokens(pointer);
            at.iter().zip(tokens).all(|(left, right)| left == right)
        };
        let errors = evaluation.errors.iter();
        let errors = errors.filter(|error| is_within(&error.pointer));
        self.errors = errors.map(ToString::to_string).collect();
    }
}

/// Changes the elements, and returns the changes of the rule if they affect the value.
fn changed(
    values: &mut Map<String, Value>,
    rule: &Rule,
    tokens: &[String],
) -> Option<Map<String, Value>> {
    let before = find(values, tokens).value();
    let mut near = Map::new();
    for change in rule.elements().changes() {
        let mut keys = change.keys().iter().zip(tokens);
        if keys.all(|(left, right)| left == right) {
            let value = rule.elements().source().get(change.path());
            near.extend(value.map(|value| (change.path().to_owned(), value.clone())));
        }
    }
    rule.elements().apply(values, |_, _| ());
    let has_changed = find(values, tokens).value() != before;
    has_changed.then_some(near)
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
                Action::Change { elements, .. } => {
                    let elements = Value::Object(elements.clone());
                    writeln!(formatter, "  {rule_id:?} changes elements: {elements}")?;
                }
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
        for reference in &self.references {
            write!(formatter, "  ${{{}}} ", reference.reference)?;
            match (&reference.value, &reference.rule_id) {
                (Some(value), Some(rule_id)) => {
                    writeln!(formatter, "is {value}, set by {rule_id:?}")?;
                }
                (Some(value), None) => writeln!(formatter, "is {value}")?,
                (None, _) => writeln!(formatter, "has no value")?,
            }
        }
        for error in &self.errors {
            writeln!(formatter, "  error: {error}")?;
        }
        match &self.value {
            Some(value) => write!(formatter, "result: {value}"),
            None if self.steps.is_empty() => formatter.write_str("no applying rule sets it"),
            None => formatter.write_str("result: no value"),
        }
    }
}
