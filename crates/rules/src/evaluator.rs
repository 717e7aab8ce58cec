//! A rule set made ready to be evaluated many times.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::{Map, Value};

use crate::assign::assign;
use crate::explain::Explanation;
use crate::origins::{self, Evaluation};
use crate::presented::Presented;
use crate::results::Results;
use crate::rule::Rule;
use crate::set::RuleSet;
use crate::table::Table;

/// The compiled form of a rule set. Results are kept by which rules apply, within bounds, and shared.
///
/// Cloning is cheap, and clones share what they know.
#[derive(Clone)]
pub struct Evaluator {
    set: RuleSet,
    table: Arc<Table>,
    /// What each rule assigns, as a number that successors share: equal numbers, equal assignments.
    numbers: Arc<[u64]>,
    results: Arc<Results>,
}

impl Evaluator {
    /// Makes a rule set ready.
    #[must_use]
    pub fn new(set: &RuleSet) -> Self {
        Self::knowing(set, Results::new().into(), |_| None)
    }

    fn knowing(
        set: &RuleSet,
        results: Arc<Results>,
        number_of: impl Fn(&Rule) -> Option<u64>,
    ) -> Self {
        let fresh = || results.number();
        let numbers = set
            .rules()
            .iter()
            .map(|rule| number_of(rule).unwrap_or_else(fresh))
            .collect();
        Self {
            set: set.clone(),
            table: Arc::new(Table::new(set)),
            numbers,
            results,
        }
    }

    /// The evaluator of another version of the set. It keeps the results that are still true;
    /// `places` has the place of each of the present rules, by id.
    pub(crate) fn next(&self, next: &RuleSet, places: &HashMap<&str, usize>) -> Self {
        Self::knowing(next, self.results.clone(), |rule| {
            let place = *places.get(rule.id())?;
            let same = self.set.rules()[place].assigns_as(rule);
            same.then_some(self.numbers[place])
        })
    }

    /// The set.
    #[must_use]
    pub fn set(&self) -> &RuleSet {
        &self.set
    }

    /// The rules that apply, in their order.
    #[must_use]
    pub fn applying(&self, presented: &Presented) -> Vec<&Rule> {
        let rules = self.set.rules();
        let applying = self.table.applying(presented).into_iter();
        applying.map(|index| &rules[index]).collect()
    }

    /// What the applying rules assign, as numbers: equal numbers, equal results and origins.
    pub(crate) fn applying_numbers(&self, presented: &Presented) -> Vec<u64> {
        let applying = self.table.applying(presented).into_iter();
        applying.map(|index| self.numbers[index]).collect()
    }

    /// The result: what the applying rules assign, one after the other, to an empty object.
    #[must_use]
    pub fn evaluate(&self, presented: &Presented) -> Arc<Map<String, Value>> {
        let applying = self.table.applying(presented);
        let key = applying.iter().map(|index| self.numbers[*index]).collect();
        self.results.get(key, || {
            let mut result = Map::new();
            for index in applying {
                assign(&mut result, self.set.rules()[index].values());
            }
            result.sort_keys();
            result
        })
    }

    /// The result with the origin of every value in it.
    #[must_use]
    pub fn evaluate_with_origins(&self, presented: &Presented) -> Evaluation {
        origins::evaluate(&self.applying(presented))
    }

    /// How the value at a JSON pointer came to be what it is, step by step. A pointer to an object
    /// tells all that happened to it or within it.
    #[must_use]
    pub fn explain(&self, presented: &Presented, pointer: &str) -> Explanation {
        Explanation::of(presented, pointer, &self.applying(presented))
    }
}

impl fmt::Debug for Evaluator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Evaluator");
        debug.field("set", &self.set).finish_non_exhaustive()
    }
}
