//! Questions to a provider that make nothing.

use std::collections::BTreeSet;

use domain::Version;
use domain::launch_config::{LaunchConfig, id_of, split_off};
use domain::plan::Bid;
use domain::pool::Pool;
use serde_json::Value;

use super::finding::{ConformanceHost, ProviderQuestion, answer, limited, not_applicable};
use crate::{Machines, Provider, ValidateError, place};

/// Names in an answer at most.
const MAX_NAMED: usize = 5;

/// Asks about the provider itself. False: it cannot be set up, so nothing else is asked.
pub(super) async fn ask(provider: &dyn Provider, host: &dyn ConformanceHost) -> bool {
    let set_up = limited(provider.setup()).await;
    let is_set_up = set_up.is_ok();
    let kind = provider.kind();
    let set_up = set_up.map(|()| format!("yes, as a provider of kind {kind}"));
    answer(host, ProviderQuestion::SetUp, set_up);
    if !is_set_up {
        return false;
    }
    let made_by_people = "people declare its workers";
    match provider.machines() {
        Some(machines) => {
            answer(host, ProviderQuestion::Places, places(provider));
            answer(
                host,
                ProviderQuestion::Machines,
                own_machines(machines).await,
            );
        }
        None => {
            not_applicable(host, ProviderQuestion::Places, made_by_people);
            not_applicable(host, ProviderQuestion::Machines, made_by_people);
        }
    }
    match provider.images() {
        Some(target) => {
            let images = limited(target.owned_images()).await;
            let images = images.map(|it| counted(it.len(), "image"));
            answer(host, ProviderQuestion::Images, images);
        }
        None => not_applicable(host, ProviderQuestion::Images, "it takes no images"),
    }
    true
}

/// Asks about the launch configs of a pool. Returns the pool without them, and each with its bid.
pub(super) async fn ask_about_pool(
    provider: &dyn Provider,
    host: &dyn ConformanceHost,
    pool: Pool,
) -> Option<(Pool, Vec<(LaunchConfig, Bid)>)> {
    let (pool, configs) = match validated(provider, pool).await {
        Ok(valid) => valid,
        Err(why) => {
            answer(host, ProviderQuestion::Config, Err(why));
            return None;
        }
    };
    let taken = format!("yes, {}", counted(configs.len(), "launch config"));
    answer(host, ProviderQuestion::Config, Ok(taken));
    let machines = provider.machines()?;
    // Some providers learn only by this question which bids to get.
    for config in &configs {
        let _not_known_yet = machines.bids(config, None, host.now());
    }
    let refreshed = limited(machines.refresh()).await;
    let refreshed = refreshed.map(|()| "yes".to_owned());
    answer(host, ProviderQuestion::Prices, refreshed);
    let (mut texts, mut problems, mut offers) = (Vec::new(), Vec::new(), Vec::new());
    for config in configs {
        match bids(machines, &config, host) {
            Ok(bids) => {
                texts.extend(bids.iter().map(described));
                offers.extend(bids.into_iter().next().map(|bid| (config, bid)));
            }
            Err(why) => problems.push(format!("{}: {why}", config.id)),
        }
    }
    let bids = match problems.is_empty() {
        true => Ok(named(&texts, "bid")),
        false => Err(named(&problems, "launch config without a bid")),
    };
    answer(host, ProviderQuestion::Bids, bids);
    Some((pool, offers))
}

fn bids(
    machines: &dyn Machines,
    config: &LaunchConfig,
    host: &dyn ConformanceHost,
) -> Result<Vec<Bid>, String> {
    let bids = machines.bids(config, None, host.now())?;
    match bids.is_empty() {
        true => Err("its provider makes no bid for it now".to_owned()),
        false => Ok(bids),
    }
}

async fn own_machines(machines: &dyn Machines) -> Result<String, String> {
    let listing = limited(machines.owned()).await?;
    let problems: Vec<String> = listing
        .missing
        .iter()
        .map(|(group, error)| format!("{group}: {error}"))
        .collect();
    match problems.is_empty() {
        true => Ok(counted(listing.machines.len(), "machine")),
        false => Err(named(&problems, "group that cannot be listed")),
    }
}

fn places(provider: &dyn Provider) -> Result<String, String> {
    let places = provider.places().map_err(|unknown| unknown.to_string())?;
    place::check(&places, &provider.fills()).map_err(|bad| bad.to_string())?;
    if places.is_empty() {
        return Ok("it has one place".to_owned());
    }
    let text = |place: &crate::Place| {
        let conditions: Vec<String> = place
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect();
        conditions.join(" ")
    };
    let texts: Vec<String> = places.iter().map(text).collect();
    Ok(named(&texts, "place"))
}

/// The pool with what the provider writes into it, and its launch configs.
async fn validated(
    provider: &dyn Provider,
    mut pool: Pool,
) -> Result<(Pool, Vec<LaunchConfig>), String> {
    let config = std::mem::take(&mut pool.definition.config);
    let mut config = Value::Object(config);
    let judged = provider.validate(&mut config);
    judged.map_err(|invalid| outlined(&ValidateError::Invalid(invalid)))?;
    let judged = limited(async {
        let judged = provider.validate_outside(&mut config).await;
        judged.map_err(|error| outlined(&error))
    });
    judged.await?;
    let Value::Object(mut config) = config else {
        return Err("its checks replaced the config by something else".to_owned());
    };
    let contents = split_off(&mut config).map_err(|bad| bad.to_string())?;
    pool.definition.config = config;
    let mut configs = Vec::new();
    for (configuration, position) in contents.into_iter().zip(0..) {
        configs.push(LaunchConfig {
            pool_id: pool.id.clone(),
            id: id_of(&pool.id, &configuration).map_err(|bad| bad.to_string())?,
            archived: false,
            position,
            configuration,
            created: pool.created,
            last_modified: pool.created,
            version: Version::FIRST,
        });
    }
    Ok((pool, configs))
}

fn outlined(error: &ValidateError) -> String {
    match error {
        ValidateError::Invalid(invalid) => {
            let lines: BTreeSet<String> =
                invalid.problems.iter().map(ToString::to_string).collect();
            lines.into_iter().collect::<Vec<_>>().join("; ")
        }
        ValidateError::Cloud(error) => format!("it cannot be checked now: {error}"),
    }
}

fn described(bid: &Bid) -> String {
    let price = match bid.price {
        Some(price) => format!("${price} per hour"),
        None => "price unknown".to_owned(),
    };
    match bid.place.is_empty() {
        true => price,
        false => format!("{} {price}", bid.place),
    }
}

fn counted(n: usize, noun: &str) -> String {
    let plural = if n == 1 { "" } else { "s" };
    format!("{n} {noun}{plural}")
}

/// Their number and the first of them.
fn named(texts: &[String], noun: &str) -> String {
    let shown = texts.iter().take(MAX_NAMED).cloned().collect::<Vec<_>>();
    let more = if texts.len() > MAX_NAMED { ", …" } else { "" };
    let noun = match (noun.split_once(' '), texts.len()) {
        (_, 1) | (None, _) => counted(texts.len(), noun),
        (Some((first, rest)), n) => format!("{n} {first}s {rest}"),
    };
    format!("{noun}: {}{more}", shown.join(", "))
}
