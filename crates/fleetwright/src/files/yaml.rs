//! YAML 1.2 as values: no surprises of older versions, and nothing that grows when it is read.

use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Error, Options, from_str_with_options};

use super::place::Problem;
use super::{MAX_BYTES, MAX_DEPTH};

/// What aliases may add to a document.
const MAX_REPLAYED_NODES: usize = 200_000;
/// What it expects where a key stands.
const KEY: &str = "string scalar";
const MAX_NODES: usize = 2_000_000;

pub(super) fn parse(text: &str) -> Result<Value, Problem> {
    from_str_with_options(text, options()).map_err(|problem| {
        let problem = problem.without_snippet();
        let place = problem.location();
        let said = said(problem);
        match place {
            Some(place) => Problem::at(number(place.line()), number(place.column()), &said),
            None => Problem::somewhere(said),
        }
    })
}

fn options() -> Options {
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
            max_total_replayed_events: MAX_REPLAYED_NODES,
        },
        budget: serde_saphyr::budget! {
            max_reader_input_bytes: Some(number(MAX_BYTES)),
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_nodes: MAX_NODES,
            max_events: 2 * MAX_NODES,
        },
    }
}

/// Its own words speak of its options, which are not for those who write files.
#[expect(
    clippy::wildcard_enum_match_arm,
    reason = "the library's errors are many, and for most its words do"
)]
fn said(problem: &Error) -> String {
    match problem {
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

/// The parser says the place at the end as well.
fn without_place(text: &str) -> &str {
    text.rfind(" at line ").map_or(text, |at| &text[..at])
}

fn number(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}
