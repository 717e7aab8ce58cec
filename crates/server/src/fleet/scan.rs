//! Looking at what there is: every machine of a provider, many at a time, against its row.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud::{Machines, Sighting};
use domain::id::{PoolId, ProviderId, WorkerGroup, WorkerId, WorkerKey};
use domain::judge::{Judgement, QueueFacts, Seen, judge};
use domain::queue_worker::QueueWorker;
use domain::time::{DAY_MS, MINUTE_MS, Timestamp};
use domain::worker::Worker;
use futures_util::StreamExt;
use futures_util::stream;
use store::{StoreError, Tx};

use super::changes::{gone, told_to_go};
use super::unsettled;
use crate::app::App;

/// Rows that are read at a time.
const PAGE: u32 = 1_000;
/// Calls to one cloud that are under way at the same time.
const MAX_CALLS: usize = 4;
/// A look that takes longer is given up; the next scan looks again.
const MAX_LOOK: Duration = Duration::from_secs(60);
/// After so many looks without an answer the cloud is left alone until the next scan.
const MAX_TIMED_OUT: u64 = 8;
/// How precisely `lastChecked` is kept.
const CHECKED_MS: i64 = 5 * MINUTE_MS;
/// Whoever is there gets this much longer to live in the table.
const LIFE_MS: i64 = 8 * DAY_MS;

const CHANGES_NOTHING: Judgement = Judgement::Keep {
    extend_expiry: false,
};

/// What a scan found and did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Scanned {
    pub seen: u64,
    pub stopped: u64,
    pub ended: u64,
    pub adopted: u64,
    pub settled: u64,
    pub problems: u64,
    /// Looks to which the cloud did not answer in time.
    pub timed_out: u64,
}

/// Which machines of the provider have a row that is not stopped.
pub(super) type Known = BTreeSet<(WorkerGroup, WorkerId)>;

/// What is known of a worker when it is judged.
#[derive(Clone)]
struct Found {
    worker: Worker,
    /// `None`: the machine could not be looked at.
    seen: Option<Seen>,
    /// `None`: the queue could not be asked; `Some(None)`: it does not know the worker.
    queue: Option<Option<QueueWorker>>,
}

impl Found {
    fn judge(&self, now: Timestamp) -> Judgement {
        let queue = match &self.queue {
            None => QueueFacts::Unknown,
            Some(None) => QueueFacts::NeverSeen,
            Some(Some(seen)) => QueueFacts::Seen(seen),
        };
        judge(&self.worker, self.seen.clone(), queue, now)
    }
}

/// `None`: the provider makes no machines, or is out of service.
pub async fn scan_provider(
    app: &Arc<App>,
    provider_id: &ProviderId,
) -> Result<Option<Scanned>, StoreError> {
    let Ok(provider) = app.providers.get(provider_id) else {
        return Ok(None);
    };
    let Some(machines) = provider.machines() else {
        return Ok(None);
    };
    let mut scanned = Scanned::default();
    // What is listed before the rows are read cannot be missed because it was made in between. The list says nothing
    // of what was made after this moment.
    let listed_at = app.clock.now();
    let listing = (listed_at, unsettled::owned(machines).await);
    let mut known = Known::new();
    let mut after: Option<WorkerKey> = None;
    loop {
        let (id, start) = (provider_id.clone(), after.take());
        let page = app.store.scan("scan_page", move |tx| {
            store::worker_list_live(tx, &id, start.as_ref(), PAGE)
        });
        let page = page.await?;
        known.extend(
            page.iter()
                .map(|worker| (worker.key.group.clone(), worker.key.id.clone())),
        );
        let Some(last) = page.last().map(|worker| worker.key.clone()) else {
            break;
        };
        let full = page.len() == PAGE as usize;
        scan_page(app, provider_id, machines, page, &mut scanned).await?;
        if !full {
            break;
        }
        after = Some(last);
    }
    unsettled::settle(app, provider_id, machines, listing, &known, &mut scanned).await?;
    Ok(Some(scanned))
}

async fn scan_page(
    app: &Arc<App>,
    provider_id: &ProviderId,
    machines: &dyn Machines,
    page: Vec<Worker>,
    scanned: &mut Scanned,
) -> Result<(), StoreError> {
    let seen = look(machines, provider_id, &page, scanned).await;
    let queue = queue_facts(app, &page).await?;
    let now = app.clock.now();
    let concerned = page.iter().filter_map(|worker| {
        let found = Found {
            worker: worker.clone(),
            seen: seen.get(&worker.key).cloned(),
            queue: queue.as_ref().map(|known| known.get(&worker.key).cloned()),
        };
        (found.judge(now) != CHANGES_NOTHING).then_some(found)
    });
    let concerned: Vec<Found> = concerned.collect();
    scanned.seen += seen
        .values()
        .filter(|seen| matches!(seen, Seen::Alive))
        .count() as u64;
    let (first, last) = match (page.first(), page.last()) {
        (Some(first), Some(last)) => (first.key.clone(), last.key.clone()),
        (None, _) | (_, None) => return Ok(()),
    };
    let stale = page
        .iter()
        .any(|worker| worker.last_checked < now.plus_millis(-CHECKED_MS));
    if concerned.is_empty() && !stale {
        return Ok(());
    }
    let ids = concerned
        .iter()
        .map(|found| found.worker.key.pool_id.clone());
    let pools: BTreeSet<PoolId> = ids.collect();
    let (inner, id) = (Arc::clone(app), provider_id.clone());
    let written = app.write("scan_apply", move |tx| {
        store::worker_note_checked(tx, &id, &first, &last, now, now.plus_millis(-CHECKED_MS))?;
        let mut done = Scanned::default();
        for found in &concerned {
            apply(&inner, tx, found, now, &mut done)?;
        }
        Ok::<_, StoreError>(done)
    });
    let done = written.await?;
    scanned.stopped += done.stopped;
    scanned.ended += done.ended;
    if done.ended > 0 {
        app.wake.ending(provider_id).notify_one();
    }
    for pool_id in pools {
        app.wake.pool(&pool_id);
    }
    Ok(())
}

/// How each machine was found; those that could not be looked at are absent.
async fn look(
    machines: &dyn Machines,
    provider_id: &ProviderId,
    page: &[Worker],
    scanned: &mut Scanned,
) -> BTreeMap<WorkerKey, Seen> {
    if scanned.timed_out >= MAX_TIMED_OUT {
        return BTreeMap::new();
    }
    // Gathered first: a future that holds a closure over borrows is not general enough for the tasks.
    let mut looks = Vec::new();
    for chunk in page.chunks(machines.look_batch().max(1)) {
        looks.push(tokio::time::timeout(MAX_LOOK, machines.look(chunk)));
    }
    let mut looks = stream::iter(looks).buffer_unordered(MAX_CALLS);
    let mut seen = BTreeMap::new();
    while let Some(answer) = looks.next().await {
        let problem = match answer {
            Ok(Ok(sightings)) => {
                seen.extend(
                    sightings
                        .into_iter()
                        .map(|(key, found)| (key, seen_as(found))),
                );
                continue;
            }
            Ok(Err(problem)) => problem.to_string(),
            Err(_) => {
                scanned.timed_out += 1;
                format!("no answer within {} s", MAX_LOOK.as_secs())
            }
        };
        scanned.problems += 1;
        tracing::warn!(provider.id = %provider_id, error = %problem,
            "cannot look at some machines of {provider_id}; the next scan tries again: {problem}");
    }
    seen
}

fn seen_as(sighting: Sighting) -> Seen {
    match sighting {
        Sighting::Alive => Seen::Alive,
        Sighting::Going => Seen::Going,
        Sighting::Gone(why) => Seen::Gone(why),
        Sighting::NotFound => Seen::NotFound,
    }
}

/// `None`: the queue could not be asked.
async fn queue_facts(
    app: &Arc<App>,
    page: &[Worker],
) -> Result<Option<BTreeMap<WorkerKey, QueueWorker>>, StoreError> {
    let (Some(first), Some(last)) = (page.first(), page.last()) else {
        return Ok(None);
    };
    if app.demands.is_outside() {
        return Ok(app.demands.activity(app, page).await);
    }
    let (first, last) = (first.key.clone(), last.key.clone());
    let read = app.store.scan("scan_queue_workers", move |tx| {
        store::queue_worker_between(tx, &first, &last)
    });
    let rows = read.await?;
    Ok(Some(
        rows.into_iter().map(|row| (row.key.clone(), row)).collect(),
    ))
}

/// Only if nobody changed the worker since it was looked at, and judged anew: it may have claimed work meanwhile.
fn apply(
    app: &App,
    tx: &mut Tx<'_>,
    found: &Found,
    now: Timestamp,
    done: &mut Scanned,
) -> Result<(), StoreError> {
    let key = &found.worker.key;
    let Some(mut worker) = store::worker_get(tx, key)? else {
        return Ok(());
    };
    if worker.version != found.worker.version {
        return Ok(());
    }
    let mut found = found.clone();
    if !app.demands.is_outside() {
        found.queue = Some(store::queue_worker_get(tx, key)?);
    }
    match found.judge(now) {
        Judgement::Keep { .. } => {
            worker.expires = now.plus_millis(LIFE_MS);
            store::worker_update(tx, &worker)?;
        }
        Judgement::Stopped { reason } => {
            done.stopped += u64::from(gone(app, tx, &mut worker, &reason, now)?);
        }
        Judgement::End { reason } => {
            done.ended += u64::from(told_to_go(app, tx, &mut worker, &reason, now)?);
        }
        Judgement::EndAgain { .. } => done.ended += 1,
    }
    Ok(())
}
