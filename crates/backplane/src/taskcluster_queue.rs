//! The queue service of a Taskcluster deployment: its demand, asked over HTTP.
//!
//! Requests about many queues are sent in batches. If a batch fails and it may help, its queues are
//! asked one by one, so that one inaccessible queue does not hide the others.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use api_client::BadRootUrl;
use domain::demand::Demand;
use domain::id::{PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::queue_worker::{QuarantineEntry, TaskRun};
use domain::time::Timestamp;
use futures_util::{StreamExt, stream};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::json;
use tokio::time::{Instant, timeout_at};

mod call;

use call::Caller;
pub use call::QueueAccess;

/// Queues of one batch at most: the limit of the queue service.
pub const MAX_BATCH: usize = 1_000;
/// Time limit of all requests of one round.
const ROUND_LIMIT: Duration = Duration::from_secs(60);
/// Older deployments do not have the batch request. After this many batches without it, it is tried
/// again.
const BATCHES_UNTIL_RETRY: u32 = 100;
/// Requests about single queues that run at the same time at most.
const MAX_CONCURRENT_REQUESTS: usize = 8;
/// The size of a page of a list, and pages of a list at most.
const PAGE: usize = 1_000;
const MAX_PAGES: usize = 100;

/// Why a request failed. The caller keeps its last known values.
#[derive(Debug, thiserror::Error)]
pub enum DemandError {
    #[error("the queue at {url} did not respond")]
    Unreachable {
        url: String,
        #[source]
        source: reqwest::Error,
    },
    #[error("the queue at {url} refused with {status}: {message}")]
    Refused {
        url: String,
        status: u16,
        message: String,
    },
    #[error("the queue at {url} sent an invalid response ({problem}); check its root URL")]
    NoAnswer { url: String, problem: String },
    #[error("the queue was not asked, because other requests took longer than {} seconds", ROUND_LIMIT.as_secs())]
    OutOfTime,
    #[error("the queue's response does not contain {0}")]
    NotMentioned(PoolId),
    #[error("the list at {url} has more than {MAX_PAGES} pages")]
    TooLong { url: String },
    #[error("the queue cannot be asked")]
    RootUrl(#[source] BadRootUrl),
    #[error("the queue cannot be asked")]
    Client(#[source] reqwest::Error),
}

/// The queue's data of a worker.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WorkerActivity {
    pub group: WorkerGroup,
    pub id: WorkerId,
    pub first_claim: Timestamp,
    pub last_date_active: Option<Timestamp>,
    pub quarantine_until: Option<Timestamp>,
    /// Known only if the worker was requested alone, like the details of its quarantine.
    pub expires: Option<Timestamp>,
    /// Newest last. In a list, only the newest run is known.
    pub recent_tasks: Vec<TaskRun>,
    pub quarantine_details: Vec<QuarantineEntry>,
}

/// A page of the workers that the queue remembers.
#[derive(Debug)]
pub struct WorkerPage {
    pub workers: Vec<WorkerActivity>,
    /// Set if the list continues.
    pub token: Option<String>,
}

/// BusyWorkers workers, with the number of their claimed tasks.
pub type BusyWorkers = BTreeMap<(WorkerGroup, WorkerId), u64>;

pub struct TaskclusterQueue {
    caller: Box<Caller>,
    /// This many more batches are asked one by one.
    without_batch: AtomicU32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Counts {
    task_queue_id: String,
    pending_tasks: u64,
    claimed_tasks: u64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CountsList {
    task_queue_counts: Vec<Counts>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Claimed {
    worker_group: String,
    worker_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Worker {
    worker_group: String,
    worker_id: String,
    first_claim: String,
    last_date_active: Option<String>,
    quarantine_until: Option<String>,
    expires: Option<String>,
    latest_task: Option<Run>,
    #[serde(default)]
    recent_tasks: Vec<Run>,
    #[serde(default)]
    quarantine_details: Vec<Quarantine>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Run {
    task_id: String,
    run_id: u32,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Quarantine {
    updated_at: String,
    client_id: String,
    quarantine_until: String,
    quarantine_info: String,
}

/// A page of any list.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Page<T> {
    #[serde(alias = "tasks", alias = "workers")]
    items: Vec<T>,
    continuation_token: Option<String>,
}

type Answer<T> = Result<T, Arc<DemandError>>;

impl TaskclusterQueue {
    pub fn new(access: QueueAccess) -> Result<Self, DemandError> {
        Ok(Self {
            caller: Box::new(Caller::new(access)?),
            without_batch: AtomicU32::new(0),
        })
    }

    /// Demand of each queue, in the order of the request.
    pub async fn demand(&self, queues: &[PoolId]) -> Vec<Answer<Demand>> {
        let deadline = Instant::now() + ROUND_LIMIT;
        let mut answers = Vec::with_capacity(queues.len());
        for batch in queues.chunks(MAX_BATCH) {
            answers.extend(self.batch(batch, deadline).await);
        }
        answers
    }

    /// The workers with claimed tasks, and the number of these tasks.
    pub async fn busy(&self, queue: &PoolId) -> Result<BusyWorkers, DemandError> {
        let path = format!("/task-queues/{}/claimed", segment(queue.as_str()));
        let claimed: Vec<Claimed> = self.list(&path).await?;
        // A name that is not a valid worker name is not one of our workers.
        let named = claimed.iter().filter_map(|claimed| {
            Some((
                claimed.worker_group.parse().ok()?,
                claimed.worker_id.parse().ok()?,
            ))
        });
        let mut busy = BusyWorkers::new();
        for name in named {
            *busy.entry(name).or_insert(0) += 1;
        }
        Ok(busy)
    }

    /// All workers that the queue remembers.
    pub async fn workers(&self, queue: &PoolId) -> Result<Vec<WorkerActivity>, DemandError> {
        let workers: Vec<Worker> = self.list(&workers_path(queue)).await?;
        Ok(workers.into_iter().filter_map(activity).collect())
    }

    /// One page of these workers: all, or only quarantined ones.
    pub async fn worker_page(
        &self,
        queue: &PoolId,
        limit: u32,
        token: Option<&str>,
        quarantined: bool,
    ) -> Result<WorkerPage, DemandError> {
        let mut path = format!("{}?limit={limit}", workers_path(queue));
        if let Some(token) = token {
            path.push_str(&format!("&continuationToken={}", segment(token)));
        }
        if quarantined {
            path.push_str("&quarantined=true");
        }
        let page: Page<Worker> = self.caller.get(&path).await?;
        Ok(WorkerPage {
            workers: page.items.into_iter().filter_map(activity).collect(),
            token: page.continuation_token.filter(|token| !token.is_empty()),
        })
    }

    /// One worker; `None` if the queue does not remember it.
    pub async fn worker(&self, key: &WorkerKey) -> Result<Option<WorkerActivity>, DemandError> {
        let (group, id) = (segment(key.group.as_str()), segment(key.id.as_str()));
        let path = format!("{}/{group}/{id}", workers_path(&key.pool_id));
        match self.caller.get::<Worker>(&path).await {
            Ok(worker) => Ok(activity(worker)),
            Err(DemandError::Refused { status: 404, .. }) => Ok(None),
            Err(problem) => Err(problem),
        }
    }

    async fn batch(&self, queues: &[PoolId], deadline: Instant) -> Vec<Answer<Demand>> {
        let left = self.without_batch.load(Ordering::Relaxed);
        if left > 0 {
            self.without_batch.store(left - 1, Ordering::Relaxed);
            return self.one_by_one(queues, deadline).await;
        }
        let names: Vec<&str> = queues.iter().map(PoolId::as_str).collect();
        let body = json!({"taskQueueIds": names});
        let asking = self.caller.post::<CountsList>("/task-queues/counts", &body);
        let counts = match timeout_at(deadline, asking).await {
            Err(_) => return failed(queues, DemandError::OutOfTime),
            Ok(Ok(list)) => list.task_queue_counts,
            Ok(Err(DemandError::Refused {
                status: 404 | 405, ..
            })) => {
                self.without_batch
                    .store(BATCHES_UNTIL_RETRY, Ordering::Relaxed);
                return self.one_by_one(queues, deadline).await;
            }
            // One queue that we may not see, or that the service does not accept, fails the batch.
            Ok(Err(DemandError::Refused {
                status: 400 | 403, ..
            })) => {
                return self.one_by_one(queues, deadline).await;
            }
            Ok(Err(problem)) => return failed(queues, problem),
        };
        let found: BTreeMap<&str, Demand> = counts
            .iter()
            .map(|counts| (counts.task_queue_id.as_str(), counts.demand()))
            .collect();
        let answer = |queue: &PoolId| {
            let demand = found.get(queue.as_str()).copied();
            demand.ok_or_else(|| Arc::new(DemandError::NotMentioned(queue.clone())))
        };
        queues.iter().map(answer).collect()
    }

    async fn one_by_one(&self, queues: &[PoolId], deadline: Instant) -> Vec<Answer<Demand>> {
        let mut questions = Vec::with_capacity(queues.len());
        for queue in queues {
            questions.push(async move {
                match timeout_at(deadline, self.one(queue)).await {
                    Ok(answer) => answer.map_err(Arc::new),
                    Err(_) => Err(Arc::new(DemandError::OutOfTime)),
                }
            });
        }
        run_concurrently(questions).await
    }

    async fn one(&self, queue: &PoolId) -> Result<Demand, DemandError> {
        let path = format!("/task-queues/{}/counts", segment(queue.as_str()));
        let counts: Counts = self.caller.get(&path).await?;
        Ok(counts.demand())
    }

    async fn list<T: DeserializeOwned>(&self, path: &str) -> Result<Vec<T>, DemandError> {
        let mut items = Vec::new();
        let mut token: Option<String> = None;
        for _ in 0..MAX_PAGES {
            let next = token.as_deref().map(segment);
            let next = next.map_or_else(String::new, |token| format!("&continuationToken={token}"));
            let page: Page<T> = self
                .caller
                .get(&format!("{path}?limit={PAGE}{next}"))
                .await?;
            items.extend(page.items);
            token = page.continuation_token.filter(|token| !token.is_empty());
            if token.is_none() {
                return Ok(items);
            }
        }
        Err(DemandError::TooLong {
            url: self.caller.url(path),
        })
    }
}

impl Counts {
    fn demand(&self) -> Demand {
        Demand {
            pending: self.pending_tasks,
            claimed: self.claimed_tasks,
        }
    }
}

/// The responses to all requests, in their order.
async fn run_concurrently<F: Future>(questions: Vec<F>) -> Vec<F::Output> {
    let questions = stream::iter(questions).buffered(MAX_CONCURRENT_REQUESTS);
    questions.collect().await
}

fn failed(queues: &[PoolId], problem: DemandError) -> Vec<Answer<Demand>> {
    let problem = Arc::new(problem);
    vec![Err(problem); queues.len()]
}

fn workers_path(queue: &PoolId) -> String {
    let (provisioner, worker_type) = queue.parts();
    format!(
        "/provisioners/{}/worker-types/{}/workers",
        segment(provisioner),
        segment(worker_type)
    )
}

/// `None`: the name is not valid for a worker of ours.
fn activity(worker: Worker) -> Option<WorkerActivity> {
    let time = |text: Option<String>| text.and_then(|text| text.parse().ok());
    let mut runs = worker.recent_tasks;
    if runs.is_empty() {
        runs.extend(worker.latest_task);
    }
    Some(WorkerActivity {
        group: worker.worker_group.parse().ok()?,
        id: worker.worker_id.parse().ok()?,
        first_claim: worker.first_claim.parse().ok()?,
        last_date_active: time(worker.last_date_active),
        quarantine_until: time(worker.quarantine_until),
        expires: time(worker.expires),
        recent_tasks: runs.into_iter().map(Run::known).collect(),
        quarantine_details: worker
            .quarantine_details
            .into_iter()
            .map(Quarantine::known)
            .collect(),
    })
}

impl Run {
    fn known(self) -> TaskRun {
        TaskRun {
            task_id: self.task_id,
            run_id: self.run_id,
        }
    }
}

impl Quarantine {
    fn known(self) -> QuarantineEntry {
        QuarantineEntry {
            updated_at: self.updated_at,
            client_id: self.client_id,
            quarantine_until: self.quarantine_until,
            quarantine_info: self.quarantine_info,
        }
    }
}

/// Escapes a name for a path or a query.
fn segment(text: &str) -> String {
    use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
    utf8_percent_encode(text, NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use testing::sizes_around;

    use super::*;

    #[tokio::test]
    async fn single_requests_run_a_few_at_a_time_and_are_answered_in_order() {
        for count in sizes_around(
            "backplane::taskcluster_queue::MAX_CONCURRENT_REQUESTS",
            MAX_CONCURRENT_REQUESTS,
        ) {
            let (now, most) = (AtomicUsize::new(0), AtomicUsize::new(0));
            let question = async |number: usize| {
                let n_now = now.fetch_add(1, Ordering::SeqCst) + 1;
                most.fetch_max(n_now, Ordering::SeqCst);
                // Odd ones take longer.
                for _ in 0..=number % 2 {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
                number
            };
            let answers = run_concurrently((0..count).map(question).collect()).await;
            assert_eq!(answers, (0..count).collect::<Vec<_>>());
            assert_eq!(
                most.load(Ordering::SeqCst),
                count.min(MAX_CONCURRENT_REQUESTS)
            );
        }
    }
}
