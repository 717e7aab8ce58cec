//! Which rules apply in which evaluations, and whether they set the same values.

use std::collections::BTreeMap;

use domain::configuration::Compilation;
use serde_json::Value;

use super::bits::Bits;
use super::leaves::{above, leaves_and_deletions};

/// For each rule, the evaluations in which it applies and the pointers that it changes.
pub(super) struct Applications {
    evaluations: Vec<Bits>,
    pointers: Vec<Vec<String>>,
}

impl Applications {
    /// Of the rules of this compilation, which may have other ids now.
    pub(super) fn new(rules: &[Value], compilation: &Compilation) -> Self {
        let set = compilation.evaluator().set();
        let numbers: BTreeMap<&str, usize> =
            set.rules().iter().map(|rule| rule.id()).zip(0..).collect();
        let attributes = compilation.evaluated_attributes();
        let mut evaluations = vec![Bits::none(attributes.len()); rules.len()];
        for (evaluation, attributes) in attributes.iter().enumerate() {
            for rule in compilation.evaluator().applying(attributes) {
                evaluations[numbers[rule.id()]].set(evaluation);
            }
        }
        Self {
            evaluations,
            pointers: rules.iter().map(changed_pointers).collect(),
        }
    }

    /// Whether the order of two rules matters: both apply somewhere and change the same value.
    pub(super) fn conflict(&self, left: usize, right: usize) -> bool {
        self.evaluations[left].meets(&self.evaluations[right]) && self.overlap(left, right)
    }

    /// Whether both change the same value, or one changes a value inside a value of the other.
    pub(super) fn overlap(&self, left: usize, right: usize) -> bool {
        let mut pairs = self.pointers[left]
            .iter()
            .flat_map(|left| self.pointers[right].iter().map(move |right| (left, right)));
        pairs.any(|(left, right)| contains(left, right) || contains(right, left))
    }

    /// After the second rule became a part of the first.
    pub(super) fn unite(&mut self, first: usize, second: usize) {
        let pointers = std::mem::take(&mut self.pointers[second]);
        self.pointers[first].extend(pointers);
    }
}

/// Whether the outer pointer is that of the inner value, or of one around it.
fn contains(outer: &str, inner: &str) -> bool {
    let rest = inner.strip_prefix(outer);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// The pointers of the values and of the lists that a rule changes.
fn changed_pointers(rule: &Value) -> Vec<String> {
    let values = rule["values"].as_object();
    let leaves = values.map(leaves_and_deletions).unwrap_or_default();
    let lists = rule["elements"].as_object().into_iter().flatten();
    let lists = lists.map(|(path, _)| list_of(path).to_owned());
    let pointers = leaves.into_iter().map(|(pointer, _)| pointer);
    pointers.chain(lists).collect()
}

/// The pointer to the list in the path of an element.
fn list_of(path: &str) -> &str {
    let is_step = |step: &str| {
        step == "-" || step.starts_with('[') || step.bytes().all(|byte| byte.is_ascii_digit())
    };
    let outer = above(path).chain([path]);
    let before = outer.take_while(|pointer| {
        let (_, last) = pointer.rsplit_once('/').unwrap_or_default();
        !is_step(last)
    });
    before.last().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_of_an_element_ends_before_its_first_step() {
        for (path, list) in [
            ("/g/disks/[boot=true]/size", "/g/disks"),
            ("/g/disks/0", "/g/disks"),
            ("/g/tags/-", "/g/tags"),
            ("/g/places/[a~1b=x]/0/z", "/g/places"),
        ] {
            assert_eq!(list_of(path), list);
        }
    }
}
