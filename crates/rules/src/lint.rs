//! What looks wrong or needless in a rule set, given everything that can be presented to it.

mod applicable;
mod dead;
mod doubled;

use std::collections::HashSet;
use std::fmt;

use serde::Serialize;

use crate::presented::Presented;
use crate::set::RuleSet;
use crate::table::Table;

/// Something that looks wrong or needless. The rule set means something all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "finding",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Finding {
    /// The rule applies to nothing that is presented.
    NeverApplies {
        /// The rule.
        rule_id: String,
    },
    /// The rule asks for a name that nobody presents.
    NameNotPresented {
        /// The rule.
        rule_id: String,
        /// Where it asks, as a JSON pointer within the rule.
        path: String,
        /// The name.
        name: String,
        /// `, did you mean "region"?`, or nothing.
        hint: String,
    },
    /// A pattern matches none of the values that are presented under its name.
    PatternMatchesNothing {
        /// The rule.
        rule_id: String,
        /// Where the pattern stands, as a JSON pointer within the rule.
        path: String,
        /// The pattern.
        pattern: String,
    },
    /// Wherever the rule applies, later rules override or delete these of its values.
    DeadValues {
        /// The rule.
        rule_id: String,
        /// JSON pointers within its values.
        pointers: Vec<String>,
        /// The rules that do so.
        by: Vec<String>,
    },
    /// Wherever the rule applies, later rules override or delete all of its values.
    DeadRule {
        /// The rule.
        rule_id: String,
        /// The rules that do so.
        by: Vec<String>,
    },
    /// Wherever the rule applies, there is nothing at these places that its `null` could delete.
    DeletesNothing {
        /// The rule.
        rule_id: String,
        /// JSON pointers within its values.
        pointers: Vec<String>,
    },
    /// The rule has no values.
    Empty {
        /// The rule.
        rule_id: String,
    },
    /// These rules have the same conditions and the same values.
    Repeated {
        /// The rules, in their order.
        rule_ids: Vec<String>,
    },
    /// These rules have the same values under different conditions.
    SameValues {
        /// The rules, in their order.
        rule_ids: Vec<String>,
    },
    /// These rules stand next to each other and have the same conditions.
    CouldBeOne {
        /// The rules, in their order.
        rule_ids: Vec<String>,
    },
}

/// Looks for what is wrong or needless. `presentations` are all that can be presented; without any,
/// only what is doubled or empty is found. Findings come in the order of the rules they are about.
#[must_use]
pub fn lint(set: &RuleSet, presentations: &[Presented]) -> Vec<Finding> {
    let mut findings: Vec<(usize, Finding)> = Vec::new();
    doubled::find(set, &mut findings);
    if !presentations.is_empty() {
        let groups = groups(set, presentations);
        applicable::find(set, presentations, &groups, &mut findings);
        dead::find(set, &groups, &mut findings);
    }
    findings.sort_by_key(|(rule, _)| *rule);
    findings.into_iter().map(|(_, finding)| finding).collect()
}

/// The indices of the rules that apply, each list once, as it first comes up.
fn groups(set: &RuleSet, presentations: &[Presented]) -> Vec<Vec<usize>> {
    let table = Table::new(set);
    let mut known = HashSet::new();
    let groups = presentations
        .iter()
        .map(|presented| table.applying(presented));
    groups.filter(|group| known.insert(group.clone())).collect()
}

impl Finding {
    /// The rules it is about, in their order.
    #[must_use]
    pub fn rule_ids(&self) -> &[String] {
        match self {
            Self::NeverApplies { rule_id }
            | Self::NameNotPresented { rule_id, .. }
            | Self::PatternMatchesNothing { rule_id, .. }
            | Self::DeadValues { rule_id, .. }
            | Self::DeadRule { rule_id, .. }
            | Self::DeletesNothing { rule_id, .. }
            | Self::Empty { rule_id } => std::slice::from_ref(rule_id),
            Self::Repeated { rule_ids }
            | Self::SameValues { rule_ids }
            | Self::CouldBeOne { rule_ids } => rule_ids,
        }
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: ", Listed(self.rule_ids()))?;
        match self {
            Self::NeverApplies { .. } => {
                formatter.write_str("applies to nothing that is presented")
            }
            Self::NameNotPresented {
                path, name, hint, ..
            } => write!(
                formatter,
                "{path} asks for {name:?}, which nobody presents{hint}"
            ),
            Self::PatternMatchesNothing { path, pattern, .. } => write!(
                formatter,
                "{path}: {pattern:?} matches none of the values that are presented"
            ),
            Self::DeadValues { pointers, by, .. } => write!(
                formatter,
                "{} never count, as {} overrides or deletes them",
                pointers.join(", "),
                Listed(by)
            ),
            Self::DeadRule { by, .. } => write!(
                formatter,
                "none of its values ever counts, as {} overrides or deletes them",
                Listed(by)
            ),
            Self::DeletesNothing { pointers, .. } => {
                let pointers = pointers.join(", ");
                write!(formatter, "there is never anything to delete at {pointers}")
            }
            Self::Empty { .. } => formatter.write_str("has no values"),
            Self::Repeated { .. } => formatter.write_str("have the same conditions and values"),
            Self::SameValues { .. } => formatter.write_str(
                "have the same values: one rule with a list of conditions could do the same",
            ),
            Self::CouldBeOne { .. } => {
                formatter.write_str("stand together with the same conditions and could be one rule")
            }
        }
    }
}

/// `"a", "b" and 7 more`.
struct Listed<'a>(&'a [String]);

impl fmt::Display for Listed<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 5;
        for (index, id) in self.0.iter().take(SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{id:?}")?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}
