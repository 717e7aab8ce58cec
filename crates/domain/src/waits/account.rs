//! Accounts: the waits of runs, summed by day, hour and cause.

use std::collections::{BTreeMap, BTreeSet};

use super::{WaitCause, WaitPart};
use crate::id::{PoolId, names};
use crate::time::{DAY_MS, HOUR_MS, Timestamp};

/// How the accounts are summed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grouping {
    Pool,
    /// A queue has the name of its pool.
    Queue,
    Owner,
    Day,
    Hour,
    Cause,
}

names! {
    Grouping, "not a way to sum accounts",
    Pool = "pool",
    Queue = "queue",
    Owner = "owner",
    Day = "day",
    Hour = "hour",
    Cause = "cause",
}

/// One row of the accounts.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct AccountKey {
    /// The length of the period.
    pub span_ms: i64,
    pub since: Timestamp,
    pub pool_id: PoolId,
    /// The owner of the pool; empty: the queue has no pool.
    pub owner: String,
    pub cause: WaitCause,
}

/// Runs, counted once for each cause, and milliseconds.
pub type Accounts = BTreeMap<AccountKey, (u64, i64)>;

/// A sum over rows of the accounts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccountSum {
    pub key: String,
    pub cause: WaitCause,
    pub runs: u64,
    pub millis: i64,
}

/// Charges the wait of one run to its hours and days.
pub fn charge(accounts: &mut Accounts, pool_id: &PoolId, owner: &str, parts: &[WaitPart]) {
    let mut begun = BTreeSet::new();
    for (ChargedCause { hour, cause }, millis) in charges(parts) {
        let runs = u64::from(begun.insert(cause));
        for span_ms in [HOUR_MS, DAY_MS] {
            let key = AccountKey {
                span_ms,
                since: hour.start_of(span_ms),
                pool_id: pool_id.clone(),
                owner: owner.to_owned(),
                cause,
            };
            let sum = accounts.entry(key).or_default();
            *sum = (sum.0 + runs, sum.1 + millis);
        }
    }
}

/// Waiting time, in milliseconds.
pub type Waits = BTreeMap<WaitCause, i64>;

/// A part of a wait within one hour.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ChargedCause {
    /// When the hour began, UTC.
    pub hour: Timestamp,
    pub cause: WaitCause,
}

/// The waits of one task.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TaskWaits {
    pub by_cause: Waits,
}

impl TaskWaits {
    pub fn add(&mut self, parts: &[WaitPart]) {
        for part in parts {
            *self.by_cause.entry(part.cause).or_default() += part.millis();
        }
    }

    pub fn total_ms(&self) -> i64 {
        self.by_cause.values().sum()
    }
}

/// The milliseconds of each hour and cause. A part that lies in several hours is cut at the full
/// hours, so that each millisecond counts in the hour in which it passed.
pub fn charges(parts: &[WaitPart]) -> BTreeMap<ChargedCause, i64> {
    let mut charges = BTreeMap::new();
    for part in parts {
        let mut at = part.since;
        while at < part.until {
            let hour = at.start_of(HOUR_MS);
            let end = hour.plus_millis(HOUR_MS).min(part.until);
            let charge = ChargedCause {
                hour,
                cause: part.cause,
            };
            *charges.entry(charge).or_default() += end.millis_since(at);
            if end <= at {
                break;
            }
            at = end;
        }
    }
    charges
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn part(since: i64, until: i64) -> WaitPart {
        WaitPart {
            cause: WaitCause::Quota,
            since: Timestamp::from_millis(since),
            until: Timestamp::from_millis(until),
        }
    }

    #[test]
    fn a_part_counts_in_the_hours_in_which_it_passed() {
        let charged = charges(&[part(HOUR_MS - 5, 2 * HOUR_MS + 7)]);
        let millis: Vec<i64> = charged.values().copied().collect();
        assert_eq!(millis, [5, HOUR_MS, 7]);
        assert!(charges(&[part(5, 5)]).is_empty());
    }

    proptest! {
        #[test]
        fn charges_sum_to_the_parts(parts in proptest::collection::vec(
            (0..10 * HOUR_MS, 0..3 * HOUR_MS), 0..6)) {
            let parts: Vec<WaitPart> =
                parts.into_iter().map(|(since, ms)| part(since, since + ms)).collect();
            let mut waits = TaskWaits::default();
            waits.add(&parts);
            let sum: i64 = charges(&parts).values().sum();
            prop_assert_eq!(sum, waits.total_ms());
        }
    }
}
