//! Writes the pools of a worker configuration, in the transaction of its edit.

use domain::configuration::{CompiledPool, WorkerTypeRecord};
use domain::id::ConfigurationId;
use domain::pool::Pool;
use store::Tx;

use super::ConfigurationError;
use super::validate_pools::{DesiredPool, DesiredPools};
use crate::change::Change;
use crate::pools::{changes_nothing, empty_pool, insert_pool, replace_pool};

pub(super) fn write_pools(
    change: &mut Change<'_, '_>,
    id: &ConfigurationId,
    judged: &DesiredPools,
    adopts: bool,
) -> Result<(), ConfigurationError> {
    for pool_id in &judged.removed {
        store::worker_types::release(change.tx, pool_id, id)?;
        if let Some(mut pool) = store::pools::get(change.tx, pool_id)?
            && pool.worker_configuration_id.as_ref() == Some(id)
        {
            pool.worker_configuration_id = None;
            empty_pool(change, &mut pool)?;
        }
    }
    for pool in &judged.pools {
        claim_worker_type(change.tx, id, &pool.compiled)?;
        write_pool(change, id, pool, adopts)?;
    }
    Ok(())
}

/// The database enforces that a worker type belongs to one configuration.
fn claim_worker_type(
    tx: &mut Tx<'_>,
    id: &ConfigurationId,
    pool: &CompiledPool,
) -> Result<(), ConfigurationError> {
    let record = WorkerTypeRecord {
        pool_id: pool.pool_id().clone(),
        configuration_id: id.clone(),
        payload_schema: pool.payload_schema.as_deref().cloned(),
        check_payload: pool.check_payload,
    };
    if store::worker_types::claim(tx, &record)? {
        return Ok(());
    }
    let owner = store::worker_types::get(tx, pool.pool_id())?;
    let owner = owner.map_or_else(
        || "another one".to_owned(),
        |owner| owner.configuration_id.to_string(),
    );
    Err(ConfigurationError::Conflict(format!(
        "The worker type {} belongs to the worker configuration {owner}. Nothing was changed; remove it there first.",
        pool.worker_type
    )))
}

/// Writes a pool as an edit by the API does; an unchanged pool is not written, and has no event.
fn write_pool(
    change: &mut Change<'_, '_>,
    id: &ConfigurationId,
    judged: &DesiredPool,
    adopts: bool,
) -> Result<(), ConfigurationError> {
    let (pool_id, definition) = (judged.compiled.pool_id(), judged.definition.clone());
    let stored = store::pools::get(change.tx, pool_id)?;
    let owner = stored
        .as_ref()
        .and_then(|pool| pool.worker_configuration_id.as_ref());
    let is_ours = owner == Some(id);
    if let Some(pool) = &stored
        && !is_ours
        && !adopts
        && (owner.is_some() || !pool.definition.provider_id.is_null())
    {
        return Err(ConfigurationError::Conflict(format!(
            "There is a worker pool {pool_id} that was made by hand. Nothing was changed; delete it first, or make it \
             the configuration's with `adoptPools`."
        )));
    }
    let known = store::launch_configs::all(change.tx, pool_id)?;
    let done = judged.reconcile(known.clone(), change.now)?;
    let Some(mut pool) = stored else {
        let mut pool = Pool::new(pool_id.clone(), definition, change.now);
        pool.worker_configuration_id = Some(id.clone());
        return Ok(insert_pool(change, &pool, &done)?);
    };
    if is_ours && pool.definition == definition && changes_nothing(&known, &done) {
        return Ok(());
    }
    pool.worker_configuration_id = Some(id.clone());
    Ok(replace_pool(change, &mut pool, definition, &done)?)
}
