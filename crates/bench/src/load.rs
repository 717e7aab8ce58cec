//! Load: many connections that each send requests one after another and measure them.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::Context as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Body, Bytes};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper::{Request, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::task::{AbortHandle, JoinSet};

use super::figures::Sample;
use crate::machine::Stopwatch;

/// Number of connections that send the load.
pub(crate) const CONNECTIONS: usize = 16;
/// Time limit of a request; a server that exceeds it hangs.
const REQUEST_LIMIT: Duration = Duration::from_secs(120);

/// When a load ends.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Length {
    /// After this time.
    For(Duration),
    /// After this many requests: enough to show that everything works.
    Requests(usize),
}

impl Length {
    pub(crate) fn goes_on(self, n_sent: usize, elapsed: Duration) -> bool {
        match self {
            Self::For(length) => elapsed < length,
            Self::Requests(most) => n_sent < most,
        }
    }

    /// A part of the time.
    pub(crate) fn divided(self, by: u32) -> Self {
        match self {
            Self::For(length) => Self::For(length / by.max(1)),
            Self::Requests(_) => self,
        }
    }

    /// No more than there are requests.
    pub(crate) fn at_most(self, wanted: usize) -> usize {
        match self {
            Self::For(_) => wanted,
            Self::Requests(most) => wanted.min(most),
        }
    }
}

/// Requests that are prepared before the clock starts.
#[derive(Clone)]
pub(crate) struct Requests {
    pub(crate) prepared: Arc<[Request<Full<Bytes>>]>,
    /// Send each request at most once, because it creates something. Otherwise they are repeated.
    pub(crate) once: bool,
}

impl Requests {
    pub(crate) fn repeated(prepared: impl IntoIterator<Item = Request<Full<Bytes>>>) -> Self {
        Self {
            prepared: prepared.into_iter().collect(),
            once: false,
        }
    }
}

pub(crate) struct Connection<B> {
    sender: SendRequest<B>,
    driver: AbortHandle,
}

impl<B> Connection<B>
where
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    pub(crate) async fn open(address: SocketAddr) -> anyhow::Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = handshake(TokioIo::new(stream)).await?;
        let driver = tokio::spawn(async move {
            // A broken connection is noticed when requests are sent.
            let _shows_there = connection.await;
        });
        Ok(Self {
            sender,
            driver: driver.abort_handle(),
        })
    }

    /// Sends a request and reads the complete reply.
    pub(crate) async fn send(
        &mut self,
        request: Request<B>,
    ) -> anyhow::Result<(StatusCode, Bytes)> {
        let exchange = async {
            self.sender.ready().await?;
            let reply = self.sender.send_request(request).await?;
            let status = reply.status();
            anyhow::Ok((status, reply.into_body().collect().await?.to_bytes()))
        };
        tokio::time::timeout(REQUEST_LIMIT, exchange)
            .await
            .context("no reply within the time limit")?
    }
}

impl<B> Drop for Connection<B> {
    fn drop(&mut self) {
        self.driver.abort();
    }
}

/// Sends requests until the end, or until all requests that may be sent once are sent.
pub(crate) async fn run(
    address: SocketAddr,
    requests: &Requests,
    length: Length,
) -> anyhow::Result<Sample> {
    run_on(CONNECTIONS, address, requests, length).await
}

pub(crate) async fn run_on(
    n_connections: usize,
    address: SocketAddr,
    requests: &Requests,
    length: Length,
) -> anyhow::Result<Sample> {
    let mut connections = Vec::with_capacity(n_connections);
    for _ in 0..n_connections {
        connections.push(
            Connection::open(address)
                .await
                .context("cannot connect to the measured server")?,
        );
    }
    let next = Arc::new(AtomicUsize::new(0));
    let watch = Arc::new(Stopwatch::start());
    let mut tasks = JoinSet::new();
    for connection in connections {
        tasks.spawn(one(
            connection,
            requests.clone(),
            Arc::clone(&next),
            Arc::clone(&watch),
            length,
        ));
    }
    let mut latencies = Vec::new();
    while let Some(done) = tasks.join_next().await {
        latencies.extend(done.context("a sender of requests panicked")??);
    }
    Ok(Sample::new(latencies, watch.elapsed()))
}

async fn one(
    mut connection: Connection<Full<Bytes>>,
    requests: Requests,
    next: Arc<AtomicUsize>,
    watch: Arc<Stopwatch>,
    length: Length,
) -> anyhow::Result<Vec<Duration>> {
    let mut latencies = Vec::new();
    loop {
        let position = next.fetch_add(1, Ordering::Relaxed);
        let is_left = !requests.once || position < requests.prepared.len();
        if !is_left || !length.goes_on(position, watch.elapsed()) {
            break;
        }
        let request = requests.prepared[position % requests.prepared.len()].clone();
        latencies.push(timed(&mut connection, request).await?);
    }
    Ok(latencies)
}

/// Sends a request that must succeed, and returns its latency.
pub(crate) async fn timed(
    connection: &mut Connection<Full<Bytes>>,
    request: Request<Full<Bytes>>,
) -> anyhow::Result<Duration> {
    let watch = Stopwatch::start();
    let (status, body) = connection.send(request).await?;
    let took = watch.elapsed();
    anyhow::ensure!(
        status.is_success(),
        "the measured server answered {status}: {}",
        String::from_utf8_lossy(&body)
    );
    Ok(took)
}
