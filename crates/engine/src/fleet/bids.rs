//! Collects the bids of a pool's providers, each for its own launch configs.

use std::sync::Arc;

use domain::facts::Facts;
use domain::id::WorkerGroup;
use domain::image::waits_for;
use domain::launch_config::LaunchConfig;
use domain::overrides::Override;
use domain::plan::{BidRequest, Bids, out_of_service};
use domain::pool::Pool;

use crate::Engine;

/// The bids for the launch configs of a pool, in their order. A provider that is out of service
/// gives errors instead.
#[derive(Clone)]
pub(super) struct PoolBids {
    /// Also for paused launch configs, since machines of these still run and start.
    pub(super) all: Arc<Vec<Bids>>,
    /// The bids that new launches may use: a pause replaces the bid by its reason.
    pub(super) usable: Arc<Vec<Bids>>,
}

impl PoolBids {
    /// Reads the bids from the memory of the providers. `request`: the need, `None` only looks.
    pub(super) fn read(engine: &Engine, facts: &Facts, request: Option<&BidRequest>) -> Self {
        let configs = facts.launch_configs.iter();
        let bids = configs.map(|config| bids_of_provider(engine, facts, config, request));
        let all = Arc::new(bids.collect::<Vec<_>>());
        if !facts.overrides.iter().any(Override::is_pause) {
            let usable = Arc::clone(&all);
            return Self { all, usable };
        }
        let configs = facts.launch_configs.iter().zip(all.iter());
        let usable = configs.map(|(config, bid)| {
            let paused = pause_reason(engine, facts, config);
            paused.map_or_else(|| bid.clone(), Err)
        });
        let usable = Arc::new(usable.collect());
        Self { all, usable }
    }

    /// Whether there are several bids for a launch config.
    pub(super) fn has_several(&self) -> bool {
        let mut bids = self.all.iter().flatten();
        bids.any(|bids| bids.len() > 1)
    }
}

/// Reads the bids. Providers that lack data for them refresh it, and then the pool is planned
/// again.
pub(super) fn collect_bids(engine: &Engine, facts: &Facts) -> PoolBids {
    let bids = PoolBids::read(engine, facts, Some(&facts.bid_request()));
    for id in facts.pool.provider_ids() {
        let machines = engine.providers.machines(id);
        if machines.is_some_and(|machines| machines.wants_refresh()) {
            engine.wakeups.refresh_for(id, facts.id());
        }
    }
    bids
}

/// The bids for a launch config, whether it is paused or not.
pub(super) fn bids_of_provider(
    engine: &Engine,
    facts: &Facts,
    config: &LaunchConfig,
    request: Option<&BidRequest>,
) -> Bids {
    let id = config.provider_id(&facts.pool);
    if let Some(why) = waits_for(&config.configuration, id) {
        return Err(why);
    }
    let provider = engine.providers.get(id);
    let provider = provider.map_err(|_| out_of_service(id))?;
    let machines = provider.machines();
    let machines = machines
        .ok_or_else(|| format!("a provider of kind {} launches nothing", provider.kind()))?;
    machines.bids(config, request, facts.horizon.now)
}

fn pause_reason(engine: &Engine, facts: &Facts, config: &LaunchConfig) -> Option<String> {
    let group = group_of(engine, &facts.pool, config);
    let mut overrides = facts.overrides.iter();
    overrides.find_map(|given| given.pauses(&facts.pool, config, group.as_ref()))
}

/// The group of the machines of a launch config, if it is known before a launch.
pub(super) fn group_of(engine: &Engine, pool: &Pool, config: &LaunchConfig) -> Option<WorkerGroup> {
    let machines = engine.providers.machines(config.provider_id(pool));
    machines.and_then(|machines| machines.group(config))
}
