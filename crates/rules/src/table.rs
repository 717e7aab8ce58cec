//! Which rules apply, found without going through the rules: for each value that is presented, a set of
//! bits says which mappings it leaves possible.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::bits::Bits;
use crate::conditions::{Conditions, Patterns};
use crate::presented::Presented;
use crate::recent::Recent;
use crate::set::RuleSet;

/// How many values of one name are remembered.
const VALUES_KEPT: usize = 2_048;

/// The conditions of a set, by name. A rule with several mappings has several rows here.
pub(crate) struct Table {
    /// The rule of each row, ascending.
    rule_of_row: Vec<usize>,
    names: BTreeMap<String, Column>,
}

/// All that rows ask of one name.
struct Column {
    /// The rows that do not ask for it: those that are left if it is not presented.
    indifferent: Bits,
    asking: Vec<(usize, Patterns)>,
    known: Mutex<Recent<String, Arc<Bits>>>,
}

impl Table {
    pub(crate) fn new(set: &RuleSet) -> Self {
        let mut rule_of_row = Vec::new();
        let mut asked: BTreeMap<&str, Vec<(usize, Patterns)>> = BTreeMap::new();
        for (index, rule) in set.rules().iter().enumerate() {
            if *rule.conditions() == Conditions::Always {
                rule_of_row.push(index);
            }
            for mapping in rule.conditions().mappings() {
                for (name, patterns) in mapping.iter() {
                    let row = (rule_of_row.len(), patterns.clone());
                    asked.entry(name).or_default().push(row);
                }
                rule_of_row.push(index);
            }
        }
        let n_rows = rule_of_row.len();
        let names = asked
            .into_iter()
            .map(|(name, asking)| (name.to_owned(), Column::new(n_rows, asking)))
            .collect();
        Self { rule_of_row, names }
    }

    /// The indices of the rules that apply, ascending.
    pub(crate) fn applying(&self, presented: &Presented) -> Vec<usize> {
        let mut rows = Bits::all(self.rule_of_row.len());
        for (name, column) in &self.names {
            match presented.get(name) {
                Some(value) => rows.intersect(&column.rows_left_by(value)),
                None => rows.intersect(&column.indifferent),
            }
        }
        let mut rules: Vec<usize> = rows.iter().map(|row| self.rule_of_row[row]).collect();
        rules.dedup();
        rules
    }
}

impl Column {
    fn new(n_rows: usize, asking: Vec<(usize, Patterns)>) -> Self {
        let mut indifferent = Bits::all(n_rows);
        for (row, _) in &asking {
            indifferent.remove(*row);
        }
        Self {
            indifferent,
            asking,
            known: Mutex::new(Recent::new(VALUES_KEPT)),
        }
    }

    fn rows_left_by(&self, value: &str) -> Arc<Bits> {
        let known = || self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(bits) = known().get(value) {
            return bits;
        }
        let mut bits = self.indifferent.clone();
        for (row, patterns) in &self.asking {
            if patterns.match_value(value) {
                bits.insert(*row);
            }
        }
        let bits = Arc::new(bits);
        known().insert(value.to_owned(), bits.clone(), 1);
        bits
    }
}
