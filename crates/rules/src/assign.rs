//! Deep assignment: adds the values of a rule to the result of the rules before it.

use serde_json::{Map, Value};

/// Assigns values to an object, recursively: objects merge, `null` deletes, and anything else
/// replaces the old value.
pub fn assign(target: &mut Map<String, Value>, values: &Map<String, Value>) {
    for (key, value) in values {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(values) => match target.get_mut(key) {
                Some(Value::Object(target)) => assign(target, values),
                Some(other) => *other = Value::Object(without_nulls(values)),
                None => {
                    target.insert(key.clone(), Value::Object(without_nulls(values)));
                }
            },
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

/// The values for a place that had none: without `null`s, which would delete nothing.
pub(crate) fn without_nulls(values: &Map<String, Value>) -> Map<String, Value> {
    let mut target = Map::new();
    assign(&mut target, values);
    target
}
