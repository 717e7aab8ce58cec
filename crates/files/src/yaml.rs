//! YAML 1.2 as values, without the surprises of older versions, and with limits on aliases.

use serde::de::DeserializeOwned;
use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Options, from_str_with_options};

use super::place::Problem;
use super::{MAX_BYTES, MAX_DEPTH, too_deep};

/// Maximum number of nodes that aliases may add to a document.
const MAX_REPLAYED_NODES: usize = 200_000;
/// Maximum number of values and keys.
const MAX_NODES: usize = 2_000_000;
/// The parser's name for a key.
const KEY: &str = "string scalar";

#[derive(Clone, Copy)]
struct Limits {
    nodes: usize,
    replayed: usize,
}

impl Limits {
    const USUAL: Self = Self {
        nodes: MAX_NODES,
        replayed: MAX_REPLAYED_NODES,
    };
}

pub(super) fn parse(text: &str) -> Result<Value, Problem> {
    parse_within(text, Limits::USUAL)
}

/// Reads a text into another type; `None` if it is not valid.
pub(super) fn from_str<T: DeserializeOwned>(text: &str) -> Option<T> {
    from_str_with_options(text, options(Limits::USUAL)).ok()
}

fn parse_within(text: &str, limits: Limits) -> Result<Value, Problem> {
    from_str_with_options(text, options(limits)).map_err(|problem| {
        let problem = problem.without_snippet();
        let place = problem.location();
        let said = said(problem, limits);
        match place {
            Some(place) => Problem::at(number(place.line()), number(place.column()), &said),
            None => Problem::somewhere(said),
        }
    })
}

fn options(limits: Limits) -> Options {
    serde_saphyr::options! {
        duplicate_keys: DuplicateKeyPolicy::Error,
        merge_keys: MergeKeyPolicy::Merge,
        non_finite_float_policy: NonFiniteFloatPolicy::Reject,
        // `yes`, `0755` and `1_000` are texts: authors can write other values in another way.
        strict_booleans: true,
        leading_zero_numbers_as_strings: true,
        underscored_numbers_as_strings: true,
        reject_unsupported_tags: true,
        with_snippet: false,
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: limits.replayed,
        },
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(number(MAX_BYTES)),
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: limits.nodes,
            // A start and an end per value, plus the document and the stream; aliases have none.
            max_events: 2 * limits.nodes + limits.replayed + 10,
            max_recorded_anchor_events: 2 * limits.nodes + limits.replayed,
            // The limit is on what aliases add: one anchor can be used in many places.
            max_anchors: limits.nodes,
            max_aliases: limits.replayed,
            max_merge_keys: limits.replayed,
            enforce_alias_anchor_ratio: false,
        },
    }
}

/// The parser's own messages mention its options, which authors of files do not know.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library has many errors, and most messages are usable"
)]
fn said(problem: &Error, limits: Limits) -> String {
    match problem {
        Error::AliasReplayLimitExceeded { .. } => too_many_aliases(limits),
        Error::Budget { breach, .. } => match breach {
            BudgetBreach::Depth { .. } => too_deep(),
            BudgetBreach::Nodes { .. } | BudgetBreach::Events { .. } => {
                let most = limits.nodes;
                format!("it has more than {most} keys and values: divide it into several files")
            }
            BudgetBreach::Aliases { .. } | BudgetBreach::MergeKeys { .. } => {
                too_many_aliases(limits)
            }
            other => format!("it exceeds a limit: {other:?}"),
        },
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key {key} occurs twice")
        }
        Error::DuplicateMappingKey { key: None, .. } => "a key occurs twice".to_owned(),
        Error::MultipleDocuments { .. } => {
            "it contains several documents: write each into its own file".to_owned()
        }
        Error::NonFiniteFloat { value, .. } => format!("{value} is not a number in JSON"),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias is inside its own anchor".to_owned()
        }
        Error::BinaryNotUtf8 { .. } => "the content of this !!binary is not text".to_owned(),
        Error::NullIntoString { .. } => "a key must be a text".to_owned(),
        Error::Unexpected { expected, .. } if *expected == KEY => "a key must be a text".to_owned(),
        other => without_place(&other.to_string()).to_owned(),
    }
}

fn too_many_aliases(limits: Limits) -> String {
    let most = limits.replayed;
    format!(
        "its aliases stand for more than {most} keys and values together: write less of it with aliases"
    )
}

/// The parser also appends the position.
fn without_place(text: &str) -> &str {
    text.rfind(" at line ").map_or(text, |at| &text[..at])
}

fn number(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    fn parsed(text: &str, limits: Limits) -> Result<Value, String> {
        parse_within(text, limits).map_err(|problem| problem.text)
    }

    #[test]
    fn the_number_of_keys_and_values_is_limited() {
        let limit = 50;
        let limits = Limits {
            nodes: limit,
            ..Limits::USUAL
        };
        for count in sizes_around("files::yaml::MAX_NODES", limit) {
            // The list itself counts, too.
            let n_items = count.saturating_sub(1);
            for item in ["1", "[]"] {
                let list = "[".to_owned() + &vec![item; n_items].join(", ") + "]";
                match parsed(&list, limits) {
                    Ok(read) => {
                        assert!(count <= limit, "{count}");
                        assert_eq!(read.as_array().unwrap().len(), n_items);
                    }
                    Err(refused) => {
                        assert!(count > limit, "{count}: {refused}");
                        let expected = "more than 50 keys and values: divide it";
                        assert!(refused.contains(expected), "{refused}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_nodes_that_aliases_add_are_limited() {
        let limit = 200;
        let limits = Limits {
            replayed: limit,
            ..Limits::USUAL
        };
        for count in sizes_around("files::yaml::MAX_REPLAYED_NODES", limit) {
            let text = "- &one 1\n".to_owned() + &"- *one\n".repeat(count);
            match parsed(&text, limits) {
                Ok(read) => {
                    assert!(count <= limit, "{count}");
                    assert_eq!(read, json!(vec![1; count + 1]));
                }
                Err(refused) => {
                    assert!(count > limit, "{count}: {refused}");
                    let expected = "aliases stand for more than 200 keys and values";
                    assert!(refused.contains(expected), "{refused}");
                }
            }
        }
        // The usual limit is far above what people write, with one anchor for all.
        let merged = "- &one {a: 1}\n".to_owned() + &"- {<<: *one, b: 2}\n".repeat(2_000);
        let read = parse(&merged).unwrap();
        assert_eq!(read[2_000], json!({"a": 1, "b": 2}));
    }
}
