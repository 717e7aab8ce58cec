//! Rules that say nothing, and rules that say the same.

use std::collections::HashMap;

use super::Finding;
use crate::conditions::{Conditions, Mapping};
use crate::fingerprint::Digest;
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
        let rule_ids = ids(rules, &same);
        let repeated = same_conditions(rules, &same);
        if repeated.len() > 1 {
            findings.push((same[0], Finding::SameValues { rule_ids }));
        }
        for again in repeated.into_iter().filter(|again| again.len() > 1) {
            let rule_ids = ids(rules, &again);
            findings.push((again[0], Finding::Repeated { rule_ids }));
        }
    }
    let indices: Vec<usize> = (0..rules.len()).collect();
    let together = indices.chunk_by(|left, right| {
        mean_the_same(rules[*left].conditions(), rules[*right].conditions())
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

/// The rules by equal values, without those that have none, and without values that only one rule has.
fn with_same_values(rules: &[Rule]) -> Vec<Vec<usize>> {
    let mut groups: HashMap<u128, Vec<Vec<usize>>> = HashMap::new();
    for (index, rule) in rules.iter().enumerate() {
        if rule.values().is_empty() {
            continue;
        }
        let alike = groups.entry(Digest::of(rule.values()).value()).or_default();
        let equal = |group: &&mut Vec<usize>| rules[group[0]].values() == rule.values();
        match alike.iter_mut().find(equal) {
            Some(group) => group.push(index),
            None => alike.push(vec![index]),
        }
    }
    let groups = groups.into_values().flatten();
    groups.filter(|group| group.len() > 1).collect()
}

/// Splits a group by what the conditions mean.
fn same_conditions(rules: &[Rule], group: &[usize]) -> Vec<Vec<usize>> {
    let mut parts: Vec<Vec<usize>> = Vec::new();
    for index in group {
        let conditions = rules[*index].conditions();
        let same = |part: &&mut Vec<usize>| mean_the_same(rules[part[0]].conditions(), conditions);
        match parts.iter_mut().find(same) {
            Some(part) => part.push(*index),
            None => parts.push(vec![*index]),
        }
    }
    parts
}

/// Whether they differ at most in how a single mapping or pattern is written.
fn mean_the_same(left: &Conditions, right: &Conditions) -> bool {
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
