//! The JSON Schema of a document with worker types and rules.

use std::sync::LazyLock;

use serde_json::Value;

/// The schema as JSON text.
pub const SCHEMA: &str = include_str!("../document.schema.json");

/// The JSON Schema (draft 7) of a document `{workerConfigurationId?, description?, workerTypes,
/// rules}`.
///
/// A document that fits the schema may still be invalid: it may have a bad glob, duplicate ids, or
/// be too large.
pub fn schema() -> &'static Value {
    static PARSED: LazyLock<Value> =
        LazyLock::new(|| serde_json::from_str(SCHEMA).expect("the schema is JSON"));
    &PARSED
}
