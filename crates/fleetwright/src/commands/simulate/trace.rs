//! `simulate trace`: a recorded load with workers of fixed start-up time.

use std::path::PathBuf;

use clap::{Args, value_parser};
use serde_json::{Value, json};
use simulate::strategy::SimulatedStrategy;
use simulate::trace_report::{TraceReport, TraceSettings, simulate_trace};

use super::arguments::{interval, read_trace, seconds, strategy};
use crate::failure::Failure;
use crate::output::{self, Kind, grid};

/// Nothing is random but the choice between equal offerings, of which there is one.
const SEED: u64 = 1;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Trace: for each task two big-endian numbers of 32 bits, its time and duration in ms
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// From the launch of a worker to its registration
    #[arg(long, value_name = "SECONDS", default_value = "20", value_parser = seconds)]
    startup: i64,
    /// How long an idle worker is kept
    #[arg(long, value_name = "SECONDS", default_value = "900", value_parser = seconds)]
    idle: i64,
    /// Interval between two plans
    #[arg(long = "loop", value_name = "SECONDS", default_value = "1", value_parser = interval)]
    interval: i64,
    /// Maximum number of workers
    #[arg(long, value_name = "N", default_value = "1000",
        value_parser = value_parser!(u64).range(1..=100_000))]
    max: u64,
    /// Strategy
    #[arg(long, value_name = "NAME", default_value = "taskcluster", value_parser = strategy)]
    strategy: SimulatedStrategy,
}

pub(super) fn run(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let trace = read_trace(&arguments.file)?;
    let settings = TraceSettings {
        startup_ms: arguments.startup,
        idle_ms: arguments.idle,
        loop_ms: arguments.interval,
        max_capacity: arguments.max,
    };
    let strategy = arguments.strategy;
    let report = simulate_trace(&trace.arrivals, &settings, strategy, SEED);
    let report = report.map_err(|error| Failure::failed(error.to_string()))?;
    if json {
        output::json(&document(arguments, &settings, &report));
    } else {
        output::out(&text(&report));
    }
    Ok(())
}

fn document(arguments: &Arguments, settings: &TraceSettings, report: &TraceReport) -> Value {
    json!({
        "trace": arguments.file.display().to_string(),
        "strategy": arguments.strategy.as_str(),
        "settings": settings,
        "report": report,
    })
}

fn text(report: &TraceReport) -> String {
    let number = |title| (title, Kind::Number);
    let headings = [
        "TASKS",
        "WAIT MEAN",
        "P50",
        "P95",
        "P99",
        "WORKERS",
        "NEVER WORKED",
        "WORKER-H",
        "BUSY-H",
        "UTILIZATION",
        "PEAK",
    ];
    let wait = &report.wait;
    let row = vec![
        report.tasks.to_string(),
        format!("{:.2}", wait.mean),
        format!("{:.1}", wait.p50),
        format!("{:.1}", wait.p95),
        format!("{:.1}", wait.p99),
        report.workers.to_string(),
        report.never_worked.to_string(),
        format!("{:.1}", report.worker_hours),
        format!("{:.1}", report.busy_hours),
        format!("{:.3}", report.utilization),
        report.peak.to_string(),
    ];
    let mut text = grid(&headings.map(number), vec![row], output::screen_width());
    let (from, to) = report.counted_hours;
    text.push_str(&format!(
        "Waits in seconds. Counted: hour {from:.0} to hour {to:.0} of the trace.\n"
    ));
    let (before, after) = report.not_counted;
    if before + after > 0 {
        let tasks = output::counted(before + after, "task");
        text.push_str(&format!(
            "{tasks} not counted: {before} before, {after} after.\n"
        ));
    }
    if report.unfinished > 0 {
        let tasks = output::counted(report.unfinished, "task");
        text.push_str(&format!("{tasks} did not finish.\n"));
    }
    text
}

#[cfg(test)]
mod tests {
    use simulate::scenario::Arrival;

    use super::*;

    #[test]
    fn a_report_is_a_line_of_a_table() {
        let arrivals = [0, 1_000, 2_000].map(|at_ms| Arrival {
            at_ms,
            duration_ms: 60_000,
            pool: 0,
            rank: 0,
        });
        let settings = TraceSettings {
            startup_ms: 20_000,
            idle_ms: 900_000,
            loop_ms: 1_000,
            max_capacity: 2,
        };
        let strategy = SimulatedStrategy::TaskclusterFixed;
        let report = simulate_trace(&arrivals, &settings, strategy, SEED).unwrap();
        // The first two tasks wait for the start of their workers, the third for one of them.
        insta::assert_snapshot!(text(&report), @r"
        TASKS  WAIT MEAN   P50   P95   P99  WORKERS  NEVER WORKED  WORKER-H  BUSY-H  UTILIZATION  PEAK
            3      39.33  20.0  78.0  78.0        2             0       0.6     0.1        0.091     2
        Waits in seconds. Counted: hour 0 to hour 144 of the trace.
        ");
    }
}
