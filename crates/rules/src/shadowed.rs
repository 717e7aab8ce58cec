//! Finds values that a later rule replaces wherever their rule applies, by the conditions of both
//! alone: no evaluation has to be known.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use crate::conditions::{Conditions, Mapping};
use crate::pattern::Pattern;
use crate::patterns::{Alternative, Patterns};
use crate::problem::push_token;
use crate::rule::Rule;
use crate::set::RuleSet;

/// Characters with a meaning in patterns.
const SPECIAL: [char; 5] = ['*', '?', '[', '{', '\\'];

/// The values of a rule that later rules replace.
pub(super) struct Shadowed {
    pub(super) rule: usize,
    pub(super) pointers: Vec<String>,
    /// The later rules.
    pub(super) by: Vec<usize>,
    /// Whether the rule has no other values.
    pub(super) is_complete: bool,
}

pub(super) fn find(set: &RuleSet) -> Vec<Shadowed> {
    let mut found = Vec::new();
    let rules = set.rules();
    for (index, rule) in rules.iter().enumerate() {
        let later = rules.iter().enumerate().skip(index + 1);
        let later = later.filter(|(_, other)| implies(rule.conditions(), other.conditions()));
        let later: Vec<_> = later.collect();
        // Changes of elements need the lists of earlier rules.
        let changes_elements = |rule: &Rule| !rule.elements().is_empty();
        let is_needed = rules[index..].iter().any(changes_elements);
        if later.is_empty() || rule.values().is_empty() || is_needed {
            continue;
        }
        let (mut pointers, mut by, mut n_leaves) = (Vec::new(), BTreeSet::new(), 0_usize);
        for_each_leaf(rule.values(), &mut Vec::new(), &mut |path, value| {
            n_leaves += 1;
            let replacing = later
                .iter()
                .find(|(_, other)| replaces(other.values(), path));
            if let (Some((other, _)), false) = (replacing, value.is_object()) {
                by.insert(*other);
                pointers.push(pointer(path));
            }
        });
        if !pointers.is_empty() {
            found.push(Shadowed {
                rule: index,
                is_complete: pointers.len() == n_leaves,
                pointers,
                by: by.into_iter().collect(),
            });
        }
    }
    found
}

/// Whether a rule with the second conditions applies wherever one with the first does.
fn implies(first: &Conditions, second: &Conditions) -> bool {
    if *second == Conditions::Always {
        return true;
    }
    let includes = |mapping: &Mapping| {
        let mut others = second.mappings().iter();
        others.any(|other| {
            other.iter().all(|(name, patterns)| {
                let narrower = mapping.get(name);
                narrower.is_some_and(|narrower| covers(patterns, narrower))
            })
        })
    };
    match first {
        Conditions::Always => includes(&Mapping::default()),
        Conditions::All(_) | Conditions::AnyOf(_) => first.mappings().iter().all(includes),
    }
}

/// Whether the patterns match all values that the narrower ones match.
fn covers(patterns: &Patterns, narrower: &Patterns) -> bool {
    // The values that a negation matches have no pattern of their own.
    if patterns.is_negated() || narrower.is_negated() {
        return patterns == narrower;
    }
    let mut narrower = narrower.as_slice().iter().flat_map(Alternative::patterns);
    narrower.all(|narrow| {
        let is_literal = !narrow.as_str().contains(SPECIAL);
        let covers = |pattern: &Pattern| {
            pattern.as_str() == "*"
                || pattern.as_str() == narrow.as_str()
                || (is_literal && pattern.matches(narrow.as_str()))
        };
        let mut patterns = patterns.as_slice().iter().flat_map(Alternative::patterns);
        patterns.any(covers)
    })
}

/// Whether these values replace the value at the path, or replace or delete an object around it. If
/// an object merges with it, or it alone is deleted, it may have had an effect: it ended an older
/// object, or made the objects around it.
fn replaces(values: &Map<String, Value>, path: &[&str]) -> bool {
    let mut object = values;
    for (depth, token) in path.iter().enumerate() {
        match object.get(*token) {
            None => return false,
            Some(Value::Object(next)) => object = next,
            Some(Value::Null) => return depth + 1 < path.len(),
            Some(_) => return true,
        }
    }
    false
}

fn for_each_leaf<'a>(
    values: &'a Map<String, Value>,
    path: &mut Vec<&'a str>,
    visit: &mut impl FnMut(&[&'a str], &'a Value),
) {
    for (key, value) in values {
        path.push(key);
        match value.as_object() {
            Some(values) if !values.is_empty() => for_each_leaf(values, path, visit),
            Some(_) | None => visit(path, value),
        }
        path.pop();
    }
}

fn pointer(path: &[&str]) -> String {
    let mut pointer = String::new();
    for token in path {
        push_token(&mut pointer, token);
    }
    pointer
}
