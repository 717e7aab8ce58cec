//! Limits the references of a schema, so that reading one value of a document ends soon.
//!
//! The engine follows references recursively, and again for each alternative. This check, made when
//! a schema is written, bounds the engine's work for one value. A validation bounds the number of
//! values and how often each is read.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

/// Subschemas that apply to one value at most.
const MAX_WEIGHT: usize = 1_000;
/// Maximum total depth of the subschemas that references lead to.
const MAX_REACH: usize = 1_000;
/// Maximum depth of nested or chained references.
const MAX_CHAIN: usize = 200;

/// Keywords with subschemas for the same value.
const ONE_EACH: [&str; 4] = ["not", "if", "then", "else"];
const LISTS: [&str; 3] = ["allOf", "anyOf", "oneOf"];
const MAPS: [&str; 2] = ["dependencies", "dependentSchemas"];
/// Keywords with subschemas for parts of the value.
const WITHIN: [&str; 9] = [
    "items",
    "additionalItems",
    "prefixItems",
    "contains",
    "additionalProperties",
    "propertyNames",
    "unevaluatedItems",
    "unevaluatedProperties",
    "contentSchema",
];
const MAPS_WITHIN: [&str; 2] = ["properties", "patternProperties"];
/// Keywords that would change the meaning of a reference into this document.
const IDS: [&str; 2] = ["$id", "id"];
const ELSEWHERE: [&str; 4] = ["$dynamicRef", "$recursiveRef", "$anchor", "$dynamicAnchor"];

pub(super) fn check(schema: &Value) -> Result<(), String> {
    let mut walk = Walk {
        root: schema,
        weights: BTreeMap::new(),
        targets: BTreeSet::new(),
        reach: super::depth(schema),
        waiting: vec![schema],
    };
    while let Some(next) = walk.waiting.pop() {
        walk.weight(next, 0)?;
    }
    Ok(())
}

struct Walk<'a> {
    root: &'a Value,
    /// By address; `None` while the weight is being computed.
    weights: BTreeMap<usize, Option<usize>>,
    targets: BTreeSet<&'a str>,
    reach: usize,
    /// Subschemas for parts of the value.
    waiting: Vec<&'a Value>,
}

impl<'a> Walk<'a> {
    /// The number of subschemas for the same value, each as often as it applies.
    fn weight(&mut self, schema: &'a Value, above: usize) -> Result<usize, String> {
        let Value::Object(members) = schema else {
            return Ok(1);
        };
        if above > MAX_CHAIN {
            return Err(format!(
                "more than {MAX_CHAIN} references or parts are chained for one value"
            ));
        }
        let address = std::ptr::from_ref(schema) as usize;
        match self.weights.get(&address) {
            Some(Some(known)) => return Ok(*known),
            Some(None) => {
                return Err("it refers to itself for the same value".to_owned());
            }
            None => {}
        }
        self.weights.insert(address, None);
        self.refuse_names(schema, members)?;
        let mut weight: usize = 1;
        for part in same_value(members) {
            weight = weight.saturating_add(self.weight(part, above + 1)?);
        }
        if let Some(Value::String(reference)) = members.get("$ref") {
            let target = self.target(reference)?;
            weight = weight.saturating_add(self.weight(target, above + 1)?);
        }
        if weight > MAX_WEIGHT {
            return Err(format!(
                "more than {MAX_WEIGHT} of its parts apply to one value, counting a part each time it is referred to"
            ));
        }
        self.waiting.extend(parts(members, &WITHIN, &MAPS_WITHIN));
        self.weights.insert(address, Some(weight));
        Ok(weight)
    }

    fn refuse_names(&self, schema: &Value, members: &Map<String, Value>) -> Result<(), String> {
        let is_root = std::ptr::eq(schema, self.root);
        let ids = IDS
            .iter()
            .filter(|name| !is_root && members.get(**name).is_some_and(Value::is_string));
        let elsewhere = ELSEWHERE.iter().filter(|name| members.contains_key(**name));
        match ids.chain(elsewhere).next() {
            Some(name) => Err(format!(
                "it contains `{name}`, and references may only be pointers like `#/definitions/name`"
            )),
            None => Ok(()),
        }
    }

    fn target(&mut self, reference: &'a str) -> Result<&'a Value, String> {
        let found = reference.strip_prefix('#').and_then(|pointer| {
            // A percent-encoded pointer is not found, and so refused.
            self.root.pointer(pointer)
        });
        let through_another = |pointer: &str| {
            let ends = pointer.match_indices('/').skip(1).map(|(end, _)| end);
            let mut above = ends.filter_map(|end| self.root.pointer(&pointer[..end]));
            above.any(|above| IDS.iter().any(|name| above[*name].is_string()))
        };
        let found = found.filter(|_| !through_another(&reference[1..]));
        let target = found.ok_or_else(|| {
            format!("it refers to {reference}, and may only refer to parts of itself, like `#/definitions/name`")
        })?;
        if self.targets.insert(reference) {
            self.reach += super::depth(target);
            if self.reach > MAX_REACH {
                return Err(format!(
                    "the parts that it refers to have more than {MAX_REACH} levels in total"
                ));
            }
        }
        Ok(target)
    }
}

fn same_value(members: &Map<String, Value>) -> impl Iterator<Item = &Value> {
    let lists = LISTS
        .iter()
        .filter_map(|name| members.get(*name)?.as_array());
    lists.flatten().chain(parts(members, &ONE_EACH, &MAPS))
}

/// The subschemas under these names, and in the mappings under the names in `maps`.
fn parts<'a>(
    members: &'a Map<String, Value>,
    names: &'a [&str],
    maps: &'a [&str],
) -> impl Iterator<Item = &'a Value> {
    let one = names.iter().filter_map(|name| members.get(*name));
    let one = one.flat_map(|part| match part {
        Value::Array(parts) => parts.as_slice(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            std::slice::from_ref(part)
        }
    });
    let maps = maps
        .iter()
        .filter_map(|name| members.get(*name)?.as_object());
    one.chain(maps.flat_map(Map::values))
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    /// Each level leads twice to the next one.
    fn ladder(levels: usize, reference: impl Fn(Value) -> Value) -> Value {
        let mut definitions = Map::new();
        for level in 0..levels {
            let next = json!({"$ref": format!("#/definitions/{}", level + 1)});
            definitions.insert(level.to_string(), reference(next));
        }
        definitions.insert(levels.to_string(), json!(false));
        json!({"definitions": definitions, "$ref": "#/definitions/0"})
    }

    #[test]
    fn a_schema_that_refers_to_its_parts_too_often_is_refused() {
        let both = |next: Value| json!({"anyOf": [next, next]});
        assert_eq!(check(&ladder(7, both)), Ok(()));
        let refused = check(&ladder(30, both)).unwrap_err();
        assert!(
            refused.starts_with("more than 1000 of its parts apply to one value"),
            "{refused}"
        );
        // For parts of the value, validation counts each step.
        let within = |next: Value| json!({"properties": {"a": next}, "additionalProperties": next});
        assert_eq!(check(&ladder(30, within)), Ok(()));
    }

    #[test]
    fn a_schema_with_too_long_chains_is_refused() {
        let once = |next: Value| json!({"properties": {"a": next}});
        assert_eq!(check(&ladder(300, once)), Ok(()));
        let refused = check(&ladder(3_000, once)).unwrap_err();
        assert!(refused.contains("levels in total"), "{refused}");
        let refused = check(&ladder(300, |next| next)).unwrap_err();
        assert!(refused.contains("chained for one value"), "{refused}");
    }

    #[test]
    fn a_schema_may_refer_to_itself_only_for_parts_of_the_value() {
        let tree = json!({"type": "array", "items": {"$ref": "#"}});
        assert_eq!(check(&tree), Ok(()));
        let circle = json!({"anyOf": [{"type": "string"}, {"not": {"$ref": "#"}}]});
        assert_eq!(
            check(&circle).unwrap_err(),
            "it refers to itself for the same value"
        );
    }

    #[test]
    fn references_are_pointers_into_the_document_and_nothing_changes_what_they_mean() {
        for bad in [
            json!({"$ref": "#/nowhere"}),
            json!({"$ref": "#name"}),
            json!({"$ref": "#/definitions/a/b", "definitions": {"a": {"$id": "x.json", "b": {}}}}),
            json!({"items": {"$dynamicRef": "#x"}}),
            json!({"properties": {"a": {"$id": "b.json", "$ref": "#/c"}}}),
            json!({"items": [{"if": {"id": "b.json"}}]}),
        ] {
            assert!(check(&bad).is_err(), "{bad}");
        }
        let good = json!({"$id": "https://example.com/a.json", "properties": {"id": {"$ref": "#/definitions/a b"}},
            "definitions": {"a b": {"const": {"id": "x", "$ref": "y"}}}});
        assert_eq!(check(&good), Ok(()));
    }

    /// Checks that the schema is accepted up to the limit, and refused above it with this text.
    #[track_caller]
    fn takes(count: usize, limit: usize, schema: &Value, words: &str) {
        match check(schema) {
            Ok(()) => assert!(count <= limit, "{count}"),
            Err(refused) => {
                assert!(count > limit, "{count}: {refused}");
                assert!(refused.contains(words), "{refused}");
            }
        }
    }

    #[test]
    fn the_parts_for_one_value_are_limited() {
        let words = "more than 1000 of its parts apply to one value";
        let limit = MAX_WEIGHT;
        for count in sizes_around("contract::payload_schema::references::MAX_WEIGHT", limit) {
            // The schema itself is one of them.
            let parts = vec![json!(true); count.saturating_sub(1)];
            takes(count, limit, &json!({"anyOf": parts}), words);
            // Counted at each reference: the reference and its target.
            let parts = vec![json!({"$ref": "#/definitions/a"}); count.saturating_sub(1) / 2];
            let more = vec![json!(true); count.saturating_sub(1) % 2];
            let parts = [parts, more].concat();
            let schema = json!({"anyOf": parts, "definitions": {"a": true}});
            takes(count, limit, &schema, words);
        }
    }

    #[test]
    fn references_reach_so_deep_together_and_no_deeper() {
        let limit = MAX_REACH;
        for count in sizes_around("contract::payload_schema::references::MAX_REACH", limit) {
            // The schema itself has three levels, and the target of each reference has one.
            let names = (0..count.saturating_sub(3)).map(|number| number.to_string());
            let names: Vec<String> = names.collect();
            let reference = |name: &String| json!({"$ref": format!("#/definitions/{name}")});
            let properties = names.iter().map(|name| (name.clone(), reference(name)));
            let definitions = names.iter().map(|name| (name.clone(), json!({})));
            let schema = json!({"properties": properties.collect::<Map<_, _>>(),
                "definitions": definitions.collect::<Map<_, _>>()});
            takes(count, limit, &schema, "more than 1000 levels in total");
        }
    }

    #[test]
    fn the_length_of_a_chain_is_limited() {
        let limit = MAX_CHAIN;
        for count in sizes_around("contract::payload_schema::references::MAX_CHAIN", limit) {
            let schema = ladder(count, |next| next);
            takes(count, limit, &schema, "more than 200 references or parts");
        }
    }
}
