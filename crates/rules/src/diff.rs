//! The difference between two versions of a rule set, and the evaluations that it affects.

use std::collections::{HashMap, HashSet};
use std::fmt;

use crate::attributes::Attributes;
use crate::conditions::Conditions;
use crate::evaluator::Evaluator;
use crate::rule::Rule;
use crate::set::RuleSet;

/// Above this number of changed rules, it is cheaper to find all applying rules than to test each
/// changed rule.
const MAX_TESTED_RULES: usize = 16;

/// The difference between two versions of a rule set.
#[derive(Clone)]
pub struct RuleSetDiff {
    old: Evaluator,
    new: Evaluator,
    /// The conditions of the added, removed, changed and moved rules, in the old and in the new
    /// version. Where none of them holds, both versions apply the same rules in the same order.
    conditions: Vec<Conditions>,
}

impl Evaluator {
    /// The evaluator of another version of the set, and the difference. The evaluator keeps the
    /// results that are still valid.
    pub fn succeed(&self, next: &RuleSet) -> (Self, RuleSetDiff) {
        let rules = self.set().rules();
        let places: HashMap<&str, usize> = rules.iter().map(Rule::id).zip(0..).collect();
        let evaluator = self.next(next, &places);
        let change = RuleSetDiff {
            conditions: changed(self.set(), evaluator.set(), &places),
            old: self.clone(),
            new: evaluator.clone(),
        };
        (evaluator, change)
    }
}

impl RuleSetDiff {
    /// Whether the result, or the origin of a value in it, may differ from before.
    pub fn affects(&self, attributes: &Attributes) -> bool {
        let hold = |conditions: &Conditions| conditions.hold(attributes);
        if self.conditions.len() <= MAX_TESTED_RULES && !self.conditions.iter().any(hold) {
            return false;
        }
        self.old.applying_numbers(attributes) != self.new.applying_numbers(attributes)
    }

    /// Whether any evaluation with these attributes may be affected, whatever its other attributes
    /// are. With this, a caller can skip many evaluations at once.
    pub fn may_affect(&self, known: &Attributes) -> bool {
        let mut conditions = self.conditions.iter();
        self.conditions.len() > MAX_TESTED_RULES
            || conditions.any(|conditions| conditions.may_hold(known))
    }
}

impl fmt::Debug for RuleSetDiff {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("RuleSetDiff");
        debug
            .field("conditions", &self.conditions)
            .finish_non_exhaustive()
    }
}

/// The conditions of all rules except a longest run of rules that both sets have in the same order.
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
    // The new places ascend already.
    let in_order = longest_ascending(&kept, |(old_place, _)| *old_place);
    let old_kept: HashSet<usize> = in_order.iter().map(|(old, _)| *old).collect();
    let new_kept: HashSet<usize> = in_order.iter().map(|(_, new)| *new).collect();
    let mut conditions = Vec::new();
    for (set, kept) in [(old, old_kept), (new, new_kept)] {
        let rules = set.rules().iter().enumerate();
        let others = rules.filter(|(place, _)| !kept.contains(place));
        conditions.extend(others.map(|(_, rule)| rule.conditions().clone()));
    }
    // Most edits do not change the conditions of a rule.
    conditions.dedup_by(|left, right| left == right && left.has_sets_of(right));
    conditions
}

/// A longest selection of items whose numbers ascend. All numbers differ.
pub fn longest_ascending<T: Copy>(items: &[T], number: impl Fn(&T) -> usize) -> Vec<T> {
    // For each length, the selection of that length with the lowest end, as the index of its last
    // item.
    let mut ends: Vec<usize> = Vec::new();
    let mut before: Vec<Option<usize>> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let length = ends.partition_point(|end| number(&items[*end]) < number(item));
        before.push(length.checked_sub(1).map(|shorter| ends[shorter]));
        if length == ends.len() {
            ends.push(index);
        } else {
            ends[length] = index;
        }
    }
    let last = ends.last().copied();
    let selected = std::iter::successors(last, |index| before[*index]);
    selected.map(|index| items[index]).collect()
}
