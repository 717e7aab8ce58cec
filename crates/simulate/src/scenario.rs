//! Scenarios: the load, clouds and pools of a simulation.

mod catalog;
mod clouds;
mod loads;

use std::sync::Arc;

use domain::Version;
use domain::id::{BadId, PoolId, ProviderId};
use domain::launch_config::{LaunchConfig, id_of, set_id};
use domain::plan::{BadSettings, Bid, Health, Offer, Settings};
use domain::pool::{Pool, PoolDefinition};
use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::{Map, Value, json};

pub use catalog::{ScenarioError, ScenarioName, TraceSource};

use crate::offering::Offering;

/// The provider of all simulated machines.
pub(crate) const PROVIDER: &str = "simulated";

/// Everything that happens to a fleet, except what its planner does.
#[derive(Clone, Debug, PartialEq)]
pub struct Scenario {
    pub pools: Vec<SimulatedPool>,
    pub offerings: Vec<Offering>,
    /// In the order of their times.
    pub arrivals: Vec<Arrival>,
    /// Tasks that are created when others end. They are numbered after the arrivals.
    pub followers: Vec<Follower>,
    pub timing: Timing,
}

/// A task that will be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Arrival {
    pub at_ms: i64,
    /// How long a run takes on any machine.
    pub duration_ms: i64,
    /// The index of its pool.
    pub pool: usize,
    /// 0 is the highest. Of waiting tasks of the same rank, the oldest is the next.
    pub rank: u8,
}

/// A task that waits for another one of its task group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Follower {
    /// The number of the task that it waits for: an arrival, or an earlier follower.
    pub after: usize,
    pub duration_ms: i64,
    /// The index of its pool.
    pub pool: usize,
}

/// A pool with its launch configs.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedPool {
    pub pool: Pool,
    pub launch_configs: Vec<OfferedConfig>,
}

/// A pool that cannot be simulated.
#[derive(Debug, thiserror::Error)]
pub enum BadPool {
    #[error("the config of pool {pool}: {error}")]
    Settings { pool: String, error: BadSettings },
    #[error(transparent)]
    Id(#[from] BadId),
}

/// A launch config, and the offering from which its machines come.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferedConfig {
    pub config: Arc<LaunchConfig>,
    /// The index of the offering.
    pub offering: usize,
    /// How many tasks a machine runs at the same time.
    pub capacity: u32,
    /// How long its workers are idle before they may be stopped. `None`: that of all.
    pub idle_hold_ms: Option<i64>,
    /// How long its machines may take to register. `None`: as all.
    pub registration_ms: Option<i64>,
}

/// The intervals and time limits of a simulation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timing {
    /// The moment at which the simulation begins.
    pub start: Timestamp,
    /// Interval between two plans.
    pub tick_ms: i64,
    /// Interval between two scans; the first is after half of it.
    pub scan_ms: i64,
    /// How long a worker is idle before it asks whether it should stop.
    pub idle_ms: i64,
    /// How long a worker is idle before a strategy that learns how long to keep it may stop it.
    pub least_idle_ms: i64,
    /// A machine that has not registered for this long is stopped.
    pub registration_ms: i64,
    /// How long a stopping machine exists.
    pub stop_ms: i64,
    /// How long a stopping machine is paid for.
    pub paid_stop_ms: i64,
    /// A machine is paid for at least this long.
    pub least_paid_ms: i64,
    /// The simulation ends this long after the last arrival.
    pub drain_ms: i64,
    /// `None`: planners decide at ticks only, and workers stop as soon as they are asked to.
    pub reactions: Option<Reactions>,
}

/// How quickly a server and its workers react.
///
/// The server plans when a task arrives or a worker registers or ends, and takes samples of pools
/// now and then. Workers ask whether they should stop, and take tasks until then.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reactions {
    /// Between two questions of an idle worker.
    pub ask_ms: i64,
    /// Between two samples of a pool, from which strategies learn.
    pub sample_ms: i64,
    /// A pool is planned again after this time, if nothing was launched.
    pub plan_ms: i64,
    /// … and if something was launched.
    pub launch_ms: i64,
}

impl Default for Timing {
    fn default() -> Self {
        Self {
            start: Timestamp::from_millis(START_MS),
            tick_ms: 30 * SECOND_MS,
            scan_ms: MINUTE_MS,
            idle_ms: 5 * MINUTE_MS,
            least_idle_ms: 0,
            registration_ms: 30 * MINUTE_MS,
            stop_ms: MINUTE_MS,
            paid_stop_ms: 20 * SECOND_MS,
            least_paid_ms: MINUTE_MS,
            drain_ms: 8 * HOUR_MS,
            reactions: None,
        }
    }
}

/// 2026-01-05T00:00:00Z, a Monday.
const START_MS: i64 = 1_767_571_200_000;

impl SimulatedPool {
    /// A pool with a launch config for each offering.
    pub fn new(
        id: &str,
        min_capacity: u64,
        max_capacity: u64,
        offerings: &[Offering],
        timing: &Timing,
    ) -> Result<Self, BadPool> {
        let config = json!({
            "minCapacity": min_capacity,
            "maxCapacity": max_capacity,
            "lifecycle": {"registrationTimeout": timing.registration_ms / SECOND_MS},
        });
        let definition = PoolDefinition {
            provider_id: provider_id()?,
            further_provider_ids: Vec::new(),
            description: String::new(),
            config: object(config),
            owner: "simulation@localhost".to_owned(),
            email_on_error: false,
        };
        let id: PoolId = id.parse()?;
        let pool = Pool::new(id, definition, timing.start);
        let configs = offerings.iter().enumerate().map(|(index, offering)| {
            let config = launch_config(&pool, index, &offering.name, timing.start)?;
            Ok(OfferedConfig::new(&pool, config, index))
        });
        Ok(Self {
            launch_configs: configs.collect::<Result<_, BadPool>>()?,
            pool,
        })
    }

    pub(crate) fn settings(&self) -> Result<Settings, BadPool> {
        let settings = Settings::parse(&self.pool.definition.config);
        settings.map_err(|error| BadPool::Settings {
            pool: self.pool.id.to_string(),
            error,
        })
    }
}

impl OfferedConfig {
    /// The capacity of its machines is that of the launch config.
    pub fn new(pool: &Pool, config: LaunchConfig, offering: usize) -> Self {
        let mut offered = Self {
            config: Arc::new(config),
            offering,
            capacity: 1,
            idle_hold_ms: None,
            registration_ms: None,
        };
        offered.capacity = offered.offer(pool).capacity_each;
        offered
    }

    /// The launch config as an offer without history.
    pub(crate) fn offer(&self, pool: &Pool) -> Offer {
        let bid = Ok(Bid::plain(String::new()));
        let provider_id = self.config.provider_id(pool);
        Offer::of(&self.config, provider_id, 0, Health::default(), bid)
    }
}

pub(crate) fn provider_id() -> Result<ProviderId, BadId> {
    PROVIDER.parse()
}

fn launch_config(
    pool: &Pool,
    index: usize,
    name: &str,
    now: Timestamp,
) -> Result<LaunchConfig, BadId> {
    let mut configuration = object(json!({"offering": name}));
    set_id(&mut configuration, &name.parse()?);
    Ok(LaunchConfig {
        pool_id: pool.id.clone(),
        id: id_of(&pool.id, &configuration)?,
        archived: false,
        position: u32::try_from(index).unwrap_or(u32::MAX),
        configuration,
        created: now,
        last_modified: now,
        version: Version::FIRST,
    })
}

fn object(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(object) => object,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    }
}
