//! The time of the database, as this process knows it between two measurements.
//!
//! Processes decide over each other's claims, deadlines, leases and charges, so all of them use one
//! time: that of their database. The time of day of this machine decides nothing. The time passes
//! by the monotonic clock, from what the last measurement found. So a wrong time of day changes
//! nothing, even if it is set again and again.
//!
//! The monotonic clock does not count the time for which the machine is suspended. If the time of
//! day and the monotonic clock disagree about how much time has passed, the time is in doubt until
//! it has been measured again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::time::{Clock, HOUR_MS, Timestamp};
use metrics::{counter, gauge};
use store::probe::DatabaseTime;
use tokio::sync::{Notify, watch};

use crate::measures::{CLOCK_SKEW, CLOCK_STEPS, seconds};

/// Smaller steps are normal corrections by a time service.
const MAX_STEP_MS: i64 = 2_000;
/// How long a step is reported.
const STEP_SHOWN_MS: i64 = HOUR_MS;
/// People are warned of a greater difference between the clocks of this machine and the database.
const MAX_SKEW_MS: i64 = 5_000;

pub struct DatabaseClock {
    local: Arc<dyn Clock>,
    state: Mutex<State>,
    doubtful: watch::Sender<bool>,
    /// Somebody should measure now.
    pub wakeup: Arc<Notify>,
}

#[derive(Clone, Copy, Default)]
struct State {
    last: Option<Measured>,
    is_doubtful: bool,
    /// The last step of the time, and when it was noticed, by the monotonic clock.
    step: Option<(i64, i64)>,
    is_skewed: bool,
}

/// The time by each clock when the monotonic clock showed zero.
#[derive(Clone, Copy)]
struct Measured {
    database_ms: i64,
    local_ms: i64,
}

/// Both clocks of this machine, before a measurement begins.
#[derive(Clone, Copy)]
struct Begun {
    local: Timestamp,
    steady_ms: i64,
}

impl DatabaseClock {
    /// In doubt until the first measurement.
    pub fn new(local: Arc<dyn Clock>) -> Self {
        Self {
            local,
            state: Mutex::default(),
            doubtful: watch::Sender::new(true),
            wakeup: Arc::default(),
        }
    }

    /// Changes when the time comes into doubt, and when it has been measured.
    pub fn doubts(&self) -> watch::Receiver<bool> {
        self.doubtful.subscribe()
    }

    /// Compares the time with this reading of the database's clock. If it fails, the time passes
    /// on as before.
    pub async fn measure<E>(
        &self,
        reading: impl Future<Output = Result<DatabaseTime, E>>,
    ) -> Result<(), E> {
        let begun = Begun {
            local: self.local.now(),
            steady_ms: self.local.steady_ms(),
        };
        let theirs = reading.await?;
        self.adopt(begun, theirs);
        // Notices a suspension during the measurement.
        self.doubt();
        Ok(())
    }

    /// The database read its clock since `begun`. The time changes no more than it must to agree
    /// with that; if it must change, it follows the time of day as far as that agrees.
    ///
    /// The time of day is the one from before: if the machine was suspended during the measurement,
    /// it is not known whether that was before or after the reading, and the time stays in doubt.
    fn adopt(&self, begun: Begun, theirs: DatabaseTime) {
        let now_ms = self.local.steady_ms();
        let lowest = theirs.earliest.as_millis().saturating_sub(now_ms);
        let highest = theirs.latest.as_millis().saturating_sub(begun.steady_ms);
        let local_ms = begun.local.as_millis().saturating_sub(begun.steady_ms);
        let mut state = self.lock();
        let known = state.last.map(|last| last.database_ms);
        let kept = known.filter(|known| (lowest..=highest).contains(known));
        let database_ms = kept.unwrap_or_else(|| local_ms.min(highest).max(lowest));
        let step_ms = known.map_or(0, |known| database_ms.saturating_sub(known));
        if step_ms.saturating_abs() > MAX_STEP_MS {
            state.step = Some((step_ms, now_ms));
            counter!(CLOCK_STEPS).increment(1);
            let what = step_in_words(step_ms);
            tracing::warn!(clock.step_ms = step_ms, "{what}");
        }
        let measured = Measured {
            database_ms,
            local_ms,
        };
        state.last = Some(measured);
        state.note_skew(measured.skew_ms());
        state.is_doubtful = false;
        // Under the lock, as in `look`: otherwise a doubt from meanwhile would be taken back.
        self.doubtful.send_if_modified(std::mem::take);
    }

    /// The state now, with the readings of the local clocks.
    fn look(&self) -> (State, Timestamp, i64) {
        let mut state = self.lock();
        let (local, steady_ms) = (self.local.now(), self.local.steady_ms());
        let has_moved = state.last.is_some_and(|last| {
            let moved = local.as_millis().saturating_sub(steady_ms) - last.local_ms;
            moved.saturating_abs() > MAX_STEP_MS
        });
        if has_moved && !state.is_doubtful {
            state.is_doubtful = true;
            self.doubtful.send_replace(true);
            self.wakeup.notify_one();
        }
        (*state, local, steady_ms)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for DatabaseClock {
    fn now(&self) -> Timestamp {
        match self.look() {
            (State { last: None, .. }, local, _) => local,
            (State { last: Some(it), .. }, _, steady_ms) => {
                Timestamp::from_millis(it.database_ms.saturating_add(steady_ms))
            }
        }
    }

    fn steady_ms(&self) -> i64 {
        self.local.steady_ms()
    }

    fn doubt(&self) -> Option<String> {
        let (state, _, _) = self.look();
        match state {
            State { last: None, .. } => Some("the time of the database is not known yet".to_owned()),
            state if state.is_doubtful => Some(
                "the clock of this machine was set, or this machine was suspended, and the time of \
                 the database has not been read since"
                    .to_owned(),
            ),
            _ => None,
        }
    }

    fn even_ms(&self) -> i64 {
        let (state, _, steady_ms) = self.look();
        state
            .step
            .map_or(i64::MAX, |(_, seen)| steady_ms.saturating_sub(seen))
    }

    fn machine_ahead_ms(&self) -> Option<i64> {
        self.lock().last.map(Measured::skew_ms)
    }

    fn warnings(&self) -> Vec<String> {
        let (state, _, steady_ms) = self.look();
        let is_recent = |seen: i64| steady_ms.saturating_sub(seen) < STEP_SHOWN_MS;
        let step = state.step.filter(|(_, seen)| is_recent(*seen));
        let step = step.map(|(step, _)| step_in_words(step));
        let skew = state.last.and_then(|last| skew_problem(last.skew_ms()));
        step.into_iter().chain(skew).collect()
    }
}

impl Measured {
    /// How far the time of day is ahead of the database's.
    fn skew_ms(self) -> i64 {
        self.local_ms.saturating_sub(self.database_ms)
    }
}

impl State {
    fn note_skew(&mut self, skew_ms: i64) {
        gauge!(CLOCK_SKEW).set(seconds(skew_ms));
        let problem = skew_problem(skew_ms);
        if let Some(what) = problem.as_ref().filter(|_| !self.is_skewed) {
            tracing::warn!(
                clock.skew_ms = skew_ms,
                "{what}; the database's time counts"
            );
        }
        self.is_skewed = problem.is_some();
    }
}

/// How far our clock is ahead of theirs, which was read between these two times.
pub fn skew_ms(before: Timestamp, after: Timestamp, theirs: DatabaseTime) -> i64 {
    let ahead = before.millis_since(theirs.latest).max(0);
    let behind = theirs.earliest.millis_since(after).max(0);
    ahead - behind
}

/// The problem, if the clocks differ by more than the limit.
pub fn skew_problem(skew_ms: i64) -> Option<String> {
    (skew_ms.abs() > MAX_SKEW_MS).then(|| {
        let by = seconds(skew_ms.abs());
        let direction = if skew_ms < 0 { "behind" } else { "ahead of" };
        format!("the clock of this machine is {by} s {direction} that of the database")
    })
}

fn step_in_words(step_ms: i64) -> String {
    let by = seconds(step_ms.abs());
    if step_ms < 0 {
        format!("the clock was set back by {by} s")
    } else {
        format!("the clock was set forward by {by} s, or this machine was suspended")
    }
}
