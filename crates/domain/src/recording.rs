//! The recorded history of a fleet, which simulations replay: runs, workers and gaps.

use crate::id::{LaunchConfigId, PoolId, ProviderId, WorkerKey};
use crate::run_outcome::{EndedRun, RunOutcome};
use crate::task::{EndReason, Priority};
use crate::time::Timestamp;
use crate::worker::{Worker, WorkerState};

/// A run that a worker had claimed, and its wait.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedRun {
    pub pool_id: PoolId,
    /// Since when the task waited: also while its earlier runs were lost.
    pub waiting_since: Timestamp,
    pub started: Timestamp,
    pub resolved: Timestamp,
    pub reason: EndReason,
    /// `None`: the queue did not say.
    pub priority: Option<Priority>,
}

/// A worker that a provider had launched and that has stopped, or is stopping.
#[derive(Clone, Debug, PartialEq)]
pub struct RecordedWorker {
    pub key: WorkerKey,
    pub provider_id: ProviderId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub capacity: u32,
    /// Dollars per hour, as agreed at the launch.
    pub price: Option<f64>,
    pub created: Timestamp,
    pub registered: Option<Timestamp>,
    /// When it was first known to stop.
    pub stopping: Option<Timestamp>,
    /// When it was known to have stopped.
    pub stopped: Option<Timestamp>,
    /// The cloud took it back.
    pub is_interrupted: bool,
}

/// A time without a record: no server worked, or its clock was set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedGap {
    pub since: Timestamp,
    pub until: Timestamp,
}

impl RecordedRun {
    /// `None`: it is not known when the run started.
    pub fn of(ended: &EndedRun) -> Option<Self> {
        let RunOutcome {
            worker,
            reason,
            resolved,
            started,
            ..
        } = &ended.outcome;
        let started = (*started)?.min(*resolved);
        Some(Self {
            pool_id: worker.pool_id.clone(),
            waiting_since: ended.waiting_since.unwrap_or(started).min(started),
            started,
            resolved: *resolved,
            reason: *reason,
            priority: ended.priority,
        })
    }
}

impl RecordedWorker {
    /// `None`: nobody launched it, so it is no cost of the fleet.
    pub fn of(worker: &Worker, is_interrupted: bool) -> Option<Self> {
        worker.terms.launch_token.as_ref()?;
        Some(Self {
            key: worker.key.clone(),
            provider_id: worker.provider_id.clone(),
            launch_config_id: worker.launch_config_id.clone(),
            capacity: worker.capacity,
            price: worker.price,
            created: worker.created,
            registered: worker.terms.registered_at.map(Timestamp::from_millis),
            stopping: worker.terms.stopped_at.map(Timestamp::from_millis),
            stopped: (worker.state == WorkerState::Stopped).then_some(worker.last_modified),
            is_interrupted,
        })
    }
}

impl RecordedGap {
    /// A longer time between two looks is a gap.
    pub fn between(last: Timestamp, now: Timestamp, most_ms: i64) -> Option<Self> {
        let passed_ms = now.millis_since(last);
        (!(0..=most_ms).contains(&passed_ms)).then(|| Self {
            since: last.min(now),
            until: last.max(now),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    #[test]
    fn a_long_time_without_a_look_is_a_gap_and_so_is_a_clock_that_was_set_back() {
        let between = |last, now| {
            let gap = RecordedGap::between(at(last), at(now), 100);
            gap.map(|gap| (gap.since.as_millis(), gap.until.as_millis()))
        };
        assert_eq!((between(0, 0), between(0, 100)), (None, None));
        assert_eq!(between(0, 101), Some((0, 101)));
        assert_eq!(between(50, 49), Some((49, 50)));
    }
}
