//! A database of its own for each measurement: a new one, or one as it is after a year.

use std::path::{Path, PathBuf};

use access::slugid;
use anyhow::Context as _;
use clap::Args;
use store::year_old::{self, YearOld};
use store::{Options, Store};
use tempfile::TempDir;

use crate::child::Database;
use crate::machine::{self, Stopwatch};
use crate::{output, postgres};

/// The flag that measures on year-old databases too.
#[derive(Args, Clone, Copy, Debug, Default)]
pub(crate) struct YearOldArgument {
    /// Measure on a database as it is after a year too; DIVISOR makes it smaller
    #[arg(
        long, value_name = "DIVISOR", num_args = 0..=1, require_equals = true,
        default_missing_value = "1", value_parser = clap::value_parser!(u32).range(1..=400)
    )]
    pub(crate) year_old: Option<u32>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Age {
    Fresh,
    YearOld,
}

/// Makes databases, and removes them at the end.
pub(crate) struct Databases {
    /// `sqlite`, or the address of a server.
    on: Database,
    year_old: Option<u32>,
    /// The copied database, once it is filled.
    template: Option<Template>,
    /// Distinguishes this run's databases from others on the same server.
    run: String,
    n_made: usize,
}

enum Template {
    File { _folder: TempDir, file: PathBuf },
    Database(String),
}

impl Databases {
    pub(crate) fn new(on: &Database, year_old: YearOldArgument) -> Self {
        let run = slugid::nice(&mut machine::chance()).to_ascii_lowercase();
        let run = run.chars().filter(char::is_ascii_alphanumeric).take(8);
        Self {
            on: on.clone(),
            year_old: year_old.year_old,
            template: None,
            run: run.collect(),
            n_made: 0,
        }
    }

    pub(crate) fn ages(&self) -> &'static [Age] {
        match self.year_old {
            None => &[Age::Fresh],
            Some(_) => &[Age::Fresh, Age::YearOld],
        }
    }

    /// Whether they are on a server, and not files.
    pub(crate) fn on_server(&self) -> bool {
        matches!(self.on, Database::Postgres { .. })
    }

    /// Makes a database: on SQLite, it is or will be in this file.
    pub(crate) async fn make(&mut self, age: Age, file: &Path) -> anyhow::Result<Database> {
        if age == Age::YearOld && self.template.is_none() {
            self.template = Some(self.fill_template().await?);
        }
        let template = self.template.as_ref().filter(|_| age == Age::YearOld);
        match (&self.on, template) {
            (Database::Sqlite, None) => Ok(Database::Sqlite),
            (Database::Sqlite, Some(Template::File { file: filled, .. })) => {
                replace(filled, file).context("cannot copy the filled database")?;
                Ok(Database::Sqlite)
            }
            (Database::Sqlite, Some(Template::Database(_))) => {
                anyhow::bail!("a SQLite database cannot be copied from a server")
            }
            (Database::Postgres { url }, template) => {
                let url = url.clone();
                let template = match template {
                    Some(Template::Database(name)) => Some(name.clone()),
                    Some(Template::File { .. }) | None => None,
                };
                let name = self.next_name();
                postgres::create(&url, &name, template.as_deref()).await?;
                let url = postgres::address_of(&url, &name);
                Ok(Database::Postgres { url })
            }
        }
    }

    async fn fill_template(&mut self) -> anyhow::Result<Template> {
        let divisor = self.year_old.unwrap_or(1);
        match self.on.clone() {
            Database::Sqlite => {
                let folder = machine::temporary_folder()?;
                let file = folder.path().join("year.db");
                fill(&Database::Sqlite.url(&file), divisor).await?;
                let log = folder.path().join("year.db-wal");
                anyhow::ensure!(!log.exists(), "the filled database is not closed");
                Ok(Template::File {
                    _folder: folder,
                    file,
                })
            }
            Database::Postgres { url } => {
                let name = self.next_name();
                postgres::create(&url, &name, None).await?;
                let filled = postgres::address_of(&url, &name);
                fill(&filled, divisor).await?;
                // Otherwise the server would do so in the middle of a measurement.
                postgres::vacuum(&filled).await?;
                Ok(Template::Database(name))
            }
        }
    }

    fn next_name(&mut self) -> String {
        self.n_made += 1;
        self.name(self.n_made)
    }

    fn name(&self, number: usize) -> String {
        format!("fleetwright_bench_{}_{number}", self.run)
    }

    /// Removes a database that is no longer needed; a file disappears with its folder.
    pub(crate) async fn discard(&self, database: &Database) -> anyhow::Result<()> {
        if let (Database::Postgres { url }, Database::Postgres { url: own }) = (&self.on, database)
        {
            postgres::remove(url, postgres::name_in(own)).await?;
        }
        Ok(())
    }

    /// Removes all databases that were made on a server.
    pub(crate) async fn remove(self) -> anyhow::Result<()> {
        if let Database::Postgres { url } = &self.on {
            for number in 1..=self.n_made {
                postgres::remove(url, &self.name(number)).await?;
            }
        }
        Ok(())
    }
}

/// Fills a new database with a year, and returns how many seconds that took.
pub(crate) async fn fill(url: &str, divisor: u32) -> anyhow::Result<f64> {
    output::note("filling the database with a year");
    let options = Options {
        url: url.to_owned(),
        connections: 2,
    };
    let store = Store::open(&options)?;
    let now = machine::now();
    store.migrate(now.as_millis()).await?;
    let watch = Stopwatch::start();
    let year = YearOld {
        now,
        divisor,
        seed: 7,
    };
    let filled = year_old::fill(&store, year).await;
    filled.context("only a new database can be filled")?;
    store.close().await;
    Ok(watch.elapsed().as_secs_f64())
}

/// Replaces a SQLite database that no process has open.
fn replace(from: &Path, to: &Path) -> std::io::Result<()> {
    for suffix in ["-wal", "-shm"] {
        let mut log = to.as_os_str().to_owned();
        log.push(suffix);
        match std::fs::remove_file(PathBuf::from(log)) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => return Err(error),
            Ok(()) | Err(_) => {}
        }
    }
    std::fs::copy(from, to).map(drop)
}
