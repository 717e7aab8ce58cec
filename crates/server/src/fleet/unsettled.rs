//! Launches without an answer, and machines without a row: what crashes and lost answers leave behind.
//!
//! A machine carries the token of its launch. One whose launch we know is adopted; one that carries our mark
//! and a token that we do not know is left alone, and told of.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use cloud::{CloudError, Launched, Listing, Machines, Owned};
use domain::id::{LaunchToken, PoolId, ProviderId, WorkerKey};
use domain::launch::{Cause, Launch, LaunchState};
use domain::time::Timestamp;
use domain::worker::WorkerState;
use store::{StoreError, Tx};

use super::ending::end_now;
use super::launching::{Adopted, adopt};
use super::problems::{Problem, report};
use super::scan::{Known, Scanned};
use super::timing::{GIVE_UP_MS, SETTLE_MS, WITHDRAW_MS};
use crate::app::App;

/// Listing everything takes no longer than this.
const MAX_LISTING: Duration = Duration::from_secs(120);
/// Launches that are looked at in one scan.
const MAX_LAUNCHES: u32 = 2_000;
/// Machines without a row that are looked at in one scan.
const MAX_STRANGERS: usize = 2_000;

pub(super) async fn owned(machines: &dyn Machines) -> Result<Listing, CloudError> {
    let late = || CloudError::Unavailable(format!("no list within {} s", MAX_LISTING.as_secs()));
    let listing = tokio::time::timeout(MAX_LISTING, machines.owned()).await;
    listing.unwrap_or_else(|_| Err(late()))
}

pub(super) async fn settle(
    app: &Arc<App>,
    provider_id: &ProviderId,
    machines: &dyn Machines,
    (listed_at, owned): (Timestamp, Result<Listing, CloudError>),
    known: &Known,
    scanned: &mut Scanned,
) -> Result<(), StoreError> {
    let now = app.clock.now();
    let mut by_token: BTreeMap<LaunchToken, Vec<Launched>> = BTreeMap::new();
    let mut strangers = Vec::new();
    let listing = match owned {
        Ok(mut listing) => {
            tell_missing(provider_id, &listing, scanned);
            for Owned { token, machine } in std::mem::take(&mut listing.machines) {
                let Some(token) = token else { continue };
                let has_row = known.contains(&(machine.group.clone(), machine.id.clone()));
                if !has_row && strangers.len() < MAX_STRANGERS {
                    strangers.push((token.clone(), machine.clone()));
                }
                by_token.entry(token).or_default().push(machine);
            }
            Some(listing)
        }
        Err(problem) => {
            scanned.problems += 1;
            tracing::warn!(provider.id = %provider_id, error = %problem,
                "cannot list the machines of {provider_id}; the next scan tries again: {problem}");
            None
        }
    };
    for (token, machine) in strangers {
        stranger(app, provider_id, machines, token, machine, now, scanned).await?;
    }
    let id = provider_id.clone();
    let pending = app.store.read("launch_list_pending", move |tx| {
        store::launch_list_pending(tx, &id, MAX_LAUNCHES)
    });
    for launch in pending.await? {
        if launch.asked.is_none() && launch.made == 0 {
            if now.millis_since(launch.created) > WITHDRAW_MS {
                withdraw(app, launch, now).await?;
                scanned.settled += 1;
            }
            continue;
        }
        let made = by_token.get(&launch.token).map_or(0, Vec::len);
        let known_by_now = listed_at.millis_since(launch.last_modified) > SETTLE_MS
            && match &listing {
                Some(listing) => is_covered(app, machines, listing, &launch).await?,
                None => false,
            };
        if known_by_now || now.millis_since(launch.last_modified) > GIVE_UP_MS {
            conclude(app, launch, made, now).await?;
            scanned.settled += 1;
        }
    }
    Ok(())
}

fn tell_missing(provider_id: &ProviderId, listing: &Listing, scanned: &mut Scanned) {
    if listing.missing.is_empty() {
        return;
    }
    scanned.problems += 1;
    let missing = listing.missing.iter();
    let missing: Vec<String> = missing
        .map(|(group, problem)| format!("{group} ({problem})"))
        .collect();
    let missing = missing.join(", ");
    tracing::warn!(provider.id = %provider_id, error = %missing,
        "cannot list the machines of {provider_id} in {missing}; launches there wait for the next scan, \
         the others go on");
}

/// Whether the machines of this launch would have been listed, were there any.
async fn is_covered(
    app: &App,
    machines: &dyn Machines,
    listing: &Listing,
    launch: &Launch,
) -> Result<bool, StoreError> {
    if listing.missing.is_empty() {
        return Ok(true);
    }
    let (pool_id, id) = (launch.pool_id.clone(), launch.launch_config_id.clone());
    let read = app.store.read("launch_config_get", move |tx| {
        store::launch_config_get(tx, &pool_id, &id)
    });
    let group = read.await?.and_then(|config| machines.group(&config));
    Ok(listing.covers(group.as_ref()))
}

/// A machine of ours that had no live row when the rows were read.
async fn stranger(
    app: &Arc<App>,
    provider_id: &ProviderId,
    machines: &dyn Machines,
    token: LaunchToken,
    machine: Launched,
    now: Timestamp,
    scanned: &mut Scanned,
) -> Result<(), StoreError> {
    let (inner, id, named) = (Arc::clone(app), provider_id.clone(), machine.clone());
    let found = app.write("machine_adopt", move |tx| {
        take_in(&inner, tx, &id, &token, &machine, now)
    });
    match found.await? {
        Taken::Adopted(pool_id, adopted) => {
            scanned.adopted += 1;
            app.wake.pool(&pool_id);
            if adopted == Adopted::ToldToGo {
                app.wake.ending(provider_id).notify_one();
            }
        }
        Taken::HasRow => {}
        Taken::NotOurs => {
            tracing::warn!(provider.id = %provider_id, worker.group = %named.group,
                worker.id = %named.id,
                "machine {}/{} of {provider_id} carries our mark, but no launch of ours made it; it is left \
                 alone: end it by hand if nobody else does", named.group, named.id);
        }
        Taken::Left(worker) => {
            // Its row says that it is gone, and it is not.
            scanned.ended += 1;
            if let Err(problem) = end_now(machines, &worker).await {
                scanned.problems += 1;
                tracing::warn!(provider.id = %provider_id, error = %problem,
                    "cannot end {}, which should be gone: {problem}", worker.key);
            }
        }
    }
    Ok(())
}

enum Taken {
    Adopted(PoolId, Adopted),
    HasRow,
    NotOurs,
    Left(Box<domain::worker::Worker>),
}

fn take_in(
    app: &App,
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    token: &LaunchToken,
    machine: &Launched,
    now: Timestamp,
) -> Result<Taken, StoreError> {
    let Some(mut launch) = store::launch_get(tx, token)? else {
        return Ok(Taken::NotOurs);
    };
    if launch.provider_id != *provider_id {
        return Ok(Taken::NotOurs);
    }
    let key = WorkerKey {
        pool_id: launch.pool_id.clone(),
        group: machine.group.clone(),
        id: machine.id.clone(),
    };
    if let Some(worker) = store::worker_get(tx, &key)? {
        return Ok(match worker.state {
            WorkerState::Stopped => Taken::Left(Box::new(worker)),
            WorkerState::Requested | WorkerState::Running | WorkerState::Stopping => Taken::HasRow,
        });
    }
    let adopted = adopt(app, tx, &launch, machine, now)?;
    if launch.state.is_pending() {
        // It no longer counts as still to come.
        launch.made = launch.machines.min(launch.made + 1);
        store::launch_update(tx, &launch)?;
    }
    Ok(Taken::Adopted(launch.pool_id, adopted))
}

/// A launch that nobody has begun to ask for in time: the process that decided on it died.
async fn withdraw(app: &Arc<App>, launch: Launch, now: Timestamp) -> Result<(), StoreError> {
    let pool_id = launch.pool_id.clone();
    let written = app.write("launch_withdraw", move |tx| {
        let Some(mut current) = store::launch_get(tx, &launch.token)? else {
            return Ok(());
        };
        if current.version != launch.version {
            return Ok(());
        }
        let problem = "the process that decided on it did not ask for it in time".to_owned();
        current.state = LaunchState::Withdrawn { problem };
        current.last_modified = now;
        store::launch_update(tx, &current)?;
        Ok::<_, StoreError>(())
    });
    written.await?;
    app.wake.pool(&pool_id);
    Ok(())
}

/// The outcome of a launch that nobody will tell us any more.
async fn conclude(
    app: &Arc<App>,
    launch: Launch,
    made: usize,
    now: Timestamp,
) -> Result<(), StoreError> {
    let (inner, pool_id) = (Arc::clone(app), launch.pool_id.clone());
    let written = app.write("launch_conclude", move |tx| {
        let Some(mut current) = store::launch_get(tx, &launch.token)? else {
            return Ok(());
        };
        if current.version != launch.version && !current.state.is_pending() {
            return Ok(());
        }
        let made = u32::try_from(made).unwrap_or(u32::MAX).max(current.made);
        current.last_modified = now;
        current.made = made;
        if made > 0 {
            current.state = LaunchState::Accepted;
        } else {
            let problem = "it was asked for, and no machine of it ever appeared".to_owned();
            let told = lost(&current, &problem);
            current.state = LaunchState::Refused {
                cause: Cause::Lost,
                problem,
            };
            report(
                &inner,
                tx,
                &current.pool_id,
                &current.provider_id,
                &told,
                now,
            )?;
        }
        store::launch_update(tx, &current)?;
        Ok::<_, StoreError>(())
    });
    written.await?;
    app.wake.pool(&pool_id);
    Ok(())
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
