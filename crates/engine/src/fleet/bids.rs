//! What a pool's providers would give for its launch configs, each asked for its own.

use std::sync::Arc;

use cloud::{BidRequest, Machines, Provider};
use domain::facts::Facts;
use domain::id::ProviderId;
use domain::launch_config::LaunchConfig;
use domain::overrides::Override;
use domain::plan::Bid;

use crate::Engine;

/// In the order of the launch configs. A provider that is not in service takes away nothing but its own offers.
pub(super) fn ask(engine: &Engine, facts: &Facts) -> Vec<Result<Bid, String>> {
    let mut bids = ask_all(engine, facts);
    if facts.overrides.iter().any(Override::is_pause) {
        for (config, bid) in facts.launch_configs.iter().zip(&mut bids) {
            if let Some(why) = paused(engine, facts, config) {
                *bid = Err(why);
            }
        }
    }
    bids
}

fn paused(engine: &Engine, facts: &Facts, config: &LaunchConfig) -> Option<String> {
    let provider = engine.providers.get(config.provider_id(&facts.pool)).ok();
    let machines = provider.and_then(|provider| provider.machines());
    let group = machines.and_then(|machines| machines.group(config));
    let mut overrides = facts.overrides.iter();
    overrides.find_map(|given| given.pauses(&facts.pool, config, group.as_ref()))
}

fn ask_all(engine: &Engine, facts: &Facts) -> Vec<Result<Bid, String>> {
    let (pool, configs) = (&facts.pool, &facts.launch_configs);
    if pool.definition.further_provider_ids.is_empty() {
        return ask_one(engine, facts, &pool.definition.provider_id, configs);
    }
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
        for (place, bid) in places.into_iter().zip(ask_one(engine, facts, id, &own)) {
            bids[place] = bid;
        }
    }
    bids
}

fn ask_one(
    engine: &Engine,
    facts: &Facts,
    id: &ProviderId,
    launch_configs: &[Arc<LaunchConfig>],
) -> Vec<Result<Bid, String>> {
    let provider = engine.providers.get(id).ok();
    match provider.and_then(|provider| provider.machines()) {
        Some(machines) => {
            let bids = bids(machines, facts, launch_configs);
            if machines.wants_refresh() {
                engine.wake.refresh.notify_one();
            }
            bids
        }
        None => no_bids(provider, id, launch_configs.len()),
    }
}

fn bids(
    machines: &dyn Machines,
    facts: &Facts,
    launch_configs: &[Arc<LaunchConfig>],
) -> Vec<Result<Bid, String>> {
    machines.bids(&BidRequest {
        pool_id: &facts.pool.id,
        launch_configs,
        now: facts.horizon.now,
    })
}

fn no_bids(
    provider: Option<&Arc<dyn Provider>>,
    id: &ProviderId,
    count: usize,
) -> Vec<Result<Bid, String>> {
    let why = match provider {
        Some(provider) => format!("a provider of kind {} launches nothing", provider.kind()),
        None => format!("the provider {id} is not configured or out of service"),
    };
    vec![Err(why); count]
}
