//! Counts what transactions do, for tests. Unlike a duration, a count is the same on a busy
//! machine.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::{lock::lock, statement::Statement};

/// Transactions of a store, and statements and returned rows, by name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    transactions: BTreeMap<&'static str, u64>,
    statements: BTreeMap<&'static str, u64>,
    rows: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// How often transactions of this name began. Each attempt counts.
    pub fn transactions(&self, name: &str) -> u64 {
        self.transactions.get(name).copied().unwrap_or(0)
    }

    pub fn all_transactions(&self) -> u64 {
        self.transactions.values().sum()
    }

    /// Number of executions of the statement with this name.
    pub fn statements(&self, name: &str) -> u64 {
        self.statements.get(name).copied().unwrap_or(0)
    }

    pub fn all_statements(&self) -> u64 {
        self.statements.values().sum()
    }

    /// Number of rows that the statement with this name returned.
    pub fn rows(&self, name: &str) -> u64 {
        self.rows.get(name).copied().unwrap_or(0)
    }

    pub fn all_rows(&self) -> u64 {
        self.rows.values().sum()
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        let sums = [
            (&mut self.transactions, other.transactions),
            (&mut self.statements, other.statements),
            (&mut self.rows, other.rows),
        ];
        for (sum, added) in sums {
            for (name, count) in added {
                *sum.entry(name).or_default() += count;
            }
        }
    }
}

/// Shared by all sessions of a store. Until counting starts, it costs one atomic load per
/// statement.
#[derive(Clone, Default)]
pub(crate) struct Counter(Arc<Inner>);

#[derive(Default)]
struct Inner {
    is_on: AtomicBool,
    counts: Mutex<Counts>,
}

impl Counter {
    fn add(&self, add: impl FnOnce(&mut Counts)) {
        if self.0.is_on.load(Ordering::Relaxed) {
            add(&mut lock(&self.0.counts));
        }
    }

    /// Returns the counts since the last call. The first call starts counting.
    pub(crate) fn take(&self) -> Counts {
        self.0.is_on.store(true, Ordering::Relaxed);
        std::mem::take(&mut lock(&self.0.counts))
    }

    pub(crate) fn transaction(&self, name: &'static str) {
        self.add(|counts| *counts.transactions.entry(name).or_default() += 1);
    }

    pub(crate) fn statement(&self, statement: &Statement, n_rows: usize) {
        self.add(|counts| {
            *counts.statements.entry(statement.name).or_default() += 1;
            *counts.rows.entry(statement.name).or_default() += n_rows as u64;
        });
    }
}
