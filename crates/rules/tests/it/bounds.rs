//! The limits of rule sets: accepted up to the limit, refused above it, at every size around it.

use fleetwright_rules::{Attributes, Evaluator, Rule, RuleSet, Sets};
use serde_json::{Value, json};
use testing::sizes_around;

const MAX_RULES: usize = 2_000;
const MAX_MAPPINGS: usize = 64;
const MAX_PATTERNS: usize = 256;
const MAX_ALTERNATIVES_DEPTH: usize = 8;
const MAX_MAPPINGS_OF_SET: usize = 10_000;
const MAX_PATTERNS_OF_SET: usize = 50_000;
const MAX_GLOBS_OF_SET: usize = 2_000;
const MAX_VALUE_DEPTH: usize = 32;
const MAX_VALUES: usize = 10_000;
const MAX_SETS: usize = 500;
const MAX_PATTERNS_OF_NAMED_SET: usize = 2_000;
const MAX_ELEMENTS: usize = 256;
const MAX_ELEMENTS_OF_SET: usize = 2_000;
const MAX_REFERENCE_DEPTH: usize = 16;
const MAX_REFERENCES: usize = 10_000;
const MAX_RESOLVED_BYTES: usize = 4 * 1024 * 1024;

fn rule(number: usize, conditions: &Value, values: &Value) -> Value {
    json!({ "ruleId": format!("r{number}"), "conditions": conditions, "values": values })
}

fn with_conditions(conditions: &Value) -> Value {
    rule(0, conditions, &json!({}))
}

fn with_values(values: &Value) -> Value {
    rule(0, &json!(null), values)
}

/// This many different patterns.
fn patterns(count: usize, text: &str) -> Value {
    let each = (0..count).map(|number| format!("{text}{number}"));
    json!({ "x": each.collect::<Vec<_>>() })
}

/// Rules whose conditions have `count` parts in total, with `each` in every rule but the last.
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
fn the_rules_of_a_set_are_limited() {
    for count in sizes_around("rules::limits::MAX_RULES", MAX_RULES) {
        let rules = (0..count).map(|number| rule(number, &json!(null), &json!({})));
        takes_a_set(count, MAX_RULES, &rules.collect());
    }
}

#[test]
fn the_mappings_of_a_rule_are_limited() {
    for count in sizes_around("rules::limits::MAX_MAPPINGS", MAX_MAPPINGS) {
        let conditions = Value::Array(vec![json!({}); count]);
        takes_a_rule(count, MAX_MAPPINGS, &with_conditions(&conditions));
    }
}

#[test]
fn the_patterns_of_a_condition_are_limited() {
    for count in sizes_around("rules::limits::MAX_PATTERNS", MAX_PATTERNS) {
        takes_a_rule(count, MAX_PATTERNS, &with_conditions(&patterns(count, "a")));
    }
}

#[test]
fn the_depth_of_alternatives_is_limited() {
    let limit = MAX_ALTERNATIVES_DEPTH;
    for depth in sizes_around("rules::limits::MAX_ALTERNATIVES_DEPTH", limit) {
        let pattern = format!("{}b{}", "{a,".repeat(depth), "}".repeat(depth));
        let conditions = json!({ "x": pattern });
        takes_a_rule(depth, limit, &with_conditions(&conditions));
    }
}

#[test]
fn the_mappings_of_a_set_are_limited() {
    let limit = MAX_MAPPINGS_OF_SET;
    for count in sizes_around("rules::limits::MAX_MAPPINGS_OF_SET", limit) {
        let mappings = |size| Value::Array(vec![json!({}); size]);
        takes_a_set(count, limit, &spread(count, MAX_MAPPINGS, mappings));
    }
}

#[test]
fn the_patterns_of_a_set_are_limited() {
    let limit = MAX_PATTERNS_OF_SET;
    for count in sizes_around("rules::limits::MAX_PATTERNS_OF_SET", limit) {
        let rules = spread(count, MAX_PATTERNS, |size| patterns(size, "a"));
        takes_a_set(count, limit, &rules);
    }
}

#[test]
fn the_globs_of_a_set_are_limited() {
    let limit = MAX_GLOBS_OF_SET;
    for count in sizes_around("rules::limits::MAX_GLOBS_OF_SET", limit) {
        let rules = spread(count, MAX_PATTERNS, |size| patterns(size, "?"));
        takes_a_set(count, limit, &rules);
    }
}

#[test]
fn the_depth_of_values_is_limited() {
    for depth in sizes_around("rules::limits::MAX_VALUE_DEPTH", MAX_VALUE_DEPTH) {
        // The values of a rule are an object, so the depth is at least one.
        let within = (1..depth).fold(json!(1), |value, _| json!({ "a": value }));
        takes_a_rule(
            depth,
            MAX_VALUE_DEPTH,
            &with_values(&json!({ "a": within })),
        );
    }
}

#[test]
fn the_values_of_a_rule_are_limited() {
    for count in sizes_around("rules::limits::MAX_VALUES", MAX_VALUES) {
        // The list itself counts as a value.
        let list = vec![json!(1); count.saturating_sub(1)];
        takes_a_rule(count, MAX_VALUES, &with_values(&json!({ "a": list })));
    }
}

#[test]
fn named_sets_and_their_patterns_are_limited() {
    let takes = |count: usize, limit: usize, sets: &Value| {
        assert_eq!(Sets::parse(sets).is_ok(), count <= limit, "{count}");
    };
    for count in sizes_around("rules::limits::MAX_SETS", MAX_SETS) {
        let sets = (0..count).map(|number| (format!("s{number}"), json!([])));
        takes(count, MAX_SETS, &Value::Object(sets.collect()));
    }
    let limit = MAX_PATTERNS_OF_NAMED_SET;
    for count in sizes_around("rules::limits::MAX_PATTERNS_OF_NAMED_SET", limit) {
        takes(count, limit, &json!({ "s": vec!["a"; count] }));
    }
}

fn with_elements(number: usize, count: usize) -> Value {
    let paths = (0..count).map(|position| (format!("/a/{position}"), json!(1)));
    let elements = Value::Object(paths.collect());
    json!({ "ruleId": format!("r{number}"), "values": {}, "elements": elements })
}

#[test]
fn changes_of_elements_are_limited() {
    for count in sizes_around("rules::limits::MAX_ELEMENTS", MAX_ELEMENTS) {
        takes_a_rule(count, MAX_ELEMENTS, &with_elements(0, count));
    }
    let limit = MAX_ELEMENTS_OF_SET;
    for count in sizes_around("rules::limits::MAX_ELEMENTS_OF_SET", limit) {
        let sizes = (0..count)
            .step_by(MAX_ELEMENTS)
            .map(|first| MAX_ELEMENTS.min(count - first));
        let rules = sizes
            .enumerate()
            .map(|(number, size)| with_elements(number, size));
        takes_a_set(count, limit, &rules.collect());
    }
}

#[track_caller]
fn resolves(count: usize, limit: usize, values: &Value) {
    let rules = json!([{ "ruleId": "r", "references": true, "values": values }]);
    let evaluator = Evaluator::new(&RuleSet::parse(&rules).unwrap());
    let result = evaluator.evaluate(&Attributes::nothing());
    assert_eq!(
        result.errors.is_empty(),
        count <= limit,
        "{count}: {:?}",
        result.errors.first()
    );
}

#[test]
fn chains_of_references_are_limited() {
    let limit = MAX_REFERENCE_DEPTH;
    for count in sizes_around("rules::limits::MAX_REFERENCE_DEPTH", limit) {
        let links = (0..count).map(|at| (format!("v{at}"), json!(format!("${{/v{}}}", at + 1))));
        let end = (format!("v{count}"), json!("end"));
        resolves(count, limit, &Value::Object(links.chain([end]).collect()));
    }
}

#[test]
fn the_references_of_an_evaluation_are_limited() {
    for count in sizes_around("rules::limits::MAX_REFERENCES", MAX_REFERENCES) {
        let text = "${/x}".repeat(count);
        resolves(count, MAX_REFERENCES, &json!({ "x": 1, "y": text }));
    }
}

#[test]
fn the_bytes_of_references_are_limited() {
    let limit = MAX_RESOLVED_BYTES;
    for count in [0, limit / 2, limit - 4_000, limit, limit + 4_000, 2 * limit] {
        // The text is counted as a value and as a part of the result.
        let text = "x".repeat(count / 2 / 1_000);
        let values = json!({ "x": text, "y": "${/x}".repeat(1_000) });
        resolves(2 * 1_000 * text.len(), MAX_RESOLVED_BYTES, &values);
    }
}
