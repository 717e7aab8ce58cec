//! Looking at what there is: the machines of a provider, region by region, against their rows.
//!
//! A region is listed, page by page, and its rows are read. A machine that the list shows needs no further call; the
//! others are looked at, many at a time. Regions are scanned side by side, and none waits for another.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud::{
    CloudError, LaunchedMachine, MAX_OWNED_PAGES, Machines, OwnedMachine, Region, Sighting,
};
use domain::id::{LaunchToken, PoolId, ProviderId, WorkerGroup, WorkerKey};
use domain::judge::{Attention, Judgement, QueueFacts, Seen, judge};
use domain::queue_worker::QueueWorker;
use domain::time::{DAY_MS, MINUTE_MS, Timestamp};
use domain::worker::Worker;
use futures_util::StreamExt;
use futures_util::stream;
use store::StoreError;

use super::changes::{gone, told_to_go};
use super::regions::RegionTasks;
use super::scanned::{Name, Scanned};
use super::unsettled::{self, FirstSeen};
use crate::Engine;
use crate::change::Change;

const PAGE: u32 = 1_000;
const MAX_CALLS: usize = 4;
/// A call that takes longer is given up; the next scan makes it again.
const MAX_CALL: Duration = Duration::from_secs(60);
const MAX_FAILURES: u64 = 2;
/// A scan waits no longer for its regions. The next one does not wait for those that took longer.
const PATIENCE: Duration = Duration::from_secs(30);
const MAX_GROUPS: usize = 1_000;
/// How precisely `lastChecked` is kept.
const CHECKED_MS: i64 = 5 * MINUTE_MS;
/// Whoever is there gets this much longer to live in the table.
const LIFE_MS: i64 = 8 * DAY_MS;

const CHANGES_NOTHING: Judgement = Judgement::Keep {
    extend_expiry: false,
};

/// How much a scan does, and how much of it at a time.
#[derive(Clone, Copy, Debug)]
pub struct ScanLimits {
    /// Rows that are read at a time.
    pub page: u32,
    /// Calls to one region that are under way at the same time.
    pub calls: usize,
    /// After this many calls that failed a region is left alone until the next scan.
    pub failures: u64,
    /// Groups in which a provider may have workers. Those of further groups are not looked at.
    pub groups: usize,
}

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            page: PAGE,
            calls: MAX_CALLS,
            failures: MAX_FAILURES,
            groups: MAX_GROUPS,
        }
    }
}

/// Scans a provider, again and again.
pub struct Scanner {
    engine: Arc<Engine>,
    provider_id: ProviderId,
    limits: ScanLimits,
    regions: RegionTasks<Result<RegionScan, StoreError>>,
    /// When each region was listed last.
    listed: BTreeMap<Region, Timestamp>,
    /// Machines that carry our mark and a token that we do not know.
    unknown: BTreeMap<Region, FirstSeen>,
}

/// One scan of one region.
struct RegionScan {
    engine: Arc<Engine>,
    provider_id: ProviderId,
    limits: ScanLimits,
    region: Region,
    groups: Vec<WorkerGroup>,
    unknown: FirstSeen,
    scanned: Scanned,
    /// When it began.
    began: Timestamp,
    /// Calls that failed.
    n_failed: u64,
    /// `None`: it could not be listed.
    listed: Option<Timestamp>,
}

/// What the list of a region says.
#[derive(Default)]
struct RegionList {
    sightings: BTreeMap<Name, Sighting>,
    /// Those that say which launch made them.
    machines: Vec<(LaunchToken, Option<PoolId>, LaunchedMachine)>,
}

/// What is known of a worker when it is judged.
#[derive(Clone)]
struct Found {
    worker: Worker,
    /// `None`: the machine could not be looked at.
    seen: Option<Seen>,
    /// `None`: the queue could not be asked; `Some(None)`: it does not know the worker.
    queue: Option<Option<QueueWorker>>,
    attention: Attention,
}

impl Found {
    fn judge(&self) -> Judgement {
        let queue = match &self.queue {
            None => QueueFacts::Unknown,
            Some(None) => QueueFacts::NeverSeen,
            Some(Some(seen)) => QueueFacts::Seen(seen),
        };
        judge(&self.worker, self.seen.clone(), queue, &self.attention)
    }
}

impl Scanned {
    fn add(&mut self, other: Self) {
        self.seen += other.seen;
        self.stopped += other.stopped;
        self.ended += other.ended;
        self.adopted += other.adopted;
        self.settled += other.settled;
        self.problems += other.problems;
    }
}

impl Scanner {
    pub fn new(engine: Arc<Engine>, provider_id: ProviderId) -> Self {
        Self::with_limits(engine, provider_id, ScanLimits::default())
    }

    pub fn with_limits(engine: Arc<Engine>, provider_id: ProviderId, limits: ScanLimits) -> Self {
        Self {
            engine,
            provider_id,
            limits,
            regions: RegionTasks::default(),
            listed: BTreeMap::new(),
            unknown: BTreeMap::new(),
        }
    }

    /// `None`: the provider makes no machines, or is out of service.
    pub async fn scan(&mut self) -> Result<Option<Scanned>, StoreError> {
        self.scan_for(PATIENCE).await
    }

    /// Waits no longer than this for its regions.
    pub async fn scan_for(&mut self, patience: Duration) -> Result<Option<Scanned>, StoreError> {
        let engine = Arc::clone(&self.engine);
        let Ok(provider) = engine.providers.get(&self.provider_id) else {
            return Ok(None);
        };
        let Some(machines) = provider.machines() else {
            return Ok(None);
        };
        for (region, groups) in self.regions_to_scan(machines).await? {
            if !self.regions.is_busy(&region) {
                self.start(region, groups);
            }
        }
        let mut scanned = Scanned::default();
        let mut failed = None;
        for (region, result) in self.regions.ended(patience).await {
            match result {
                Ok(Ok(done)) => {
                    scanned.add(done.scanned);
                    self.unknown.insert(region.clone(), done.unknown);
                    self.listed.extend(done.listed.map(|at| (region, at)));
                }
                Ok(Err(problem)) => failed = Some(problem),
                Err(problem) => {
                    scanned.problems += 1;
                    tracing::error!(provider.id = %self.provider_id, region = %region,
                        "the scan of {region} ended: {problem}");
                }
            }
        }
        scanned.settled +=
            unsettled::settle(&engine, &self.provider_id, machines, &self.listed).await?;
        if let Some(problem) = failed {
            return Err(problem);
        }
        engine.listening.note(engine.clock.now());
        Ok(Some(scanned))
    }

    /// Where machines can be, where workers are, and where launches without an answer went.
    async fn regions_to_scan(
        &self,
        machines: &dyn Machines,
    ) -> Result<BTreeMap<Region, Vec<WorkerGroup>>, StoreError> {
        let mut regions: BTreeMap<Region, Vec<WorkerGroup>> = BTreeMap::new();
        for region in machines.regions() {
            regions.entry(region).or_default();
        }
        for (_, region) in unsettled::pending(&self.engine, &self.provider_id, machines).await? {
            if let Some(region) = region {
                regions.entry(region).or_default();
            }
        }
        let id = self.provider_id.clone();
        let most = self.limits.groups;
        let groups = self.engine.store.read("scan_groups", move |tx| {
            store::workers::live_groups(tx, &id, most + 1)
        });
        let mut groups = groups.await?;
        if groups.len() > most {
            groups.truncate(most);
            tracing::error!(provider.id = %self.provider_id,
                "{} has workers in more than {most} groups; only those of {most} are looked at",
                self.provider_id);
        }
        for group in groups {
            regions
                .entry(machines.region_of(&group))
                .or_default()
                .push(group);
        }
        Ok(regions)
    }

    fn start(&mut self, region: Region, groups: Vec<WorkerGroup>) {
        let mut scan = RegionScan {
            engine: Arc::clone(&self.engine),
            provider_id: self.provider_id.clone(),
            limits: self.limits,
            unknown: self.unknown.remove(&region).unwrap_or_default(),
            region: region.clone(),
            groups,
            scanned: Scanned::default(),
            began: self.engine.clock.now(),
            n_failed: 0,
            listed: None,
        };
        self.regions.start(region, async move {
            let engine = Arc::clone(&scan.engine);
            let provider = engine.providers.get(&scan.provider_id).ok();
            if let Some(machines) = provider.and_then(|provider| provider.machines()) {
                scan.run(machines).await?;
            }
            Ok(scan)
        });
    }
}

impl RegionScan {
    async fn run(&mut self, machines: &dyn Machines) -> Result<(), StoreError> {
        // What is listed before the rows are read cannot be missed because it was made in between. The list says
        // nothing of what was made after this moment.
        self.began = self.engine.clock.now();
        let list = self.list(machines).await;
        let sightings = list.as_ref().map(|list| &list.sightings);
        let nothing = BTreeMap::new();
        let sightings = sightings.unwrap_or(&nothing);
        let mut known = BTreeSet::new();
        for group in self.groups.clone() {
            let mut after: Option<WorkerKey> = None;
            loop {
                let (id, in_group) = (self.provider_id.clone(), group.clone());
                let size = self.limits.page;
                let page = self.engine.store.scan("scan_page", move |tx| {
                    store::workers::list_live(tx, &id, &in_group, after.as_ref(), size)
                });
                let page = page.await?;
                after = page.last().map(|worker| worker.key.clone());
                let is_last = page.len() < size as usize;
                known.extend(page.iter().map(name));
                self.scan_page(machines, page, sightings).await?;
                if is_last {
                    break;
                }
            }
        }
        if let Some(list) = list {
            let strangers = list.machines.into_iter();
            let strangers = strangers.filter(|(_, _, machine)| {
                !known.contains(&(machine.group.clone(), machine.id.clone()))
            });
            let adopting = unsettled::Adopting {
                engine: &self.engine,
                provider_id: &self.provider_id,
                machines,
                unknown: &mut self.unknown,
                scanned: &mut self.scanned,
            };
            adopting.all(strangers.collect()).await?;
            self.listed = Some(self.began);
        }
        Ok(())
    }

    /// `None`: it cannot be listed now.
    async fn list(&mut self, machines: &dyn Machines) -> Option<RegionList> {
        let problem = match list(machines, &self.region).await {
            Ok(list) => return Some(list),
            Err(problem) => problem,
        };
        self.n_failed += 1;
        self.scanned.problems += 1;
        let (id, region) = (&self.provider_id, &self.region);
        tracing::warn!(provider.id = %id, region = %region, error = %problem,
            "cannot list the machines of {id} in {region}; launches there wait for the next scan: \
             {problem}");
        None
    }

    async fn scan_page(
        &mut self,
        machines: &dyn Machines,
        page: Vec<Worker>,
        listed: &BTreeMap<Name, Sighting>,
    ) -> Result<(), StoreError> {
        let (first, last) = match (page.first(), page.last()) {
            (Some(first), Some(last)) => (first.key.clone(), last.key.clone()),
            (None, _) | (_, None) => return Ok(()),
        };
        let seen = self.see(machines, &page, listed).await;
        let queue = queue_facts(&self.engine, &self.provider_id, &page).await?;
        let now = self.engine.clock.now();
        let attention = Attention {
            // The clock may have been set back since.
            looked: self.began.min(now),
            listening: self.engine.listening.since(now),
            gap: self.engine.listening.gap(now),
        };
        let concerned = page.iter().filter_map(|worker| {
            let found = Found {
                worker: worker.clone(),
                seen: seen.get(&worker.key).cloned(),
                queue: queue.as_ref().map(|known| known.get(&worker.key).cloned()),
                attention,
            };
            (found.judge() != CHANGES_NOTHING).then_some(found)
        });
        let concerned: Vec<Found> = concerned.collect();
        let alive = seen.values().filter(|seen| matches!(seen, Seen::Alive));
        self.scanned.seen += alive.count() as u64;
        let stale = page
            .iter()
            .any(|worker| worker.last_checked < now.plus_millis(-CHECKED_MS));
        if concerned.is_empty() && !stale {
            return Ok(());
        }
        let (id, is_outside) = (self.provider_id.clone(), self.engine.demands.is_outside());
        let written = self.engine.change("scan_apply", now, move |change| {
            let stale = now.plus_millis(-CHECKED_MS);
            store::workers::note_checked(change.tx, &id, &first, &last, now, stale)?;
            let mut done = Scanned::default();
            for found in &concerned {
                apply(change, found, is_outside, &mut done)?;
                change.wake_pool(&found.worker.key.pool_id);
            }
            if done.ended > 0 {
                change.wake_ending(&id);
            }
            Ok::<_, StoreError>(done)
        });
        self.scanned.add(written.await?);
        Ok(())
    }

    /// How each machine was found, by the list or by a look; those that could not be looked at are absent.
    async fn see(
        &mut self,
        machines: &dyn Machines,
        page: &[Worker],
        listed: &BTreeMap<Name, Sighting>,
    ) -> BTreeMap<WorkerKey, Seen> {
        let mut seen = BTreeMap::new();
        let mut unlisted = Vec::new();
        for worker in page {
            match listed.get(&name(worker)) {
                Some(sighting) => {
                    seen.insert(worker.key.clone(), seen_as(sighting.clone()));
                }
                None => unlisted.push(worker.clone()),
            }
        }
        if self.n_failed >= self.limits.failures {
            return seen;
        }
        // Gathered first: a future that holds a closure over borrows is not general enough for the tasks.
        let mut looks = Vec::new();
        for chunk in unlisted.chunks(machines.look_batch().max(1)) {
            looks.push(look(machines, chunk));
        }
        let mut looks = stream::iter(looks).buffer_unordered(self.limits.calls);
        while let Some(answer) = looks.next().await {
            let problem = match answer {
                Ok(sightings) => {
                    let sightings = sightings.into_iter();
                    seen.extend(sightings.map(|(key, found)| (key, seen_as(found))));
                    continue;
                }
                Err(problem) => problem,
            };
            self.n_failed += 1;
            self.scanned.problems += 1;
            let (id, region) = (&self.provider_id, &self.region);
            tracing::warn!(provider.id = %id, region = %region, error = %problem,
                "cannot look at some machines of {id} in {region}; the next scan tries again: \
                 {problem}");
            if self.n_failed >= self.limits.failures {
                break;
            }
        }
        seen
    }
}

fn name(worker: &Worker) -> Name {
    (worker.key.group.clone(), worker.key.id.clone())
}

/// The limit is for each page: a large region may have many.
async fn list(machines: &dyn Machines, region: &Region) -> Result<RegionList, CloudError> {
    let mut list = RegionList::default();
    let mut next: Option<String> = None;
    for _ in 0..MAX_OWNED_PAGES {
        let page = tokio::time::timeout(MAX_CALL, machines.owned_page(region, next.as_deref()));
        let page = page.await.map_err(|_| late())??;
        for owned in page.machines {
            let OwnedMachine {
                token,
                pool_id,
                machine,
                sighting,
            } = owned;
            if let Some(sighting) = sighting {
                let name = (machine.group.clone(), machine.id.clone());
                list.sightings.insert(name, sighting);
            }
            list.machines
                .extend(token.map(|token| (token, pool_id, machine)));
        }
        next = page.next;
        if next.is_none() {
            return Ok(list);
        }
    }
    Err(CloudError::Unavailable(format!(
        "the list of machines did not end within {MAX_OWNED_PAGES} pages"
    )))
}

/// Its time begins when it is made, not when it is planned.
async fn look(
    machines: &dyn Machines,
    workers: &[Worker],
) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
    let answer = tokio::time::timeout(MAX_CALL, machines.look(workers)).await;
    answer.unwrap_or_else(|_| Err(late()))
}

fn late() -> CloudError {
    CloudError::Unavailable(format!("no answer within {} s", MAX_CALL.as_secs()))
}

fn seen_as(sighting: Sighting) -> Seen {
    match sighting {
        Sighting::Alive => Seen::Alive,
        Sighting::Ending => Seen::Going,
        Sighting::Ended(why) => Seen::Gone(why),
        Sighting::NotFound => Seen::NotFound,
    }
}

/// What the queue knows of a page of workers in one group. `None`: the queue could not be asked.
async fn queue_facts(
    engine: &Arc<Engine>,
    provider_id: &ProviderId,
    page: &[Worker],
) -> Result<Option<BTreeMap<WorkerKey, QueueWorker>>, StoreError> {
    let (Some(first), Some(last)) = (page.first(), page.last()) else {
        return Ok(None);
    };
    if engine.demands.is_outside() {
        return Ok(engine.demands.activity(page, engine.clock.now()).await);
    }
    let (id, first, last) = (provider_id.clone(), first.key.clone(), last.key.clone());
    let read = engine.store.scan("scan_queue_workers", move |tx| {
        store::queue_workers::list_of_live(tx, &id, &first, &last)
    });
    let rows = read.await?;
    Ok(Some(
        rows.into_iter().map(|row| (row.key.clone(), row)).collect(),
    ))
}

/// Only if nobody changed the worker since it was looked at, and judged anew: it may have claimed work meanwhile.
fn apply(
    change: &mut Change<'_, '_>,
    found: &Found,
    is_outside: bool,
    done: &mut Scanned,
) -> Result<(), StoreError> {
    let key = &found.worker.key;
    let Some(mut worker) = store::workers::get(change.tx, key)? else {
        return Ok(());
    };
    if worker.version != found.worker.version {
        return Ok(());
    }
    let mut found = found.clone();
    if !is_outside {
        found.queue = Some(store::queue_workers::get(change.tx, key)?);
    }
    match found.judge() {
        Judgement::Keep { .. } => {
            worker.expires = change.now.plus_millis(LIFE_MS);
            store::workers::update(change.tx, &worker)?;
        }
        Judgement::Stopped { reason } => {
            done.stopped += u64::from(gone(change, &mut worker, &reason)?);
        }
        Judgement::End { reason } => {
            done.ended += u64::from(told_to_go(change, &mut worker, &reason)?);
        }
        Judgement::EndAgain { .. } => done.ended += 1,
    }
    Ok(())
}
