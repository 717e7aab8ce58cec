//! Waits: causes and accounts.
//!
//! A pool has a timeline of causes, written when a decision changes the cause. The wait of a run is
//! its own interval, cut at the boundaries of that timeline. So each millisecond has exactly one
//! cause, and nothing is written for a task while it waits.

mod account;
mod cut;
mod length;
mod message;

pub use account::{
    AccountKey, AccountSum, Accounts, ChargedCause, Grouping, TaskWaits, Waits, charge, charges,
};
pub use cut::{Boundary, LATE_MS, MachineTimes, PlannerGap, RunWait, WaitPart, cut};
pub use length::{length, percent};
pub use message::{BadWait, EndedWait, WAIT_EXCHANGES};

use crate::id::names;

/// Why a task waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WaitCause {
    /// Tasks that it depends on have not ended.
    Dependencies,
    /// The queue has no worker pool.
    UnknownQueue,
    /// The planner has not decided yet.
    Deciding,
    /// The planner is later than it should be: no server planned, or it could not.
    PlannerLate,
    /// The cloud was asked for a machine and has not answered.
    Asked,
    /// A machine starts.
    Booting,
    /// A worker is there and has not asked for work yet.
    Claim,
    /// The workers are busy, and the settings of the pool start no further one.
    Busy,
    /// The pool, or all its launch configs or providers, are at their maximum.
    Maximum,
    /// An override pauses all that could be launched.
    Paused,
    /// A budget is spent.
    Budget,
    /// A quota of the provider is used up.
    Quota,
    /// Every launch config is refused.
    Refused,
    /// No bid is under the maximum price.
    Price,
    /// The provider is out of service.
    OutOfService,
    /// The pool has no launch config that can be used.
    NoLaunchConfig,
    /// Workers exist and do not ask for work.
    Silent,
    /// Workers are quarantined.
    Quarantined,
    /// The record of this time is missing.
    Unrecorded,
}

names! {
    WaitCause, "not a cause of waits",
    Dependencies = "dependencies",
    UnknownQueue = "unknown-queue",
    Deciding = "deciding",
    PlannerLate = "planner-late",
    Asked = "asked",
    Booting = "booting",
    Claim = "claim",
    Busy = "busy",
    Maximum = "maximum",
    Paused = "paused",
    Budget = "budget",
    Quota = "quota",
    Refused = "refused",
    Price = "price",
    OutOfService = "out-of-service",
    NoLaunchConfig = "no-launch-config",
    Silent = "silent",
    Quarantined = "quarantined",
    Unrecorded = "unrecorded",
}

impl WaitCause {
    /// The cause for people, in a table.
    pub fn label(self) -> &'static str {
        match self {
            Self::Dependencies => "dependencies",
            Self::UnknownQueue => "unknown queue",
            Self::Deciding => "decision",
            Self::PlannerLate => "planner late",
            Self::Asked => "asked the cloud",
            Self::Booting => "booting",
            Self::Claim => "waiting for a claim",
            Self::Busy => "workers busy",
            Self::Maximum => "limit of the pool",
            Self::Paused => "paused",
            Self::Budget => "budget",
            Self::Quota => "quota",
            Self::Refused => "launches refused",
            Self::Price => "no bid under the price",
            Self::OutOfService => "provider out of service",
            Self::NoLaunchConfig => "no launch config",
            Self::Silent => "workers silent",
            Self::Quarantined => "workers quarantined",
            Self::Unrecorded => "not recorded",
        }
    }
}
