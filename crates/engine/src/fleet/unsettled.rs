//! Launches without an answer, and machines without a row: what crashes and lost answers leave behind.
//!
//! A machine carries the token of its launch. One whose launch we know is adopted. One that carries our mark and a token
//! that we do not know was made by a launch that a power cut took from the database: it is ended, after a grace.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use cloud::{LaunchedMachine, Machines, Region};
use domain::id::{LaunchToken, PoolId, ProviderId, WorkerKey};
use domain::launch::{Cause, Launch, LaunchState};
use domain::time::{HOUR_MS, Timestamp};
use domain::worker::{Worker, WorkerState};
use store::StoreError;

use super::ending::end_now;
use super::launching::{adopt, machine_of_nobody};
use super::problems::{Problem, report};
use super::scanned::{Name, Scanned};
use super::timing::{GIVE_UP_MS, SETTLE_MS, WITHDRAW_MS};
use crate::Engine;
use crate::change::Change;

/// Launches that are read at a time.
const PAGE: u32 = 100;
/// A machine whose launch we do not know is ended when it was first seen this long ago, and again since.
const UNKNOWN_GRACE_MS: i64 = HOUR_MS;

/// A launch's place in the list of those without an answer.
type Place = (Timestamp, LaunchToken);

/// Machines whose launch we do not know, and when they were seen first.
pub(super) type FirstSeen = BTreeMap<Name, Timestamp>;

/// Launches of a provider without an answer, longest waiting first, and where each went, if that is known.
pub(super) async fn pending(
    engine: &Engine,
    provider_id: &ProviderId,
    machines: &dyn Machines,
) -> Result<Vec<(Launch, Option<Region>)>, StoreError> {
    let mut pending = Vec::new();
    let mut after: Option<Place> = None;
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
        after = launches.last().map(place_of);
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

/// Concludes launches of which more will not be heard. Returns how many.
pub(super) async fn settle(
    engine: &Arc<Engine>,
    provider_id: &ProviderId,
    machines: &dyn Machines,
    listed: &BTreeMap<Region, Timestamp>,
) -> Result<u64, StoreError> {
    let now = engine.clock.now();
    let regions = machines.regions();
    let mut n_settled = 0;
    for (launch, region) in pending(engine, provider_id, machines).await? {
        let is_covered = match &region {
            Some(region) => shows(listed.get(region), &launch),
            // It may be anywhere.
            None => {
                !regions.is_empty()
                    && regions
                        .iter()
                        .all(|region| shows(listed.get(region), &launch))
            }
        };
        if is_covered && was_asked_for(&launch) {
            conclude(engine, launch, now).await?;
            n_settled += 1;
        } else {
            n_settled += settle_by_age(engine, launch, now).await?;
        }
    }
    Ok(n_settled)
}

/// Concludes launches by their age alone. No scan does so for a provider that is not configured any more, or out of
/// service. Returns how many.
pub async fn settle_old(engine: &Arc<Engine>) -> Result<u64, StoreError> {
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
            let is_old = |launch: &Launch| now.millis_since(launch.last_modified) > WITHDRAW_MS;
            let n_old = page.iter().take_while(|launch| is_old(launch)).count();
            let stops = is_last || n_old < page.len();
            after = page.last().map(place_of);
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

/// How many were: this one, or none.
async fn settle_by_age(
    engine: &Arc<Engine>,
    launch: Launch,
    now: Timestamp,
) -> Result<u64, StoreError> {
    if !was_asked_for(&launch) {
        let is_late = now.millis_since(launch.created) > WITHDRAW_MS;
        if is_late {
            withdraw(engine, launch, now).await?;
        }
        return Ok(u64::from(is_late));
    }
    let is_old = now.millis_since(launch.last_modified) > GIVE_UP_MS;
    if is_old {
        conclude(engine, launch, now).await?;
    }
    Ok(u64::from(is_old))
}

fn was_asked_for(launch: &Launch) -> bool {
    launch.asked.is_some() || launch.made > 0
}

/// Launches of a provider without an answer, longest waiting first.
async fn page_of_pending(
    engine: &Engine,
    provider_id: &ProviderId,
    after: Option<Place>,
) -> Result<Vec<Launch>, StoreError> {
    let id = provider_id.clone();
    let read = engine.store.read("launch_list_pending", move |tx| {
        let after = after.as_ref().map(|(since, token)| (*since, token));
        store::launches::list_pending(tx, &id, after, PAGE)
    });
    read.await
}

fn place_of(launch: &Launch) -> Place {
    (launch.last_modified, launch.token.clone())
}

/// Whether the machines of this launch would have been listed there, and adopted, were there any.
fn shows(listed: Option<&Timestamp>, launch: &Launch) -> bool {
    listed.is_some_and(|at| at.millis_since(launch.last_modified) > SETTLE_MS)
}

/// Gives machines of ours that had no live row when the rows were read what they need.
pub(super) struct Adopting<'a> {
    pub(super) engine: &'a Arc<Engine>,
    pub(super) provider_id: &'a ProviderId,
    pub(super) machines: &'a dyn Machines,
    pub(super) unknown: &'a mut FirstSeen,
    pub(super) scanned: &'a mut Scanned,
}

impl Adopting<'_> {
    pub(super) async fn all(
        mut self,
        strangers: Vec<(LaunchToken, Option<PoolId>, LaunchedMachine)>,
    ) -> Result<(), StoreError> {
        let mut unknown = FirstSeen::new();
        for (token, pool_id, machine) in strangers {
            let name = (machine.group.clone(), machine.id.clone());
            if self.one(token, &machine).await? == Known::Yes {
                continue;
            }
            let since = self.unknown.get(&name).copied();
            self.of_nobody(pool_id, machine, since).await;
            unknown.insert(name, since.unwrap_or_else(|| self.engine.clock.now()));
        }
        *self.unknown = unknown;
        Ok(())
    }

    async fn one(
        &mut self,
        token: LaunchToken,
        machine: &LaunchedMachine,
    ) -> Result<Known, StoreError> {
        let now = self.engine.clock.now();
        let (id, made) = (self.provider_id.clone(), machine.clone());
        let found = self.engine.change("machine_adopt", now, move |change| {
            take_in(change, &id, &token, &made)
        });
        match found.await? {
            Taken::Adopted => self.scanned.adopted += 1,
            Taken::HasRow => {}
            Taken::OfAnother(other) => {
                let (id, group) = (self.provider_id, &machine.group);
                tracing::warn!(provider.id = %id, worker.group = %group, worker.id = %machine.id,
                    "machine {group}/{} of {id} carries the mark of a launch of {other}; it is left \
                     alone", machine.id);
            }
            Taken::Unknown => return Ok(Known::No),
            // Its row says that it is gone, and it is not.
            Taken::Left(worker) => self.end(&worker).await,
        }
        Ok(Known::Yes)
    }

    /// A machine with our mark whose launch we do not know.
    async fn of_nobody(
        &mut self,
        pool_id: Option<PoolId>,
        machine: LaunchedMachine,
        since: Option<Timestamp>,
    ) {
        let (id, now) = (self.provider_id, self.engine.clock.now());
        let Some(since) = since else {
            tracing::warn!(provider.id = %id, worker.group = %machine.group, worker.id = %machine.id,
                "machine {}/{} of {id} carries our mark, but no launch of ours made it; it is ended \
                 if it is there in {} minutes", machine.group, machine.id, UNKNOWN_GRACE_MS / 60_000);
            return;
        };
        if now.millis_since(since) < UNKNOWN_GRACE_MS {
            return;
        }
        let Some(pool_id) = pool_id else {
            tracing::warn!(provider.id = %id, worker.group = %machine.group, worker.id = %machine.id,
                "machine {}/{} of {id} carries our mark, but neither its launch nor its pool is \
                 known; it is left alone: end it by hand", machine.group, machine.id);
            return;
        };
        tracing::warn!(provider.id = %id, worker.pool = %pool_id, worker.id = %machine.id,
            "machine {}/{} of {id} is ended: no launch of ours made it", machine.group, machine.id);
        self.end(&machine_of_nobody(id, pool_id, machine, now))
            .await;
    }

    async fn end(&mut self, worker: &Worker) {
        self.scanned.ended += 1;
        if let Err(problem) = end_now(self.machines, worker).await {
            self.scanned.problems += 1;
            tracing::warn!(provider.id = %self.provider_id, error = %problem,
                "cannot end {}, which has no live row; the next scan tries again: {problem}",
                worker.key);
        }
    }
}

/// Whether we know a machine's launch.
#[derive(PartialEq, Eq)]
enum Known {
    Yes,
    No,
}

enum Taken {
    Adopted,
    HasRow,
    OfAnother(ProviderId),
    Unknown,
    Left(Box<Worker>),
}

fn take_in(
    change: &mut Change<'_, '_>,
    provider_id: &ProviderId,
    token: &LaunchToken,
    machine: &LaunchedMachine,
) -> Result<Taken, StoreError> {
    let Some(mut launch) = store::launches::get(change.tx, token)? else {
        return Ok(Taken::Unknown);
    };
    if launch.provider_id != *provider_id {
        return Ok(Taken::OfAnother(launch.provider_id));
    }
    let key = WorkerKey {
        pool_id: launch.pool_id.clone(),
        group: machine.group.clone(),
        id: machine.id.clone(),
    };
    if let Some(worker) = store::workers::get(change.tx, &key)? {
        return Ok(match worker.state {
            WorkerState::Stopped => Taken::Left(Box::new(worker)),
            WorkerState::Requested | WorkerState::Running | WorkerState::Stopping => Taken::HasRow,
        });
    }
    adopt(change, &launch, machine)?;
    if launch.state.is_pending() {
        // It no longer counts as still to come.
        launch.made = launch.machines.min(launch.made + 1);
        store::launches::update(change.tx, &launch)?;
    }
    change.wake_pool(&launch.pool_id);
    Ok(Taken::Adopted)
}

/// A launch that nobody has begun to ask for in time: the process that decided on it died.
async fn withdraw(engine: &Arc<Engine>, launch: Launch, now: Timestamp) -> Result<(), StoreError> {
    let written = engine.change("launch_withdraw", now, move |change| {
        change.wake_pool(&launch.pool_id);
        let Some(mut current) = store::launches::get(change.tx, &launch.token)? else {
            return Ok(());
        };
        if current.version != launch.version {
            return Ok(());
        }
        let problem = "the process that decided on it did not ask for it in time".to_owned();
        current.state = LaunchState::Withdrawn { problem };
        current.last_modified = change.now;
        store::launches::update(change.tx, &current)?;
        Ok::<_, StoreError>(())
    });
    written.await
}

/// The outcome of a launch that nobody will tell us any more.
async fn conclude(engine: &Arc<Engine>, launch: Launch, now: Timestamp) -> Result<(), StoreError> {
    let written = engine.change("launch_conclude", now, move |change| {
        change.wake_pool(&launch.pool_id);
        let Some(mut current) = store::launches::get(change.tx, &launch.token)? else {
            return Ok(());
        };
        if current.version != launch.version && !current.state.is_pending() {
            return Ok(());
        }
        current.last_modified = change.now;
        if current.made > 0 {
            current.state = LaunchState::Accepted;
        } else {
            let problem = "it was asked for, and no machine of it ever appeared".to_owned();
            let told = lost(&current, &problem);
            current.state = LaunchState::Refused {
                cause: Cause::Lost,
                problem,
            };
            report(change, &current.pool_id, &current.provider_id, &told)?;
        }
        store::launches::update(change.tx, &current)?;
        Ok::<_, StoreError>(())
    });
    written.await
}

fn lost(launch: &Launch, problem: &str) -> Problem {
    let mut extra = serde_json::Map::new();
    extra.insert("code".to_owned(), Cause::Lost.as_str().into());
    extra.insert("launch".to_owned(), launch.token.as_str().into());
    Problem {
        kind: "creation-error",
        title: "Instance Creation Error",
        description: problem.to_owned(),
        extra,
        launch_config_id: Some(launch.launch_config_id.clone()),
        worker: None,
    }
}
