//! The course of a fleet over time, for charts.

use serde::Serialize;

use crate::history::History;

/// The number of points of a series.
const N_POINTS: i64 = 240;

/// Counts at moments of equal distance.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Series {
    pub step_ms: i64,
    /// Tasks that would run if none ever waited.
    pub wanted: Vec<u32>,
    /// Tasks that wait for their first run.
    pub waiting: Vec<u32>,
    /// Machines that exist.
    pub machines: Vec<u32>,
}

impl Series {
    pub(crate) fn of(history: &History) -> Self {
        let ends = history.workers.iter().filter_map(|worker| worker.ended_ms);
        let created = history.tasks.iter().map(|task| task.created_ms);
        let end_ms = ends.chain(created).max().unwrap_or(0);
        let tasks = history.tasks.iter();
        let wanted = tasks.map(|task| (task.created_ms, task.created_ms + task.duration_ms));
        let tasks = history.tasks.iter();
        let waiting = tasks.map(|task| {
            let start_ms = task.first_start_ms.unwrap_or(history.end_ms);
            (task.created_ms, start_ms)
        });
        let machines = history.workers.iter().map(|worker| {
            let end_ms = worker.ended_ms.unwrap_or(history.end_ms);
            (worker.launched_ms, end_ms)
        });
        Self::of_spans(end_ms, wanted, waiting, machines)
    }

    /// Counts spans from 0 to the end, in milliseconds.
    pub(crate) fn of_spans(
        end_ms: i64,
        wanted: impl Iterator<Item = (i64, i64)>,
        waiting: impl Iterator<Item = (i64, i64)>,
        machines: impl Iterator<Item = (i64, i64)>,
    ) -> Self {
        let step_ms = (end_ms / N_POINTS).max(1);
        Self {
            step_ms,
            wanted: counts(wanted, step_ms),
            waiting: counts(waiting, step_ms),
            machines: counts(machines, step_ms),
        }
    }
}

/// How many spans contain each of the moments.
fn counts(spans: impl Iterator<Item = (i64, i64)>, step_ms: i64) -> Vec<u32> {
    let n_points = usize::try_from(N_POINTS).unwrap_or_default() + 1;
    let mut changes = vec![0_i32; n_points + 1];
    // The first moment that is not before this one.
    let place = |at_ms: i64| {
        let step = (at_ms + step_ms - 1).div_euclid(step_ms);
        usize::try_from(step).unwrap_or_default().min(n_points)
    };
    for (from_ms, to_ms) in spans {
        changes[place(from_ms)] += 1;
        changes[place(to_ms)] -= 1;
    }
    changes.truncate(n_points);
    let counts = changes.into_iter().scan(0_i32, |count, change| {
        *count += change;
        Some(u32::try_from(*count).unwrap_or_default())
    });
    counts.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_counts_at_the_moments_that_it_contains() {
        let of = |spans: &[(i64, i64)]| counts(spans.iter().copied(), 10)[..5].to_vec();
        assert_eq!(of(&[]), [0, 0, 0, 0, 0]);
        assert_eq!(of(&[(0, 10)]), [1, 0, 0, 0, 0]);
        assert_eq!(of(&[(1, 31), (20, 21)]), [0, 1, 2, 1, 0]);
        assert_eq!(of(&[(11, 19)]), [0, 0, 0, 0, 0]);
        assert_eq!(counts([(0, 1_000_000)].into_iter(), 10)[240], 1);
    }
}
