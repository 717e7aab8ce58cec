//! Counts what transactions do, for tests and benchmarks. Unlike a duration, a count is the same
//! on a busy machine.

use std::collections::BTreeMap;
use std::ops::AddAssign;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use crate::engine::{lock::lock, statement::Statement, stopwatch::Stopwatch};

/// Maximum number of durations that are kept of a statement or a transaction: the first ones.
const MAX_DURATIONS: usize = 1_000;

/// Transactions of a store, and statements and returned rows, by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Counts {
    transactions: BTreeMap<&'static str, u64>,
    statements: BTreeMap<&'static str, u64>,
    rows: BTreeMap<&'static str, u64>,
    trips: u64,
    commits: u64,
    work: BTreeMap<&'static str, u64>,
    statement_seconds: BTreeMap<&'static str, Vec<f64>>,
    transaction_seconds: BTreeMap<&'static str, Vec<f64>>,
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

    /// How often an answer of PostgreSQL was waited for.
    pub fn trips(&self) -> u64 {
        self.trips
    }

    /// How often writes were committed. SQLite commits those that wait together.
    pub fn commits(&self) -> u64 {
        self.commits
    }

    /// For each name, the most that the database did in one transaction: steps of SQLite's machine,
    /// or rows and entries of indexes that PostgreSQL found. Unlike the rows that statements
    /// return, it grows with those that they pass over. Only after `Store::count_work`.
    pub fn work(&self) -> impl Iterator<Item = (&'static str, u64)> {
        self.work.iter().map(|(name, work)| (*name, *work))
    }

    /// How long executions of each statement took.
    pub fn statement_seconds(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        let seconds = self.statement_seconds.iter();
        seconds.map(|(name, seconds)| (*name, seconds.as_slice()))
    }

    /// How long transactions of each name took, with all attempts.
    pub fn transaction_seconds(&self) -> impl Iterator<Item = (&'static str, &[f64])> {
        let seconds = self.transaction_seconds.iter();
        seconds.map(|(name, seconds)| (*name, seconds.as_slice()))
    }
}

impl AddAssign for Counts {
    fn add_assign(&mut self, other: Self) {
        self.trips += other.trips;
        self.commits += other.commits;
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
        for (name, work) in other.work {
            note_most(&mut self.work, name, work);
        }
        let durations = [
            (&mut self.statement_seconds, other.statement_seconds),
            (&mut self.transaction_seconds, other.transaction_seconds),
        ];
        for (all, added) in durations {
            for (name, seconds) in added {
                all.entry(name).or_default().extend(seconds);
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
    counts_work: AtomicBool,
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

    pub(crate) fn trips(&self, n_trips: u64) {
        self.add(|counts| counts.trips += n_trips);
    }

    pub(crate) fn commit(&self) {
        self.add(|counts| counts.commits += 1);
    }

    pub(crate) fn start_counting_work(&self) {
        self.0.counts_work.store(true, Ordering::Relaxed);
    }

    pub(crate) fn counts_work(&self) -> bool {
        self.0.counts_work.load(Ordering::Relaxed)
    }

    pub(crate) fn work(&self, name: &'static str, work: u64) {
        self.add(|counts| note_most(&mut counts.work, name, work));
    }

    pub(crate) fn transaction_took(&self, name: &'static str, watch: &Stopwatch) {
        self.add(|counts| {
            let seconds = counts.transaction_seconds.entry(name).or_default();
            keep(seconds, Some(watch.seconds()));
        });
    }

    /// Starts to measure a statement, if it is counted.
    pub(crate) fn watch(&self) -> Option<Stopwatch> {
        let is_on = self.0.is_on.load(Ordering::Relaxed);
        is_on.then(Stopwatch::start)
    }

    pub(crate) fn statement(
        &self,
        statement: &Statement,
        n_rows: usize,
        watch: Option<&Stopwatch>,
    ) {
        let took = watch.map(Stopwatch::seconds);
        self.add(|counts| {
            let name = statement.name;
            *counts.statements.entry(name).or_default() += 1;
            *counts.rows.entry(name).or_default() += n_rows as u64;
            keep(counts.statement_seconds.entry(name).or_default(), took);
        });
    }
}

fn note_most(most: &mut BTreeMap<&'static str, u64>, name: &'static str, seen: u64) {
    let most = most.entry(name).or_default();
    *most = seen.max(*most);
}

fn keep(durations: &mut Vec<f64>, took: Option<f64>) {
    if durations.len() < MAX_DURATIONS {
        durations.extend(took);
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;
    use crate::engine::statement::PING;

    #[test]
    fn only_the_first_durations_are_kept() {
        let sizes = sizes_around("store::engine::counts::MAX_DURATIONS", MAX_DURATIONS);
        for n_executions in sizes {
            let counter = Counter::default();
            counter.take();
            for _ in 0..n_executions {
                counter.statement(&PING, 1, counter.watch().as_ref());
            }
            let counts = counter.take();
            let kept = counts.statement_seconds().next();
            let n_kept = kept.map_or(0, |(_, seconds)| seconds.len());
            assert_eq!(n_kept, n_executions.min(MAX_DURATIONS));
            assert_eq!(counts.statements("ping"), n_executions as u64);
            assert_eq!(counts.rows("ping"), n_executions as u64);
        }
    }
}
