//! Runs the server until it is told to stop.

use std::future::Future;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;

use rand::SeedableRng;
use rand::rngs::StdRng;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use crate::api::listener::Server;
use crate::app::Random;
use crate::clock::SystemClock;
use crate::config::Config;
use crate::start::{StartError, start};
use crate::tasks;
use crate::tasks::driver::Driver;

#[derive(Debug, thiserror::Error)]
pub enum RunError {
    #[error(
        "cannot listen on {address} ({problem}); is another server running there? Choose another \
         address with --listen, or `listen` in the configuration"
    )]
    Listen {
        address: SocketAddr,
        problem: io::Error,
    },
    #[error("the server cannot start")]
    Start(#[from] StartError),
    #[error("the operating system gives no random numbers: {0}")]
    Random(String),
}

/// Starts, tells `ready` where it listens, serves until `stop`, and lets requests end.
pub async fn run(
    mut config: Config,
    stop: impl Future<Output = ()>,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), RunError> {
    let address = config.listen;
    let unable = |problem| RunError::Listen { address, problem };
    let listener = TcpListener::bind(address).await.map_err(unable)?;
    // Port 0 means any that is free: from here on the real one counts.
    config.listen = listener.local_addr().map_err(unable)?;
    let listen = config.listen;
    let random = StdRng::try_from_rng(&mut rand::rngs::SysRng)
        .map_err(|problem| RunError::Random(problem.to_string()))?;
    let app = start(config, Arc::new(SystemClock), Random::new(random)).await?;
    let stopping = CancellationToken::new();
    let mut driver = Driver::new(Arc::clone(&app.clock), stopping.clone());
    tasks::start(&app, &mut driver);
    let server = Arc::new(Server::new(Arc::clone(&app)));
    let serving = tokio::spawn(server.serve(listener, stopping.clone()));
    tracing::info!(http.address = %listen, "listening on {listen}");
    ready(listen);
    stop.await;
    tracing::info!("stopping: requests under way may end");
    stopping.cancel();
    let _ = serving.await;
    driver.join().await;
    if let Err(problem) = tasks::leave_broker(&app).await {
        tracing::warn!(error = %problem, "another process waits before it publishes events: {problem}");
    }
    app.launching.finish().await;
    app.store.close().await;
    Ok(())
}
