//! Concurrent work on the regions of a provider: a region without an answer does not delay others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud::Region;
use tokio::task::{Id, JoinError, JoinSet};

use crate::measures::Stopwatch;

/// Running work, at most one task for each region. Dropping this cancels it.
pub(super) struct RegionTasks<T> {
    running: JoinSet<T>,
    regions: BTreeMap<Id, (Region, Stopwatch)>,
    /// Regions slower than the maximum wait: not waited for until they are fast enough again.
    slow: BTreeSet<Region>,
}

impl<T> Default for RegionTasks<T> {
    fn default() -> Self {
        Self {
            running: JoinSet::new(),
            regions: BTreeMap::new(),
            slow: BTreeSet::new(),
        }
    }
}

impl<T: Send + 'static> RegionTasks<T> {
    pub(super) fn is_busy(&self, region: &Region) -> bool {
        self.regions.values().any(|(busy, _)| busy == region)
    }

    pub(super) fn start(&mut self, region: Region, work: impl Future<Output = T> + Send + 'static) {
        let id = self.running.spawn(work).id();
        self.regions.insert(id, (region, Stopwatch::start()));
    }

    /// Waits for all but the slow regions, at most this long. Returns those that have ended.
    pub(super) async fn ended(
        &mut self,
        max_wait: Duration,
    ) -> Vec<(Region, Result<T, JoinError>)> {
        let mut ended = Vec::new();
        let wait = async {
            while self.waits_for_some() {
                match self.running.join_next_with_id().await {
                    Some(done) => self.note(done, max_wait, &mut ended),
                    None => break,
                }
            }
        };
        if tokio::time::timeout(max_wait, wait).await.is_err() {
            let busy = self.regions.values().map(|(region, _)| region.clone());
            self.slow.extend(busy);
        }
        while let Some(done) = self.running.try_join_next_with_id() {
            self.note(done, max_wait, &mut ended);
        }
        ended
    }

    fn waits_for_some(&self) -> bool {
        let mut busy = self.regions.values();
        busy.any(|(region, _)| !self.slow.contains(region))
    }

    fn note(
        &mut self,
        done: Result<(Id, T), JoinError>,
        max_wait: Duration,
        ended: &mut Vec<(Region, Result<T, JoinError>)>,
    ) {
        let (id, result) = match done {
            Ok((id, result)) => (id, Ok(result)),
            Err(problem) => (problem.id(), Err(problem)),
        };
        if let Some((region, watch)) = self.regions.remove(&id) {
            if watch.elapsed() < max_wait {
                self.slow.remove(&region);
            }
            ended.push((region, result));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use tokio::sync::Notify;

    use super::*;

    fn region(name: &str) -> Region {
        Region::Group(name.parse().expect("it is a group"))
    }

    #[tokio::test]
    async fn a_region_that_hangs_is_waited_for_once() {
        let mut tasks = RegionTasks::default();
        let (stuck, max_wait) = (Arc::new(Notify::new()), Duration::from_millis(20));
        let until = Arc::clone(&stuck);
        tasks.start(region("hangs"), async move { until.notified().await });
        tasks.start(region("works"), async {});
        let ended = tasks.ended(max_wait).await;
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0, region("works"));
        assert!(tasks.is_busy(&region("hangs")) && !tasks.is_busy(&region("works")));

        // From now on the region is not waited for, or this would outlast any test.
        tasks.start(region("works"), async {});
        let forever = Duration::from_secs(1_000_000);
        assert_eq!(tasks.ended(forever).await.len(), 1);

        stuck.notify_one();
        let mut ended = Vec::new();
        while ended.is_empty() {
            tokio::task::yield_now().await;
            ended = tasks.ended(forever).await;
        }
        assert_eq!(ended[0].0, region("hangs"));
        assert!(!tasks.is_busy(&region("hangs")));

        // It was fast enough once, so it is waited for again.
        tasks.start(region("hangs"), async {});
        assert_eq!(tasks.ended(forever).await.len(), 1);
        assert!(tasks.slow.is_empty());
    }

    #[tokio::test]
    async fn a_region_that_hangs_repeatedly_is_not_waited_for_each_time() {
        let mut tasks = RegionTasks::default();
        for _ in 0..3 {
            let stuck = Arc::new(Notify::new());
            let until = Arc::clone(&stuck);
            tasks.start(region("hangs"), async move { until.notified().await });
            if tasks.slow.is_empty() {
                tasks.ended(Duration::ZERO).await;
            }
            // This would outlast any test if it waited.
            let forever = Duration::from_secs(1_000_000);
            assert_eq!(tasks.ended(forever).await.len(), 0);
            stuck.notify_one();
            let mut n_ended = 0;
            while n_ended == 0 {
                tokio::task::yield_now().await;
                n_ended = tasks.ended(Duration::ZERO).await.len();
            }
        }
    }

    #[tokio::test]
    async fn a_panic_in_one_region_ends_that_region_alone() {
        let mut tasks = RegionTasks::default();
        tasks.start(region("broken"), async { panic!("on purpose") });
        tasks.start(region("works"), async {});
        let ended = tasks.ended(Duration::from_secs(60)).await;
        let n_failed = ended.iter().filter(|(_, result)| result.is_err()).count();
        assert_eq!((ended.len(), n_failed), (2, 1));
    }
}
