//! Accepts, limits and serves connections, and drains them when the server stops.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt;
use http::header::{CONNECTION, CONTENT_LENGTH, HeaderName, HeaderValue};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body::Body as _;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;
use tracing::Instrument;

use super::artifact_origin;
use super::body::Body;
use super::client_stream::{ClientStream, read_first_head};
use super::documents::Documents;
use super::head_timer::{Arrivals, HeadTimer};
use super::read_body::RequestBody;
use super::request::{self, text_header};
use super::request_head::{RequestHead, RequestTags, Sender};
use super::response::{Private, Response, not_found, with_status};
use super::route::Router;
use super::web::{self, Web};
use super::write_timeout::WriteTimeout;
use super::{endpoint::Service, pages};
use crate::app::App;
use crate::config::{MAX_HEAD_BYTES, Role};
use crate::limits::{Connection, ConnectionPlace, Connections};

/// Limit of a request's head, beside its size.
const MAX_HEADERS: usize = 100;
/// The maximum buffer for reading the body of a request.
const BUFFER_BYTES: usize = 64 * 1024;
/// Time until the next try after accepting a connection failed, for example with too many open
/// files.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Close a connection whose client reads nothing for this long.
const STALLED_WRITE_LIMIT: Duration = Duration::from_secs(120);
/// Maximum length of a trace id that a client may set.
const MAX_TRACE_ID: usize = 64;

/// Browsers of any site may call the API: requests are authenticated by their signature.
const HEADERS: [(&str, &str); 9] = [
    ("cache-control", "no-store no-cache must-revalidate"),
    ("access-control-allow-origin", "*"),
    ("access-control-max-age", "900"),
    (
        "access-control-allow-methods",
        "OPTIONS,GET,HEAD,POST,PUT,DELETE,TRACE,CONNECT",
    ),
    ("access-control-request-method", "*"),
    (
        "access-control-allow-headers",
        "X-Requested-With,Content-Type,Authorization,Accept,Origin,Cache-Control,Range,If-Range,\
         If-None-Match",
    ),
    (
        "access-control-expose-headers",
        "ETag,Content-Range,Accept-Ranges,Content-Length",
    ),
    ("x-content-type-options", "nosniff"),
    (
        "content-security-policy",
        "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; report-uri /__cspreport__",
    ),
];

/// Answers requests; shared by all connections.
pub struct Server {
    app: Arc<App>,
    site: Site,
    connections: Arc<Connections>,
    /// Ends replies that have no end of their own.
    stopping: CancellationToken,
}

/// The content of one address.
enum Site {
    /// The API, and all pages that no other address has.
    Api(Web, Documents),
    Metrics,
    PublicArtifacts(Router),
}

impl Server {
    pub fn new(app: Arc<App>) -> Self {
        let services: Vec<Service> = Service::ALL
            .into_iter()
            .filter(|service| app.config.roles.include(Role::Api) && is_ours(&app, *service))
            .collect();
        let connections = Connections::new(&app.config.server);
        let web = Web::new(Arc::clone(&app), Arc::new(Router::new(&services)));
        let site = Site::Api(web, Documents::default());
        Self::of(app, site, connections)
    }

    /// The server at `metrics.listen`.
    pub fn of_metrics(app: Arc<App>) -> Self {
        let connections = Connections::new(&app.config.server);
        Self::of(app, Site::Metrics, connections)
    }

    /// The server at `artifacts.listen`. It has the same places for connections as this one.
    pub fn of_public_artifacts(&self) -> Self {
        let site = Site::PublicArtifacts(artifact_origin::router());
        Self::of(Arc::clone(&self.app), site, Arc::clone(&self.connections))
    }

    fn of(app: Arc<App>, site: Site, connections: Arc<Connections>) -> Self {
        Self {
            app,
            site,
            connections,
            stopping: CancellationToken::new(),
        }
    }

    /// Serves connections until `stop`, then lets running requests end.
    pub async fn serve(self: Arc<Self>, listener: TcpListener, stop: CancellationToken) {
        let limits = &self.app.config.server;
        let graceful = GracefulShutdown::new();
        loop {
            let accepted = tokio::select! {
                accepted = accept(&listener, &self.connections) => accepted,
                () = stop.cancelled() => break,
            };
            match accepted {
                Ok((stream, peer, place)) => {
                    self.clone().connection(stream, peer, place, &graceful)
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
        self.stopping.cancel();
        let drain = Duration::from_secs(limits.drain_seconds);
        if tokio::time::timeout(drain, graceful.shutdown())
            .await
            .is_err()
        {
            tracing::warn!("some requests were still running after {drain:?}");
        }
    }

    fn connection(
        self: Arc<Self>,
        stream: TcpStream,
        peer: SocketAddr,
        place: ConnectionPlace,
        graceful: &GracefulShutdown,
    ) {
        // Replies are written at once. Waiting for full packets would only delay them.
        let _ = stream.set_nodelay(true);
        let watcher = graceful.watcher();
        let sender = Sender {
            peer,
            local: stream.local_addr().unwrap_or(self.app.config.listen),
            is_tls: self.app.tls.is_some(),
            connection: Some(Arc::clone(place.connection())),
        };
        tokio::spawn(async move {
            let connection = place.connection();
            tokio::select! {
                () = self.greet(stream, sender, connection, watcher) => {}
                () = connection.closing().cancelled() => {
                    tracing::debug!(peer = %peer, "closed a connection to make room for others");
                }
            }
        });
    }

    /// Serves a client after its handshake, if TLS is configured.
    async fn greet(
        self: &Arc<Self>,
        stream: TcpStream,
        sender: Sender,
        connection: &Arc<Connection>,
        watcher: Watcher,
    ) {
        let Some(tls) = &self.app.tls else {
            return self.serve_client(stream, sender, connection, watcher).await;
        };
        // Most clients that never send a request do not get further than this.
        match Box::pin(tls.accept(stream)).await {
            Ok(stream) => self.serve_client(stream, sender, connection, watcher).await,
            Err(problem) => {
                tracing::debug!(peer = %sender.peer, error = %problem, "TLS handshake failed: \
                    {problem}");
            }
        }
    }

    /// Answers the requests of one connection until it ends.
    async fn serve_client<C>(
        self: &Arc<Self>,
        mut stream: C,
        sender: Sender,
        connection: &Arc<Connection>,
        watcher: Watcher,
    ) where
        C: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let peer = sender.peer;
        let limits = &self.app.config.server;
        let limit = Duration::from_secs(limits.head_seconds);
        let reading = tokio::time::timeout(limit, read_first_head(&mut stream, connection));
        let read = tokio::select! {
            read = reading => read,
            () = self.stopping.cancelled() => return,
        };
        let Ok(Ok(Some(first))) = read else {
            tracing::debug!(peer = %peer, "connection ended without a request");
            return;
        };
        let arrivals = Arrivals::default();
        let stream = ClientStream::new(first, stream, arrivals.clone());
        let (server, connection) = (Arc::clone(self), Arc::clone(connection));
        let service = service_fn(move |request: Request<Incoming>| {
            let answering = Arc::clone(&server).answer_safely(request, sender.clone());
            let connection = Arc::clone(&connection);
            // An idle connection keeps room for this future, too.
            Box::pin(async move {
                let under_way = connection.begin();
                let mut response = answering.await;
                if !connection.may_stay() {
                    let close = HeaderValue::from_static("close");
                    response.headers_mut().insert(CONNECTION, close);
                }
                Ok::<_, Infallible>(response.map(|body| body.until_sent(under_way)))
            })
        });
        let serving = http1::Builder::new()
            .timer(HeadTimer { arrivals, limit })
            .header_read_timeout(Duration::from_secs(limits.idle_seconds))
            .max_headers(MAX_HEADERS)
            .max_header_size(MAX_HEAD_BYTES)
            .max_buf_size(BUFFER_BYTES)
            .serve_connection(
                WriteTimeout::new(TokioIo::new(stream), STALLED_WRITE_LIMIT),
                service,
            );
        // On the heap, because most of the connections that only wait never get here.
        if let Err(problem) = Box::pin(watcher.watch(serving)).await {
            tracing::debug!(peer = %peer, error = %problem, "connection ended: {problem}");
        }
    }

    /// Answers one request. A panic affects no other request. Changes run in a task of their own,
    /// so a client that disconnects does not interrupt them.
    async fn answer_safely(
        self: Arc<Self>,
        request: Request<Incoming>,
        sender: Sender,
    ) -> Response {
        let reads = matches!(
            *request.method(),
            Method::GET | Method::HEAD | Method::OPTIONS
        );
        // Dropped with the connection.
        let cancelled = self.stopping.child_token();
        let _cancel_on_drop = cancelled.clone().drop_guard();
        let answering = async move { self.answer_until(request, sender, cancelled).await };
        let answering = AssertUnwindSafe(answering).catch_unwind();
        let answered = if reads {
            answering.await.ok()
        } else {
            tokio::spawn(answering).await.ok().and_then(Result::ok)
        };
        answered.unwrap_or_else(|| {
            tracing::error!("a request handler panicked");
            with_status(StatusCode::INTERNAL_SERVER_ERROR, Bytes::new())
        })
    }

    /// Answers one request.
    pub async fn answer(&self, request: Request<impl RequestBody>, peer: SocketAddr) -> Response {
        let cancelled = self.stopping.child_token();
        let sender = Sender {
            peer,
            local: self.app.config.listen,
            is_tls: false,
            connection: None,
        };
        self.answer_until(request, sender, cancelled).await
    }

    async fn answer_until(
        &self,
        request: Request<impl RequestBody>,
        sender: Sender,
        cancelled: CancellationToken,
    ) -> Response {
        let (parts, body) = request.into_parts();
        let tags = self.tags(&parts.headers);
        let head_only = parts.method == Method::HEAD;
        let head = RequestHead {
            method: parts.method,
            uri: parts.uri,
            headers: parts.headers,
            sender,
            tags: tags.clone(),
            person: None,
            cancelled,
        };
        let span = tracing::info_span!("request", request.id = %tags.request_id, trace.id = %tags.trace_id);
        let answering = async {
            if head.bytes() > MAX_HEAD_BYTES {
                with_status(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, Bytes::new())
            } else {
                self.site.answer(&self.app, head, body).await
            }
        };
        let mut response = answering.instrument(span).await;
        let is_private = response.extensions().get::<Private>().is_some();
        add_common_headers(response.headers_mut(), &tags, is_private);
        if head_only {
            let length = response.body().size_hint().exact();
            if let Some(length) = length.filter(|_| response.status() == StatusCode::OK) {
                let headers = response.headers_mut();
                headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
            }
            *response.body_mut() = Body::default();
        }
        response.map(|body| body.until(&self.stopping))
    }

    fn tags(&self, headers: &HeaderMap) -> RequestTags {
        let fresh = || self.app.engine.random.uuid();
        let given = text_header(headers, "x-taskcluster-trace-id")
            .filter(|id| !id.is_empty() && id.len() <= MAX_TRACE_ID);
        RequestTags {
            request_id: fresh(),
            trace_id: given.map_or_else(fresh, str::to_owned),
        }
    }
}

impl Site {
    async fn answer(&self, app: &Arc<App>, head: RequestHead, body: impl RequestBody) -> Response {
        match self {
            Self::Metrics => pages::answer_metrics(app, &head),
            Self::PublicArtifacts(router) => artifact_origin::answer(app, router, head, body).await,
            Self::Api(web, _) if head.uri.path().starts_with("/api/") => {
                request::answer(app, web.router(), head, body).await
            }
            Self::Api(web, documents) => match pages::answer(app, documents, &head).await {
                Some(document) => document,
                // On the heap, because most requests are none for pages.
                None if web::is_wanted(&head) => Box::pin(web::answer(web, head, body)).await,
                None => not_found(),
            },
        }
    }
}

/// Whether this server answers the service, not a Taskcluster deployment.
fn is_ours(app: &App, service: Service) -> bool {
    match service {
        // Beside another auth service is the secrets service of its deployment.
        Service::Auth | Service::Secrets => app.authenticator.embedded().is_some(),
        Service::Queue | Service::PurgeCache => !app.engine.demand_source.is_outside(),
        Service::WorkerManager | Service::Fleetwright => true,
    }
}

/// Accepts the next connection, which may cost another one its place. Further ones queue in the
/// kernel.
async fn accept(
    listener: &TcpListener,
    connections: &Arc<Connections>,
) -> std::io::Result<(TcpStream, SocketAddr, ConnectionPlace)> {
    let (stream, peer) = listener.accept().await?;
    let place = connections.enter(peer.ip()).await;
    Ok((stream, peer, place))
}

/// Adds the headers that every reply has unless it sets them itself. Private replies get no headers
/// that let pages of other sites read them.
fn add_common_headers(headers: &mut HeaderMap, tags: &RequestTags, is_private: bool) {
    let is_wanted = |name: &str| !(is_private && name.starts_with("access-control-"));
    for (name, value) in HEADERS.into_iter().filter(|(name, _)| is_wanted(name)) {
        let value = HeaderValue::from_static(value);
        headers
            .entry(HeaderName::from_static(name))
            .or_insert(value);
    }
    for (name, value) in [
        ("x-for-trace-id", &tags.trace_id),
        ("x-for-request-id", &tags.request_id),
    ] {
        if let Ok(value) = HeaderValue::from_str(value) {
            headers.insert(HeaderName::from_static(name), value);
        }
    }
}
