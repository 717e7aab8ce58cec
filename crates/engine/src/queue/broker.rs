//! Hands tasks to the workers that wait for them, many in one transaction.
//!
//! As long as anybody waits, one task of this process serves: it takes the next batch of those who are to be
//! looked at (`lines.rs` says who) and serves them in one transaction. What other processes add is heard of by
//! its events; what nobody told is found by a sweep of all quiet lines every second, which costs the same
//! however many workers wait in them.

use std::collections::BTreeSet;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::{PoolId, WorkerKey};
use futures_util::FutureExt;
use store::StoreError;
use store::outbox::OutboxRow;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claiming::{Claimant, Left, Share, serve_lines};
use super::giving_back::if_unheard;
use super::lines::{Answer, Claimed, Lines, Next, NotServed, Served, Waiting};
use crate::Engine;

/// A worker waits so long for work before it is told that there is none.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// So often quiet lines are looked at for what nobody told, give or take.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_JITTER_MS: u64 = 500;
/// How the name of the exchange ends that tells of tasks that wait.
const TASK_PENDING: &str = "/task-pending";

#[derive(Default)]
pub struct Broker {
    lines: Mutex<Lines>,
    /// Rung when there may be something to do for the task that serves.
    bell: Notify,
}

/// Leaves the line when the worker stops waiting, however that comes about.
struct Place<'a> {
    broker: &'a Broker,
    queue: PoolId,
    number: u64,
}

impl Place<'_> {
    /// False: not in the line, but being served.
    fn leave(&self) -> bool {
        let mut lines = self.broker.lines();
        let has_left = lines.leave(&self.queue, self.number);
        if lines.is_empty() {
            self.broker.bell.notify_one();
        }
        has_left
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.leave();
    }
}

impl Broker {
    /// Waits for tasks; none if the time is over or the worker has hung up.
    pub async fn claim(
        &self,
        engine: &Arc<Engine>,
        worker: WorkerKey,
        wanted: u32,
        gone: &CancellationToken,
    ) -> Answer {
        let until = Instant::now() + PATIENCE;
        let (answer, mut answered) = oneshot::channel();
        let queue = worker.pool_id.clone();
        let claimant = Claimant {
            worker,
            wanted,
            is_new: true,
        };
        let number = self.lines().join(Waiting {
            claimant,
            until,
            answer,
            gone: gone.clone(),
        });
        let place = Place {
            broker: self,
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
            // Whoever is being served at this moment gets what there is, or is told that there is nothing.
            Ok(None) | Err(_) => answered.await,
        };
        answer.unwrap_or(Err(NotServed::Panicked))
    }

    /// How many workers wait for the tasks of this queue, while nobody looks for any.
    pub fn waiting(&self, queue: &PoolId) -> usize {
        self.lines().waiting(queue)
    }

    /// There may be work in this queue.
    pub fn ring(&self, engine: &Arc<Engine>, queue: &PoolId) {
        let somebody_waits = self.lines().ring(queue);
        if somebody_waits {
            self.serve(engine);
        }
    }

    /// Rings for what is told to wait, also for what was done by those who do not ring.
    pub fn hear(&self, engine: &Arc<Engine>, told: &[OutboxRow]) {
        let waits = |row: &&OutboxRow| row.topic.ends_with(TASK_PENDING);
        let queues: BTreeSet<&PoolId> = told
            .iter()
            .filter(waits)
            .filter_map(|row| row.pool_id.as_ref())
            .collect();
        queues
            .into_iter()
            .for_each(|queue| self.ring(engine, queue));
    }

    /// Sees to it that somebody serves, in a task of its own: who asked may go away at any time.
    fn serve(&self, engine: &Arc<Engine>) {
        let mut lines = self.lines();
        if !lines.is_serving {
            lines.is_serving = true;
            tokio::spawn(serve(Arc::clone(engine)));
        } else if lines.is_anybody_due() {
            // Not for each that joins a quiet line: that would be most of what waiting costs.
            self.bell.notify_one();
        }
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts those who got nothing back to their places.
    fn put_back(&self, served: Served, left: Left) {
        for leaving in self.lines().put_back(served, left) {
            // Who went away needs no answer.
            let _ = leaving.answer.send(Ok(None));
        }
    }
}

/// Serves until nobody waits any more.
async fn serve(engine: Arc<Engine>) {
    let broker = &engine.queue.broker;
    let mut next_sweep = next_sweep(&engine);
    loop {
        if Instant::now() >= next_sweep {
            // A sweep that panics has been logged; the next one follows.
            let _ = AssertUnwindSafe(sweep(&engine)).catch_unwind().await;
            next_sweep = self::next_sweep(&engine);
        }
        let next = broker.lines().next();
        match next {
            Next::Serve(batch) => serve_batch(&engine, batch).await,
            Next::Wait => {
                let _ = tokio::time::timeout_at(next_sweep, broker.bell.notified()).await;
            }
            Next::Stop => return,
        }
        // The store may answer without waiting; others want to be let in meanwhile.
        tokio::task::yield_now().await;
    }
}

fn next_sweep(engine: &Engine) -> Instant {
    let jitter = engine.random.with(|random| random.next_u64()) % LOOK_AGAIN_JITTER_MS;
    Instant::now() + LOOK_AGAIN + Duration::from_millis(jitter)
}

/// Looks for work in all lines in which there was none, with one statement. There are no more lines than connections.
async fn sweep(engine: &Engine) {
    let quiet = engine.queue.broker.lines().quiet();
    if quiet.is_empty() {
        return;
    }
    let queues: Vec<PoolId> = quiet.iter().map(|(queue, _)| queue.clone()).collect();
    let now = engine.clock.now();
    let found = engine.store.scan("claim_sweep", move |tx| {
        store::pending_tasks::queues_with_work(tx, &queues, now)
    });
    match found.await {
        Ok(found) => {
            let found = found.into_iter().collect();
            engine.queue.broker.lines().swept(&quiet, &found);
        }
        Err(problem) => tracing::debug!(error = %problem, "cannot look for tasks that wait"),
    }
}

async fn serve_batch(engine: &Arc<Engine>, batch: Vec<Served>) {
    let asked: Vec<(PoolId, Vec<Claimant>)> = batch
        .iter()
        .map(|served| {
            let workers = served.workers.iter();
            let claimants = workers.map(|(_, waiting)| waiting.claimant.clone());
            (served.queue.clone(), claimants.collect())
        })
        .collect();
    let broker = &engine.queue.broker;
    let serving = AssertUnwindSafe(serve_lines(engine, asked)).catch_unwind();
    let failure = match serving.await {
        Ok(Ok(outcomes)) => {
            for (mut served, outcome) in batch.into_iter().zip(outcomes) {
                served.workers = hand_out(engine, served.workers, outcome.shares);
                broker.put_back(served, outcome.left);
            }
            return;
        }
        // Others were faster, again and again: the next sweep is the retry.
        Ok(Err(problem)) if matches!(*problem, StoreError::TooManyConflicts { .. }) => {
            for served in batch {
                broker.put_back(served, Left::Nothing);
            }
            return;
        }
        Ok(Err(problem)) => NotServed::Store(problem),
        // A panic is told to those it concerns; the others are served on.
        Err(_panic) => NotServed::Panicked,
    };
    for mut served in batch {
        for (_, waiting) in served.workers.drain(..) {
            let _ = waiting.answer.send(Err(failure.clone()));
        }
        broker.put_back(served, Left::Nothing);
    }
}

/// Who is left with nothing.
fn hand_out(
    engine: &Arc<Engine>,
    workers: Vec<(u64, Waiting)>,
    shares: Vec<Share>,
) -> Vec<(u64, Waiting)> {
    let mut empty_handed = Vec::new();
    for ((number, mut waiting), share) in workers.into_iter().zip(shares) {
        // An answer that nobody takes is dropped here, and was not heard either.
        match share {
            Share::Tasks(tasks) => {
                let if_unheard = if_unheard(engine, &waiting.claimant.worker, &tasks);
                let _ = waiting.answer.send(Ok(Some(Claimed { tasks, if_unheard })));
            }
            Share::Refused(state) => {
                let _ = waiting.answer.send(Err(NotServed::Refused(state)));
            }
            Share::Nothing => {
                waiting.claimant.is_new = false;
                empty_handed.push((number, waiting));
            }
        }
    }
    empty_handed
}
