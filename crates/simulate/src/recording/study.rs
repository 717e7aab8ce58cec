//! Simulates a recording with its present configuration, and with others beside it.

use super::replay::Replay;
use crate::metrics::Metrics;
use crate::planner::Production;
use crate::scenario::{BadPool, Scenario};
use crate::study::{ScenarioResult, Series, run_all, side_by_side};
use crate::world::simulate_while;

/// Configurations that are simulated with the recorded load. The others are compared with the
/// first.
pub struct RecordedStudy {
    /// The name of the result.
    pub name: String,
    pub about: String,
    pub variants: Vec<Variant>,
    pub seeds: Vec<u64>,
}

/// One configuration.
pub struct Variant {
    pub name: String,
    pub replay: Replay,
}

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum RecordedStudyError {
    #[error(transparent)]
    Pool(#[from] BadPool),
    #[error("the simulation was stopped")]
    Stopped,
}

struct Job<'a> {
    scenario: &'a Scenario,
    seed: u64,
    is_first: bool,
}

impl RecordedStudy {
    /// How many simulations it takes.
    pub fn n_simulations(&self) -> usize {
        self.variants.len() * self.seeds.len()
    }

    /// Simulates on this many threads. The result does not depend on their number. `progress` gets
    /// the number of simulations that are done.
    pub fn run(
        &self,
        n_threads: usize,
        progress: &(dyn Fn(usize) + Sync),
    ) -> Result<ScenarioResult, RecordedStudyError> {
        self.run_while(n_threads, progress, &|| true)
    }

    /// The same, as long as `goes_on` says so.
    pub fn run_while(
        &self,
        n_threads: usize,
        progress: &(dyn Fn(usize) + Sync),
        goes_on: &(dyn Fn() -> bool + Sync),
    ) -> Result<ScenarioResult, RecordedStudyError> {
        let jobs = self.variants.iter().flat_map(|variant| {
            let seeds = self.seeds.iter().enumerate();
            seeds.map(|(place, seed)| Job {
                scenario: &variant.replay.scenario,
                seed: *seed,
                is_first: place == 0,
            })
        });
        let jobs: Vec<Job<'_>> = jobs.collect();
        let outcomes = run_all(&jobs, n_threads, progress, |job| job.run(goes_on))?;
        let names = self.variants.iter().map(|variant| variant.name.clone());
        let names: Vec<String> = names.collect();
        Ok(ScenarioResult {
            scenario: self.name.clone(),
            about: self.about.clone(),
            strategies: side_by_side(&names, &self.seeds, &mut outcomes.into_iter()),
        })
    }
}

impl Job<'_> {
    /// Each pool plans with the strategy that it is configured with.
    fn run(
        &self,
        goes_on: &dyn Fn() -> bool,
    ) -> Result<(Metrics, Option<Series>), RecordedStudyError> {
        if !goes_on() {
            return Err(RecordedStudyError::Stopped);
        }
        let mut planner = Production::new(self.scenario, None, self.seed)?;
        let history = simulate_while(self.scenario, &mut planner, self.seed, goes_on);
        let history = history.ok_or(RecordedStudyError::Stopped)?;
        let series = self.is_first.then(|| Series::of(&history));
        Ok((Metrics::of(self.scenario, &history), series))
    }
}
