//! Schemas that users bring along, for the payloads of their tasks.
//!
//! They are judged by nothing but themselves: a reference that leads out of the schema is refused and never followed,
//! and patterns run in time linear in the text.

use jsonschema::{Draft, PatternOptions, Retrieve, Uri, Validator};
use serde_json::Value;

use crate::problems::{Problem, judge};

/// As JSON, in bytes.
pub const MAX_SCHEMA_BYTES: usize = 256 << 10;
/// Of objects and lists within each other.
const MAX_DEPTH: usize = 64;
/// What a pattern may weigh when it is compiled.
const MAX_PATTERN_BYTES: usize = 1 << 20;

#[derive(Debug)]
pub struct PayloadSchema(Validator);

/// A schema that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the JSON Schema cannot be used: {0}")]
pub struct BadSchema(pub String);

struct Nowhere;

impl Retrieve for Nowhere {
    fn retrieve(
        &self,
        uri: &Uri<String>,
    ) -> Result<Value, Box<dyn std::error::Error + Send + Sync>> {
        Err(format!("it refers to {uri}; it may only refer to parts of itself").into())
    }
}

impl PayloadSchema {
    /// Draft 7, unless `$schema` says something else.
    pub fn compile(schema: &Value) -> Result<Self, BadSchema> {
        let size = schema.to_string().len();
        if size > MAX_SCHEMA_BYTES {
            let text = format!("it has {size} bytes; at most {MAX_SCHEMA_BYTES} are possible");
            return Err(BadSchema(text));
        }
        if depth(schema) > MAX_DEPTH {
            let text = format!("it is nested more than {MAX_DEPTH} levels deep");
            return Err(BadSchema(text));
        }
        let patterns = PatternOptions::regex()
            .size_limit(MAX_PATTERN_BYTES)
            .dfa_size_limit(MAX_PATTERN_BYTES);
        let mut options = jsonschema::options()
            .with_retriever(Nowhere)
            .with_pattern_options(patterns);
        if schema.get("$schema").is_none() {
            options = options.with_draft(Draft::Draft7);
        }
        let built = options.build(schema);
        built
            .map(Self)
            .map_err(|problem| BadSchema(problem.to_string()))
    }

    /// At least one problem, if the document does not fit.
    pub fn judge(&self, document: &Value) -> Result<(), Vec<Problem>> {
        judge("payload", &self.0, document).map_err(|invalid| invalid.problems)
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(items) => 1 + items.iter().map(depth).max().unwrap_or(0),
        Value::Object(members) => 1 + members.values().map(depth).max().unwrap_or(0),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => 0,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_payload_is_judged_in_the_words_that_clients_know() {
        let schema = json!({"type": "object", "required": ["command"], "properties": {"command": {"type": "array"}}});
        let schema = PayloadSchema::compile(&schema).unwrap();
        assert_eq!(schema.judge(&json!({"command": []})), Ok(()));
        let problems = schema.judge(&json!({"command": 1})).unwrap_err();
        assert_eq!(problems[0].pointer, "/command");
        assert_eq!(problems[0].message, "must be array");
        let missing = schema.judge(&json!({})).unwrap_err();
        assert_eq!(missing[0].message, "must have required property 'command'");
    }

    #[test]
    fn a_schema_may_refer_to_itself_and_to_nothing_else() {
        let own = json!({"$ref": "#/definitions/a", "definitions": {"a": {"type": "string"}}});
        assert!(
            PayloadSchema::compile(&own)
                .unwrap()
                .judge(&json!(1))
                .is_err()
        );
        for elsewhere in [
            "http://127.0.0.1:1/a.json",
            "file:///etc/passwd",
            "other.json#/a",
        ] {
            let refused = PayloadSchema::compile(&json!({"$ref": elsewhere})).unwrap_err();
            assert!(refused.to_string().contains("cannot be used"), "{refused}");
        }
    }

    #[test]
    fn what_is_no_schema_is_refused() {
        for bad in [
            json!({"type": "nothing"}),
            json!({"pattern": "("}),
            json!({"minimum": "1"}),
            json!({"$schema": "http://example.com/unknown"}),
            json!({"pattern": "(a{1000}){1000}"}),
        ] {
            assert!(PayloadSchema::compile(&bad).is_err(), "{bad}");
        }
        let deep = (0..100).fold(json!({}), |inner, _| json!({"not": inner}));
        assert!(
            PayloadSchema::compile(&deep)
                .unwrap_err()
                .0
                .contains("levels deep")
        );
        let large = json!({"description": "x".repeat(MAX_SCHEMA_BYTES)});
        assert!(
            PayloadSchema::compile(&large)
                .unwrap_err()
                .0
                .contains("bytes")
        );
    }

    #[test]
    fn a_pattern_that_would_take_for_ever_elsewhere_does_not() {
        let schema = PayloadSchema::compile(&json!({"pattern": "^(a+)+$"})).unwrap();
        let text = format!("{}b", "a".repeat(10_000));
        assert!(schema.judge(&json!(text)).is_err());
    }
}
