//! The history of a simulation: all tasks, all workers with their bills, and the launches.

use crate::fleet::SimulatedWorker;
use crate::scenario::{Arrival, Follower};

/// Everything that a simulation leaves.
#[derive(Clone, Debug, PartialEq)]
pub struct History {
    /// The end of the simulation, if tasks were left.
    pub end_ms: i64,
    /// The arrivals in the order of their creation, then the followers.
    pub tasks: Vec<TaskRecord>,
    /// In the order of their launches.
    pub workers: Vec<SimulatedWorker>,
    pub attempts: LaunchAttempts,
    /// Machines that the clouds took back.
    pub n_interrupted: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TaskRecord {
    /// The index of its pool.
    pub pool: usize,
    /// 0 is the highest.
    pub rank: u8,
    pub created_ms: i64,
    pub duration_ms: i64,
    /// The start of its first run.
    pub first_start_ms: Option<i64>,
    pub end_ms: Option<i64>,
    /// How often it was started: again after each interruption.
    pub n_runs: u32,
}

/// When launches were tried, and what came of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaunchAttempts {
    /// The moments at which anything was launched, each once.
    pub tried_ms: Vec<i64>,
    /// By offering: the moments at which it made machines that did not fail at once, each once.
    pub made_ms: Vec<Vec<i64>>,
    /// Machines that were refused.
    pub n_refused: u64,
}

impl TaskRecord {
    pub(crate) fn new(arrival: &Arrival) -> Self {
        Self {
            pool: arrival.pool,
            rank: arrival.rank,
            created_ms: arrival.at_ms,
            duration_ms: arrival.duration_ms,
            first_start_ms: None,
            end_ms: None,
            n_runs: 0,
        }
    }

    /// It is created later, or never.
    pub(crate) fn following(follower: &Follower) -> Self {
        Self {
            pool: follower.pool,
            rank: 0,
            created_ms: i64::MAX,
            duration_ms: follower.duration_ms,
            first_start_ms: None,
            end_ms: None,
            n_runs: 0,
        }
    }
}

impl LaunchAttempts {
    pub(crate) fn new(n_offerings: usize) -> Self {
        Self {
            made_ms: vec![Vec::new(); n_offerings],
            ..Self::default()
        }
    }

    /// Notes a launch. `offering`: it made machines that work.
    pub(crate) fn note(&mut self, at_ms: i64, offering: Option<usize>, n_refused: usize) {
        let add = |times: &mut Vec<i64>| {
            if times.last() != Some(&at_ms) {
                times.push(at_ms);
            }
        };
        add(&mut self.tried_ms);
        if let Some(offering) = offering {
            add(&mut self.made_ms[offering]);
        }
        self.n_refused += n_refused as u64;
    }
}
