//! Lists of machines page by page, and ends of many of them.

use std::sync::atomic::{AtomicUsize, Ordering};

use ::testing::sizes_around;
use domain::worker::WorkerState;

use super::*;
use crate::tests::values::{edit, worker};

/// Lists one machine on each page, and counts calls.
#[derive(Default)]
struct Counting {
    n_pages: usize,
    n_lists: AtomicUsize,
    ends_now: AtomicUsize,
    most_ends: AtomicUsize,
}

#[async_trait]
impl Machines for Counting {
    async fn launch(&self, _order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        Ok(Vec::new())
    }

    async fn look(&self, _workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        Ok(Vec::new())
    }

    async fn owned_page(
        &self,
        _region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        self.n_lists.fetch_add(1, Ordering::SeqCst);
        let number = after.map_or(0, |page| page.parse::<usize>().unwrap());
        let machine = |number: usize| OwnedMachine {
            token: None,
            pool_id: None,
            machine: LaunchedMachine {
                group: "dc1".parse().unwrap(),
                id: format!("m{number}").parse().unwrap(),
                made: None,
                provider_data: json!({}),
            },
            sighting: None,
        };
        let next = number + 1;
        Ok(OwnedPage {
            machines: (number..next.min(self.n_pages)).map(machine).collect(),
            next: (next < self.n_pages).then(|| next.to_string()),
        })
    }

    /// Fails for each machine with its id, so that results can be matched.
    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let n_now = self.ends_now.fetch_add(1, Ordering::SeqCst) + 1;
        self.most_ends.fetch_max(n_now, Ordering::SeqCst);
        tokio::task::yield_now().await;
        self.ends_now.fetch_sub(1, Ordering::SeqCst);
        Err(CloudError::Refused(worker.key.id.to_string()))
    }
}

#[tokio::test]
async fn the_number_of_pages_of_a_list_has_a_limit() {
    for n_pages in sizes_around("cloud::provider::MAX_OWNED_PAGES", MAX_OWNED_PAGES) {
        let cloud = Counting {
            n_pages,
            ..Counting::default()
        };
        let listed = list_machines(&cloud, &Region::Everything, MachineMaker::Us).await;
        if n_pages <= MAX_OWNED_PAGES {
            let listed = listed.unwrap();
            let ids: Vec<_> = listed.iter().map(|it| it.machine.id.to_string()).collect();
            let all: Vec<_> = (0..n_pages).map(|number| format!("m{number}")).collect();
            assert_eq!(ids, all);
        } else {
            let error = listed.unwrap_err().to_string();
            assert!(error.ends_with("did not end within 1000 pages"), "{error}");
        }
        let n_lists = cloud.n_lists.load(Ordering::SeqCst);
        assert_eq!(
            n_lists,
            n_pages.clamp(1, MAX_OWNED_PAGES),
            "{n_pages} pages"
        );
    }
}

#[tokio::test]
async fn machines_are_ended_a_few_at_a_time_and_each_has_its_own_result() {
    for count in sizes_around("cloud::provider::MAX_ENDS_AT_ONCE", MAX_ENDS_AT_ONCE) {
        let cloud = Counting::default();
        let named = |number: usize| {
            let mut worker = worker(WorkerState::Stopping);
            edit(&mut worker, |it| {
                it.key.id = format!("m{number}").parse().unwrap()
            });
            worker
        };
        let workers: Vec<Worker> = (0..count).map(named).collect();
        let results = cloud.end_many(&workers).await;
        let refused = |number: usize| Err(CloudError::Refused(format!("m{number}")));
        assert_eq!(results, (0..count).map(refused).collect::<Vec<_>>());
        let most = cloud.most_ends.load(Ordering::SeqCst);
        assert_eq!(most, count.min(MAX_ENDS_AT_ONCE), "{count} to end");
    }
}
