//! Everything that has an aim, on each database.

mod aims;
mod markdown;
mod tables;
mod year_tables;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::Context as _;
use clap::{Args, ValueEnum};
use domain::plan::StrategyName;
use serde_json::{Map, Value, json};

use crate::child::{Database, figures_of, this_program};
use crate::databases::{Age, Databases, YearOldArgument};
use crate::fleet::{Effort, Part, year};
use crate::load::Length;
use crate::scenario::Pace;
use crate::{api, fleet, machine, output, postgres};

/// Starts a private PostgreSQL server for a command.
const WITH_POSTGRES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../scripts/with-postgres");
/// The variable in which that command finds the server.
const POSTGRES_URL: &str = "TEST_PG_URL";
/// The divisor of year-old databases that leaves hardly anything.
const SMALLEST: u32 = 400;

#[derive(Args, Clone, Debug)]
pub(crate) struct Arguments {
    /// Measure the API of this older program too, on new databases
    #[arg(long, value_name = "PROGRAM")]
    before: Option<PathBuf>,
    /// A short run with small databases, which shows that everything works, and not how fast
    #[arg(long)]
    quick: bool,
    /// Divides the size of year-old databases; aims are for those that are not divided
    #[arg(long, default_value_t = 1, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=400))]
    divisor: u32,
    /// Only on these databases, separated by commas
    #[arg(long, value_delimiter = ',', value_name = "DATABASE")]
    only: Vec<Kind>,
}

/// A database, and whether it waits for the disk at each commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Kind {
    /// SQLite
    Sqlite,
    /// A private PostgreSQL that does not wait for the disk
    Postgres,
    /// A private PostgreSQL that waits for the disk at each commit
    PostgresFsync,
}

/// How much is measured.
struct Size {
    year_old: YearOldArgument,
    pace: Pace,
    effort: Effort,
    /// Pools and workers of the fleet that is scanned.
    scanned: (u32, u32),
    /// Pools and workers of the fleet that rounds are made over.
    planned: (u32, u32),
}

pub(crate) async fn run(arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let load_before = machine::load();
    let mut databases = Map::new();
    for kind in Kind::value_variants() {
        if !arguments.only.is_empty() && !arguments.only.contains(kind) {
            continue;
        }
        output::note(&format!("=== {}", kind.title()));
        let mut figures = match kind {
            Kind::Sqlite => measure(&Database::Sqlite, &arguments).await?,
            Kind::Postgres => beside_postgres(&[], &arguments)?,
            Kind::PostgresFsync => beside_postgres(&["--fsync"], &arguments)?,
        };
        figures["aims"] = aims::figures(*kind, &figures);
        databases.insert(kind.key().to_owned(), figures);
    }
    let mut described = machine::describe();
    described["loadBefore"] = load_before.into();
    described["loadAfter"] = machine::load().into();
    let figures = json!({
        "machine": described,
        "quick": arguments.quick,
        "divisor": arguments.divisor,
        "databases": databases,
    });
    output::figures(&figures, as_json, tables::text);
    Ok(())
}

/// Runs the measurements of one server in a process that the script starts beside it.
fn beside_postgres(flags: &[&str], arguments: &Arguments) -> anyhow::Result<Value> {
    let script = Path::new(WITH_POSTGRES);
    anyhow::ensure!(
        script.is_file(),
        "{WITH_POSTGRES} does not exist: run this program where it was built"
    );
    let program = this_program()?;
    let mut command = Command::new(script);
    command
        .args(flags)
        .arg(program.get_program())
        .arg("all-on-postgres")
        .stderr(Stdio::inherit());
    if let Some(before) = &arguments.before {
        let before = std::path::absolute(before).context("the older program has no path")?;
        command.arg("--before").arg(before);
    }
    if arguments.quick {
        command.arg("--quick");
    }
    command.args(["--divisor", &arguments.divisor.to_string()]);
    figures_of(&mut command)
}

/// The part that runs beside a PostgreSQL server.
pub(crate) async fn on_postgres(arguments: Arguments) -> anyhow::Result<()> {
    let url = std::env::var(POSTGRES_URL);
    let url = url.with_context(|| format!("{POSTGRES_URL} names no server"))?;
    let version = postgres::version(&url).await?;
    let mut figures = measure(&Database::Postgres { url }, &arguments).await?;
    figures["version"] = version.into();
    output::json(&figures);
    Ok(())
}

async fn measure(database: &Database, arguments: &Arguments) -> anyhow::Result<Value> {
    let size = Size::of(arguments);
    let mut databases = Databases::new(database, size.year_old);
    let settings = api::Settings {
        database: database.clone(),
        pace: size.pace,
        before: arguments.before.clone(),
    };
    let api = api::measure(settings, &mut databases).await?.document();
    output::note(&api.to_string());
    let of_fleet = |only: &[Part], (pools, workers)| fleet::Arguments {
        database: database.clone(),
        pools,
        workers,
        only: only.to_vec(),
        strategy: StrategyName::Weighted,
        year_old: size.year_old,
        curve: false,
        effort: size.effort,
    };
    let parts = [Part::Latency, Part::Claims, Part::Scan];
    let fleet = fleet::measure(&of_fleet(&parts, size.scanned), &mut databases).await?;
    let rounds = of_fleet(&[Part::Round], size.planned);
    let rounds = fleet::measure(&rounds, &mut databases).await?;
    let year = measure_year(arguments, &mut databases).await?;
    databases.remove().await?;
    Ok(json!({"api": api, "fleet": fleet, "rounds": rounds, "year": year}))
}

/// Measures each statement on a year-old database.
async fn measure_year(arguments: &Arguments, databases: &mut Databases) -> anyhow::Result<Value> {
    let folder = machine::temporary_folder()?;
    let file = folder.path().join(year::FILE);
    let database = databases.make(Age::YearOld, &file).await?;
    let url = database.url(&file);
    let parts = match arguments.quick {
        true => year::Parts::Once,
        false => year::Parts::All,
    };
    let figures = year::measure(folder.path(), &url, arguments.divisor(), parts).await?;
    databases.discard(&database).await?;
    Ok(figures)
}

impl Kind {
    fn key(self) -> &'static str {
        match self {
            Self::Sqlite => "sqlite",
            Self::Postgres => "postgres",
            Self::PostgresFsync => "postgresFsync",
        }
    }

    fn title(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL without fsync",
            Self::PostgresFsync => "PostgreSQL with fsync",
        }
    }
}

impl Arguments {
    /// The divisor of year-old databases.
    fn divisor(&self) -> u32 {
        match self.quick {
            true => SMALLEST,
            false => self.divisor,
        }
    }
}

impl Size {
    fn of(arguments: &Arguments) -> Self {
        if arguments.quick {
            Self::quick()
        } else {
            Self::full(arguments.divisor)
        }
    }

    /// The sizes that the aims are for.
    fn full(divisor: u32) -> Self {
        Self {
            year_old: YearOldArgument {
                year_old: Some(divisor),
            },
            pace: Pace {
                length: Length::For(Duration::from_secs(3)),
                rounds: 5,
                settling: Duration::from_secs(60),
            },
            effort: Effort {
                tasks: 1_000,
                fewer: 1,
                settling: 60,
            },
            scanned: (1_000, 100_000),
            planned: (10_000, 1_000_000),
        }
    }

    /// As small as possible.
    fn quick() -> Self {
        Self {
            year_old: YearOldArgument {
                year_old: Some(SMALLEST),
            },
            pace: Pace::smallest(1),
            effort: Effort {
                tasks: 1,
                fewer: 64,
                settling: 0,
            },
            scanned: (10, 100),
            planned: (20, 200),
        }
    }
}
