//! How many workers a pool has in each state, and their capacity.

use crate::id::PoolId;
use crate::worker::WorkerState;

/// Number of workers and their capacity in one state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StateCount {
    pub count: u64,
    pub capacity: u64,
}

/// The counts of a pool or a launch config, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    pub requested: StateCount,
    pub running: StateCount,
    pub stopping: StateCount,
    pub stopped: StateCount,
}

impl Counts {
    pub fn of(&mut self, state: WorkerState) -> &mut StateCount {
        match state {
            WorkerState::Requested => &mut self.requested,
            WorkerState::Running => &mut self.running,
            WorkerState::Stopping => &mut self.stopping,
            WorkerState::Stopped => &mut self.stopped,
        }
    }

    /// The capacity of every worker that is not stopped.
    pub fn current_capacity(&self) -> u64 {
        self.requested.capacity + self.running.capacity + self.stopping.capacity
    }
}

/// The counts of one pool, out of a list ordered by pool. A pool without workers is not in the
/// list.
pub fn of_pool(by_pool: &[(PoolId, Counts)], id: &PoolId) -> Counts {
    by_pool
        .binary_search_by(|(known, _)| known.cmp(id))
        .map_or_else(|_| Counts::default(), |found| by_pool[found].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stopped_workers_are_no_capacity() {
        let mut counts = Counts::default();
        *counts.of(WorkerState::Requested) = StateCount {
            count: 1,
            capacity: 2,
        };
        *counts.of(WorkerState::Running) = StateCount {
            count: 1,
            capacity: 3,
        };
        *counts.of(WorkerState::Stopping) = StateCount {
            count: 1,
            capacity: 5,
        };
        *counts.of(WorkerState::Stopped) = StateCount {
            count: 1,
            capacity: 7,
        };
        assert_eq!(counts.current_capacity(), 10);
    }

    #[test]
    fn a_pool_without_workers_counts_nothing() {
        let pool = |id: &str| id.parse::<PoolId>().unwrap();
        let mut counts = Counts::default();
        counts.of(WorkerState::Running).count = 3;
        let by_pool = [(pool("a/b"), Counts::default()), (pool("a/c"), counts)];
        assert_eq!(of_pool(&by_pool, &pool("a/c")).running.count, 3);
        assert_eq!(of_pool(&by_pool, &pool("a/d")), Counts::default());
    }
}
