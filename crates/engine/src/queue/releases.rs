//! Tasks that are to be looked at again, as far as this process knows: a hint for the task `queue_releases`.
//!
//! What is lost here is found in the store, where the same is noted, a few seconds later.

use std::sync::{Arc, Mutex, PoisonError};

use domain::id::TaskId;
use tokio::sync::Notify;

/// No more than this many are kept in memory.
const MAX_KEPT: usize = 10_000;

#[derive(Default)]
pub struct Releases {
    pub bell: Arc<Notify>,
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
        self.bell.notify_one();
    }

    pub fn take(&self) -> Vec<TaskId> {
        std::mem::take(&mut *self.tasks.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_in_memory_has_a_limit() {
        for count in testing::sizes_around("engine::queue::releases::MAX_KEPT", MAX_KEPT) {
            let releases = Releases::default();
            let task: TaskId = "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap();
            releases.add(vec![task; count]);
            assert_eq!(releases.take().len(), count.min(MAX_KEPT));
            assert_eq!(releases.take().len(), 0);
        }
    }
}
