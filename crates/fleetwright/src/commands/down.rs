//! `down`: ends the `fleetwright up` of a data folder.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Context as _;
use clap::Args;
use serde_json::json;

use crate::data_folder::DataFolder;
use crate::failure::{Exit, Failure};
use crate::machine::{self, Stopwatch};
use crate::output::{self, Progress};

/// A server that stops answers its last requests first.
const STOP_LIMIT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Data folder of the server (default: in your data folder)
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
}

pub(crate) async fn run(arguments: Arguments, json: bool) -> Result<(), Failure> {
    let path = match arguments.data {
        Some(path) => path,
        None => DataFolder::default_path()?,
    };
    let data = DataFolder::inspect(&path)?;
    let folder = data.path().display();
    let Some(id) = data.holder()? else {
        return Err(Failure::new(
            Exit::NotFound,
            format!("no `fleetwright up` uses the data folder {folder}"),
        )
        .with_hint("--data selects the folder of another server"));
    };
    processes::terminate(id).with_context(|| format!("cannot end process {id}"))?;
    let (start, mut progress) = (Stopwatch::start(), Progress::start());
    while data.holder()? == Some(id) {
        if start.elapsed() >= STOP_LIMIT {
            return Err(Failure::failed(format!(
                "process {id} was asked to end {} s ago, and still runs",
                STOP_LIMIT.as_secs()
            ))
            .with_hint("`fleetwright down` once more ends it at once"));
        }
        progress.report(|| format!("waiting for process {id} to end"));
        machine::pause(POLL_INTERVAL).await;
    }
    drop(progress);
    if json {
        output::json(&json!({"dataFolder": folder.to_string(), "pid": id}));
    } else {
        output::out(&format!("ended the server of {folder} (process {id})"));
    }
    Ok(())
}
