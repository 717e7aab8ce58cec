//! Compares the machines of a provider with their rows, region by region.
//!
//! A region is listed page by page, and its rows are read. A machine in the list needs no further
//! call; the others are queried in batches (`region_look`). Regions are scanned concurrently,
//! without waiting for each other.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use cloud::{
    LaunchedMachine, MachineEnd, MachineMaker, Machines, OwnedMachine, Region, Sighting,
    list_machines,
};
use domain::id::{LaunchToken, PoolId, ProviderId, WorkerGroup, WorkerKey};
use domain::judge::{EXTENDED_LIFE_MS, Judgement, Work, end_news};
use domain::launch::Cause;
use domain::market::OfferingNews;
use domain::run_outcome::RunClaim;
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::{Worker, WorkerState};
use futures_util::StreamExt as _;
use serde_json::json;
use store::StoreError;

use super::first_claims::note_first_claims;
use super::pool_errors::{ErrorDetails, report_pool_error};
use super::reconcile;
use super::region_look::{PageEvidence, RegionLook, WorkerEvidence};
use super::region_scan::{FirstSeen, MachineName, RegionScan, ScanLimits, ScanResult, name};
use super::regions::RegionTasks;
use super::worker_end::{mark_stopped_with_news, request_stop_with_news};
use crate::Engine;
use crate::change::Change;

const PAGE: u32 = 1_000;
const MAX_CHANGES: usize = 100;
const MAX_CALLS: usize = 4;
const MAX_FAILURES: u64 = 2;
/// A scan waits at most this long for its regions. The next one does not wait for slow regions.
const MAX_REGION_WAIT: Duration = Duration::from_secs(30);
const MAX_REGIONS: usize = 1_000;
/// The precision of `lastChecked`.
const CHECKED_MS: i64 = 5 * MINUTE_MS;

impl Default for ScanLimits {
    fn default() -> Self {
        Self {
            page: PAGE,
            changes: MAX_CHANGES,
            calls: MAX_CALLS,
            failures: MAX_FAILURES,
            regions: MAX_REGIONS,
        }
    }
}

/// Scans the machines of one provider, scan by scan.
pub struct Scanner {
    engine: Arc<Engine>,
    provider_id: ProviderId,
    pub limits: ScanLimits,
    regions: RegionTasks<store::Result<RegionScan>>,
    /// The region that was started last: the next scan begins after it.
    last_started: Option<Region>,
    /// When each region was last listed.
    listed: BTreeMap<Region, Timestamp>,
    /// Machines with our tag and an unknown launch token.
    unknown: BTreeMap<Region, FirstSeen>,
    /// When leftovers of each region were last removed.
    cleaned: BTreeMap<Region, Timestamp>,
}

/// The machines of a region, as its list shows them.
#[derive(Default)]
struct RegionList {
    sightings: BTreeMap<MachineName, Sighting>,
    /// Machines with the token of their launch.
    machines: Vec<(LaunchToken, Option<PoolId>, LaunchedMachine)>,
}

impl RegionList {
    fn of(owned: Vec<OwnedMachine>) -> Self {
        let mut list = Self::default();
        for owned in owned {
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
        list
    }
}

impl ScanResult {
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
        Self {
            engine,
            provider_id,
            limits: ScanLimits::default(),
            regions: RegionTasks::default(),
            last_started: None,
            listed: BTreeMap::new(),
            unknown: BTreeMap::new(),
            cleaned: BTreeMap::new(),
        }
    }

    /// `None`: the provider makes no machines, or is out of service.
    pub async fn scan(&mut self) -> store::Result<Option<ScanResult>> {
        self.scan_for(MAX_REGION_WAIT).await
    }

    /// Like `scan`, with another limit for waiting.
    pub async fn scan_for(&mut self, max_wait: Duration) -> store::Result<Option<ScanResult>> {
        let engine = Arc::clone(&self.engine);
        let Some(machines) = engine.providers.machines(&self.provider_id) else {
            return Ok(None);
        };
        let regions = self.regions_to_scan(machines).await?;
        for (region, groups) in self.take_turn(regions) {
            self.start(region, groups);
        }
        let mut scanned = ScanResult::default();
        let mut failed = None;
        for (region, result) in self.regions.ended(max_wait).await {
            match result {
                Ok(Ok(done)) => {
                    scanned.add(done.scanned);
                    self.unknown.insert(region.clone(), done.unknown);
                    self.cleaned
                        .extend(done.cleaned.map(|at| (region.clone(), at)));
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
            reconcile::settle_launches(&engine, &self.provider_id, machines, &self.listed).await?;
        if let Some(problem) = failed {
            return Err(problem);
        }
        engine.availability.note_answer(engine.clock.now());
        Ok(Some(scanned))
    }

    /// Regions that may have machines, that have workers, or that have launches without an answer.
    async fn regions_to_scan(
        &self,
        machines: &dyn Machines,
    ) -> store::Result<BTreeMap<Region, Vec<WorkerGroup>>> {
        let mut regions: BTreeMap<Region, Vec<WorkerGroup>> = BTreeMap::new();
        for region in machines.regions() {
            regions.entry(region).or_default();
        }
        for (_, region) in
            reconcile::pending_launches(&self.engine, &self.provider_id, machines).await?
        {
            if let Some(region) = region {
                regions.entry(region).or_default();
            }
        }
        let mut after: Option<WorkerGroup> = None;
        loop {
            let (id, limit) = (self.provider_id.clone(), self.limits.page);
            let groups = self.engine.store.survey("scan_groups", move |tx| {
                store::workers::live_groups(tx, &id, after.as_ref(), limit)
            });
            let groups = groups.await?;
            let is_last = groups.len() < limit as usize;
            after = groups.last().cloned();
            for group in groups {
                let region = machines.region_of(&group);
                regions.entry(region).or_default().push(group);
            }
            if is_last {
                return Ok(regions);
            }
        }
    }

    /// The regions that this scan starts: those after the last started one, and then from the
    /// first again. A region whose scan still runs keeps no other from its turn.
    fn take_turn(
        &mut self,
        regions: BTreeMap<Region, Vec<WorkerGroup>>,
    ) -> Vec<(Region, Vec<WorkerGroup>)> {
        let mut turn: Vec<_> = regions.into_iter().collect();
        turn.retain(|(region, _)| !self.regions.is_busy(region));
        let last = self.last_started.take();
        let n_before = turn.partition_point(|(region, _)| Some(region) <= last.as_ref());
        turn.rotate_left(n_before);
        turn.truncate(self.limits.regions);
        self.last_started = turn.last().map(|(region, _)| region.clone()).or(last);
        turn
    }

    fn start(&mut self, region: Region, groups: Vec<WorkerGroup>) {
        let mut scan = RegionScan {
            engine: Arc::clone(&self.engine),
            provider_id: self.provider_id.clone(),
            limits: self.limits,
            unknown: self.unknown.remove(&region).unwrap_or_default(),
            region: region.clone(),
            groups,
            scanned: ScanResult::default(),
            began: self.engine.clock.now(),
            n_failed: 0,
            listed: None,
            cleaned: self.cleaned.get(&region).copied(),
        };
        self.regions.start(region, async move {
            let engine = Arc::clone(&scan.engine);
            if let Some(machines) = engine.providers.machines(&scan.provider_id) {
                scan.run(machines).await?;
            }
            Ok(scan)
        });
    }
}

impl RegionScan {
    async fn run(&mut self, machines: &dyn Machines) -> store::Result<()> {
        // The list is read before the rows: a machine that is made between the two has its row
        // then. The list says nothing about machines made after this moment.
        self.began = self.engine.clock.now();
        let list = self.list(machines).await;
        let (sightings, machines_of_launches) = match list {
            Some(list) => (list.sightings, Some(list.machines)),
            None => (BTreeMap::new(), None),
        };
        let adopts = machines_of_launches
            .as_ref()
            .is_some_and(|listed| !listed.is_empty());
        let mut known = BTreeSet::new();
        let look = Arc::new(RegionLook::new(self, sightings));
        let mut pages = Arc::clone(&look).pages(self.groups.clone());
        while let Some(page) = pages.next().await {
            let page = page?;
            if adopts {
                known.extend(page.workers.iter().map(name));
            }
            self.apply_page(page).await?;
        }
        drop(pages);
        self.scanned.problems += look.n_failed().saturating_sub(self.n_failed);
        if let Some(listed) = machines_of_launches {
            let unmatched = listed.into_iter().filter(|(_, _, machine)| {
                !known.contains(&(machine.group.clone(), machine.id.clone()))
            });
            self.adopt_machines(machines, unmatched).await?;
            self.listed = Some(self.began);
            self.remove_leftovers(machines).await;
        }
        Ok(())
    }

    /// `None`: the region cannot be listed now.
    async fn list(&mut self, machines: &dyn Machines) -> Option<RegionList> {
        let problem = match list_machines(machines, &self.region, MachineMaker::Us).await {
            Ok(owned) => return Some(RegionList::of(owned)),
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

    async fn apply_page(&mut self, page: PageEvidence) -> store::Result<()> {
        let alive = page.seen.values().filter(|seen| **seen == Sighting::Alive);
        self.scanned.seen += alive.count() as u64;
        let now = page.at;
        let stale = now.plus_millis(-CHECKED_MS);
        let is_stale = |worker: &Worker| worker.last_checked < stale;
        if let Some((first, last)) = page.ends()
            && page.workers.iter().any(is_stale)
        {
            let (id, first, last) = (self.provider_id.clone(), first.clone(), last.clone());
            let written = self.engine.store.write("scan_note_checked", move |tx| {
                store::workers::note_checked(tx, &id, &first, &last, now, stale)
            });
            written.await?;
        }
        self.note_first_claims(&page).await?;
        let affected = page.affected();
        for affected in affected.chunks(self.limits.changes.max(1)) {
            self.apply_evidence(affected.to_vec(), now).await?;
        }
        Ok(())
    }

    /// Records which workers an outside queue has seen. Our own queue notes it by itself.
    async fn note_first_claims(&self, page: &PageEvidence) -> store::Result<()> {
        if !self.engine.demand_source.is_outside() {
            return Ok(());
        }
        let claims: Vec<RunClaim> = page.claims().collect();
        let keys: Vec<WorkerKey> = claims.iter().map(|claim| claim.worker.clone()).collect();
        let read = self.engine.store.survey("scan_without_claim", move |tx| {
            store::workers::without_claim(tx, &keys)
        });
        let new: BTreeSet<WorkerKey> = read.await?.into_iter().collect();
        if new.is_empty() {
            return Ok(());
        }
        let claims: Vec<RunClaim> = claims
            .into_iter()
            .filter(|claim| new.contains(&claim.worker))
            .collect();
        let written = self
            .engine
            .change("scan_first_claims", page.at, move |change| {
                note_first_claims(change, claims.iter().cloned())
            });
        written.await.map(drop)
    }

    async fn apply_evidence(
        &mut self,
        affected: Vec<WorkerEvidence>,
        now: Timestamp,
    ) -> store::Result<()> {
        let (id, is_outside) = (
            self.provider_id.clone(),
            self.engine.demand_source.is_outside(),
        );
        let written = self.engine.change_alone("scan_apply", now, move |change| {
            let mut done = ScanResult::default();
            let mut reported = BTreeSet::new();
            for found in &affected {
                apply(change, found, is_outside, &mut done, &mut reported)?;
            }
            if done.ended > 0 {
                change.wake_ending(&id);
            }
            Ok::<_, StoreError>(done)
        });
        self.scanned.add(written.await?);
        Ok(())
    }
}

/// Applies a judgement, if the worker is unchanged. It is judged again, as it may have claimed
/// tasks.
fn apply(
    change: &mut Change<'_, '_>,
    found: &WorkerEvidence,
    is_outside: bool,
    done: &mut ScanResult,
    reported: &mut FailedStarts,
) -> store::Result<()> {
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
    let judgement = found.judge();
    let news = read_end_news(change, &found, &judgement, is_outside)?;
    match judgement {
        Judgement::Keep { .. } => {
            let kept = worker.keep_until(change.now.plus_millis(EXTENDED_LIFE_MS));
            store::workers::update(change.tx, &kept)?;
        }
        Judgement::Stopped { reason } => {
            if let Some(Sighting::Ended(MachineEnd { at: Some(at), .. })) = &found.seen {
                store::meters::note_ended(change.tx, key, *at)?;
            }
            done.stopped += u64::from(mark_stopped_with_news(change, &mut worker, &reason, news)?);
            report_failed_start(change, &found.worker, found.seen.as_ref(), reported)?;
        }
        Judgement::End { reason } => {
            done.ended += u64::from(request_stop_with_news(change, &mut worker, &reason, news)?);
        }
        Judgement::EndAgain { .. } => done.ended += 1,
    }
    Ok(())
}

/// The launches whose late failures were reported, with their causes.
type FailedStarts = BTreeSet<(Option<String>, Cause)>;

/// Reports why a machine could not be made after its launch was accepted; once for the machines of
/// a launch that end together.
fn report_failed_start(
    change: &mut Change<'_, '_>,
    worker: &Worker,
    seen: Option<&Sighting>,
    reported: &mut FailedStarts,
) -> store::Result<()> {
    let Some(Sighting::Ended(end)) = seen else {
        return Ok(());
    };
    let (Some(cause), WorkerState::Requested) = (end.cause, worker.state) else {
        return Ok(());
    };
    let key = &worker.key;
    if !reported.insert((worker.terms.launch_token.clone(), cause)) {
        return Ok(());
    }
    let details = ErrorDetails {
        kind: "creation-error",
        title: "Instance Creation Error",
        description: end.why.clone().unwrap_or_default(),
        extra: json!({"code": cause.as_str(), "workerGroup": key.group.as_str(),
            "workerId": key.id.as_str()}),
        launch_config_id: worker.launch_config_id.clone(),
    };
    report_pool_error(change, &key.pool_id, &worker.provider_id, details)
}

/// News about its offering from the end of the worker.
fn read_end_news(
    change: &mut Change<'_, '_>,
    found: &WorkerEvidence,
    judgement: &Judgement,
    is_outside: bool,
) -> store::Result<Option<OfferingNews>> {
    let ends = match judgement {
        Judgement::Stopped { .. } | Judgement::End { .. } => true,
        Judgement::Keep { .. } | Judgement::EndAgain { .. } => false,
    };
    let mut work = Work::Unknown;
    if ends && !is_outside && found.worker.state == WorkerState::Running {
        let key = &found.worker.key;
        let is_busy = !store::claimed_tasks::list_of_worker(change.tx, key, 1)?.is_empty();
        let queue = found.queue.as_ref().and_then(Option::as_ref);
        work = match is_busy {
            true => Work::Busy,
            false => Work::Idle(queue.and_then(|seen| seen.last_task_ended)),
        };
    }
    let (seen, attention) = (found.seen.as_ref(), &found.attention);
    Ok(end_news(&found.worker, judgement, seen, work, attention))
}
