//! Random rule sets and attributes, made from few names so that rules interact.

use proptest::prelude::*;
use serde_json::{Value, json};

/// A value that a rule assigns, with few different keys.
pub(crate) fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        3 => Just(Value::Null),
        2 => (0..3).prop_map(|number| json!(number)),
        2 => "[xy]".prop_map(Value::String),
        1 => any::<bool>().prop_map(Value::Bool),
        1 => Just(json!([1, null, { "a": null }])),
        1 => Just(json!([])),
        1 => Just(json!({})),
    ];
    leaf.prop_recursive(3, 12, 3, |inner| object(inner).boxed())
}

pub(crate) fn object(value: impl Strategy<Value = Value>) -> impl Strategy<Value = Value> {
    let pairs = prop::collection::vec(("[abc/~]", value), 0..4);
    pairs.prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

pub(crate) fn name() -> impl Strategy<Value = String> {
    prop::sample::select(vec!["provider", "region", "zone"]).prop_map(str::to_owned)
}

fn pattern() -> impl Strategy<Value = Value> {
    prop_oneof![
        4 => "[ab]{1,2}",
        2 => "[ab*]{0,3}",
        2 => "[ab?]{1,2}",
        1 => Just("{a,bb}*".to_owned()),
        1 => Just("{,a}b".to_owned()),
    ]
    .prop_map(Value::String)
}

fn patterns() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => pattern(),
        1 => prop::collection::vec(pattern(), 0..3).prop_map(Value::Array),
    ]
}

fn mapping() -> impl Strategy<Value = Value> {
    let pairs = prop::collection::vec((name(), patterns()), 0..3);
    pairs.prop_map(|pairs| Value::Object(pairs.into_iter().collect()))
}

pub(crate) fn conditions() -> impl Strategy<Value = Value> {
    prop_oneof![
        2 => Just(Value::Null),
        3 => mapping(),
        2 => prop::collection::vec(mapping(), 0..4).prop_map(Value::Array),
    ]
}

pub(crate) fn rule() -> impl Strategy<Value = Value> {
    let parts = (conditions(), object(value()), "[a-z ]{0,8}");
    parts.prop_map(|(conditions, values, description)| {
        json!({
            "ruleId": "",
            "description": description,
            "conditions": conditions,
            "values": values,
        })
    })
}

/// Sometimes many rules, so that bit sets need more than one word.
pub(crate) fn rules() -> impl Strategy<Value = Value> {
    at_least(0)
}

pub(crate) fn at_least(n_rules: usize) -> impl Strategy<Value = Value> {
    let lengths = prop_oneof![29 => n_rules..8, 1 => 64..80_usize];
    let list = lengths.prop_flat_map(|length| prop::collection::vec(rule(), length));
    list.prop_map(|mut rules| {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule["ruleId"] = json!(format!("r{index}"));
        }
        Value::Array(rules)
    })
}

pub(crate) fn attributes() -> impl Strategy<Value = Vec<(String, String)>> {
    let pairs = prop::collection::btree_map(name(), "[ab]{0,3}", 0..4);
    pairs.prop_map(|pairs| pairs.into_iter().collect())
}
