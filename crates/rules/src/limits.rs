//! How large rules may be, so that no document can make evaluation slow or costly.

/// Rules in a set.
pub const MAX_RULES: usize = 2_000;
/// Characters of a rule's id.
pub const MAX_RULE_ID: usize = 128;
/// Characters of a rule's description.
pub const MAX_DESCRIPTION: usize = 2_048;
/// Mappings in a rule's list of conditions.
pub const MAX_MAPPINGS: usize = 64;
/// Characters of the name of a condition.
pub const MAX_NAME: usize = 64;
/// Patterns of one condition.
pub const MAX_PATTERNS: usize = 256;
/// Characters of a pattern.
pub const MAX_PATTERN: usize = 256;
/// How deep `{a,b}` may stand within each other in a pattern.
pub const MAX_ALTERNATIVES_DEPTH: usize = 8;
/// Mappings in all conditions of a set.
pub const MAX_MAPPINGS_OF_SET: usize = 10_000;
/// Patterns in all conditions of a set.
pub const MAX_PATTERNS_OF_SET: usize = 50_000;
/// Those of them that take a compiled glob: those with `?`, `[…]`, `{…}` or several `*`.
pub const MAX_GLOBS_OF_SET: usize = 2_000;
/// How deep objects and lists may stand within each other in a rule's values.
pub const MAX_DEPTH: usize = 32;
/// Values (objects, lists, texts, numbers and so on, at whichever depth) of one rule.
pub const MAX_NODES: usize = 10_000;
/// Bytes of a whole set, written as compact JSON.
pub const MAX_BYTES: usize = 4 * 1024 * 1024;
/// Problems that are told of one document; of further ones only the number.
pub const MAX_PROBLEMS: usize = 50;
