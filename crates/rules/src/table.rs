//! Which rules apply, found without going through the rules: for each value that is presented, a set of
//! bits says which mappings it leaves possible.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::bits::Bits;
use crate::conditions::Conditions;
use crate::presented::Presented;
use crate::recent::Recent;
use crate::rule::Rule;
use crate::set::RuleSet;

/// How many values of one name are remembered.
const VALUES_KEPT: usize = 2_048;

/// Longer ones are not remembered; no place has a name like that.
const MAX_KEPT_BYTES: usize = 256;

/// The conditions of a set, by name. Each mapping is a row: a rule with several of them has several.
pub(crate) struct Table {
    set: RuleSet,
    rows: Vec<Row>,
    names: BTreeMap<String, Column>,
}

/// Which mapping of which rule. A rule that always applies has a row without a mapping.
struct Row {
    rule: usize,
    mapping: usize,
}

/// All that rows ask of one name.
struct Column {
    /// The rows that do not ask for it: those that are left if it is not presented.
    indifferent: Bits,
    /// The others.
    asking: Vec<usize>,
    known: Mutex<Recent<String, Arc<Bits>>>,
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
            .map(|(name, asking)| (name.to_owned(), Column::new(rows.len(), asking)))
            .collect();
        Self {
            set: set.clone(),
            rows,
            names,
        }
    }

    /// The indices of the rules that apply, ascending.
    pub(crate) fn applying(&self, presented: &Presented) -> Vec<usize> {
        let mut left = Bits::all(self.rows.len());
        for (name, column) in &self.names {
            match presented.get(name) {
                Some(value) => left.intersect(&self.rows_left_by(name, column, value)),
                None => left.intersect(&column.indifferent),
            }
        }
        let mut rules: Vec<usize> = left.iter().map(|row| self.rows[row].rule).collect();
        rules.dedup();
        rules
    }

    fn rows_left_by(&self, name: &str, column: &Column, value: &str) -> Arc<Bits> {
        let known = || column.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bits) = known().get(value) {
            return bits;
        }
        let mut bits = column.indifferent.clone();
        for row in &column.asking {
            let Row { rule, mapping } = self.rows[*row];
            let mapping = &self.set.rules()[rule].conditions().mappings()[mapping];
            let patterns = mapping.get(name);
            if patterns.is_some_and(|patterns| patterns.match_value(value)) {
                bits.insert(*row);
            }
        }
        let bits = Arc::new(bits);
        if value.len() <= MAX_KEPT_BYTES {
            known().insert(value.to_owned(), bits.clone());
        }
        bits
    }
}

impl Column {
    fn new(n_rows: usize, asking: Vec<usize>) -> Self {
        let mut indifferent = Bits::all(n_rows);
        for row in &asking {
            indifferent.remove(*row);
        }
        Self {
            indifferent,
            asking,
            known: Mutex::new(Recent::new(VALUES_KEPT)),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_nobody_would_present_twice_is_not_remembered() {
        let rules = json!([{"ruleId": "r", "conditions": {"a": "x*"}, "values": {"b": 1}}]);
        let table = Table::new(&RuleSet::parse(&rules).unwrap());
        let n_known = |value: &str| {
            let presented: Presented = [("a", value)].into_iter().collect();
            assert_eq!(table.applying(&presented), [0]);
            let mut known = table.names["a"].known.lock().unwrap();
            usize::from(known.get(value).is_some())
        };
        assert_eq!(n_known(&"x".repeat(MAX_KEPT_BYTES)), 1);
        assert_eq!(n_known(&"x".repeat(MAX_KEPT_BYTES + 1)), 0);
    }
}
