//! The present pools, with what their providers offer, for simulations of the recorded history.

use std::sync::Arc;

use domain::demand::Demand;
use domain::facts::Facts;
use domain::id::PoolId;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::pool::Pool;
use domain::time::Timestamp;

use super::bids::bid_of_provider;
use crate::Engine;

/// A pool with its active launch configs and the bids for them, or why there is none.
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
    let read = engine.store.scan("recording_pools", move |tx| {
        let pools = store::pools::list(tx, after.as_ref(), limit)?;
        let with_configs = pools.into_iter().map(|pool| {
            let configs = store::launch_configs::active_between(tx, &pool.id, &pool.id)?;
            store::Result::Ok((pool, configs))
        });
        with_configs.collect::<store::Result<Vec<(Pool, Vec<LaunchConfig>)>>>()
    });
    let horizon = engine.horizon(now);
    let offered = read.await?.into_iter().map(|(pool, configs)| {
        let facts = Facts::new(pool, Demand::default(), horizon);
        let configs = configs.into_iter().map(Arc::new);
        let offers = configs.map(|config| {
            let bid = bid_of_provider(engine, &facts, &config);
            (config, bid.and_then(|bid| bid.checked(now)))
        });
        let offers = offers.collect();
        let pool = facts.pool;
        OfferedPool { pool, offers }
    });
    Ok(offered.collect())
}
