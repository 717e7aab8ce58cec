//! Launches of a launch config by result, and their failures by cause, for people and programs.

use std::collections::BTreeMap;

use crate::facts::LaunchRecord;
use crate::id::{LaunchConfigId, PoolId, names};
use crate::launch::Cause;
use crate::time::Timestamp;

/// Why machines of a launch config do no work: a cause of refusals, or a failure that shows later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FailureCause {
    Capacity,
    Quota,
    Configuration,
    Throttled,
    Credentials,
    Unavailable,
    Lost,
    /// The machine ended without having registered, or has not registered in time.
    NeverRegistered,
    /// The worker registered and has not asked for work in time.
    NeverClaimed,
}

names! {
    FailureCause, "not a cause of failures",
    Capacity = "capacity",
    Quota = "quota",
    Configuration = "configuration",
    Throttled = "throttled",
    Credentials = "credentials",
    Unavailable = "unavailable",
    Lost = "lost",
    NeverRegistered = "never-registered",
    NeverClaimed = "never-claimed",
}

impl FailureCause {
    /// The cause of a refusal; `None` for failures of machines that were made.
    pub fn refusal(self) -> Option<Cause> {
        self.as_str().parse().ok()
    }

    /// The text of a failure that came without one.
    pub fn text(self) -> &'static str {
        match self {
            Self::Capacity => "the provider made fewer machines than it was asked for",
            Self::NeverRegistered => "a machine did not register",
            Self::NeverClaimed => "a worker registered and never asked for work",
            Self::Quota
            | Self::Configuration
            | Self::Throttled
            | Self::Credentials
            | Self::Unavailable
            | Self::Lost => "the provider gave no reason",
        }
    }
}

/// The failures of one launch config for one cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchFailures {
    pub pool_id: PoolId,
    pub launch_config_id: LaunchConfigId,
    pub cause: FailureCause,
    pub machines: u64,
    pub first: Timestamp,
    pub last: Timestamp,
    /// The first of them after the last launch that was accepted in full; `None`: there is none.
    pub since: Option<Timestamp>,
    /// The provider's text about the last one, or empty.
    pub example: String,
}

/// The machines that were asked for, by result; refusals count for every cause.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchNumbers {
    /// Machines asked for, without those of withdrawn launches.
    pub attempts: u64,
    pub made: u64,
    pub registered: u64,
    /// Asked for work at least once.
    pub claimed: u64,
    pub refused: BTreeMap<Cause, u64>,
    pub never_registered: u64,
    pub never_claimed: u64,
}

impl LaunchNumbers {
    /// From the record and the failures of the same time.
    pub fn of(record: Option<&LaunchRecord>, failures: &[LaunchFailures]) -> Self {
        let mut numbers = Self::default();
        if let Some(LaunchRecord {
            health, claimed, ..
        }) = record
        {
            numbers.attempts = health.attempted;
            numbers.made = health.created;
            numbers.registered = health.registered;
            numbers.claimed = *claimed;
        }
        for failure in failures {
            match failure.cause.refusal() {
                Some(cause) => {
                    *numbers.refused.entry(cause).or_default() += failure.machines;
                    // The record has the other attempts already.
                    if !cause.is_ill_health() {
                        numbers.attempts += failure.machines;
                    }
                }
                None if failure.cause == FailureCause::NeverRegistered => {
                    numbers.never_registered += failure.machines;
                }
                None => numbers.never_claimed += failure.machines,
            }
        }
        numbers
    }

    pub fn n_refused(&self) -> u64 {
        self.refused.values().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Health, Tries};

    fn failures(cause: FailureCause, machines: u64) -> LaunchFailures {
        LaunchFailures {
            pool_id: "a/b".parse().unwrap(),
            launch_config_id: "lc".parse().unwrap(),
            cause,
            machines,
            first: Timestamp::from_millis(1),
            last: Timestamp::from_millis(2),
            since: None,
            example: String::new(),
        }
    }

    #[test]
    fn every_cause_of_a_refusal_is_a_cause_of_failures() {
        let refusals = FailureCause::ALL
            .into_iter()
            .filter_map(FailureCause::refusal);
        assert_eq!(refusals.collect::<Vec<_>>(), Cause::ALL);
        assert!(
            FailureCause::ALL
                .iter()
                .all(|cause| !cause.text().is_empty())
        );
    }

    #[test]
    fn refusals_of_every_cause_are_attempts() {
        let record = LaunchRecord {
            health: Health {
                attempted: 10,
                failed: 2,
                short: 1,
                created: 7,
                registered: 6,
                ..Health::default()
            },
            tries: Tries::default(),
            claimed: 5,
        };
        let failures = [
            failures(FailureCause::Capacity, 3),
            failures(FailureCause::Quota, 4),
            failures(FailureCause::Throttled, 1),
            failures(FailureCause::NeverRegistered, 1),
            failures(FailureCause::NeverClaimed, 1),
        ];
        let numbers = LaunchNumbers::of(Some(&record), &failures);
        assert_eq!((numbers.attempts, numbers.n_refused()), (15, 8));
        assert_eq!(
            (numbers.made, numbers.registered, numbers.claimed),
            (7, 6, 5)
        );
        assert_eq!((numbers.never_registered, numbers.never_claimed), (1, 1));
        assert_eq!(numbers.refused[&Cause::Capacity], 3);
        assert_eq!(LaunchNumbers::of(None, &[]), LaunchNumbers::default());
    }
}
