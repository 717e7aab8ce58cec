//! Finds rules that never apply, and the names and patterns that never match.

use std::collections::{BTreeMap, BTreeSet};

use super::{Finding, Obstacle};
use crate::attributes::Attributes;
use crate::conditions::Conditions;
use crate::patterns::{Alternative, Patterns};
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
    unmatched_sets(set, &values, findings);
    for (index, rule) in set.rules().iter().enumerate() {
        if !applied.contains(&index) {
            let (rule_id, obstacles) = (rule.id().to_owned(), obstacles(rule, evaluations));
            findings.push((index, Finding::NeverApplies { rule_id, obstacles }));
        }
        let unmatched = unmatched_conditions(rule, &values).into_iter();
        findings.extend(unmatched.map(|finding| (index, finding)));
    }
}

/// Finds patterns that match none of the known values of their condition, and rules that never
/// apply because of them.
pub(super) fn find_by_values(
    set: &RuleSet,
    known: &Values<'_>,
    findings: &mut Vec<(usize, Finding)>,
) {
    for (index, rule) in set.rules().iter().enumerate() {
        let mappings = rule.conditions().mappings();
        let never = mappings.iter().filter(|mapping| {
            mapping.iter().any(|(name, patterns)| {
                let values = known.get(name);
                values.is_some_and(|values| !values.iter().any(|it| patterns.match_value(it)))
            })
        });
        if !mappings.is_empty() && never.count() == mappings.len() {
            let (rule_id, obstacles) = (rule.id().to_owned(), Vec::new());
            findings.push((index, Finding::NeverApplies { rule_id, obstacles }));
        }
        for (at, mapping) in mappings.iter().enumerate() {
            for (name, patterns) in mapping.iter() {
                if let Some(values) = known.get(name) {
                    let path = condition_path(rule, at, name);
                    let mut found = Vec::new();
                    unmatched_patterns(rule, &path, patterns, values, &mut found);
                    findings.extend(found.into_iter().map(|finding| (index, finding)));
                }
            }
        }
    }
}

/// The conditions of a rule that never applies without which it would: those that alone did not
/// match in an evaluation.
fn obstacles(rule: &Rule, evaluations: &[Attributes]) -> Vec<Obstacle> {
    let mut obstacles = Vec::new();
    for (index, mapping) in rule.conditions().mappings().iter().enumerate() {
        let mut found: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for attributes in evaluations {
            let mut failing = mapping.iter().filter(|(name, patterns)| {
                let value = attributes.get(name);
                value.is_none_or(|value| !patterns.match_value(value))
            });
            let first = failing.next();
            if let (Some((name, _)), None) = (first, failing.next())
                && let Some(value) = attributes.get(name)
            {
                found.entry(name).or_default().insert(value);
            }
        }
        for (name, values) in found {
            let values = values.into_iter().map(str::to_owned).collect();
            let path = condition_path(rule, index, name);
            obstacles.push(Obstacle { path, values });
        }
    }
    obstacles
}

/// A condition as a JSON pointer inside its rule.
fn condition_path(rule: &Rule, mapping: usize, name: &str) -> String {
    let mut path = "/conditions".to_owned();
    if matches!(rule.conditions(), Conditions::AnyOf(_)) {
        push_token(&mut path, &mapping.to_string());
    }
    push_token(&mut path, name);
    path
}

fn unmatched_conditions(rule: &Rule, values: &Values<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut unknown = BTreeSet::new();
    for (index, mapping) in rule.conditions().mappings().iter().enumerate() {
        for (name, patterns) in mapping.iter() {
            let path = condition_path(rule, index, name);
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
    for (index, alternative) in patterns.as_slice().iter().enumerate() {
        if values.iter().any(|value| alternative.matches(value)) {
            continue;
        }
        let mut path = path.to_owned();
        for token in patterns.tokens(index) {
            push_token(&mut path, &token);
        }
        findings.push(Finding::PatternMatchesNothing {
            rule_id: rule.id().to_owned(),
            path,
            pattern: match alternative {
                Alternative::Pattern(pattern) => pattern.as_str().to_owned(),
                Alternative::Set(set) => format!("set {}", set.name()),
            },
        });
    }
}

/// The patterns of named sets that match nothing under any condition with this set.
fn unmatched_sets(set: &RuleSet, values: &Values<'_>, findings: &mut Vec<(usize, Finding)>) {
    let mut conditions: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let rules = set.rules().iter();
    for mapping in rules.flat_map(|rule| rule.conditions().mappings()) {
        for (name, patterns) in mapping.iter() {
            for used in patterns.set_names() {
                conditions.entry(used).or_default().insert(name);
            }
        }
    }
    for (name, named) in set.sets().iter() {
        let Some(conditions) = conditions.get(name) else {
            continue;
        };
        for (index, pattern) in named.patterns().iter().enumerate() {
            let values = conditions.iter().filter_map(|name| values.get(name));
            if values.flatten().any(|value| pattern.matches(value)) {
                continue;
            }
            let mut path = String::new();
            push_token(&mut path, name);
            push_token(&mut path, &index.to_string());
            let finding = Finding::SetPatternMatchesNothing {
                path,
                pattern: pattern.as_str().to_owned(),
            };
            findings.push((set.rules().len(), finding));
        }
    }
}
