//! Machines that a Taskcluster's worker manager made, and that are ours from now on.
//!
//! Their names and what only its database knows come from the caller; that they exist, and what
//! proves their identity, comes from the cloud. A machine becomes a row and is not touched: it
//! keeps its work, it counts as capacity from the next plan on, and it ends as ours do. So a
//! repetition changes nothing, and the other worker manager can go on with its own rows.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use cloud::{
    CloudError, MachineMaker, Machines, OwnedMachine, ProviderUnavailable, Region, Sighting,
    list_machines,
};
use domain::Version;
use domain::audit::AuditEntry;
use domain::event::WorkerChange;
use domain::id::{
    LaunchConfigId, LaunchToken, PoolId, ProviderId, WorkerGroup, WorkerId, WorkerKey,
};
use domain::launch_config::LaunchConfig;
use domain::lifecycle::{self, DEFAULT_REREGISTRATION_MS};
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{NewWorker, Terms, Worker, WorkerState};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Map, Value, json};

use super::created_workers::token_of;
use super::error::WorkerError;
use crate::Engine;
use crate::change::Change;

/// Machines that one call names at most.
pub const MAX_INHERITED: usize = 5_000;
/// Workers that one transaction inserts at most, so that other writes do not wait long.
const MAX_INSERTED: usize = 100;
/// Regions that are listed at the same time at most.
const MAX_LISTS: usize = 4;

/// The machines of one provider to take over.
#[derive(Clone, Debug)]
pub struct Inheritance {
    pub provider_id: ProviderId,
    pub workers: Vec<InheritedWorker>,
    /// The launch configs of these workers, for those that we do not have: they become archived.
    pub launch_configs: BTreeMap<(PoolId, LaunchConfigId), Map<String, Value>>,
    /// Only says what would be done.
    pub is_dry_run: bool,
}

/// A worker, as the other worker manager knows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InheritedWorker {
    pub key: WorkerKey,
    pub launch_config_id: Option<LaunchConfigId>,
    pub capacity: u32,
    pub created: Timestamp,
    /// Its state there; a stopped worker counts as stopping.
    pub state: WorkerState,
}

/// The result for a machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Inherited {
    /// It counts from now on (in a dry run: it would).
    TakenOver,
    /// It has a row.
    Known,
    /// The provider lists no such machine.
    NotFound,
    /// Its pool does not exist here.
    NoPool,
    /// It is not taken over, for this reason.
    Refused(String),
}

#[derive(Debug, Default)]
pub struct InheritanceResult {
    /// In the order of the request.
    pub workers: Vec<(WorkerKey, Inherited)>,
    /// Machines with the tags of a Taskcluster that were not named and have no row.
    pub unnamed: Vec<OwnedMachine>,
    /// Regions that could not be listed, and why.
    pub unlisted: Vec<(Region, CloudError)>,
}

/// The machines that the provider lists.
#[derive(Default)]
struct Listed {
    machines: HashMap<(WorkerGroup, WorkerId), OwnedMachine>,
    failed: Vec<(Region, CloudError)>,
}

/// A worker that was asked for, with its machine.
struct Found {
    worker: InheritedWorker,
    machine: OwnedMachine,
}

pub async fn take_over(
    engine: &Arc<Engine>,
    asked: Inheritance,
    audit: AuditEntry,
) -> Result<InheritanceResult, WorkerError> {
    let id = &asked.provider_id;
    engine.providers.get(id).map_err(|problem| match problem {
        ProviderUnavailable::Unknown => {
            WorkerError::NotFound(format!("Provider {id} does not exist"))
        }
        ProviderUnavailable::SetupFailed { .. } => WorkerError::ProviderSetupFailed,
    })?;
    let machines = engine.providers.machines(id).ok_or_else(|| {
        WorkerError::Refused(format!(
            "provider {id} makes no machines: declare its workers"
        ))
    })?;
    let mut listed = list_all(machines).await?;
    let mut results = Vec::with_capacity(asked.workers.len());
    let mut found = Vec::new();
    for worker in &asked.workers {
        let position = results.len();
        results.push((worker.key.clone(), Inherited::NotFound));
        match listed.take(machines, worker) {
            Ok(machine) => found.push((
                position,
                Found {
                    worker: worker.clone(),
                    machine,
                },
            )),
            Err(result) => results[position].1 = result,
        }
    }
    let asked = Arc::new(asked);
    while !found.is_empty() {
        let some: Vec<_> = found.drain(..found.len().min(MAX_INSERTED)).collect();
        let (positions, some): (Vec<usize>, Vec<Found>) = some.into_iter().unzip();
        let inserted = insert_some(engine, Arc::clone(&asked), some, audit.clone()).await?;
        for (position, result) in positions.into_iter().zip(inserted) {
            results[position].1 = result;
        }
    }
    let unnamed = without_row(engine, listed.machines.into_values().collect()).await?;
    Ok(InheritanceResult {
        workers: results,
        unnamed,
        unlisted: listed.failed,
    })
}

impl Listed {
    /// The machine of a worker, or why it is not taken over.
    fn take(
        &mut self,
        machines: &dyn Machines,
        worker: &InheritedWorker,
    ) -> Result<OwnedMachine, Inherited> {
        let key = &worker.key;
        let region = machines.region_of(&key.group);
        let failed = self.failed.iter().find(|(failed, _)| *failed == region);
        if let Some((_, error)) = failed {
            let text = format!("the machines of {region} cannot be listed: {error}");
            return Err(Inherited::Refused(text));
        }
        let name = (key.group.clone(), key.id.clone());
        let machine = self.machines.remove(&name).ok_or(Inherited::NotFound)?;
        match (&machine.pool_id, &machine.sighting) {
            (_, Some(Sighting::Ended(_) | Sighting::NotFound)) => Err(Inherited::NotFound),
            (Some(other), _) if *other != key.pool_id => Err(Inherited::Refused(format!(
                "the tags of its machine name pool {other}"
            ))),
            (Some(_) | None, _) => Ok(machine),
        }
    }
}

/// Lists all regions. Fails if none can be listed.
async fn list_all(machines: &dyn Machines) -> Result<Listed, WorkerError> {
    let mut lists = Vec::new();
    for region in machines.regions() {
        lists.push(async move {
            let list = list_machines(machines, &region, MachineMaker::Taskcluster).await;
            (region, list)
        });
    }
    let lists: Vec<_> = stream::iter(lists)
        .buffer_unordered(MAX_LISTS)
        .collect()
        .await;
    let mut listed = Listed::default();
    let mut n_listed = 0;
    for (region, list) in lists {
        match list {
            Ok(found) => {
                n_listed += 1;
                let by_name = found.into_iter().map(|it| {
                    let name = (it.machine.group.clone(), it.machine.id.clone());
                    (name, it)
                });
                listed.machines.extend(by_name);
            }
            Err(error) => listed.failed.push((region, error)),
        }
    }
    listed.failed.sort_by(|one, other| one.0.cmp(&other.0));
    match listed.failed.first() {
        Some((_, CloudError::Refused(why))) if n_listed == 0 => Err(WorkerError::Refused(format!(
            "the provider cannot do this: {why}"
        ))),
        Some((_, error)) if n_listed == 0 => Err(WorkerError::ProviderFailed(error.to_string())),
        Some(_) | None => Ok(listed),
    }
}

/// Inserts the rows of these machines. Returns their results, in their order.
async fn insert_some(
    engine: &Arc<Engine>,
    asked: Arc<Inheritance>,
    found: Vec<Found>,
    audit: AuditEntry,
) -> Result<Vec<Inherited>, WorkerError> {
    let (inner, now) = (Arc::clone(engine), audit.created);
    let written = engine.change("worker_take_over", now, move |change| {
        let keys: Vec<&WorkerKey> = found.iter().map(|it| &it.worker.key).collect();
        let known = store::workers::get_some(change.tx, keys.iter().copied())?;
        let mut known: HashMap<WorkerKey, Worker> =
            known.into_iter().map(|it| (it.key.clone(), it)).collect();
        let mut pools: BTreeMap<PoolId, Option<Pool>> = BTreeMap::new();
        for key in keys {
            if !pools.contains_key(&key.pool_id) {
                let pool = store::pools::get(change.tx, &key.pool_id)?;
                pools.insert(key.pool_id.clone(), pool);
            }
        }
        let mut results = Vec::with_capacity(found.len());
        for it in &found {
            let pool = pools.get(&it.worker.key.pool_id).and_then(Option::as_ref);
            results.push(match (known.remove(&it.worker.key), pool) {
                (Some(row), _) if asked.is_dry_run || !has_registered_there(&row, it) => {
                    Inherited::Known
                }
                (Some(row), _) => {
                    let lasts_ms = row.terms.reregistration_timeout;
                    let lasts_ms = lasts_ms.unwrap_or(DEFAULT_REREGISTRATION_MS);
                    let expires = now.plus_millis(lasts_ms);
                    if let Ok(row) = row.note_registered_there(expires, now) {
                        let row = change.update_worker(row)?;
                        change.announce_worker(&row, WorkerChange::Running)?;
                    }
                    Inherited::Known
                }
                (None, None) => Inherited::NoPool,
                (None, Some(pool)) if !pool.knows_provider(&asked.provider_id) => {
                    Inherited::Refused("its pool does not name this provider".to_owned())
                }
                (None, Some(_)) if asked.is_dry_run => Inherited::TakenOver,
                (None, Some(pool)) => {
                    let config = launch_config(change, &asked, &it.worker)?;
                    let place = (pool, config.as_ref());
                    let worker = worker_of(&inner, place, &asked.provider_id, it, now);
                    insert(change, &worker, &audit)?;
                    Inherited::TakenOver
                }
            });
        }
        Ok::<_, WorkerError>(results)
    });
    written.await
}

fn insert(
    change: &mut Change<'_, '_>,
    worker: &Worker,
    audit: &AuditEntry,
) -> Result<(), WorkerError> {
    store::workers::insert_new(change.tx, worker)?;
    match worker.state {
        WorkerState::Requested => change.announce_worker(worker, WorkerChange::Requested)?,
        WorkerState::Running => change.announce_worker(worker, WorkerChange::Running)?,
        WorkerState::Stopping | WorkerState::Stopped => change.wake_ending(&worker.provider_id),
    }
    change.wake_pool(&worker.key.pool_id);
    let audit = AuditEntry {
        entity_id: worker.key.to_string(),
        ..audit.clone()
    };
    Ok(store::audit::insert(change.tx, &audit)?)
}

/// Whether a machine that was taken over while it started has registered there since.
fn has_registered_there(row: &Worker, found: &Found) -> bool {
    row.terms.taken_over
        && row.state == WorkerState::Requested
        && found.worker.state == WorkerState::Running
}

/// The launch config of a worker. If its pool no longer has it, it becomes archived, for those who
/// wonder about the machine.
fn launch_config(
    change: &mut Change<'_, '_>,
    asked: &Inheritance,
    worker: &InheritedWorker,
) -> Result<Option<LaunchConfig>, WorkerError> {
    let pool_id = &worker.key.pool_id;
    let Some(id) = &worker.launch_config_id else {
        return Ok(None);
    };
    if let Some(config) = store::launch_configs::get(change.tx, pool_id, id)? {
        return Ok(Some(config));
    }
    let Some(configuration) = asked.launch_configs.get(&(pool_id.clone(), id.clone())) else {
        return Ok(None);
    };
    let archived = LaunchConfig {
        pool_id: pool_id.clone(),
        id: id.clone(),
        archived: true,
        position: 0,
        configuration: configuration.clone(),
        created: worker.created.min(change.now),
        last_modified: change.now,
        version: Version::FIRST,
    };
    store::launch_configs::insert(change.tx, &archived)?;
    Ok(Some(archived))
}

fn worker_of(
    engine: &Engine,
    (pool, config): (&Pool, Option<&LaunchConfig>),
    provider_id: &ProviderId,
    found: &Found,
    now: Timestamp,
) -> Worker {
    let Found { worker, machine } = found;
    let worker_config = config.and_then(|config| config.configuration.get("workerConfig"));
    let worker_config = worker_config.cloned().unwrap_or_else(|| json!({}));
    let token = token_of(engine, &worker.key);
    let new = NewWorker {
        key: worker.key.clone(),
        provider_id: provider_id.clone(),
        launch_config_id: worker.launch_config_id.clone(),
        capacity: worker.capacity,
        price: None,
        expires: now.plus_millis(Worker::DEFAULT_LIFE_MS),
        terms: at_take_over(pool, worker, worker_config, &token, now),
        provider_data: machine.machine.provider_data.clone(),
    };
    // A clock there may be ahead of ours.
    let state = worker.state.min(WorkerState::Stopping);
    new.take_over(state, worker.created.min(now), now)
}

/// A worker that has registered there has until its next renewal; another worker, as long as if it
/// were launched now.
fn at_take_over(
    pool: &Pool,
    worker: &InheritedWorker,
    worker_config: Value,
    token: &LaunchToken,
    now: Timestamp,
) -> Terms {
    let terms = lifecycle::at_launch(&pool.definition.config, now, worker_config, token);
    let renewal = terms.reregistration_timeout;
    let renewal = renewal.map(|lasts_ms| now.plus_millis(lasts_ms).as_millis());
    Terms {
        made_at: Some(worker.created.as_millis()),
        terminate_after: match worker.state {
            WorkerState::Requested => terms.terminate_after,
            WorkerState::Running | WorkerState::Stopping | WorkerState::Stopped => renewal,
        },
        ..terms
    }
}

/// Those of these machines that have no row in the pool that their tags name.
async fn without_row(
    engine: &Engine,
    machines: Vec<OwnedMachine>,
) -> Result<Vec<OwnedMachine>, WorkerError> {
    let mut left = Vec::new();
    let mut machines = machines.into_iter();
    loop {
        let some: Vec<OwnedMachine> = machines.by_ref().take(MAX_INSERTED).collect();
        if some.is_empty() {
            left.sort_by(|one: &OwnedMachine, other| {
                let name = |it: &OwnedMachine| (it.machine.group.clone(), it.machine.id.clone());
                name(one).cmp(&name(other))
            });
            return Ok(left);
        }
        let read = engine.store.read("worker_without_row", move |tx| {
            let keys: Vec<WorkerKey> = some.iter().filter_map(key_of).collect();
            let known = store::workers::get_some(tx, &keys)?;
            let known: BTreeSet<WorkerKey> = known.into_iter().map(|it| it.key.clone()).collect();
            let is_new = |it: &OwnedMachine| key_of(it).is_none_or(|key| !known.contains(&key));
            Ok::<_, WorkerError>(some.into_iter().filter(is_new).collect::<Vec<_>>())
        });
        left.extend(read.await?);
    }
}

fn key_of(machine: &OwnedMachine) -> Option<WorkerKey> {
    let pool_id = machine.pool_id.clone()?;
    Some(machine.machine.key(pool_id))
}
