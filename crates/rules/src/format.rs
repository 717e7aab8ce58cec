//! The one way to write a rule set: as people read it, and the same text for the same set.

use crate::set::RuleSet;

/// A rule set as indented JSON with a line break at its end. Each rule begins with its id and its
/// description, then its conditions and values; keys within these are sorted.
#[must_use]
pub fn format(set: &RuleSet) -> String {
    let mut text =
        serde_json::to_string_pretty(set).expect("rules have text keys and finite numbers");
    text.push('\n');
    text
}
