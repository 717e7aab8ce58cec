//! Planners: what decides about a simulated fleet.

mod production;
mod taskcluster;

use std::ops::Range;

use domain::launch::Cause;
use domain::time::Timestamp;

pub use production::Production;
pub use taskcluster::{Accounting, Taskcluster};

use crate::fleet::Fleet;
use crate::scenario::{BadPool, Scenario};

/// Decides how many machines are launched, from which offerings, and which workers stop.
///
/// It sees the fleet and the prices. It learns about the clouds only from what happens.
pub trait Planner {
    /// Learns of something that has just happened.
    fn observe(&mut self, _view: &View<'_>, _observation: &Observation) {}

    /// Decides at a tick. Round 0 is the first decision of a tick. If launches were refused, the
    /// next round follows at once.
    fn plan(&mut self, view: &View<'_>, round: usize, decision: &mut Decision);

    /// Decides about one pool, to which something has happened since the last tick.
    fn plan_pool(&mut self, view: &View<'_>, _pool: usize, decision: &mut Decision) {
        self.plan(view, 1, decision);
    }

    /// Decides at a scan.
    fn scan(&mut self, _view: &View<'_>, _decision: &mut Decision) {}

    /// Whether a worker stops that has been idle for the idle time, and asks.
    fn should_stop(&mut self, _view: &View<'_>, _worker: usize) -> bool {
        false
    }
}

/// The part of the world that a planner sees.
#[derive(Clone, Copy)]
pub struct View<'a> {
    /// Milliseconds since the start of the simulation.
    pub at_ms: i64,
    pub fleet: &'a Fleet,
    scenario: &'a Scenario,
}

/// Something that has just happened. Workers, pools and launch configs are named by their indexes.
#[derive(Clone, Debug, PartialEq)]
pub enum Observation {
    /// A task was created.
    Arrived {
        pool: usize,
    },
    /// A worker has started a task.
    Started {
        worker: usize,
        task: usize,
    },
    /// A worker has finished a task.
    Finished {
        worker: usize,
        duration_ms: i64,
    },
    Registered {
        worker: usize,
    },
    /// The cloud answered a launch.
    Answered {
        pool: usize,
        config: usize,
        /// How many machines were wanted.
        machines: u32,
        /// The new workers.
        made: Range<usize>,
        /// Why it made fewer than were wanted.
        refusal: Option<Cause>,
    },
    /// A machine failed shortly after its launch had been accepted.
    FailedLater {
        worker: usize,
    },
    /// A machine was stopped because it had not registered for too long.
    NeverRegistered {
        worker: usize,
    },
    /// The cloud took a machine back. Its tasks wait again.
    Interrupted {
        worker: usize,
        was_asked_to_stop: bool,
    },
    /// A stopping machine has ended.
    Ended {
        worker: usize,
    },
}

/// The actions after a plan or a scan, in this order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Decision {
    pub advice: Vec<WorkerAdvice>,
    pub launches: Vec<LaunchOrder>,
}

/// Asks a worker to stop when it is next idle, or to stay. A machine that has not registered stops
/// at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerAdvice {
    pub worker: usize,
    pub stop: bool,
}

/// Starts this many machines of a launch config of a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaunchOrder {
    pub pool: usize,
    pub config: usize,
    pub machines: u32,
}

impl<'a> View<'a> {
    pub(crate) fn new(at_ms: i64, fleet: &'a Fleet, scenario: &'a Scenario) -> Self {
        Self {
            at_ms,
            fleet,
            scenario,
        }
    }

    pub fn now(&self) -> Timestamp {
        self.scenario.timing.start.plus_millis(self.at_ms)
    }

    /// The offering of a launch config.
    pub fn offering(&self, pool: usize, config: usize) -> usize {
        self.scenario.pools[pool].launch_configs[config].offering
    }

    /// Dollars per machine and hour now.
    pub fn price(&self, offering: usize) -> f64 {
        self.scenario.offerings[offering].price.at(self.at_ms)
    }

    /// The share of machines that register, as the cloud says.
    pub fn promised_reliability(&self, offering: usize) -> Option<f64> {
        self.scenario.offerings[offering].promised_reliability
    }
}
