//! A recorded load with workers of fixed start-up time, counted as Taskcluster's simulator does.

use domain::time::{DAY_MS, MINUTE_MS};
use serde::Serialize;

use crate::fleet::SimulatedWorker;
use crate::history::History;
use crate::metrics::Delay;
use crate::offering::{BootTime, Offering, Period};
use crate::scenario::{Arrival, BadPool, Scenario, SimulatedPool, Timing};
use crate::strategy::SimulatedStrategy;
use crate::units::{to_hours, to_seconds};
use crate::world::simulate;

/// The days that Taskcluster's simulator counts: the fleet grows in the day before them.
const COUNTED: Period = Period {
    from_ms: DAY_MS,
    to_ms: 6 * DAY_MS,
};
/// Dollars per machine and hour. Nothing depends on it but strategies that look at prices.
const PRICE: f64 = 0.40;

/// The settings of Taskcluster's simulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceSettings {
    /// From the launch of a worker to its registration.
    pub startup_ms: i64,
    /// How long a worker is idle before it stops.
    pub idle_ms: i64,
    /// Interval between two plans.
    pub loop_ms: i64,
    pub max_capacity: u64,
}

/// The counts of one simulation. Times are in seconds unless their names say otherwise.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct TraceReport {
    /// The counted hours of the simulation.
    pub counted_hours: (f64, f64),
    pub tasks: usize,
    /// Tasks before the counted hours, and after them.
    pub not_counted: (usize, usize),
    /// Tasks that were not finished.
    pub unfinished: usize,
    /// From the creation of a task to its start.
    pub wait: Delay,
    /// Launched workers.
    pub workers: usize,
    /// Workers that existed and had no task.
    pub never_worked: usize,
    /// The hours of workers from their registration to their end.
    pub worker_hours: f64,
    /// The hours in which workers had a task.
    pub busy_hours: f64,
    /// Busy hours in each worker hour.
    pub utilization: f64,
    /// The highest number of workers at a time.
    pub peak: usize,
}

/// Simulates a recorded load. Workers that are no longer needed stop at once.
pub fn simulate_trace(
    arrivals: &[Arrival],
    settings: &TraceSettings,
    strategy: SimulatedStrategy,
    seed: u64,
) -> Result<TraceReport, BadPool> {
    let counted = counted_period(arrivals);
    let scenario = scenario(arrivals, settings, counted)?;
    // Their simulator feeds the estimator without counting requested capacity twice.
    let strategy = match strategy {
        SimulatedStrategy::Taskcluster => SimulatedStrategy::TaskclusterFixed,
        SimulatedStrategy::TaskclusterFixed | SimulatedStrategy::Production(_) => strategy,
    };
    let mut planner = strategy.planner(&scenario, seed)?;
    let history = simulate(&scenario, planner.as_mut(), seed);
    let n_before = arrivals.partition_point(|it| it.at_ms < counted.from_ms);
    let n_after = arrivals.len() - arrivals.partition_point(|it| it.at_ms < counted.to_ms);
    Ok(TraceReport {
        not_counted: (n_before, n_after),
        ..TraceReport::of(&history, counted)
    })
}

/// Of a trace that ends in the first day everything counts.
fn counted_period(arrivals: &[Arrival]) -> Period {
    let last_ms = arrivals.last().map_or(0, |last| last.at_ms);
    if last_ms >= COUNTED.from_ms {
        return COUNTED;
    }
    Period {
        from_ms: 0,
        to_ms: COUNTED.to_ms,
    }
}

fn scenario(
    arrivals: &[Arrival],
    settings: &TraceSettings,
    counted: Period,
) -> Result<Scenario, BadPool> {
    let timing = Timing {
        tick_ms: settings.loop_ms,
        scan_ms: DAY_MS,
        idle_ms: settings.idle_ms,
        least_idle_ms: settings.idle_ms,
        registration_ms: (2 * settings.startup_ms).max(30 * MINUTE_MS),
        stop_ms: 0,
        paid_stop_ms: 0,
        least_paid_ms: 0,
        drain_ms: 14 * DAY_MS,
        ..Timing::default()
    };
    let boot = BootTime {
        mean_seconds: to_seconds(settings.startup_ms),
        sigma: 0.0,
    };
    let offerings = vec![Offering::plain("offering-0", PRICE, boot)];
    let max_capacity = settings.max_capacity;
    let pool = SimulatedPool::new("simulated/pool", 0, max_capacity, &offerings, &timing)?;
    let counted = arrivals.iter().filter(|it| it.at_ms < counted.to_ms);
    Ok(Scenario {
        pools: vec![pool],
        offerings,
        arrivals: counted.copied().collect(),
        timing,
    })
}

impl TraceReport {
    fn of(history: &History, counted: Period) -> Self {
        let tasks = history.tasks.iter();
        let tasks = tasks.filter(|task| task.created_ms >= counted.from_ms);
        let waits = tasks
            .clone()
            .filter_map(|task| Some(task.first_start_ms? - task.created_ms));
        let mut waits: Vec<i64> = waits.collect();
        waits.sort_unstable();
        let workers = history.workers.iter();
        let launched = workers
            .filter(|worker| (counted.from_ms..=counted.to_ms).contains(&worker.launched_ms));
        let existing = history.workers.iter().filter(|worker| {
            let ended_ms = worker.ended_ms.unwrap_or(i64::MAX);
            worker.launched_ms <= counted.to_ms && ended_ms >= counted.from_ms
        });
        let runs = history.tasks.iter().filter_map(|task| {
            let end_ms = task.end_ms?;
            Some((end_ms - task.duration_ms, end_ms))
        });
        let busy_ms: i64 = runs.map(|run| common_ms(run, counted)).sum();
        let lives = history.workers.iter().filter_map(life);
        let worker_ms: i64 = lives.map(|life| common_ms(life, counted)).sum();
        Self {
            counted_hours: (to_hours(counted.from_ms), to_hours(counted.to_ms)),
            tasks: waits.len(),
            not_counted: (0, 0),
            unfinished: tasks.filter(|task| task.end_ms.is_none()).count(),
            wait: Delay::of(&waits),
            workers: launched.count(),
            never_worked: existing.filter(|worker| !has_task(worker, counted)).count(),
            worker_hours: to_hours(worker_ms),
            busy_hours: to_hours(busy_ms),
            utilization: to_hours(busy_ms) / to_hours(worker_ms).max(f64::MIN_POSITIVE),
            peak: peak(&history.workers, counted),
        }
    }
}

/// From the registration of a worker to its end.
fn life(worker: &SimulatedWorker) -> Option<(i64, i64)> {
    Some((worker.registered_ms?, worker.ended_ms?))
}

fn has_task(worker: &SimulatedWorker, period: Period) -> bool {
    let is_before = worker.last_start_ms.is_none() || worker.idle_since_ms < period.from_ms;
    !worker.tasks.is_empty() || !is_before
}

fn common_ms((from_ms, to_ms): (i64, i64), period: Period) -> i64 {
    (to_ms.min(period.to_ms) - from_ms.max(period.from_ms)).max(0)
}

/// The highest number of workers at a time, from their launches on.
fn peak(workers: &[SimulatedWorker], period: Period) -> usize {
    let mut changes = Vec::with_capacity(2 * workers.len());
    for worker in workers {
        let end_ms = worker.ended_ms.unwrap_or(i64::MAX);
        if end_ms >= period.from_ms {
            changes.push((worker.launched_ms.max(period.from_ms), 1));
            changes.push((end_ms, -1));
        }
    }
    // Ends are before launches at the same time.
    changes.sort_unstable();
    let changes = changes.into_iter();
    let changes = changes.take_while(|(at_ms, _)| *at_ms < period.to_ms);
    let counts = changes.scan(0_isize, |count, (_, change)| {
        *count += change;
        Some(*count)
    });
    usize::try_from(counts.max().unwrap_or_default()).unwrap_or_default()
}
