//! Traces an evaluation: at each place that ever had a value, what each rule did there.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::elements::ElementChange;
use crate::rule::Rule;

pub(crate) type Children<'a> = BTreeMap<&'a str, Node<'a>>;

/// A place that has or had a value. If the value is not an object, its children are empty.
#[derive(Default)]
pub(crate) struct Node<'a> {
    pub(crate) now: NodeState<'a>,
    /// The actions of rules at exactly this place, oldest first.
    pub(crate) steps: Vec<TraceStep>,
    /// The changes of elements, if there were any. Few nodes have some, and nodes are moved often.
    changes: Option<Box<ListChanges>>,
    pub(crate) children: Children<'a>,
}

#[derive(Default, PartialEq)]
pub(crate) enum NodeState<'a> {
    #[default]
    Nothing,
    Leaf(&'a Value),
    /// A list with changed elements.
    Changed(Box<Value>),
    Object,
}

/// The changes of elements of a list, oldest first.
#[derive(Default)]
struct ListChanges(Vec<TraceChange>);

/// A change of an element of a list.
#[derive(Clone, Copy)]
pub(crate) struct TraceChange {
    /// Its index among the applying rules.
    pub(crate) rule: usize,
    /// Its index among the changes of the rule.
    pub(crate) number: usize,
    /// The number of steps before it.
    pub(crate) n_steps: usize,
}

/// A change that is not possible.
pub(crate) struct FailedChange {
    pub(crate) rule: usize,
    pub(crate) path: String,
    pub(crate) message: String,
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
pub(crate) fn assign_all<'a>(rules: &[&'a Rule]) -> (Children<'a>, Vec<FailedChange>) {
    let mut root = BTreeMap::new();
    let mut failed = Vec::new();
    for (index, rule) in rules.iter().enumerate() {
        assign(&mut root, rule.marked_values(), index);
        for (number, change) in rule.elements().changes().iter().enumerate() {
            if let Err(message) = change_element(&mut root, change, index, number) {
                failed.push(FailedChange {
                    rule: index,
                    path: change.path().to_owned(),
                    message,
                });
            }
        }
    }
    (root, failed)
}

fn change_element<'a>(
    root: &mut Children<'a>,
    change: &'a ElementChange,
    rule: usize,
    number: usize,
) -> Result<(), String> {
    let (last, above) = change
        .keys()
        .split_last()
        .expect("a path begins with a key");
    let mut children = root;
    for key in above {
        match children.get_mut(key.as_str()) {
            Some(node) if node.now == NodeState::Object => children = &mut node.children,
            Some(_) | None => return change.without_list().map(|_| ()),
        }
    }
    let node = children.get_mut(last.as_str());
    let is_list = node
        .as_ref()
        .is_some_and(|node| node.now != NodeState::Nothing);
    let node = match node {
        Some(node) if is_list => node,
        Some(_) | None if change.makes_list() => {
            let node = children.entry(last).or_default();
            node.now = NodeState::Changed(Box::new(change.new_list()));
            let did = StepKind::SetLeaf;
            node.steps.push(TraceStep { rule, did });
            node
        }
        Some(_) | None => return change.without_list().map(|_| ()),
    };
    if let NodeState::Leaf(list) = node.now {
        node.now = NodeState::Changed(Box::new(list.clone()));
    }
    let has_changed = match &mut node.now {
        NodeState::Changed(list) => change.apply_to(list)? || !is_list,
        NodeState::Leaf(_) => false,
        NodeState::Object | NodeState::Nothing => {
            change.apply_to(&mut Value::Object(Map::new()))?
        }
    };
    if has_changed {
        let n_steps = node.steps.len();
        let changes = node.changes.get_or_insert_default();
        changes.0.push(TraceChange {
            rule,
            number,
            n_steps,
        });
    }
    Ok(())
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

    /// Whether it has a value other than an object.
    pub(crate) fn is_leaf(&self) -> bool {
        matches!(self.now, NodeState::Leaf(_) | NodeState::Changed(_))
    }

    /// The changes of elements, oldest first.
    pub(crate) fn changes(&self) -> &[TraceChange] {
        self.changes.as_ref().map_or(&[], |changes| &changes.0)
    }

    /// The changes of elements of the present list.
    pub(crate) fn present_changes(&self) -> impl Iterator<Item = &TraceChange> {
        let n_steps = self.steps.len();
        let changes = self.changes().iter();
        changes.filter(move |change| change.n_steps == n_steps)
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
