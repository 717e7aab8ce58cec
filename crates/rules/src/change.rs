//! What an edit of a rule set can change, told for each evaluation without evaluating.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::evaluator::Evaluator;
use crate::presented::Presented;
use crate::rule::Rule;
use crate::set::RuleSet;

/// With more changed rules than this, asking each costs more than finding all that apply.
const FEW: usize = 16;

/// The difference between two versions of a rule set.
#[derive(Clone)]
pub struct Change {
    old: Evaluator,
    new: Evaluator,
    /// The rules that were added, removed, changed or moved, as they were and as they are. What none of
    /// them applies to is evaluated by the same rules in the same order.
    rules: Vec<Rule>,
}

impl Change {
    pub(crate) fn between(old: &Evaluator, new: &Evaluator) -> Self {
        Self {
            old: old.clone(),
            new: new.clone(),
            rules: changed(old.set(), new.set()),
        }
    }

    /// Whether the result, or the origin of a value in it, could be another than before.
    #[must_use]
    pub fn touches(&self, presented: &Presented) -> bool {
        let holds = |rule: &Rule| rule.conditions().hold(presented);
        if self.rules.len() <= FEW && !self.rules.iter().any(holds) {
            return false;
        }
        self.old.applying_numbers(presented) != self.new.applying_numbers(presented)
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Change");
        debug.field("rules", &self.rules).finish_non_exhaustive()
    }
}

/// All rules but the most that stand in both sets in one order. A rule that always applies and that
/// assigns the same at another place is among them, as its order to others may count.
fn changed(old: &RuleSet, new: &RuleSet) -> Vec<Rule> {
    let places: HashMap<&str, usize> = old.rules().iter().map(Rule::id).zip(0..).collect();
    let kept: Vec<(usize, usize)> = new
        .rules()
        .iter()
        .enumerate()
        .filter_map(|(new_place, rule)| {
            let old_place = *places.get(rule.id())?;
            let same = old.rules()[old_place].acts_as(rule);
            same.then_some((old_place, new_place))
        })
        .collect();
    let in_order = longest_ascending(&kept);
    let old_places: HashSet<usize> = in_order.iter().map(|(old, _)| *old).collect();
    let new_places: HashSet<usize> = in_order.iter().map(|(_, new)| *new).collect();
    let others = |set: &RuleSet, kept: HashSet<usize>| -> Vec<Rule> {
        let rules = set.rules().iter().enumerate();
        rules
            .filter(|(place, _)| !kept.contains(place))
            .map(|(_, rule)| rule.clone())
            .collect()
    };
    let mut rules = others(old, old_places);
    rules.extend(others(new, new_places));
    rules
}

/// A longest selection of pairs whose first numbers ascend; the second ones do.
fn longest_ascending(pairs: &[(usize, usize)]) -> Vec<(usize, usize)> {
    // For each length, the selection of that length that ends lowest, as the index of its last pair.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(pairs.len());
    for (index, pair) in pairs.iter().enumerate() {
        let length = ends.partition_point(|end| pairs[*end].0 < pair.0);
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let mut selected = Vec::with_capacity(ends.len());
    let mut next = ends.last().copied();
    while let Some(index) = next {
        selected.push(pairs[index]);
        next = before[index];
    }
    selected
}
