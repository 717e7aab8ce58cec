//! `builder`: builds and uploads images, without a server or a database.

use std::path::PathBuf;

use api_client::with_causes;
use clap::Args;
use server::builder::BuilderProblem;
use tokio_util::sync::CancellationToken;

use super::serve::{read, start_log, stop_signal};
use crate::failure::Failure;
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Configuration file, with the tree (ZooKeeper), images, keys and the providers
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) async fn command(arguments: Arguments) -> Result<(), Failure> {
    let config = read(&arguments.config)?;
    start_log(&config)?;
    let (stop, signal) = (CancellationToken::new(), stop_signal()?);
    tokio::spawn({
        let stop = stop.clone();
        async move {
            signal.await;
            tracing::info!("stopping: ending running builds, which other builders take over");
            stop.cancel();
        }
    });
    let ready = |name: &str| output::out(&format!("builder {name} is ready"));
    let ended = server::builder::run(config, stop, ready).await;
    ended.map_err(|problem| {
        let text = with_causes(&problem);
        match problem {
            BuilderProblem::Config(_) => Failure::usage(text)
                .with_hint("`fleetwright config example` prints a configuration with every key"),
            BuilderProblem::Exposed(..)
            | BuilderProblem::Artifacts(_)
            | BuilderProblem::ArtifactFolder(_)
            | BuilderProblem::Program(_)
            | BuilderProblem::Listen { .. }
            | BuilderProblem::Random(_)
            | BuilderProblem::Builder(_)
            | BuilderProblem::Tree(_) => Failure::failed(format!("the builder stopped: {text}")),
        }
    })
}
