//! A server as its configuration says.

use std::future::Future;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use server::config::Config;

use crate::failure::Failure;
use crate::output;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// The configuration; `fleetwright config example` prints one
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
}

pub(crate) async fn command(arguments: Arguments) -> Result<(), Failure> {
    let config = read(&arguments.config)?;
    check(&config)?;
    start_log(&config)?;
    let ready = |address| output::note(&format!("fleetwright is ready at {address}"));
    run(config, until_told_to_stop()?, ready).await
}

/// Reads a configuration file.
pub(crate) fn read(file: &Path) -> Result<Config, Failure> {
    Config::read(file).map_err(|problem| {
        Failure::usage(chain(&problem))
            .advise("`fleetwright config example` prints a configuration that explains every key")
    })
}

/// Finds values that make no sense.
pub(super) fn check(config: &Config) -> Result<(), Failure> {
    config
        .check()
        .map_err(|problem| Failure::usage(chain(&problem)))
}

pub(super) fn start_log(config: &Config) -> Result<(), Failure> {
    server::telemetry::log_to_stderr(&config.log).map_err(Failure::usage)
}

/// Serves until told to stop.
pub(super) async fn run(
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
    ready: impl FnOnce(SocketAddr) + Send,
) -> Result<(), Failure> {
    server::run(config, stop, ready).await.map_err(|problem| {
        Failure::failed(format!("the server stopped: {}", chain(&problem)))
            .advise("`fleetwright doctor` looks for causes")
    })
}

/// Ready when the system or the user asks us to end. Who asks twice does not want to wait for
/// requests under way.
#[cfg(unix)]
pub(super) fn until_told_to_stop() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    use tokio::signal::unix::{SignalKind, signal};
    let mut terminate = signal(SignalKind::terminate()).context("cannot wait for signals")?;
    let mut interrupt = signal(SignalKind::interrupt()).context("cannot wait for signals")?;
    let mut next = async move || {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
    };
    Ok(async move {
        next().await;
        tokio::spawn(async move {
            next().await;
            output::note("asked twice: stopping at once");
            std::process::exit(1);
        });
    })
}

#[cfg(not(unix))]
pub(super) fn until_told_to_stop() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
    Ok(async {
        if tokio::signal::ctrl_c().await.is_err() {
            std::future::pending().await
        }
    })
}

/// An error and its causes, in one line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(&format!(": {cause}"));
        next = cause.source();
    }
    text
}
