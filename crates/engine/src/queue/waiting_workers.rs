//! Workers that wait for tasks: one ordered list for each task queue.
//!
//! Bookkeeping only: no waiting, and no store. A list is served because of a wake-up (tasks may be
//! pending) or because a worker joined it. A wake-up starts a round: each worker of the list is
//! served once, batch by batch. The round ends early when a batch finds no task and no wake-up came
//! since. Then the list is *quiet*: workers that join it wait for the next sweep of all quiet
//! lists.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use domain::id::{PoolId, WorkerKey};
use domain::task::Task;
use domain::worker::WorkerState;
use store::StoreError;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claim_work::{Claimant, RemainingWork, SERVED_AT_ONCE};
use crate::undo_guard::UndoGuard;

/// `None`: no task was pending.
pub(super) type ClaimAnswer = Result<Option<ClaimedTasks>, ClaimError>;

pub struct ClaimedTasks {
    /// Each with its last run, claimed by this worker.
    pub tasks: Vec<Task>,
    pub undo: UndoGuard,
}

/// Why a worker gets no tasks.
#[derive(Clone, Debug)]
pub enum ClaimError {
    /// The transaction of its batch failed.
    Store(Arc<StoreError>),
    /// Its batch panicked.
    Panicked,
    /// The state of the worker allows no tasks.
    Refused(WorkerState),
}

#[derive(Default)]
pub(super) struct WaitingWorkers {
    by_queue: BTreeMap<PoolId, WaitingList>,
    /// The queues whose lists have a worker to serve.
    due: BTreeSet<PoolId>,
    last_number: u64,
    /// The queue that was served last: the next batch begins after it.
    last_served: Option<PoolId>,
    /// Whether an async task of this process serves.
    pub(super) is_serving: bool,
}

#[derive(Default)]
struct WaitingList {
    /// By number, so that the longest waiting come first.
    waiting: BTreeMap<u64, WaitingWorker>,
    round: Option<Round>,
    /// Workers from this number on are new: they have not been served yet.
    first_new: u64,
    /// New workers are served although the list is quiet.
    admits_new: bool,
    /// The last batch found no task, and no wake-up came since.
    is_quiet: bool,
    n_wakeups: u64,
    /// Some of its workers are being served.
    served: bool,
}

/// A round through a list: from `next` to the end, then from the beginning to `restart`.
#[derive(Clone, Copy)]
struct Round {
    next: u64,
    restart: u64,
    has_restarted: bool,
}

pub(super) struct WaitingWorker {
    pub(super) claimant: Claimant,
    pub(super) until: Instant,
    pub(super) answer: oneshot::Sender<ClaimAnswer>,
    /// Cancelled when the worker disconnects.
    pub(super) gone: CancellationToken,
}

/// Workers that were taken out of one list to be served.
pub(super) struct ListBatch {
    pub(super) queue: PoolId,
    pub(super) workers: Vec<(u64, WaitingWorker)>,
    /// The wake-ups of the list until then.
    pub(super) n_wakeups: u64,
}

/// The next step of the async task that serves.
pub(super) enum NextStep {
    /// In the order of the queues, so that all processes lock queues in one order.
    Serve(Vec<ListBatch>),
    /// Workers wait, and none is to be served now.
    Wait,
    /// No worker waits.
    Stop,
}

impl Round {
    /// Serves each worker once, beginning with this number.
    fn from(next: u64) -> Self {
        Self {
            next,
            restart: next,
            has_restarted: false,
        }
    }

    /// The next worker to serve; `None` ends the round.
    fn peek(&mut self, waiting: &BTreeMap<u64, WaitingWorker>) -> Option<u64> {
        if !self.has_restarted {
            if let Some((number, _)) = waiting.range(self.next..).next() {
                return Some(*number);
            }
            self.has_restarted = true;
            self.next = 0;
        }
        let range = self.next..self.restart.max(self.next);
        waiting.range(range).next().map(|(number, _)| *number)
    }
}

impl WaitingList {
    fn wake(&mut self) {
        self.n_wakeups += 1;
        self.is_quiet = false;
        // The round goes on after the last worker, or those at the end might never be served.
        self.round = Some(Round::from(self.round.map_or(0, |round| round.next)));
    }

    /// The next worker to serve.
    fn peek(&mut self) -> Option<u64> {
        if let Some(round) = &mut self.round {
            match round.peek(&self.waiting) {
                None => self.round = None,
                number => return number,
            }
        }
        let (number, _) = self.waiting.range(self.first_new..).next()?;
        (!self.is_quiet || self.admits_new).then_some(*number)
    }

    fn take(&mut self, room: usize) -> Vec<(u64, WaitingWorker)> {
        let mut taken = Vec::new();
        while taken.len() < room
            && let Some(number) = self.peek()
        {
            if let Some(round) = &mut self.round {
                round.next = number + 1;
            }
            self.first_new = self.first_new.max(number + 1);
            taken.extend(
                self.waiting
                    .remove(&number)
                    .map(|waiting| (number, waiting)),
            );
        }
        if self.waiting.range(self.first_new..).next().is_none() {
            self.admits_new = false;
        }
        taken
    }

    /// A batch found no task.
    fn found_nothing(&mut self, n_wakeups: u64) {
        if self.n_wakeups == n_wakeups {
            self.round = None;
            self.is_quiet = true;
        }
    }
}

impl WaitingWorkers {
    pub(super) fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }

    pub(super) fn has_due_worker(&self) -> bool {
        !self.due.is_empty()
    }

    /// The number of workers in this list, if none of them is being served.
    pub(super) fn n_waiting(&self, queue: &PoolId) -> usize {
        let list = self.by_queue.get(queue);
        let list = list.filter(|list| !list.served && !self.due.contains(queue));
        list.map_or(0, |list| list.waiting.len())
    }

    /// Returns the place in the list of the worker's queue.
    pub(super) fn join(&mut self, waiting: WaitingWorker) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let queue = waiting.claimant.worker.pool_id.clone();
        let list = self.by_queue.entry(queue.clone()).or_default();
        list.waiting.insert(number, waiting);
        self.update_due(&queue);
        number
    }

    /// False: the worker is not in the list, because it is being served.
    pub(super) fn leave(&mut self, queue: &PoolId, number: u64) -> bool {
        let list = self.by_queue.get_mut(queue);
        let has_left = list.is_some_and(|list| list.waiting.remove(&number).is_some());
        if has_left {
            self.update_due(queue);
        }
        has_left
    }

    /// Takes the workers with these names out of their lists. Those that are being served stay.
    pub(super) fn dismiss(&mut self, names: &[WorkerKey]) -> Vec<WaitingWorker> {
        let mut of_queues: BTreeMap<&PoolId, BTreeSet<&WorkerKey>> = BTreeMap::new();
        for name in names {
            of_queues.entry(&name.pool_id).or_default().insert(name);
        }
        let mut dismissed = Vec::new();
        for (queue, names) in of_queues {
            let Some(list) = self.by_queue.get_mut(queue) else {
                continue;
            };
            let taken = list
                .waiting
                .extract_if(.., |_, waiting| names.contains(&waiting.claimant.worker));
            dismissed.extend(taken.map(|(_, waiting)| waiting));
            self.update_due(queue);
        }
        dismissed
    }

    /// This queue may have pending tasks. False: no worker waits for it.
    pub(super) fn wake(&mut self, queue: &PoolId) -> bool {
        let Some(list) = self.by_queue.get_mut(queue) else {
            return false;
        };
        list.wake();
        self.update_due(queue);
        true
    }

    /// The next batch: the longest waiting workers, one list after the other.
    pub(super) fn next(&mut self) -> NextStep {
        if self.by_queue.is_empty() {
            self.is_serving = false;
            return NextStep::Stop;
        }
        let mut batch = Vec::new();
        let mut room = SERVED_AT_ONCE;
        while room > 0
            && let Some(queue) = self.next_due()
        {
            let Some(list) = self.by_queue.get_mut(&queue) else {
                self.due.remove(&queue);
                continue;
            };
            let workers = list.take(room);
            list.served = true;
            room -= workers.len();
            let n_wakeups = list.n_wakeups;
            self.update_due(&queue);
            self.last_served = Some(queue.clone());
            batch.push(ListBatch {
                queue,
                workers,
                n_wakeups,
            });
        }
        if batch.is_empty() {
            return NextStep::Wait;
        }
        batch.sort_by(|one, other| one.queue.cmp(&other.queue));
        NextStep::Serve(batch)
    }

    /// The first queue after the one that was served last.
    fn next_due(&self) -> Option<PoolId> {
        let behind = self.last_served.as_ref().and_then(|last| {
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            self.due.range::<PoolId, _>(behind).next()
        });
        behind.or_else(|| self.due.first()).cloned()
    }

    /// Puts workers that got nothing back into their list. Returns those whose wait is over.
    pub(super) fn put_back(
        &mut self,
        served: ListBatch,
        remaining: RemainingWork,
    ) -> Vec<WaitingWorker> {
        let now = Instant::now();
        let list = self.by_queue.entry(served.queue.clone()).or_default();
        list.served = false;
        let (staying, leaving): (Vec<_>, Vec<_>) =
            served.workers.into_iter().partition(|(_, waiting)| {
                waiting.until > now && !waiting.gone.is_cancelled() && !waiting.answer.is_closed()
            });
        list.waiting.extend(staying);
        match remaining {
            RemainingWork::None => list.found_nothing(served.n_wakeups),
            // Other workers may want the task, also those served before it came.
            RemainingWork::ForOthers if list.is_quiet => list.wake(),
            RemainingWork::ForOthers => {}
            RemainingWork::ForAll => list.wake(),
        }
        // A wake-up came while all workers of the list were being served.
        if list.n_wakeups != served.n_wakeups && list.round.is_none() {
            list.round = Some(Round::from(0));
        }
        self.update_due(&served.queue);
        leaving.into_iter().map(|(_, waiting)| waiting).collect()
    }

    /// The quiet lists, each with its wake-ups so far.
    pub(super) fn quiet(&self) -> Vec<(PoolId, u64)> {
        let quiet = self.by_queue.iter().filter(|(_, list)| list.is_quiet);
        quiet
            .map(|(queue, list)| (queue.clone(), list.n_wakeups))
            .collect()
    }

    /// Applies the result of a check of all quiet lists.
    pub(super) fn apply_sweep(&mut self, quiet: &[(PoolId, u64)], with_work: &BTreeSet<PoolId>) {
        for (queue, n_wakeups) in quiet {
            let Some(list) = self.by_queue.get_mut(queue) else {
                continue;
            };
            if with_work.contains(queue) {
                list.wake();
            } else {
                list.found_nothing(*n_wakeups);
            }
            list.admits_new = list.waiting.range(list.first_new..).next().is_some();
            self.update_due(queue);
        }
    }

    /// Updates whether a worker of this list is to be served, and removes an empty list.
    fn update_due(&mut self, queue: &PoolId) {
        let Some(list) = self.by_queue.get_mut(queue) else {
            return;
        };
        let is_due = list.peek().is_some();
        if list.waiting.is_empty() && !list.served {
            self.by_queue.remove(queue);
        }
        if is_due {
            self.due.insert(queue.clone());
        } else {
            self.due.remove(queue);
        }
    }
}

#[cfg(test)]
mod tests;
