//! Runs background tasks: periodically or when woken, one activation of a task at a time.

use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use domain::time::Clock;
use engine::database_clock::DatabaseClock;
use engine::measures::{Stopwatch, seconds};
use futures_util::FutureExt;
use metrics::{gauge, histogram};
use serde_json::{Value, json};
use tokio::sync::{Notify, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use crate::telemetry::{TASK_AGE, TASK_SECONDS};

/// Maximum wait for running activations when the server stops.
const LAST_ACTIVATIONS: Duration = Duration::from_secs(10);

/// A task that failed is not activated again for this time, and not for twice the last pause if it
/// fails again. The pause is never longer than the period, in which the next activation comes
/// anyway.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LONGEST_PAUSE: Duration = Duration::from_secs(10);

/// The number of tasks with the same period that begin at different moments.
const PARTS: u32 = 89;

/// A summary for people, which is `Null` if there was nothing to do; or the problem.
pub type ActivationResult = Result<Value, Box<dyn Error + Send + Sync>>;

/// The body of a loop: reads the current state and acts on it. An activation does not sleep (apart
/// from the pauses of deletions), does not retry and does a limited amount of work; the next
/// activation is the retry.
#[async_trait]
pub trait BackgroundTask: Send + 'static {
    /// The name in logs and metrics.
    fn name(&self) -> String;

    /// Whether a stop drops a running activation immediately, because it can last for minutes.
    fn drops_at_stop(&self) -> bool {
        false
    }

    /// Whether a failure concerns a part of its work only, and that part alone waits. A failure of
    /// any other task delays its next activation.
    fn pauses_parts(&self) -> bool {
        false
    }

    async fn activate(&mut self) -> ActivationResult;

    /// Whether it also runs while the time is in doubt, which no task does that uses the time.
    fn runs_in_doubt(&self) -> bool {
        false
    }

    /// The time until the next work, if it is known and less than a period. The task is then
    /// activated again.
    fn idle_for(&self) -> Option<Duration> {
        None
    }
}

/// The state of a task.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Status {
    /// The number of activations that have ended.
    pub finished: u64,
    /// The summary of the last activation, or its error.
    pub last: Option<Result<Value, String>>,
}

/// A handle of a running task.
pub struct Handle {
    wake: Arc<Notify>,
    status: watch::Receiver<Status>,
}

impl Handle {
    /// Activates the task now instead of after its period.
    pub fn wake(&self) {
        self.wake.notify_one();
    }

    /// Waits until this many activations have ended, including earlier ones.
    pub async fn finished(&mut self, count: u64) -> Status {
        let finished = self.status.wait_for(|status| status.finished >= count);
        finished.await.as_deref().cloned().unwrap_or_default()
    }
}

pub struct Driver {
    clock: Arc<dyn Clock>,
    /// Whether the time is in doubt.
    doubts: watch::Receiver<bool>,
    stop: CancellationToken,
    running: JoinSet<()>,
    n_started: u32,
}

impl Driver {
    /// For a clock that is never in doubt.
    pub fn new(clock: Arc<dyn Clock>, stop: CancellationToken) -> Self {
        Self {
            clock,
            doubts: watch::channel(false).1,
            stop,
            running: JoinSet::new(),
            n_started: 0,
        }
    }

    /// Tasks rest while this clock is in doubt.
    pub fn of(clock: &Arc<DatabaseClock>, stop: CancellationToken) -> Self {
        Self {
            doubts: clock.doubts(),
            ..Self::new(Arc::clone(clock) as _, stop)
        }
    }

    /// Starts a task: its first activation is now, and the second within a period.
    pub fn start<T: BackgroundTask>(&mut self, period: Duration, task: T) -> Handle {
        self.start_woken(period, Arc::default(), task)
    }

    /// Starts a task that others can wake through `wake`.
    pub fn start_woken<T: BackgroundTask>(
        &mut self,
        period: Duration,
        wake: Arc<Notify>,
        task: T,
    ) -> Handle {
        let (status_sender, status) = watch::channel(Status::default());
        let time = TimeSource {
            clock: self.clock.clone(),
            doubts: self.doubts.clone(),
        };
        let (stop, woken) = (self.stop.clone(), wake.clone());
        let ticks = periodically(period, self.n_started);
        self.n_started += 1;
        self.running
            .spawn(run(Box::new(task), ticks, stop, time, woken, status_sender));
        Handle { wake, status }
    }

    /// Waits a short time for running activations after the stop. Slower ones are dropped: every
    /// activation survives the end of the process at any point.
    pub async fn join(mut self) {
        let ended = async { while self.running.join_next().await.is_some() {} };
        if tokio::time::timeout(LAST_ACTIVATIONS, ended).await.is_err() {
            tracing::warn!(
                "{} background tasks still run and are dropped",
                self.running.len()
            );
            self.running.shutdown().await;
        }
    }
}

/// The activations after the first. The second comes after a part of the period that differs
/// between tasks: the periods are multiples of each other, so tasks that all began together would
/// do so again and again, and requests would wait for them.
fn periodically(period: Duration, n_before: u32) -> Interval {
    // Multiples of the golden ratio (89 to 55) that follow each other are far apart in the period.
    let part = n_before % PARTS * 55 % PARTS + 1;
    let mut ticks = interval_at(Instant::now() + period * part / PARTS, period);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    ticks
}

/// The clock of a task, and whether it is in doubt.
struct TimeSource {
    clock: Arc<dyn Clock>,
    doubts: watch::Receiver<bool>,
}

impl TimeSource {
    /// Waits until the time is known.
    async fn known(&mut self) {
        while self.clock.doubt().is_some() {
            // An error means that the clock has been dropped, which the driver's never is.
            let _ = self.doubts.wait_for(|is_doubtful| !is_doubtful).await;
        }
    }
}

async fn run(
    mut task: Box<dyn BackgroundTask>,
    mut ticks: Interval,
    stop: CancellationToken,
    mut time: TimeSource,
    wake: Arc<Notify>,
    status_sender: watch::Sender<Status>,
) {
    let mut is_first = true;
    let mut n_failed = 0;
    let drops_at_stop = task.drops_at_stop();
    loop {
        // Without a known time only the period counts, so that a tick does not activate it twice.
        let idle_for = task.idle_for().unwrap_or(Duration::MAX);
        tokio::select! {
            () = std::future::ready(()), if is_first => is_first = false,
            _ = ticks.tick() => {}
            _ = tokio::time::timeout(idle_for, wake.notified()) => {}
            () = stop.cancelled() => return,
        }
        if !task.runs_in_doubt() {
            tokio::select! {
                () = time.known() => {}
                () = stop.cancelled() => return,
            }
        }
        let outcome = tokio::select! {
            biased;
            outcome = activate(&mut *task, &*time.clock) => outcome,
            () = stop.cancelled(), if drops_at_stop => return,
        };
        let is_failure = outcome.is_err() && !task.pauses_parts();
        n_failed = if is_failure { n_failed + 1 } else { 0 };
        status_sender.send_modify(|status| {
            status.finished += 1;
            status.last = Some(outcome);
        });
        let pause = pause(n_failed).min(ticks.period());
        if is_failure && tokio::time::timeout(pause, stop.cancelled()).await.is_ok() {
            return;
        }
    }
}

/// The pause after this many failures in a row. Many events may wake a task, and each activation
/// that fails costs the database, or what is left of it.
fn pause(n_failed: u32) -> Duration {
    let doublings = n_failed.saturating_sub(1).min(10);
    (FIRST_PAUSE * 2_u32.pow(doublings)).min(LONGEST_PAUSE)
}

/// Runs one activation and measures it. A panic counts as a failure.
async fn activate(task: &mut dyn BackgroundTask, clock: &dyn Clock) -> Result<Value, String> {
    let (watch, name) = (Stopwatch::start(), task.name());
    let outcome = AssertUnwindSafe(task.activate()).catch_unwind().await;
    let outcome = outcome
        .unwrap_or_else(|_| Err("the task panicked".into()))
        .map_err(|problem| problem.to_string());
    let status = match &outcome {
        Ok(Value::Null) => "success",
        Ok(done) => {
            tracing::info!(task.name = name, task.done = %done, "{name}: {done}");
            "success"
        }
        Err(problem) => {
            tracing::error!(task.name = name, "{name} failed: {problem}");
            "exception"
        }
    };
    if outcome.is_ok() {
        gauge!(TASK_AGE, "name" => name.clone()).set(seconds(clock.now().as_millis()));
    }
    histogram!(TASK_SECONDS, "name" => name, "status" => status)
        .record(watch.elapsed().as_secs_f64());
    outcome
}

/// The counts that are not zero, for the log.
pub fn summary(counts: &[(&str, u64)]) -> Value {
    let done: serde_json::Map<String, Value> = counts
        .iter()
        .filter(|(_, count)| *count > 0)
        .map(|(name, count)| ((*name).to_owned(), json!(count)))
        .collect();
    if done.is_empty() {
        Value::Null
    } else {
        Value::Object(done)
    }
}

#[cfg(test)]
mod tests {
    use domain::time::Timestamp;
    use testing::sizes_around;
    use tokio::sync::mpsc;

    use super::*;

    struct Still;

    impl Clock for Still {
        fn now(&self) -> Timestamp {
            Timestamp::from_millis(0)
        }
    }

    /// Repeats the steps of its script.
    struct Scripted(Vec<fn() -> ActivationResult>);

    #[async_trait]
    impl BackgroundTask for Scripted {
        fn name(&self) -> String {
            "scripted".to_owned()
        }

        async fn activate(&mut self) -> ActivationResult {
            let step = self.0.remove(0);
            self.0.push(step);
            step()
        }
    }

    fn driver() -> (Driver, CancellationToken) {
        let stop = CancellationToken::new();
        (Driver::new(Arc::new(Still), stop.clone()), stop)
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_runs_at_once_and_then_periodically() {
        let (mut driver, stop) = driver();
        let mut handle = driver.start(Duration::from_secs(60), Scripted(vec![|| Ok(json!(1))]));
        assert_eq!(handle.finished(3).await.last, Some(Ok(json!(1))));
        stop.cancel();
        driver.join().await;
    }

    /// Notes the time of each activation.
    struct Noted(mpsc::UnboundedSender<Duration>, Instant);

    #[async_trait]
    impl BackgroundTask for Noted {
        fn name(&self) -> String {
            "noted".to_owned()
        }

        async fn activate(&mut self) -> ActivationResult {
            // Time: its tests stop it.
            self.0.send(self.1.elapsed())?;
            Ok(Value::Null)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn tasks_of_one_period_begin_together_only_at_the_start() {
        let (period, begun) = (Duration::from_secs(60), Instant::now());
        for count in sizes_around("server::background::driver::PARTS", PARTS as usize) {
            let (mut driver, stop) = driver();
            let mut noted = Vec::new();
            for _ in 0..count {
                let (sender, times) = mpsc::unbounded_channel();
                noted.push((driver.start(period, Noted(sender, begun)), times));
            }
            let mut second = Vec::new();
            let begun = begun.elapsed();
            for (_handle, times) in &mut noted {
                let mut next = async || times.recv().await.unwrap();
                let [first, then, third] = [next().await, next().await, next().await];
                assert!(first <= begun + Duration::from_millis(1), "{first:?}");
                assert!(
                    then <= begun + period + Duration::from_millis(2),
                    "{then:?}"
                );
                let apart = third.abs_diff(then + period);
                assert!(apart < Duration::from_millis(2), "{apart:?}");
                second.push(then);
            }
            second.sort_unstable();
            let nearest = second.windows(2).map(|pair| pair[1] - pair[0]).min();
            let nearest = nearest.unwrap_or(period);
            let is_apart = nearest >= period / 90;
            assert_eq!(is_apart, count <= PARTS as usize, "{count}: {nearest:?}");
            stop.cancel();
            driver.join().await;
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_panic_is_a_failure_and_the_task_continues() {
        let (mut driver, stop) = driver();
        let script: Vec<fn() -> ActivationResult> = vec![|| panic!("scripted"), || Ok(Value::Null)];
        let mut handle = driver.start(Duration::from_secs(1), Scripted(script));
        let first = handle.finished(1).await;
        assert_eq!(first.last, Some(Err("the task panicked".to_owned())));
        assert!(handle.finished(2).await.finished >= 2);
        stop.cancel();
        driver.join().await;
    }

    /// The number of activations in ten minutes of a task that is woken every 10 ms.
    async fn n_activations<T: BackgroundTask>(period: Duration, task: T) -> u64 {
        let (mut driver, stop) = driver();
        let mut handle = driver.start(period, task);
        let wakes = tokio::time::timeout(Duration::from_secs(600), async {
            // Time: its tests stop it.
            let mut ticks = tokio::time::interval(Duration::from_millis(10));
            loop {
                ticks.tick().await;
                handle.wake();
            }
        });
        assert!(wakes.await.is_err());
        let status = handle.finished(0).await;
        stop.cancel();
        driver.join().await;
        status.finished
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_fails_pauses_however_often_it_is_woken() {
        let fails = || Scripted(vec![|| Err("the disk is full".into())]);
        let hour = Duration::from_secs(3_600);
        // 0.25, 0.5, 1, 2, 4, 8, and then 10 seconds.
        let count = n_activations(hour, fails()).await;
        assert!((60..=66).contains(&count), "{count}");
        // A short period is the longest pause.
        let count = n_activations(Duration::from_secs(1), fails()).await;
        assert!((590..=610).contains(&count), "{count}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_ends_the_pauses() {
        let script: Vec<fn() -> ActivationResult> =
            vec![|| Err("a conflict".into()), || Ok(Value::Null)];
        let count = n_activations(Duration::from_secs(3_600), Scripted(script)).await;
        // Two in each quarter of a second.
        assert!(count >= 4 * 600, "{count}");
    }

    /// Fails in a part of its work.
    struct InPart;

    #[async_trait]
    impl BackgroundTask for InPart {
        fn name(&self) -> String {
            "in part".to_owned()
        }

        fn pauses_parts(&self) -> bool {
            true
        }

        async fn activate(&mut self) -> ActivationResult {
            Err("one of many pools".into())
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_pauses_what_failed_works_on_at_once() {
        let count = n_activations(Duration::from_secs(3_600), InPart).await;
        assert!(count > 10_000, "{count}");
    }

    #[tokio::test]
    async fn waking_a_task_activates_it_now() {
        let (mut driver, stop) = driver();
        let an_age = Duration::from_secs(1_000_000);
        let mut handle = driver.start(an_age, Scripted(vec![|| Ok(Value::Null)]));
        handle.finished(1).await;
        handle.wake();
        handle.finished(2).await;
        stop.cancel();
        driver.join().await;
    }

    /// Is activated this many more times, with short waits.
    struct Soon(u32);

    #[async_trait]
    impl BackgroundTask for Soon {
        fn name(&self) -> String {
            "soon".to_owned()
        }

        async fn activate(&mut self) -> ActivationResult {
            self.0 = self.0.saturating_sub(1);
            Ok(json!(self.0))
        }

        fn idle_for(&self) -> Option<Duration> {
            (self.0 > 0).then_some(Duration::from_millis(3))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_task_that_knows_the_time_of_its_next_work_is_activated_then() {
        let (mut driver, stop) = driver();
        let begun = Instant::now();
        let an_age = Duration::from_secs(1_000_000);
        let mut handle = driver.start(an_age, Soon(4));
        assert_eq!(handle.finished(4).await.last, Some(Ok(json!(0))));
        let took = begun.elapsed();
        assert!(took < Duration::from_millis(100), "{took:?}");
        stop.cancel();
        driver.join().await;
    }

    /// Waits for ever; `_alive` shows whether it was dropped.
    struct Stuck<const DROPS_AT_STOP: bool> {
        _alive: Arc<()>,
        begun: Arc<Notify>,
    }

    #[async_trait]
    impl<const DROPS_AT_STOP: bool> BackgroundTask for Stuck<DROPS_AT_STOP> {
        fn name(&self) -> String {
            "stuck".to_owned()
        }

        fn drops_at_stop(&self) -> bool {
            DROPS_AT_STOP
        }

        async fn activate(&mut self) -> ActivationResult {
            self.begun.notify_one();
            std::future::pending().await
        }
    }

    /// How long the stop waits for a task that waits for ever.
    async fn stopping_took<const DROPS_AT_STOP: bool>() -> Duration {
        let (mut driver, stop) = driver();
        let (alive, begun) = (Arc::new(()), Arc::new(Notify::new()));
        driver.start(
            Duration::from_secs(1),
            Stuck::<DROPS_AT_STOP> {
                _alive: Arc::clone(&alive),
                begun: Arc::clone(&begun),
            },
        );
        begun.notified().await;
        // Time: its tests stop it.
        let stopped = Instant::now();
        stop.cancel();
        driver.join().await;
        assert_eq!(Arc::strong_count(&alive), 1);
        // Time: its tests stop it.
        stopped.elapsed()
    }

    #[tokio::test(start_paused = true)]
    async fn a_stop_waits_a_limited_time_for_activations_and_not_for_those_that_may_last() {
        assert!(stopping_took::<false>().await >= LAST_ACTIVATIONS);
        assert!(stopping_took::<true>().await < Duration::from_millis(2));
    }
}
