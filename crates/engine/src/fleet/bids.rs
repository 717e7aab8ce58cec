//! Collects the bids of a pool's providers, each for its own launch configs.

use std::sync::Arc;

use cloud::BidRequest;
use domain::facts::Facts;
use domain::id::ProviderId;
use domain::launch_config::LaunchConfig;
use domain::overrides::Override;
use domain::plan::Bid;

use crate::Engine;

/// Bids in the order of the launch configs. A provider that is out of service gives errors instead.
pub(super) fn collect_bids(engine: &Engine, facts: &Facts) -> Vec<Result<Bid, String>> {
    let mut bids = collect_all_bids(engine, facts);
    if facts.overrides.iter().any(Override::is_pause) {
        for (config, bid) in facts.launch_configs.iter().zip(&mut bids) {
            if let Some(why) = pause_reason(engine, facts, config) {
                *bid = Err(why);
            }
        }
    }
    bids
}

fn pause_reason(engine: &Engine, facts: &Facts, config: &LaunchConfig) -> Option<String> {
    let machines = engine.providers.machines(config.provider_id(&facts.pool));
    let group = machines.and_then(|machines| machines.group(config));
    let mut overrides = facts.overrides.iter();
    overrides.find_map(|given| given.pauses(&facts.pool, config, group.as_ref()))
}

fn collect_all_bids(engine: &Engine, facts: &Facts) -> Vec<Result<Bid, String>> {
    let (pool, configs) = (&facts.pool, &facts.launch_configs);
    let mut bids = vec![Err("its provider said nothing".to_owned()); configs.len()];
    for id in pool.provider_ids() {
        let of_provider =
            |(_, config): &(usize, &Arc<LaunchConfig>)| config.provider_id(pool) == id;
        let (places, own): (Vec<usize>, Vec<Arc<LaunchConfig>>) = configs
            .iter()
            .enumerate()
            .filter(of_provider)
            .map(|(place, config)| (place, Arc::clone(config)))
            .unzip();
        let of_provider = bids_of_provider(engine, facts, id, &own);
        for (place, bid) in places.into_iter().zip(of_provider) {
            bids[place] = bid;
        }
    }
    bids
}

fn bids_of_provider(
    engine: &Engine,
    facts: &Facts,
    id: &ProviderId,
    launch_configs: &[Arc<LaunchConfig>],
) -> Vec<Result<Bid, String>> {
    let Some(machines) = engine.providers.machines(id) else {
        let why = match engine.providers.get(id) {
            Ok(provider) => format!("a provider of kind {} launches nothing", provider.kind()),
            Err(_) => format!("the provider {id} is not configured or out of service"),
        };
        return vec![Err(why); launch_configs.len()];
    };
    let bids = machines.bids(&BidRequest {
        pool_id: &facts.pool.id,
        launch_configs,
        now: facts.horizon.now,
    });
    if machines.wants_refresh() {
        engine.wakeups.refresh.notify_one();
    }
    bids
}
