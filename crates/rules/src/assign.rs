//! Deep assignment: how a rule's values go into what the rules before it have made.

use serde_json::{Map, Value};

/// Assigns values to an object: objects merge, anything else takes the place of what was there, and
/// `null` deletes it, at whichever depth.
pub fn assign(target: &mut Map<String, Value>, values: &Map<String, Value>) {
    for (key, value) in values {
        match value {
            Value::Null => {
                target.remove(key);
            }
            Value::Object(values) => match target.get_mut(key) {
                Some(Value::Object(target)) => assign(target, values),
                Some(other) => *other = Value::Object(fresh(values)),
                None => {
                    target.insert(key.clone(), Value::Object(fresh(values)));
                }
            },
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                target.insert(key.clone(), value.clone());
            }
        }
    }
}

/// What values are where nothing was: themselves, without what they would delete.
fn fresh(values: &Map<String, Value>) -> Map<String, Value> {
    let mut target = Map::new();
    assign(&mut target, values);
    target
}
