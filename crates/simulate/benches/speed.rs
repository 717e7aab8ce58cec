//! Benchmark: a recorded load of five days, and all scenarios with ten seeds and two strategies.
//!
//! The recorded loads are read from `../shared/data/traces`; without them, the load is a made one
//! of the same size, and scenarios that replay traces are left out.
#![expect(
    clippy::disallowed_methods,
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a benchmark prints its results"
)]

use std::path::Path;
use std::time::Instant;

use simulate::scenario::{Arrival, ScenarioName, TraceSource};
use simulate::strategy::SimulatedStrategy;
use simulate::study::Study;
use simulate::trace::Trace;
use simulate::trace_report::{TraceSettings, simulate_trace};

/// The allocator of the product.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const TRACES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../shared/data/traces");
const N_TASKS: i64 = 106_233;

struct Folder;

impl TraceSource for Folder {
    fn trace(&self, file: &str) -> Result<Vec<Arrival>, String> {
        let bytes = std::fs::read(Path::new(TRACES).join(file));
        let trace = Trace::parse(&bytes.map_err(|error| error.to_string())?);
        Ok(trace.map_err(|bad| bad.to_string())?.arrivals)
    }
}

fn main() {
    recorded_load();
    scenarios();
}

fn recorded_load() {
    let settings = TraceSettings {
        startup_ms: 20_000,
        idle_ms: 900_000,
        loop_ms: 1_000,
        max_capacity: 1_000,
    };
    let made = |_| {
        let made = (0..N_TASKS).map(|number| Arrival {
            at_ms: number * 3_760,
            duration_ms: 200_000 + number * 7_919 % 2_000_000,
            pool: 0,
            rank: 0,
        });
        made.collect()
    };
    let load = Folder.trace("gecko-t-t-linux-large.dat");
    let load: Vec<Arrival> = load.unwrap_or_else(made);
    for strategy in SimulatedStrategy::all() {
        let start = Instant::now();
        let report = simulate_trace(&load, &settings, strategy, 1).unwrap();
        let taken = start.elapsed();
        println!(
            "{strategy}: {} tasks, {} counted, in {taken:.2?} on one core",
            load.len(),
            report.tasks
        );
    }
}

fn scenarios() {
    let has_traces = |name: &ScenarioName| {
        let mut files = name.traces().iter();
        files.all(|file| Folder.trace(file).is_ok())
    };
    let study = Study {
        scenarios: ScenarioName::ALL.into_iter().filter(has_traces).collect(),
        strategies: ["taskcluster", "balanced"]
            .map(|name| name.parse().unwrap())
            .into(),
        seeds: (11..=20).collect(),
    };
    let start = Instant::now();
    study.run(&Folder, 2, &|_| ()).unwrap();
    let (count, taken) = (study.n_simulations(), start.elapsed());
    println!("{count} simulations in {taken:.2?} on two threads");
}
