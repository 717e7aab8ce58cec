//! Machines with wrong clocks (I21): their processes use the time of the database, and rest while
//! they do not know it.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::future::ready;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use domain::id::LaunchToken;
use domain::launch::Launch;
use domain::task::EndReason;
use domain::time::{Clock, HOUR_MS, SECOND_MS, Timestamp};
use engine::database_clock::DatabaseClock;
use futures_util::FutureExt;
use store::StoreError;
use store::probe::DatabaseTime;

use crate::clouds::Mutant;
use crate::picture::Picture;
use crate::world::{Process, START_MS, TestClock, World};

/// A clock is set by this much.
pub(crate) const STEPS_MS: [i64; 4] = [2 * HOUR_MS, -2 * HOUR_MS, 8 * HOUR_MS, -8 * HOUR_MS];
/// The clocks of a machine gain or lose at most this much of a thousand.
const MAX_DRIFT: i64 = 10;
/// A claim lasts this long.
const CLAIM_MS: i64 = 20 * 60 * SECOND_MS;
/// And as much less by the clock of a machine that gains.
const CLAIM_BY_A_FAST_CLOCK_MS: i64 = CLAIM_MS - CLAIM_MS * MAX_DRIFT / 1_000;

/// The clocks of a machine: its time of day, and its monotonic clock.
pub(crate) struct MachineClock {
    true_clock: Arc<TestClock>,
    ahead_ms: AtomicI64,
    /// How much more the monotonic clock has counted than has passed.
    gained_ms: AtomicI64,
    /// Thousandths by which it gains.
    drift: AtomicI64,
}

impl MachineClock {
    pub(crate) fn new(true_clock: &Arc<TestClock>) -> Arc<Self> {
        Arc::new(Self {
            true_clock: Arc::clone(true_clock),
            ahead_ms: AtomicI64::new(0),
            gained_ms: AtomicI64::new(0),
            drift: AtomicI64::new(0),
        })
    }

    /// This much time has passed.
    pub(crate) fn drift(&self, passed_ms: i64) {
        let gained_ms = passed_ms * self.drift.load(Ordering::SeqCst) / 1_000;
        self.gained_ms.fetch_add(gained_ms, Ordering::SeqCst);
        self.ahead_ms.fetch_add(gained_ms, Ordering::SeqCst);
    }
}

impl Clock for MachineClock {
    fn now(&self) -> Timestamp {
        let ahead_ms = self.ahead_ms.load(Ordering::SeqCst);
        self.true_clock.now().plus_millis(ahead_ms)
    }

    fn steady_ms(&self) -> i64 {
        self.true_clock.now().as_millis() - START_MS + self.gained_ms.load(Ordering::SeqCst)
    }
}

/// A claim that runs: until when, and the true time before which it was not there.
type SeenClaim = (Timestamp, Timestamp);

/// The times that the harness has seen.
#[derive(Default)]
pub(crate) struct SeenTimes {
    /// The true time of the last check.
    checked: Option<Timestamp>,
    claims: BTreeMap<(String, usize), SeenClaim>,
    /// The number of runs that have begun, of each task.
    n_begun: BTreeMap<String, usize>,
    /// The true time at which the clock of the database was last set.
    pub(crate) set: Option<Timestamp>,
    /// A process has started since, and does not know of that.
    pub(crate) has_started: bool,
}

/// A run, as far as its times are concerned.
struct Times {
    started: Timestamp,
    until: Timestamp,
    /// How it ended, if it has.
    end: Option<(EndReason, Timestamp)>,
}

/// The clock of the database shows this time.
pub(crate) fn measure(clock: &DatabaseClock, now: Timestamp) {
    let theirs = DatabaseTime {
        earliest: now,
        latest: now,
    };
    let reading = ready(Ok::<_, Infallible>(theirs));
    let measured = clock.measure(reading).now_or_never();
    assert!(measured.is_some(), "the reading is there");
}

impl Process {
    /// Compares its time with the database's, as each process does every few seconds.
    pub(crate) fn measure(&self, now: Timestamp) {
        measure(&self.clock, now);
    }

    /// Whether it does nothing now, as its driver would see to.
    pub(crate) fn rests(&self) -> bool {
        self.mutant != Some(Mutant::ActsInDoubt) && self.app.engine.clock.doubt().is_some()
    }
}

impl World {
    /// The clock of one process's machine is set, or drifts, or the machine is suspended.
    pub(crate) async fn disturb_a_clock(self: &Arc<Self>) {
        let Some(process) = self.any_process() else {
            return;
        };
        let (number, local) = (process.number, &process.local);
        let step_ms = *self.chance.pick(&STEPS_MS).expect("there are some");
        match self.chance.below(4) {
            0 => {
                self.note(format!(
                    "the clock of process {number} is set by {step_ms} ms"
                ));
                local.ahead_ms.fetch_add(step_ms, Ordering::SeqCst);
            }
            1 => {
                self.note(format!("the clock of process {number} is set right"));
                local.ahead_ms.store(0, Ordering::SeqCst);
            }
            2 => {
                let drift = self.chance.between(-MAX_DRIFT, MAX_DRIFT);
                self.note(format!(
                    "the clocks of process {number} drift: {drift} of 1000"
                ));
                local.drift.store(drift, Ordering::SeqCst);
            }
            _ => {
                let slept_ms = step_ms.abs();
                self.note(format!(
                    "the machine of process {number} sleeps for {slept_ms} ms"
                ));
                self.advance_others_ms(slept_ms, Some(&process));
                local.gained_ms.fetch_sub(slept_ms, Ordering::SeqCst);
            }
        }
        // All that is due runs at once.
        self.lets(&process, |process| async move {
            process.round().await;
            process.mind_the_queue().await;
        })
        .await;
        self.let_things_happen().await;
        if self.chance.percent(50) {
            process.measure(self.now());
        }
    }

    /// I21: no moment is written that has not come by the clock of the database, or is long over;
    /// and no run is taken from a worker that had less time than a claim lasts.
    pub(crate) async fn check_times(&self, before: &Picture, after: &Picture) {
        let (now, true_now) = (self.now(), self.true_now());
        let new_workers = after.workers.iter();
        for (key, worker) in new_workers.filter(|(key, _)| !before.workers.contains_key(key)) {
            let latest = worker.terms.registered_at.map(Timestamp::from_millis);
            let latest = latest
                .max(Some(worker.created))
                .max(Some(worker.last_modified));
            if latest > Some(now) {
                self.problem(format!(
                    "I21: {key} was made at {latest:?}, and it is {now}"
                ));
            }
        }
        let runs = self.times_of_runs().await;
        let mut seen = std::mem::take(&mut self.state().times);
        let checked = seen.checked.replace(true_now).unwrap_or(true_now);
        // A process that was frozen goes on with the time that it had read.
        let has_frozen = self.state().has_frozen;
        let earliest = before.at.min(now);
        let mut launches = after.launches.iter();
        let is_new = |token: &LaunchToken| !before.launches.contains_key(token);
        let is_wrong = |launch: &Launch| !(earliest..=now).contains(&launch.created);
        let wrong = launches.find(|(token, launch)| is_new(token) && is_wrong(launch));
        if let Some((token, launch)) = wrong.filter(|_| !has_frozen) {
            let created = launch.created;
            self.problem(format!(
                "I21: the launch {token} was decided on at {created}, between {earliest} and {now}"
            ));
        }
        for ((task, number), run) in runs {
            let n_begun = seen.n_begun.entry(task.clone()).or_default();
            let is_new = number >= *n_begun;
            *n_begun = (*n_begun).max(number + 1);
            if is_new && !has_frozen && !(earliest..=now).contains(&run.started) {
                let started = run.started;
                self.problem(format!(
                    "I21: run {number} of {task} began at {started}, between {earliest} and {now}"
                ));
            }
            let id = (task, number);
            let Some((reason, at)) = run.end else {
                let known = seen.claims.get(&id);
                let known = known.copied().filter(|(until, _)| *until == run.until);
                seen.claims
                    .insert(id, known.unwrap_or((run.until, checked)));
                continue;
            };
            let claim = seen.claims.remove(&id);
            if claim.is_none() && !is_new {
                continue;
            }
            let since = claim.map_or(checked, |(_, since)| since);
            let had_ms = true_now.millis_since(since);
            let is_excused =
                has_frozen || seen.set.is_some_and(|set| seen.has_started && since <= set);
            if reason == EndReason::ClaimExpired && had_ms < CLAIM_BY_A_FAST_CLOCK_MS && !is_excused
            {
                let (task, number) = &id;
                self.problem(format!(
                    "I21: run {number} of {task} was taken at {at} from a worker that had it for \
                     {had_ms} ms"
                ));
            }
        }
        self.state().times = seen;
    }

    async fn times_of_runs(&self) -> BTreeMap<(String, usize), Times> {
        let ids = self.state().tasks.clone();
        let read = self.observer.read("times_of_runs", move |tx| {
            let mut times = BTreeMap::new();
            for id in &ids {
                let Some(task) = store::tasks::get(tx, &id.parse().unwrap())? else {
                    continue;
                };
                for (number, run) in task.runs.iter().enumerate() {
                    let Some(claim) = &run.claim else {
                        continue;
                    };
                    let run = Times {
                        started: claim.started,
                        until: claim.taken_until,
                        end: run.end.map(|end| (end.reason, end.at)),
                    };
                    times.insert((id.clone(), number), run);
                }
            }
            Ok::<_, StoreError>(times)
        });
        read.await.unwrap()
    }
}

/// The clock of a process that makes this mistake.
pub(crate) fn clock_of(
    mutant: Option<Mutant>,
    local: &Arc<MachineClock>,
    measured: &Arc<DatabaseClock>,
) -> Arc<dyn Clock> {
    match mutant {
        Some(Mutant::UsesItsOwnClock) => Arc::clone(local) as _,
        Some(Mutant::EndsAfterAStep) => Arc::new(Forgetful(Arc::clone(measured))),
        Some(_) | None => Arc::clone(measured) as _,
    }
}

/// A plausible mistake: steps of the time are forgotten at once.
struct Forgetful(Arc<DatabaseClock>);

impl Clock for Forgetful {
    fn now(&self) -> Timestamp {
        self.0.now()
    }

    fn steady_ms(&self) -> i64 {
        self.0.steady_ms()
    }

    fn doubt(&self) -> Option<String> {
        self.0.doubt()
    }
}
