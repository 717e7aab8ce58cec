//! YAML 1.2 as values: no surprises of older versions, and nothing that grows when it is read.

use serde_json::Value;
use serde_saphyr::budget::BudgetBreach;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Options, from_str_with_options};

use super::place::Problem;
use super::{MAX_BYTES, MAX_DEPTH, too_deep};

/// What aliases may add to a document.
const MAX_REPLAYED_NODES: usize = 200_000;
/// Values, and keys.
const MAX_NODES: usize = 2_000_000;
/// What it expects where a key stands.
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
        // `yes`, `0755` and `1_000` are texts: people who mean something else write that.
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
            // Each may begin and end; so do the document and the text, and aliases are none.
            max_events: 2 * limits.nodes + limits.replayed + 10,
            max_recorded_anchor_events: 2 * limits.nodes + limits.replayed,
            // What they may add is what counts: one anchor can serve in many places.
            max_anchors: limits.nodes,
            max_aliases: limits.replayed,
            max_merge_keys: limits.replayed,
            enforce_alias_anchor_ratio: false,
        },
    }
}

/// Its own words speak of its options, which are not for those who write files.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's errors are many, and for most its words do"
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
            other => format!("it is more than is read of a file: {other:?}"),
        },
        Error::DuplicateMappingKey { key: Some(key), .. } => {
            format!("the key {key} stands here twice")
        }
        Error::DuplicateMappingKey { key: None, .. } => "a key stands here twice".to_owned(),
        Error::MultipleDocuments { .. } => {
            "it holds several documents: write each into a file of its own".to_owned()
        }
        Error::NonFiniteFloat { value, .. } => format!("JSON has no such number as {value}"),
        Error::RecursiveReferencesRequireWeakTypes { .. } => {
            "an alias stands within what it stands for".to_owned()
        }
        Error::BinaryNotUtf8 { .. } => "what is in this !!binary is no text".to_owned(),
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

/// The parser says the place at the end as well.
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
    fn a_document_has_so_many_keys_and_values_and_no_more() {
        let limit = 50;
        let limits = Limits {
            nodes: limit,
            ..Limits::USUAL
        };
        for count in sizes_around("files::yaml::MAX_NODES", limit) {
            // The list itself is one of them.
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
    fn aliases_stand_for_so_many_keys_and_values_and_no_more() {
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
        // What is usual is far beyond what people write, with one anchor for all of it.
        let merged = "- &one {a: 1}\n".to_owned() + &"- {<<: *one, b: 2}\n".repeat(2_000);
        let read = parse(&merged).unwrap();
        assert_eq!(read[2_000], json!({"a": 1, "b": 2}));
    }
}
