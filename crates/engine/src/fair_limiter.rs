//! Runs blocking work on other threads, a limited number of jobs at a time, and shares the permits
//! between its owners.
//!
//! A free permit goes to the owner with the fewest running jobs; of several, to the one that got a
//! permit least recently. So an owner with many slow jobs delays its own jobs more than others.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;

use crate::work_limiter::run_blocking;

pub(crate) struct FairLimiter<K: Ord + Clone>(Arc<Mutex<Permits<K>>>);

struct Permits<K: Ord + Clone> {
    n_free: usize,
    /// Owners of running and waiting jobs.
    owners: BTreeMap<K, Share>,
    n_given: u64,
    waiting: VecDeque<(K, oneshot::Sender<Permit<K>>)>,
}

/// Ordered by who is next.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
struct Share {
    n_running: usize,
    /// The number of its last permit.
    last_given: u64,
}

/// Belongs to the job, as in [`crate::work_limiter`].
struct Permit<K: Ord + Clone> {
    owner: K,
    /// `None`: the permit was not taken.
    of: Option<Arc<Mutex<Permits<K>>>>,
}

impl<K: Ord + Clone + Send + 'static> FairLimiter<K> {
    pub(crate) fn new(n_at_once: usize) -> Self {
        Self(Arc::new(Mutex::new(Permits {
            n_free: n_at_once,
            owners: BTreeMap::new(),
            n_given: 0,
            waiting: VecDeque::new(),
        })))
    }

    /// `None`: no permit was free within this time.
    pub(crate) async fn run_within<T: Send + 'static>(
        &self,
        limit: Duration,
        owner: K,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> io::Result<Option<T>> {
        let (give, given) = oneshot::channel();
        {
            let mut permits = lock(&self.0);
            permits.waiting.push_back((owner, give));
            permits.give_out(&self.0);
        }
        match tokio::time::timeout(limit, given).await {
            Ok(permit) => run_blocking(permit.map_err(io::Error::other)?, work)
                .await
                .map(Some),
            Err(_elapsed) => Ok(None),
        }
    }

    #[cfg(test)]
    fn n_waiting(&self) -> usize {
        lock(&self.0).waiting.len()
    }
}

impl<K: Ord + Clone> Permits<K> {
    fn give_out(&mut self, shared: &Arc<Mutex<Self>>) {
        self.waiting.retain(|(_, give)| !give.is_closed());
        while self.n_free > 0 {
            let share = |(owner, _): &(K, _)| self.owners.get(owner).copied().unwrap_or_default();
            let places = 0..self.waiting.len();
            // The first of several with the same share.
            let next = places.min_by_key(|place| share(&self.waiting[*place]));
            let Some((owner, give)) = next.and_then(|next| self.waiting.remove(next)) else {
                break;
            };
            let permit = Permit {
                owner: owner.clone(),
                of: Some(Arc::clone(shared)),
            };
            match give.send(permit) {
                Ok(()) => {
                    self.n_free -= 1;
                    self.n_given += 1;
                    let share = self.owners.entry(owner).or_default();
                    share.n_running += 1;
                    share.last_given = self.n_given;
                }
                Err(mut unwanted) => unwanted.of = None,
            }
        }
        let waiting = &self.waiting;
        self.owners.retain(|owner, share| {
            share.n_running > 0 || waiting.iter().any(|(waits, _)| waits == owner)
        });
    }
}

impl<K: Ord + Clone> Drop for Permit<K> {
    fn drop(&mut self) {
        let Some(shared) = self.of.take() else {
            return;
        };
        let mut permits = lock(&shared);
        permits.n_free += 1;
        if let Some(share) = permits.owners.get_mut(&self.owner) {
            share.n_running -= 1;
        }
        permits.give_out(&shared);
    }
}

fn lock<K: Ord + Clone>(permits: &Mutex<Permits<K>>) -> MutexGuard<'_, Permits<K>> {
    permits.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::sync::mpsc::{Receiver, Sender, channel};

    use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};

    use super::*;

    const NO_LIMIT: Duration = Duration::from_secs(600);

    /// Jobs that report their start, and run until they are released.
    struct Jobs<K: Ord + Clone> {
        limiter: Arc<FairLimiter<K>>,
        started: tokio::sync::mpsc::UnboundedSender<(K, Sender<()>)>,
        starts: UnboundedReceiver<(K, Sender<()>)>,
    }

    impl<K: Ord + Clone + Send + Sync + std::fmt::Debug + 'static> Jobs<K> {
        fn new(limiter: Arc<FairLimiter<K>>) -> Self {
            let (started, starts) = unbounded_channel();
            Self {
                limiter,
                started,
                starts,
            }
        }

        /// Starts a job, and returns when it runs or waits.
        async fn start(&mut self, owner: K) -> tokio::task::JoinHandle<()> {
            let (limiter, started) = (Arc::clone(&self.limiter), self.started.clone());
            let n_waiting = self.limiter.n_waiting();
            let name = owner.clone();
            let job = tokio::spawn(async move {
                let (release, released): (Sender<()>, Receiver<()>) = channel();
                let work = move || {
                    started.send((name, release)).unwrap();
                    // An error: its sender was dropped.
                    released.recv().unwrap_err();
                };
                let done = limiter.run_within(NO_LIMIT, owner, work).await;
                done.unwrap().unwrap();
            });
            let is_free = lock(&self.limiter.0).n_free > 0;
            while !is_free && self.limiter.n_waiting() == n_waiting {
                tokio::task::yield_now().await;
            }
            job
        }

        async fn next_start(&mut self) -> (K, Sender<()>) {
            self.starts.recv().await.unwrap()
        }
    }

    /// At most `limit` of `count` jobs of different owners may run at once.
    pub(crate) async fn check_limit<K>(
        limiter: FairLimiter<K>,
        count: usize,
        limit: usize,
        owner: impl Fn(usize) -> K,
    ) where
        K: Ord + Clone + Send + Sync + std::fmt::Debug + 'static,
    {
        let mut jobs = Jobs::new(Arc::new(limiter));
        let (mut all, mut running) = (Vec::new(), Vec::new());
        for number in 0..count {
            all.push(jobs.start(owner(number)).await);
            if number < limit {
                running.push(jobs.next_start().await);
            }
        }
        assert_eq!(jobs.limiter.n_waiting(), count.saturating_sub(limit));
        assert!(jobs.starts.is_empty(), "of {count}");
        running.clear();
        for _ in limit..count {
            jobs.next_start().await;
        }
        for job in all {
            job.await.unwrap();
        }
        assert_eq!(lock(&jobs.limiter.0).n_free, limit);
    }

    #[tokio::test]
    async fn an_owner_with_many_jobs_leaves_the_next_permit_to_others() {
        let mut jobs = Jobs::new(Arc::new(FairLimiter::new(2)));
        let (mut all, mut running) = (Vec::new(), Vec::new());
        for _ in 0..2 {
            all.push(jobs.start("a").await);
            running.push(jobs.next_start().await);
        }
        for owner in ["a", "a", "b", "b", "c"] {
            all.push(jobs.start(owner).await);
        }
        let mut order = Vec::new();
        while let Some((_, release)) = (!running.is_empty()).then(|| running.remove(0)) {
            drop(release);
            if order.len() < 5 {
                let next = jobs.next_start().await;
                order.push(next.0);
                running.push(next);
            }
        }
        // `b` and `c` are first, though `a` waited longer; then the owners take turns.
        assert_eq!(order, ["b", "c", "a", "b", "a"]);
        for job in all {
            job.await.unwrap();
        }
        assert!(lock(&jobs.limiter.0).owners.is_empty());
    }

    #[tokio::test]
    async fn a_caller_that_no_longer_waits_takes_no_permit() {
        let mut jobs = Jobs::new(Arc::new(FairLimiter::new(1)));
        let first = jobs.start("a").await;
        let running = jobs.next_start().await;
        jobs.start("b").await.abort();
        let limiter = Arc::clone(&jobs.limiter);
        let at_once = limiter.run_within(Duration::ZERO, "c", || ()).await;
        assert_eq!(at_once.unwrap(), None);
        drop(running);
        first.await.unwrap();
        let done = limiter.run_within(NO_LIMIT, "d", || 1).await;
        assert_eq!(done.unwrap(), Some(1));
        assert_eq!(lock(&limiter.0).n_free, 1);
    }
}
