//! YAML 1.2 as values: no surprises of older versions, and nothing that grows when it is read.

use serde_json::Value;
use serde_saphyr::options::{DuplicateKeyPolicy, MergeKeyPolicy, NonFiniteFloatPolicy};
use serde_saphyr::{Options, from_str_with_options};

use super::place::Problem;
use super::{MAX_BYTES, MAX_DEPTH};

/// What aliases may add to a document.
const MAX_REPLAYED_NODES: usize = 200_000;
const MAX_NODES: usize = 2_000_000;

pub(super) fn parse(text: &str) -> Result<Value, Problem> {
    from_str_with_options(text, options()).map_err(|problem| {
        let problem = problem.without_snippet();
        let place = problem.location();
        let whole = problem.to_string();
        let said = without_place(&whole);
        match place {
            Some(place) => Problem::at(number(place.line()), number(place.column()), said),
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

/// The parser says the place at the end as well.
fn without_place(text: &str) -> &str {
    text.rfind(" at line ").map_or(text, |at| &text[..at])
}

fn number(of: u64) -> usize {
    usize::try_from(of).unwrap_or(usize::MAX)
}
