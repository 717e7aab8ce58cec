//! Benchmarks of the accounts of waits and costs: the size of a year, and how long reports over 30
//! days take.

mod costs;
mod waits;

use std::future::Future;
use std::path::PathBuf;

use clap::Args;
use domain::id::PoolId;
use serde_json::{Map, Value};
use store::{Options, Store, StoreError};

use crate::child::Database;
use crate::machine::{self, Stopwatch};
use crate::output;

const REPORTED_DAYS: i64 = 30;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// `sqlite`, or the URL of an empty PostgreSQL database
    #[arg(long, default_value = "sqlite", value_name = "sqlite|URL")]
    database: Database,
    /// Number of worker pools
    #[arg(long, default_value_t = 400, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    pools: u32,
    /// Number of workers that run, in all pools together
    #[arg(long, default_value_t = 100_000, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    workers: u32,
    /// Days in the accounts
    #[arg(long, default_value_t = 365, value_name = "N", value_parser = clap::value_parser!(i64).range(31..=3_650))]
    days: i64,
    /// How often each report is measured
    #[arg(long, default_value_t = 20, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000))]
    repetitions: u32,
    #[arg(skip)]
    file: PathBuf,
}

impl Arguments {
    /// The size of the database file. `None`: it is in no file of ours.
    fn bytes(&self) -> Option<u64> {
        std::fs::metadata(&self.file).map(|file| file.len()).ok()
    }

    /// The median time of this read.
    async fn median_ms<F: Future<Output = Result<(), StoreError>>>(
        &self,
        read: impl Fn() -> F,
    ) -> anyhow::Result<Value> {
        let mut times = Vec::new();
        for _ in 0..self.repetitions {
            let watch = Stopwatch::start();
            read().await?;
            times.push(watch.elapsed().as_secs_f64() * 1_000.0);
        }
        times.sort_by(f64::total_cmp);
        Ok(times.get(times.len() / 2).copied().into())
    }
}

pub(crate) async fn run(mut arguments: Arguments, as_json: bool) -> anyhow::Result<()> {
    let folder = machine::temporary_folder()?;
    arguments.file = folder.path().join("accounts.db");
    let url = arguments.database.url(&arguments.file);
    let store = Store::open(&Options {
        url,
        connections: 2,
    })?;
    let now = machine::now();
    store.migrate(now.as_millis()).await?;
    let mut figures = Map::new();
    figures.insert("database".to_owned(), arguments.database.name().into());
    let waits = waits::measure(&store, &arguments, now).await?;
    figures.insert("waits".to_owned(), waits.into());
    let costs = costs::measure(&store, &arguments, now).await?;
    figures.insert("costs".to_owned(), costs.into());
    store.close().await;
    output::figures(&Value::Object(figures), as_json, output::lines);
    Ok(())
}

fn pool_id(number: u32) -> PoolId {
    format!("bench/pool-{number:06}")
        .parse()
        .expect("this is a pool id")
}

fn owner(number: u32) -> String {
    format!("team-{}@example.com", number % 40)
}
