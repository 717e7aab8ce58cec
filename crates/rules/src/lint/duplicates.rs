//! Finds empty rules and duplicate rules.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::Finding;
use crate::conditions::{Conditions, Mapping};
use crate::rule::Rule;
use crate::set::RuleSet;

pub(super) fn find(set: &RuleSet, findings: &mut Vec<(usize, Finding)>) {
    let rules = set.rules();
    for (index, rule) in rules.iter().enumerate() {
        if rule.values().is_empty() && rule.elements().is_empty() {
            let rule_id = rule.id().to_owned();
            findings.push((index, Finding::Empty { rule_id }));
        }
        if rule.has_references() && !rule.has_templates() {
            let rule_id = rule.id().to_owned();
            findings.push((index, Finding::NoReferences { rule_id }));
        }
    }
    let conditions = rules.iter().flat_map(|rule| rule.conditions().set_names());
    let used: BTreeSet<&str> = conditions.map(|(_, name)| name).collect();
    for (name, _) in set.sets().iter().filter(|(name, _)| !used.contains(name)) {
        let name = name.to_owned();
        findings.push((rules.len(), Finding::UnusedSet { name }));
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
        let (left, right) = (&rules[*left], &rules[*right]);
        // Joined, the values of both would come before the elements of both.
        let is_plain = left.elements().is_empty() && right.elements().is_empty();
        is_plain
            && left.has_references() == right.has_references()
            && are_equivalent(left.conditions(), right.conditions())
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
    let mut groups: BTreeMap<(String, String, bool), Vec<usize>> = BTreeMap::new();
    for (index, rule) in rules.iter().enumerate() {
        if !rule.values().is_empty() || !rule.elements().is_empty() {
            // Their keys are sorted, so equal values have equal texts.
            let values = Value::Object(rule.values().clone()).to_string();
            let elements = Value::Object(rule.elements().source().clone()).to_string();
            let values = (values, elements, rule.has_references());
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
        let own = &rules[*left];
        !between.any(|rule| {
            overlap(rule.values(), own.values())
                || has_elements_in(rule, own)
                || has_elements_in(own, rule)
        })
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

/// Whether a rule changes elements of lists that the other one assigns or changes, or that are
/// inside a value that the other one replaces.
fn has_elements_in(rule: &Rule, other: &Rule) -> bool {
    rule.elements().changes().iter().any(|change| {
        let mut object = other.values();
        let assigned = change.keys().iter().find_map(|key| match object.get(key) {
            None => Some(false),
            Some(Value::Object(next)) if !next.is_empty() => {
                object = next;
                None
            }
            Some(_) => Some(true),
        });
        let mut others = other.elements().changes().iter();
        assigned.unwrap_or(true) || others.any(|other| other.keys() == change.keys())
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
            .map(|(name, patterns)| (name, patterns.is_negated(), patterns.as_slice()))
            .eq(right
                .iter()
                .map(|(name, patterns)| (name, patterns.is_negated(), patterns.as_slice())))
    };
    always(left) == always(right)
        && left_mappings.len() == right_mappings.len()
        && left_mappings.iter().zip(right_mappings).all(equal)
}
