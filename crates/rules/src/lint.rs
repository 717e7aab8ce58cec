//! Lints: finds errors and unnecessary parts in a rule set, given all attributes of its
//! evaluations.

mod dead;
mod duplicates;
mod matching;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::fmt;

use serde::Serialize;

use crate::attributes::Attributes;
use crate::set::RuleSet;
use crate::shadowed;
use crate::table::Table;

/// A likely error, or an unnecessary part. The rule set is valid all the same.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(
    tag = "finding",
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub enum Finding {
    /// The rule never applies.
    NeverApplies {
        /// The rule.
        rule_id: String,
        /// The conditions without which it would apply.
        #[serde(skip_serializing_if = "Vec::is_empty")]
        obstacles: Vec<Obstacle>,
    },
    /// A condition has a name that no evaluation has.
    #[serde(rename = "nameNotPresented")]
    UnknownName {
        /// The rule.
        rule_id: String,
        /// The condition, as a JSON pointer inside the rule.
        path: String,
        /// The name of the condition.
        name: String,
        /// `, did you mean "region"?`, or empty.
        hint: String,
    },
    /// A pattern matches none of the values of its name.
    PatternMatchesNothing {
        /// The rule.
        rule_id: String,
        /// The pattern, as a JSON pointer inside the rule.
        path: String,
        /// The pattern.
        pattern: String,
    },
    /// Wherever the rule applies, later rules override or delete these values.
    DeadValues {
        /// The rule.
        rule_id: String,
        /// JSON pointers inside its values.
        pointers: Vec<String>,
        /// The later rules.
        by: Vec<String>,
    },
    /// Wherever the rule applies, later rules override or delete all its values.
    DeadRule {
        /// The rule.
        rule_id: String,
        /// The later rules.
        by: Vec<String>,
    },
    /// Wherever the rule applies, its `null` at these places has nothing to delete.
    DeletesNothing {
        /// The rule.
        rule_id: String,
        /// JSON pointers inside its values.
        pointers: Vec<String>,
    },
    /// No condition names the set.
    UnusedSet {
        /// The set.
        name: String,
    },
    /// A pattern of a set matches no value of the conditions that name the set.
    SetPatternMatchesNothing {
        /// The pattern, as a JSON pointer inside the sets.
        path: String,
        /// The pattern.
        pattern: String,
    },
    /// The rule has `references: true`, and no text of it has one.
    NoReferences {
        /// The rule.
        rule_id: String,
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
    /// These adjacent rules have the same conditions.
    CouldBeOne {
        /// The rules, in their order.
        rule_ids: Vec<String>,
    },
}

/// A condition that never matches together with the other conditions of its mapping.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Obstacle {
    /// The condition, as a JSON pointer inside the rule.
    pub path: String,
    /// Its values in the evaluations that all other conditions match.
    pub values: Vec<String>,
}

/// The ids of the rules without a description.
pub fn without_description(set: &RuleSet) -> Vec<String> {
    let rules = set.rules().iter();
    let silent = rules.filter(|rule| rule.description().trim().is_empty());
    silent.map(|rule| rule.id().to_owned()).collect()
}

/// Finds likely errors and unnecessary parts. `evaluations` are the attributes of all evaluations.
/// Without any, only duplicate and empty rules are found. Findings are ordered by their rules.
pub fn lint(set: &RuleSet, evaluations: &[Attributes]) -> Vec<Finding> {
    let mut findings: Vec<(usize, Finding)> = Vec::new();
    duplicates::find(set, &mut findings);
    if !evaluations.is_empty() {
        let groups = groups(set, evaluations);
        matching::find(set, evaluations, &groups, &mut findings);
        dead::find(set, &groups, &mut findings);
    }
    findings.sort_by_key(|(rule, _)| *rule);
    findings.into_iter().map(|(_, finding)| finding).collect()
}

/// Finds what can be found without the attributes of the evaluations: duplicates, values that a
/// later rule always replaces, and patterns of conditions of which all values are `known`. Findings
/// are ordered by their rules.
pub fn lint_without_evaluations(
    set: &RuleSet,
    known: &BTreeMap<&str, BTreeSet<&str>>,
) -> Vec<Finding> {
    let mut findings: Vec<(usize, Finding)> = Vec::new();
    duplicates::find(set, &mut findings);
    let id = |rule: &usize| set.rules()[*rule].id().to_owned();
    for shadowed in shadowed::find(set) {
        let (rule_id, by) = (id(&shadowed.rule), shadowed.by.iter().map(id).collect());
        let pointers = shadowed.pointers;
        let finding = match shadowed.is_complete {
            true => Finding::DeadRule { rule_id, by },
            false => Finding::DeadValues {
                rule_id,
                pointers,
                by,
            },
        };
        findings.push((shadowed.rule, finding));
    }
    matching::find_by_values(set, known, &mut findings);
    findings.sort_by_key(|(rule, _)| *rule);
    findings.into_iter().map(|(_, finding)| finding).collect()
}

/// The indices of the applying rules: each distinct list once, in the order of first use.
fn groups(set: &RuleSet, evaluations: &[Attributes]) -> Vec<Vec<usize>> {
    let table = Table::new(set);
    let mut known = HashSet::new();
    let groups = evaluations
        .iter()
        .map(|attributes| table.applying(attributes));
    groups.filter(|group| known.insert(group.clone())).collect()
}

impl Finding {
    /// The rules of the finding, in their order; none if it is about a set.
    pub fn rule_ids(&self) -> &[String] {
        match self {
            Self::NeverApplies { rule_id, .. }
            | Self::UnknownName { rule_id, .. }
            | Self::PatternMatchesNothing { rule_id, .. }
            | Self::DeadValues { rule_id, .. }
            | Self::DeadRule { rule_id, .. }
            | Self::DeletesNothing { rule_id, .. }
            | Self::NoReferences { rule_id }
            | Self::Empty { rule_id } => std::slice::from_ref(rule_id),
            Self::UnusedSet { .. } | Self::SetPatternMatchesNothing { .. } => &[],
            Self::Repeated { rule_ids }
            | Self::SameValues { rule_ids }
            | Self::CouldBeOne { rule_ids } => rule_ids,
        }
    }
}

impl Finding {
    /// The place in the first rule, as a JSON pointer; empty for the rule itself.
    pub fn path(&self) -> &str {
        match self {
            Self::UnknownName { path, .. }
            | Self::PatternMatchesNothing { path, .. }
            | Self::SetPatternMatchesNothing { path, .. } => path,
            Self::UnusedSet { .. }
            | Self::NoReferences { .. }
            | Self::NeverApplies { .. }
            | Self::DeadValues { .. }
            | Self::DeadRule { .. }
            | Self::DeletesNothing { .. }
            | Self::Empty { .. }
            | Self::Repeated { .. }
            | Self::SameValues { .. }
            | Self::CouldBeOne { .. } => "",
        }
    }

    /// The conditions that stop a rule that never applies.
    pub fn obstacles(&self) -> &[Obstacle] {
        if let Self::NeverApplies { obstacles, .. } = self {
            return obstacles;
        }
        &[]
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.rule_ids().is_empty() {
            write!(formatter, "{}: ", IdList(self.rule_ids()))?;
        }
        match self {
            Self::UnusedSet { name } => write!(formatter, "sets: no condition names {name:?}"),
            Self::SetPatternMatchesNothing { path, pattern } => write!(
                formatter,
                "sets: {path}: {pattern:?} matches no value of the conditions with this set"
            ),
            Self::NoReferences { .. } => {
                formatter.write_str("has no ${…} in its texts: remove `references`")
            }
            Self::NeverApplies { obstacles, .. } => {
                formatter.write_str("never applies: no place has these conditions")?;
                let shown = obstacles.iter().take(IdList::SHOWN);
                shown
                    .into_iter()
                    .try_for_each(|it| write!(formatter, "; {it}"))
            }
            Self::UnknownName {
                path, name, hint, ..
            } => write!(formatter, "{path}: no place has a condition {name:?}{hint}"),
            Self::PatternMatchesNothing { path, pattern, .. } => write!(
                formatter,
                "{path}: {pattern:?} matches no value of this condition"
            ),
            Self::DeadValues { pointers, by, .. } => write!(
                formatter,
                "{} have no effect: {} overrides or deletes them",
                pointers.join(", "),
                IdList(by)
            ),
            Self::DeadRule { by, .. } => write!(
                formatter,
                "no value has an effect: {} overrides or deletes them",
                IdList(by)
            ),
            Self::DeletesNothing { pointers, .. } => {
                let pointers = pointers.join(", ");
                write!(formatter, "null at {pointers} has nothing to delete")
            }
            Self::Empty { .. } => formatter.write_str("has no values"),
            Self::Repeated { .. } => formatter.write_str("have the same conditions and values"),
            Self::SameValues { .. } => formatter.write_str(
                "have the same values: one rule with a list of conditions has the same effect",
            ),
            Self::CouldBeOne { .. } => {
                formatter.write_str("are adjacent and have the same conditions: join them")
            }
        }
    }
}

impl fmt::Display for Obstacle {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, values) = (&self.path, IdList(&self.values));
        write!(formatter, "{path} is {values} where all others match")
    }
}

/// Displays ids like `"a", "b" and 7 more`.
pub struct IdList<'a>(pub &'a [String]);

impl IdList<'_> {
    const SHOWN: usize = 5;
}

impl fmt::Display for IdList<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, id) in self.0.iter().take(Self::SHOWN).enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(formatter, "{separator}{id:?}")?;
        }
        match self.0.len().saturating_sub(Self::SHOWN) {
            0 => Ok(()),
            more => write!(formatter, " and {more} more"),
        }
    }
}
