//! An evaluation that writes down, at every place that ever had a value, which rule did what there.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::rule::Rule;

pub(crate) type Children<'a> = BTreeMap<&'a str, Node<'a>>;

/// A place where something is or was. If it is no object, there is nothing in its children.
#[derive(Default)]
pub(crate) struct Node<'a> {
    pub(crate) now: Now<'a>,
    /// Who did something at exactly this place, oldest first.
    pub(crate) steps: Vec<Step>,
    pub(crate) children: Children<'a>,
}

#[derive(Clone, Copy, Default, PartialEq)]
pub(crate) enum Now<'a> {
    #[default]
    Nothing,
    Leaf(&'a Value),
    Object,
}

#[derive(Clone, Copy)]
pub(crate) struct Step {
    /// Its place among the rules that apply.
    pub(crate) rule: usize,
    pub(crate) did: Did,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Did {
    /// What was an object merged with it.
    AssignObject,
    /// Something that is no object took the place of what was there.
    SetLeaf,
    /// There was something to delete.
    Delete,
}

/// Assigns as [`assign`](crate::assign()) does, one rule after the other.
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
            Value::Null if node.now == Now::Nothing => continue,
            Value::Null => {
                node.clear();
                Did::Delete
            }
            Value::Object(values) => {
                node.now = Now::Object;
                assign(&mut node.children, values, rule);
                Did::AssignObject
            }
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                node.clear();
                node.now = Now::Leaf(value);
                Did::SetLeaf
            }
        };
        node.steps.push(Step { rule, did });
    }
}

impl Node<'_> {
    fn clear(&mut self) {
        if self.now == Now::Object {
            self.children.values_mut().for_each(Node::clear);
        }
        self.now = Now::Nothing;
    }

    /// All who ever set something here or below.
    pub(crate) fn setters(&self, into: &mut Vec<Step>) {
        let set = |step: &&Step| step.did != Did::Delete;
        into.extend(self.steps.iter().filter(set));
        for child in self.children.values() {
            child.setters(into);
        }
    }

    /// What ended everything within: what `above` did so, what deleted this, and leaves in its place.
    pub(crate) fn ends(&self, above: &[Step]) -> Vec<Step> {
        let own = self
            .steps
            .iter()
            .filter(|step| step.did != Did::AssignObject);
        let mut ends: Vec<Step> = above.iter().chain(own).copied().collect();
        ends.sort_by_key(|step| step.rule);
        ends
    }
}
