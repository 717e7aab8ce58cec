//! Runs a relay: accepts connections of hosts, and announces the relay.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use domain::time::Timestamp;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use serde_json::json;
use tls::{ReloadOutcome, TlsAcceptor, TlsError};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::time::MissedTickBehavior;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use crate::answer::{Peer, Relay};
use crate::config::{BadConfig, Config};
use crate::machine::Machine;
use crate::request_rates::OpenConnections;
use crate::worker_manager::{NoClient, WorkerManager};

/// Maximum time for a request's head, and of an idle connection.
const HEAD_LIMIT: Duration = Duration::from_secs(10);
const MAX_HEAD_BYTES: usize = 16 * 1024;
/// Time until the next try after accepting a connection failed, for example with too many open
/// files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Requests that run when the relay stops have this time.
const DRAIN_LIMIT: Duration = Duration::from_secs(15);
/// How often the files of the certificate are looked at.
const TLS_PERIOD: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
pub enum RelayError {
    #[error("the configuration is not usable")]
    Config(#[from] BadConfig),
    #[error("cannot call the worker manager")]
    WorkerManager(#[from] NoClient),
    #[error("the certificate of `tls` is not usable")]
    Tls(#[from] TlsError),
    #[error("cannot listen at {address}")]
    Listen {
        address: SocketAddr,
        #[source]
        source: std::io::Error,
    },
}

/// The parts of a relay that its process chooses.
pub struct Surroundings {
    pub access_token: Secret,
    pub machine: Machine,
    pub stop: CancellationToken,
}

struct Server {
    relay: Arc<Relay>,
    tls: Option<Arc<TlsAcceptor>>,
    places: Arc<Semaphore>,
    open: Arc<OpenConnections>,
}

/// Runs a relay until it is stopped. `ready` gets the address that it listens on.
pub async fn run(
    config: Config,
    surroundings: Surroundings,
    ready: impl FnOnce(SocketAddr),
) -> Result<(), RelayError> {
    config.check()?;
    let Surroundings {
        access_token,
        machine,
        stop,
    } = surroundings;
    let machine = Arc::new(machine);
    let worker_manager = WorkerManager::new(&config, access_token, Arc::clone(&machine))?;
    let relay = Arc::new(Relay::new(
        &config,
        config.rules()?,
        worker_manager,
        machine,
    ));
    let tls = acceptor(&config)?;
    let cannot_listen = |source| RelayError::Listen {
        address: config.listen,
        source,
    };
    let listener = TcpListener::bind(config.listen)
        .await
        .map_err(cannot_listen)?;
    let address = listener.local_addr().map_err(cannot_listen)?;
    if tls.is_none() && !address.ip().is_loopback() {
        tracing::warn!("credentials cross the network without encryption: configure `tls`");
    }
    let announcing = tokio::spawn(announce(Arc::clone(&relay), config.announce_seconds));
    let _announcing = AbortOnDropHandle::new(announcing);
    let _reloading = tls
        .clone()
        .map(|tls| AbortOnDropHandle::new(tokio::spawn(reload(tls))));
    let limits = &config.limits;
    let server = Arc::new(Server {
        relay,
        tls,
        places: Arc::new(Semaphore::new(limits.connections)),
        open: OpenConnections::new(limits.connections_per_address),
    });
    ready(address);
    server.serve(listener, stop).await;
    Ok(())
}

fn acceptor(config: &Config) -> Result<Option<Arc<TlsAcceptor>>, RelayError> {
    let Some(tls) = &config.tls else {
        return Ok(None);
    };
    let authorities: Option<PathBuf> = tls.client_ca_file.clone();
    let acceptor = TlsAcceptor::with_client_authorities(tls.files(), authorities)?;
    Ok(Some(Arc::new(acceptor)))
}

impl Server {
    async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let graceful = GracefulShutdown::new();
        loop {
            // Further connections wait in the kernel.
            let accepted = async {
                let place = Arc::clone(&self.places).acquire_owned().await;
                listener.accept().await.map(|accepted| (accepted, place))
            };
            let accepted = tokio::select! {
                accepted = accepted => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok(((stream, peer), place)) => {
                    let (server, watcher) = (Arc::clone(&self), graceful.watcher());
                    tokio::spawn(async move {
                        server.greet(stream, peer, watcher).await;
                        drop(place);
                    });
                }
                Err(problem) => {
                    tracing::warn!(error = %problem, "cannot accept a connection: {problem}");
                    let again = tokio::time::timeout(ACCEPT_AGAIN, stop.cancelled());
                    if again.await.is_ok() {
                        break;
                    }
                }
            }
        }
        drop(listener);
        let ended = tokio::time::timeout(DRAIN_LIMIT, graceful.shutdown()).await;
        if ended.is_err() {
            tracing::warn!("some requests were still running after {DRAIN_LIMIT:?}");
        }
    }

    async fn greet(&self, stream: TcpStream, peer: SocketAddr, watcher: Watcher) {
        // An IPv4 host reaches a listener of both kinds as `::ffff:10.0.0.7`.
        let address = peer.ip().to_canonical();
        let Some(_open) = self.open.enter(address) else {
            tracing::debug!(host.address = %address, "closed: too many connections of {address}");
            return;
        };
        let Some(tls) = &self.tls else {
            let peer = Peer {
                address,
                certificate: None,
            };
            return self.serve_host(stream, peer, watcher).await;
        };
        match Box::pin(tls.accept(stream)).await {
            Ok(stream) => {
                let certificates = stream.get_ref().1.peer_certificates();
                let own = certificates.and_then(<[_]>::first);
                let peer = Peer {
                    address,
                    certificate: own.map(|own| own.clone().into_owned()),
                };
                self.serve_host(stream, peer, watcher).await;
            }
            Err(problem) => tracing::debug!(host.address = %address, error = %problem,
                "TLS handshake with {address} failed: {problem}"),
        }
    }

    async fn serve_host<C>(&self, stream: C, peer: Peer, watcher: Watcher)
    where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let address = peer.address;
        let (relay, peer) = (Arc::clone(&self.relay), Arc::new(peer));
        let service = service_fn(move |request: hyper::Request<Incoming>| {
            let (relay, peer) = (Arc::clone(&relay), Arc::clone(&peer));
            async move {
                // Requests have no body that matters.
                let (head, _) = request.into_parts();
                Ok::<_, Infallible>(relay.answer(&peer, &head).await)
            }
        });
        let serving = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(HEAD_LIMIT)
            .max_buf_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
        if let Err(problem) = watcher.watch(serving).await {
            tracing::debug!(host.address = %address, error = %problem,
                "the connection of {address} ended: {problem}");
        }
    }
}

/// Announces the relay for as long as it runs. An absence of the worker manager is logged once.
async fn announce(relay: Arc<Relay>, seconds: u32) {
    let started = relay.now();
    let mut ticks = tokio::time::interval(Duration::from_secs(seconds.into()));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut last_problem = None;
    loop {
        ticks.tick().await;
        let announcement = announcement(&relay, started, seconds);
        match relay.worker_manager.announce(&announcement).await {
            Ok(()) => {
                if last_problem.take().is_some() {
                    tracing::info!("the relay is announced again");
                }
            }
            Err(problem) => {
                let problem = problem.to_string();
                if last_problem.as_ref() != Some(&problem) {
                    tracing::warn!(error = problem, "the relay is not announced: {problem}");
                    last_problem = Some(problem);
                }
            }
        }
    }
}

fn announcement(relay: &Relay, started: Timestamp, seconds: u32) -> serde_json::Value {
    let mut announcement = json!({
        "version": env!("CARGO_PKG_VERSION"),
        "started": started.to_string(),
        "intervalSeconds": seconds,
        "workerPools": relay.pools(),
    });
    relay.sightings.add_to(&mut announcement);
    announcement
}

async fn reload(tls: Arc<TlsAcceptor>) {
    let mut ticks = tokio::time::interval(TLS_PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let tls = Arc::clone(&tls);
        match tokio::task::spawn_blocking(move || tls.reload()).await {
            Ok(ReloadOutcome::Changed) => tracing::info!("new connections get the new certificate"),
            Ok(ReloadOutcome::Unusable(problem)) => tracing::warn!(
                error = problem,
                "the new certificate is not usable, the old one stays in use: {problem}"
            ),
            Ok(ReloadOutcome::Unchanged) | Err(_) => {}
        }
    }
}
