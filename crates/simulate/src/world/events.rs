//! The events of a simulated world, in the order of their times.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that will happen. Workers, tasks and offerings are named by their indexes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Event {
    /// A task is created.
    Arrival {
        task: usize,
    },
    /// A run of a task ends, unless the worker was interrupted before.
    Finish {
        worker: usize,
        task: usize,
        run: u32,
    },
    /// A worker has been idle for the idle time, unless it got a task.
    IdleTime {
        worker: usize,
        count: u32,
    },
    Registration {
        worker: usize,
    },
    /// The cloud gives up a machine whose launch it had accepted.
    LateFailure {
        worker: usize,
    },
    /// The time by which a machine should have registered.
    RegistrationLimit {
        worker: usize,
    },
    /// The cloud takes a machine back.
    Interruption {
        worker: usize,
    },
    Storm {
        offering: usize,
        number: usize,
    },
    /// A stopping machine ends.
    End {
        worker: usize,
    },
    Tick,
    Scan,
    /// Something has happened to a pool, so it is planned.
    Wake {
        pool: usize,
    },
}

/// Events to come. Of events at the same time, the one that was added first is the next.
#[derive(Default)]
pub(super) struct EventQueue {
    heap: BinaryHeap<Reverse<(i64, u64, Event)>>,
    n_added: u64,
}

impl EventQueue {
    pub(super) fn add(&mut self, at_ms: i64, event: Event) {
        self.n_added += 1;
        self.heap.push(Reverse((at_ms, self.n_added, event)));
    }

    pub(super) fn next_ms(&self) -> Option<i64> {
        self.heap.peek().map(|Reverse((at_ms, _, _))| *at_ms)
    }

    pub(super) fn take(&mut self) -> Option<(i64, Event)> {
        let Reverse((at_ms, _, event)) = self.heap.pop()?;
        Some((at_ms, event))
    }
}
