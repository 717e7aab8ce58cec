//! Sets and removes overrides.

use std::sync::Arc;

use domain::audit::AuditEntry;
use domain::event::PauseChange;
use domain::id::{LaunchConfigId, OverrideId};
use domain::overrides::{Override, Target};
use store::{StoreError, Tx};

use crate::Engine;
use crate::change::Change;
use crate::fleet;
use crate::pools::PoolError;

/// At most this many overrides are in force: every plan evaluates each of them.
const MAX_IN_FORCE: usize = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    #[error("Override does not exist")]
    NotFound,
    #[error("{0}")]
    NoTarget(String),
    #[error("Launch config {0} is archived: nothing is launched from it, so it needs no override")]
    Archived(LaunchConfigId),
    #[error("Override {0} has another target: remove it first, or choose another name")]
    OtherTarget(OverrideId),
    #[error("{MAX_IN_FORCE} overrides are in force: remove some, or pause a provider or region")]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Creates or changes the override of this name. A repeated request changes nothing.
pub async fn set(
    engine: &Arc<Engine>,
    asked: Override,
    audit: AuditEntry,
) -> Result<Override, OverrideError> {
    let (inner, now) = (Arc::clone(engine), audit.created);
    let written = engine.change("override_set", now, move |change| {
        check_target(&inner, change.tx, &asked.target)?;
        fleet::wake_target(change, &asked);
        let known = match store::overrides::get(change.tx, &asked.id)? {
            Some(known) if !known.is_in_force(now) => {
                delete_ended(change, known)?;
                None
            }
            known => known,
        };
        let tx = &mut *change.tx;
        let mut given = asked.clone();
        match &known {
            Some(known) if known.has_same_effect(&asked) => return Ok(known.clone()),
            Some(known) if known.target != asked.target => {
                return Err(OverrideError::OtherTarget(known.id.clone()));
            }
            Some(known) => {
                (given.created, given.version) = (known.created, known.version);
                given.version = store::overrides::update(tx, &given)?;
            }
            None => {
                if store::overrides::list_in_force(tx, now)?.len() >= MAX_IN_FORCE {
                    return Err(OverrideError::TooMany);
                }
                if !store::overrides::insert(tx, &given)? {
                    return Err(tx.lost_race().into());
                }
            }
        }
        if !given.is_pause()
            && let Some(known) = &known
        {
            fleet::announce_pause(change, known, PauseChange::Resumed)?;
        }
        fleet::announce_pause(change, &given, PauseChange::Paused)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(given)
    });
    written.await
}

/// Deletes an override that is no longer in force, so that its name is free.
fn delete_ended(change: &mut Change<'_, '_>, mut known: Override) -> store::Result<()> {
    if known.ended.is_none() {
        fleet::end_override(change, &mut known)?;
    }
    store::overrides::delete(change.tx, &known)
}

/// Removes an override, if its target is still the one for which the caller was authorised.
pub async fn remove(
    engine: &Arc<Engine>,
    seen: Override,
    audit: AuditEntry,
) -> Result<(), OverrideError> {
    let written = engine.change("override_remove", audit.created, move |change| {
        let known = store::overrides::get(change.tx, &seen.id)?;
        let known = known.filter(|known| known.target == seen.target);
        let Some(known) = known else {
            return Err(OverrideError::NotFound);
        };
        store::overrides::delete(change.tx, &known)?;
        if known.ended.is_none() {
            fleet::announce_pause(change, &known, PauseChange::Resumed)?;
        }
        fleet::wake_target(change, &known);
        store::audit::insert(change.tx, &audit)?;
        Ok(())
    });
    written.await
}

fn check_target(engine: &Engine, tx: &mut Tx<'_>, target: &Target) -> Result<(), OverrideError> {
    match target {
        Target::Pool(id) => {
            store::pools::get(tx, id)?.ok_or_else(no_such_pool)?;
        }
        Target::LaunchConfig(pool_id, id) => {
            store::pools::get(tx, pool_id)?.ok_or_else(no_such_pool)?;
            let text = format!("Launch config {id} does not exist in worker pool {pool_id}");
            let config = store::launch_configs::get(tx, pool_id, id)?
                .ok_or_else(|| OverrideError::NoTarget(text))?;
            if config.archived {
                return Err(OverrideError::Archived(config.id));
            }
        }
        Target::Configuration(id) => {
            let text = format!("Worker configuration {id} does not exist");
            store::configurations::get(tx, id)?.ok_or_else(|| OverrideError::NoTarget(text))?;
        }
        Target::Provider(id) => {
            let mut known = engine.providers.listed();
            if !known.any(|(known, _)| known == id) {
                return Err(OverrideError::NoTarget(format!(
                    "Provider {id} does not exist"
                )));
            }
        }
        Target::Region(_) => {}
    }
    Ok(())
}

fn no_such_pool() -> OverrideError {
    OverrideError::NoTarget(PoolError::NoSuchPool.to_string())
}
