//! Work on the regions of a provider, side by side: one that does not answer delays no other.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use cloud::Region;
use tokio::task::{Id, JoinError, JoinSet};

/// Work that is under way, at most one piece for each region. Dropping this ends it.
pub(super) struct RegionTasks<T> {
    running: JoinSet<T>,
    regions: BTreeMap<Id, Region>,
    /// These took longer than anybody waits. They are not waited for until they have ended.
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
        self.regions.values().any(|busy| busy == region)
    }

    pub(super) fn start(&mut self, region: Region, work: impl Future<Output = T> + Send + 'static) {
        let id = self.running.spawn(work).id();
        self.regions.insert(id, region);
    }

    /// Waits until all have ended but the slow ones, and no longer than this. Returns what has ended.
    pub(super) async fn ended(
        &mut self,
        patience: Duration,
    ) -> Vec<(Region, Result<T, JoinError>)> {
        let mut ended = Vec::new();
        let wait = async {
            while self.regions.len() > self.slow.len() {
                match self.running.join_next_with_id().await {
                    Some(done) => self.note(done, &mut ended),
                    None => break,
                }
            }
        };
        if tokio::time::timeout(patience, wait).await.is_err() {
            self.slow = self.regions.values().cloned().collect();
        }
        while let Some(done) = self.running.try_join_next_with_id() {
            self.note(done, &mut ended);
        }
        ended
    }

    fn note(
        &mut self,
        done: Result<(Id, T), JoinError>,
        ended: &mut Vec<(Region, Result<T, JoinError>)>,
    ) {
        let (id, result) = match done {
            Ok((id, result)) => (id, Ok(result)),
            Err(problem) => (problem.id(), Err(problem)),
        };
        if let Some(region) = self.regions.remove(&id) {
            self.slow.remove(&region);
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
        let (stuck, patience) = (Arc::new(Notify::new()), Duration::from_millis(20));
        let until = Arc::clone(&stuck);
        tasks.start(region("hangs"), async move { until.notified().await });
        tasks.start(region("works"), async {});
        let ended = tasks.ended(patience).await;
        assert_eq!(ended.len(), 1);
        assert_eq!(ended[0].0, region("works"));
        assert!(tasks.is_busy(&region("hangs")) && !tasks.is_busy(&region("works")));

        // From now on nobody waits for it: this would last longer than any test.
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
