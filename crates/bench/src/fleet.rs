//! Benchmarks of the fleet: decisions, rounds, scans, claims, and an idle server.
//!
//! The clouds are simulated and respond at once; store, planner, background tasks and API are real.
//! Each part runs in its own process, so that its memory and time can be read. All parts use one
//! database, which the first part fills.

mod claims;
mod cloud;
mod fill;
mod host;
mod idle;
mod latency;
mod report;
mod round;

use clap::{Args, ValueEnum};
use domain::plan::StrategyName;
use serde_json::{Value, json};
use tempfile::TempDir;

use host::Host;

use super::child::{Database, figures_of, this_program};
use crate::{machine, output};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "sqlite|URL")]
    database: Database,
    /// Number of worker pools
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pools: u32,
    /// Number of workers in all pools together
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    workers: u32,
    /// Only these parts, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    only: Vec<Part>,
    /// The strategy of all pools
    #[arg(long, default_value = "weighted", value_name = "NAME")]
    strategy: StrategyName,
    /// Only rounds, with 100, 1,000 and 10,000 pools of 100 workers each
    #[arg(long, conflicts_with_all = ["pools", "workers", "only"])]
    curve: bool,
}

/// Number of pools at each point of the curve.
const CURVE: [u32; 3] = [100, 1_000, 10_000];
const WORKERS_PER_POOL: u32 = 100;

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// From createTask to the launch call, at 50 tasks a second over 100 pools
    Latency,
    /// claimWork with 64 waiting workers
    Claims,
    /// A round over all pools, and a scan of all workers
    Round,
    /// The load of an idle `up`, and the time until a task's log begins
    Idle,
}

/// A part in its own process; used only by this program.
#[derive(Args, Debug)]
pub(crate) struct PartArguments {
    #[arg(value_enum)]
    step: Step,
    #[arg(long)]
    folder: std::path::PathBuf,
    #[arg(long)]
    database: String,
    #[command(flatten)]
    size: Size,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Step {
    Fill,
    Latency,
    Claims,
    Round,
    Scan,
}

/// The size of the fleet that a step makes or finds.
#[derive(Args, Clone, Copy, Debug)]
struct Size {
    #[arg(long)]
    pools: u32,
    #[arg(long)]
    workers: u32,
    /// Number of pools that exist already
    #[arg(long)]
    already: u32,
    #[arg(long)]
    strategy: StrategyName,
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let mut figures = serde_json::Map::new();
    figures.insert("database".to_owned(), arguments.database.name().into());
    figures.insert("loadBefore".to_owned(), host::load().into());
    if arguments.curve {
        figures.insert("curve".to_owned(), curve(&arguments)?);
    } else {
        parts(&arguments, &mut figures).await?;
    }
    figures.insert("loadAfter".to_owned(), host::load().into());
    output::figures(&Value::Object(figures), as_json, report::text);
    Ok(())
}

/// Each point keeps the pools of the previous point and adds more.
fn curve(arguments: &Arguments) -> anyhow::Result<Value> {
    let folder = machine::temporary_folder()?;
    let mut points = Vec::new();
    let mut already = 0;
    for pools in CURVE {
        let workers = pools * WORKERS_PER_POOL;
        let size = Size {
            pools,
            workers,
            already,
            strategy: arguments.strategy,
        };
        output::note(&format!("filling the database: {pools} pools"));
        let fill = in_own_process(size, Step::Fill, &folder, &arguments.database)?;
        output::note(&format!("measuring: a round over {pools} pools"));
        let round = in_own_process(size, Step::Round, &folder, &arguments.database)?;
        points.push(json!({"pools": pools, "workers": workers, "fill": fill, "round": round}));
        already = pools;
    }
    Ok(Value::Array(points))
}

async fn parts(
    arguments: &Arguments,
    figures: &mut serde_json::Map<String, Value>,
) -> anyhow::Result<()> {
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let size = Size {
        pools: arguments.pools,
        workers: arguments.workers,
        already: 0,
        strategy: arguments.strategy,
    };
    figures.insert("pools".to_owned(), size.pools.into());
    figures.insert("workers".to_owned(), size.workers.into());
    // With PostgreSQL, all parts use the same database, so the keys must be the same.
    let shared = machine::temporary_folder()?;
    let mut measure = |steps: &[(Step, &str)]| -> anyhow::Result<()> {
        let own = match arguments.database {
            Database::Sqlite => Some(machine::temporary_folder()?),
            Database::Postgres { .. } => None,
        };
        for (step, name) in steps {
            output::note(&format!("measuring: {name}"));
            let figure = in_own_process(
                size,
                *step,
                own.as_ref().unwrap_or(&shared),
                &arguments.database,
            )?;
            figures.insert((*name).to_owned(), figure);
        }
        Ok(())
    };
    if wants(Part::Latency) {
        measure(&[(Step::Latency, "latency")])?;
    }
    if wants(Part::Claims) {
        measure(&[(Step::Claims, "claims")])?;
    }
    if wants(Part::Round) {
        measure(&[
            (Step::Fill, "fill"),
            (Step::Round, "round"),
            (Step::Scan, "scan"),
        ])?;
    }
    if wants(Part::Idle) && matches!(arguments.database, Database::Sqlite) {
        output::note("measuring: an idle server, and the first line of a log");
        figures.insert("idle".to_owned(), idle::measure(&arguments.database).await?);
    }
    Ok(())
}

fn in_own_process(
    size: Size,
    step: Step,
    folder: &TempDir,
    database: &Database,
) -> anyhow::Result<Value> {
    let name = step
        .to_possible_value()
        .map(|value| value.get_name().to_owned());
    let url = match database {
        Database::Sqlite => format!("sqlite:{}", folder.path().join("fleet.db").display()),
        Database::Postgres { url } => url.clone(),
    };
    figures_of(
        this_program()?
            .args(["fleet-part", &name.unwrap_or_default(), "--folder"])
            .arg(folder.path())
            .args(["--database", &url])
            .args(["--pools", &size.pools.to_string()])
            .args(["--workers", &size.workers.to_string()])
            .args(["--already", &size.already.to_string()])
            .args(["--strategy", size.strategy.as_str()]),
    )
}

pub(crate) async fn part(arguments: PartArguments) -> anyhow::Result<()> {
    let strategy = arguments.size.strategy;
    let host = Host::start(&arguments.folder, &arguments.database, strategy).await?;
    let figures = match arguments.step {
        Step::Fill => fill::fill(&host, arguments.size).await?,
        Step::Latency => latency::measure(&host).await?,
        Step::Claims => claims::measure(&host).await?,
        Step::Round => round::round(&host).await?,
        Step::Scan => round::scan(&host).await?,
    };
    host.stop().await;
    output::json(&figures);
    Ok(())
}
