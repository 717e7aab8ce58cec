//! The harness's record of its world.

use std::collections::{BTreeMap, BTreeSet};

use domain::budgets::MoneyBudget;
use domain::id::{PoolId, WorkerKey};
use domain::launch::Cause;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::Worker;
use engine::fleet::PlannedLaunch;
use serde_json::Value;

use crate::ask::Who;
use crate::clocks::SeenTimes;
use crate::costs::SeenRun;
use crate::picture::Picture;

#[derive(Default)]
pub(crate) struct State {
    /// The trace of events, for the analysis of a failure.
    pub(crate) trace: Vec<String>,
    pub(crate) problems: Vec<String>,
    /// The pools as they were last asked for; `None`: deleted.
    pub(crate) pools: BTreeMap<&'static str, Option<Value>>,
    pub(crate) tasks: Vec<String>,
    pub(crate) workers: Vec<SimulatedWorker>,
    /// Machines of others, each with the cloud that it is in.
    pub(crate) foreign: Vec<(usize, WorkerKey)>,
    /// Launches that were carried out and may be so once more.
    pub(crate) carried_out: Vec<(Pool, Vec<PlannedLaunch>)>,
    /// The workers that got credentials for a proof.
    pub(crate) registered: BTreeSet<WorkerKey>,
    /// The last claims of workers that were not asked to stop.
    pub(crate) active: BTreeMap<WorkerKey, Timestamp>,
    /// The position of the last event that was read.
    pub(crate) place: i64,
    /// The published events of each worker, by their place in the order of such events.
    pub(crate) told: BTreeMap<WorkerKey, Vec<usize>>,
    /// Every worker that ever existed, in its last state.
    pub(crate) rows: BTreeMap<WorkerKey, Worker>,
    /// The runs that have ended, as the queue knows them.
    pub(crate) runs: BTreeMap<(String, usize), SeenRun>,
    /// The times of runs, for I21.
    pub(crate) times: SeenTimes,
    /// A process was frozen, or soon will be.
    pub(crate) has_frozen: bool,
    /// Nothing can be inserted into the database.
    pub(crate) is_full: bool,
    /// Of each cloud: why it refuses every launch now.
    pub(crate) refusing: [Option<Cause>; 2],
    /// Of each cloud: the region that answers nothing now.
    pub(crate) hung: [Option<&'static str>; 2],
    /// The latest moment at which clocks were set.
    pub(crate) latest: Option<Timestamp>,
    /// The answers of an outside queue since the last check: the maximum of pending tasks, by pool.
    pub(crate) said: BTreeMap<PoolId, u64>,
    /// The budgets as measured at the last check.
    pub(crate) budgets: Vec<MoneyBudget>,
    /// The picture of the last check.
    pub(crate) before: Option<Picture>,
}

/// The program on a machine.
#[derive(Clone)]
pub(crate) struct SimulatedWorker {
    pub(crate) cloud: usize,
    pub(crate) key: WorkerKey,
    pub(crate) credentials: Option<Who>,
    /// Its claims.
    pub(crate) claims: Vec<Value>,
    /// Does nothing (any more), although its machine runs.
    pub(crate) is_silent: bool,
    /// The number of refusals.
    pub(crate) n_refused: u32,
}
