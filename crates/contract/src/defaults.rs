//! Inserts default values for members that a document omits.
//!
//! Clients see the result, so this follows the JavaScript validator: a default is inserted if the
//! schema of an object names it among its `properties`. It is not inserted for a schema that only
//! *may* apply (a branch of `anyOf` or `oneOf`, a `not`), nor behind a `$ref` that replaces the
//! property's schema.

use crate::files::File;
use serde_json::{Map, Value};

/// References followed for one value at most: a longer chain is treated as endless.
const MAX_HOPS: usize = 16;

/// A place in a schema, and the file in which its references start.
#[derive(Clone, Copy)]
struct Place<'a> {
    file: &'static File,
    schema: &'a Value,
    hops: usize,
}

pub(crate) fn insert(file: &'static File, document: &mut Value) {
    insert_at(
        Place {
            file,
            schema: file.document(),
            hops: 0,
        },
        document,
    );
}

fn insert_at(place: Place<'_>, document: &mut Value) {
    let Some(keywords) = place.schema.as_object() else {
        return;
    };
    if let Some(reference) = keywords.get("$ref").and_then(Value::as_str) {
        // In this draft, keywords beside a reference are ignored.
        if let Some(target) = place.follow(reference) {
            insert_at(target, document);
        }
        return;
    }
    if let Some(branches) = keywords.get("allOf").and_then(Value::as_array) {
        for branch in branches {
            insert_at(place.beside(branch), document);
        }
    }
    match document {
        Value::Object(members) => insert_members(place, keywords, members),
        Value::Array(items) => {
            if let Some(each) = keywords.get("items").filter(|each| each.is_object()) {
                items
                    .iter_mut()
                    .for_each(|item| insert_at(place.inside(each), item));
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

fn insert_members(
    place: Place<'_>,
    keywords: &Map<String, Value>,
    members: &mut Map<String, Value>,
) {
    let none = Map::new();
    let properties = keywords
        .get("properties")
        .and_then(Value::as_object)
        .unwrap_or(&none);
    for (key, schema) in properties {
        if let Some(default) = schema.get("default")
            && !members.contains_key(key)
        {
            members.insert(key.clone(), default.clone());
        }
        if let Some(member) = members.get_mut(key) {
            insert_at(place.inside(schema), member);
        }
    }
    if let Some(others) = keywords
        .get("additionalProperties")
        .filter(|others| others.is_object())
    {
        for (_, member) in members
            .iter_mut()
            .filter(|(key, _)| !properties.contains_key(*key))
        {
            insert_at(place.inside(others), member);
        }
    }
}

impl<'a> Place<'a> {
    /// The schema of a part of the document.
    fn inside(self, schema: &'a Value) -> Self {
        Self {
            schema,
            hops: 0,
            ..self
        }
    }

    /// Another schema for the same part of the document.
    fn beside(self, schema: &'a Value) -> Self {
        Self {
            schema,
            hops: self.hops + 1,
            ..self
        }
    }

    /// The schema that a reference names: `file.json#/pointer`, of which either half may be
    /// missing.
    fn follow(self, reference: &str) -> Option<Place<'static>> {
        if self.hops >= MAX_HOPS {
            return None;
        }
        let (path, pointer) = reference.split_once('#').unwrap_or((reference, ""));
        let file = if path.is_empty() {
            self.file
        } else {
            let (folder, _) = self.file.name.rsplit_once('/')?;
            File::named(&format!("{folder}/{}", path.trim_start_matches("./")))?
        };
        Some(Place {
            file,
            schema: file.document().pointer(pointer)?,
            hops: self.hops + 1,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;
    use crate::files::FILES;

    /// Fills an empty document by a schema whose default is behind `n_references` references.
    fn filled_behind(n_references: usize) -> Value {
        let last = json!({"properties": {"a": {"default": 1}}});
        let mut definitions = Map::new();
        for number in 1..n_references {
            let next = json!({"$ref": format!("#/definitions/{}", number + 1)});
            definitions.insert(number.to_string(), next);
        }
        definitions.insert(n_references.to_string(), last.clone());
        let schema = match n_references {
            0 => last,
            _ => json!({"$ref": "#/definitions/1", "definitions": definitions}),
        };
        filled(&schema)
    }

    fn filled(schema: &Value) -> Value {
        let text = Box::leak(schema.to_string().into_boxed_str());
        let mut document = json!({});
        insert(
            Box::leak(Box::new(File::new("a/b.json", text))),
            &mut document,
        );
        document
    }

    #[test]
    fn a_default_behind_references_is_inserted_up_to_the_limit_and_circles_end() {
        for count in sizes_around("contract::defaults::MAX_HOPS", MAX_HOPS) {
            let expected = if count <= MAX_HOPS {
                json!({"a": 1})
            } else {
                json!({})
            };
            assert_eq!(filled_behind(count), expected, "{count}");
        }
        assert_eq!(filled(&json!({"$ref": "#"})), json!({}));
        assert_eq!(filled(&json!({"allOf": [{"$ref": "#"}]})), json!({}));
    }

    /// The length of the longest chain of references from here.
    fn longest(place: Place<'_>) -> usize {
        if let Some(Value::String(reference)) = place.schema.get("$ref") {
            return place.follow(reference).map_or(place.hops, longest);
        }
        let branches = place.schema.get("allOf").and_then(Value::as_array);
        let branches = branches.into_iter().flatten();
        let lengths = branches.map(|branch| longest(place.beside(branch)));
        lengths.max().unwrap_or(place.hops)
    }

    fn check(place: Place<'_>) {
        let length = longest(place);
        assert!(length < MAX_HOPS, "{}: {length}", place.file.name);
        match place.schema {
            Value::Array(parts) => parts.iter().for_each(|part| check(place.inside(part))),
            Value::Object(parts) => parts.values().for_each(|part| check(place.inside(part))),
            Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
        }
    }

    #[test]
    fn every_default_of_our_schemas_is_within_the_limit() {
        for file in &FILES {
            check(Place {
                file,
                schema: file.document(),
                hops: 0,
            });
        }
    }
}
