//! Formats a rule set as text for people, always the same text for the same set.

use crate::set::RuleSet;

/// The rule set as indented JSON, with a line break at the end. Each rule has its id first, then
/// its description, conditions and values. Keys inside these are sorted.
pub fn format(set: &RuleSet) -> String {
    let mut text =
        serde_json::to_string_pretty(set).expect("rules have text keys and finite numbers");
    text.push('\n');
    text
}
