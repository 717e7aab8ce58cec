//! What an edit of a rule set can change, told for each evaluation without evaluating.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::conditions::Conditions;
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
    /// When the rules apply that were added, removed, changed or moved, as they were and as they are.
    /// Where none of them applies, the same rules are evaluated in the same order.
    conditions: Vec<Conditions>,
}

impl Evaluator {
    /// The evaluator of another version of the set. It keeps the results that are still true, and the
    /// [`Change`] says whose result could be another.
    #[must_use]
    pub fn succeed(&self, next: &RuleSet) -> (Self, Change) {
        let rules = self.set().rules();
        let places: HashMap<&str, usize> = rules.iter().map(Rule::id).zip(0..).collect();
        let evaluator = self.next(next, &places);
        let change = Change {
            conditions: changed(self.set(), evaluator.set(), &places),
            old: self.clone(),
            new: evaluator.clone(),
        };
        (evaluator, change)
    }
}

impl Change {
    /// Whether the result, or the origin of a value in it, could be another than before.
    #[must_use]
    pub fn touches(&self, presented: &Presented) -> bool {
        let hold = |conditions: &Conditions| conditions.hold(presented);
        if self.conditions.len() <= FEW && !self.conditions.iter().any(hold) {
            return false;
        }
        self.old.applying_numbers(presented) != self.new.applying_numbers(presented)
    }

    /// Whether anything could be touched that is presented with this, whatever else is: to pass over many at once.
    #[must_use]
    pub fn may_touch(&self, known: &Presented) -> bool {
        let mut conditions = self.conditions.iter();
        self.conditions.len() > FEW || conditions.any(|conditions| conditions.may_hold(known))
    }
}

impl fmt::Debug for Change {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Change");
        debug
            .field("conditions", &self.conditions)
            .finish_non_exhaustive()
    }
}

/// The conditions of all rules but the most that stand in both sets in one order.
fn changed(old: &RuleSet, new: &RuleSet, places: &HashMap<&str, usize>) -> Vec<Conditions> {
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
    let old_kept: HashSet<usize> = in_order.iter().map(|(old, _)| *old).collect();
    let new_kept: HashSet<usize> = in_order.iter().map(|(_, new)| *new).collect();
    let mut conditions = Vec::new();
    for (set, kept) in [(old, old_kept), (new, new_kept)] {
        let rules = set.rules().iter().enumerate();
        let others = rules.filter(|(place, _)| !kept.contains(place));
        conditions.extend(others.map(|(_, rule)| rule.conditions().clone()));
    }
    // Most edits leave the conditions of a rule as they were.
    conditions.dedup();
    conditions
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
