//! `simulate canary`: how often verdicts about images are wrong, and how soon they come.

use std::num::NonZeroUsize;
use std::sync::{Mutex, PoisonError};

use clap::{Args, value_parser};
use serde_json::json;
use simulate::canary::{CanaryCost, CanaryFigures, CanaryScenario, CanaryStudy};

use crate::output::{self, Kind, Progress, grid};

/// This many starts are judged one by one …
const FIRST_STARTS: u32 = 30;
/// … and later every third.
const LATER_STARTS: u32 = 3;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Scenarios [default: all]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = scenario)]
    only: Vec<CanaryScenario>,
    /// Canaries of each scenario
    #[arg(long, value_name = "N", default_value = "1000",
        value_parser = value_parser!(u64).range(1..=1_000_000))]
    canaries: u64,
    /// Seed
    #[arg(long, value_name = "N", default_value = "1")]
    seed: u64,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

fn scenario(text: &str) -> Result<CanaryScenario, String> {
    text.parse::<CanaryScenario>()
        .map_err(|unknown| unknown.to_string())
}

pub(super) fn run(arguments: &Arguments, json: bool) {
    let study = CanaryStudy {
        scenarios: match arguments.only.is_empty() {
            true => CanaryScenario::ALL.to_vec(),
            false => arguments.only.clone(),
        },
        n_canaries: arguments.canaries,
        seed: arguments.seed,
        n_first: FIRST_STARTS,
        each: LATER_STARTS,
    };
    let progress = Mutex::new(Progress::start());
    let report = |scenario: CanaryScenario, n_done: usize| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.report(|| format!("{scenario}: simulated {n_done} of {}", study.n_canaries));
    };
    let cores = || std::thread::available_parallelism().ok();
    let threads = arguments.threads.or_else(cores);
    let figures = study.run(threads.map_or(1, NonZeroUsize::get), &report);
    if json {
        output::json(&json!({
            "seed": study.seed,
            "canaries": study.n_canaries,
            "scenarios": figures,
        }));
    } else {
        output::out(&text(&figures));
    }
}

fn text(figures: &[CanaryFigures]) -> String {
    let number = |title| (title, Kind::Number);
    let headings = [
        ("SCENARIO", Kind::Text),
        number("PROMOTED"),
        number("ROLLED BACK"),
        number("UNDECIDED"),
        number("STARTS UNTIL PROMOTED"),
        number("STARTS UNTIL ROLLED BACK"),
        number("RUNS UNTIL ROLLED BACK"),
    ];
    let rows = figures.iter().map(|figures| {
        let percent = |n: u64| format!("{:.2} %", 100.0 * n as f64 / figures.canaries as f64);
        let both = |cost: Option<CanaryCost>, values: fn(CanaryCost) -> (i64, i64)| {
            let values = cost.map(values);
            values.map_or_else(
                || "-".to_owned(),
                |(median, most)| format!("{median} / {most}"),
            )
        };
        vec![
            figures.scenario.clone(),
            percent(figures.promoted),
            percent(figures.rolled_back),
            percent(figures.undecided),
            both(figures.promotion, |it| (it.starts_median, it.starts_95)),
            both(figures.roll_back, |it| (it.starts_median, it.starts_95)),
            both(figures.roll_back, |it| (it.runs_median, it.runs_95)),
        ]
    });
    grid(&headings, rows.collect(), output::screen_width())
}
