//! Answers the requests of hosts. Only the address of the connection says which host it is.

use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use domain::id::WorkerKey;
use domain::time::Timestamp;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{HeaderMap, Method, StatusCode};
use http_body_util::Full;
use rustls::client::verify_server_name;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::server::ParsedCertificate;
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use crate::cache::Cache;
use crate::config::Config;
use crate::host_name::HostName;
use crate::host_rule::{self, HostRule};
use crate::identify::{Refusal, identify};
use crate::machine::Machine;
use crate::refusal_log::RefusalLog;
use crate::request_rates::RequestRates;
use crate::resolver::Resolver;
use crate::sightings::{Outcome, Sighting, Sightings};
use crate::worker_manager::{HostCredentials, NotGiven, WorkerManager};

/// Records may change each moment, but an address is looked up once a second at most.
const SHORTEST_CACHE: Duration = Duration::from_secs(1);
/// A host that asks again within this time gets the same credentials.
const CREDENTIALS_CACHE: Duration = Duration::from_secs(30);
/// A refusal of the worker manager, or its absence, is kept for this time.
const NOT_GIVEN_CACHE: Duration = Duration::from_secs(1);
/// Maximum wait of a request behind others.
const TURN_LIMIT: Duration = Duration::from_secs(10);
/// Look-ups of one host: two, each with aliases, at resolvers that are asked at once.
const QUESTIONS_OF_HOST: u32 = 4;
/// Headers of proxies. A host that asks through a proxy is not the peer of the connection.
const PROXY_HEADERS: [&str; 6] = [
    "forwarded",
    "via",
    "x-forwarded-for",
    "x-real-ip",
    "x-client-ip",
    "true-client-ip",
];

pub(crate) type Response = http::Response<Full<Bytes>>;

/// The other end of a connection.
pub(crate) struct Peer {
    pub(crate) address: IpAddr,
    /// The certificate that it has proved to own, signed by a configured authority.
    pub(crate) certificate: Option<CertificateDer<'static>>,
}

pub(crate) struct Relay {
    rules: Vec<HostRule>,
    resolvers: Vec<Resolver>,
    lookup_limit: Duration,
    longest_cache: Duration,
    refused_cache: Duration,
    needs_certificate: bool,
    names: Cache<IpAddr, Result<HostName, Unidentified>>,
    credentials: Cache<WorkerKey, Result<Arc<HostCredentials>, NotGiven>>,
    lookups: Semaphore,
    /// Of their own: while the worker manager is away, look-ups go on.
    asks: Semaphore,
    rates: RequestRates,
    refusals: RefusalLog,
    pub(crate) sightings: Sightings,
    pub(crate) worker_manager: WorkerManager,
    machine: Arc<Machine>,
}

/// The form of the reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// As our worker reads it, with its registration.
    Registration,
    /// As the configuration of Taskcluster's workers has it.
    Credentials,
}

/// Why an address has no host.
#[derive(Clone, Debug, thiserror::Error)]
enum Unidentified {
    #[error(transparent)]
    Refused(Box<Refusal>),
    #[error("its look-ups did not end within {0:?}")]
    Late(Duration),
}

/// Why a host gets nothing.
#[derive(Debug, thiserror::Error)]
enum NotServed {
    #[error("its request has the header {0}: it came through a proxy")]
    Proxy(&'static str),
    #[error(transparent)]
    Unidentified(#[from] Unidentified),
    #[error("its certificate is not for {0}")]
    Certificate(HostName),
    #[error("no rule is about {0}")]
    NoRule(HostName),
    #[error("the rule about {host} makes no worker: {reason}")]
    BadWorker { host: HostName, reason: String },
    #[error("{0}")]
    NotGiven(NotGiven),
}

/// A host that gets credentials.
struct Served {
    host: HostName,
    worker: WorkerKey,
    given: Arc<HostCredentials>,
}

/// The known facts about a host, for announcements.
#[derive(Default)]
struct Known {
    host: Option<HostName>,
    worker: Option<WorkerKey>,
}

impl Relay {
    pub(crate) fn new(
        config: &Config,
        rules: Vec<HostRule>,
        worker_manager: WorkerManager,
        machine: Arc<Machine>,
    ) -> Self {
        let tls = config.tls.as_ref();
        Self {
            rules,
            resolvers: config.resolvers(),
            lookup_limit: Duration::from_millis(config.dns.timeout_ms) * QUESTIONS_OF_HOST,
            longest_cache: Duration::from_secs(config.dns.max_cache_seconds),
            refused_cache: Duration::from_secs(config.dns.refused_cache_seconds),
            needs_certificate: tls.is_some_and(|tls| tls.client_ca_file.is_some()),
            names: Cache::new(config.limits.hosts),
            credentials: Cache::new(config.limits.hosts),
            lookups: Semaphore::new(config.limits.lookups),
            asks: Semaphore::new(config.limits.lookups),
            rates: RequestRates::new(config.limits.requests_per_second),
            refusals: RefusalLog::default(),
            sightings: Sightings::default(),
            worker_manager,
            machine,
        }
    }

    pub(crate) async fn answer(&self, peer: &Peer, request: &http::request::Parts) -> Response {
        let form = match (&request.method, request.uri.path()) {
            (&Method::GET, "/health") => return reply(StatusCode::OK, &json!({"alive": true})),
            (&Method::POST, "/v1/registration") => Form::Registration,
            (&Method::POST, "/v1/credentials") => Form::Credentials,
            _ => {
                let text = "POST /v1/registration, POST /v1/credentials or GET /health";
                return error(StatusCode::NOT_FOUND, "ResourceNotFound", text);
            }
        };
        if !self.rates.take(peer.address) {
            let text = "Too many requests; try again in a second";
            let mut reply = error(StatusCode::TOO_MANY_REQUESTS, "TooManyRequests", text);
            retry_after(&mut reply);
            return reply;
        }
        let mut known = Known::default();
        match self.serve(peer, &request.headers, &mut known).await {
            Ok(served) => {
                self.note(peer.address, known, Outcome::Served, None);
                reply(StatusCode::OK, &self.body(form, &served))
            }
            Err(reason) => self.refuse(peer.address, known, &reason),
        }
    }

    /// The host at the other end with its credentials. `known` is what was found out until then.
    async fn serve(
        &self,
        peer: &Peer,
        headers: &HeaderMap,
        known: &mut Known,
    ) -> Result<Served, NotServed> {
        if let Some(header) = PROXY_HEADERS
            .into_iter()
            .find(|name| headers.contains_key(*name))
        {
            return Err(NotServed::Proxy(header));
        }
        let address = peer.address;
        let host = self.names.get(&address, self.find_name(address)).await?;
        let host = known.host.insert(host).clone();
        if self.needs_certificate && !is_certified(peer.certificate.as_ref(), &host) {
            return Err(NotServed::Certificate(host));
        }
        let found = host_rule::find(&self.rules, &host);
        let (rule, worker) = found.ok_or_else(|| NotServed::NoRule(host.clone()))?;
        let worker = worker.map_err(|bad| NotServed::BadWorker {
            host: host.clone(),
            reason: bad.to_string(),
        })?;
        let worker = known.worker.insert(worker).clone();
        let asking = self.ask_for_credentials(&worker, (address, &host), rule.declare);
        let given = self.credentials.get(&worker, asking).await;
        let given = given.map_err(NotServed::NotGiven)?;
        Ok(Served {
            host,
            worker,
            given,
        })
    }

    async fn find_name(&self, address: IpAddr) -> (Result<HostName, Unidentified>, Duration) {
        let found = async {
            let _turn = self.lookups.acquire().await;
            identify(&self.resolvers, address).await
        };
        match tokio::time::timeout(self.lookup_limit, found).await {
            Ok(Ok((host, ttl))) => (Ok(host), ttl.clamp(SHORTEST_CACHE, self.longest_cache)),
            Ok(Err(refusal)) => {
                let refused = Unidentified::Refused(Box::new(refusal));
                (Err(refused), self.refused_cache)
            }
            Err(_) => (
                Err(Unidentified::Late(self.lookup_limit)),
                self.refused_cache,
            ),
        }
    }

    async fn ask_for_credentials(
        &self,
        worker: &WorkerKey,
        host: (IpAddr, &HostName),
        declare: Option<u32>,
    ) -> (Result<Arc<HostCredentials>, NotGiven>, Duration) {
        let Ok(_turn) = tokio::time::timeout(TURN_LIMIT, self.asks.acquire()).await else {
            let text = format!("the request had no turn within {TURN_LIMIT:?}");
            return (Err(NotGiven::Away(text)), NOT_GIVEN_CACHE);
        };
        match self.worker_manager.credentials(worker, host, declare).await {
            Ok(given) => {
                let left_ms = given.expires.millis_since(self.machine.now());
                let left = Duration::from_millis(u64::try_from(left_ms).unwrap_or(0));
                (Ok(Arc::new(given)), CREDENTIALS_CACHE.min(left / 2))
            }
            Err(reason) => (Err(reason), NOT_GIVEN_CACHE),
        }
    }

    fn body(&self, form: Form, served: &Served) -> Value {
        let (worker, given) = (&served.worker, &served.given);
        let (provisioner, worker_type) = worker.pool_id.parts();
        let credentials = &given.credentials;
        match form {
            Form::Registration => json!({
                "rootUrl": self.worker_manager.root_url(),
                "providerId": given.provider_id,
                "workerPoolId": worker.pool_id.as_str(),
                "workerGroup": worker.group.as_str(),
                "workerId": worker.id.as_str(),
                "hostName": served.host.as_str(),
                "registration": {
                    "expires": given.expires.to_string(),
                    "credentials": {
                        "clientId": credentials.client_id,
                        "accessToken": credentials.access_token.expose(),
                        "certificate": credentials.certificate,
                    },
                    "secret": given.secret.expose(),
                    "workerConfig": given.worker_config,
                },
            }),
            Form::Credentials => json!({
                "rootURL": self.worker_manager.root_url(),
                "clientId": credentials.client_id,
                "accessToken": credentials.access_token.expose(),
                "certificate": credentials.certificate,
                "expires": given.expires.to_string(),
                "provisionerId": provisioner,
                "workerType": worker_type,
                "workerPoolId": worker.pool_id.as_str(),
                "workerGroup": worker.group.as_str(),
                "workerId": worker.id.as_str(),
            }),
        }
    }

    /// All refusals look the same to the host. The reason is in the log.
    fn refuse(&self, address: IpAddr, known: Known, reason: &NotServed) -> Response {
        let text = reason.to_string();
        let is_away = matches!(reason, NotServed::NotGiven(NotGiven::Away(_)));
        if let Some(n_left_out) = self.refusals.line(address, &text) {
            let host = known.host.as_ref().map_or("", HostName::as_str);
            tracing::warn!(host.address = %address, host.name = host, reason = text, n_left_out,
                "refused {address}: {text}");
        }
        let outcome = if is_away {
            Outcome::Failed
        } else {
            Outcome::Refused
        };
        self.note(address, known, outcome, Some(text));
        if is_away {
            let text = "The worker manager does not answer; try again";
            let mut reply = error(StatusCode::SERVICE_UNAVAILABLE, "ServiceUnavailable", text);
            retry_after(&mut reply);
            return reply;
        }
        let text = "The relay gives this address no credentials; its log says why";
        error(StatusCode::FORBIDDEN, "Refused", text)
    }

    fn note(&self, address: IpAddr, known: Known, outcome: Outcome, reason: Option<String>) {
        let sighting = Sighting {
            host: known.host,
            worker: known.worker,
            outcome,
            reason,
            at: self.now(),
        };
        self.sightings.note(address, sighting);
    }

    pub(crate) fn now(&self) -> Timestamp {
        self.machine.now()
    }

    /// The pools of the rules.
    pub(crate) fn pools(&self) -> Vec<&str> {
        let mut pools: Vec<&str> = self
            .rules
            .iter()
            .map(|rule| rule.pool_id.as_str())
            .collect();
        pools.sort_unstable();
        pools.dedup();
        pools
    }
}

/// Whether the certificate is for this name. The handshake has checked its authority.
fn is_certified(certificate: Option<&CertificateDer<'static>>, host: &HostName) -> bool {
    let check = || {
        let certificate = ParsedCertificate::try_from(certificate?).ok()?;
        let name = ServerName::try_from(host.as_str()).ok()?;
        verify_server_name(&certificate, &name).ok()
    };
    check().is_some()
}

fn reply(status: StatusCode, body: &Value) -> Response {
    let mut reply = Response::new(Full::new(Bytes::from(body.to_string())));
    *reply.status_mut() = status;
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    reply
}

fn error(status: StatusCode, code: &str, message: &str) -> Response {
    reply(status, &json!({"code": code, "message": message}))
}

fn retry_after(reply: &mut Response) {
    let second = HeaderValue::from_static("1");
    reply.headers_mut().insert(RETRY_AFTER, second);
}
