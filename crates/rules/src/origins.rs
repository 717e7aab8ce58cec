//! Origins: the rule that set each value of a result, and the earlier values that it replaced.

use std::collections::BTreeMap;

use serde::Serialize;
use serde_json::{Map, Value};

use crate::problem::push_token;
use crate::rule::Rule;
use crate::trace::{self, Children, Node, NodeState, StepKind, TraceStep};

/// A result with the origins of its values.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Evaluation {
    /// The result.
    pub values: Map<String, Value>,
    /// The rule of each value.
    pub origins: Origins,
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
pub(crate) fn evaluate(rules: &[&Rule]) -> Evaluation {
    let root = trace::assign_all(rules);
    let mut collector = Collector {
        rules,
        pointer: String::new(),
        origins: BTreeMap::new(),
    };
    let values = collector.object(&root, &[]);
    Evaluation {
        values,
        origins: collector.origins,
    }
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
            let value = match node.now {
                NodeState::Nothing => None,
                NodeState::Leaf(value) => {
                    self.leaf(node, above);
                    Some(value.clone())
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
        let origin = Origin {
            rule_id: rule_id(last),
            overrode: steps.into_iter().map(earlier).collect(),
        };
        self.origins.insert(self.pointer.clone(), origin);
    }
}
