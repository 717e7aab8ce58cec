//! Planning: from a snapshot of one pool to the launches and the advice, with reasons.
//!
//! Pure: time and randomness are parameters, so the live loop, `explain`, simulations and tests
//! decide alike. Executing a plan leaves no choices.
//!
//! A plan decides who stays (`advice`), then how much is missing (`need`), then where it comes from
//! (`choose`). It takes time in proportion to offers and candidates (these are sorted once). Each
//! of the machines launched, at most [`MAX_MACHINES`], costs one pass over the offers.

mod advice;
mod award;
mod bid;
mod canary;
mod checked_bids;
mod choose;
mod cover;
mod health;
mod input;
mod learned;
mod money;
mod need;
mod notes;
mod offer;
mod offer_rows;
mod pause;
mod proposal;
mod service_request;
mod settings;
mod shadow;
mod shadow_opinion;
mod shadow_sums;
pub mod spot_bids;
pub mod spot_prices;
mod stored;
mod strategy;
mod strategy_choice;
mod text;
mod usability;
mod wait;
mod weight;

use std::collections::BTreeMap;

use rand::Rng;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

pub use advice::{
    MAX_ADVICE, MAX_QUARANTINE_MS, REASON_ARCHIVED, REASON_EXTERNAL, REASON_LEFT, REASON_NEEDED,
    REASON_OVER_CAPACITY, REASON_OVER_SHARE, REASON_QUARANTINED,
};
pub use award::MAX_LAUNCHED;
pub use bid::{
    Bid, BidRequest, Bids, MAX_BIDS, MAX_CAPACITY_EACH, MAX_PRICE, MAX_READY_MS, MAX_UTILITY,
    PAUSED, check_price, is_out_of_service, out_of_service,
};
pub use canary::{CanaryOffer, CanaryRoom};
pub use checked_bids::separate_bids;
pub use health::{FIRST_CLAIM_MS, LOST_ANSWER_MS, START_UP_MS};
pub use input::{BadInput, Input, MAX_PACKED_BYTES};
pub use need::Load;
pub(crate) use need::OVER_SHARE;
pub use offer_rows::OfferRow;
pub use pause::{LONGEST_PAUSE_MS, Refusals, first_pause_ms};
pub use proposal::{
    MAX_ANSWER_AGE_MS, MAX_REASON_CHARS, MAX_SERVICE_REASONS, Proposal, ProposedLaunch,
    ProposedStop, ServiceAnswer,
};
pub use service_request::MAX_LISTED_WORKERS;
pub use settings::{BadSettings, ExternalStrategy, NO_MAX_PRICE};
pub use shadow::{OfferKnowledge, Shadow, ShadowPlan};
pub use shadow_opinion::{Agreement, Comparison, LaunchedUnits, Opinion};
pub use shadow_sums::{ComparisonSums, OpinionSums};
pub use stored::BadDocument;
pub use strategy::MAX_TRIED;
pub use strategy_choice::{
    PLANNING_KEYS, StrategyChoice, StrategyDefaults, has_planning_keys, remove_planning_keys,
};
pub use usability::Usability;
pub use wait::{BlockedOffer, PoolWait};
pub use weight::{OfferWeight, weights};

use crate::budgets::BudgetRoom;
use crate::demand::Demand;
use crate::id::{LaunchConfigId, PoolId, ProviderId, WorkerKey};
use crate::market::{Announced, OfferingId, OfferingMemory, PoolNews};
use crate::time::Timestamp;
use crate::worker::Advice;

/// Maximum number of machines that one plan starts; the next plan starts more.
pub const MAX_MACHINES: u64 = 1_000;

/// All inputs of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Snapshot {
    pub now: Timestamp,
    pub pool_id: PoolId,
    /// The pool's providers, in their order.
    pub sources: Vec<Source>,
    pub settings: Settings,
    pub demand: Demand,
    pub capacity: Capacity,
    /// The active launch configs, in the pool's order.
    pub offers: Vec<Offer>,
    /// The effects of overrides on this pool, for people; settings and bids already include them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub overrides: Vec<String>,
    /// The money that budgets leave; bids and settings include refusals and lowered maxima already.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub budgets: Vec<BudgetRoom>,
    /// The maximum of the pool that budgets lowered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lowered_from: Option<u64>,
    /// The memory of the pool's tasks, for the strategy `balanced`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned: Option<PoolNews>,
    /// Tasks that wait for tasks that run, if the pool looks ahead.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub announced: Vec<Announced>,
    /// How many tasks have been running for an ordinary time, see [`PoolNews::ordinary_since`].
    /// `None`: the queue of another deployment does not say when runs were claimed, or no plan
    /// needs to know.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ordinary_runs: Option<u64>,
    /// Other pools that want machines of an offering whose quota is used up.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub rivals: Vec<Rival>,
    /// The answer of the pool's strategy service, for the strategy `external`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<ServiceAnswer>,
    /// Running workers whose advice may change. May be empty when no worker is asked to stop and
    /// none is surplus.
    pub workers: Vec<Candidate>,
    /// The input of the pool's shadow; the plan does not read it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Box<Shadow>>,
}

/// Another pool that competes for quotas.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Rival {
    /// Units that its waiting and running tasks need.
    pub demand: u64,
    /// Units that it has, running or to come.
    pub held: u64,
    /// Those of them that use a quota for which both pools compete, by the offering of the quota.
    pub quotas: BTreeMap<OfferingId, u64>,
}

/// A provider of the pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Source {
    pub provider_id: ProviderId,
    /// How many further machines it accepts, for all pools together; `None` is no limit.
    pub room: Option<u64>,
}

/// The settings of the pool's author.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Settings {
    /// If it is above the maximum, the maximum counts.
    pub min_capacity: u64,
    pub max_capacity: u64,
    /// Its meaning depends on the strategy, see [`StrategyName`].
    pub scaling_ratio: f64,
    /// For the strategy `balanced`: the pool gives no ratio, so it follows from what was learned.
    #[serde(default)]
    pub learns_ratio: bool,
    /// Dollars that an hour of waiting of one task costs, for the strategy `balanced`.
    #[serde(default = "settings::usual_wait_price")]
    pub wait_price: f64,
    /// For the strategy `balanced`: plans count on tasks that are announced, and on tasks that are
    /// predicted from earlier days.
    #[serde(default)]
    pub foresight: bool,
    pub strategy: StrategyName,
    /// Dollars per hour and unit of utility, for the strategy `aws-provisioner`.
    pub min_price: f64,
    pub max_price: f64,
    /// For the strategy `aws-provisioner`: bid exactly as the original does, with its defects (see
    /// [`spot_bids`]).
    pub literal: bool,
    /// For the strategy `external`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalStrategy>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StrategyName {
    /// Like Taskcluster's worker-manager. The scaling ratio is the share of waiting tasks for which
    /// workers are started: 1 starts a unit for each, 0.5 a unit for every second, 0 none. Coming
    /// capacity is subtracted from that, once.
    Weighted,
    /// As in RFC 124. The scaling ratio is the share of running units for which tasks may wait: 0
    /// lets none wait, 0.2 lets one task wait for five running units, a negative ratio keeps idle
    /// capacity.
    AwsProvisioner,
    /// The cheapest way to short waits, by what was learned about offerings and tasks (see
    /// [`crate::market`]). The scaling ratio, if the pool sets one, is the share of waiting tasks
    /// for which workers are started.
    Balanced,
    /// As a service of the operator answers (RFC 124). Without a valid answer, the pool's fallback
    /// strategy decides. All other settings are those of the fallback.
    External,
}

/// The pool's capacity units by kind. Each unit counts once (except `fresh`, a part of `running`).
/// For a worker that is quarantined, asked to stop and silent, the first of these counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Capacity {
    /// Running, asking for work, and neither quarantined nor asked to stop.
    pub running: u64,
    /// Of these, units of workers that registered recently and had no task yet (see
    /// [`crate::supply`]).
    #[serde(default)]
    pub fresh: u64,
    /// Running, but asked to stop when next idle: no supply.
    pub draining: u64,
    /// Running, but quarantined: no supply.
    pub quarantined: u64,
    /// Running, but silent: they do not ask for work, so they are no supply (see
    /// [`crate::supply`]).
    #[serde(default)]
    pub silent: u64,
    /// Made, not registered yet, and still expected to register.
    pub requested: u64,
    /// Requested or made more than [`START_UP_MS`] ago and not registered; or of a launch whose
    /// answer was lost more than [`LOST_ANSWER_MS`] ago; or from a provider that the pool no longer
    /// uses or an archived launch config, so that it stops when it registers: no supply.
    #[serde(default)]
    pub overdue: u64,
    /// Launches whose answer is not known yet but still expected.
    pub intended: u64,
    pub stopping: u64,
}

/// An active launch config with its recent launches and one of its bids. A launch config has an
/// offer for each bid, next to each other in the order of the bids.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Offer {
    pub launch_config_id: LaunchConfigId,
    /// One of the pool's providers.
    pub provider_id: ProviderId,
    /// The number of the bid among those for the launch config, from 0.
    #[serde(default, skip_serializing_if = "is_first")]
    pub bid_number: u32,
    /// How many tasks one machine runs at a time; at least 1.
    pub capacity_each: u32,
    /// Its weight among the launch configs; 0 is never launched automatically.
    pub initial_weight: f64,
    /// The maximum of this launch config; `None` leaves it to the pool's maximum.
    pub max_capacity: Option<u64>,
    /// The launch config's units that are not stopped, with those requested, and with those of
    /// canaries beside it.
    pub live: u64,
    /// Its units that run or are to come. If the launch config has several bids, those of this one.
    #[serde(default)]
    pub held: u64,
    /// Its machines that are starting, with those requested. If the launch config has several bids,
    /// those of this one.
    #[serde(default)]
    pub starting: u64,
    /// Units of machines that have been starting for longer than expected, so that they are not
    /// counted on.
    #[serde(default)]
    pub late: u64,
    pub health: Health,
    #[serde(default)]
    pub tries: Tries,
    /// The memory of its offering.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory: Option<OfferingMemory>,
    /// It gets a share of the machines of another launch config, and no others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub canary: Option<CanaryOffer>,
    /// The provider's bid. `Err`: it cannot bid now, with the reason.
    pub bid: Result<Bid, String>,
}

/// The results of launches, in machines: launches with news in the last hour, or with machines
/// still missing. Launches that were withdrawn, or refused for reasons that do not count against
/// the launch config, are no attempts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Health {
    pub attempted: u64,
    /// Refused for reasons that count against the launch config.
    pub failed: u64,
    /// Refused for a quota. They are no attempts and make nothing ill, but lower the share (RFC
    /// 191).
    #[serde(default)]
    pub quota: u64,
    /// Not made, by launches that made other machines.
    #[serde(default)]
    pub short: u64,
    /// Made.
    pub created: u64,
    /// Made and registered.
    pub registered: u64,
    /// Ended without having registered.
    pub never_registered: u64,
    /// Made more than [`START_UP_MS`] ago, and not registered yet.
    #[serde(default)]
    pub overdue: u64,
    /// Registered more than [`FIRST_CLAIM_MS`] ago, and never asked for work. With an outside queue
    /// it is known only while claims of the pool are heard.
    #[serde(default)]
    pub silent: u64,
    /// When the last failure of either kind was.
    pub last_failure: Option<Timestamp>,
    /// Workers that reported errors, each once.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub reporters: u64,
    /// Live machines, of which these are.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub machines: u64,
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// When the launches of the last hour were, and how they failed. Unknown values may be omitted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Tries {
    pub refusals: Option<Refusals>,
    /// Plans whose machines did not register or did not work; all failures of one plan count once.
    #[serde(default)]
    pub plans_without_workers: u64,
    /// The newest launch for which a provider was asked.
    pub last: Option<Timestamp>,
}

/// A running worker that may be asked to stop.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Candidate {
    pub key: WorkerKey,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub launch_config_id: Option<LaunchConfigId>,
    /// The offering of its machine, if its launch config has several bids.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub offering: Option<OfferingId>,
    pub capacity: u32,
    pub created: Timestamp,
    /// Its launch config is archived.
    pub archived: bool,
    /// Its provider is no longer used by the pool.
    pub deprovisioned: bool,
    /// How many tasks it has now.
    #[serde(alias = "busy", deserialize_with = "stored::number_of_tasks")]
    pub claimed: u64,
    /// It does not ask for work.
    #[serde(default)]
    pub silent: bool,
    /// Since when it has had no task (or since it registered).
    pub idle_since: Timestamp,
    /// How long it must be idle before it can be asked to stop as surplus.
    pub idle_hold_ms: i64,
    pub quarantined_since: Option<Timestamp>,
    /// The last advice that it was given.
    pub advice: Option<Advice>,
    /// Dollars per hour for the machine, as agreed at its launch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
}

/// One decision for one pool.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Plan {
    /// Capacity units that the strategy wants to add; may be a fraction, or negative.
    pub change: f64,
    /// The capacity wanted in total: the measure for stopping workers.
    pub target: f64,
    pub awards: Vec<Award>,
    /// Only advice that differs from the last advice.
    #[serde(with = "stored::advice_list")]
    pub advice: Vec<(WorkerKey, Advice)>,
    /// In the order of the decisions; each is readable by itself.
    pub reasons: Vec<String>,
    /// A situation that a person should look at.
    pub alarm: Option<String>,
    /// If capacity is missing: when the first pause of a launch config ends and another plan is
    /// useful.
    pub again_at: Option<Timestamp>,
    /// Tasks wait, and no launch config can ever be used for them: the pool's owner must change it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub unserved: bool,
    /// The plan of the pool's shadow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shadow: Option<Box<ShadowPlan>>,
}

/// Start this many machines from a launch config.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Award {
    pub launch_config_id: LaunchConfigId,
    /// The number of the bid that won, see [`Offer::bid_number`].
    #[serde(default, skip_serializing_if = "is_first")]
    pub bid_number: u32,
    /// For people, if the pool has several providers.
    pub provider_id: Option<ProviderId>,
    pub machines: u32,
    pub capacity_each: u32,
    /// Dollars per hour and machine that the provider may charge at most.
    pub max_price: Option<f64>,
    /// Dollars per hour and machine: the price of the bid that won.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price: Option<f64>,
    /// The data of the bid that won, for its provider.
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub data: Map<String, Value>,
}

impl Plan {
    /// Whether there is nothing to execute and nothing to publish, whatever the shadow would do.
    pub fn is_idle(&self) -> bool {
        self.awards.is_empty() && self.advice.is_empty() && self.alarm.is_none()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_first(bid_number: &u32) -> bool {
    *bid_number == 0
}

impl Snapshot {
    /// The offer whose machines an award starts, with its index.
    pub fn offer_of(&self, award: &Award) -> Option<(usize, &Offer)> {
        let mut offers = self.offers.iter().enumerate();
        offers.find(|(_, offer)| offer.is_awarded(award))
    }
}

/// Makes a plan. The same snapshot and the same random numbers give the same plan. It has no plan
/// of the shadow: [`Input::plan`] makes both.
pub fn plan(snapshot: &Snapshot, rng: &mut dyn Rng) -> Plan {
    let mut notes = notes::Notes::default();
    snapshot
        .capacity
        .watch(snapshot.settings.max_capacity, &mut notes);
    for line in &snapshot.overrides {
        notes.add(line.clone());
    }
    strategy::note_service(snapshot, &mut notes);
    let mut view = advice::View::of(snapshot);
    snapshot.strategy().let_go(&mut view);
    let change = view.load.change_in(snapshot);
    need::note(snapshot, &view.load, change, &mut notes);
    snapshot.strategy().note_need(snapshot, &mut notes);
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
        shadow: None,
    }
}

impl Capacity {
    /// All units that count against the maximum.
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

    /// Units that will be supply once they have started.
    pub fn coming(&self) -> u64 {
        self.requested.saturating_add(self.intended)
    }

    /// Units that exist and are neither stopping nor quarantined.
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

    /// Whether many more units exist than the maximum: a bug of ours, or the maximum was lowered.
    fn is_alarming(&self, max: u64) -> bool {
        let existing = self.existing();
        // Above 1.25 times the maximum, in integers.
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

/// Up to this many units above the maximum cause no alarm.
const ALARM_ABOVE: u64 = 25;
