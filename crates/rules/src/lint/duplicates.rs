//! Finds empty rules and duplicate rules.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::Finding;
use crate::conditions::{Conditions, Mapping};
use crate::rule::Rule;
use crate::set::RuleSet;

pub(super) fn find(set: &RuleSet, findings: &mut Vec<(usize, Finding)>) {
    let rules = set.rules();
    for (index, rule) in rules.iter().enumerate() {
        if rule.values().is_empty() {
            let rule_id = rule.id().to_owned();
            findings.push((index, Finding::Empty { rule_id }));
        }
    }
    for same in with_same_values(rules) {
        for together in with_nothing_between(rules, &same) {
            if same_conditions(rules, together).len() > 1 {
                let rule_ids = ids(rules, together);
                findings.push((together[0], Finding::SameValues { rule_ids }));
            }
        }
        for again in same_conditions(rules, &same)
            .into_iter()
            .filter(|again| again.len() > 1)
        {
            let rule_ids = ids(rules, &again);
            findings.push((again[0], Finding::Repeated { rule_ids }));
        }
    }
    let indices: Vec<usize> = (0..rules.len()).collect();
    let together = indices.chunk_by(|left, right| {
        are_equivalent(rules[*left].conditions(), rules[*right].conditions())
    });
    for run in together.filter(|run| run.len() > 1) {
        let rule_ids = ids(rules, run);
        findings.push((run[0], Finding::CouldBeOne { rule_ids }));
    }
}

fn ids(rules: &[Rule], indices: &[usize]) -> Vec<String> {
    let ids = indices.iter().map(|index| rules[*index].id().to_owned());
    ids.collect()
}

/// Groups of rules with equal values. Rules without values and rules with unique values are left
/// out.
fn with_same_values(rules: &[Rule]) -> Vec<Vec<usize>> {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        if !rule.values().is_empty() {
            // Their keys are sorted, so equal values have equal texts.
            let values = Value::Object(rule.values().clone()).to_string();
            groups.entry(values).or_default().push(index);
        }
    }
    let groups = groups.into_values();
    groups.filter(|group| group.len() > 1).collect()
}

/// Splits a group where a rule between two members assigns to the same places: joined in one
/// position, the members could not keep their effect both before and after that rule.
fn with_nothing_between<'a>(
    rules: &'a [Rule],
    group: &'a [usize],
) -> impl Iterator<Item = &'a [usize]> {
    group.chunk_by(|left, right| {
        let mut between = rules[left + 1..*right].iter();
        !between.any(|rule| overlap(rule.values(), rules[*left].values()))
    })
}

/// Whether both assign to the same place, or to places of which one contains the other.
fn overlap(left: &Map<String, Value>, right: &Map<String, Value>) -> bool {
    left.iter().any(|(key, left)| match (left, right.get(key)) {
        (_, None) => false,
        // An empty object replaces a value that is not an object.
        (Value::Object(left), Some(Value::Object(right))) => {
            left.is_empty() || right.is_empty() || overlap(left, right)
        }
        (_, Some(_)) => true,
    })
}

/// Splits a group into rules with equivalent conditions.
fn same_conditions(rules: &[Rule], group: &[usize]) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for index in group {
        let conditions = rules[*index].conditions();
        let same = |part: &&mut Vec<usize>| are_equivalent(rules[part[0]].conditions(), conditions);
        match parts.iter_mut().find(same) {
            Some(part) => part.push(*index),
            None => parts.push(vec![*index]),
        }
    }
    parts
}

/// Whether they differ at most in how a single mapping or pattern is written.
fn are_equivalent(left: &Conditions, right: &Conditions) -> bool {
    let always = |conditions: &Conditions| *conditions == Conditions::Always;
    let (left_mappings, right_mappings) = (left.mappings(), right.mappings());
    let equal = |(left, right): (&Mapping, &Mapping)| {
        left.iter()
            .map(|(name, patterns)| (name, patterns.as_slice()))
            .eq(right
                .iter()
                .map(|(name, patterns)| (name, patterns.as_slice())))
    };
    always(left) == always(right)
        && left_mappings.len() == right_mappings.len()
        && left_mappings.iter().zip(right_mappings).all(equal)
}
