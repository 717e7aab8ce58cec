//! What bounds a set of rules: accepted up to the limit, refused beyond it, at every size around it.

use rules::{Rule, RuleSet};
use serde_json::{Value, json};
use testing::sizes_around;

const MAX_RULES: usize = 2_000;
const MAX_MAPPINGS: usize = 64;
const MAX_PATTERNS: usize = 256;
const MAX_ALTERNATIVES_DEPTH: usize = 8;
const MAX_MAPPINGS_OF_SET: usize = 10_000;
const MAX_PATTERNS_OF_SET: usize = 50_000;
const MAX_GLOBS_OF_SET: usize = 2_000;
const MAX_DEPTH: usize = 32;
const MAX_NODES: usize = 10_000;

fn rule(number: usize, conditions: &Value, values: &Value) -> Value {
    json!({ "ruleId": format!("r{number}"), "conditions": conditions, "values": values })
}

fn with_conditions(conditions: &Value) -> Value {
    rule(0, conditions, &json!({}))
}

fn with_values(values: &Value) -> Value {
    rule(0, &json!(null), values)
}

/// As many patterns as that, each another.
fn patterns(count: usize, text: &str) -> Value {
    let each = (0..count).map(|number| format!("{text}{number}"));
    json!({ "x": each.collect::<Vec<_>>() })
}

/// Rules whose conditions have that many parts together, so many of them in each rule but the last.
fn spread(count: usize, each: usize, conditions: impl Fn(usize) -> Value) -> Value {
    let sizes = (0..count)
        .step_by(each)
        .map(|first| each.min(count - first));
    let rules = sizes.enumerate();
    rules
        .map(|(number, size)| rule(number, &conditions(size), &json!({})))
        .collect()
}

#[track_caller]
fn takes_a_rule(count: usize, limit: usize, rule: &Value) {
    let parsed = Rule::parse(rule);
    assert_eq!(
        parsed.is_ok(),
        count <= limit,
        "{count}: {:?}",
        parsed.err()
    );
}

#[track_caller]
fn takes_a_set(count: usize, limit: usize, rules: &Value) {
    let parsed = RuleSet::parse(rules);
    assert_eq!(
        parsed.is_ok(),
        count <= limit,
        "{count}: {:?}",
        parsed.err()
    );
}

#[test]
fn a_set_has_so_many_rules_and_no_more() {
    for count in sizes_around("rules::limits::MAX_RULES", MAX_RULES) {
        let rules = (0..count).map(|number| rule(number, &json!(null), &json!({})));
        takes_a_set(count, MAX_RULES, &rules.collect());
    }
}

#[test]
fn a_rule_has_so_many_mappings_and_no_more() {
    for count in sizes_around("rules::limits::MAX_MAPPINGS", MAX_MAPPINGS) {
        let conditions = Value::Array(vec![json!({}); count]);
        takes_a_rule(count, MAX_MAPPINGS, &with_conditions(&conditions));
    }
}

#[test]
fn a_condition_has_so_many_patterns_and_no_more() {
    for count in sizes_around("rules::limits::MAX_PATTERNS", MAX_PATTERNS) {
        takes_a_rule(count, MAX_PATTERNS, &with_conditions(&patterns(count, "a")));
    }
}

#[test]
fn alternatives_stand_so_deep_in_a_pattern_and_no_deeper() {
    let limit = MAX_ALTERNATIVES_DEPTH;
    for depth in sizes_around("rules::limits::MAX_ALTERNATIVES_DEPTH", limit) {
        let pattern = format!("{}b{}", "{a,".repeat(depth), "}".repeat(depth));
        let conditions = json!({ "x": pattern });
        takes_a_rule(depth, limit, &with_conditions(&conditions));
    }
}

#[test]
fn the_rules_of_a_set_have_so_many_mappings_together_and_no_more() {
    let limit = MAX_MAPPINGS_OF_SET;
    for count in sizes_around("rules::limits::MAX_MAPPINGS_OF_SET", limit) {
        let mappings = |size| Value::Array(vec![json!({}); size]);
        takes_a_set(count, limit, &spread(count, MAX_MAPPINGS, mappings));
    }
}

#[test]
fn the_rules_of_a_set_have_so_many_patterns_together_and_no_more() {
    let limit = MAX_PATTERNS_OF_SET;
    for count in sizes_around("rules::limits::MAX_PATTERNS_OF_SET", limit) {
        let rules = spread(count, MAX_PATTERNS, |size| patterns(size, "a"));
        takes_a_set(count, limit, &rules);
    }
}

#[test]
fn the_rules_of_a_set_have_so_many_globs_together_and_no_more() {
    let limit = MAX_GLOBS_OF_SET;
    for count in sizes_around("rules::limits::MAX_GLOBS_OF_SET", limit) {
        let rules = spread(count, MAX_PATTERNS, |size| patterns(size, "?"));
        takes_a_set(count, limit, &rules);
    }
}

#[test]
fn values_are_so_deep_and_no_deeper() {
    for depth in sizes_around("rules::limits::MAX_DEPTH", MAX_DEPTH) {
        // The values of a rule are an object, so there is one level at least.
        let within = (1..depth).fold(json!(1), |value, _| json!({ "a": value }));
        takes_a_rule(depth, MAX_DEPTH, &with_values(&json!({ "a": within })));
    }
}

#[test]
fn a_rule_has_so_many_values_and_no_more() {
    for count in sizes_around("rules::limits::MAX_NODES", MAX_NODES) {
        // The list itself is one of them.
        let list = vec![json!(1); count.saturating_sub(1)];
        takes_a_rule(count, MAX_NODES, &with_values(&json!({ "a": list })));
    }
}
