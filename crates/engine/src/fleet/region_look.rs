//! Collects the evidence about the workers of a region: their rows, their machines, and the records
//! of the queue.
//!
//! The rows are read page by page. While the cloud describes the machines of one page, the next
//! pages are read and queried, too.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use cloud::{CloudError, Machines, Region, Sighting};
use domain::id::{ProviderId, WorkerGroup, WorkerKey};
use domain::judge::{Attention, Judgement, QueueFacts, judge};
use domain::queue_worker::QueueWorker;
use domain::run_outcome::RunClaim;
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::Semaphore;

use super::region_scan::{MAX_CALL, MachineName, RegionScan, ScanLimits, name, timeout_error};
use crate::Engine;

const CHANGES_NOTHING: Judgement = Judgement::Keep {
    extend_expiry: false,
};

/// Looks at the machines of one region.
pub(super) struct RegionLook {
    engine: Arc<Engine>,
    provider_id: ProviderId,
    region: Region,
    limits: ScanLimits,
    began: Timestamp,
    /// Machines that were listed: they need no call.
    listed: BTreeMap<MachineName, Sighting>,
    calls: Semaphore,
    /// Including the list, if that failed.
    n_failed: AtomicU64,
}

/// A page of workers, ordered by their keys, with all that is known of them.
pub(super) struct PageEvidence {
    pub(super) workers: Vec<Worker>,
    /// Machines that could not be queried are absent.
    pub(super) seen: BTreeMap<WorkerKey, Sighting>,
    /// `None`: the queue could not be queried. Workers that it does not know are absent.
    queue: Option<BTreeMap<WorkerKey, QueueWorker>>,
    attention: Attention,
    /// When all of this was known.
    pub(super) at: Timestamp,
}

/// All that is known of a worker when it is judged.
#[derive(Clone)]
pub(super) struct WorkerEvidence {
    pub(super) worker: Worker,
    /// `None`: the machine could not be queried.
    pub(super) seen: Option<Sighting>,
    /// `None`: the queue could not be queried; `Some(None)`: it does not know the worker.
    pub(super) queue: Option<Option<QueueWorker>>,
    pub(super) attention: Attention,
}

type Pages = Pin<Box<dyn Stream<Item = store::Result<PageEvidence>> + Send>>;

/// A position in the workers of a region: after this worker of the group.
struct Place {
    groups: std::vec::IntoIter<WorkerGroup>,
    group: Option<WorkerGroup>,
    after: Option<WorkerKey>,
}

impl RegionLook {
    pub(super) fn new(scan: &RegionScan, listed: BTreeMap<MachineName, Sighting>) -> Self {
        Self {
            engine: Arc::clone(&scan.engine),
            provider_id: scan.provider_id.clone(),
            region: scan.region.clone(),
            limits: scan.limits,
            began: scan.began,
            listed,
            calls: Semaphore::new(scan.limits.calls),
            n_failed: AtomicU64::new(scan.n_failed),
        }
    }

    /// The number of calls that failed, up to the limit, including the list.
    pub(super) fn n_failed(&self) -> u64 {
        let n_failed = self.n_failed.load(Ordering::Relaxed);
        n_failed.min(self.limits.failures)
    }

    /// The pages of these groups in their order, as many at once as calls are allowed.
    pub(super) fn pages(self: Arc<Self>, groups: Vec<WorkerGroup>) -> Pages {
        let mut groups = groups.into_iter();
        let place = Place {
            group: groups.next(),
            groups,
            after: None,
        };
        let n_pages = self.limits.calls.max(1);
        let reader = Arc::clone(&self);
        let rows = stream::try_unfold(place, move |place| {
            let reader = Arc::clone(&reader);
            async move { reader.read_page(place).await }
        });
        let evidence = rows.map(move |page| {
            let look = Arc::clone(&self);
            async move { look.collect_evidence(page?).await }
        });
        Box::pin(evidence.buffered(n_pages))
    }

    /// The workers after this place; never none of them.
    async fn read_page(&self, mut place: Place) -> store::Result<Option<(Vec<Worker>, Place)>> {
        while let Some(group) = place.group.clone() {
            let (id, after) = (self.provider_id.clone(), place.after.take());
            let size = self.limits.page;
            let page = self.engine.store.survey("scan_page", move |tx| {
                store::workers::list_live(tx, &id, &group, after.as_ref(), size)
            });
            let page = page.await?;
            place.after = page.last().map(|worker| worker.key.clone());
            if page.len() < size as usize {
                place.group = place.groups.next();
                place.after = None;
            }
            if !page.is_empty() {
                return Ok(Some((page, place)));
            }
        }
        Ok(None)
    }

    async fn collect_evidence(&self, workers: Vec<Worker>) -> store::Result<PageEvidence> {
        let seen = self.query_states(&workers).await;
        let queue = self.queue_facts(&workers).await?;
        let at = self.engine.clock.now();
        Ok(PageEvidence {
            seen,
            queue,
            attention: Attention {
                // The clock may have been set back since.
                looked: self.began.min(at),
                listening: self.engine.availability.since(at),
                gap: self.engine.availability.gap(at),
            },
            at,
            workers,
        })
    }

    /// The state of each machine, from the list or from a query; machines without one are absent.
    async fn query_states(&self, page: &[Worker]) -> BTreeMap<WorkerKey, Sighting> {
        let mut seen = BTreeMap::new();
        for worker in page {
            if let Some(sighting) = self.listed.get(&name(worker)) {
                seen.insert(worker.key.clone(), sighting.clone());
            }
        }
        let unlisted: Cow<'_, [Worker]> = if seen.is_empty() {
            Cow::Borrowed(page)
        } else {
            let unlisted = page.iter().filter(|worker| !seen.contains_key(&worker.key));
            unlisted.cloned().collect()
        };
        let Some(machines) = self.engine.providers.machines(&self.provider_id) else {
            return seen;
        };
        // Collected first: a future with a closure over borrows is not `Send` for any lifetime.
        let mut queries = Vec::new();
        for chunk in unlisted.chunks(machines.look_batch().max(1)) {
            queries.push(self.query(machines, chunk));
        }
        let mut queries = stream::iter(queries).buffer_unordered(self.limits.calls.max(1));
        while let Some(sightings) = queries.next().await {
            seen.extend(sightings);
        }
        seen
    }

    /// The states of some machines; none after too many failures.
    async fn query(
        &self,
        machines: &dyn Machines,
        workers: &[Worker],
    ) -> Vec<(WorkerKey, Sighting)> {
        let Ok(_permit) = self.calls.acquire().await else {
            return Vec::new();
        };
        if self.n_failed.load(Ordering::Relaxed) >= self.limits.failures {
            return Vec::new();
        }
        // The time limit begins when the call is made.
        let answer = tokio::time::timeout(MAX_CALL, machines.look(workers)).await;
        let problem: CloudError = match answer.unwrap_or_else(|_| Err(timeout_error())) {
            Ok(sightings) => return sightings,
            Err(problem) => problem,
        };
        // Those that were under way at the same time have the same cause.
        if self.n_failed.fetch_add(1, Ordering::Relaxed) >= self.limits.failures {
            return Vec::new();
        }
        let (id, region) = (&self.provider_id, &self.region);
        tracing::warn!(provider.id = %id, region = %region, error = %problem,
            "cannot query some machines of {id} in {region}; the next scan tries again: {problem}");
        Vec::new()
    }

    /// The queue's records of a page of workers in one group. `None`: the queue could not be
    /// queried.
    async fn queue_facts(
        &self,
        page: &[Worker],
    ) -> store::Result<Option<BTreeMap<WorkerKey, QueueWorker>>> {
        let engine = &self.engine;
        let (Some(first), Some(last)) = (page.first(), page.last()) else {
            return Ok(None);
        };
        if engine.demand_source.is_outside() {
            let now = engine.clock.now();
            return Ok(engine.demand_source.worker_activity(page, now).await);
        }
        let id = self.provider_id.clone();
        let (first, last) = (first.key.clone(), last.key.clone());
        let read = engine.store.survey("scan_queue_workers", move |tx| {
            store::queue_workers::list_of_live(tx, &id, &first, &last)
        });
        let rows = read.await?.into_iter();
        Ok(Some(rows.map(|row| (row.key.clone(), row)).collect()))
    }
}

impl PageEvidence {
    /// The first and the last worker.
    pub(super) fn ends(&self) -> Option<(&WorkerKey, &WorkerKey)> {
        let (first, last) = (self.workers.first()?, self.workers.last()?);
        Some((&first.key, &last.key))
    }

    /// When the queue first saw each running worker that it knows.
    pub(super) fn claims(&self) -> impl Iterator<Item = RunClaim> {
        let running = self.workers.iter();
        let running = running.filter(|worker| worker.state == WorkerState::Running);
        let known = running.filter_map(|worker| self.queue.as_ref()?.get(&worker.key));
        known.map(|seen| RunClaim {
            worker: seen.key.clone(),
            at: seen.first_claim,
        })
    }

    /// The workers that are to be changed.
    pub(super) fn affected(&self) -> Vec<WorkerEvidence> {
        let affected = self.workers.iter().filter_map(|worker| {
            let key = &worker.key;
            let queue = self.queue.as_ref().map(|known| known.get(key));
            let seen = self.seen.get(key);
            let judgement = judge_worker(worker, seen, queue, &self.attention);
            (judgement != CHANGES_NOTHING).then(|| WorkerEvidence {
                worker: worker.clone(),
                seen: seen.cloned(),
                queue: queue.map(|known| known.cloned()),
                attention: self.attention,
            })
        });
        affected.collect()
    }
}

impl WorkerEvidence {
    pub(super) fn judge(&self) -> Judgement {
        let queue = self.queue.as_ref().map(Option::as_ref);
        judge_worker(&self.worker, self.seen.as_ref(), queue, &self.attention)
    }
}

fn judge_worker(
    worker: &Worker,
    seen: Option<&Sighting>,
    queue: Option<Option<&QueueWorker>>,
    attention: &Attention,
) -> Judgement {
    let queue = match queue {
        None => QueueFacts::Unknown,
        Some(None) => QueueFacts::NeverSeen,
        Some(Some(known)) => QueueFacts::Seen(known),
    };
    judge(worker, seen.cloned(), queue, attention)
}
