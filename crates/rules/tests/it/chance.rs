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

/// A text with references, escapes and other characters.
pub(crate) fn template() -> impl Strategy<Value = String> {
    let part = prop::sample::select(vec![
        "${region}",
        "${zone}",
        "${/a}",
        "${/b}",
        "${/c/a}",
        "${/a/0}",
        "${/a/0/k}",
        "$${a}",
        "$",
        "x",
        "}",
    ]);
    prop::collection::vec(part, 1..3).prop_map(|parts| parts.concat())
}

/// The path of an element with its value.
pub(crate) fn change() -> impl Strategy<Value = (String, Value)> {
    let path = prop::sample::select(vec![
        "/a/[k=x]",
        "/a/[k=x]/v",
        "/a/[k=y]/v/w",
        "/a/[k=x]/l/-",
        "/a/[k=1]/l/0",
        "/a/0",
        "/a/1",
        "/a/0/v",
        "/a/-",
        "/b/-",
        "/b/[=x]",
        "/b/1",
        "/c/a/-",
        "/c/a/[k=x]/v",
        "/c/a/0/k",
    ]);
    let value = prop_oneof![
        2 => Just(Value::Null),
        1 => Just(json!(1)),
        1 => Just(json!("x")),
        1 => Just(json!({ "v": 2, "w": null })),
        1 => Just(json!([null])),
        1 => template().prop_map(Value::String),
    ];
    (path, value).prop_map(|(path, value)| {
        let value = match path {
            // `null` names no new element.
            path if path.ends_with("/-") && value.is_null() => json!({ "k": "x" }),
            _ => value,
        };
        (path.to_owned(), value)
    })
}

fn extended_value() -> impl Strategy<Value = Value> {
    let list = prop::sample::select(vec![
        json!([{ "k": "x", "v": 1 }, { "k": "y" }, { "k": "x" }]),
        json!(["x", "y", null]),
        json!([{ "k": 1, "l": [1] }]),
        json!([]),
    ]);
    prop_oneof![
        2 => template().prop_map(Value::String),
        1 => template().prop_map(|text| json!([{ "k": text }, text])),
        3 => list,
        1 => value(),
    ]
}

fn extended_patterns() -> impl Strategy<Value = Value> {
    prop_oneof![
        3 => patterns(),
        1 => Just(json!({ "set": "s" })),
        1 => Just(json!([{ "set": "t" }, "b*"])),
        1 => patterns().prop_map(|patterns| json!({ "not": patterns })),
        1 => Just(json!({ "not": [{ "set": "s" }, "a"] })),
        1 => Just(json!({ "not": { "set": "t" } })),
    ]
}

pub(crate) fn sets() -> impl Strategy<Value = Value> {
    let set = || prop::collection::vec(pattern(), 0..3);
    (set(), set()).prop_map(|(s, t)| json!({ "s": s, "t": t }))
}

/// Rules with references, elements and sets.
pub(crate) fn extended_rules() -> impl Strategy<Value = Value> {
    let values = prop::collection::vec(
        (prop::sample::select(vec!["a", "b", "c"]), extended_value()),
        0..3,
    );
    let values = values.prop_map(|pairs| {
        let pairs = pairs.into_iter().map(|(key, value)| match key {
            "c" => (key.to_owned(), json!({ "a": value })),
            key => (key.to_owned(), value),
        });
        Value::Object(pairs.collect())
    });
    let conditions = prop::collection::vec((name(), extended_patterns()), 0..2)
        .prop_map(|pairs| Value::Object(pairs.into_iter().collect()));
    let changes = prop::collection::vec(change(), 0..3)
        .prop_map(|pairs| Value::Object(pairs.into_iter().collect()));
    let rule = (conditions, values, changes, any::<bool>()).prop_map(
        |(conditions, values, elements, references)| {
            json!({ "ruleId": "", "conditions": conditions, "references": references,
                "values": values, "elements": elements })
        },
    );
    prop::collection::vec(rule, 0..6).prop_map(|mut rules| {
        for (index, rule) in rules.iter_mut().enumerate() {
            rule["ruleId"] = json!(format!("r{index}"));
        }
        Value::Array(rules)
    })
}
