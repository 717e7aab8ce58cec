//! The present pools, with what their providers offer, for simulations of the recorded history.

use std::sync::Arc;

use domain::demand::Demand;
use domain::facts::Facts;
use domain::id::PoolId;
use domain::launch_config::LaunchConfig;
use domain::plan::{Bid, separate_bids};
use domain::pool::Pool;
use domain::time::Timestamp;
use store::StoreError;

use super::bids::bids_of_provider;
use super::facts::group_by_pool;
use crate::Engine;

/// A pool with its active launch configs and the first valid bid for each, or why there is none.
pub struct OfferedPool {
    pub pool: Pool,
    pub offers: Vec<(Arc<LaunchConfig>, Result<Bid, String>)>,
}

/// The pools after this one, ordered by id.
pub async fn list_offered_pools(
    engine: &Arc<Engine>,
    after: Option<PoolId>,
    limit: u32,
    now: Timestamp,
) -> store::Result<Vec<OfferedPool>> {
    let read = engine.store.survey("recording_pools", move |tx| {
        let pools = store::pools::list(tx, after.as_ref(), limit)?;
        let ids: Vec<PoolId> = pools.iter().map(|pool| pool.id.clone()).collect();
        let configs = store::launch_configs::active_of(tx, &ids)?;
        Ok::<_, StoreError>((
            pools,
            group_by_pool(configs, |config| config.pool_id.clone()),
        ))
    });
    let horizon = engine.horizon(now);
    let (pools, mut configs) = read.await?;
    let offered = pools.into_iter().map(|pool| {
        let configs = configs.remove(&pool.id).unwrap_or_default();
        let facts = Facts::new(pool, Demand::default(), horizon, engine.strategies);
        let configs = configs.into_iter().map(Arc::new);
        let offers = configs.map(|config| {
            let bids = bids_of_provider(engine, &facts, &config, None);
            let mut bids = separate_bids(&bids, now);
            let first_valid = bids.iter().position(Result::is_ok).unwrap_or(0);
            (config, bids.swap_remove(first_valid))
        });
        let offers = offers.collect();
        let pool = facts.pool;
        OfferedPool { pool, offers }
    });
    Ok(offered.collect())
}
