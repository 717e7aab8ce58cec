//! Documents as sets of leaves: what stands where, by JSON pointer.

use serde_json::{Map, Value};

/// Rule sets take no deeper values; a section's name and the like go on top.
const MAX_DEPTH: usize = 24;

/// Every leaf of an object with its pointer: texts, numbers, arrays, empty objects.
pub(super) fn leaves(object: &Map<String, Value>) -> Result<Vec<(String, &Value)>, String> {
    let mut found = Vec::new();
    gather(object, "", 0, &mut found)?;
    Ok(found)
}

fn gather<'a>(
    object: &'a Map<String, Value>,
    at: &str,
    depth: usize,
    found: &mut Vec<(String, &'a Value)>,
) -> Result<(), String> {
    if depth > MAX_DEPTH {
        return Err(format!("{at} is nested more than {MAX_DEPTH} deep"));
    }
    for (name, value) in object {
        let pointer = below(at, name);
        match value {
            Value::Null => {
                return Err(format!("{pointer} is null, and in rules a null deletes"));
            }
            Value::Object(fields) if !fields.is_empty() => {
                gather(fields, &pointer, depth + 1, found)?
            }
            Value::Object(_)
            | Value::Array(_)
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => found.push((pointer, value)),
        }
    }
    Ok(())
}

/// Every leaf of a rule's values, with those that delete.
pub(super) fn leaves_and_deletions(object: &Map<String, Value>) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (name, value) in object {
        let pointer = below("", name);
        match value {
            Value::Object(fields) if !fields.is_empty() => {
                let inner = leaves_and_deletions(fields).into_iter();
                found.extend(inner.map(|(rest, value)| (format!("{pointer}{rest}"), value)));
            }
            Value::Object(_)
            | Value::Array(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_) => found.push((pointer, value)),
        }
    }
    found
}

/// The pointer to a member of what this pointer points to.
pub(super) fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The pointers to what a thing is in, the outermost first, without the whole.
pub(super) fn above(pointer: &str) -> impl Iterator<Item = &str> {
    pointer
        .match_indices('/')
        .skip(1)
        .map(|(at, _)| &pointer[..at])
}

/// Puts a value into an object, and makes what it is to be in. An empty object takes nothing away.
pub(super) fn put(object: &mut Map<String, Value>, pointer: &str, value: Value) {
    let mut names = pointer
        .split('/')
        .skip(1)
        .map(|name| name.replace("~1", "/").replace("~0", "~"))
        .peekable();
    let mut object = object;
    while let Some(name) = names.next() {
        if names.peek().is_none() {
            let is_there = object.get(&name).is_some_and(Value::is_object);
            if !(is_there && value.as_object().is_some_and(Map::is_empty)) {
                object.insert(name, value);
            }
            return;
        }
        let inner = object
            .entry(name)
            .or_insert_with(|| Value::Object(Map::new()));
        if !inner.is_object() {
            *inner = Value::Object(Map::new());
        }
        let Value::Object(inner) = inner else {
            return;
        };
        object = inner;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn leaves_put_together_again_are_the_document() {
        let document = json!({"a": {"b/c": [1, null], "~": {}}, "d": {"e": {"f": false}}, "": ""});
        let document = document.as_object().unwrap();
        let mut again = Map::new();
        for (pointer, value) in leaves(document).unwrap() {
            put(&mut again, &pointer, value.clone());
        }
        assert_eq!(&again, document);
        put(&mut again, "/a", json!({}));
        assert_eq!(&again, document);
    }

    #[test]
    fn a_null_that_rules_could_not_keep_is_refused() {
        let document = json!({"a": {"b": null}});
        let problem = leaves(document.as_object().unwrap()).unwrap_err();
        assert_eq!(problem, "/a/b is null, and in rules a null deletes");
    }

    #[test]
    fn what_a_pointer_is_in_comes_outermost_first() {
        assert_eq!(above("/a/b/c").collect::<Vec<_>>(), ["/a", "/a/b"]);
        assert_eq!(above("/a").count(), 0);
    }
}
