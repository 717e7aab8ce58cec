//! Finds the applying rules without testing each: for each attribute, a bit set of the mappings
//! that remain possible.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::attributes::Attributes;
use crate::bit_set::BitSet;
use crate::cache::GenerationCache;
use crate::conditions::Conditions;
use crate::patterns::SetMatches;
use crate::rule::Rule;
use crate::set::RuleSet;

/// Values of one name that are cached at most, in each generation.
const MAX_CACHED_VALUES: usize = 2_048;

/// Longer values are not cached; no place has such a value.
const MAX_CACHED_VALUE_BYTES: usize = 256;

/// The conditions of a set, by name. Each mapping is a row, so a rule with several mappings has
/// several rows.
pub(crate) struct Table {
    set: RuleSet,
    rows: Vec<Row>,
    names: BTreeMap<String, Column>,
}

/// One mapping of one rule. A rule that always applies has a row without a mapping.
struct Row {
    rule: usize,
    mapping: usize,
}

/// The conditions of all rows on one name.
struct Column {
    /// The rows without a condition on the name: those that remain if the attribute is missing.
    without_condition: BitSet,
    /// The rows with a condition on the name.
    with_condition: Vec<usize>,
    known: Mutex<GenerationCache<String, Arc<BitSet>>>,
}

impl Table {
    pub(crate) fn new(set: &RuleSet) -> Self {
        let mut rows = Vec::with_capacity(set.rules().len());
        let mut asked: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
        for (rule, conditions) in set.rules().iter().map(Rule::conditions).enumerate() {
            if *conditions == Conditions::Always {
                rows.push(Row { rule, mapping: 0 });
            }
            for (index, mapping) in conditions.mappings().iter().enumerate() {
                for (name, _) in mapping.iter() {
                    asked.entry(name).or_default().push(rows.len());
                }
                rows.push(Row {
                    rule,
                    mapping: index,
                });
            }
        }
        let names = asked
            .into_iter()
            .map(|(name, with_condition)| {
                (name.to_owned(), Column::new(rows.len(), with_condition))
            })
            .collect();
        Self {
            set: set.clone(),
            rows,
            names,
        }
    }

    /// The indices of the applying rules, ascending.
    pub(crate) fn applying(&self, attributes: &Attributes) -> Vec<usize> {
        let mut left = BitSet::all(self.rows.len());
        for (name, column) in &self.names {
            match attributes.get(name) {
                Some(value) => left.intersect(&self.rows_left_by(name, column, value)),
                None => left.intersect(&column.without_condition),
            }
        }
        let mut rules: Vec<usize> = left.iter().map(|row| self.rows[row].rule).collect();
        rules.dedup();
        rules
    }

    fn rows_left_by(&self, name: &str, column: &Column, value: &str) -> Arc<BitSet> {
        let known = || column.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bit_set) = known().get(value) {
            return bit_set;
        }
        let mut bit_set = column.without_condition.clone();
        let mut sets = SetMatches::default();
        for row in &column.with_condition {
            let Row { rule, mapping } = self.rows[*row];
            let mapping = &self.set.rules()[rule].conditions().mappings()[mapping];
            let patterns = mapping.get(name);
            if patterns.is_some_and(|patterns| patterns.match_with(value, &mut sets)) {
                bit_set.insert(*row);
            }
        }
        let bit_set = Arc::new(bit_set);
        if value.len() <= MAX_CACHED_VALUE_BYTES {
            known().insert(value.to_owned(), bit_set.clone());
        }
        bit_set
    }
}

impl Column {
    fn new(n_rows: usize, with_condition: Vec<usize>) -> Self {
        let mut without_condition = BitSet::all(n_rows);
        for row in &with_condition {
            without_condition.remove(*row);
        }
        Self {
            without_condition,
            with_condition,
            known: Mutex::new(GenerationCache::new(MAX_CACHED_VALUES)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn long_values_are_not_cached() {
        let rules = json!([{"ruleId": "r", "conditions": {"a": "x*"}, "values": {"b": 1}}]);
        let table = Table::new(&RuleSet::parse(&rules).unwrap());
        let n_known = |value: &str| {
            let attributes: Attributes = [("a", value)].into_iter().collect();
            assert_eq!(table.applying(&attributes), [0]);
            let mut known = table.names["a"].known.lock().unwrap();
            usize::from(known.get(value).is_some())
        };
        assert_eq!(n_known(&"x".repeat(MAX_CACHED_VALUE_BYTES)), 1);
        assert_eq!(n_known(&"x".repeat(MAX_CACHED_VALUE_BYTES + 1)), 0);
    }
}
