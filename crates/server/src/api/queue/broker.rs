//! Hands tasks to the workers that wait for them, many in one transaction.
//!
//! Workers stand in line, one line for each task queue. Whenever there may be work for a line, because a
//! worker has joined it or a task has come, one task of this process takes the first of each such line and
//! serves them all in one transaction. What other processes add is heard of by its events, or found by looking
//! again every second.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::id::{PoolId, WorkerKey};
use domain::task::Task;
use futures_util::FutureExt;
use store::{OutboxRow, StoreError};
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::super::unheard::IfUnheard;
use super::claiming::{Claimant, serve_lines};
use super::giving_back::if_unheard;
use crate::app::App;

/// A worker waits so long for work before it is told that there is none.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// So often a line is looked at for what other processes have added, give or take.
const LOOK_AGAIN: Duration = Duration::from_secs(1);
const LOOK_AGAIN_JITTER_MS: u64 = 500;
/// How the name of the exchange ends that tells of tasks that wait.
const TASK_PENDING: &str = "/task-pending";
/// So many workers are served in one transaction.
const SERVED_AT_ONCE: usize = 64;

#[derive(Default)]
pub struct Broker {
    lines: Mutex<Lines>,
}

#[derive(Default)]
struct Lines {
    by_queue: BTreeMap<PoolId, Line>,
    /// Whether somebody serves.
    serving: bool,
    last_number: u64,
    /// The queue that was served last: the next round begins behind it.
    last_served: Option<PoolId>,
}

/// The workers that wait for the tasks of one queue, longest first.
#[derive(Default)]
struct Line {
    waiting: VecDeque<Waiting>,
    /// There may be work.
    look: bool,
    /// Some of it are being served.
    served: bool,
    last_look: Option<Instant>,
}

struct Waiting {
    number: u64,
    claimant: Claimant,
    until: Instant,
    answer: oneshot::Sender<Answer>,
}

/// `None`: there was nothing.
type Answer = Result<Option<Claimed>, Failure>;

/// What a worker is to be told that it has.
pub(crate) struct Claimed {
    /// Each with its last run claimed by this worker.
    pub(crate) tasks: Vec<Task>,
    pub(crate) if_unheard: IfUnheard,
}

/// The store failed all that were served together.
#[derive(Clone, Debug)]
struct Failure(Arc<StoreError>);

type Batch = Vec<(PoolId, Vec<Waiting>)>;

impl Broker {
    /// Waits for tasks; none if the time is over or the worker has hung up.
    pub(crate) async fn claim(
        &self,
        app: &Arc<App>,
        worker: WorkerKey,
        wanted: u32,
        gone: &CancellationToken,
    ) -> Result<Option<Claimed>, StoreError> {
        let until = Instant::now() + PATIENCE;
        let (answer, mut answered) = oneshot::channel();
        let queue = worker.pool_id.clone();
        let number = self.join(Waiting {
            number: 0,
            claimant: Claimant {
                worker,
                wanted,
                is_new: true,
            },
            until,
            answer,
        });
        self.serve(app);
        loop {
            let jitter = app.random.with(|random| random.next_u64()) % LOOK_AGAIN_JITTER_MS;
            let next = (Instant::now() + LOOK_AGAIN + Duration::from_millis(jitter)).min(until);
            let answer_or_gone = async {
                tokio::select! {
                    biased;
                    answer = &mut answered => Some(answer),
                    () = gone.cancelled() => None,
                }
            };
            if let Ok(Some(answer)) = tokio::time::timeout_at(next, answer_or_gone).await {
                return claimed(answer);
            }
            if gone.is_cancelled() || Instant::now() >= until {
                // Whoever is being served at this moment gets what there is.
                return if self.leave(&queue, number) {
                    Ok(None)
                } else {
                    claimed(answered.await)
                };
            }
            self.look_again(app, &queue);
        }
    }

    /// How many workers wait for the tasks of this queue, while nobody looks for any.
    pub fn waiting(&self, queue: &PoolId) -> usize {
        let lines = self.lines();
        let line = lines.by_queue.get(queue);
        let line = line.filter(|line| !line.look && !line.served);
        line.map_or(0, |line| line.waiting.len())
    }

    /// There may be work in this queue.
    pub(crate) fn ring(&self, app: &Arc<App>, queue: &PoolId) {
        if let Some(line) = self.lines().by_queue.get_mut(queue) {
            line.look = true;
        } else {
            return;
        }
        self.serve(app);
    }

    /// Rings for what is told to wait, also for what was done by those who do not ring.
    pub(crate) fn hear(&self, app: &Arc<App>, told: &[OutboxRow]) {
        let waits = |row: &&OutboxRow| row.topic.ends_with(TASK_PENDING);
        let queues: BTreeSet<&PoolId> = told
            .iter()
            .filter(waits)
            .filter_map(|row| row.pool_id.as_ref())
            .collect();
        queues.into_iter().for_each(|queue| self.ring(app, queue));
    }

    fn look_again(&self, app: &Arc<App>, queue: &PoolId) {
        if let Some(line) = self.lines().by_queue.get_mut(queue) {
            let is_due = line
                .last_look
                .is_none_or(|last| last.elapsed() >= LOOK_AGAIN);
            line.look |= is_due;
        }
        self.serve(app);
    }

    fn join(&self, mut waiting: Waiting) -> u64 {
        let mut lines = self.lines();
        lines.last_number += 1;
        let number = lines.last_number;
        waiting.number = number;
        let queue = waiting.claimant.worker.pool_id.clone();
        let line = lines.by_queue.entry(queue).or_default();
        line.waiting.push_back(waiting);
        line.look = true;
        number
    }

    /// False: not in the line, but being served.
    fn leave(&self, queue: &PoolId, number: u64) -> bool {
        let mut lines = self.lines();
        let Some(line) = lines.by_queue.get_mut(queue) else {
            return false;
        };
        let place = line
            .waiting
            .iter()
            .position(|waiting| waiting.number == number);
        let Some(place) = place else {
            return false;
        };
        line.waiting.remove(place);
        lines.forget_if_empty(queue);
        true
    }

    /// Sees to it that somebody serves, in a task of its own: who asked may go away at any time.
    fn serve(&self, app: &Arc<App>) {
        let mut lines = self.lines();
        if lines.serving || !lines.is_due() {
            return;
        }
        lines.serving = true;
        let app = Arc::clone(app);
        tokio::spawn(async move {
            while let Some(batch) = app.queue.broker.next_batch() {
                // A panic is told to those it concerns; the others are served on.
                let serving = AssertUnwindSafe(serve_batch(&app, batch));
                let _ = serving.catch_unwind().await;
            }
        });
    }

    fn next_batch(&self) -> Option<Batch> {
        self.lines().take_batch()
    }

    fn lines(&self) -> MutexGuard<'_, Lines> {
        self.lines.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Lines {
    fn is_due(&self) -> bool {
        self.by_queue
            .values()
            .any(|line| line.look && !line.waiting.is_empty())
    }

    /// The first of each line for which there may be work; `None` ends the serving.
    fn take_batch(&mut self) -> Option<Batch> {
        let mut batch = Batch::new();
        let mut room = SERVED_AT_ONCE;
        let last = self.last_served.take();
        let is_later = |queue: &PoolId| last.as_ref().is_none_or(|last| queue > last);
        let (mut queues, earlier): (Vec<PoolId>, Vec<PoolId>) = self
            .by_queue
            .iter()
            .filter(|(_, line)| line.look && !line.waiting.is_empty())
            .map(|(queue, _)| queue.clone())
            .partition(|queue| is_later(queue));
        queues.extend(earlier);
        for queue in queues {
            let Some(line) = self.by_queue.get_mut(&queue).filter(|_| room > 0) else {
                break;
            };
            line.waiting.retain(|waiting| !waiting.answer.is_closed());
            let first: Vec<Waiting> = line.waiting.drain(..line.waiting.len().min(room)).collect();
            room -= first.len();
            line.look = !line.waiting.is_empty();
            line.last_look = Some(Instant::now());
            line.served = true;
            self.last_served = Some(queue.clone());
            batch.push((queue, first));
        }
        self.serving = !batch.is_empty();
        self.serving.then_some(batch)
    }

    /// Puts those for whom there was nothing back to where they stood.
    fn put_back(&mut self, queue: &PoolId, waiting: Vec<Waiting>, more: bool) {
        let line = self.by_queue.entry(queue.clone()).or_default();
        line.served = false;
        line.look |= more;
        for mut waiting in waiting.into_iter().rev() {
            if waiting.until <= Instant::now() {
                // Who went away needs no answer.
                let _ = waiting.answer.send(Ok(None));
                continue;
            }
            waiting.claimant.is_new = false;
            line.waiting.push_front(waiting);
        }
        self.forget_if_empty(queue);
    }

    fn forget_if_empty(&mut self, queue: &PoolId) {
        let is_empty = |line: &Line| line.waiting.is_empty() && !line.served;
        if self.by_queue.get(queue).is_some_and(is_empty) {
            self.by_queue.remove(queue);
        }
    }
}

async fn serve_batch(app: &Arc<App>, batch: Batch) {
    let asked: Vec<(PoolId, Vec<Claimant>)> = batch
        .iter()
        .map(|(queue, line)| {
            let claimants = line.iter().map(|waiting| waiting.claimant.clone());
            (queue.clone(), claimants.collect())
        })
        .collect();
    let broker = &app.queue.broker;
    match serve_lines(app, asked).await {
        Ok(served) => {
            for ((queue, line), served) in batch.into_iter().zip(served) {
                let empty_handed = hand_out(app, line, served.tasks);
                let more = !served.is_exhausted;
                broker.lines().put_back(&queue, empty_handed, more);
            }
        }
        // Others were faster, again and again: the next look is the retry.
        Err(problem) if matches!(*problem, StoreError::Congested { .. }) => {
            for (queue, line) in batch {
                broker.lines().put_back(&queue, line, false);
            }
        }
        Err(problem) => {
            for (queue, line) in batch {
                for waiting in line {
                    let _ = waiting.answer.send(Err(Failure(Arc::clone(&problem))));
                }
                broker.lines().put_back(&queue, Vec::new(), false);
            }
        }
    }
}

/// Who is left with nothing.
fn hand_out(app: &Arc<App>, line: Vec<Waiting>, tasks: Vec<Vec<Task>>) -> Vec<Waiting> {
    let mut empty_handed = Vec::new();
    for (waiting, tasks) in line.into_iter().zip(tasks) {
        if tasks.is_empty() {
            empty_handed.push(waiting);
            continue;
        }
        let if_unheard = if_unheard(app, &waiting.claimant.worker, &tasks);
        // An answer that nobody takes is dropped here, and was not heard either.
        let _ = waiting.answer.send(Ok(Some(Claimed { tasks, if_unheard })));
    }
    empty_handed
}

fn claimed(
    answer: Result<Answer, oneshot::error::RecvError>,
) -> Result<Option<Claimed>, StoreError> {
    match answer {
        Ok(Ok(claimed)) => Ok(claimed),
        Ok(Err(Failure(problem))) => Err(StoreError::Query {
            statement: "claim_work",
            source: problem.to_string().into(),
        }),
        // Whoever served has panicked.
        Err(_) => Err(StoreError::Panicked { name: "claim_work" }),
    }
}
