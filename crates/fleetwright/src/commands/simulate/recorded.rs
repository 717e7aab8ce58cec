//! `simulate recorded`: a server's history, as it is and changed.

mod changes;
mod report;
mod source;

use std::collections::BTreeSet;
use std::num::NonZeroUsize;
use std::path::PathBuf;
use std::sync::{Mutex, PoisonError};

use anyhow::Context as _;
use clap::{Args, value_parser};
use domain::id::PoolId;
use domain::plan::StrategyName;
use domain::time::Timestamp;
use serde_json::json;
use simulate::recording::{Configuration, Past, RecordedStudy, Recording, Replay, Variant};
use simulate::study::{ScenarioResult, Seeds};

use crate::failure::Failure;
use crate::machine;
use crate::output::{self, Progress};
use crate::session::Session;
use report::Report;

const PRESENT: &str = "present";
const CHANGED: &str = "changed";

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

impl Arguments {
    pub(super) fn needs_server(&self) -> bool {
        self.from.is_none()
    }
}

/// With a saved recording.
pub(super) fn run_local(arguments: &Arguments, json: bool) -> Result<(), Failure> {
    let path = arguments.from.as_ref();
    let path = path.ok_or_else(|| Failure::usage("--from is missing".to_owned()))?;
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
    let (present, changed) = configurations(arguments, recording, now)?;
    let simulated = present.launching();
    let past = Past::of(recording, &simulated);
    let mut remarks = recording.remarks(&simulated, &past);
    let mut variants = vec![variant(PRESENT, recording, &present, &mut remarks)?];
    if let Some(changed) = &changed {
        variants.push(variant(CHANGED, recording, changed, &mut remarks)?);
    }
    let study = RecordedStudy {
        name: "recorded".to_owned(),
        about: report::about(recording, &past),
        variants,
        seeds: arguments.seeds.0.clone(),
    };
    let result = simulate(&study, arguments.threads)?;
    let report = Report {
        recording,
        past: &past,
        result: &result,
        seeds: &study.seeds,
        remarks: &remarks,
    };
    if json {
        output::json(&report.document());
    } else {
        for remark in &remarks {
            output::note(&format!("note: {remark}"));
        }
        output::out(&report.text());
    }
    // Afterwards, so that a path that cannot be written does not cost the results.
    if let Some(path) = &arguments.html {
        std::fs::write(path, report.page())
            .with_context(|| format!("cannot write {}", path.display()))?;
        if !json {
            output::out(&format!("charts: {}", path.display()));
        }
    }
    Ok(())
}

/// The present configuration, and the changed one if a flag changes anything.
fn configurations(
    arguments: &Arguments,
    recording: &Recording,
    now: Timestamp,
) -> Result<(Configuration, Option<Configuration>), Failure> {
    let all = Configuration::present(recording);
    let mut changed = all.clone();
    changes::apply(&arguments.change, recording, &mut changed, now)?;
    let only: BTreeSet<PoolId> = arguments.pool.iter().cloned().collect();
    if let Some(unknown) = only.iter().find(|id| !changed.0.contains_key(*id)) {
        return Err(Failure::usage(format!(
            "--pool: the recording has no pool {unknown}"
        )));
    }
    let (mut present, mut changed) = match only.is_empty() {
        true => (all, changed),
        false => (all.only(&only), changed.only(&only)),
    };
    if let Some(strategy) = arguments.strategy {
        changed.set("strategy", &json!(strategy.as_str()));
    }
    for (key, limit) in [
        ("maxCapacity", arguments.max_capacity),
        ("minCapacity", arguments.min_capacity),
    ] {
        if let Some(limit) = limit {
            changed.set(key, &json!(limit));
        }
    }
    present.0.retain(|_, pool| !pool.launch_configs.is_empty());
    changed.0.retain(|_, pool| !pool.launch_configs.is_empty());
    if present.0.is_empty() && changed.0.is_empty() {
        let text = "the recording has no pool that launches workers: nothing can be simulated";
        return Err(Failure::failed(text.to_owned()));
    }
    let has_flags = !arguments.change.is_empty()
        || arguments.strategy.is_some()
        || arguments.max_capacity.is_some()
        || arguments.min_capacity.is_some();
    if has_flags && changed == present {
        output::note("note: nothing differs from the present configuration");
    }
    Ok((present, has_flags.then_some(changed)))
}

fn variant(
    name: &str,
    recording: &Recording,
    configuration: &Configuration,
    remarks: &mut Vec<String>,
) -> Result<Variant, Failure> {
    let replay = Replay::new(recording, configuration);
    let replay = replay.map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    for note in &replay.notes {
        let remark = format!("{name}: {note}");
        remarks.push(remark);
    }
    Ok(Variant {
        name: name.to_owned(),
        replay,
    })
}

fn simulate(
    study: &RecordedStudy,
    threads: Option<NonZeroUsize>,
) -> Result<ScenarioResult, Failure> {
    let progress = Mutex::new(Progress::start());
    let total = study.n_simulations();
    let report = |n_done: usize| {
        let mut progress = progress.lock().unwrap_or_else(PoisonError::into_inner);
        progress.report(|| format!("simulated {n_done} of {total}"));
    };
    let cores = || std::thread::available_parallelism().ok();
    let threads = threads.or_else(cores).map_or(1, NonZeroUsize::get);
    let result = study.run(threads, &report);
    result.map_err(|error| Failure::failed(error.to_string()))
}
