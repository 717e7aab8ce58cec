//! Limits the regular expressions of a schema: their number, their text, and their compiled size.
//!
//! A pattern of ten bytes can take a mebibyte when it is compiled, and some milliseconds. So the
//! sizes are counted before the schema is compiled, and the sum is limited.

use std::collections::BTreeSet;

use jsonschema::PatternOptions;
use serde_json::{Value, json};

/// Different patterns of one schema.
const MAX_PATTERNS: usize = 100;
/// Bytes of all patterns as text. The size of a pattern is known only after it was parsed.
const MAX_TEXT_BYTES: usize = 16 << 10;
/// Bytes of one compiled pattern.
const MAX_EACH_BYTES: usize = 1 << 20;
/// Bytes of all compiled patterns, each rounded up to a power of two.
const MAX_BYTES: usize = 4 << 20;
/// The smallest compiled size that is counted.
const MIN_EACH_BYTES: usize = 4 << 10;
/// Memory of a pattern for its matches, in addition to its compiled size.
pub(super) const MATCHING_BYTES: usize = 64 << 10;

/// The patterns of a schema, within the limits.
#[derive(Debug, PartialEq)]
pub(super) struct Patterns {
    pub(super) count: usize,
    pub(super) n_bytes: usize,
    /// One does not compile: it is invalid, or larger than the limit.
    pub(super) refused: bool,
}

pub(super) fn options() -> PatternOptions<jsonschema::Regex> {
    options_up_to(MAX_EACH_BYTES)
}

fn options_up_to(n_bytes: usize) -> PatternOptions<jsonschema::Regex> {
    PatternOptions::regex()
        .size_limit(n_bytes)
        .dfa_size_limit(MATCHING_BYTES)
}

/// Why the engine refuses a pattern that is valid elsewhere. The limit is [`MAX_EACH_BYTES`].
pub(super) const SIZE_HINT: &str = " (a pattern may take 1 MiB when it is compiled: lower its \
    repetitions, or use smaller classes of characters)";

/// Counts the patterns of a schema. Each pattern is compiled alone and dropped.
pub(super) fn count_patterns(schema: &Value) -> Result<Patterns, String> {
    let mut texts = BTreeSet::new();
    collect(schema, &mut texts);
    if texts.len() > MAX_PATTERNS {
        return Err(format!(
            "it has {} different patterns, and the limit is {MAX_PATTERNS}",
            texts.len()
        ));
    }
    let n_text_bytes: usize = texts.iter().map(|text| text.len()).sum();
    if n_text_bytes > MAX_TEXT_BYTES {
        return Err(format!(
            "its patterns have {n_text_bytes} bytes together, and the limit is {MAX_TEXT_BYTES}"
        ));
    }
    let mut patterns = Patterns {
        count: texts.len(),
        n_bytes: 0,
        refused: false,
    };
    for text in texts {
        let n_bytes = compiled_bytes(text);
        patterns.refused |= n_bytes.is_none();
        patterns.n_bytes += n_bytes.unwrap_or(MAX_EACH_BYTES);
        if patterns.n_bytes > MAX_BYTES {
            return Err(format!(
                "its patterns take more than {MAX_BYTES} bytes when they are compiled: lower their repetitions, or use smaller \
                 classes of characters"
            ));
        }
    }
    Ok(patterns)
}

/// Everything that could be a pattern. An object in an `enum` may look like one, and counts, too.
fn collect<'a>(value: &'a Value, texts: &mut BTreeSet<&'a str>) {
    match value {
        Value::Object(members) => {
            texts.extend(members.get("pattern").and_then(Value::as_str));
            let named = members.get("patternProperties").and_then(Value::as_object);
            texts.extend(
                named
                    .into_iter()
                    .flat_map(|named| named.keys())
                    .map(String::as_str),
            );
            members.values().for_each(|value| collect(value, texts));
        }
        Value::Array(items) => items.iter().for_each(|item| collect(item, texts)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// The compiled size, rounded up to a power of two. An attempt ends as soon as its limit is
/// reached, so all of them together take twice the time of the last one.
fn compiled_bytes(pattern: &str) -> Option<usize> {
    let schema = json!({ "pattern": pattern });
    let mut n_bytes = MIN_EACH_BYTES;
    while n_bytes <= MAX_EACH_BYTES {
        let options = jsonschema::options().with_pattern_options(options_up_to(n_bytes));
        if options.build(&schema).is_ok() {
            return Some(n_bytes);
        }
        n_bytes *= 2;
    }
    None
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[track_caller]
    fn takes(count: usize, limit: usize, schema: &Value, words: &str) {
        match count_patterns(schema) {
            Ok(_) => assert!(count <= limit, "{count}"),
            Err(refused) => {
                assert!(count > limit, "{count}: {refused}");
                assert!(refused.contains(words), "{refused}");
            }
        }
    }

    #[test]
    fn the_number_of_patterns_is_limited() {
        let limit = MAX_PATTERNS;
        for count in sizes_around("contract::payload_schema::patterns::MAX_PATTERNS", limit) {
            let each = (0..count).map(|number| json!({"pattern": format!("^{number}$")}));
            let mut parts: Vec<Value> = each.collect();
            // The same pattern again is compiled once.
            parts.extend(parts.clone());
            takes(
                count,
                limit,
                &json!({ "anyOf": parts }),
                "different patterns",
            );
        }
        let names = (0..=MAX_PATTERNS).map(|number| (number.to_string(), json!({})));
        let schema = json!({"patternProperties": names.collect::<serde_json::Map<_, _>>()});
        assert!(count_patterns(&schema).is_err());
    }

    #[test]
    fn the_text_of_patterns_is_limited() {
        let limit = MAX_TEXT_BYTES;
        for count in sizes_around("bytes of patterns", limit) {
            let half = json!({"pattern": "a".repeat(count / 2)});
            let rest = json!({"pattern": "b".repeat(count - count / 2)});
            takes(
                count,
                limit,
                &json!({"anyOf": [half, rest]}),
                "bytes together",
            );
        }
    }

    /// Different patterns that take this many bytes each, with the rounding.
    fn patterns(count: usize, n_bytes: usize) -> Vec<Value> {
        let letters = |n: usize, end: usize| format!("\\p{{L}}{{{n}}}{end}");
        let repetitions = (1..40).find(|n| compiled_bytes(&letters(*n, 100)) == Some(n_bytes));
        let repetitions = repetitions.unwrap();
        let each = (0..count).map(|end| json!({"pattern": letters(repetitions, 100 + end)}));
        each.collect()
    }

    #[test]
    fn the_compiled_size_of_patterns_is_limited() {
        let each = MAX_BYTES / 16;
        for count in sizes_around("bytes of compiled patterns", 16) {
            // The number of patterns has a limit of its own.
            let count = count.min(MAX_PATTERNS);
            let schema = json!({"anyOf": patterns(count, each)});
            takes(count, 16, &schema, "when they are compiled");
            if count <= 16 {
                assert_eq!(count_patterns(&schema).unwrap().n_bytes, count * each);
            }
        }
    }

    #[test]
    fn one_pattern_has_a_limit_and_the_engine_says_so() {
        for (pattern, fits) in [("\\p{L}{18}", true), ("\\p{L}{60}", false), ("(", false)] {
            let schema = json!({ "pattern": pattern });
            let counted = count_patterns(&schema).unwrap();
            assert_eq!(!counted.refused, fits, "{pattern}");
            let compiled = crate::PayloadSchema::compile(&schema);
            assert_eq!(compiled.is_ok(), fits, "{pattern}");
            if let Err(refused) = compiled {
                assert!(refused.0.contains(SIZE_HINT), "{refused}");
            }
        }
        // Text that only looks like a pattern is no reason to refuse.
        let schema = json!({"enum": [{"pattern": "("}]});
        assert!(crate::PayloadSchema::compile(&schema).is_ok());
    }
}
