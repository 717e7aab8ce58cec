//! Collects the bids of a pool's providers, each for its own launch configs.

use std::sync::Arc;

use domain::facts::Facts;
use domain::id::WorkerGroup;
use domain::launch_config::LaunchConfig;
use domain::overrides::Override;
use domain::plan::Bid;
use domain::pool::Pool;

use crate::Engine;

/// Bids in the order of the launch configs. A provider that is out of service gives errors instead.
pub(super) fn collect_bids(engine: &Engine, facts: &Facts) -> Vec<Result<Bid, String>> {
    let is_paused = facts.overrides.iter().any(Override::is_pause);
    let bid = |config: &Arc<LaunchConfig>| {
        let bid = bid_of_provider(engine, facts, config);
        let paused = is_paused.then(|| pause_reason(engine, facts, config));
        paused.flatten().map_or(bid, Err)
    };
    let bids = facts.launch_configs.iter().map(bid).collect();
    let wants_refresh = |id| {
        let machines = engine.providers.machines(id);
        machines.is_some_and(|machines| machines.wants_refresh())
    };
    if facts.pool.provider_ids().any(wants_refresh) {
        engine.wakeups.refresh.notify_one();
    }
    bids
}

pub(super) fn bid_of_provider(
    engine: &Engine,
    facts: &Facts,
    config: &LaunchConfig,
) -> Result<Bid, String> {
    let id = config.provider_id(&facts.pool);
    let provider = engine.providers.get(id);
    let provider =
        provider.map_err(|_| format!("the provider {id} is not configured or out of service"))?;
    let machines = provider.machines();
    let machines = machines
        .ok_or_else(|| format!("a provider of kind {} launches nothing", provider.kind()))?;
    machines.bid(config, facts.horizon.now)
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
