//! Workers that wait for tasks, one line for each task queue, and who of them is looked at next.
//!
//! Pure bookkeeping, without waiting and without the store. A line is looked at because of a *ring* (work may
//! have come) or because a worker has just joined it. A ring starts a round: each worker of the line is looked
//! at once, in a circle, batch by batch. The round ends early when a look finds no work and no ring came since.
//! Where no work was found the line is *quiet*: workers that join it wait for the next sweep of all quiet lines.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use domain::id::PoolId;
use domain::task::Task;
use domain::worker::WorkerState;
use store::StoreError;
use tokio::sync::oneshot;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::claiming::{Claimant, Left, SERVED_AT_ONCE};
use crate::unheard::IfUnheard;

/// `None`: there was nothing.
pub(super) type Answer = Result<Option<Claimed>, NotServed>;

/// What a worker is to be told that it has.
pub struct Claimed {
    /// Each with its last run claimed by this worker.
    pub tasks: Vec<Task>,
    pub if_unheard: IfUnheard,
}

/// Why a worker gets no answer, or none that it likes.
#[derive(Clone, Debug)]
pub enum NotServed {
    /// The store failed all that were served together.
    Store(Arc<StoreError>),
    /// The task that served has panicked.
    Panicked,
    /// The worker is in a state in which it gets no tasks.
    Refused(WorkerState),
}

#[derive(Default)]
pub(super) struct Lines {
    by_queue: BTreeMap<PoolId, Line>,
    /// The queues in whose lines somebody is to be looked at.
    due: BTreeSet<PoolId>,
    last_number: u64,
    /// The queue that was served last: the next batch begins behind it.
    last_served: Option<PoolId>,
    /// Whether a task of this process serves.
    pub(super) is_serving: bool,
}

#[derive(Default)]
struct Line {
    /// By number, so that those who have waited longest come first.
    waiting: BTreeMap<u64, Waiting>,
    round: Option<Round>,
    /// Workers from this number on have just asked, and nobody has looked at them.
    first_new: u64,
    /// New workers are looked at although the line is quiet.
    welcome: bool,
    /// The last look found no work, and no ring came since.
    is_quiet: bool,
    /// Counts the rings.
    rung: u64,
    /// Some of it are being served.
    served: bool,
}

/// A circle through a line: from `next` to the end, then from the beginning to `restart`.
#[derive(Clone, Copy)]
struct Round {
    next: u64,
    restart: u64,
    has_restarted: bool,
}

pub(super) struct Waiting {
    pub(super) claimant: Claimant,
    pub(super) until: Instant,
    pub(super) answer: oneshot::Sender<Answer>,
    /// The worker has hung up.
    pub(super) gone: CancellationToken,
}

/// Some workers of one line, taken out of it to be served.
pub(super) struct Served {
    pub(super) queue: PoolId,
    pub(super) workers: Vec<(u64, Waiting)>,
    /// How often the line had been rung by then.
    pub(super) rung: u64,
}

/// What is to be done next.
pub(super) enum Next {
    /// By queue, so that all processes touch queues in one order.
    Serve(Vec<Served>),
    /// Somebody waits, and nobody is to be looked at.
    Wait,
    /// Nobody waits.
    Stop,
}

impl Round {
    /// Each once, those behind `last` first.
    fn from(next: u64) -> Self {
        Self {
            next,
            restart: next,
            has_restarted: false,
        }
    }

    /// The next worker to be looked at; `None` ends the round.
    fn peek(&mut self, waiting: &BTreeMap<u64, Waiting>) -> Option<u64> {
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

impl Line {
    fn ring(&mut self) {
        self.rung += 1;
        self.is_quiet = false;
        // Those behind the last who was looked at come first, or they might never be looked at.
        self.round = Some(Round::from(self.round.map_or(0, |round| round.next)));
    }

    /// The next worker to be looked at.
    fn peek(&mut self) -> Option<u64> {
        if let Some(round) = &mut self.round {
            match round.peek(&self.waiting) {
                None => self.round = None,
                number => return number,
            }
        }
        let (number, _) = self.waiting.range(self.first_new..).next()?;
        (!self.is_quiet || self.welcome).then_some(*number)
    }

    fn take(&mut self, room: usize) -> Vec<(u64, Waiting)> {
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
            self.welcome = false;
        }
        taken
    }

    /// A look found no work.
    fn found_nothing(&mut self, rung: u64) {
        if self.rung == rung {
            self.round = None;
            self.is_quiet = true;
        }
    }
}

impl Lines {
    pub(super) fn is_empty(&self) -> bool {
        self.by_queue.is_empty()
    }

    /// Whether somebody is to be looked at.
    pub(super) fn is_anybody_due(&self) -> bool {
        !self.due.is_empty()
    }

    /// How many wait in this line, while nobody is looked at.
    pub(super) fn waiting(&self, queue: &PoolId) -> usize {
        let line = self.by_queue.get(queue);
        let line = line.filter(|line| !line.served && !self.due.contains(queue));
        line.map_or(0, |line| line.waiting.len())
    }

    /// The place in the line of its queue.
    pub(super) fn join(&mut self, waiting: Waiting) -> u64 {
        self.last_number += 1;
        let number = self.last_number;
        let queue = waiting.claimant.worker.pool_id.clone();
        let line = self.by_queue.entry(queue.clone()).or_default();
        line.waiting.insert(number, waiting);
        self.note(&queue);
        number
    }

    /// False: not in the line, but being served.
    pub(super) fn leave(&mut self, queue: &PoolId, number: u64) -> bool {
        let line = self.by_queue.get_mut(queue);
        let has_left = line.is_some_and(|line| line.waiting.remove(&number).is_some());
        if has_left {
            self.note(queue);
        }
        has_left
    }

    /// There may be work in this queue. False: nobody waits for it.
    pub(super) fn ring(&mut self, queue: &PoolId) -> bool {
        let Some(line) = self.by_queue.get_mut(queue) else {
            return false;
        };
        line.ring();
        self.note(queue);
        true
    }

    /// The next batch; those who have waited longest, of one line after the other.
    pub(super) fn next(&mut self) -> Next {
        if self.by_queue.is_empty() {
            self.is_serving = false;
            return Next::Stop;
        }
        let mut batch = Vec::new();
        let mut room = SERVED_AT_ONCE;
        while room > 0
            && let Some(queue) = self.next_due()
        {
            let Some(line) = self.by_queue.get_mut(&queue) else {
                self.due.remove(&queue);
                continue;
            };
            let workers = line.take(room);
            line.served = true;
            room -= workers.len();
            let rung = line.rung;
            self.note(&queue);
            self.last_served = Some(queue.clone());
            batch.push(Served {
                queue,
                workers,
                rung,
            });
        }
        if batch.is_empty() {
            return Next::Wait;
        }
        batch.sort_by(|one, other| one.queue.cmp(&other.queue));
        Next::Serve(batch)
    }

    /// The first queue behind the one that was served last.
    fn next_due(&self) -> Option<PoolId> {
        let behind = self.last_served.as_ref().and_then(|last| {
            let behind = (Bound::Excluded(last), Bound::Unbounded);
            self.due.range::<PoolId, _>(behind).next()
        });
        behind.or_else(|| self.due.first()).cloned()
    }

    /// Puts those who got nothing back to their places, unless they have had enough of waiting: those are
    /// returned, to be told so.
    pub(super) fn put_back(&mut self, served: Served, left: Left) -> Vec<Waiting> {
        let now = Instant::now();
        let line = self.by_queue.entry(served.queue.clone()).or_default();
        line.served = false;
        let (staying, leaving): (Vec<_>, Vec<_>) =
            served.workers.into_iter().partition(|(_, waiting)| {
                waiting.until > now && !waiting.gone.is_cancelled() && !waiting.answer.is_closed()
            });
        line.waiting.extend(staying);
        match left {
            Left::Nothing => line.found_nothing(served.rung),
            // Others may want it, also those who were looked at before it came.
            Left::ForOthers if line.is_quiet => line.ring(),
            Left::ForOthers => {}
            Left::ForAll => line.ring(),
        }
        // A ring came while they were served, when there was nobody else to go round.
        if line.rung != served.rung && line.round.is_none() {
            line.round = Some(Round::from(0));
        }
        self.note(&served.queue);
        leaving.into_iter().map(|(_, waiting)| waiting).collect()
    }

    /// The lines in which no work was found lately, and how often each has been rung.
    pub(super) fn quiet(&self) -> Vec<(PoolId, u64)> {
        let quiet = self.by_queue.iter().filter(|(_, line)| line.is_quiet);
        quiet
            .map(|(queue, line)| (queue.clone(), line.rung))
            .collect()
    }

    /// What a look into all quiet lines has found.
    pub(super) fn swept(&mut self, quiet: &[(PoolId, u64)], with_work: &BTreeSet<PoolId>) {
        for (queue, rung) in quiet {
            let Some(line) = self.by_queue.get_mut(queue) else {
                continue;
            };
            if with_work.contains(queue) {
                line.ring();
            } else {
                line.found_nothing(*rung);
            }
            line.welcome = line.waiting.range(line.first_new..).next().is_some();
            self.note(queue);
        }
    }

    /// Notes whether somebody in this line is to be looked at, and forgets a line without anybody.
    fn note(&mut self, queue: &PoolId) {
        let Some(line) = self.by_queue.get_mut(queue) else {
            return;
        };
        let is_due = line.peek().is_some();
        if line.waiting.is_empty() && !line.served {
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
