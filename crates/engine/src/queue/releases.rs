//! Tasks whose dependents are to be released, as known to this process, for the background task
//! `queue_releases`.
//!
//! The store has them as well: a lost entry is found there a few seconds later.

use std::sync::{Arc, Mutex, PoisonError};

use domain::id::TaskId;
use tokio::sync::Notify;

/// At most this many tasks are kept in memory.
const MAX_KEPT: usize = 10_000;

#[derive(Default)]
pub struct Releases {
    pub wakeup: Arc<Notify>,
    tasks: Mutex<Vec<TaskId>>,
}

impl Releases {
    pub fn add(&self, tasks: Vec<TaskId>) {
        if tasks.is_empty() {
            return;
        }
        let mut kept = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        let room = MAX_KEPT.saturating_sub(kept.len());
        kept.extend(tasks.into_iter().take(room));
        self.wakeup.notify_one();
    }

    pub fn take(&self) -> Vec<TaskId> {
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tasks_in_memory_have_a_limit() {
        for count in testing::sizes_around("engine::queue::releases::MAX_KEPT", MAX_KEPT) {
            let releases = Releases::default();
            let task: TaskId = "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap();
            releases.add(vec![task; count]);
            assert_eq!(releases.take().len(), count.min(MAX_KEPT));
            assert_eq!(releases.take().len(), 0);
        }
    }
}
