//! `serve`: runs a server from a configuration file.

use std::future::Future;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context as _;
use api_client::with_causes;
use clap::Args;
use cloud::Provider;
use domain::id::ProviderId;
use server::config::{Config, LogFormat};
use server::run::RunError;

use crate::failure::Failure;
use crate::output;
use crate::owner_file::quoted;

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Configuration file; `fleetwright config example` prints an example
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
    Box::pin(run(config, stop_signal()?, ready, &doctor)).await
}

pub(crate) fn read(file: &Path) -> Result<Config, Failure> {
    Config::read(file).map_err(|error| {
        Failure::usage(with_causes(&error))
            .with_hint("`fleetwright config example` prints a configuration with every key")
    })
}

pub(super) fn check(config: &Config) -> Result<(), Failure> {
    config
        .check()
        .map_err(|error| Failure::usage(with_causes(&error)))
}

pub(super) fn start_log(config: &Config) -> Result<(), Failure> {
    server::telemetry::log_to_stderr(&config.log).map_err(Failure::usage)
}

/// The `doctor` command for this configuration.
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
    // Omits the default port: other programs refuse a root URL with it.
    let (scheme, port) = if is_tls { ("https", 443) } else { ("http", 80) };
    let url = format!("{scheme}://{reachable}");
    if reachable.port() == port {
        url.trim_end_matches(&format!(":{port}")).to_owned()
    } else {
        url
    }
}

/// Runs the server until it is stopped. `doctor` is the command for the hint.
pub(super) async fn run(
    config: Config,
    stop: impl Future<Output = ()> + Send + 'static,
    ready: impl FnOnce(SocketAddr) + Send,
    doctor: &str,
) -> Result<(), Failure> {
    run_with(config, Vec::new(), stop, ready, doctor).await
}

/// The same with providers besides those of the configuration.
pub(super) async fn run_with(
    config: Config,
    further: Vec<(ProviderId, Arc<dyn Provider>)>,
    stop: impl Future<Output = ()> + Send + 'static,
    ready: impl FnOnce(SocketAddr) + Send,
    doctor: &str,
) -> Result<(), Failure> {
    // A JSON log must contain only records.
    let is_logged = config.log.format != LogFormat::Pretty;
    let done = server::run_with(config, further, stop, ready).await;
    done.map_err(|error| {
        let mut failure = Failure::failed(format!("the server stopped: {}", with_causes(&error)));
        if is_logged {
            tracing::error!("{}", failure.message);
        }
        failure.is_logged = is_logged;
        // These errors have their own hints.
        if !matches!(error, RunError::Listen { .. } | RunError::InUse(_)) {
            failure.hint = Some(format!("run `{doctor}`"));
        }
        failure
    })
}

/// Completes at the first SIGTERM or SIGINT. The second one ends the process at once.
#[cfg(unix)]
pub(super) fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
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
            tracing::warn!("second signal: stopping at once");
            std::process::exit(1);
        });
    })
}

#[cfg(not(unix))]
pub(super) fn stop_signal() -> Result<impl Future<Output = ()> + Send + 'static, Failure> {
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
    fn the_root_url_reaches_the_server() {
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
