//! The launch configs of declared hosts: which one a host has, gets next, and what it costs.

use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch_config::{LaunchConfig, host_successor};
use domain::pool::Pool;
use domain::worker::Worker;
use store::{StoreError, Tx};

use super::WorkerError;
use crate::Engine;

/// The launch config of a worker that people declare or create now: the named one, or the first one
/// of the provider. `None`: the pool has none of this provider.
pub(super) fn choose_launch_config(
    tx: &mut Tx<'_>,
    pool: &Pool,
    provider_id: &ProviderId,
    named: Option<&LaunchConfigId>,
) -> Result<Option<LaunchConfig>, WorkerError> {
    let Some(id) = named else {
        let active = store::launch_configs::active_between(tx, &pool.id, &pool.id)?;
        let own = |config: &LaunchConfig| config.provider_id(pool) == provider_id;
        return Ok(active.into_iter().find(own));
    };
    let found = store::launch_configs::get(tx, &pool.id, id)?;
    let found = found.filter(|config| !config.archived);
    let missing = || format!("{} has no active launch config {id}", pool.id);
    let found = found.ok_or_else(|| WorkerError::Refused(missing()))?;
    Ok(Some(found))
}

/// The launch config whose content a declared worker gets now: its own, or the successor of an
/// archived one.
pub(super) async fn assign_launch_config(
    engine: &Engine,
    pool: &Pool,
    worker: Worker,
) -> store::Result<(Worker, Option<LaunchConfig>)> {
    let (pool_id, own) = (pool.id.clone(), worker.launch_config_id.clone());
    let read = engine.store.read("registration_launch_configs", move |tx| {
        read_own_and_active(tx, &pool_id, own.as_ref())
    });
    let (own, active) = read.await?;
    if let Some(own) = own.as_ref().filter(|config| !config.archived) {
        return Ok((worker, Some(own.clone())));
    }
    match host_successor(pool, &worker.provider_id, &active, own.as_ref()) {
        Some(next) => {
            let price = price(engine, pool, &worker.provider_id, Some(next));
            let worker = worker.assign(next.id.clone(), price);
            Ok((worker, Some(next.clone())))
        }
        None => Ok((worker, own)),
    }
}

/// The launch config of a declared worker, and the active ones of its pool if that is archived.
pub(super) fn read_own_and_active(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    own: Option<&LaunchConfigId>,
) -> Result<(Option<LaunchConfig>, Vec<LaunchConfig>), StoreError> {
    let own = match own {
        Some(id) => store::launch_configs::get(tx, pool_id, id)?,
        None => None,
    };
    let active = match &own {
        Some(config) if !config.archived => Vec::new(),
        Some(_) | None => store::launch_configs::active_between(tx, pool_id, pool_id)?,
    };
    Ok((own, active))
}

/// Dollars per hour of a host: the price of its launch config, of its pool, or of its provider.
pub(super) fn price(
    engine: &Engine,
    pool: &Pool,
    provider_id: &ProviderId,
    launch_config: Option<&LaunchConfig>,
) -> Option<f64> {
    let own = launch_config.and_then(|config| config.host_price(pool));
    own.or_else(|| {
        let provider = engine.providers.get(provider_id).ok()?;
        provider.declarer()?.price()
    })
}
