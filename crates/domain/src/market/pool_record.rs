//! The memory of a pool with its last sample: what samples of the pool add to it.

use std::collections::BTreeMap;

use super::{OfferingId, PoolMemory, PoolNews};
use crate::Version;
use crate::id::PoolId;
use crate::time::{MINUTE_MS, Timestamp};

/// A longer time between two samples does not count: samples were missed, or the clock was set.
pub const MAX_UNOBSERVED_MS: i64 = 2 * MINUTE_MS;

/// The time that samples have covered. It stands still while no samples are taken, and setting the
/// clock does not move it. The memory of pools is kept in this time, so it loses and invents
/// nothing then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObservedTime {
    /// The clock at the last round of samples.
    pub clock: Timestamp,
    pub observed: Timestamp,
    pub version: Version,
}

impl ObservedTime {
    /// Nothing has been observed yet, and nothing is stored.
    pub fn new(now: Timestamp) -> Self {
        Self {
            clock: now,
            observed: now,
            version: Version(0),
        }
    }

    /// Begins a round of samples. `None`: the last one was less than `least_ms` ago.
    pub fn advance(self, now: Timestamp, least_ms: i64) -> Option<Self> {
        let passed_ms = now.millis_since(self.clock);
        if (0..least_ms).contains(&passed_ms) {
            return None;
        }
        let counted_ms = passed_ms.clamp(0, MAX_UNOBSERVED_MS);
        Some(Self {
            clock: now,
            observed: self.observed.plus_millis(counted_ms),
            version: self.version,
        })
    }

    /// The news of a pool, with the moments of the clock.
    fn on_clock(&self, mut news: PoolNews) -> PoolNews {
        let behind_ms = self.clock.millis_since(self.observed);
        for fall in &mut news.retention.falls {
            fall.at = fall.at.plus_millis(behind_ms);
        }
        news
    }
}

/// The stored record of a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolRecord {
    pub pool_id: PoolId,
    pub memory: PoolMemory,
    /// In observed time.
    pub sampled: Timestamp,
    /// Units that its waiting and running tasks needed then.
    pub level: u64,
    /// The same, up to the maximum of the pool.
    pub wanted: u64,
    /// Units that it had then, running or to come.
    pub held: u64,
    /// By how many tasks the level fell without a run that ended: its end may be heard of later.
    pub unexplained: u64,
    /// The units that it had of each quota that was used up, by offering.
    pub quotas: BTreeMap<OfferingId, u64>,
    pub version: Version,
}

/// A sample of a pool.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PoolSample {
    pub level: u64,
    pub wanted: u64,
    pub held: u64,
    /// Tasks that are over since the last sample.
    pub n_ended: u64,
    /// Durations of tasks that ended by themselves since then, in milliseconds.
    pub durations_ms: Vec<i64>,
    pub quotas: BTreeMap<OfferingId, u64>,
    /// The pool looks ahead, so arrivals are remembered by hour.
    pub foresight: bool,
}

impl PoolRecord {
    /// A record that is not stored yet. The first sample only says where levels start.
    pub fn new(pool_id: PoolId, level: u64, time: &ObservedTime) -> Self {
        let mut memory = PoolMemory::default();
        memory.reach_level(level, time.observed);
        Self {
            pool_id,
            memory,
            sampled: time.observed,
            level,
            wanted: 0,
            held: 0,
            unexplained: 0,
            quotas: BTreeMap::new(),
            version: Version(0),
        }
    }

    /// Adds a sample, and returns the time since the last one in milliseconds.
    pub fn add(&mut self, sample: PoolSample, time: &ObservedTime) -> i64 {
        let passed_ms = time.observed.millis_since(self.sampled);
        for duration_ms in sample.durations_ms {
            self.memory.add_task(duration_ms);
        }
        let after = sample.level.saturating_add(sample.n_ended);
        let before = self.level.saturating_add(self.unexplained);
        let arrivals = after.saturating_sub(before);
        let observed_ms = passed_ms.clamp(0, MAX_UNOBSERVED_MS);
        self.memory.add_arrivals(arrivals);
        self.memory.add_ended(sample.n_ended);
        if sample.foresight {
            self.memory.note_hour(time.clock, observed_ms, arrivals);
        } else {
            self.memory.forget_hours();
        }
        // Not for longer than one sample: such tasks were cancelled before they ran.
        self.unexplained = self.level.saturating_sub(after);
        self.memory.reach_level(sample.level, time.observed);
        self.level = sample.level;
        self.wanted = sample.wanted;
        self.held = sample.held;
        self.quotas = sample.quotas;
        self.sampled = time.observed;
        observed_ms
    }

    /// The part that a plan uses.
    pub fn news(&self, time: &ObservedTime) -> PoolNews {
        let mut news = time.on_clock(self.memory.news());
        news.expected = self.memory.expected(time.clock);
        news
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{DAY_MS, HOUR_MS, SECOND_MS};

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * SECOND_MS)
    }

    fn level(level: u64, n_ended: u64) -> PoolSample {
        PoolSample {
            level,
            n_ended,
            ..PoolSample::default()
        }
    }

    /// The arrivals per second after samples each minute, the last of them without news.
    fn arrivals(samples: &[(u64, u64)]) -> f64 {
        let mut time = ObservedTime::new(at(0));
        let mut record = PoolRecord::new("a/b".parse().unwrap(), 0, &time);
        record.memory.learn(1.0, at(0));
        for (level_then, n_ended) in samples {
            time = time
                .advance(time.clock.plus_millis(MINUTE_MS), SECOND_MS)
                .unwrap();
            record.add(level(*level_then, *n_ended), &time);
            record.memory.learn(1.0, time.observed);
        }
        record.news(&time).arrivals
    }

    #[test]
    fn tasks_arrive_if_the_level_rises_or_runs_end_while_it_stays() {
        let steady = arrivals(&[(6, 0); 1]);
        assert!(steady > 0.0);
        // Six of six have ended, and six others have come.
        assert_eq!(arrivals(&[(6, 0), (6, 6)]), {
            let mut time = ObservedTime::new(at(0));
            let mut memory = PoolMemory::default();
            memory.learn(1.0, at(0));
            for _ in 0..2 {
                time = time
                    .advance(time.clock.plus_millis(MINUTE_MS), SECOND_MS)
                    .unwrap();
                memory.add_arrivals(6);
                memory.learn(1.0, time.observed);
            }
            memory.news().arrivals
        });
    }

    #[test]
    fn a_run_whose_end_is_heard_of_late_is_no_arrival() {
        assert_eq!(
            arrivals(&[(6, 0), (0, 0), (0, 6)]),
            arrivals(&[(6, 0), (0, 6), (0, 0)])
        );
        // Tasks that were cancelled explain nothing for longer than a sample.
        assert!(
            arrivals(&[(6, 0), (0, 0), (0, 0), (6, 0)])
                > arrivals(&[(6, 0), (0, 6), (0, 0), (0, 0)])
        );
    }

    #[test]
    fn time_counts_while_somebody_samples_and_steps_of_the_clock_do_not() {
        let start = ObservedTime::new(at(0));
        let after = |seconds| start.advance(at(seconds), 15_000);
        assert_eq!(after(14), None);
        assert_eq!(after(0), None);
        assert_eq!(after(30).unwrap().observed, at(30));
        assert_eq!(after(1_000_000).unwrap().observed, at(120));
        let back = after(-1_000).unwrap();
        assert_eq!((back.clock, back.observed), (at(-1_000), at(0)));
        let next = back.advance(at(-970), 15_000).unwrap();
        assert_eq!(next.observed, at(30));
    }

    #[test]
    fn levels_that_were_left_are_known_by_the_clock_of_the_plan() {
        let mut time = ObservedTime::new(at(0));
        let mut record = PoolRecord::new("a/b".parse().unwrap(), 5, &time);
        time = time.advance(at(30), 0).unwrap();
        assert_eq!(record.add(level(2, 3), &time), 30_000);
        assert_eq!(record.news(&time).retention.falls[0].at, at(30));
        // The clock is set back by a day: the fall is as old as before.
        let passed = at(60).plus_millis(-DAY_MS);
        time = time.advance(passed, 0).unwrap();
        assert_eq!(record.add(level(2, 0), &time), 0);
        let fall = record.news(&time).retention.falls[0];
        assert_eq!(passed.millis_since(fall.at), 0);
        // For an hour, no sample was taken.
        time = time.advance(passed.plus_millis(HOUR_MS), 0).unwrap();
        assert_eq!(record.add(level(2, 0), &time), MAX_UNOBSERVED_MS);
        let fall = record.news(&time).retention.falls[0];
        assert_eq!(time.clock.millis_since(fall.at), MAX_UNOBSERVED_MS);
    }

    #[test]
    fn a_pool_that_was_not_sampled_for_long_has_not_worked_all_the_time() {
        let mut time = ObservedTime::new(at(0));
        let mut record = PoolRecord::new("a/b".parse().unwrap(), 0, &time);
        for minute in 1..60 {
            time = time.advance(at(60 * minute), 0).unwrap();
        }
        assert_eq!(record.add(level(1, 0), &time), MAX_UNOBSERVED_MS);
    }
}
