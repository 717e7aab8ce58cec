//! The evaluator: a rule set compiled for many evaluations.

use std::collections::HashMap;
use std::fmt;
use std::sync::Arc;

use serde_json::Map;

use crate::assign::assign;
use crate::attributes::Attributes;
use crate::evaluated::Evaluated;
use crate::explain::Explanation;
use crate::origins::{self, Evaluation};
use crate::resolve::resolve;
use crate::results::{ResultCache, ResultKey};
use crate::rule::Rule;
use crate::set::RuleSet;
use crate::table::Table;

/// A compiled rule set. It caches results by the rules that apply, within bounds, and shares them.
///
/// Cloning is cheap, and clones share the cache.
#[derive(Clone)]
pub struct Evaluator {
    set: RuleSet,
    table: Arc<Table>,
    /// A number for what each rule assigns. Evaluators of later versions share these numbers: equal
    /// numbers mean equal assignments.
    numbers: Arc<[u64]>,
    /// Whether any rule has references or elements.
    is_extended: bool,
    results: Arc<ResultCache>,
}

impl Evaluator {
    /// Compiles a rule set.
    pub fn new(set: &RuleSet) -> Self {
        Self::with_cache(set, ResultCache::new().into(), |_| None)
    }

    fn with_cache(
        set: &RuleSet,
        results: Arc<ResultCache>,
        number_of: impl Fn(&Rule) -> Option<u64>,
    ) -> Self {
        let new_number = || results.next_number();
        let numbers = set
            .rules()
            .iter()
            .map(|rule| number_of(rule).unwrap_or_else(new_number))
            .collect();
        Self {
            set: set.clone(),
            table: Arc::new(Table::new(set)),
            numbers,
            is_extended: set.rules().iter().any(Rule::is_extended),
            results,
        }
    }

    /// The evaluator of another version of the set. It keeps the results that are still valid;
    /// `places` has the place of each of the present rules, by id.
    pub(crate) fn next(&self, next: &RuleSet, places: &HashMap<&str, usize>) -> Self {
        Self::with_cache(next, self.results.clone(), |rule| {
            let place = *places.get(rule.id())?;
            let same = self.set.rules()[place].assigns_as(rule);
            same.then_some(self.numbers[place])
        })
    }

    /// The rule set that was compiled.
    pub fn set(&self) -> &RuleSet {
        &self.set
    }

    /// The rules that apply, in their order.
    pub fn applying(&self, attributes: &Attributes) -> Vec<&Rule> {
        let rules = self.set.rules();
        let applying = self.table.applying(attributes).into_iter();
        applying.map(|index| &rules[index]).collect()
    }

    /// The numbers of what the applying rules assign: equal numbers mean equal results and origins.
    pub(crate) fn applying_numbers(&self, attributes: &Attributes) -> Vec<u64> {
        let applying = self.table.applying(attributes).into_iter();
        applying.map(|index| self.numbers[index]).collect()
    }

    /// Evaluates the set: assigns the values of the applying rules, in order, to an empty object,
    /// and then resolves the references.
    pub fn evaluate(&self, attributes: &Attributes) -> Arc<Evaluated> {
        let applying = self.table.applying(attributes);
        let key = ResultKey {
            rules: applying.iter().map(|index| self.numbers[*index]).collect(),
            referenced: if self.is_extended {
                self.referenced(&applying, attributes)
            } else {
                Box::default()
            },
        };
        self.results.get(key, || {
            if self.is_extended {
                return self.evaluate_extended(&applying, attributes);
            }
            let mut values = Map::new();
            for index in applying {
                assign(&mut values, self.set.rules()[index].values());
            }
            values.sort_keys();
            Evaluated {
                values,
                errors: Vec::new(),
            }
        })
    }

    /// The values of the conditions that the rules refer to, as a part of a key.
    fn referenced(&self, applying: &[usize], attributes: &Attributes) -> Box<str> {
        let mut text = String::new();
        for index in applying {
            for name in self.set.rules()[*index].referenced_names() {
                match attributes.get(name) {
                    Some(value) => text.extend([&value.len().to_string(), ":", value]),
                    None => text.push('-'),
                }
            }
        }
        text.into()
    }

    fn evaluate_extended(&self, applying: &[usize], attributes: &Attributes) -> Evaluated {
        let mut values = Map::new();
        let mut has_errors = false;
        for index in applying {
            let rule = &self.set.rules()[*index];
            assign(&mut values, rule.marked_values());
            rule.elements().apply(&mut values, |_, _| has_errors = true);
        }
        let (mut values, unresolved) = resolve(values, attributes);
        values.sort_keys();
        let errors = if has_errors || !unresolved.is_empty() {
            // Slower, but it knows the rules.
            self.evaluate_with_origins(attributes).errors
        } else {
            Vec::new()
        };
        Evaluated { values, errors }
    }

    /// Evaluates the set and returns the origin of every value too.
    pub fn evaluate_with_origins(&self, attributes: &Attributes) -> Evaluation {
        origins::evaluate(&self.applying(attributes), attributes)
    }

    /// Explains step by step where the value at a JSON pointer comes from. For an object, this
    /// includes the steps inside it.
    pub fn explain(&self, attributes: &Attributes, pointer: &str) -> Explanation {
        Explanation::of(attributes, pointer, &self.applying(attributes))
    }
}

impl fmt::Debug for Evaluator {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut debug = formatter.debug_struct("Evaluator");
        debug.field("set", &self.set).finish_non_exhaustive()
    }
}
