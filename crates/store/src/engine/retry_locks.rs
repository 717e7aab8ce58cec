//! Locks by transaction name: transactions that are retried run one at a time, so that they do not
//! conflict with each other.
//!
//! If several transactions write one row at once, the database lets one of them commit. If all
//! others ran again at once, they would conflict again, and with many of them one would fail every
//! time. So from the second attempt on, transactions of one name run one after the other within a
//! process. They still compete with transactions of other names and other processes.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::engine::lock::lock;

#[derive(Default)]
pub(crate) struct RetryLocks {
    by_name: Mutex<HashMap<&'static str, RetryLock>>,
}

/// A transaction holds it while it is retried.
pub(crate) type RetryLock = Arc<Mutex<()>>;

impl RetryLocks {
    /// The lock of all transactions of this name. The number of locks is bounded by the number of
    /// names in the program.
    pub(crate) fn of(&self, name: &'static str) -> RetryLock {
        Arc::clone(lock(&self.by_name).entry(name).or_default())
    }
}
