//! `simulate scenarios`: strategies side by side.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use simulate::page::{page, pool_delays};
use simulate::scenario::{Arrival, ScenarioName, TraceSource};
use simulate::strategy::SimulatedStrategy;
use simulate::study::{Measure, ScenarioResult, Seeds, StrategyResult, Study};

use super::arguments::{read_trace, scenario, strategy};
use crate::failure::Failure;
use crate::output::{self, Kind, Progress, grid};

/// The folder of traces, if none is named.
const TRACES: &str = "traces";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Scenarios [default: all; those that replay traces only if their traces exist]
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = scenario)]
    only: Vec<ScenarioName>,
    /// Strategies; the others are compared with the first
    #[arg(long, value_name = "NAMES", value_delimiter = ',', value_parser = strategy,
        default_value = "taskcluster,balanced")]
    strategies: Vec<SimulatedStrategy>,
    /// Seeds, such as 7 or 11-20
    #[arg(long, default_value = "11-20")]
    seeds: Seeds,
    /// Folder of the recorded loads that the scenarios trace-b-linux and trace-decision replay
    #[arg(long, value_name = "DIR", default_value = TRACES)]
    traces: PathBuf,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

pub(super) fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let (scenarios, traces) = read_scenarios(arguments)?;
    let study = Study {
        scenarios,
        strategies: arguments.strategies.clone(),
        seeds: arguments.seeds.0.clone(),
    };
    let results = simulate(&study, &traces, arguments.threads)?;
    if json {
        output::json(&document(&study, &results));
    } else {
        output::out(&text(&results));
    }
    // Afterwards, so that a path that cannot be written does not cost the results.
    if let Some(path) = &arguments.html {
        let page = page(&study, &results);
        std::fs::write(path, page).with_context(|| format!("cannot write {}", path.display()))?;
        if !json {
            output::out(&format!("charts: {}", path.display()));
        }
    }
    Ok(())
}

fn simulate(
    study: &Study,
    traces: &Traces,
    threads: Option<NonZeroUsize>,
) -> Result<Vec<ScenarioResult>, Failure> {
    let progress = Mutex::new(Progress::start());
    let total = study.n_simulations();
    let report = |n_done: usize| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.report(|| format!("simulated {n_done} of {total}"));
    };
    let cores = || std::thread::available_parallelism().ok();
    let threads = threads.or_else(cores).map_or(1, NonZeroUsize::get);
    let results = study.run(traces, threads, &report);
    results.map_err(|error| Failure::failed(error.to_string()))
}

/// The traces that were read, by file name.
struct Traces(BTreeMap<&'static str, Vec<Arrival>>);

impl TraceSource for Traces {
    fn trace(&self, file: &str) -> Result<Vec<Arrival>, String> {
        let trace = self.0.get(file).cloned();
        trace.ok_or_else(|| format!("{file} was not read"))
    }
}

/// The scenarios to simulate, and their traces. Without `--only`, scenarios without traces are
/// skipped.
fn read_scenarios(arguments: &Arguments) -> Result<(Vec<ScenarioName>, Traces), Failure> {
    let folder = &arguments.traces;
    let mut scenarios = arguments.only.clone();
    if scenarios.is_empty() {
        let has_traces = |name: &ScenarioName| {
            let mut files = name.traces().iter();
            files.all(|file| folder.join(file).exists())
        };
        let (found, skipped): (Vec<_>, Vec<_>) =
            ScenarioName::ALL.into_iter().partition(has_traces);
        if !skipped.is_empty() {
            let names: Vec<_> = skipped.into_iter().map(ScenarioName::as_str).collect();
            output::note(&format!(
                "skipped {}: their traces are not in {}; use --traces",
                names.join(" and "),
                folder.display()
            ));
        }
        scenarios = found;
    }
    let mut traces = BTreeMap::new();
    for scenario in &scenarios {
        for file in scenario.traces() {
            let trace = read_trace_of(*scenario, folder, file)?;
            traces.insert(*file, trace);
        }
    }
    Ok((scenarios, Traces(traces)))
}

fn read_trace_of(
    scenario: ScenarioName,
    folder: &Path,
    file: &str,
) -> Result<Vec<Arrival>, Failure> {
    let trace = read_trace(&folder.join(file));
    let trace = trace.map_err(|failure| {
        let folder = folder.display();
        let hint = format!(
            "the scenario {scenario} replays {file}, a trace of Taskcluster's simulator; it is \
             looked for in {folder}, or in the folder that --traces names"
        );
        failure.with_hint(hint)
    })?;
    Ok(trace.arrivals)
}

fn document(study: &Study, results: &[ScenarioResult]) -> Value {
    let strategies = study.strategies.iter().map(|strategy| strategy.as_str());
    json!({
        "seeds": study.seeds,
        "strategies": strategies.collect::<Vec<_>>(),
        "scenarios": results,
    })
}

/// The columns: title, measure, decimals.
const COLUMNS: [(&str, Measure, usize); 12] = [
    ("J $", Measure::J, 1),
    ("COST $", Measure::Cost, 1),
    ("MEAN S", Measure::Delay, 1),
    ("P50 S", Measure::DelayP50, 0),
    ("P95 S", Measure::DelayP95, 0),
    ("P99 S", Measure::DelayP99, 0),
    ("OVER H", Measure::OverProvisioned, 1),
    ("LAUNCHES", Measure::Launches, 0),
    ("REFUSED", Measure::Refused, 0),
    ("WASTED", Measure::Wasted, 0),
    ("WASTED $", Measure::WastedCost, 2),
    ("RECOVERY S", Measure::Recovery, 0),
];

fn text(results: &[ScenarioResult]) -> String {
    let compared = results.iter().any(|result| result.strategies.len() > 1);
    let mut headings = vec![("SCENARIO", Kind::Text), ("STRATEGY", Kind::Text)];
    headings.extend(COLUMNS.map(|(title, _, _)| (title, Kind::Number)));
    if compared {
        headings.push(("J DIFFERENCE", Kind::Number));
    }
    let rows = results.iter().flat_map(|result| {
        let name = result.scenario.clone();
        let strategies = result.strategies.iter();
        strategies.map(move |strategy| row(name.clone(), strategy, compared))
    });
    let mut text = grid(&headings, rows.collect(), output::screen_width());
    for result in results {
        text.push_str(&pools_text(result));
    }
    text
}

fn row(scenario: String, result: &StrategyResult, compared: bool) -> Vec<String> {
    let mut cells = vec![scenario, result.strategy.clone()];
    cells.extend(COLUMNS.map(|(_, measure, decimals)| {
        let mean = result.mean.get(measure).map(|estimate| estimate.mean);
        mean.map_or_else(|| "-".to_owned(), |mean| format!("{mean:.decimals$}"))
    }));
    if compared {
        let difference = result.difference.as_ref();
        let percent = difference.and_then(|it| it.percent(Measure::J));
        cells.push(percent.map_or_else(
            || "-".to_owned(),
            |it| match it.margin {
                Some(margin) => format!("{:+.1} ± {margin:.1} %", it.mean),
                None => format!("{:+.1} %", it.mean),
            },
        ));
    }
    cells
}

/// The mean delay of each pool, if there are several.
fn pools_text(result: &ScenarioResult) -> String {
    let delays = pool_delays(&result.strategies);
    let several = delays.iter().filter(|(_, pools)| pools.len() > 1);
    let lines = several.map(|(strategy, pools)| {
        let pools = pools
            .iter()
            .map(|(pool, delay)| format!("{pool} {delay:.0} s"));
        let pools: Vec<String> = pools.collect();
        let scenario = &result.scenario;
        format!(
            "{scenario}, {strategy}: mean delay of {}\n",
            pools.join(", ")
        )
    });
    lines.collect()
}
