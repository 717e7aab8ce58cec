//! The JSON Schema of a document with worker types and rules.

/// The JSON Schema (draft 7) of a document `{workerConfigurationId?, description?, workerTypes,
/// rules}`, as text.
///
/// A document that fits the schema may still be invalid: it may have a bad glob, duplicate ids, or
/// be too large.
pub const SCHEMA: &str = include_str!("../document.schema.json");
