//! Documents as sets of leaves, each with its JSON pointer.

use serde_json::{Map, Value};

/// Rule sets accept no deeper values; the name of a section adds a level.
const MAX_DEPTH: usize = 24;

/// Every leaf of an object with its pointer: texts, numbers, arrays, empty objects.
pub(super) fn leaves(object: &Map<String, Value>) -> Result<Vec<(String, &Value)>, String> {
    let found = leaves_and_deletions(object);
    for (pointer, value) in &found {
        if let Some(at) = above(pointer).nth(MAX_DEPTH) {
            return Err(format!("{at} is nested deeper than {MAX_DEPTH} levels"));
        }
        if value.is_null() {
            return Err(format!("{pointer} is null, and in rules a null deletes"));
        }
    }
    Ok(found)
}

/// Every leaf of a rule's values, including deletions.
pub(super) fn leaves_and_deletions(object: &Map<String, Value>) -> Vec<(String, &Value)> {
    let mut found = Vec::new();
    for (name, value) in object {
        let pointer = below("", name);
        match value.as_object().filter(|fields| !fields.is_empty()) {
            Some(fields) => {
                let inner = leaves_and_deletions(fields).into_iter();
                found.extend(inner.map(|(rest, value)| (format!("{pointer}{rest}"), value)));
            }
            None => found.push((pointer, value)),
        }
    }
    found
}

/// The pointer to a member of the value at this pointer.
pub(super) fn below(pointer: &str, name: &str) -> String {
    format!("{pointer}/{}", name.replace('~', "~0").replace('/', "~1"))
}

/// The pointers to the enclosing values, the outermost first, without the empty pointer.
pub(super) fn above(pointer: &str) -> impl Iterator<Item = &str> {
    pointer
        .match_indices('/')
        .skip(1)
        .map(|(at, _)| &pointer[..at])
}

/// Puts a value into an object, and makes the enclosing objects. An empty object removes nothing.
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
