//! Writes the pools of a worker configuration, in the transaction of its edit.

use domain::configuration::{CompiledPool, WorkerTypeRecord};
use domain::event::EventBody;
use domain::id::{ConfigurationId, PoolId, ProviderId};
use domain::launch_config::{LaunchConfig, Reconciliation, reconcile};
use domain::pool::{Pool, PoolDefinition};
use domain::time::Timestamp;
use store::Tx;

use super::ConfigurationError;
use super::validate_pools::{DesiredPool, DesiredPools};
use crate::change::Change;
use crate::pools::{changes_nothing, launch_config_events, write_launch_configs};

/// Wakes the pools that change.
pub(super) fn write_pools(
    change: &mut Change<'_, '_>,
    id: &ConfigurationId,
    judged: &DesiredPools,
    adopts: bool,
) -> Result<(), ConfigurationError> {
    for pool_id in &judged.removed {
        store::worker_types::release(change.tx, pool_id, id)?;
        if let Some(pool) = store::pools::get(change.tx, pool_id)?
            && pool.worker_configuration_id.as_ref() == Some(id)
        {
            let emptied = PoolDefinition {
                provider_id: ProviderId::null(),
                further_provider_ids: Vec::new(),
                ..pool.definition.clone()
            };
            let target = Target {
                definition: emptied,
                judged: None,
                owner: None,
            };
            redefine(change, pool, target)?;
            change.wake_pool(pool_id);
        }
    }
    for pool in &judged.pools {
        claim_worker_type(change.tx, id, &pool.compiled)?;
        if write_pool(change, id, pool, adopts)? {
            change.wake_pool(pool.compiled.pool_id());
        }
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

/// The desired state of a pool.
struct Target<'a> {
    definition: PoolDefinition,
    /// The pool with its launch configs; `None`: it has none.
    judged: Option<&'a DesiredPool>,
    owner: Option<ConfigurationId>,
}

impl Target<'_> {
    fn reconcile(
        &self,
        id: &PoolId,
        known: Vec<LaunchConfig>,
        now: Timestamp,
    ) -> Result<Reconciliation, ConfigurationError> {
        match self.judged {
            Some(judged) => judged.reconcile(known, now),
            None => Ok(reconcile(id, known, Vec::new(), now)?),
        }
    }
}

/// Whether the pool changed.
fn write_pool(
    change: &mut Change<'_, '_>,
    id: &ConfigurationId,
    judged: &DesiredPool,
    adopts: bool,
) -> Result<bool, ConfigurationError> {
    let target = Target {
        definition: judged.definition.clone(),
        judged: Some(judged),
        owner: Some(id.clone()),
    };
    let pool_id = judged.compiled.pool_id();
    let Some(pool) = store::pools::get(change.tx, pool_id)? else {
        create(change, pool_id, target)?;
        return Ok(true);
    };
    let is_ours = pool.worker_configuration_id.as_ref() == Some(id);
    let is_deleted =
        pool.worker_configuration_id.is_none() && pool.definition.provider_id.is_null();
    if !is_ours && !is_deleted && !adopts {
        return Err(ConfigurationError::Conflict(format!(
            "There is a worker pool {pool_id} that was made by hand. Nothing was changed; delete it first, or make it \
             the configuration's with `adoptPools`."
        )));
    }
    redefine(change, pool, target)
}

fn create(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    target: Target<'_>,
) -> Result<(), ConfigurationError> {
    let (tx, now) = (&mut *change.tx, change.now);
    let known = store::launch_configs::all(tx, id)?;
    let done = target.reconcile(id, known, now)?;
    let mut pool = Pool::new(id.clone(), target.definition, now);
    pool.worker_configuration_id = target.owner;
    if !store::pools::insert(tx, &pool)? {
        return Err(tx.lost_race().into());
    }
    let created = EventBody::PoolCreated {
        pool_id: id.clone(),
        provider_id: pool.definition.provider_id.clone(),
    };
    let events = std::iter::once(created).chain(launch_config_events(&pool, &done));
    change.announce(events)?;
    write_launch_configs(change.tx, &done, now)?;
    Ok(())
}

/// Updates a pool as an edit by the API does; an unchanged pool is not written, and has no event.
fn redefine(
    change: &mut Change<'_, '_>,
    mut pool: Pool,
    target: Target<'_>,
) -> Result<bool, ConfigurationError> {
    let (tx, now) = (&mut *change.tx, change.now);
    let known = store::launch_configs::all(tx, &pool.id)?;
    let done = target.reconcile(&pool.id, known.clone(), now)?;
    let same = pool.definition == target.definition
        && pool.worker_configuration_id == target.owner
        && changes_nothing(&known, &done);
    if same {
        return Ok(false);
    }
    let previous_provider_id = pool.definition.provider_id.clone();
    pool.redefine(target.definition, now);
    pool.worker_configuration_id = target.owner;
    store::pools::update(tx, &pool)?;
    let updated = EventBody::PoolUpdated {
        pool_id: pool.id.clone(),
        provider_id: pool.definition.provider_id.clone(),
        previous_provider_id,
    };
    let events = std::iter::once(updated).chain(launch_config_events(&pool, &done));
    change.announce(events)?;
    write_launch_configs(change.tx, &done, now)?;
    Ok(true)
}
