//! What the harness remembers of its world.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::id::{PoolId, WorkerKey};
use domain::launch::{Cause, Launch};
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::Worker;
use serde_json::Value;

use crate::ask::Who;
use crate::picture::Picture;

#[derive(Default)]
pub(crate) struct State {
    /// What happened, for whoever must find out why it went wrong.
    pub(crate) trace: Vec<String>,
    pub(crate) problems: Vec<String>,
    /// The pools as they were last asked for; `None`: deleted.
    pub(crate) pools: BTreeMap<&'static str, Option<Value>>,
    pub(crate) tasks: Vec<String>,
    pub(crate) workers: Vec<SimulatedWorker>,
    /// Machines of others, each with the cloud that it is in.
    pub(crate) foreign: Vec<(usize, WorkerKey)>,
    /// Launches that were carried out and may be so once more.
    pub(crate) carried_out: Vec<(Pool, Vec<(Launch, Arc<LaunchConfig>)>)>,
    /// Whoever was given credentials for a proof.
    pub(crate) registered: BTreeSet<WorkerKey>,
    /// When who last claimed work and was not told to go.
    pub(crate) active: BTreeMap<WorkerKey, Timestamp>,
    /// The last event that was heard.
    pub(crate) place: i64,
    /// What was told of each worker, by its place in the order of such events.
    pub(crate) told: BTreeMap<WorkerKey, Vec<usize>>,
    /// Every worker that there ever was, as it was last seen.
    pub(crate) rows: BTreeMap<WorkerKey, Worker>,
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
    /// What an outside queue has said since the last check: the most tasks that wait, by pool.
    pub(crate) said: BTreeMap<PoolId, u64>,
    /// What the last check saw.
    pub(crate) before: Option<Picture>,
}

/// The program on a machine.
#[derive(Clone)]
pub(crate) struct SimulatedWorker {
    pub(crate) cloud: usize,
    pub(crate) key: WorkerKey,
    pub(crate) credentials: Option<Who>,
    /// What it works on.
    pub(crate) claims: Vec<Value>,
    /// Does nothing (any more), though its machine is there.
    pub(crate) is_silent: bool,
    /// Was refused so often.
    pub(crate) n_refused: u32,
}
