//! The memory of the tasks of one pool.

use serde::{Deserialize, Serialize};

use super::average::Average;
use super::hours::Hours;
use super::levels::{Levels, Retention};
use crate::time::{MINUTE_MS, SECOND_MS, Timestamp};

/// A task is expected to take this long before any has ended.
pub const USUAL_TASK_MS: f64 = 600_000.0;
/// The newest task counts at least this much in the mean.
const TASK_STEP: f64 = 0.02;
/// A run that has taken this many times the mean is of another kind than those that made the mean:
/// it may take hours.
const LONGEST: f64 = 3.0;
/// Durations and arrivals are used after this many tasks.
const ENOUGH_TASKS: u64 = 20;
/// How much of a boot a task waits for a missing worker, on average: other workers take some.
const MISSED: f64 = 0.5;
/// How many tasks a late worker delays, as a power of how many it would have run meanwhile: the
/// shorter the tasks, the longer the queue of those behind them.
const DELAYED: f64 = 1.3;
const FAST_MS: f64 = 5.0 * MINUTE_MS as f64;
const SLOW_MS: f64 = 30.0 * MINUTE_MS as f64;

/// The memory of a pool, as it is stored.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolMemory {
    /// In milliseconds.
    task: Average,
    arrivals: Rate,
    /// Tasks that are over.
    #[serde(default, skip_serializing_if = "Rate::is_unused")]
    ended: Rate,
    levels: Levels,
    /// Arrivals by hour, if the pool looks ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hours: Option<Hours>,
}

/// How often something happens to tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Rate {
    /// Tasks per second, over about five minutes.
    fast: f64,
    /// … over about half an hour.
    slow: f64,
    /// Since the rates were last computed.
    count: u64,
    counted_since: Option<Timestamp>,
}

/// The part of the memory of a pool that its plans use.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct PoolNews {
    /// The mean duration of a task in milliseconds; `None` until enough have ended.
    pub task_ms: Option<f64>,
    /// The mean deviation from it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deviation_ms: Option<f64>,
    /// Tasks per second that arrive steadily.
    pub arrivals: f64,
    /// Tasks per second that ended lately.
    #[serde(default)]
    pub ended: f64,
    /// Tasks per second that earlier days let expect; `None`: too little is known, or the pool does
    /// not look ahead.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected: Option<f64>,
    pub retention: Retention,
}

impl PoolMemory {
    /// A task has ended by itself, after this time.
    pub fn add_task(&mut self, duration_ms: i64) {
        self.task.add(duration_ms.max(0) as f64, TASK_STEP);
    }

    /// This many tasks have come.
    pub fn add_arrivals(&mut self, count: u64) {
        self.arrivals.add(count);
    }

    /// This many tasks are over.
    pub fn add_ended(&mut self, count: u64) {
        self.ended.add(count);
    }

    /// Remembers arrivals by hour: this many tasks came in a time that was observed and ends now,
    /// by the clock.
    pub fn note_hour(&mut self, clock: Timestamp, observed_ms: i64, arrivals: u64) {
        let hours = self.hours.get_or_insert_default();
        hours.observe(clock, observed_ms, arrivals);
    }

    /// Forgets arrivals by hour.
    pub fn forget_hours(&mut self) {
        self.hours = None;
    }

    /// Tasks per second that earlier days let expect soon after this moment of the clock.
    pub fn expected(&self, clock: Timestamp) -> Option<f64> {
        self.hours.as_ref()?.expected(clock)
    }

    /// Waiting and running tasks now need this many workers.
    pub fn reach_level(&mut self, level: u64, now: Timestamp) {
        self.levels.reach(level, now);
    }

    /// Computes rates and retentions. `missing_ms`: see [`PoolMemory::missing_ms`].
    pub fn learn(&mut self, missing_ms: f64, now: Timestamp) {
        self.arrivals.update(now);
        self.ended.update(now);
        self.levels.learn(missing_ms, now);
    }

    /// The cost of a missing worker, as the time in which an idle worker costs the same: tasks wait
    /// for its boot. `price`: dollars per unit-hour; `wait_price`: dollars per hour that a task
    /// waits.
    pub fn missing_ms(&self, boot_ms: f64, price: f64, wait_price: f64) -> f64 {
        Self::missing_with(self.task_ms(), boot_ms, price, wait_price)
    }

    /// The same with tasks of this mean duration.
    pub(crate) fn missing_with(task_ms: f64, boot_ms: f64, price: f64, wait_price: f64) -> f64 {
        // A worker that comes late delays as many tasks as it would have run meanwhile.
        let tasks = (boot_ms / task_ms).clamp(1.0, 8.0).powf(DELAYED);
        MISSED * boot_ms * wait_price * tasks / price
    }

    /// The mean duration of a task in milliseconds.
    pub fn task_ms(&self) -> f64 {
        match self.task.count {
            0 => USUAL_TASK_MS,
            _ => self.task.mean.max(SECOND_MS as f64),
        }
    }

    pub fn level(&self) -> u64 {
        self.levels.level
    }

    /// The mean duration of a task and the mean deviation from it, in milliseconds; `None` until
    /// enough have ended.
    pub fn known_task_ms(&self) -> Option<(f64, f64)> {
        (self.task.count >= ENOUGH_TASKS).then(|| (self.task_ms(), self.task.deviation))
    }

    pub fn news(&self) -> PoolNews {
        let known = self.known_task_ms();
        PoolNews {
            task_ms: known.map(|(mean, _)| mean),
            deviation_ms: known.map(|(_, deviation)| deviation),
            expected: None,
            arrivals: self.arrivals.fast.min(self.arrivals.slow),
            ended: self.ended.fast,
            retention: self.levels.retention(),
        }
    }
}

impl PoolNews {
    /// Runs that were claimed since then are expected to end as others do. `None`: it is not known
    /// how long tasks take.
    pub fn ordinary_since(&self, now: Timestamp) -> Option<Timestamp> {
        #[expect(
            clippy::cast_possible_truncation,
            reason = "an average of times that were milliseconds"
        )]
        let longest_ms = (LONGEST * self.task_ms?) as i64;
        Some(now.plus_millis(-longest_ms))
    }

    /// How many tasks the workers of some runs start within this time. `ordinary`: how many of the
    /// runs are expected to end as others do. If that is not known, no more than ended lately.
    pub(crate) fn starts_within(&self, ms: f64, n_runs: u64, ordinary: Option<u64>) -> f64 {
        let Some(task_ms) = self.task_ms else {
            return 0.0;
        };
        let share = if task_ms > ms {
            1.0 - (-ms / task_ms).exp()
        } else {
            // A worker starts several short tasks.
            ms / task_ms
        };
        let n_ordinary = ordinary.unwrap_or(n_runs).min(n_runs);
        let most = match ordinary {
            Some(_) => f64::INFINITY,
            None => self.ended * ms / SECOND_MS as f64,
        };
        (n_ordinary as f64 * share).min(most)
    }
}

impl Rate {
    fn is_unused(&self) -> bool {
        *self == Self::default()
    }

    fn add(&mut self, count: u64) {
        self.count = self.count.saturating_add(count);
    }

    fn update(&mut self, now: Timestamp) {
        let since = self.counted_since.replace(now).unwrap_or(now);
        let passed = now.millis_since(since) as f64;
        if passed <= 0.0 {
            return;
        }
        let rate = self.count as f64 * SECOND_MS as f64 / passed;
        self.count = 0;
        self.fast += (1.0 - (-passed / FAST_MS).exp()) * (rate - self.fast);
        self.slow += (1.0 - (-passed / SLOW_MS).exp()) * (rate - self.slow);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::HOUR_MS;

    fn at(seconds: i64) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000 + seconds * SECOND_MS)
    }

    #[test]
    fn durations_are_used_when_enough_tasks_have_ended() {
        let mut memory = PoolMemory::default();
        assert_eq!(memory.task_ms(), USUAL_TASK_MS);
        for _ in 0..19 {
            memory.add_task(30_000);
        }
        assert_eq!(memory.news().task_ms, None);
        memory.add_task(30_000);
        assert_eq!(memory.news().task_ms, Some(30_000.0));
        // Tasks of no length count as short ones.
        let mut instant = PoolMemory::default();
        instant.add_task(-5);
        assert_eq!(instant.task_ms(), 1_000.0);
    }

    #[test]
    fn the_slower_of_two_rates_counts_as_steady() {
        let mut memory = PoolMemory::default();
        memory.learn(1.0, at(0));
        for step in 1..=240 {
            memory.add_arrivals(60);
            memory.learn(1.0, at(60 * step));
        }
        assert!((memory.news().arrivals - 1.0).abs() < 0.01);
        // A burst raises the fast rate alone; a lull lowers it at once.
        memory.add_arrivals(6_000);
        memory.learn(1.0, at(60 * 241));
        assert!(memory.news().arrivals < 5.0);
        memory.learn(1.0, at(60 * 260));
        assert!(memory.news().arrivals < 1.0);
        // A clock that steps back changes nothing.
        let before = memory.clone();
        memory.add_arrivals(3);
        memory.learn(1.0, at(0));
        assert_eq!(memory.news().arrivals, before.news().arrivals);
    }

    #[test]
    fn runs_that_take_much_longer_than_usual_are_not_expected_to_end() {
        let news = PoolNews {
            task_ms: Some(60_000.0),
            ended: 0.5,
            ..PoolNews::default()
        };
        assert_eq!(news.ordinary_since(at(0)), Some(at(-180)));
        assert_eq!(news.starts_within(180_000.0, 5, Some(0)), 0.0);
        assert_eq!(news.starts_within(180_000.0, 5, Some(2)), 6.0);
        assert_eq!(news.starts_within(180_000.0, 5, Some(9)), 15.0);
        let some = news.starts_within(30_000.0, 10, Some(10));
        assert!((some - 3.93).abs() < 0.01, "{some}");
        // Without the times of claims, what ended lately is the limit.
        assert_eq!(news.starts_within(180_000.0, 5, None), 15.0);
        assert_eq!(news.starts_within(180_000.0, 50, None), 90.0);
        let unknown = PoolNews::default();
        assert_eq!(unknown.ordinary_since(at(0)), None);
        assert_eq!(unknown.starts_within(180_000.0, 5, None), 0.0);
    }

    #[test]
    fn a_missing_worker_costs_its_boot_and_the_wait() {
        let mut memory = PoolMemory::default();
        // A task waits for half of 180 s at 1 $ an hour; idling costs half of that.
        assert_eq!(memory.missing_ms(180_000.0, 0.5, 1.0), 180_000.0);
        for _ in 0..20 {
            memory.add_task(45_000);
        }
        // More than four tasks wait instead of one.
        let missing_ms = memory.missing_ms(180_000.0, 0.5, 1.0);
        assert!((missing_ms / 180_000.0 - 4.0_f64.powf(DELAYED)).abs() < 1e-9);
        assert_eq!(memory.missing_ms(180_000.0, 0.5, 0.0), 0.0);
    }

    #[test]
    fn memory_is_stored_and_read_back_exactly() {
        let mut memory = PoolMemory::default();
        for step in 0..50 {
            memory.add_task(step * 777);
            memory.add_arrivals(3);
            memory.reach_level(u64::try_from(step * 7 % 11).unwrap(), at(step * 13));
            memory.learn(HOUR_MS as f64, at(step * 13));
        }
        let text = serde_json::to_string(&memory).unwrap();
        assert_eq!(serde_json::from_str::<PoolMemory>(&text).unwrap(), memory);
        let text = serde_json::to_string(&memory.news()).unwrap();
        assert_eq!(
            serde_json::from_str::<PoolNews>(&text).unwrap(),
            memory.news()
        );
    }
}
