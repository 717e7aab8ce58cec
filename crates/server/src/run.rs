//! Runs the server until it is stopped.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use cloud::Provider;
use domain::id::ProviderId;
use engine::clock::SystemClock;
use engine::database_clock::DatabaseClock;
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use store::LockError;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::listener::Server;
use crate::app::App;
use crate::background::driver::Driver;
use crate::background::tree_keeper;
use crate::background::{self, ClockMeasurement};
use crate::config::{Config, Role};
use crate::exposure;
use crate::open_files;
use crate::start::{StartError, await_database, start};

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "cannot listen on {address} ({problem}); does another server use it? Choose another \
         address with --listen, or `listen` in the configuration"
    )]
    Listen {
        address: SocketAddr,
        problem: io::Error,
    },
    #[error("cannot listen on `{key}` = \"{address}\" ({problem}); does another server use it?")]
    ListenAt {
        key: &'static str,
        address: SocketAddr,
        problem: io::Error,
    },
    #[error(
        "{0}: stop that server first, or use another database (`database.url`, or --data of `up`); \
         several servers need PostgreSQL"
    )]
    InUse(LockError),
    #[error("the server cannot start")]
    Start(#[from] StartError),
    #[error("{0}: {1}")]
    Exposed(String, String),
    #[error("the operating system provides no random numbers: {0}")]
    Random(String),
}

/// How long the server waits for its providers when it stops.
const TERMINATION_LIMIT: Duration = Duration::from_secs(10);

/// Starts the server, passes its address to `ready`, serves until `stop`, and lets running requests
/// end.
pub async fn run(
    config: Config,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), RunError> {
    run_with(config, Vec::new(), stop, ready).await
}

/// The same with providers that the caller made, besides those of the configuration.
pub async fn run_with(
    mut config: Config,
    further: Vec<(ProviderId, Arc<dyn Provider>)>,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), RunError> {
    exposure::report(&config).map_err(|file| RunError::Exposed(file.to_string(), file.advice()))?;
    let address = config.listen;
    let unable = |problem| RunError::Listen { address, problem };
    let listener = TcpListener::bind(address).await.map_err(unable)?;
    let metrics = listen_at("metrics.listen", config.metrics.listen).await?;
    let artifacts = config.artifacts.listen;
    let artifacts = artifacts.filter(|_| config.roles.include(Role::Api));
    let artifacts = listen_at("artifacts.listen", artifacts).await?;
    // Port 0 means any free port: from here on, the actual port is used.
    config.listen = listener.local_addr().map_err(unable)?;
    if let Some(artifacts) = &artifacts {
        config.artifacts.listen = artifacts.local_addr().ok();
    }
    let listen = config.listen;
    let random = StdRng::try_from_rng(&mut rand::rngs::SysRng)
        .map_err(|problem| RunError::Random(problem.to_string()))?;
    // Released at the end in every case.
    let _lock = match config.database.options().lock() {
        Ok(lock) => lock,
        Err(in_use @ LockError::InUse(_)) => return Err(RunError::InUse(in_use)),
        // The store reports problems with the file's location better.
        Err(LockError::Unlockable { .. }) => None,
    };
    config.server.max_connections = open_files::make_room(config.server.max_connections);
    warn_without_tls(&config);
    let mut stop = pin!(stop);
    tokio::select! {
        biased;
        () = await_database(&config) => {}
        () = &mut stop => return Ok(()),
    }
    let clock = Arc::new(DatabaseClock::new(Arc::new(SystemClock)));
    let starting = start(config, Arc::clone(&clock), Random::new(random), further);
    let app = Box::pin(starting).await?;
    let stopping = CancellationToken::new();
    let mut driver = Driver::of(&clock, stopping.clone());
    ClockMeasurement::start(clock, app.engine.store.clone(), &mut driver);
    background::start(&app, &mut driver);
    let server = Arc::new(Server::new(Arc::clone(&app)));
    let reporting = tokio::spawn(report_openid(Arc::clone(&app)));
    let tree = tokio::spawn(tree_keeper::keep(Arc::clone(&app), stopping.clone()));
    let further = [
        metrics.map(|listener| (Server::of_metrics(Arc::clone(&app)), listener)),
        artifacts.map(|listener| (server.of_public_artifacts(), listener)),
    ];
    let further = further.into_iter().flatten();
    let serving: Vec<_> = std::iter::once((server, listener))
        .chain(further.map(|(server, listener)| (Arc::new(server), listener)))
        .map(|(server, listener)| tokio::spawn(server.serve(listener, stopping.clone())))
        .collect();
    tracing::info!(http.address = %listen, "listening on {listen}");
    ready(listen);
    stop.await;
    reporting.abort();
    tracing::info!("stopping: waiting for running requests");
    stopping.cancel();
    for serving in serving {
        let _ = serving.await;
    }
    driver.join().await;
    let _ = tree.await;
    if let Err(problem) = background::leave_readers(&app).await {
        tracing::warn!(error = %problem, "other processes read events only after the leases of \
                                          this one have expired: {problem}");
    }
    app.engine.launch_tracker.finish().await;
    terminate_providers(&app).await;
    app.engine.store.close().await;
    Ok(())
}

fn warn_without_tls(config: &Config) {
    let listen = config.listen;
    if config.is_open_without_tls() {
        tracing::warn!(http.address = %listen,
            "other machines can connect to {listen}, and connections are not encrypted: secrets \
             of workers and new access tokens can be read on the network. Configure a certificate \
             (`tls`), or a proxy with TLS (`server.trusted_proxies`)");
    }
}

/// Asks the provider of `page.openid` once, so that the log has its problems from the start.
async fn report_openid(app: Arc<App>) {
    let is_served = app.config.roles.include(Role::Api);
    if let Some(openid) = app.openid.as_ref().filter(|_| is_served) {
        openid.report(app.engine.clock.now()).await;
    }
}

/// Tells the providers that this process launches no more, if it did.
pub async fn terminate_providers(app: &App) {
    if !app.config.roles.include(Role::Provisioner) {
        return;
    }
    for (id, problem) in app.engine.providers.terminate(TERMINATION_LIMIT).await {
        tracing::warn!(provider.id = %id, error = %problem,
            "provider {id} did not end in an orderly way: {problem}");
    }
}

/// Listens on the address of this setting, if there is one.
async fn listen_at(
    key: &'static str,
    address: Option<SocketAddr>,
) -> Result<Option<TcpListener>, RunError> {
    let Some(address) = address else {
        return Ok(None);
    };
    let listener = TcpListener::bind(address).await;
    let listener = listener.map_err(|problem| RunError::ListenAt {
        key,
        address,
        problem,
    })?;
    if let Ok(address) = listener.local_addr() {
        tracing::info!(http.address = %address, "listening on {address} ({key})");
    }
    Ok(Some(listener))
}
