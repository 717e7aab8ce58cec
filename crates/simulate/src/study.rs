//! Studies: strategies side by side, in several scenarios and with several seeds.

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
    #[serde(serialize_with = "as_text")]
    pub scenario: ScenarioName,
    pub about: &'static str,
    pub strategies: Vec<StrategyResult>,
}

/// The results of one strategy in a scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct StrategyResult {
    #[serde(serialize_with = "as_text")]
    pub strategy: SimulatedStrategy,
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

fn as_text<S: serde::Serializer>(
    name: &impl std::fmt::Display,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_str(name)
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

type Outcome = Result<(Metrics, Option<Series>), StudyError>;

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
        let outcomes: Vec<Mutex<Option<Outcome>>> = jobs.iter().map(|_| Mutex::new(None)).collect();
        let (next, n_done) = (AtomicUsize::new(0), AtomicUsize::new(0));
        let work = || {
            while let Some((job, outcome)) = {
                let index = next.fetch_add(1, Ordering::Relaxed);
                jobs.get(index).zip(outcomes.get(index))
            } {
                let done = job.run(traces);
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
        let outcomes = outcomes.collect::<Result<Vec<_>, _>>()?;
        Ok(self.results(outcomes))
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

    fn results(&self, outcomes: Vec<(Metrics, Option<Series>)>) -> Vec<ScenarioResult> {
        let mut outcomes = outcomes.into_iter();
        let mut results = Vec::new();
        for scenario in &self.scenarios {
            let mut strategies: Vec<StrategyResult> = Vec::new();
            for strategy in &self.strategies {
                let mut series = Series::default();
                let outcomes = outcomes.by_ref().take(self.seeds.len());
                let seeds = self.seeds.iter().zip(outcomes).map(|(seed, outcome)| {
                    let (metrics, course) = outcome;
                    if let Some(course) = course {
                        series = course;
                    }
                    SeedResult {
                        seed: *seed,
                        metrics,
                    }
                });
                let seeds: Vec<SeedResult> = seeds.collect();
                let first = strategies.first();
                strategies.push(StrategyResult {
                    strategy: *strategy,
                    mean: Summary::of(&seeds),
                    difference: first.map(|first| Difference::of(first, &seeds)),
                    seeds,
                    series,
                });
            }
            results.push(ScenarioResult {
                scenario: *scenario,
                about: scenario.about(),
                strategies,
            });
        }
        results
    }
}

impl Job {
    fn run(self, traces: &dyn TraceSource) -> Outcome {
        let scenario = self.scenario.build(self.seed, traces)?;
        let mut planner = self.strategy.planner(&scenario, self.seed)?;
        let history = simulate(&scenario, planner.as_mut(), self.seed);
        let series = self.is_first.then(|| Series::of(&history));
        Ok((Metrics::of(&scenario, &history), series))
    }
}
