//! The answers of launches, for machines that are faster than the launch that makes them.
//!
//! A program is up in 50 ms and registers while its provider still writes the answer. Its registration waits here, in
//! whichever process it came to: the process that launches wakes it, and elsewhere the event of the new worker does.

use domain::id::{LaunchToken, WorkerId};
use domain::launch;
use store::outbox::OutboxRow;
use tokio::sync::{Semaphore, SemaphorePermit};

use crate::wakeups::{Listener, Wakeups};

/// How many registrations of this process wait at the same time; further ones are to come again.
const MAX_WAITING: usize = 1_000;
/// How the name of the exchange ends on which new workers are announced.
const WORKER_REQUESTED: &str = "/worker-requested";

pub struct LaunchAnswers {
    wakeups: Wakeups<LaunchToken>,
    places: Semaphore,
}

/// A place among those that wait.
pub struct Awaiting<'a> {
    pub listener: Listener<LaunchToken>,
    _place: SemaphorePermit<'a>,
}

impl Default for LaunchAnswers {
    fn default() -> Self {
        Self {
            wakeups: Wakeups::default(),
            places: Semaphore::new(MAX_WAITING),
        }
    }
}

impl LaunchAnswers {
    /// `None`: too many wait already.
    pub fn listen(&self, token: &LaunchToken) -> Option<Awaiting<'_>> {
        let place = self.places.try_acquire().ok()?;
        Some(Awaiting {
            listener: self.wakeups.listen(token),
            _place: place,
        })
    }

    /// The launch was answered, whatever the answer.
    pub fn wake(&self, token: &LaunchToken) {
        self.wakeups.wake(token);
    }

    /// Wakes those who wait for workers that were announced, by whichever process.
    pub fn hear(&self, placed: &[OutboxRow]) {
        let announced = placed
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

    /// How many registrations wait for this launch.
    pub fn n_waiting(&self, token: &LaunchToken) -> usize {
        self.wakeups.n_listeners(token)
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn at_most_so_many_wait_and_a_place_is_free_again_after_use() {
        let token: LaunchToken = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        let limit = MAX_WAITING;
        for wanted in sizes_around("engine::fleet::answers::MAX_WAITING", limit) {
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
