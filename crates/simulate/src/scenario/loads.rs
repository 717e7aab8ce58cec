//! Loads of tasks, drawn at random.

use domain::time::HOUR_MS;

use super::Arrival;
use crate::draws::Draws;
use crate::units::{to_ms, to_seconds};

/// No task is shorter than this.
const LEAST_TASK_MS: i64 = 5_000;
/// The highest rate of a load is looked up at this many moments.
const N_RATE_STEPS: u32 = 500;

/// Arrivals while they are drawn.
pub(super) struct LoadDraws {
    draws: Draws,
    pool: usize,
    /// How long tasks are created.
    seconds: f64,
    arrivals: Vec<Arrival>,
}

/// The durations of tasks: a log-normal distribution.
#[derive(Clone, Copy)]
pub(super) struct Durations {
    pub(super) mean_seconds: f64,
    pub(super) sigma: f64,
}

/// Bursts of tasks at random times.
#[derive(Clone, Copy)]
pub(super) struct Bursts {
    pub(super) every_seconds: f64,
    /// The least and the highest number of tasks. Orders of magnitude are equally likely.
    pub(super) n_tasks: (f64, f64),
    pub(super) durations: Durations,
    /// The tasks of a burst are created within this time.
    pub(super) spread_seconds: f64,
}

impl Durations {
    pub(super) fn draw_ms(self, draws: &mut Draws) -> i64 {
        let seconds = self.mean_seconds * draws.log_normal(self.sigma);
        to_ms(seconds).max(LEAST_TASK_MS)
    }
}

impl LoadDraws {
    pub(super) fn new(seed: u64, scenario: &str, hours: i64) -> Self {
        Self {
            draws: Draws::new(seed, scenario, &[0]),
            pool: 0,
            seconds: to_seconds(hours * HOUR_MS),
            arrivals: Vec::new(),
        }
    }

    /// Further arrivals belong to this pool.
    pub(super) fn of_pool(mut self, pool: usize) -> Self {
        self.pool = pool;
        self
    }

    /// Adds tasks of which this many run at the same time on average, if none waits.
    pub(super) fn busy(self, n_running: f64, durations: Durations) -> Self {
        self.busy_by_time(|_| n_running, durations)
    }

    /// The same with a number that depends on the time: the part of the load that is over.
    pub(super) fn busy_by_time(
        mut self,
        n_running: impl Fn(f64) -> f64,
        durations: Durations,
    ) -> Self {
        let seconds = self.seconds;
        let rate = |at: f64| n_running(at / seconds) / durations.mean_seconds;
        for at in random_times(&mut self.draws, seconds, rate) {
            self.add(at, durations);
        }
        self
    }

    pub(super) fn bursts(mut self, bursts: Bursts) -> Self {
        let rate = 1.0 / bursts.every_seconds;
        for start in random_times(&mut self.draws, self.seconds, |_| rate) {
            let (least, most) = bursts.n_tasks;
            let n_tasks = self.draws.log_uniform(least, most).floor();
            let mut added = 0.0;
            while added < n_tasks {
                let at = start + bursts.spread_seconds * self.draws.fraction();
                self.add(at, bursts.durations);
                added += 1.0;
            }
        }
        self
    }

    fn add(&mut self, at_seconds: f64, durations: Durations) {
        let arrival = Arrival {
            at_ms: to_ms(at_seconds),
            duration_ms: durations.draw_ms(&mut self.draws),
            pool: self.pool,
            rank: 0,
        };
        self.arrivals.push(arrival);
    }

    pub(super) fn arrivals(mut self) -> Vec<Arrival> {
        self.arrivals.sort_unstable();
        self.arrivals
    }
}

/// The moments of a Poisson process with a rate that depends on the time, all in seconds.
pub(super) fn random_times(draws: &mut Draws, until: f64, rate: impl Fn(f64) -> f64) -> Vec<f64> {
    let steps = 0..=N_RATE_STEPS;
    let steps = steps.map(|step| rate(until * f64::from(step) / f64::from(N_RATE_STEPS)));
    let highest = steps.fold(0.0, f64::max);
    let mut times = Vec::new();
    let mut at = 0.0;
    if highest <= 0.0 {
        return times;
    }
    loop {
        at += draws.exponential(highest);
        if at >= until {
            return times;
        }
        if draws.fraction() < rate(at) / highest {
            times.push(at);
        }
    }
}

/// The tasks of a trace in a window, from the start of the window.
pub(super) fn window(trace: &[Arrival], from_ms: i64, length_ms: i64) -> Vec<Arrival> {
    let inside = trace.iter().filter(|arrival| {
        let at_ms = arrival.at_ms - from_ms;
        (0..length_ms).contains(&at_ms)
    });
    let moved = inside.map(|arrival| Arrival {
        at_ms: arrival.at_ms - from_ms,
        duration_ms: arrival.duration_ms.max(LEAST_TASK_MS),
        pool: arrival.pool,
        rank: 0,
    });
    let mut arrivals: Vec<Arrival> = moved.collect();
    arrivals.sort_unstable();
    arrivals
}
