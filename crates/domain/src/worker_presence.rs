//! The present activity of running workers, as lists of workers show it.

use crate::id::names;

/// The activity of a running worker, by its tasks, its quarantine, its advice, and its last signs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WorkerPresence {
    /// It has a task.
    Busy,
    /// It has no task, and gets none until its quarantine ends.
    Quarantined,
    /// It has no task, and stops when it next asks for one.
    Draining,
    /// It has no task, and has not asked for one for some minutes.
    Silent,
    /// It can take a task now.
    Idle,
}

names! {
    WorkerPresence, "not a presence (busy, idle, quarantined, draining, silent)",
    Busy = "busy",
    Quarantined = "quarantined",
    Draining = "draining",
    Silent = "silent",
    Idle = "idle",
}
