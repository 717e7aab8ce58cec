//! The JSON Schema of a document with worker types and rules.

use std::sync::LazyLock;

use serde_json::Value;

/// The schema as JSON text.
pub const SCHEMA: &str = include_str!("../document.schema.json");

/// The JSON Schema (draft 7) of a document `{workerConfigurationId?, description?, workerTypes, rules}`.
///
/// It says what can be said without reading patterns: what it accepts can still have a bad glob, two
/// rules with one id, or be too large as a whole.
#[must_use]
pub fn schema() -> &'static Value {
    static PARSED: LazyLock<Value> =
        LazyLock::new(|| serde_json::from_str(SCHEMA).expect("the schema is JSON"));
    &PARSED
}
