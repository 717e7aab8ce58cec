//! The numbers that Taskcluster's estimator would have for a pool: for metrics under its names.

use crate::counts::Counts;
use crate::demand::Demand;
use crate::plan::Settings;

/// Whatever the strategy of the pool decides. All are units of capacity, or tasks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TaskclusterEstimate {
    /// Requested or running.
    pub existing: u64,
    /// Capacity without a task.
    pub idle: u64,
    /// Tasks that no idle capacity takes.
    pub adjusted_pending: u64,
    /// The capacity that should exist, with the one that is stopping.
    pub desired: f64,
}

impl TaskclusterEstimate {
    pub fn of(settings: &Settings, counts: &Counts, demand: Demand) -> Self {
        let existing = counts.requested.capacity + counts.running.capacity;
        let idle = existing.saturating_sub(demand.claimed);
        let adjusted_pending = demand.pending.saturating_sub(idle);
        let total = exact(existing + counts.stopping.capacity);
        let wanted = exact(adjusted_pending) * settings.scaling_ratio + total;
        let most = exact(settings.max_capacity);
        Self {
            existing,
            idle,
            adjusted_pending,
            desired: wanted.min(most).max(exact(settings.min_capacity)),
        }
    }
}

fn exact(count: u64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "capacities are far below the numbers that a double rounds"
    )]
    let exact = count as f64;
    exact
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::counts::StateCount;

    fn desired(limits: [u64; 2], ratio: f64, demand: [u64; 2], capacity: [u64; 2]) -> f64 {
        let config = json!({
            "minCapacity": limits[0],
            "maxCapacity": limits[1],
            "scalingRatio": ratio,
        });
        let settings = Settings::parse(config.as_object().unwrap()).unwrap();
        let of = |capacity| StateCount { count: 1, capacity };
        let counts = Counts {
            running: of(capacity[0]),
            stopping: of(capacity[1]),
            ..Counts::default()
        };
        let [pending, claimed] = demand;
        TaskclusterEstimate::of(&settings, &counts, Demand { pending, claimed }).desired
    }

    #[test]
    fn the_desired_capacity_is_that_of_taskcluster() {
        for (expected, limits, ratio, demand, capacity) in [
            (5.0, [5, 10], 1.0, [0, 0], [0, 0]),
            (50.0, [0, 50], 1.0, [200, 0], [0, 0]),
            (25.0, [0, 50], 1.0, [20, 5], [10, 0]),
            (20.0, [0, 50], 1.0, [10, 0], [5, 10]),
            (50.0, [0, 100], 0.5, [100, 0], [0, 0]),
            // The minimum wins over the maximum.
            (9.0, [9, 5], 1.0, [0, 0], [0, 0]),
        ] {
            let found = desired(limits, ratio, demand, capacity);
            let difference = (found - expected).abs();
            assert!(difference < 1e-9, "{found} is not {expected}");
        }
    }

    #[test]
    fn idle_capacity_takes_waiting_tasks_first() {
        let config = json!({"minCapacity": 0, "maxCapacity": 50});
        let settings = Settings::parse(config.as_object().unwrap()).unwrap();
        let counts = Counts {
            running: StateCount {
                count: 10,
                capacity: 10,
            },
            ..Counts::default()
        };
        for (pending, claimed, idle, adjusted) in [(0, 0, 10, 0), (7, 4, 6, 1), (3, 12, 0, 3)] {
            let demand = Demand { pending, claimed };
            let found = TaskclusterEstimate::of(&settings, &counts, demand);
            assert_eq!((found.idle, found.adjusted_pending), (idle, adjusted));
        }
    }
}
