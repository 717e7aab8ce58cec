//! The simulated fleet: workers, and the waiting tasks of each pool.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use domain::worker::WorkerState;

use crate::scenario::Scenario;

/// All workers and pools. Planners read it; only the world changes it.
#[derive(Clone, Debug)]
pub struct Fleet {
    /// Every worker that was ever launched, in the order of the launches.
    pub workers: Vec<SimulatedWorker>,
    pub pools: Vec<PoolState>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedWorker {
    /// The index of its pool.
    pub pool: usize,
    /// The index of its launch config within the pool.
    pub config: usize,
    /// The index of its offering.
    pub offering: usize,
    /// How many tasks it runs at the same time.
    pub capacity: u32,
    pub state: WorkerState,
    /// It stops when it is next idle, or when it next asks.
    pub asked_to_stop: bool,
    /// It takes tasks until it asks whether it should stop.
    pub stops_when_it_asks: bool,
    pub launched_ms: i64,
    pub registered_ms: Option<i64>,
    /// Since when it has had no task. Meaningful while it has none.
    pub idle_since_ms: i64,
    /// When it began to stop, was taken back or failed.
    pub ended_ms: Option<i64>,
    /// How long it was paid for, and the price. `None`: it still exists, or it failed after its
    /// launch, which costs nothing.
    pub bill: Option<Bill>,
    /// The tasks that it runs, by their indexes.
    pub tasks: Vec<usize>,
    /// When it started its last task.
    pub last_start_ms: Option<i64>,
    /// The durations of the tasks that it finished.
    pub useful_ms: i64,
    /// Grows with each idle time, so that events of an earlier one are recognised.
    pub(crate) idle_count: u32,
    /// It is the n-th machine of its offering, from 0.
    pub(crate) number: u64,
}

/// The payment for one machine.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bill {
    pub until_ms: i64,
    pub dollars: f64,
}

/// The queue and the counts of one pool.
#[derive(Clone, Debug, Default)]
pub struct PoolState {
    /// The waiting tasks by their indexes, the next one first.
    pub(crate) pending: VecDeque<usize>,
    /// Workers with room for a task, longest idle first, with their idle counts. May contain
    /// entries of earlier idle times.
    pub(crate) idle: VecDeque<(usize, u32)>,
    /// The workers that exist, by their indexes.
    pub live: BTreeSet<usize>,
    /// When each task that runs was started, by its index.
    pub claims: BTreeMap<usize, i64>,
    /// Tasks that wait for a task that runs, by the number of that task.
    pub announced: BTreeMap<usize, AnnouncedTasks>,
    /// The machines of each launch config.
    pub machines: Vec<MachineCounts>,
    /// Grows with each change of the counts of machines.
    pub n_changes: u64,
}

/// Tasks of a pool that will be created when a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AnnouncedTasks {
    /// When the run was claimed.
    pub since_ms: i64,
    /// The index of the pool whose worker runs it.
    pub run_by: usize,
    pub count: u64,
}

/// How many machines of one launch config are in each state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MachineCounts {
    pub requested: u64,
    pub running: u64,
    /// Running, but asked to stop.
    pub draining: u64,
    pub stopping: u64,
}

impl SimulatedWorker {
    pub fn is_idle(&self) -> bool {
        self.state == WorkerState::Running && self.tasks.is_empty()
    }

    fn has_room(&self) -> bool {
        self.state == WorkerState::Running
            && (!self.asked_to_stop || self.stops_when_it_asks)
            && self.tasks.len() < self.capacity as usize
    }
}

impl MachineCounts {
    /// All machines, with those that stop.
    pub fn all(&self) -> u64 {
        self.requested + self.running + self.draining + self.stopping
    }

    fn place(&mut self, worker: &SimulatedWorker) -> Option<&mut u64> {
        match (worker.state, worker.asked_to_stop) {
            (WorkerState::Requested, _) => Some(&mut self.requested),
            (WorkerState::Running, false) => Some(&mut self.running),
            (WorkerState::Running, true) => Some(&mut self.draining),
            (WorkerState::Stopping, _) => Some(&mut self.stopping),
            (WorkerState::Stopped, _) => None,
        }
    }
}

impl PoolState {
    pub fn n_pending(&self) -> u64 {
        self.pending.len() as u64
    }

    /// How many tasks run.
    pub fn n_claimed(&self) -> u64 {
        self.claims.len() as u64
    }

    /// The units of machines, of which each launch config has a number.
    pub fn units(&self, capacities: &[u32], count: impl Fn(&MachineCounts) -> u64) -> u64 {
        let counts = self.machines.iter().zip(capacities);
        let units = counts.map(|(machines, capacity)| count(machines) * u64::from(*capacity));
        units.sum()
    }
}

impl Fleet {
    pub(crate) fn new(scenario: &Scenario) -> Self {
        let pools = scenario.pools.iter().map(|pool| PoolState {
            machines: vec![MachineCounts::default(); pool.launch_configs.len()],
            ..PoolState::default()
        });
        Self {
            workers: Vec::new(),
            pools: pools.collect(),
        }
    }

    /// The idle workers of a pool, longest idle first.
    pub fn idle_workers(&self, pool: usize) -> impl Iterator<Item = usize> {
        let entries = self.pools[pool].idle.iter();
        let idle = entries.filter(|(index, count)| {
            let worker = &self.workers[*index];
            worker.idle_count == *count && worker.is_idle()
        });
        idle.map(|(index, _)| *index)
    }

    /// Adds a machine that was just launched.
    pub(crate) fn add(&mut self, worker: SimulatedWorker) -> usize {
        let index = self.workers.len();
        let pool = &mut self.pools[worker.pool];
        pool.live.insert(index);
        if let Some(count) = pool.machines[worker.config].place(&worker) {
            *count += 1;
        }
        pool.n_changes += 1;
        self.workers.push(worker);
        index
    }

    /// Changes the state of a worker, or whether it was asked to stop, and the counts with it.
    pub(crate) fn change(&mut self, index: usize, state: WorkerState, asked_to_stop: bool) {
        let worker = &mut self.workers[index];
        let pool = &mut self.pools[worker.pool];
        let machines = &mut pool.machines[worker.config];
        if let Some(count) = machines.place(worker) {
            *count -= 1;
        }
        (worker.state, worker.asked_to_stop) = (state, asked_to_stop);
        if let Some(count) = machines.place(worker) {
            *count += 1;
        }
        pool.n_changes += 1;
        if state == WorkerState::Stopped {
            pool.live.remove(&index);
        }
    }

    /// Takes the worker that has waited longest for a task of the pool.
    pub(crate) fn take_idle(&mut self, pool: usize) -> Option<usize> {
        let idle = &mut self.pools[pool].idle;
        while let Some((index, count)) = idle.pop_front() {
            let worker = &self.workers[index];
            if worker.idle_count == count && worker.has_room() {
                return Some(index);
            }
        }
        None
    }

    /// Makes a worker wait for tasks.
    pub(crate) fn await_tasks(&mut self, index: usize) {
        let worker = &mut self.workers[index];
        worker.idle_count += 1;
        let entry = (index, worker.idle_count);
        self.pools[worker.pool].idle.push_back(entry);
    }

    /// Whether a worker has room for a further task.
    pub(crate) fn has_room(&self, index: usize) -> bool {
        self.workers[index].has_room()
    }
}
