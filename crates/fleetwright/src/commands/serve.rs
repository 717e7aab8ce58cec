//! A server as its configuration says.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use api_client::with_causes;
use clap::Args;
use server::config::{Config, LogFormat};
use server::run::RunError;

use crate::failure::Failure;
use crate::output;
use crate::owner_file::quoted;

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
    let (root_url, is_tls) = (config.root_url.clone(), config.tls.is_some());
    let ready = |address| {
        let root_url = root_url.unwrap_or_else(|| url_of(address, is_tls));
        output::out(&format!("fleetwright is ready at {root_url}"));
    };
    let doctor = doctor(&arguments.config);
    run(config, until_told_to_stop()?, ready, &doctor).await
}

/// Reads a configuration file.
pub(crate) fn read(file: &Path) -> Result<Config, Failure> {
    Config::read(file).map_err(|problem| {
        Failure::usage(with_causes(&problem))
            .advise("`fleetwright config example` prints a configuration that explains every key")
    })
}

/// Finds values that make no sense.
pub(super) fn check(config: &Config) -> Result<(), Failure> {
    config
        .check()
        .map_err(|problem| Failure::usage(with_causes(&problem)))
}

pub(super) fn start_log(config: &Config) -> Result<(), Failure> {
    server::telemetry::log_to_stderr(&config.log).map_err(Failure::usage)
}

/// The command that examines what this configuration describes.
pub(super) fn doctor(config: &Path) -> String {
    let config = quoted(&config.display().to_string());
    format!("fleetwright doctor --config {config}")
}

/// A URL that reaches this address from this machine.
pub(super) fn url_of(listen: SocketAddr, is_tls: bool) -> String {
    let mut reachable = listen;
    if listen.ip().is_unspecified() {
        reachable.set_ip(match listen.ip() {
            IpAddr::V4(_) => Ipv4Addr::LOCALHOST.into(),
            IpAddr::V6(_) => Ipv6Addr::LOCALHOST.into(),
        });
    }
    // The port that goes without saying: other programs refuse a root URL that says it.
    let (scheme, port) = if is_tls { ("https", 443) } else { ("http", 80) };
    let url = format!("{scheme}://{reachable}");
    match reachable.port() == port {
        true => url.trim_end_matches(&format!(":{port}")).to_owned(),
        false => url,
    }
}

/// Serves until told to stop. `doctor` is the command that looks for causes.
pub(super) async fn run(
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
    ready: impl FnOnce(SocketAddr) + Send,
    doctor: &str,
) -> Result<(), Failure> {
    // Tasks on a `local` pool run as our user.
    worker::keep_to_itself();
    // Who reads the log by program finds nothing but records there.
    let is_logged = matches!(config.log.format, LogFormat::Json);
    server::run(config, stop, ready).await.map_err(|problem| {
        let mut failure = Failure::failed(format!("the server stopped: {}", with_causes(&problem)));
        if is_logged {
            tracing::error!("{}", failure.message);
        }
        failure.is_logged = is_logged;
        // A taken address or database is its own cause, and says what to do.
        if !matches!(problem, RunError::Listen { .. } | RunError::InUse(_)) {
            failure.advice = Some(format!("`{doctor}` looks for causes"));
        }
        failure
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
            tracing::warn!("asked twice: stopping at once");
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_url_is_one_that_reaches_us() {
        for (listen, is_tls, url) in [
            ("127.0.0.1:8080", false, "http://127.0.0.1:8080"),
            ("0.0.0.0:80", false, "http://127.0.0.1"),
            ("[::]:80", false, "http://[::1]"),
            ("[::]:443", true, "https://[::1]"),
            ("127.0.0.1:443", false, "http://127.0.0.1:443"),
            ("127.0.0.1:180", false, "http://127.0.0.1:180"),
        ] {
            assert_eq!(url_of(listen.parse().unwrap(), is_tls), url);
        }
    }
}
