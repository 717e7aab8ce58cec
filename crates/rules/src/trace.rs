//! Traces an evaluation: at each place that ever had a value, what each rule did there.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::rule::Rule;

pub(crate) type Children<'a> = BTreeMap<&'a str, Node<'a>>;

/// A place that has or had a value. If the value is not an object, its children are empty.
#[derive(Default)]
pub(crate) struct Node<'a> {
    pub(crate) now: NodeState<'a>,
    /// The actions of rules at exactly this place, oldest first.
    pub(crate) steps: Vec<TraceStep>,
    pub(crate) children: Children<'a>,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum NodeState<'a> {
    #[default]
    Nothing,
    Leaf(&'a Value),
    Object,
}

#[derive(Clone, Copy)]
pub(crate) struct TraceStep {
    /// Its index among the applying rules.
    pub(crate) rule: usize,
    pub(crate) did: StepKind,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum StepKind {
    /// Merged with the object, or made one.
    AssignObject,
    /// Replaced the value with a value other than an object.
    SetLeaf,
    /// Deleted a value.
    Delete,
}

/// Assigns like [`assign`](crate::assign()), one rule after the other.
pub(crate) fn assign_all<'a>(rules: &[&'a Rule]) -> Children<'a> {
    let mut root = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        assign(&mut root, rule.values(), index);
    }
    root
}

fn assign<'a>(target: &mut Children<'a>, values: &'a Map<String, Value>, rule: usize) {
    for (key, value) in values {
        let node = target.entry(key).or_default();
        let did = match value {
            Value::Null if node.now == NodeState::Nothing => continue,
            Value::Null => {
                node.clear();
                StepKind::Delete
            }
            Value::Object(values) => {
                node.now = NodeState::Object;
                assign(&mut node.children, values, rule);
                StepKind::AssignObject
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                node.clear();
                node.now = NodeState::Leaf(value);
                StepKind::SetLeaf
            }
        };
        node.steps.push(TraceStep { rule, did });
    }
}

impl Node<'_> {
    fn clear(&mut self) {
        if self.now == NodeState::Object {
            self.children.values_mut().for_each(Node::clear);
        }
        self.now = NodeState::Nothing;
    }

    /// Adds all steps that set a value here or below.
    pub(crate) fn setters(&self, into: &mut Vec<TraceStep>) {
        let set = |step: &&TraceStep| step.did != StepKind::Delete;
        into.extend(self.steps.iter().filter(set));
        for child in self.children.values() {
            child.setters(into);
        }
    }

    /// The steps that ended everything inside: those `above`, and those that deleted or replaced
    /// this node.
    pub(crate) fn ends(&self, above: &[TraceStep]) -> Vec<TraceStep> {
        let own = self
            .steps
            .iter()
            .filter(|step| step.did != StepKind::AssignObject);
        let mut ends: Vec<TraceStep> = above.iter().chain(own).copied().collect();
        ends.sort_by_key(|step| step.rule);
        ends
    }
}
