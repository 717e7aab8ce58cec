//! Studies: strategies side by side, in several scenarios and seeds.

mod seeds;
mod series;
mod summary;

use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicUsize, Ordering};

use serde::Serialize;

use crate::metrics::Metrics;
use crate::scenario::{BadPool, ScenarioError, ScenarioName, TraceSource};
use crate::strategy::SimulatedStrategy;
use crate::world::simulate;
pub use seeds::{BadSeeds, Seeds};
pub use series::Series;
pub use summary::{Difference, Measure, Summary};

/// A comparison of strategies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Study {
    pub scenarios: Vec<ScenarioName>,
    /// The others are compared with the first.
    pub strategies: Vec<SimulatedStrategy>,
    pub seeds: Vec<u64>,
}

/// The results of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScenarioResult {
    /// Its name.
    pub scenario: String,
    pub about: String,
    pub strategies: Vec<StrategyResult>,
}

/// The results of one strategy in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyResult {
    /// The name of the strategy, or of the configuration that was simulated.
    pub strategy: String,
    /// The mean of each measure over the seeds.
    pub mean: Summary,
    /// How it differs from the first strategy with the same seeds. `None` for the first.
    pub difference: Option<Difference>,
    pub seeds: Vec<SeedResult>,
    /// The fleet in the course of the first seed.
    #[serde(skip)]
    pub series: Series,
}

/// One simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct SeedResult {
    pub seed: u64,
    #[serde(flatten)]
    pub metrics: Metrics,
}

#[derive(Debug, thiserror::Error)]
pub enum StudyError {
    #[error(transparent)]
    Scenario(#[from] ScenarioError),
    #[error(transparent)]
    Pool(#[from] BadPool),
}

/// One simulation to do.
#[derive(Clone, Copy)]
struct Job {
    scenario: ScenarioName,
    strategy: SimulatedStrategy,
    seed: u64,
    /// Whether the course of the fleet is wanted.
    is_first: bool,
}

/// The metrics of a simulation, and the course of the fleet if it is wanted.
pub(crate) type Outcome = Result<(Metrics, Option<Series>), StudyError>;

impl Study {
    /// How many simulations it takes.
    pub fn n_simulations(&self) -> usize {
        self.scenarios.len() * self.strategies.len() * self.seeds.len()
    }

    /// Simulates on this many threads. The result does not depend on their number. `progress` gets
    /// the number of simulations that are done.
    pub fn run(
        &self,
        traces: &(dyn TraceSource + Sync),
        n_threads: usize,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<Vec<ScenarioResult>, StudyError> {
        let jobs = self.jobs();
        let outcomes = run_all(&jobs, n_threads, progress, |job| job.run(traces))?;
        let mut outcomes = outcomes.into_iter();
        let names = self.strategies.iter().map(ToString::to_string);
        let names: Vec<String> = names.collect();
        let results = self.scenarios.iter().map(|scenario| ScenarioResult {
            scenario: scenario.to_string(),
            about: scenario.about().to_owned(),
            strategies: side_by_side(&names, &self.seeds, &mut outcomes),
        });
        Ok(results.collect())
    }

    /// In the order of scenarios, strategies and seeds.
    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::with_capacity(self.n_simulations());
        for scenario in &self.scenarios {
            for strategy in &self.strategies {
                jobs.extend(self.seeds.iter().enumerate().map(|(place, seed)| Job {
                    scenario: *scenario,
                    strategy: *strategy,
                    seed: *seed,
                    is_first: place == 0,
                }));
            }
        }
        jobs
    }
}

/// Does all jobs on this many threads. The results are in the order of the jobs.
pub(crate) fn run_all<J: Sync, T: Send, E: Send>(
    jobs: &[J],
    n_threads: usize,
    progress: &(dyn Fn(usize) + Sync),
    run: impl Fn(&J) -> Result<T, E> + Sync,
) -> Result<Vec<T>, E> {
    let outcomes: Vec<Mutex<Option<Result<T, E>>>> =
        jobs.iter().map(|_| Mutex::new(None)).collect();
    let (next, n_done) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let work = || {
        while let Some((job, outcome)) = {
            let index = next.fetch_add(1, Ordering::Relaxed);
            jobs.get(index).zip(outcomes.get(index))
        } {
            let done = run(job);
            *outcome.lock().unwrap_or_else(PoisonError::into_inner) = Some(done);
            progress(n_done.fetch_add(1, Ordering::Relaxed) + 1);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..n_threads.min(jobs.len()) {
            scope.spawn(work);
        }
        work();
    });
    let outcomes = outcomes
        .into_iter()
        .filter_map(|outcome| outcome.into_inner().unwrap_or_else(PoisonError::into_inner));
    outcomes.collect()
}

/// The results of strategies with these seeds, taken from outcomes in their order.
pub(crate) fn side_by_side(
    names: &[String],
    seeds: &[u64],
    outcomes: &mut impl Iterator<Item = (Metrics, Option<Series>)>,
) -> Vec<StrategyResult> {
    let mut strategies: Vec<StrategyResult> = Vec::new();
    for name in names {
        let mut series = Series::default();
        let of_seeds = seeds.iter().zip(outcomes.by_ref());
        let results = of_seeds.map(|(seed, (metrics, course))| {
            if let Some(course) = course {
                series = course;
            }
            SeedResult {
                seed: *seed,
                metrics,
            }
        });
        let results: Vec<SeedResult> = results.collect();
        let first = strategies.first();
        strategies.push(StrategyResult {
            strategy: name.clone(),
            mean: Summary::of(&results),
            difference: first.map(|first| Difference::of(first, &results)),
            seeds: results,
            series,
        });
    }
    strategies
}

impl Job {
    fn run(&self, traces: &dyn TraceSource) -> Outcome {
        let scenario = self.scenario.build(self.seed, traces)?;
        let mut planner = self.strategy.planner(&scenario, self.seed)?;
        let history = simulate(&scenario, planner.as_mut(), self.seed);
        let series = self.is_first.then(|| Series::of(&history));
        Ok((Metrics::of(&scenario, &history), series))
    }
}
