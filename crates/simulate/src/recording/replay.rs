//! Makes a scenario of a recording: the recorded load, clouds with the observed machines, and
//! configured pools.

use std::collections::{BTreeMap, BTreeSet};

use domain::Version;
use domain::id::{BadId, PoolId};
use domain::launch_config::LaunchConfig;
use domain::lifecycle;
use domain::plan::BadSettings;
use domain::pool::{Pool, PoolDefinition};
use domain::task::Priority;
use domain::time::{MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::{Map, Value};

use super::Recording;
use super::configuration::{Configuration, ConfiguredLaunchConfig, ConfiguredPool};
use super::observed::{Observations, Observed, OfferingKey, key_of};
use super::remarks::listed;
use crate::offering::{BootTime, Offering, Price};
use crate::scenario::{
    Arrival, BadPool, OfferedConfig, Reactions, Scenario, SimulatedPool, Timing, provider_id,
};

/// Where nothing was ever observed.
const USUAL_BOOT: BootTime = BootTime {
    mean_seconds: 180.0,
    sigma: 0.25,
};
/// A stopped machine is noticed after this time, where none was observed.
const USUAL_STOP_MS: i64 = 20 * SECOND_MS;
/// Workers of ours ask before each claim, and a claim waits for work for 20 seconds.
const REACTIONS: Reactions = Reactions {
    ask_ms: 20 * SECOND_MS,
    sample_ms: 30 * SECOND_MS,
    plan_ms: 100,
    launch_ms: SECOND_MS,
};
/// The keys of a launch config that say where a machine is and of which type.
const PLACE_KEYS: [&str; 10] = [
    "/region",
    "/zone",
    "/location",
    "/machineType",
    "/instanceType",
    "/launchConfig/InstanceType",
    "/launchConfig/Placement/AvailabilityZone",
    "/launchConfig/InstanceMarketOptions/MarketType",
    "/hardwareProfile/vmSize",
    "/offering",
];
/// Any launch token: no launch of a simulation is asked for.
const TOKEN: &str = "AAAAAAAAQACAAAAAAAAAAA";

/// A scenario of a recording.
#[derive(Clone, Debug)]
pub struct Replay {
    pub scenario: Scenario,
    /// Assumptions, for people.
    pub notes: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum ReplayError {
    #[error(transparent)]
    Pool(#[from] BadPool),
    #[error("the config of pool {pool}: {error}")]
    Settings { pool: PoolId, error: BadSettings },
    #[error(transparent)]
    Id(#[from] BadId),
}

impl Replay {
    pub fn new(recording: &Recording, configuration: &Configuration) -> Result<Self, ReplayError> {
        let observations = Observations::of(recording);
        let mut maker = Maker {
            recording,
            observations,
            offerings: BTreeMap::new(),
            made: Vec::new(),
            unobserved: BTreeSet::new(),
            unpriced: BTreeSet::new(),
        };
        let launching = Configuration::present(recording).launching();
        let (mut pools, mut indexes) = (Vec::new(), BTreeMap::new());
        for (id, configured) in &configuration.0 {
            // A change may have left a pool without launch configs: then its tasks wait.
            if configured.launch_configs.is_empty() && !launching.contains(id) {
                continue;
            }
            indexes.insert(id, pools.len());
            pools.push(maker.pool(id, configured)?);
        }
        let arrivals = arrivals(recording, &indexes);
        let timing = timing(recording, arrivals.last());
        let notes = maker.notes();
        let scenario = Scenario {
            pools,
            offerings: maker.made,
            arrivals,
            followers: Vec::new(),
            timing,
        };
        Ok(Self { scenario, notes })
    }
}

/// Makes pools and offerings.
struct Maker<'a> {
    recording: &'a Recording,
    observations: Observations,
    offerings: BTreeMap<OfferingKey, usize>,
    made: Vec<Offering>,
    /// Offerings about which nothing is known.
    unobserved: BTreeSet<String>,
    unpriced: BTreeSet<String>,
}

impl Maker<'_> {
    fn pool(
        &mut self,
        id: &PoolId,
        configured: &ConfiguredPool,
    ) -> Result<SimulatedPool, ReplayError> {
        let start = self.recording.header.since;
        let mut config = configured.config.clone();
        if let Some(strategy) = self.recording.header.default_strategy {
            let strategy = Value::from(strategy.as_str());
            config.entry("strategy").or_insert(strategy);
        }
        let definition = PoolDefinition {
            provider_id: provider_id()?,
            further_provider_ids: Vec::new(),
            description: String::new(),
            config,
            owner: "simulation@localhost".to_owned(),
            email_on_error: false,
        };
        let pool = Pool::new(id.clone(), definition, start);
        let mut launch_configs = Vec::new();
        for (position, config) in (0..).zip(&configured.launch_configs) {
            let offering = self.offering(id, config);
            let row = LaunchConfig {
                pool_id: id.clone(),
                id: config.id.clone(),
                archived: false,
                position,
                configuration: config.configuration.clone(),
                created: start,
                last_modified: start,
                version: Version::FIRST,
            };
            let mut offered = OfferedConfig::new(&pool, row, offering);
            set_limits(&mut offered, &pool, start)?;
            launch_configs.push(offered);
        }
        let pool = SimulatedPool {
            pool,
            launch_configs,
        };
        pool.settings()?;
        Ok(pool)
    }

    /// The index of the offering of a launch config.
    fn offering(&mut self, pool_id: &PoolId, config: &ConfiguredLaunchConfig) -> usize {
        let key = self.key(pool_id, config);
        if let Some(index) = self.offerings.get(&key) {
            return *index;
        }
        let offering = self.make(&key);
        self.made.push(offering);
        let index = self.made.len() - 1;
        self.offerings.insert(key, index);
        index
    }

    /// A launch config of the recording has its offering, and so has one with the same content, or
    /// for the same place and type of machine.
    fn key(&self, pool_id: &PoolId, config: &ConfiguredLaunchConfig) -> OfferingKey {
        if let Some(key) = self.observations.key(pool_id, &config.id) {
            return key.clone();
        }
        let place = place_of(&config.configuration);
        let content = content_of(&config.configuration);
        let pools = self.recording.pools.iter();
        let mut known = pools.flat_map(|pool| &pool.launch_configs);
        let same = known.find(|known| {
            let configuration = &known.configuration;
            known.provider_id == config.provider_id
                && (content_of(configuration) == content
                    || !place.is_empty() && place_of(configuration) == place)
        });
        let unknown = || (config.provider_id.clone(), config.id.to_string());
        same.map_or_else(unknown, key_of)
    }

    fn make(&mut self, key: &OfferingKey) -> Offering {
        let (provider, place) = key;
        let name = format!("{provider} {place}");
        let own = self.observations.offering(key);
        let of_provider = self.observations.provider(provider);
        let all = self.observations.all();
        let first = |of: fn(&Observed) -> Option<BootTime>| {
            own.and_then(of)
                .or_else(|| of_provider.and_then(of))
                .or_else(|| of(all))
        };
        let boot = first(Observed::boot).unwrap_or(USUAL_BOOT);
        let is_observed = own.is_some_and(|own| own.boot().is_some());
        let price = own.filter(|own| !own.prices.is_empty()).map(price_of);
        let listed = self.listed_price(key);
        let price = price
            .or_else(|| listed.map(Price::constant))
            .or_else(|| of_provider?.mean_price().map(Price::constant));
        let seen = own.or(of_provider);
        // The distributions of other machines say little but their mean.
        let boots = own.map(Observed::boots).unwrap_or_default();
        let offering = Offering {
            observed_boots: boots,
            quota: own.and_then(Observed::quota),
            outages: own.map(Observed::outages).unwrap_or_default(),
            failing_boots: seen.map_or(0.0, Observed::failing_boots),
            promised_reliability: None,
            interruptions_per_hour: seen.map_or(0.0, Observed::interruptions_per_hour),
            price: price.clone().unwrap_or_else(|| Price::constant(0.0)),
            ..Offering::plain(name.clone(), 0.0, boot)
        };
        if !is_observed {
            self.unobserved.insert(name.clone());
        }
        if price.is_none() {
            self.unpriced.insert(name);
        }
        offering
    }

    /// The price that the provider lists now.
    fn listed_price(&self, key: &OfferingKey) -> Option<f64> {
        let pools = self.recording.pools.iter();
        let mut configs = pools.flat_map(|pool| &pool.launch_configs);
        configs.find_map(|config| config.price.filter(|_| key_of(config) == *key))
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.unobserved.is_empty() {
            notes.push(format!(
                "no machine was observed of {}: they are assumed to boot and fail as other machines \
                 of the same provider do on average",
                listed(&self.unobserved)
            ));
        }
        if !self.unpriced.is_empty() {
            notes.push(format!(
                "no price is known of {}: machines cost nothing there",
                listed(&self.unpriced)
            ));
        }
        notes
    }
}

/// The prices in the order of the launches, without repetitions.
fn price_of(observed: &Observed) -> Price {
    let mut prices = observed.prices.clone();
    prices.sort_by(|left, right| left.0.cmp(&right.0).then(left.1.total_cmp(&right.1)));
    prices.dedup_by(|next, before| next.1.total_cmp(&before.1).is_eq());
    let first = prices.first().map_or(0.0, |(_, price)| *price);
    Price::steps(first, prices.into_iter().skip(1))
}

/// The content without what is for workers and for us.
fn content_of(configuration: &Map<String, Value>) -> Vec<(&String, &Value)> {
    let parts = configuration.iter();
    parts
        .filter(|(key, _)| *key != "workerManager" && *key != "workerConfig")
        .collect()
}

fn place_of(configuration: &Map<String, Value>) -> Vec<(&'static str, String)> {
    let found = PLACE_KEYS.into_iter().filter_map(|pointer| {
        let mut parts = pointer.split('/').skip(1);
        let mut value = configuration.get(parts.next()?)?;
        for part in parts {
            value = value.get(part)?;
        }
        Some((pointer, value.to_string()))
    });
    found.collect()
}

/// The time limits that workers of a launch config get.
fn set_limits(offered: &mut OfferedConfig, pool: &Pool, start: Timestamp) -> Result<(), BadId> {
    let worker_config = offered.config.configuration.get("workerConfig");
    let worker_config = worker_config.cloned().unwrap_or(Value::Null);
    let config = &pool.definition.config;
    let terms = lifecycle::at_launch(config, start, worker_config, &TOKEN.parse()?);
    offered.idle_hold_ms = terms.idle_hold_ms;
    let limit = terms.terminate_after.map(|at| at - start.as_millis());
    offered.registration_ms = limit;
    Ok(())
}

/// The tasks of these pools, in the order of their times.
fn arrivals(recording: &Recording, pools: &BTreeMap<&PoolId, usize>) -> Vec<Arrival> {
    let start = recording.header.since;
    let lowest = Priority::Lowest.rank();
    let runs = recording.runs.iter().filter(|run| run.ends_task());
    let arrivals = runs.filter_map(|run| {
        let rank = run.priority.map_or(lowest, Priority::rank);
        Some(Arrival {
            at_ms: run.waiting_since.millis_since(start).max(0),
            duration_ms: run.duration_ms(),
            pool: *pools.get(&run.worker_pool_id)?,
            rank: u8::try_from(rank).unwrap_or(u8::MAX),
        })
    });
    let mut arrivals: Vec<Arrival> = arrivals.collect();
    arrivals.sort_by_key(|arrival| arrival.at_ms);
    arrivals
}

fn timing(recording: &Recording, last: Option<&Arrival>) -> Timing {
    let header = &recording.header;
    let stop_ms = mean_stop_ms(recording).unwrap_or(USUAL_STOP_MS);
    let seconds = |seconds: u64| {
        let seconds = i64::try_from(seconds).unwrap_or(i64::MAX / SECOND_MS);
        seconds.clamp(1, 3_600) * SECOND_MS
    };
    Timing {
        start: header.since,
        tick_ms: seconds(header.round_seconds),
        scan_ms: seconds(header.scan_seconds),
        idle_ms: lifecycle::DEFAULT_IDLE_HOLD_MS,
        least_idle_ms: lifecycle::DEFAULT_IDLE_HOLD_MS,
        stop_ms,
        paid_stop_ms: stop_ms,
        least_paid_ms: MINUTE_MS,
        drain_ms: recording.length_ms() - last.map_or(0, |last| last.at_ms),
        reactions: Some(REACTIONS),
        ..Timing::default()
    }
}

/// From the first known moment of a worker's end to the last.
fn mean_stop_ms(recording: &Recording) -> Option<i64> {
    let workers = recording.workers.iter();
    let stops = workers.filter_map(|worker| {
        let stopped = worker.stopped?;
        Some(stopped.millis_since(worker.stopping?))
    });
    let (n, sum) = stops.fold((0_i64, 0_i64), |(n, sum), ms| {
        (n + 1, sum.saturating_add(ms))
    });
    (n > 0).then(|| sum / n)
}
