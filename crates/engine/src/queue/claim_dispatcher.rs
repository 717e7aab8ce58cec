//! Gives pending tasks to waiting workers, many in one transaction.
//!
//! While workers wait, one async task of this process serves them: it takes the next batch from
//! `waiting_workers.rs` and serves it in one transaction. Tasks that other processes add are known
//! by their events. A sweep of all quiet lists every second finds tasks without an event; its cost
//! does not depend on the number of waiting workers.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use domain::id::{PoolId, WorkerKey};
use domain::time::MINUTE_MS;
use futures_util::FutureExt;
use store::outbox::OutboxRow;
use store::{StoreError, Tx};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claim_work::{ClaimResult, Claimant, RemainingWork, serve_lists};
use super::return_claims::return_unless_delivered;
use super::waiting_workers::{
    ClaimAnswer, ClaimError, ClaimedTasks, ListBatch, NextStep, WaitingWorker, WaitingWorkers,
};
use crate::Engine;

/// A worker waits at most this long for a task.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(20);
/// Quiet lists are checked for tasks in this interval, plus the jitter of this process.
const SWEEP_INTERVAL: Duration = Duration::from_secs(1);
const SWEEP_JITTER_MS: u64 = 500;
/// Workers that were asked to stop this long ago have had an answer since.
const NEWS_MS: i64 = MINUTE_MS;
/// A sweep dismisses at most this many workers, those that were asked last. The others are answered
/// after the longest wait.
const DISMISSED_AT_ONCE: u32 = 100;
/// The end of the name of the exchange for pending tasks.
const TASK_PENDING: &str = "/task-pending";

#[derive(Default)]
pub struct ClaimDispatcher {
    waiting: Mutex<WaitingWorkers>,
    /// Wakes the async task that serves.
    wakeup: Notify,
    /// Drawn once: what other parts of the process draw does not depend on how long it runs.
    sweep_interval: OnceLock<Duration>,
}

/// A worker's place in its list. Dropping it leaves the list.
struct WaitingPlace<'a> {
    dispatcher: &'a ClaimDispatcher,
    queue: PoolId,
    number: u64,
}

impl WaitingPlace<'_> {
    /// False: the worker is not in the list, because it is being served.
    fn leave(&self) -> bool {
        let mut waiting = self.dispatcher.waiting();
        let has_left = waiting.leave(&self.queue, self.number);
        if waiting.is_empty() {
            self.dispatcher.wakeup.notify_one();
        }
        has_left
    }
}

impl Drop for WaitingPlace<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl ClaimDispatcher {
    /// Waits for tasks; `None` after the maximum wait, or if the worker disconnected.
    pub async fn claim(
        &self,
        engine: &Arc<Engine>,
        worker: WorkerKey,
        wanted: u32,
        gone: &CancellationToken,
    ) -> ClaimAnswer {
        let until = Instant::now() + MAX_WAIT;
        let (answer, mut answered) = oneshot::channel();
        let queue = worker.pool_id.clone();
        let claimant = Claimant {
            worker,
            wanted,
            is_new: true,
        };
        let number = self.waiting().join(WaitingWorker {
            claimant,
            until,
            answer,
            gone: gone.clone(),
        });
        let place = WaitingPlace {
            dispatcher: self,
            queue,
            number,
        };
        self.serve(engine);
        let answer_or_gone = async {
            tokio::select! {
                biased;
                answer = &mut answered => Some(answer),
                () = gone.cancelled() => None,
            }
        };
        let answer = match tokio::time::timeout_at(until, answer_or_gone).await {
            Ok(Some(answer)) => answer,
            Ok(None) | Err(_) if place.leave() => return Ok(None),
            // A batch that is being served decides: the worker gets its tasks, or none.
            Ok(None) | Err(_) => answered.await,
        };
        answer.unwrap_or(Err(ClaimError::Panicked))
    }

    /// The number of workers that wait for this queue and are not being served.
    pub fn n_waiting(&self, queue: &PoolId) -> usize {
        self.waiting().n_waiting(queue)
    }

    /// This queue may have pending tasks.
    pub fn wake(&self, engine: &Arc<Engine>, queue: &PoolId) {
        let has_waiting = self.waiting().wake(queue);
        if has_waiting {
            self.serve(engine);
        }
    }

    /// Answers the waiting claims of workers that were asked to stop: there are no tasks. Then they
    /// ask whether they should stop, and not only after the maximum wait.
    pub fn dismiss(&self, workers: &[WorkerKey]) {
        let mut waiting = self.waiting();
        let dismissed = waiting.dismiss(workers);
        if waiting.is_empty() {
            self.wakeup.notify_one();
        }
        drop(waiting);
        for worker in dismissed {
            // A worker that disconnected needs no answer.
            let _ = worker.answer.send(Ok(None));
        }
    }

    /// Wakes the queues of published events, also of changes in other processes.
    pub fn wake_for_events(&self, engine: &Arc<Engine>, events: &[OutboxRow]) {
        let waits = |row: &&OutboxRow| row.topic.ends_with(TASK_PENDING);
        let queues: BTreeSet<&PoolId> = events
            .iter()
            .filter(waits)
            .filter_map(|row| row.pool_id.as_ref())
            .collect();
        queues
            .into_iter()
            .for_each(|queue| self.wake(engine, queue));
    }

    /// Starts the async task that serves, unless it runs: the caller may be dropped at any time.
    fn serve(&self, engine: &Arc<Engine>) {
        let mut waiting = self.waiting();
        if !waiting.is_serving {
            waiting.is_serving = true;
            tokio::spawn(serve(Arc::clone(engine)));
        } else if waiting.has_due_worker() {
            // Not for each worker that joins a quiet list: that would be most of the cost of
            // waiting.
            self.wakeup.notify_one();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, WaitingWorkers> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts workers that got nothing back into their lists.
    fn put_back(&self, served: ListBatch, remaining: RemainingWork) {
        for worker in self.waiting().put_back(served, remaining) {
            // A worker that disconnected needs no answer.
            let _ = worker.answer.send(Ok(None));
        }
    }
}

/// Serves until no worker waits.
async fn serve(engine: Arc<Engine>) {
    let dispatcher = &engine.queue.dispatcher;
    let mut next_sweep = next_sweep(&engine);
    loop {
        if Instant::now() >= next_sweep {
            // A panic in a sweep has been logged; the next sweep follows.
            let _ = AssertUnwindSafe(sweep(&engine)).catch_unwind().await;
            next_sweep = self::next_sweep(&engine);
        }
        if engine.clock.doubt().is_some() {
            // Claims of a process with a wrong time would end at a wrong time.
            let _ = tokio::time::timeout_at(next_sweep, dispatcher.wakeup.notified()).await;
            continue;
        }
        let next = dispatcher.waiting().next();
        match next {
            NextStep::Serve(batch) => serve_batch(&engine, batch).await,
            NextStep::Wait => {
                let _ = tokio::time::timeout_at(next_sweep, dispatcher.wakeup.notified()).await;
            }
            NextStep::Stop => return,
        }
        // The store may answer without waiting, so other async tasks get their turn here.
        tokio::task::yield_now().await;
    }
}

fn next_sweep(engine: &Engine) -> Instant {
    let draw = || {
        let jitter = engine.random.with(|random| random.next_u64()) % SWEEP_JITTER_MS;
        SWEEP_INTERVAL + Duration::from_millis(jitter)
    };
    Instant::now() + *engine.queue.dispatcher.sweep_interval.get_or_init(draw)
}

/// Checks all quiet lists for pending tasks, and for workers that another process asked to stop,
/// with one statement each.
async fn sweep(engine: &Engine) {
    let quiet = engine.queue.dispatcher.waiting().quiet();
    if quiet.is_empty() {
        return;
    }
    let queues: Vec<PoolId> = quiet.iter().map(|(queue, _)| queue.clone()).collect();
    let now = engine.clock.now();
    let since = now.plus_millis(-NEWS_MS);
    let found = engine.store.scan("claim_sweep", move |tx| {
        let ask = |tx: &mut Tx<'_>| {
            store::claimants::asked_to_stop(tx, &queues, since, DISMISSED_AT_ONCE)
        };
        tx.ask(|tx| ask(tx).map(drop));
        let with_work = store::pending_tasks::queues_with_work(tx, &queues, now)?;
        Ok::<_, StoreError>((with_work, ask(tx)?))
    });
    match found.await {
        Ok((with_work, asked_to_stop)) => {
            let with_work = with_work.into_iter().collect();
            let dispatcher = &engine.queue.dispatcher;
            dispatcher.waiting().apply_sweep(&quiet, &with_work);
            dispatcher.dismiss(&asked_to_stop);
        }
        Err(problem) => tracing::debug!(error = %problem, "cannot look for tasks that wait"),
    }
}

async fn serve_batch(engine: &Arc<Engine>, batch: Vec<ListBatch>) {
    let asked: Vec<(PoolId, Vec<Claimant>)> = batch
        .iter()
        .map(|served| {
            let workers = served.workers.iter();
            let claimants = workers.map(|(_, waiting)| waiting.claimant.clone());
            (served.queue.clone(), claimants.collect())
        })
        .collect();
    let dispatcher = &engine.queue.dispatcher;
    let serving = AssertUnwindSafe(serve_lists(engine, asked)).catch_unwind();
    let failure = match serving.await {
        Ok(Ok(outcomes)) => {
            for (mut served, outcome) in batch.into_iter().zip(outcomes) {
                served.workers = hand_out(engine, served.workers, outcome.results);
                dispatcher.put_back(served, outcome.remaining);
            }
            return;
        }
        // A conflict with other transactions: the next sweep is the retry.
        Ok(Err(problem)) if matches!(*problem, StoreError::TooManyConflicts { .. }) => {
            for served in batch {
                dispatcher.put_back(served, RemainingWork::None);
            }
            return;
        }
        Ok(Err(problem)) => ClaimError::Store(problem),
        // The workers of this batch get the error; the others are served.
        Err(_panic) => ClaimError::Panicked,
    };
    for mut served in batch {
        for (_, waiting) in served.workers.drain(..) {
            let _ = waiting.answer.send(Err(failure.clone()));
        }
        dispatcher.put_back(served, RemainingWork::None);
    }
}

/// Sends the results, and returns the workers that got nothing.
fn hand_out(
    engine: &Arc<Engine>,
    workers: Vec<(u64, WaitingWorker)>,
    results: Vec<ClaimResult>,
) -> Vec<(u64, WaitingWorker)> {
    let mut empty_handed = Vec::new();
    for ((number, mut waiting), result) in workers.into_iter().zip(results) {
        // A result without a receiver is dropped here, which returns its claims.
        match result {
            ClaimResult::Tasks(tasks) => {
                let undo = return_unless_delivered(engine, &waiting.claimant.worker, &tasks);
                let _ = waiting.answer.send(Ok(Some(ClaimedTasks { tasks, undo })));
            }
            ClaimResult::Refused(state) => {
                let _ = waiting.answer.send(Err(ClaimError::Refused(state)));
            }
            ClaimResult::Nothing => {
                waiting.claimant.is_new = false;
                empty_handed.push((number, waiting));
            }
        }
    }
    empty_handed
}
