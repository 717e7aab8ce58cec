//! Planning: from a snapshot of one pool to what to launch and whom to let go, with reasons.
//!
//! Pure: the moment is in the snapshot and chance is a parameter, so the live loop, `explain`, simulations and
//! tests all decide alike. Executing a plan leaves no choices.
//!
//! First it is settled who stays (`letting_go`), then how much is missing (`need`), then where it comes from
//! (`choose`). It takes time in proportion to offers and candidates (these are sorted once); each of the machines
//! launched, at most [`MAX_MACHINES`], costs one walk over the offers.

mod choose;
mod health;
mod input;
mod letting_go;
mod need;
mod notes;
mod offer;
mod pause;
mod settings;
pub mod spot_bids;
pub mod spot_prices;
mod stored;
mod strategy;
mod text;

use rand::Rng;
use serde::{Deserialize, Serialize};

pub use health::{FIRST_CLAIM_MS, START_UP_MS};
pub use input::{BadInput, Input, MAX_PACKED_BYTES};
pub use letting_go::{
    MAX_ADVICE, MAX_QUARANTINE_MS, REASON_ARCHIVED, REASON_LEFT, REASON_NEEDED,
    REASON_OVER_CAPACITY, REASON_QUARANTINED,
};
pub use need::Load;
pub use pause::{LONGEST_PAUSE_MS, Refusals, first_pause_ms};
pub use settings::{BadSettings, NO_MAX_PRICE};
pub use stored::BadDocument;
pub use strategy::{MAX_TRIED, chances};

use crate::demand::Demand;
use crate::id::{LaunchConfigId, PoolId, ProviderId, WorkerKey};
use crate::time::Timestamp;
use crate::worker::Advice;

/// One plan starts no more machines; the next one goes on.
pub const MAX_MACHINES: u64 = 1_000;

/// Everything that a plan may depend on.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    #[serde(with = "stored::plain")]
    pub now: Timestamp,
    #[serde(with = "stored::plain")]
    pub pool_id: PoolId,
    /// The pool's providers, in their order.
    pub sources: Vec<Source>,
    pub settings: Settings,
    #[serde(with = "stored::DemandShape")]
    pub demand: Demand,
    pub capacity: Capacity,
    /// The active launch configs, in the pool's order.
    pub offers: Vec<Offer>,
    /// What overrides change about this pool now, each readable alone; settings and bids have it in them already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// Running workers that may be told to go, or told so no longer. May be left empty when nobody is told to go
    /// and nobody is too many.
    pub workers: Vec<Candidate>,
}

/// A provider of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    #[serde(with = "stored::plain")]
    pub provider_id: ProviderId,
    /// How many further machines it takes, over all pools; `None`: as many as it likes.
    pub room: Option<u64>,
}

/// What the pool's author asked for.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// A maximum below it counts in its place.
    pub min_capacity: u64,
    pub max_capacity: u64,
    /// What it means depends on the strategy, see [`StrategyName`].
    pub scaling_ratio: f64,
    pub strategy: StrategyName,
    /// Dollars per hour and unit of utility; of the strategy `aws-provisioner`.
    pub min_price: f64,
    pub max_price: f64,
    /// Of the strategy `aws-provisioner`: bid exactly as the original did, with its flaws (see [`spot_bids`]).
    pub literal: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrategyName {
    /// As Taskcluster's worker-manager. The scaling ratio is the share of waiting tasks for which workers are
    /// started: 1 is a unit for each, 0.5 one for two, 0 none. What is coming is subtracted from that, once.
    Weighted,
    /// As RFC 124 has it. The scaling ratio is the share of running units for which tasks may wait: 0 lets none
    /// wait, 0.2 lets one task wait for five running units, a negative one keeps idle capacity ready.
    AwsProvisioner,
}

/// The pool's capacity units by what they are good for. Each unit counts in one place only (but for `fresh`, a part
/// of `running`). Of a worker that is quarantined, told to go and silent, the first of these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Capacity {
    /// Running, asking for work, and neither quarantined nor told to go.
    pub running: u64,
    /// Of these, units of workers that registered a moment ago and had no task yet (see [`crate::supply`]).
    #[serde(default)]
    pub fresh: u64,
    /// Running, but told to go when it is next idle: no supply.
    pub draining: u64,
    /// Running, but quarantined: no supply.
    pub quarantined: u64,
    /// Running, but silent: they do not ask for work, so they are no supply (see [`crate::supply`]).
    #[serde(default)]
    pub silent: u64,
    /// Made, not registered yet, and still expected to.
    pub requested: u64,
    /// Asked for or made more than [`START_UP_MS`] ago and still not registered, or coming from a provider that the
    /// pool has left or from an archived launch config, so that it goes when it registers: no supply.
    #[serde(default)]
    pub overdue: u64,
    /// Launches whose answer is not known yet, and still expected.
    pub intended: u64,
    pub stopping: u64,
}

/// One active launch config, and how it has been doing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offer {
    #[serde(with = "stored::plain")]
    pub launch_config_id: LaunchConfigId,
    /// One of the pool's.
    #[serde(with = "stored::plain")]
    pub provider_id: ProviderId,
    /// How many tasks one machine runs at a time; at least 1.
    pub capacity_each: u32,
    /// How eagerly it is used next to others; 0: never by itself.
    pub initial_weight: f64,
    /// Of this launch config alone; `None` leaves it to the pool's.
    pub max_capacity: Option<u64>,
    /// Its units that are not stopped, with those intended.
    pub live: u64,
    pub health: Health,
    #[serde(default)]
    pub tries: Tries,
    /// What the provider bids. `Err`: it has nothing to say about this one now, and why.
    pub bid: Result<Bid, String>,
}

/// What became of launches, in machines: of all those of which something was heard in the last
/// hour, or that still owe machines. Launches that were withdrawn, or turned away for reasons that
/// do not speak against the launch config, are no attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Health {
    pub attempted: u64,
    /// Refused for reasons that speak against the launch config.
    pub failed: u64,
    /// Not made by launches that made others.
    #[serde(default)]
    pub short: u64,
    /// Made machines.
    pub created: u64,
    /// Proved themselves.
    pub registered: u64,
    /// Ended without ever having proved themselves.
    pub never_registered: u64,
    /// Made more than [`START_UP_MS`] ago, and still not registered.
    #[serde(default)]
    pub overdue: u64,
    /// Registered more than [`FIRST_CLAIM_MS`] ago, and never asked for work. Not known of an
    /// outside queue.
    #[serde(default)]
    pub silent: u64,
    /// When the last failure was, of either kind.
    #[serde(with = "stored::plain_option")]
    pub last_failure: Option<Timestamp>,
}

/// When the launches of the last hour were, and how they failed; whatever is not known may be left
/// out.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tries {
    #[serde(default)]
    pub refusals: Option<Refusals>,
    /// Plans whose machines did not register or did not work: a burst counts once.
    #[serde(default)]
    pub plans_without_workers: u64,
    /// The newest launch of which a provider was asked.
    #[serde(with = "stored::plain_option")]
    pub last: Option<Timestamp>,
}

/// What a provider would give for a launch config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
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

/// A running worker that may be told to go.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Candidate {
    #[serde(with = "stored::worker_key")]
    pub key: WorkerKey,
    pub capacity: u32,
    #[serde(with = "stored::plain")]
    pub created: Timestamp,
    /// Its launch config is archived.
    pub archived: bool,
    /// Its provider is one that the pool has left.
    pub deprovisioned: bool,
    /// How many tasks it has now.
    #[serde(alias = "busy", deserialize_with = "stored::number_of_tasks")]
    pub claimed: u64,
    /// It does not ask for work.
    #[serde(default)]
    pub silent: bool,
    /// Since when it has had none (or since it registered).
    #[serde(with = "stored::plain")]
    pub idle_since: Timestamp,
    /// It is not told to go for being too many before it was idle for so long.
    pub idle_hold_ms: i64,
    #[serde(with = "stored::plain_option")]
    pub quarantined_since: Option<Timestamp>,
    /// What it was told last.
    pub advice: Option<Advice>,
}

/// One tick's decision for one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Units of capacity that the strategy wants more; may be a fraction, or negative.
    pub change: f64,
    /// What it would take to have all wanted: for letting go.
    pub target: f64,
    pub awards: Vec<Award>,
    /// Only what differs from what the workers were told last.
    #[serde(with = "stored::advice_list")]
    pub advice: Vec<(WorkerKey, Advice)>,
    /// In the order of thinking; each readable alone.
    pub reasons: Vec<String>,
    /// Something that a person should look at.
    pub alarm: Option<String>,
    /// Something is missing, and then the first pause of a launch config ends: worth another look.
    #[serde(with = "stored::plain_option", default)]
    pub again_at: Option<Timestamp>,
    /// Tasks wait, and no launch config may ever be used for them: the pool's owner must change it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
}

/// Start so many machines this way.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Award {
    #[serde(with = "stored::plain")]
    pub launch_config_id: LaunchConfigId,
    /// For people, if the pool has several.
    #[serde(with = "stored::plain_option", default)]
    pub provider_id: Option<ProviderId>,
    pub machines: u32,
    pub capacity_each: u32,
    pub max_price: Option<f64>,
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

impl Plan {
    /// Is there nothing to carry out and nothing to tell anybody?
    pub fn is_idle(&self) -> bool {
        self.awards.is_empty() && self.advice.is_empty() && self.alarm.is_none()
    }
}

/// Decides. The same snapshot and the same chance give the same plan.
pub fn plan(snapshot: &Snapshot, rng: &mut dyn Rng) -> Plan {
    let mut notes = notes::Notes::default();
    snapshot
        .capacity
        .watch(snapshot.settings.max_capacity, &mut notes);
    for line in &snapshot.overrides {
        notes.add(line.clone());
    }
    let mut view = letting_go::View::of(snapshot);
    snapshot.settings.strategy.strategy().let_go(&mut view);
    let change = view.load.change(&snapshot.settings);
    need::note(snapshot, &view.load, change, &mut notes);
    let chosen = choose::choose(snapshot, change, &mut notes, rng);
    let advice = view.advice(&mut notes);
    let unserved = notes.is_unserved();
    let (reasons, alarm) = notes.close();
    Plan {
        change,
        target: view.target,
        awards: chosen.awards,
        advice,
        reasons,
        alarm,
        again_at: chosen.again_at,
        unserved,
    }
}

impl Capacity {
    /// Everything that takes room under the maximum.
    pub fn all(&self) -> u64 {
        let parts = [
            self.running,
            self.draining,
            self.quarantined,
            self.silent,
            self.requested,
            self.overdue,
            self.intended,
            self.stopping,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// What will be supply when it has come up.
    pub fn coming(&self) -> u64 {
        self.requested.saturating_add(self.intended)
    }

    /// What exists, as far as it is not on its way out or in somebody's care.
    fn existing(&self) -> u64 {
        let parts = [
            self.running,
            self.draining,
            self.silent,
            self.requested,
            self.overdue,
        ];
        parts.into_iter().fold(0, u64::saturating_add)
    }

    /// Many more units exist than may: a mistake of ours, or the maximum was lowered.
    fn is_alarming(&self, max: u64) -> bool {
        let existing = self.existing();
        // Above 1.25 times the maximum, in whole numbers.
        existing > ALARM_ABOVE && u128::from(existing) * 4 > u128::from(max) * 5
    }

    fn watch(&self, max: u64, notes: &mut notes::Notes) {
        if self.is_alarming(max) {
            let existing = self.existing();
            notes.alarm(format!(
                "{existing} units of capacity exist, and {max} is the maximum: look for workers that do not end"
            ));
        }
    }
}

/// Up to this many units above the maximum are no reason for an alarm.
const ALARM_ABOVE: u64 = 25;
