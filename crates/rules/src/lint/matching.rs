//! Finds rules that never apply, and the names and patterns that never match.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::attributes::Attributes;
use crate::conditions::{Conditions, Patterns};
use crate::problem::{did_you_mean, push_token};
use crate::rule::Rule;
use crate::set::RuleSet;

type Values<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// `groups` has the indices of the applying rules of each evaluation.
pub(super) fn find(
    set: &RuleSet,
    evaluations: &[Attributes],
    groups: &[Vec<usize>],
    findings: &mut Vec<(usize, Finding)>,
) {
    let mut values = Values::new();
    for attributes in evaluations {
        for (name, value) in attributes.iter() {
            values.entry(name).or_default().insert(value);
        }
    }
    let applied: BTreeSet<usize> = groups.iter().flatten().copied().collect();
    for (index, rule) in set.rules().iter().enumerate() {
        if !applied.contains(&index) {
            let rule_id = rule.id().to_owned();
            findings.push((index, Finding::NeverApplies { rule_id }));
        }
        let unmatched = unmatched_conditions(rule, &values).into_iter();
        findings.extend(unmatched.map(|finding| (index, finding)));
    }
}

fn unmatched_conditions(rule: &Rule, values: &Values<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unknown = BTreeSet::new();
    let in_list = matches!(rule.conditions(), Conditions::AnyOf(_));
    for (index, mapping) in rule.conditions().mappings().iter().enumerate() {
        for (name, patterns) in mapping.iter() {
            let mut path = "/conditions".to_owned();
            if in_list {
                push_token(&mut path, &index.to_string());
            }
            push_token(&mut path, name);
            match values.get(name) {
                Some(values) => unmatched_patterns(rule, &path, patterns, values, &mut findings),
                None if unknown.insert(name) => findings.push(Finding::UnknownName {
                    rule_id: rule.id().to_owned(),
                    path,
                    name: name.to_owned(),
                    hint: did_you_mean(name, values.keys().copied()),
                }),
                None => {}
            }
        }
    }
    findings
}

fn unmatched_patterns(
    rule: &Rule,
    path: &str,
    patterns: &Patterns,
    values: &BTreeSet<&str>,
    findings: &mut Vec<Finding>,
) {
    let in_list = matches!(patterns, Patterns::AnyOf(_));
    for (index, pattern) in patterns.as_slice().iter().enumerate() {
        if values.iter().any(|value| pattern.matches(value)) {
            continue;
        }
        let mut path = path.to_owned();
        if in_list {
            push_token(&mut path, &index.to_string());
        }
        findings.push(Finding::PatternMatchesNothing {
            rule_id: rule.id().to_owned(),
            path,
            pattern: pattern.as_str().to_owned(),
        });
    }
}
