//! Benchmarks of the fleet: decisions, rounds, scans, claims, and an idle server.
//!
//! The clouds are simulated and respond at once; store, planner, background tasks and API are real.
//! Each part runs in its own process, so that its memory and time can be read, and on a database of
//! its own.

mod claims;
mod cloud;
mod fill;
mod host;
mod idle;
mod latency;
mod pages;
mod report;
mod round;
mod series;
pub(crate) mod year;

use std::process::Command;
use std::time::Duration;

use clap::{Args, ValueEnum};
use domain::plan::StrategyName;
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use host::Host;

use super::child::{Database, figures_of, this_program};
use crate::databases::{Age, Databases, YearOldArgument};
use crate::{machine, output, postgres};

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// `sqlite`, or the URL of a PostgreSQL server whose user may create databases
    #[arg(long, default_value = "sqlite", value_name = "sqlite|URL")]
    pub(crate) database: Database,
    /// Number of worker pools
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000))]
    pub(crate) pools: u32,
    /// Number of workers in all pools together
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub(crate) workers: u32,
    /// Only these parts, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "PART")]
    pub(crate) only: Vec<Part>,
    /// The strategy of all pools
    #[arg(long, default_value = "weighted", value_name = "NAME")]
    pub(crate) strategy: StrategyName,
    #[command(flatten)]
    pub(crate) year_old: YearOldArgument,
    /// Only rounds, with 100, 1,000 and 10,000 pools of 100 workers each
    #[arg(long, conflicts_with_all = ["pools", "workers", "only", "year_old"])]
    pub(crate) curve: bool,
    #[command(flatten)]
    pub(crate) effort: Effort,
}

/// How much is done in the parts that send requests.
#[derive(Args, Clone, Copy, Debug)]
pub(crate) struct Effort {
    /// Tasks that are created to measure latency
    #[arg(long, default_value_t = 1_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=100_000), hide = true)]
    pub(crate) tasks: u32,
    /// Divides the numbers of waiting workers
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64), hide = true)]
    pub(crate) fewer: u32,
    /// The longest wait for an idle server before it is measured
    #[arg(long, default_value_t = 60, value_name = "SECONDS", hide = true)]
    pub(crate) settling: u64,
}

/// Workers that claim at the same time.
const WAITING: [u32; 3] = [64, 1_000, 5_000];
/// Number of pools at each point of the curve.
const CURVE: [u32; 3] = [100, 1_000, 10_000];
const WORKERS_PER_POOL: u32 = 100;

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// From createTask to the launch call, at 50 tasks a second over 100 pools
    Latency,
    /// claimWork with 64, 1,000 and 5,000 workers that claim at the same time
    Claims,
    /// Rounds over all pools
    Round,
    /// Scans of all workers
    Scan,
    /// A minute of series, a status, and short series of 100 pools
    Series,
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
    Series,
    Pages,
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
    /// Number of workers that claim
    #[arg(long)]
    waiting: u32,
    /// Number of tasks that are created
    #[arg(long)]
    tasks: u32,
    #[arg(long)]
    settling_seconds: u64,
}

impl Size {
    fn of(arguments: &Arguments) -> Self {
        let Effort {
            tasks, settling, ..
        } = arguments.effort;
        Self {
            pools: arguments.pools,
            workers: arguments.workers,
            already: 0,
            strategy: arguments.strategy,
            waiting: 0,
            tasks,
            settling_seconds: settling,
        }
    }

    fn settling(self) -> Duration {
        Duration::from_secs(self.settling_seconds)
    }
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let mut figures = Map::new();
    figures.insert("database".to_owned(), arguments.database.name().into());
    figures.insert("loadBefore".to_owned(), machine::load().into());
    if arguments.curve {
        figures.insert("curve".to_owned(), curve(&arguments).await?);
    } else {
        let mut databases = Databases::new(&arguments.database, arguments.year_old);
        figures.extend(measure(&arguments, &mut databases).await?);
        databases.remove().await?;
    }
    figures.insert("loadAfter".to_owned(), machine::load().into());
    output::figures(&Value::Object(figures), as_json, report::text);
    Ok(())
}

/// Each point keeps the pools of the previous point and adds more.
async fn curve(arguments: &Arguments) -> anyhow::Result<Value> {
    let mut databases = Databases::new(&arguments.database, arguments.year_old);
    let place = Place::make(&mut databases, Age::Fresh).await?;
    let mut points = Vec::new();
    let mut already = 0;
    for pools in CURVE {
        let workers = pools * WORKERS_PER_POOL;
        let size = Size {
            pools,
            workers,
            already,
            ..Size::of(arguments)
        };
        output::note(&format!("filling the database: {pools} pools"));
        let fill = place.in_own_process(size, Step::Fill)?;
        output::note(&format!("measuring: a round over {pools} pools"));
        let round = place.in_own_process(size, Step::Round)?;
        points.push(json!({"pools": pools, "workers": workers, "fill": fill, "round": round}));
        already = pools;
    }
    databases.remove().await?;
    Ok(Value::Array(points))
}

/// Measures each part on a new database, and then on a year-old one.
pub(crate) async fn measure(
    arguments: &Arguments,
    databases: &mut Databases,
) -> anyhow::Result<Map<String, Value>> {
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let (mut fresh, mut year_old) = (Map::new(), Map::new());
    for part in [Part::Latency, Part::Claims, Part::Round] {
        // Scans and series need the same fleet as a round.
        let is_same = part == Part::Round && (wants(Part::Scan) || wants(Part::Series));
        let is_wanted = wants(part) || is_same;
        for age in databases.ages().iter().filter(|_| is_wanted) {
            let place = Place::make(databases, *age).await?;
            let figures = match age {
                Age::Fresh => &mut fresh,
                Age::YearOld => &mut year_old,
            };
            output::note(match age {
                Age::Fresh => "on a new database",
                Age::YearOld => "on a year-old database",
            });
            measure_part(arguments, part, &place, figures).await?;
            databases.discard(&place.database).await?;
        }
    }
    if wants(Part::Idle) && !databases.on_server() {
        output::note("measuring: an idle server, and the first line of a log");
        fresh.insert("idle".to_owned(), idle::measure(&arguments.database).await?);
    }
    fresh.insert("pools".to_owned(), arguments.pools.into());
    fresh.insert("workers".to_owned(), arguments.workers.into());
    if !year_old.is_empty() {
        fresh.insert("yearOld".to_owned(), year_old.into());
    }
    Ok(fresh)
}

async fn measure_part(
    arguments: &Arguments,
    part: Part,
    place: &Place,
    figures: &mut Map<String, Value>,
) -> anyhow::Result<()> {
    let size = Size::of(arguments);
    let wants = |part| arguments.only.is_empty() || arguments.only.contains(&part);
    let mut step = |name: &str, step| -> anyhow::Result<()> {
        output::note(&format!("measuring: {name}"));
        figures.insert(name.to_owned(), place.in_own_process(size, step)?);
        Ok(())
    };
    match part {
        Part::Latency => step("latency", Step::Latency)?,
        Part::Claims => {
            let mut claims = Vec::new();
            for waiting in WAITING {
                let waiting = waiting.div_ceil(arguments.effort.fewer);
                output::note(&format!("measuring: claims of {waiting} workers"));
                let size = Size { waiting, ..size };
                claims.push(place.in_own_process(size, Step::Claims)?);
            }
            figures.insert("claims".to_owned(), claims.into());
        }
        Part::Round | Part::Scan | Part::Series => {
            step("fill", Step::Fill)?;
            // PostgreSQL would do so in the middle of a round, and a fleet grows more slowly.
            if let Database::Postgres { .. } = place.database {
                postgres::vacuum(&place.url).await?;
            }
            if wants(Part::Round) {
                step("round", Step::Round)?;
            }
            if wants(Part::Scan) {
                step("scan", Step::Scan)?;
            }
            if wants(Part::Series) {
                step("series", Step::Series)?;
            }
        }
        Part::Idle => {}
    }
    Ok(())
}

/// A database of its own, and the folder with its keys.
struct Place {
    folder: TempDir,
    database: Database,
    url: String,
}

impl Place {
    async fn make(databases: &mut Databases, age: Age) -> anyhow::Result<Self> {
        let folder = machine::temporary_folder()?;
        let file = folder.path().join("fleet.db");
        let database = databases.make(age, &file).await?;
        let url = database.url(&file);
        Ok(Self {
            folder,
            database,
            url,
        })
    }

    fn in_own_process(&self, size: Size, step: Step) -> anyhow::Result<Value> {
        let figures = figures_of(&mut self.process(size, step)?)?;
        // If a later part fails, these are not lost.
        output::note(&figures.to_string());
        Ok(figures)
    }

    fn process(&self, size: Size, step: Step) -> anyhow::Result<Command> {
        let name = step
            .to_possible_value()
            .map(|value| value.get_name().to_owned());
        let mut process = this_program()?;
        process
            .args(["fleet-part", &name.unwrap_or_default(), "--folder"])
            .arg(self.folder.path())
            .args(["--database", &self.url])
            .args(["--pools", &size.pools.to_string()])
            .args(["--workers", &size.workers.to_string()])
            .args(["--already", &size.already.to_string()])
            .args(["--strategy", size.strategy.as_str()])
            .args(["--waiting", &size.waiting.to_string()])
            .args(["--tasks", &size.tasks.to_string()])
            .args(["--settling-seconds", &size.settling_seconds.to_string()]);
        Ok(process)
    }
}

/// A server with this many pools and workers and a day of history, as a process that serves until
/// its standard input ends. Its first line says where it is.
pub(crate) struct Large {
    place: Place,
    size: Size,
}

impl Large {
    pub(crate) async fn make(pools: u32, workers: u32) -> anyhow::Result<Self> {
        let mut databases = Databases::new(&Database::Sqlite, YearOldArgument::default());
        let place = Place::make(&mut databases, Age::Fresh).await?;
        let size = Size {
            pools,
            workers,
            already: 0,
            strategy: StrategyName::Weighted,
            waiting: 0,
            tasks: 0,
            settling_seconds: 0,
        };
        place.in_own_process(size, Step::Fill)?;
        Ok(Self { place, size })
    }

    pub(crate) fn command(&self) -> anyhow::Result<Command> {
        self.place.process(self.size, Step::Pages)
    }
}

pub(crate) async fn part(arguments: PartArguments) -> anyhow::Result<()> {
    let strategy = arguments.size.strategy;
    let PartArguments {
        folder, database, ..
    } = &arguments;
    let host = Host::start(folder, database, strategy, cloud::PROVIDER).await?;
    let figures = match arguments.step {
        Step::Pages => return pages::serve(&host).await,
        Step::Fill => fill::fill(&host, arguments.size).await?,
        Step::Latency => latency::measure(&host, arguments.size).await?,
        Step::Claims => claims::measure(&host, arguments.size).await?,
        Step::Round => round::round(&host).await?,
        Step::Scan => round::scan(&host).await?,
        Step::Series => series::measure(&host, database).await?,
    };
    host.stop().await;
    output::json(&figures);
    Ok(())
}
