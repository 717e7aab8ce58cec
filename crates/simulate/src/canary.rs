//! Simulated canaries: how often their verdicts are wrong, and how soon they come.
//!
//! Each canary is judged when one of its machines failed to start or ended its first run, by
//! `domain::image::judge` and with what a server would know at that moment, until it is promoted or
//! rolled back.

mod catalog;
mod course;

use std::convert::Infallible;

use serde::Serialize;

pub use catalog::{CanaryScenario, UnknownCanaryScenario};

use crate::statistics::quantile;
use crate::study::run_all;
use course::{Course, Ending};

/// Canaries to simulate.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CanaryStudy {
    pub scenarios: Vec<CanaryScenario>,
    /// In each scenario.
    pub n_canaries: u64,
    pub seed: u64,
    /// The first starts of each canary are judged one by one, …
    pub n_first: u32,
    /// … and after them each start with a multiple of this number, at least 1.
    pub each: u32,
}

/// The figures of one scenario.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryFigures {
    pub scenario: String,
    pub about: &'static str,
    /// Whether the new image is as good as the one in use.
    pub is_equal: bool,
    pub canaries: u64,
    pub promoted: u64,
    pub rolled_back: u64,
    /// Not decided after the largest number of starts.
    pub undecided: u64,
    /// Until a promotion. Absent: there was none.
    pub promotion: Option<CanaryCost>,
    /// Until a roll-back. Absent: there was none.
    pub roll_back: Option<CanaryCost>,
}

/// The effort until a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CanaryCost {
    /// Decided machines of the canary.
    pub starts_median: i64,
    #[serde(rename = "starts95")]
    pub starts_95: i64,
    /// Ended runs on them.
    pub runs_median: i64,
    #[serde(rename = "runs95")]
    pub runs_95: i64,
    pub minutes_median: i64,
    #[serde(rename = "minutes95")]
    pub minutes_95: i64,
}

impl CanaryStudy {
    pub fn n_simulations(&self) -> u64 {
        self.n_canaries
            .saturating_mul(self.scenarios.len().try_into().unwrap_or(u64::MAX))
    }

    /// Simulates on this many threads. The result does not depend on their number. `progress` gets
    /// the number of canaries of a scenario that are done.
    pub fn run(
        &self,
        n_threads: usize,
        progress: &(dyn Fn(CanaryScenario, usize) + Sync),
    ) -> Vec<CanaryFigures> {
        let numbers: Vec<u64> = (0..self.n_canaries).collect();
        let scenarios = self.scenarios.iter();
        let figures = scenarios.map(|scenario| {
            let simulate = |number: &u64| {
                let course = Course::new(*scenario, self.seed, *number);
                Ok::<_, Infallible>(course.judge(self.n_first, self.each.max(1)))
            };
            let report = |n_done| progress(*scenario, n_done);
            let endings = match run_all(&numbers, n_threads, &report, simulate) {
                Ok(endings) => endings,
                Err(never) => match never {},
            };
            CanaryFigures::of(*scenario, &endings)
        });
        figures.collect()
    }
}

impl CanaryFigures {
    fn of(scenario: CanaryScenario, endings: &[Ending]) -> Self {
        let of_verdict = |is_promoted| {
            let endings = endings.iter();
            let endings = endings.filter(move |it| it.is_promoted == Some(is_promoted));
            endings.collect::<Vec<_>>()
        };
        let (promoted, rolled_back) = (of_verdict(true), of_verdict(false));
        let n_undecided = endings.len() - promoted.len() - rolled_back.len();
        Self {
            scenario: scenario.to_string(),
            about: scenario.about(),
            is_equal: scenario.is_equal(),
            canaries: endings.len() as u64,
            promoted: promoted.len() as u64,
            rolled_back: rolled_back.len() as u64,
            undecided: n_undecided as u64,
            promotion: CanaryCost::of(&promoted),
            roll_back: CanaryCost::of(&rolled_back),
        }
    }

    /// The share of wrong verdicts.
    pub fn wrong_share(&self) -> f64 {
        let wrong = if self.is_equal {
            self.rolled_back
        } else {
            self.promoted
        };
        wrong as f64 / self.canaries.max(1) as f64
    }
}

impl CanaryCost {
    fn of(endings: &[&Ending]) -> Option<Self> {
        if endings.is_empty() {
            return None;
        }
        let sorted = |value: fn(&Ending) -> i64| {
            let mut values: Vec<i64> = endings.iter().map(|ending| value(ending)).collect();
            values.sort_unstable();
            (quantile(&values, 0.5), quantile(&values, 0.95))
        };
        let (starts_median, starts_95) = sorted(|it| it.starts.into());
        let (runs_median, runs_95) = sorted(|it| it.runs.into());
        let (minutes_median, minutes_95) = sorted(|it| it.minutes);
        Some(Self {
            starts_median,
            starts_95,
            runs_median,
            runs_95,
            minutes_median,
            minutes_95,
        })
    }
}
