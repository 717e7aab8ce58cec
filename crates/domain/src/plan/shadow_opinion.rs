//! Compares the plan of a pool with that of its shadow: what each does, and where they differ.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::need::{OVER_SHARE, UNITS_NEEDED};
use super::{Plan, Snapshot, StrategyName};
use crate::id::{LaunchConfigId, WorkerKey};

/// Workers beyond this number are only counted.
const MAX_NAMED: usize = 20;
/// At most this many launch configs with different units are described.
const MAX_DESCRIBED: usize = 20;
/// Beginnings of the reasons that explain how many units a plan launches.
const ABOUT_UNITS: [&str; 3] = ["capped", "still missing ", "the provider"];

/// The actions of a strategy in one decision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Opinion {
    pub strategy: StrategyName,
    /// Ordered by launch config.
    pub launches: Vec<LaunchedUnits>,
    /// All units that it launches.
    pub units: u64,
    /// Workers that it asks to stop: the first of them.
    pub let_go: Vec<String>,
    pub n_let_go: u64,
    /// Workers that were asked to stop and that it asks to stay.
    pub n_called_back: u64,
    /// Dollars per hour for the machines that it launches, as far as their prices are agreed.
    pub price_per_hour: f64,
    /// Machines that it launches without a price.
    pub n_without_price: u64,
    /// Dollars per hour of the workers that it lets go, as far as their prices are known.
    pub price_of_let_go_per_hour: f64,
    pub reasons: Vec<String>,
    /// Why it made no plan.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

/// Units that are launched of a launch config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct LaunchedUnits {
    pub launch_config_id: LaunchConfigId,
    pub machines: u64,
    pub units: u64,
    /// Dollars per hour for all of them, if agreed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_per_hour: Option<f64>,
}

/// How far two opinions agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Agreement {
    Same,
    /// The same number of units and the same workers, but other launch configs.
    OtherLaunchConfigs,
    Different,
}

/// A decision of a pool beside that of its shadow.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Comparison {
    pub live: Opinion,
    pub shadow: Opinion,
    pub agreement: Agreement,
    /// Each difference with its reason, for people.
    pub differences: Vec<String>,
}

impl Agreement {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Same => "same",
            Self::OtherLaunchConfigs => "other-launch-configs",
            Self::Different => "different",
        }
    }
}

impl Opinion {
    fn of(snapshot: &Snapshot, strategy: StrategyName, plan: &Plan) -> Self {
        let mut launches: BTreeMap<&LaunchConfigId, LaunchedUnits> = BTreeMap::new();
        let mut n_without_price = 0;
        for award in &plan.awards {
            let id = &award.launch_config_id;
            let launched = launches.entry(id).or_insert_with(|| LaunchedUnits {
                launch_config_id: id.clone(),
                machines: 0,
                units: 0,
                price_per_hour: None,
            });
            let machines = u64::from(award.machines);
            launched.machines += machines;
            launched.units += machines * u64::from(award.capacity_each);
            match award.price {
                Some(price) => {
                    let sum = launched.price_per_hour.get_or_insert(0.0);
                    *sum += price * f64::from(award.machines);
                }
                None => n_without_price += machines,
            }
        }
        let launches: Vec<LaunchedUnits> = launches.into_values().collect();
        let stops = plan.advice.iter().filter(|(_, advice)| advice.terminate);
        let stops: BTreeSet<&WorkerKey> = stops.map(|(key, _)| key).collect();
        let named = stops.iter().take(MAX_NAMED);
        Self {
            strategy,
            units: launches.iter().map(|launched| launched.units).sum(),
            price_per_hour: total(launches.iter().filter_map(|it| it.price_per_hour)),
            launches,
            let_go: named
                .map(|key| format!("{}/{}", key.group, key.id))
                .collect(),
            n_let_go: stops.len() as u64,
            n_called_back: (plan.advice.len() - stops.len()) as u64,
            n_without_price,
            price_of_let_go_per_hour: price_of(snapshot, &stops),
            reasons: plan.reasons.clone(),
            error: None,
        }
    }

    fn failed(strategy: StrategyName, error: &str) -> Self {
        Self {
            strategy,
            launches: Vec::new(),
            units: 0,
            let_go: Vec::new(),
            n_let_go: 0,
            n_called_back: 0,
            price_per_hour: 0.0,
            n_without_price: 0,
            price_of_let_go_per_hour: 0.0,
            reasons: Vec::new(),
            error: Some(error.to_owned()),
        }
    }

    /// Whether it launches nothing and changes no advice.
    pub fn is_idle(&self) -> bool {
        self.units == 0 && self.n_let_go == 0 && self.n_called_back == 0
    }

    /// Whether both do the same, although perhaps with other launch configs: these are drawn by
    /// lot.
    fn does_the_same(&self, other: &Self) -> bool {
        let amounts = |it: &Self| (it.units, it.n_let_go, it.n_called_back, it.error.is_some());
        amounts(self) == amounts(other) && self.let_go == other.let_go
    }
}

/// Dollars per hour for these workers, as far as their prices are known.
fn price_of(snapshot: &Snapshot, workers: &BTreeSet<&WorkerKey>) -> f64 {
    let only_shadow = snapshot.shadow.iter().flat_map(|shadow| &shadow.workers);
    let known = snapshot.workers.iter().chain(only_shadow);
    let stopped = known.filter(|worker| workers.contains(&worker.key));
    total(stopped.filter_map(|worker| worker.price))
}

/// Unlike `sum`, whose result for nothing is -0.
fn total(prices: impl Iterator<Item = f64>) -> f64 {
    prices.fold(0.0, |sum, price| sum + price)
}

impl Plan {
    /// Compares this plan with that of the shadow; `None`: the pool has no shadow. `snapshot` is
    /// the input of both.
    pub fn comparison(&self, snapshot: &Snapshot) -> Option<Comparison> {
        let shadow = self.shadow.as_deref()?;
        let live = Opinion::of(snapshot, snapshot.settings.strategy, self);
        let shadow = match &shadow.plan {
            Ok(plan) => Opinion::of(snapshot, shadow.strategy, plan),
            Err(error) => Opinion::failed(shadow.strategy, error),
        };
        Some(Comparison::of(live, shadow))
    }
}

impl Comparison {
    fn of(live: Opinion, shadow: Opinion) -> Self {
        let mut differences = Vec::new();
        if let Some(error) = &shadow.error {
            differences.push(format!("{} made no plan: {error}", shadow.strategy));
        } else {
            describe_units(&live, &shadow, &mut differences);
            describe_launch_configs(&live, &shadow, &mut differences);
            describe_workers(&live, &shadow, &mut differences);
        }
        let agreement = match live.does_the_same(&shadow) {
            true if same_launch_configs(&live, &shadow) => Agreement::Same,
            true => Agreement::OtherLaunchConfigs,
            false => Agreement::Different,
        };
        Self {
            live,
            shadow,
            agreement,
            differences,
        }
    }

    /// Whether neither does anything.
    pub fn is_idle(&self) -> bool {
        self.live.is_idle() && self.shadow.is_idle() && self.shadow.error.is_none()
    }

    /// Whether both strategies do what they did in the earlier comparison. Launch configs that are
    /// drawn by lot do not count.
    pub fn repeats(&self, earlier: &Self) -> bool {
        let pairs = [(&self.live, &earlier.live), (&self.shadow, &earlier.shadow)];
        pairs
            .iter()
            .all(|(one, other)| one.strategy == other.strategy && one.does_the_same(other))
    }
}

fn units_of(opinion: &Opinion) -> BTreeMap<&LaunchConfigId, u64> {
    let launches = opinion.launches.iter();
    launches
        .map(|launched| (&launched.launch_config_id, launched.units))
        .collect()
}

fn same_launch_configs(live: &Opinion, shadow: &Opinion) -> bool {
    units_of(live) == units_of(shadow)
}

/// The reasons of each strategy that the other does not have, if they match.
fn own_reasons(opinion: &Opinion, other: &Opinion, is_about: impl Fn(&str) -> bool) -> String {
    let own = opinion.reasons.iter();
    let own = own.filter(|reason| is_about(reason) && !other.reasons.contains(reason));
    let own: Vec<&str> = own.map(String::as_str).collect();
    if own.is_empty() {
        return String::new();
    }
    format!("; {}: {}", opinion.strategy, own.join("; "))
}

fn describe_units(live: &Opinion, shadow: &Opinion, differences: &mut Vec<String>) {
    if live.units == shadow.units {
        return;
    }
    let is_about = |reason: &str| {
        reason.contains(UNITS_NEEDED)
            || reason.contains(OVER_SHARE)
            || ABOUT_UNITS.iter().any(|begin| reason.starts_with(begin))
    };
    differences.push(format!(
        "{} launches {} units, {} {}{}{}",
        live.strategy,
        live.units,
        shadow.strategy,
        shadow.units,
        own_reasons(live, shadow, is_about),
        own_reasons(shadow, live, is_about),
    ));
}

fn describe_launch_configs(live: &Opinion, shadow: &Opinion, differences: &mut Vec<String>) {
    let (by_live, by_shadow) = (units_of(live), units_of(shadow));
    let all: BTreeSet<&LaunchConfigId> = by_live.keys().chain(by_shadow.keys()).copied().collect();
    let units = all.into_iter().map(|id| {
        let units = |of: &BTreeMap<&LaunchConfigId, u64>| of.get(id).copied().unwrap_or(0);
        (id, units(&by_live), units(&by_shadow))
    });
    let differing = units.filter(|(_, by_live, by_shadow)| by_live != by_shadow);
    let differing: Vec<(&LaunchConfigId, u64, u64)> = differing.collect();
    for (id, by_live, by_shadow) in differing.iter().take(MAX_DESCRIBED) {
        let is_about = |reason: &str| reason.contains(id.as_str());
        differences.push(format!(
            "of {id}, {} launches {by_live} units, {} {by_shadow}{}{}",
            live.strategy,
            shadow.strategy,
            own_reasons(live, shadow, is_about),
            own_reasons(shadow, live, is_about),
        ));
    }
    let n_more = differing.len().saturating_sub(MAX_DESCRIBED);
    if n_more > 0 {
        differences.push(format!("{n_more} more launch configs have different units"));
    }
}

fn describe_workers(live: &Opinion, shadow: &Opinion, differences: &mut Vec<String>) {
    if (live.n_let_go, &live.let_go) != (shadow.n_let_go, &shadow.let_go) {
        let text = |opinion: &Opinion| match opinion.let_go.as_slice() {
            [] => format!("{} lets no worker go", opinion.strategy),
            named => {
                let n_more = opinion.n_let_go - named.len() as u64;
                let more = if n_more > 0 {
                    format!(" and {n_more} more")
                } else {
                    String::new()
                };
                format!("{} lets {}{more} go", opinion.strategy, named.join(", "))
            }
        };
        let is_about = |reason: &str| reason.contains("stop");
        differences.push(format!(
            "{}, {}{}{}",
            text(live),
            text(shadow),
            own_reasons(live, shadow, is_about),
            own_reasons(shadow, live, is_about),
        ));
    }
    if live.n_called_back != shadow.n_called_back {
        differences.push(format!(
            "of the workers that were asked to stop, {} keeps {}, {} {}",
            live.strategy, live.n_called_back, shadow.strategy, shadow.n_called_back
        ));
    }
}
