//! Planning: from a snapshot of one pool to what to launch and whom to let go, with reasons.
//!
//! Pure: the moment is in the snapshot and chance is a parameter, so the live loop, `explain`, simulations and
//! tests all decide alike. Executing a plan leaves no choices.

use crate::demand::Demand;
use crate::id::{LaunchConfigId, PoolId, ProviderId, WorkerKey};
use crate::time::Timestamp;
use crate::worker::Advice;

/// Everything that a plan may depend on.
#[derive(Clone, Debug, PartialEq)]
pub struct Snapshot {
    pub now: Timestamp,
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub settings: Settings,
    pub demand: Demand,
    pub capacity: Capacity,
    /// The active launch configs, in the pool's order.
    pub offers: Vec<Offer>,
    /// How many further machines the provider takes, over all pools; `None`: as many as it likes.
    pub room: Option<u64>,
    /// Running workers that may be told to go, or told so no longer. May be left empty when nobody is told to go
    /// and nobody is too many.
    pub workers: Vec<Candidate>,
}

/// What the pool's author asked for.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    pub min_capacity: u64,
    pub max_capacity: u64,
    pub scaling_ratio: f64,
    pub strategy: StrategyName,
    /// Dollars per hour and unit of utility; of the strategy `aws-provisioner`.
    pub min_price: f64,
    pub max_price: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StrategyName {
    Weighted,
    AwsProvisioner,
}

/// The pool's capacity units by what they are good for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Capacity {
    /// Running, and neither quarantined nor told to go.
    pub running: u64,
    /// Running, but told to go when it is next idle: no supply.
    pub draining: u64,
    /// Running, but quarantined: no supply.
    pub quarantined: u64,
    /// Made, not registered yet.
    pub requested: u64,
    /// Launches whose answer is not known yet.
    pub intended: u64,
    pub stopping: u64,
}

/// One active launch config, and how it has been doing.
#[derive(Clone, Debug, PartialEq)]
pub struct Offer {
    pub launch_config_id: LaunchConfigId,
    /// How many tasks one machine runs at a time; at least 1.
    pub capacity_each: u32,
    pub initial_weight: f64,
    /// Of this launch config alone; `None` leaves it to the pool's.
    pub max_capacity: Option<u64>,
    /// Its units that are not stopped, with those intended.
    pub live: u64,
    pub health: Health,
    /// What the provider bids. `None`: it has nothing to say about this one now, and why.
    pub bid: Result<Bid, String>,
}

/// What became of the launches of the last hour, in machines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Health {
    pub attempted: u64,
    /// Refused for reasons that speak against the launch config.
    pub failed: u64,
    /// Made machines.
    pub created: u64,
    /// Proved themselves.
    pub registered: u64,
    /// Ended without ever having proved themselves.
    pub never_registered: u64,
    /// When the last failure was, of either kind.
    pub last_failure: Option<Timestamp>,
}

/// What a provider would give for a launch config.
#[derive(Clone, Debug, PartialEq)]
pub struct Bid {
    /// Dollars per hour and machine now, if the provider knows.
    pub price: Option<f64>,
    /// How useful a machine is next to others; 1 is usual.
    pub utility: f64,
    /// Where and what, for people: `us-west-2a m5.large spot`.
    pub place: String,
    /// At most so many machines now; `None`: not known.
    pub available: Option<u64>,
}

impl Bid {
    /// The bid of a provider to which every launch config is as good as another.
    pub fn plain(place: String) -> Self {
        Self {
            price: None,
            utility: 1.0,
            place,
            available: None,
        }
    }
}

/// A running worker that may be told to go.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    pub key: WorkerKey,
    pub capacity: u32,
    pub created: Timestamp,
    /// Its launch config is archived.
    pub archived: bool,
    /// Its provider is one that the pool has left.
    pub deprovisioned: bool,
    /// It has a task now.
    pub busy: bool,
    /// Since when it has had none (or since it registered).
    pub idle_since: Timestamp,
    /// It is not told to go for being too many before it was idle for so long.
    pub idle_hold_ms: i64,
    pub quarantined_since: Option<Timestamp>,
    /// What it was told last.
    pub advice: Option<Advice>,
}

/// One tick's decision for one pool.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Units of capacity that the strategy wants more; may be a fraction, or negative.
    pub change: f64,
    /// What it would take to have all wanted: for letting go.
    pub target: f64,
    pub awards: Vec<Award>,
    /// Only what differs from what the workers were told last.
    pub advice: Vec<(WorkerKey, Advice)>,
    /// In the order of thinking; each readable alone.
    pub reasons: Vec<String>,
    /// Something that a person should look at.
    pub alarm: Option<String>,
}

/// Start so many machines this way.
#[derive(Clone, Debug, PartialEq)]
pub struct Award {
    pub launch_config_id: LaunchConfigId,
    pub machines: u32,
    pub capacity_each: u32,
    pub max_price: Option<f64>,
}
