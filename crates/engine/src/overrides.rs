//! Overrides: set and taken back by people.

use std::sync::Arc;

use domain::audit::AuditEntry;
use domain::event::PauseChange;
use domain::id::OverrideId;
use domain::overrides::{Override, Target};
use store::{StoreError, Tx};

use crate::Engine;
use crate::change::Change;
use crate::fleet;
use crate::pools::PoolError;

/// So many overrides may be in force: each is looked at in every decision.
const MAX_IN_FORCE: usize = 1_000;

/// Why an override is not set or taken back.
#[derive(Debug, thiserror::Error)]
pub enum OverrideError {
    #[error("Override does not exist")]
    NotThere,
    #[error("{0}")]
    NoTarget(String),
    #[error("Override {0} is about something else: remove it first, or choose another name")]
    OtherTarget(OverrideId),
    #[error(
        "{MAX_IN_FORCE} overrides are in force: remove some, or pause a provider or region as a whole"
    )]
    TooMany,
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Gives an override, or changes the one of its name. The same again is a repeat of a request whose answer was lost.
pub async fn set(
    engine: &Arc<Engine>,
    asked: Override,
    audit: AuditEntry,
) -> Result<Override, OverrideError> {
    let (inner, now) = (Arc::clone(engine), audit.created);
    let written = engine.change("override_set", now, move |change| {
        target_exists(&inner, change.tx, &asked.target)?;
        fleet::wake_target(change, &asked);
        let known = match store::overrides::get(change.tx, &asked.id)? {
            Some(known) if !known.is_in_force(now) => {
                forget(change, known)?;
                None
            }
            known => known,
        };
        let tx = &mut *change.tx;
        let mut given = asked.clone();
        match &known {
            Some(known) if known.says_the_same(&asked) => return Ok(known.clone()),
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
            fleet::tell_pause(change, known, PauseChange::Resumed)?;
        }
        fleet::tell_pause(change, &given, PauseChange::Paused)?;
        store::audit::insert(change.tx, &audit)?;
        Ok(given)
    });
    written.await
}

/// Makes room for one of the same name.
fn forget(change: &mut Change<'_, '_>, mut known: Override) -> Result<(), StoreError> {
    if known.ended.is_none() {
        fleet::end_override(change, &mut known)?;
    }
    store::overrides::delete(change.tx, &known)
}

/// Takes an override back, if it is still about what it was about when its caller was let in.
pub async fn remove(
    engine: &Arc<Engine>,
    seen: Override,
    audit: AuditEntry,
) -> Result<(), OverrideError> {
    let written = engine.change("override_remove", audit.created, move |change| {
        let known = store::overrides::get(change.tx, &seen.id)?;
        let known = known.filter(|known| known.target == seen.target);
        let Some(known) = known else {
            return Err(OverrideError::NotThere);
        };
        store::overrides::delete(change.tx, &known)?;
        if known.ended.is_none() {
            fleet::tell_pause(change, &known, PauseChange::Resumed)?;
        }
        fleet::wake_target(change, &known);
        store::audit::insert(change.tx, &audit)?;
        Ok(())
    });
    written.await
}

fn target_exists(engine: &Engine, tx: &mut Tx<'_>, target: &Target) -> Result<(), OverrideError> {
    match target {
        Target::Pool(id) => {
            store::pools::get(tx, id)?.ok_or_else(no_such_pool)?;
        }
        Target::LaunchConfig(pool_id, id) => {
            store::pools::get(tx, pool_id)?.ok_or_else(no_such_pool)?;
            let text = format!("Launch config {id} does not exist in worker pool {pool_id}");
            store::launch_configs::get(tx, pool_id, id)?
                .ok_or_else(|| OverrideError::NoTarget(text))?;
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
