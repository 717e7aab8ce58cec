//! Reconciles launches without an answer and machines without a row, after crashes.
//!
//! A machine carries the token of its launch. If the launch is known, its machine is adopted. A
//! machine with our tag and an unknown token was made by a launch that a power cut removed from the
//! database: it is ended after a grace period.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use cloud::{LaunchedMachine, Machines, Region};
use domain::id::{LaunchToken, PoolId, ProviderId};
use domain::launch::{Cause, Launch, LaunchState};
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use serde_json::json;
use store::StoreError;

use super::launch_deadlines::{
    GIVE_UP_AFTER_MS, SETTLED_AFTER_MS, UNKNOWN_MACHINE_GRACE_MS, WITHDRAW_AFTER_MS,
};
use super::launches::{insert_workers, unknown_worker};
use super::offering_news;
use super::pool_errors::report_launch_error;
use super::region_scan::{FirstSeen, RegionScan};
use super::termination::end_now;
use crate::Engine;
use crate::change::Change;

/// Launches per query.
const PAGE: u32 = 100;

/// The position of a launch in the list of launches without an answer.
type Position = (Timestamp, LaunchToken);

/// Launches of a provider without an answer, oldest first, and their regions, if known.
pub(super) async fn pending_launches(
    engine: &Engine,
    provider_id: &ProviderId,
    machines: &dyn Machines,
) -> store::Result<Vec<(Launch, Option<Region>)>> {
    let mut pending = Vec::new();
    let mut after: Option<Position> = None;
    loop {
        let id = provider_id.clone();
        let read = engine.store.read("launch_list_pending", move |tx| {
            let after = after.as_ref().map(|(since, token)| (*since, token));
            let launches = store::launches::list_pending(tx, &id, after, PAGE)?;
            let mut configs = BTreeMap::new();
            for launch in &launches {
                let (pool_id, id) = (&launch.pool_id, &launch.launch_config_id);
                if let Entry::Vacant(place) = configs.entry((pool_id.clone(), id.clone())) {
                    place.insert(store::launch_configs::get(tx, pool_id, id)?);
                }
            }
            Ok::<_, StoreError>((launches, configs))
        });
        let (launches, configs) = read.await?;
        let is_last = launches.len() < PAGE as usize;
        after = launches.last().map(position_of);
        for launch in launches {
            let key = (launch.pool_id.clone(), launch.launch_config_id.clone());
            let config = configs.get(&key).and_then(Option::as_ref);
            let group = config.and_then(|config| machines.group(config));
            let region = group.map(|group| machines.region_of(&group));
            pending.push((launch, region));
        }
        if is_last {
            return Ok(pending);
        }
    }
}

/// Settles launches whose outcome is final. Returns how many.
pub(super) async fn settle_launches(
    engine: &Arc<Engine>,
    provider_id: &ProviderId,
    machines: &dyn Machines,
    listed: &BTreeMap<Region, Timestamp>,
) -> store::Result<u64> {
    let now = engine.clock.now();
    let regions = machines.regions();
    let mut n_settled = 0;
    for (launch, region) in pending_launches(engine, provider_id, machines).await? {
        // If its region is unknown, all regions must have been listed.
        let mut regions = region
            .as_ref()
            .map_or(&*regions, std::slice::from_ref)
            .iter();
        let is_covered =
            regions.len() > 0 && regions.all(|region| is_complete(listed.get(region), &launch));
        if is_covered && was_asked_for(&launch) {
            settle_launch(engine, launch, now).await?;
            n_settled += 1;
        } else {
            n_settled += settle_by_age(engine, launch, now).await?;
        }
    }
    Ok(n_settled)
}

/// Settles launches by their age alone, for providers that are not scanned because they are no
/// longer configured or out of service. Returns how many.
pub async fn settle_old_launches(engine: &Arc<Engine>) -> store::Result<u64> {
    let now = engine.clock.now();
    let providers = engine.store.read("launch_unsettled_providers", |tx| {
        store::launches::unsettled_providers(tx)
    });
    let mut n_settled = 0;
    for provider_id in providers.await? {
        let mut after = None;
        loop {
            let page = page_of_pending(engine, &provider_id, after).await?;
            let is_last = page.len() < PAGE as usize;
            let is_old =
                |launch: &Launch| now.millis_since(launch.last_modified) > WITHDRAW_AFTER_MS;
            let n_old = page.iter().take_while(|launch| is_old(launch)).count();
            let stops = is_last || n_old < page.len();
            after = page.last().map(position_of);
            for launch in page.into_iter().take(n_old) {
                n_settled += settle_by_age(engine, launch, now).await?;
            }
            if stops {
                break;
            }
        }
    }
    Ok(n_settled)
}

/// Returns how many were settled: 1 or 0.
async fn settle_by_age(engine: &Arc<Engine>, launch: Launch, now: Timestamp) -> store::Result<u64> {
    if !was_asked_for(&launch) {
        let is_late = now.millis_since(launch.created) > WITHDRAW_AFTER_MS;
        if is_late {
            withdraw(engine, launch, now).await?;
        }
        return Ok(u64::from(is_late));
    }
    let is_old = now.millis_since(launch.last_modified) > GIVE_UP_AFTER_MS;
    if is_old {
        settle_launch(engine, launch, now).await?;
    }
    Ok(u64::from(is_old))
}

fn was_asked_for(launch: &Launch) -> bool {
    launch.asked.is_some() || launch.made > 0
}

/// Launches of a provider without an answer, oldest first.
async fn page_of_pending(
    engine: &Engine,
    provider_id: &ProviderId,
    after: Option<Position>,
) -> store::Result<Vec<Launch>> {
    let id = provider_id.clone();
    let read = engine.store.read("launch_list_pending", move |tx| {
        let after = after.as_ref().map(|(since, token)| (*since, token));
        store::launches::list_pending(tx, &id, after, PAGE)
    });
    read.await
}

fn position_of(launch: &Launch) -> Position {
    (launch.last_modified, launch.token.clone())
}

/// Whether a list of this time shows all machines of the launch.
fn is_complete(listed: Option<&Timestamp>, launch: &Launch) -> bool {
    listed.is_some_and(|at| at.millis_since(launch.last_modified) > SETTLED_AFTER_MS)
}

/// Adopts or ends machines with our tag that had no live row.
impl RegionScan {
    pub(super) async fn adopt_machines(
        &mut self,
        machines: &dyn Machines,
        unmatched: impl Iterator<Item = (LaunchToken, Option<PoolId>, LaunchedMachine)>,
    ) -> store::Result<()> {
        let mut unknown = FirstSeen::new();
        for (token, pool_id, machine) in unmatched {
            let name = (machine.group.clone(), machine.id.clone());
            if self.adopt(machines, token, &machine).await? {
                continue;
            }
            let since = self.unknown.get(&name).copied();
            self.end_unknown(machines, pool_id, machine, since).await;
            unknown.insert(name, since.unwrap_or_else(|| self.engine.clock.now()));
        }
        self.unknown = unknown;
        Ok(())
    }

    /// False: the launch of the machine is unknown.
    async fn adopt(
        &mut self,
        machines: &dyn Machines,
        token: LaunchToken,
        machine: &LaunchedMachine,
    ) -> store::Result<bool> {
        let now = self.engine.clock.now();
        let (id, made) = (self.provider_id.clone(), machine.clone());
        let found = self.engine.change("machine_adopt", now, move |change| {
            adopt_machine(change, &id, &token, &made)
        });
        match found.await? {
            Adoption::Adopted => self.scanned.adopted += 1,
            Adoption::HasRow => {}
            Adoption::OtherProvider(other) => {
                let (id, group) = (&self.provider_id, &machine.group);
                tracing::warn!(provider.id = %id, worker.group = %group, worker.id = %machine.id,
                    "machine {group}/{} of {id} has the tag of a launch of {other}; it is \
                     skipped", machine.id);
            }
            Adoption::UnknownLaunch => return Ok(false),
            // Its row is stopped, but the machine still exists.
            Adoption::Stopped(worker) => self.end(machines, &worker).await,
        }
        Ok(true)
    }

    /// Ends a machine with our tag and an unknown launch, after the grace period.
    async fn end_unknown(
        &mut self,
        machines: &dyn Machines,
        pool_id: Option<PoolId>,
        machine: LaunchedMachine,
        since: Option<Timestamp>,
    ) {
        let (id, now) = (self.provider_id.clone(), self.engine.clock.now());
        let Some(since) = since else {
            tracing::warn!(provider.id = %id, worker.group = %machine.group, worker.id = %machine.id,
                "machine {}/{} of {id} has our tag but an unknown launch; it will be ended if it \
                 still exists in {} minutes", machine.group, machine.id, UNKNOWN_MACHINE_GRACE_MS / 60_000);
            return;
        };
        if now.millis_since(since) < UNKNOWN_MACHINE_GRACE_MS {
            return;
        }
        let Some(pool_id) = pool_id else {
            tracing::warn!(provider.id = %id, worker.group = %machine.group, worker.id = %machine.id,
                "machine {}/{} of {id} has our tag, but its launch and its pool are unknown; it \
                 is skipped: end it by hand", machine.group, machine.id);
            return;
        };
        tracing::warn!(provider.id = %id, worker.pool = %pool_id, worker.id = %machine.id,
            "machine {}/{} of {id} is ended: its launch is unknown", machine.group, machine.id);
        let worker = unknown_worker(id, pool_id, machine, now);
        self.end(machines, &worker).await;
    }

    async fn end(&mut self, machines: &dyn Machines, worker: &Worker) {
        self.scanned.ended += 1;
        if let Err(problem) = end_now(machines, worker).await {
            self.scanned.problems += 1;
            tracing::warn!(provider.id = %self.provider_id, error = %problem,
                "cannot end {}, which has no live row; the next scan tries again: {problem}",
                worker.key);
        }
    }
}

enum Adoption {
    Adopted,
    HasRow,
    OtherProvider(ProviderId),
    UnknownLaunch,
    Stopped(Box<Worker>),
}

fn adopt_machine(
    change: &mut Change<'_, '_>,
    provider_id: &ProviderId,
    token: &LaunchToken,
    machine: &LaunchedMachine,
) -> store::Result<Adoption> {
    let Some(launch) = store::launches::get(change.tx, token)? else {
        return Ok(Adoption::UnknownLaunch);
    };
    if launch.provider_id != *provider_id {
        return Ok(Adoption::OtherProvider(launch.provider_id.clone()));
    }
    let key = machine.key(launch.pool_id.clone());
    if let Some(worker) = store::workers::get(change.tx, &key)? {
        return Ok(match worker.state {
            WorkerState::Stopped => Adoption::Stopped(Box::new(worker)),
            WorkerState::Requested | WorkerState::Running | WorkerState::Stopping => {
                Adoption::HasRow
            }
        });
    }
    insert_workers(change, &launch, std::slice::from_ref(machine))?;
    change.wake_pool(&launch.pool_id);
    if let Ok(launch) = launch.add_machine() {
        store::launches::update(change.tx, &launch)?;
    }
    Ok(Adoption::Adopted)
}

/// Withdraws a launch whose call was not started in time: its process crashed.
async fn withdraw(engine: &Arc<Engine>, launch: Launch, now: Timestamp) -> store::Result<()> {
    let written = engine.change("launch_withdraw", now, move |change| {
        change.wake_pool(&launch.pool_id);
        let Some(current) = store::launches::get(change.tx, &launch.token)? else {
            return Ok(());
        };
        if current.version != launch.version {
            return Ok(());
        }
        let problem = "the process that decided on it did not ask for it in time".to_owned();
        if let Ok(withdrawn) = current.withdraw(None, problem, change.now) {
            store::launches::update(change.tx, &withdrawn)?;
        }
        Ok::<_, StoreError>(())
    });
    written.await
}

/// Settles a launch whose answer will not come.
async fn settle_launch(engine: &Arc<Engine>, launch: Launch, now: Timestamp) -> store::Result<()> {
    let written = engine.change("launch_conclude", now, move |change| {
        change.wake_pool(&launch.pool_id);
        let Some(current) = store::launches::get(change.tx, &launch.token)? else {
            return Ok(());
        };
        let was_lost = matches!(current.state, LaunchState::Unknown { .. });
        let problem = "it was asked for, and no machine of it ever appeared";
        let Ok(settled) = current.give_up(problem.to_owned(), change.now) else {
            return Ok(());
        };
        if settled.state != LaunchState::Accepted {
            let extra = json!({"code": Cause::Lost.as_str(), "launch": settled.token.as_str()});
            let (title, text) = ("Instance Creation Error", problem.to_owned());
            report_launch_error(change, &settled, title, text, extra)?;
        }
        store::launches::update(change.tx, &settled)?;
        offering_news::note_answer(change, &settled, was_lost)
    });
    written.await
}
