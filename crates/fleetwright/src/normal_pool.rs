//! Worker pools in a form in which equal pools are equal.

use domain::id::PoolId;
use domain::launch_config::id_of;
use serde_json::{Map, Number, Value, json};

/// What servers add to a `lifecycle` that lacks it.
const LIFECYCLE_DEFAULTS: [(&str, i64); 2] = [
    ("reregistrationTimeout", 345_600),
    ("queueInactivityTimeout", 7_200),
];
/// Larger whole numbers are not exact as floats, so they stay as they are written.
const MAX_EXACT: f64 = 9_007_199_254_740_992.0;

/// What a pool is, in a form in which equal pools are equal.
pub(crate) fn normal_pool_body(id: &PoolId, body: Value) -> Value {
    let mut body = normal_json(body);
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

/// The launch configs by their ids, which say all there is to say about their order.
fn by_id(pool: &PoolId, launch_configs: Vec<Value>) -> Value {
    let mut known = Map::new();
    for (position, mut launch_config) in launch_configs.into_iter().enumerate() {
        let id = launch_config
            .as_object()
            .and_then(|launch_config| id_of(pool, launch_config).ok())
            .map(|id| id.to_string())
            .filter(|id| !known.contains_key(id))
            // Not for us to judge: the server will say what is wrong with it.
            .unwrap_or_else(|| format!("number {}", position + 1));
        if let Some(launch_config) = launch_config.as_object_mut() {
            without_id(launch_config);
        }
        known.insert(id, launch_config);
    }
    Value::Object(known)
}

fn without_id(launch_config: &mut Map<String, Value>) {
    let Some(steering) = launch_config
        .get_mut("workerManager")
        .and_then(Value::as_object_mut)
    else {
        return;
    };
    steering.remove("launchConfigId");
    if steering.is_empty() {
        launch_config.remove("workerManager");
    }
}

/// Keys in order, and whole numbers without a fraction.
fn normal_json(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields
                .into_iter()
                .map(|(name, value)| (name, normal_json(value)))
                .collect();
            fields.sort_by(|(left, _), (right, _)| left.cmp(right));
            Value::Object(fields.into_iter().collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(normal_json).collect()),
        Value::Number(number) => Value::Number(whole(&number).unwrap_or(number)),
        Value::Null | Value::Bool(_) | Value::String(_) => value,
    }
}

fn whole(number: &Number) -> Option<Number> {
    let float = number.as_f64().filter(|_| number.is_f64())?;
    if float.fract() != 0.0 || float.abs() > MAX_EXACT {
        return None;
    }
    format!("{float:.0}").parse::<i64>().ok().map(Number::from)
}
