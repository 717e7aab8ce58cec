//! Origins: the rule that set each value of a result, and the earlier values that it replaced.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;
use serde_json::{Map, Value};

use crate::attributes::Attributes;
use crate::evaluated::EvaluationError;
use crate::limits::MAX_PROBLEMS;
use crate::problem::push_token;
use crate::references::{Part, parts, visit_templates};
use crate::resolve::resolve;
use crate::rule::Rule;
use crate::trace::{self, Children, Node, NodeState, StepKind, TraceStep};

/// A result with the origins of its values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The result.
    pub values: Map<String, Value>,
    /// The rule of each value.
    pub origins: Origins,
    /// References without a value, and elements of lists that do not exist.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub errors: Vec<EvaluationError>,
}

/// The origin of each leaf of a result (text, number, boolean, list, empty object), by JSON
/// pointer.
pub type Origins = BTreeMap<String, Origin>;

/// The origin of one value.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Origin {
    /// The rule that set the value. For an empty object, the last rule that assigned an object
    /// there.
    pub rule_id: String,
    /// The actions of earlier rules on it, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub overrode: Vec<OverriddenStep>,
    /// The rules that changed elements of the list, oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub changed_by: Vec<String>,
    /// The names of conditions and the JSON pointers that the value refers to.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub references: Vec<String>,
}

/// An action of a rule on a value (or on values inside it) before another rule set the final one.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct OverriddenStep {
    /// The rule.
    pub rule_id: String,
    /// Whether it deleted the value instead of setting it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub deleted: bool,
}

/// Evaluates the rules and records the origin of every value.
pub(crate) fn evaluate(rules: &[&Rule], attributes: &Attributes) -> Evaluation {
    let (root, failed) = trace::assign_all(rules);
    let mut collector = Collector {
        rules,
        pointer: String::new(),
        origins: BTreeMap::new(),
    };
    let values = collector.object(&root, &[]);
    let mut origins = collector.origins;
    let failed = failed.into_iter().map(|failed| EvaluationError {
        pointer: failed.path,
        rule_id: rules[failed.rule].id().to_owned(),
        message: failed.message,
    });
    let mut errors: Vec<EvaluationError> = failed.take(MAX_PROBLEMS).collect();
    if !rules.iter().any(|rule| rule.is_extended()) {
        return Evaluation {
            values,
            origins,
            errors,
        };
    }
    add_references(&values, &mut origins);
    let (values, unresolved) = resolve(values, attributes);
    let unresolved = unresolved.into_iter().map(|unresolved| EvaluationError {
        rule_id: rule_of(&origins, rules, &unresolved.pointer),
        pointer: unresolved.pointer,
        message: unresolved.message,
    });
    errors.extend(unresolved);
    errors.truncate(MAX_PROBLEMS);
    Evaluation {
        values,
        origins,
        errors,
    }
}

fn add_references(values: &Map<String, Value>, origins: &mut Origins) {
    let root = Value::Object(values.clone());
    for (pointer, origin) in origins {
        if let Some(value) = root.pointer(pointer) {
            origin.references = references_in(value);
        }
    }
}

/// The references in all texts of a value with marks, each once.
pub(crate) fn references_in(value: &Value) -> Vec<String> {
    let mut references = BTreeSet::new();
    visit_templates(value, &mut |template| {
        let parts = parts(template).unwrap_or_default().into_iter();
        references.extend(parts.filter_map(|part| match part {
            Part::Text(_) => None,
            Part::Condition(name) | Part::Pointer(name) => Some(name.to_owned()),
        }));
    });
    references.into_iter().collect()
}

/// The rule that wrote a text at this pointer, which may be inside a list.
fn rule_of(origins: &Origins, rules: &[&Rule], pointer: &str) -> String {
    let mut around = pointer;
    let origin = loop {
        if let Some(origin) = origins.get(around) {
            break origin;
        }
        match around.rsplit_once('/') {
            Some((shorter, _)) => around = shorter,
            None => return String::new(),
        }
    };
    let has_references = |id: &&String| {
        let mut rules = rules.iter();
        rules.any(|rule| rule.id() == id.as_str() && rule.has_references())
    };
    let mut changed_by = origin.changed_by.iter().rev();
    changed_by
        .find(has_references)
        .unwrap_or(&origin.rule_id)
        .clone()
}

/// Collects the final values and their origins.
struct Collector<'a> {
    rules: &'a [&'a Rule],
    pointer: String,
    origins: Origins,
}

impl Collector<'_> {
    /// `above` are the steps that replaced or deleted the content of this object, oldest first.
    fn object(&mut self, children: &Children<'_>, above: &[TraceStep]) -> Map<String, Value> {
        let mut object = Map::new();
        for (key, node) in children {
            let length = self.pointer.len();
            push_token(&mut self.pointer, key);
            let value = match &node.now {
                NodeState::Nothing => None,
                NodeState::Leaf(value) => {
                    self.leaf(node, above);
                    Some((*value).clone())
                }
                NodeState::Changed(value) => {
                    self.leaf(node, above);
                    Some((**value).clone())
                }
                NodeState::Object => {
                    let within = self.object(&node.children, &node.ends(above));
                    if within.is_empty() {
                        self.leaf(node, above);
                    }
                    Some(Value::Object(within))
                }
            };
            self.pointer.truncate(length);
            object.extend(value.map(|value| ((*key).to_owned(), value)));
        }
        object
    }

    fn leaf(&mut self, node: &Node<'_>, above: &[TraceStep]) {
        let mut steps = node.steps.clone();
        for child in node.children.values() {
            child.setters(&mut steps);
        }
        let first = steps.first().map_or(0, |step| step.rule);
        steps.extend(
            above
                .iter()
                .filter(|step| step.rule > first)
                .map(|step| TraceStep {
                    rule: step.rule,
                    did: StepKind::Delete,
                }),
        );
        steps.sort_by_key(|step| step.rule);
        steps.dedup_by_key(|step| step.rule);
        // A value that is already deleted is not deleted again.
        let mut is_there = false;
        steps.retain(|step| {
            let counts = is_there || step.did != StepKind::Delete;
            is_there = step.did != StepKind::Delete;
            counts
        });
        let last = steps.pop().expect("a rule set this value");
        let rule_id = |step: TraceStep| self.rules[step.rule].id().to_owned();
        let earlier = |step: TraceStep| OverriddenStep {
            rule_id: rule_id(step),
            deleted: step.did == StepKind::Delete,
        };
        let mut changed_by: Vec<usize> = node.present_changes().map(|it| it.rule).collect();
        changed_by.dedup();
        changed_by.retain(|rule| *rule != last.rule);
        let changed_by = changed_by.into_iter().map(|rule| self.rules[rule].id());
        let origin = Origin {
            rule_id: rule_id(last),
            overrode: steps.into_iter().map(earlier).collect(),
            changed_by: changed_by.map(str::to_owned).collect(),
            references: Vec::new(),
        };
        self.origins.insert(self.pointer.clone(), origin);
    }
}
