//! Normalizes pools, so that equivalent definitions are equal.

use domain::id::PoolId;
use domain::launch_config::{id_of, without_id};
use serde_json::{Map, Number, Value, json};

const LIFECYCLE_DEFAULTS: [(&str, i64); 2] = [
    ("reregistrationTimeout", 345_600),
    ("queueInactivityTimeout", 7_200),
];
/// Larger integers are not exact as floats and are left unchanged.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// The normalized definition of a pool.
pub(crate) fn normal_pool_body(id: &PoolId, mut body: Value) -> Value {
    without_fractions(&mut body);
    if let Some(config) = body["config"].as_object_mut() {
        if let Some(lifecycle) = config.get_mut("lifecycle").and_then(Value::as_object_mut) {
            for (name, default) in LIFECYCLE_DEFAULTS {
                if lifecycle.get(name) == Some(&json!(default)) {
                    lifecycle.remove(name);
                }
            }
        }
        if let Some(Value::Array(launch_configs)) = config.remove("launchConfigs")
            && !launch_configs.is_empty()
        {
            config.insert("launchConfigs".to_owned(), by_id(id, launch_configs));
        }
    }
    body
}

/// The launch configs by their ids: their order has no meaning.
fn by_id(pool: &PoolId, launch_configs: Vec<Value>) -> Value {
    let mut known = Map::new();
    for (position, launch_config) in launch_configs.into_iter().enumerate() {
        let fields = launch_config.as_object();
        let id = fields
            .and_then(|fields| id_of(pool, fields).ok())
            .map(|id| id.to_string())
            .filter(|id| !known.contains_key(id))
            // The server reports what is wrong with it.
            .unwrap_or_else(|| format!("number {}", position + 1));
        known.insert(id, fields.map(content).unwrap_or(launch_config));
    }
    Value::Object(known)
}

/// The launch config without its id. No settings for the server are the same as empty ones.
fn content(launch_config: &Map<String, Value>) -> Value {
    let mut content = without_id(launch_config);
    if content.get("workerManager") == Some(&json!({})) {
        content.remove("workerManager");
    }
    Value::Object(content)
}

/// Writes integers without a fraction.
fn without_fractions(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(without_fractions),
        Value::Array(items) => items.iter_mut().for_each(without_fractions),
        Value::Number(number) => {
            if let Some(integer) = integer(number) {
                *number = integer;
            }
        }
        Value::Null | Value::Bool(_) | Value::String(_) => {}
    }
}

fn integer(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    if float.fract() != 0.0 || float.abs() > MAX_EXACT {
        return None;
    }
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}
