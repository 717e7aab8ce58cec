//! Checks whether this process works: the database accepts writes, and the clocks agree.
//!
//! Checks run on request and periodically, but at most every few seconds, because every client may
//! request them.

use std::time::Duration;

use api_client::with_causes;
use domain::time::{Clock, HOUR_MS, Timestamp};
use engine::measures::seconds;
use metrics::{counter, gauge};
use store::Store;
use tokio::sync::Mutex;

use crate::telemetry::{CLOCK_SKEW, CLOCK_STEPS};

/// How long a result is reused.
const FRESH_MS: i64 = 5_000;
/// Time limit of a write to the database.
const WRITE_LIMIT: Duration = Duration::from_secs(5);
/// Smaller steps are normal corrections by a time service.
const MAX_STEP_MS: i64 = 2_000;
/// How long a step is reported.
const STEP_SHOWN_MS: i64 = HOUR_MS;
/// Maximum difference between our clock and the database's.
const MAX_SKEW_MS: i64 = 5_000;
/// The database reports its time in seconds.
const CLOCK_UNIT_MS: i64 = 1_000;

#[derive(Default)]
pub struct HealthMonitor(Mutex<State>);

#[derive(Default)]
struct State {
    last: Option<(i64, Health)>,
    clock: ClockWatch,
    /// The last step, and when it was noticed.
    step: Option<(i64, i64)>,
    is_skewed: bool,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Health {
    /// Why the database does not accept writes.
    pub database: Result<(), String>,
    /// The problems of the clock.
    pub clock: Vec<String>,
}

/// Compares the wall clock with a monotonic clock.
#[derive(Debug, Default)]
struct ClockWatch {
    last: Option<(Timestamp, i64)>,
}

impl ClockWatch {
    /// The step of the wall clock since the last call, if any.
    fn step(&mut self, now: Timestamp, steady_ms: i64) -> Option<i64> {
        let (was, was_steady_ms) = self.last.replace((now, steady_ms))?;
        let passed = steady_ms.saturating_sub(was_steady_ms);
        let step = now.millis_since(was).saturating_sub(passed);
        (step.abs() > MAX_STEP_MS).then_some(step)
    }
}

impl HealthMonitor {
    pub async fn check(&self, store: &Store, clock: &dyn Clock) -> Health {
        // Concurrent requests wait for the same result.
        let mut state = self.0.lock().await;
        let steady_ms = clock.steady_ms();
        state.look_at_clock(clock.now(), steady_ms);
        if let Some((at, health)) = &state.last
            && (0..FRESH_MS).contains(&steady_ms.saturating_sub(*at))
        {
            return health.clone();
        }
        let database = match write(store, clock).await {
            Ok(skew_ms) => {
                state.look_at_skew(skew_ms);
                Ok(())
            }
            Err(problem) => {
                tracing::error!(error = %problem, "cannot write to the database: {problem}");
                Err(problem)
            }
        };
        let health = Health {
            database,
            clock: state.clock_problems(steady_ms),
        };
        state.last = Some((steady_ms, health.clone()));
        health
    }
}

impl State {
    fn look_at_clock(&mut self, now: Timestamp, steady_ms: i64) {
        let Some(step) = self.clock.step(now, steady_ms) else {
            return;
        };
        self.step = Some((step, steady_ms));
        self.last = None;
        counter!(CLOCK_STEPS).increment(1);
        let what = step_in_words(step);
        tracing::warn!(clock.step_ms = step, "{what}");
    }

    fn look_at_skew(&mut self, skew_ms: i64) {
        gauge!(CLOCK_SKEW).set(seconds(skew_ms));
        let is_skewed = skew_ms.abs() > MAX_SKEW_MS;
        if is_skewed && !self.is_skewed {
            let what = skew_in_words(skew_ms);
            tracing::warn!(clock.skew_ms = skew_ms, "{what}");
        }
        self.is_skewed = is_skewed;
    }

    fn clock_problems(&self, steady_ms: i64) -> Vec<String> {
        let is_recent = |seen: i64| steady_ms.saturating_sub(seen) < STEP_SHOWN_MS;
        let step = self.step.filter(|(_, seen)| is_recent(*seen));
        let step = step.map(|(step, _)| step_in_words(step));
        let skew = self
            .is_skewed
            .then(|| "the clock of this machine differs from that of the database".to_owned());
        step.into_iter().chain(skew).collect()
    }
}

/// Writes to the database. Returns how far our clock is ahead of the database's.
async fn write(store: &Store, clock: &dyn Clock) -> Result<i64, String> {
    let before = clock.now();
    let writing = store.write("write_probe", move |tx| {
        store::probe::write(tx, std::process::id(), before)?;
        store::probe::clock(tx)
    });
    match tokio::time::timeout(WRITE_LIMIT, writing).await {
        Ok(Ok(theirs)) => Ok(skew_ms(before, clock.now(), theirs)),
        Ok(Err(problem)) => Err(with_causes(&problem)),
        Err(_) => Err(format!("it took longer than {WRITE_LIMIT:?}")),
    }
}

/// How far our clock is ahead of theirs, which was read between these two times.
pub(crate) fn skew_ms(before: Timestamp, after: Timestamp, theirs: Timestamp) -> i64 {
    let ahead = before
        .millis_since(theirs.plus_millis(CLOCK_UNIT_MS))
        .max(0);
    let behind = theirs.millis_since(after).max(0);
    ahead - behind
}

/// The problem, if the clocks differ by more than the limit.
pub(crate) fn skew_problem(skew_ms: i64) -> Option<String> {
    (skew_ms.abs() > MAX_SKEW_MS).then(|| skew_in_words(skew_ms))
}

fn skew_in_words(skew_ms: i64) -> String {
    let by = seconds(skew_ms.abs());
    let direction = if skew_ms < 0 { "behind" } else { "ahead of" };
    format!("the clock of this machine is {by} s {direction} that of the database")
}

fn step_in_words(step_ms: i64) -> String {
    let by = seconds(step_ms.abs());
    if step_ms < 0 {
        format!("the clock was set back by {by} s")
    } else {
        format!("the clock was set forward by {by} s, or this machine was suspended")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn start() -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }

    #[test]
    fn a_clock_that_is_set_is_noticed_and_a_drifting_one_is_not() {
        for (wall_ms, steady_ms, step) in [
            (10_000, 10_000, None),
            (10_000 + MAX_STEP_MS, 10_000, None),
            (10_000 + MAX_STEP_MS + 1, 10_000, Some(MAX_STEP_MS + 1)),
            (10_000 - MAX_STEP_MS - 1, 10_000, Some(-MAX_STEP_MS - 1)),
            (-2 * HOUR_MS, 0, Some(-2 * HOUR_MS)),
            (2 * HOUR_MS + 5, 5, Some(2 * HOUR_MS)),
        ] {
            let mut watch = ClockWatch::default();
            assert_eq!(watch.step(start(), 77), None, "nothing to compare with");
            let now = start().plus_millis(wall_ms);
            assert_eq!(watch.step(now, 77 + steady_ms), step, "{wall_ms}");
            let next = now.plus_millis(1_000);
            assert_eq!(watch.step(next, 77 + steady_ms + 1_000), None, "said once");
        }
    }

    #[test]
    fn the_difference_of_clocks_excludes_the_time_of_the_request() {
        let (before, after) = (start(), start().plus_millis(300));
        for (theirs_ms, skew) in [
            (0, 0),
            (300, 0),
            (-CLOCK_UNIT_MS, 0),
            (-CLOCK_UNIT_MS - 1, 1),
            (301, -1),
            (-HOUR_MS, HOUR_MS - CLOCK_UNIT_MS),
            (HOUR_MS, 300 - HOUR_MS),
        ] {
            let theirs = start().plus_millis(theirs_ms);
            assert_eq!(skew_ms(before, after, theirs), skew, "{theirs_ms}");
        }
        assert_eq!(skew_problem(MAX_SKEW_MS), None);
        let said = skew_problem(-MAX_SKEW_MS - 1).unwrap();
        assert!(said.contains("5.001 s behind"), "{said}");
    }
}
