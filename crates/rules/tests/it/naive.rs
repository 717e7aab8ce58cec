//! A naive evaluation to compare with: no compiled globs, no cache, no sharing.

use serde_json::{Map, Value};

/// Evaluates one rule set in plain JSON with these attributes.
pub(crate) fn evaluate(rules: &Value, attributes: &[(String, String)]) -> Value {
    let mut result = Value::Object(Map::new());
    for rule in rules.as_array().unwrap() {
        if holds(&rule["conditions"], &Value::Null, attributes) {
            result = merged(Some(&result), &rule["values"]).unwrap();
        }
    }
    result
}

pub(crate) fn holds(conditions: &Value, sets: &Value, attributes: &[(String, String)]) -> bool {
    match conditions {
        Value::Null => true,
        Value::Object(mapping) => mapping.iter().all(|(name, patterns)| {
            let value = attributes.iter().find(|(attributes, _)| attributes == name);
            value.is_some_and(|(_, value)| any_matches(patterns, sets, value))
        }),
        Value::Array(list) => list.iter().any(|mapping| holds(mapping, sets, attributes)),
        other => panic!("{other} is no conditions"),
    }
}

fn any_matches(patterns: &Value, sets: &Value, value: &str) -> bool {
    match patterns {
        Value::Array(list) => list.iter().any(|one| any_matches(one, sets, value)),
        Value::Object(object) => match (object.get("not"), object.get("set")) {
            (Some(inner), _) => !any_matches(inner, sets, value),
            (None, Some(name)) => any_matches(&sets[name.as_str().unwrap()], sets, value),
            (None, None) => panic!("{patterns} are no patterns"),
        },
        one => matches(one, value),
    }
}

fn matches(pattern: &Value, value: &str) -> bool {
    let pattern: Vec<char> = pattern.as_str().unwrap().chars().collect();
    glob(&pattern, &value.chars().collect::<Vec<_>>())
}

/// Globs of `*`, `?`, `{a,b}` and plain characters.
pub(crate) fn glob(pattern: &[char], value: &[char]) -> bool {
    match pattern {
        [] => value.is_empty(),
        ['*', rest @ ..] => (0..=value.len()).any(|start| glob(rest, &value[start..])),
        ['?', rest @ ..] => !value.is_empty() && glob(rest, &value[1..]),
        ['{', rest @ ..] => {
            let end = rest.iter().position(|character| *character == '}').unwrap();
            let mut alternatives = rest[..end].split(|character| *character == ',');
            alternatives.any(|alternative| {
                let pattern: Vec<char> = alternative
                    .iter()
                    .chain(&rest[end + 1..])
                    .copied()
                    .collect();
                glob(&pattern, value)
            })
        }
        [plain, rest @ ..] => value.first() == Some(plain) && glob(rest, &value[1..]),
    }
}

/// The value at a place after a value was assigned to the old one.
fn merged(old: Option<&Value>, new: &Value) -> Option<Value> {
    match new {
        Value::Null => None,
        Value::Object(new) => {
            let empty = Map::new();
            let old = old.and_then(Value::as_object).unwrap_or(&empty);
            let keys = old.keys().chain(new.keys());
            let pairs = keys.filter_map(|key| {
                let value = match new.get(key) {
                    Some(value) => merged(old.get(key), value),
                    None => old.get(key).cloned(),
                };
                value.map(|value| (key.clone(), value))
            });
            Some(Value::Object(pairs.collect()))
        }
        Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => Some(new.clone()),
    }
}
