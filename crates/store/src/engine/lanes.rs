//! Transactions that lost to others run again one at a time, so that they do not lose to each other.
//!
//! Of transactions that write one row at once, the database lets one commit. If all others ran again at once, the
//! same would happen again, and with many of them somebody would lose each time. So those of one name take turns
//! from the second attempt on, in one process; with others, and with other processes, they go on competing.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};

use crate::engine::lock::lock;

#[derive(Default)]
pub(crate) struct Lanes {
    by_name: Mutex<HashMap<&'static str, Lane>>,
}

/// Held by the one that runs.
pub(crate) type Lane = Arc<Mutex<()>>;

impl Lanes {
    /// The lane of all transactions of this name; there are as many as there are names in the program.
    pub(crate) fn of(&self, name: &'static str) -> Lane {
        Arc::clone(lock(&self.by_name).entry(name).or_default())
    }
}
