//! Registrations that wait for the answer to the launch of their machine.
//!
//! A program starts in 50 ms and registers before its provider has returned the answer. Its
//! registration waits here, in the process that received it. The process that launches wakes it; in
//! other processes the event of the new worker does.

use domain::id::{LaunchToken, WorkerId};
use domain::launch;
use store::outbox::OutboxRow;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::keyed_wakeups::{KeyedWakeups, Listener};

/// At most this many registrations of a process wait; further ones must try again.
const MAX_WAITING: usize = 1_000;
/// The end of the name of the exchange for new workers.
const WORKER_REQUESTED: &str = "/worker-requested";

pub struct LaunchAnswers {
    wakeups: KeyedWakeups<LaunchToken>,
    permits: Semaphore,
}

/// Waits for the answer to one launch, and holds one of the permits.
pub struct AnswerListener<'a> {
    pub listener: Listener<LaunchToken>,
    _permit: SemaphorePermit<'a>,
}

impl Default for LaunchAnswers {
    fn default() -> Self {
        Self {
            wakeups: KeyedWakeups::default(),
            permits: Semaphore::new(MAX_WAITING),
        }
    }
}

impl LaunchAnswers {
    /// `None`: too many registrations wait.
    pub fn listen(&self, token: &LaunchToken) -> Option<AnswerListener<'_>> {
        let permit = self.permits.try_acquire().ok()?;
        Some(AnswerListener {
            listener: self.wakeups.listen(token),
            _permit: permit,
        })
    }

    /// Wakes the registrations that wait for this launch, whatever its answer.
    pub fn wake(&self, token: &LaunchToken) {
        self.wakeups.wake(token);
    }

    /// Wakes the registrations of workers in published events, also of other processes.
    pub fn wake_for_events(&self, events: &[OutboxRow]) {
        let announced = events
            .iter()
            .filter(|row| row.topic.ends_with(WORKER_REQUESTED));
        for row in announced {
            let id = row.payload["workerId"].as_str();
            let id = id.and_then(|id| id.parse::<WorkerId>().ok());
            if let Some(token) = id.as_ref().and_then(launch::offered_by) {
                self.wake(&token);
            }
        }
    }

    pub fn n_waiting(&self, token: &LaunchToken) -> usize {
        self.wakeups.n_listeners(token)
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn waiting_registrations_have_a_limit_and_free_their_permit_after_use() {
        let token: LaunchToken = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        let limit = MAX_WAITING;
        for wanted in sizes_around("engine::fleet::launch_answers::MAX_WAITING", limit) {
            let answers = LaunchAnswers::default();
            let waiting: Vec<_> = (0..wanted).filter_map(|_| answers.listen(&token)).collect();
            assert_eq!(waiting.len(), wanted.min(limit));
            assert_eq!(answers.n_waiting(&token), wanted.min(limit));
            drop(waiting);
            assert_eq!(answers.n_waiting(&token), 0);
            assert!(answers.listen(&token).is_some());
        }
    }
}
