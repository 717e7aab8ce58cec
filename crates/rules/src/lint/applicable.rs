//! Rules that never apply, and the names and patterns because of which they do not.

use std::collections::{BTreeMap, BTreeSet};

use super::Finding;
use crate::conditions::{Conditions, Patterns};
use crate::presented::Presented;
use crate::problem::{did_you_mean, push_token};
use crate::rule::Rule;
use crate::set::RuleSet;

type Values<'a> = BTreeMap<&'a str, BTreeSet<&'a str>>;

/// `groups` has the indices of the rules that apply, for all presentations.
pub(super) fn find(
    set: &RuleSet,
    presentations: &[Presented],
    groups: &[Vec<usize>],
    findings: &mut Vec<(usize, Finding)>,
) {
    let mut values = Values::new();
    for presented in presentations {
        for (name, value) in presented.iter() {
            values.entry(name).or_default().insert(value);
        }
    }
    let ever: BTreeSet<usize> = groups.iter().flatten().copied().collect();
    for (index, rule) in set.rules().iter().enumerate() {
        if !ever.contains(&index) {
            let rule_id = rule.id().to_owned();
            findings.push((index, Finding::NeverApplies { rule_id }));
        }
        let useless = useless_conditions(rule, &values).into_iter();
        findings.extend(useless.map(|finding| (index, finding)));
    }
}

fn useless_conditions(rule: &Rule, values: &Values<'_>) -> Vec<Finding> {
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
                Some(values) => useless_patterns(rule, &path, patterns, values, &mut findings),
                None if unknown.insert(name) => findings.push(Finding::NameNotPresented {
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

fn useless_patterns(
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
