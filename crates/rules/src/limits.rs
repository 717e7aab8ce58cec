//! Limits for rules, so that no document makes evaluation slow or expensive.

/// Rules in a set.
pub const MAX_RULES: usize = 2_000;
/// Characters of a rule's id.
pub const MAX_RULE_ID_CHARS: usize = 128;
/// Characters of a rule's description.
pub const MAX_DESCRIPTION_CHARS: usize = 2_048;
/// Mappings in a rule's list of conditions.
pub const MAX_MAPPINGS: usize = 64;
/// Characters of the name of a condition.
pub const MAX_NAME_CHARS: usize = 64;
/// Patterns of one condition.
pub const MAX_PATTERNS: usize = 256;
/// Characters of a pattern.
pub const MAX_PATTERN_CHARS: usize = 256;
/// Maximum depth of nested `{a,b}` in a pattern.
pub const MAX_ALTERNATIVES_DEPTH: usize = 8;
/// Mappings in all conditions of a set.
pub const MAX_MAPPINGS_OF_SET: usize = 10_000;
/// Patterns in all conditions of a set.
pub const MAX_PATTERNS_OF_SET: usize = 50_000;
/// Patterns of a set that need a compiled glob: those with `?`, `[…]`, `{…}` or several `*`.
pub const MAX_GLOBS_OF_SET: usize = 2_000;
/// Maximum depth of objects and lists in a rule's values.
pub const MAX_VALUE_DEPTH: usize = 32;
/// Values (objects, lists, texts, numbers and so on, at any depth) of one rule.
pub const MAX_VALUES: usize = 10_000;
/// Bytes of a set as compact JSON.
pub const MAX_SET_BYTES: usize = 4 * 1024 * 1024;
/// Problems of one document that are reported; further ones are only counted.
pub const MAX_PROBLEMS: usize = 50;
/// Named sets of a document.
pub const MAX_SETS: usize = 500;
/// Patterns of one named set.
pub const MAX_PATTERNS_OF_NAMED_SET: usize = 2_000;
/// Elements of lists that one rule changes.
pub const MAX_ELEMENTS: usize = 256;
/// Elements of lists that all rules of a set change.
pub const MAX_ELEMENTS_OF_SET: usize = 2_000;
/// Values that refer to each other in a chain.
pub const MAX_REFERENCE_DEPTH: usize = 16;
/// References that one evaluation resolves, also repeatedly.
pub const MAX_REFERENCES: usize = 10_000;
/// Bytes of the texts that references give in one evaluation.
pub const MAX_RESOLVED_BYTES: usize = 4 * 1024 * 1024;
