//! A rule set made ready to be evaluated many times.

use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Map, Value};

use crate::assign::assign;
use crate::change::Change;
use crate::explain::Explanation;
use crate::origins::{self, Evaluation};
use crate::presented::Presented;
use crate::recent::Recent;
use crate::rule::Rule;
use crate::set::RuleSet;
use crate::table::Table;

/// What the results of one generation may weigh, in bytes as estimated by [`weight`].
const RESULTS_KEPT: usize = 24 * 1024 * 1024;

/// The compiled form of a rule set. Results are kept by which rules apply, within bounds, and shared.
///
/// Cloning is cheap, and clones share what they know.
#[derive(Clone)]
pub struct Evaluator {
    set: RuleSet,
    table: Arc<Table>,
    /// What each rule assigns, as a number that successors share: equal numbers, equal assignments.
    numbers: Arc<[u32]>,
    results: Arc<Results>,
}

type Shared = Arc<Map<String, Value>>;

/// Kept by an evaluator together with its successors.
struct Results {
    next_number: AtomicU32,
    /// By the numbers of the rules that apply, in their order.
    known: Mutex<Recent<Box<[u32]>, Shared>>,
}

impl Results {
    fn new() -> Self {
        Self {
            next_number: AtomicU32::new(0),
            known: Mutex::new(Recent::new(RESULTS_KEPT)),
        }
    }
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
        number_of: impl Fn(&Rule) -> Option<u32>,
    ) -> Self {
        let fresh = || results.next_number.fetch_add(1, Ordering::Relaxed);
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

    /// The evaluator of another version of the set. It keeps the results that are still true, and the
    /// [`Change`] says whose result could be another.
    #[must_use]
    pub fn succeed(&self, next: &RuleSet) -> (Self, Change) {
        let used = self.results.next_number.load(Ordering::Relaxed);
        let evaluator = if used > u32::MAX / 2 {
            Self::new(next)
        } else {
            let rules = self.set.rules().iter().zip(self.numbers.iter());
            let known: HashMap<&str, (&Rule, u32)> = rules
                .map(|(rule, number)| (rule.id(), (rule, *number)))
                .collect();
            Self::knowing(next, self.results.clone(), |rule| {
                let (old, number) = known.get(rule.id())?;
                old.assigns_as(rule).then_some(*number)
            })
        };
        let change = Change::between(self, &evaluator);
        (evaluator, change)
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
    pub(crate) fn applying_numbers(&self, presented: &Presented) -> Vec<u32> {
        let applying = self.table.applying(presented).into_iter();
        applying.map(|index| self.numbers[index]).collect()
    }

    /// The result: what the applying rules assign, one after the other, to an empty object.
    #[must_use]
    pub fn evaluate(&self, presented: &Presented) -> Arc<Map<String, Value>> {
        let applying = self.table.applying(presented);
        let key: Box<[u32]> = applying.iter().map(|index| self.numbers[*index]).collect();
        let known = || {
            let known = self.results.known.lock();
            known.unwrap_or_else(PoisonError::into_inner)
        };
        if let Some(result) = known().get(&key) {
            return result;
        }
        let mut result = Map::new();
        for index in applying {
            assign(&mut result, self.set.rules()[index].values());
        }
        result.sort_keys();
        let result = Arc::new(result);
        let weight = size_of_val(&*key) + weight(&result);
        known().insert(key, result.clone(), weight);
        result
    }

    /// The result with the origin of every value in it.
    #[must_use]
    pub fn evaluate_with_origins(&self, presented: &Presented) -> Evaluation {
        origins::trace(&self.applying(presented))
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

/// About how many bytes an object takes: the nodes of its trees, and its texts.
fn weight(object: &Map<String, Value>) -> usize {
    let entries = object
        .iter()
        .map(|(key, value)| key.len() + weight_of(value));
    64 * (object.len() + 6) + entries.sum::<usize>()
}

fn weight_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(|item| 32 + weight_of(item)).sum(),
        Value::Object(object) => weight(object),
    }
}
