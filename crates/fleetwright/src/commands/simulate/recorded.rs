//! `simulate recorded`: a server's history, as it is and changed.

mod changes;
mod report;
mod source;

use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use clap::{Args, value_parser};
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::plan::StrategyName;
use domain::time::Timestamp;
use simulate::recording::{BadQuestion, Change, Question, Recording, Report, WhatIf};
use simulate::study::Seeds;

use crate::failure::Failure;
use crate::machine;
use crate::output::{self, Progress};
use crate::session::Session;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The recorded time: a duration until now such as 7d, or its start
    #[arg(
        long,
        value_name = "TIME",
        default_value = "7d",
        conflicts_with = "from"
    )]
    last: String,
    /// Read a saved recording instead of the server's
    #[arg(long, value_name = "FILE")]
    from: Option<PathBuf>,
    /// Save the recording, for --from
    #[arg(long, value_name = "FILE", conflicts_with = "from")]
    save: Option<PathBuf>,
    /// File or folder with pools and worker configurations, as `fleetwright apply` takes them, to
    /// simulate beside the present ones; repeatable
    #[arg(long, value_name = "DIR|FILE")]
    change: Vec<PathBuf>,
    /// Simulate this strategy beside the present one
    #[arg(long, value_name = "NAME", value_parser = strategy)]
    strategy: Option<StrategyName>,
    /// Simulate this maximum capacity beside the present one
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=1_000_000))]
    max_capacity: Option<u32>,
    /// Simulate this minimum capacity beside the present one
    #[arg(long, value_name = "N", value_parser = value_parser!(u32).range(0..=1_000_000))]
    min_capacity: Option<u32>,
    /// Simulate the maximum capacity of each pool times this factor
    #[arg(long, value_name = "FACTOR", conflicts_with = "max_capacity")]
    max_capacity_factor: Option<f64>,
    /// Simulate this maximum price, in dollars an hour
    #[arg(long, value_name = "DOLLARS")]
    max_price: Option<f64>,
    /// Simulate that idle workers are kept for this many seconds
    #[arg(long, value_name = "SECONDS")]
    idle: Option<u32>,
    /// Simulate that nothing is launched at this provider; repeatable
    #[arg(long, value_name = "ID", value_parser = provider)]
    without_provider: Vec<ProviderId>,
    /// Simulate that nothing is launched from this launch config; repeatable
    #[arg(long, value_name = "ID", value_parser = launch_config)]
    without_launch_config: Vec<LaunchConfigId>,
    /// Only this pool; repeatable
    #[arg(long, value_name = "ID", value_parser = pool)]
    pool: Vec<PoolId>,
    /// Seeds, such as 7 or 1-5
    #[arg(long, default_value = "1-5")]
    seeds: Seeds,
    /// Write a page with charts
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Number of threads [default: one for each core]
    #[arg(long, value_name = "N")]
    threads: Option<NonZeroUsize>,
}

fn strategy(text: &str) -> Result<StrategyName, String> {
    let names = StrategyName::ALL.map(StrategyName::as_str);
    let parsed = text.parse::<StrategyName>();
    parsed.map_err(|_| format!("not a strategy; use {}", names.join(", ")))
}

fn pool(text: &str) -> Result<PoolId, String> {
    text.parse::<PoolId>().map_err(|bad| bad.to_string())
}

fn provider(text: &str) -> Result<ProviderId, String> {
    text.parse::<ProviderId>().map_err(|bad| bad.to_string())
}

fn launch_config(text: &str) -> Result<LaunchConfigId, String> {
    text.parse::<LaunchConfigId>()
        .map_err(|bad| bad.to_string())
}

impl Arguments {
    fn question(&self) -> Question {
        let change = Change {
            min_capacity: self.min_capacity,
            max_capacity: self.max_capacity,
            max_capacity_factor: self.max_capacity_factor,
            max_price: self.max_price,
            idle_seconds: self.idle,
            strategy: self.strategy,
            without_providers: self.without_provider.iter().cloned().collect(),
            without_launch_configs: self.without_launch_config.iter().cloned().collect(),
            ..Change::default()
        };
        Question {
            pools: self.pool.iter().cloned().collect(),
            change,
            seeds: self.seeds.0.clone(),
        }
    }

    pub(super) fn needs_server(&self) -> bool {
        self.from.is_none()
    }
}

/// With a saved recording.
pub(super) fn run_local(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let path = arguments.from.as_ref();
    let path = path.ok_or_else(|| Failure::usage("--from FILE or URL is needed".to_owned()))?;
    let recording = source::read(path)?;
    run(arguments, json, &recording, machine::now())
}

/// With the recording of a server.
pub(crate) async fn run_remote(arguments: Arguments, session: &Session) -> Result<(), Failure> {
    let since = output::parse_past_moment(&arguments.last, session.now)
        .map_err(|error| Failure::usage(format!("--last: {error}")))?;
    let recording = source::download(session, since, arguments.save.as_deref()).await?;
    run(&arguments, session.json, &recording, session.now)
}

fn run(
    arguments: &Arguments,
    json: bool,
    recording: &Recording,
    now: Timestamp,
) -> Result<(), Failure> {
    let defined = changes::defined(&arguments.change, recording, now)?;
    let what_if = WhatIf::with_definitions(recording, defined, arguments.question());
    let what_if = what_if.map_err(|bad| match bad {
        BadQuestion::UnknownPool(_) => Failure::usage(format!("--pool: {bad}")),
        BadQuestion::Change(_) => Failure::usage(bad.to_string()),
        BadQuestion::NothingLaunches | BadQuestion::Replay { .. } => {
            Failure::failed(bad.to_string())
        }
    })?;
    let report = simulate(what_if, arguments.threads)?;
    if json {
        output::json(&report.document());
    } else {
        for remark in &report.remarks {
            output::note(&format!("note: {remark}"));
        }
        output::out(&report::text(&report));
    }
    // Afterwards, so that a path that cannot be written does not cost the results.
    if let Some(path) = &arguments.html {
        std::fs::write(path, report::page(&report))
            .with_context(|| format!("cannot write {}", path.display()))?;
        if !json {
            output::out(&format!("charts: {}", path.display()));
        }
    }
    Ok(())
}

fn simulate(what_if: WhatIf<'_>, threads: Option<NonZeroUsize>) -> Result<Report, Failure> {
    let progress = Mutex::new(Progress::start());
    let total = what_if.n_simulations();
    let report = |n_done: usize| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.report(|| format!("simulated {n_done} of {total}"));
    };
    let cores = || std::thread::available_parallelism().ok();
    let threads = threads.or_else(cores).map_or(1, NonZeroUsize::get);
    let result = what_if.run(threads, &report, &|| true);
    result.map_err(|error| Failure::failed(error.to_string()))
}
