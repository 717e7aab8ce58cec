//! The steps of a request, in the order of Taskcluster.
//!
//! Credentials, body, parameters, query, schema, handler: the first refusal decides the error.
//! Credentials come first, so that callers without scopes do not make us read or keep anything.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::scope::{Params, ScopeSet};
use api_client::with_causes;
use bytes::Bytes;
use contract::patterns;
use engine::measures::Stopwatch;
use engine::taskcluster_records::{Record, Severity};
use http::header::{AUTHORIZATION, AsHeaderName, CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderMap, Method};
use serde_json::{Map, Value, json};

use super::call::Call;
use super::client_address;
use super::compression::compress;
use super::conditions::Conditions;
use super::endpoint::{Endpoint, Payload, Service, Verb};
use super::error::{ApiError, Code};
use super::query;
use super::raw_body::RawBody;
use super::read_body::{self, BodyLimits, RequestBody};
use super::reply::Reply;
use super::request_head::RequestHead;
use super::response::{Response, error_reply, not_found, options, reply_with};
use super::route::{RouteMatch, Router};
use super::unserved;
use crate::app::App;
use crate::authentication::{Caller, RequestToAuthenticate};
use crate::hosts::Host;
use crate::limits::BodyShare;
use crate::telemetry::{TRACE_PARENT, TracedRequest};

const JSON: &str = "application/json";
/// An error repeats the body of its request only up to this size.
const MAX_PAYLOAD_IN_ERROR: usize = 64 * 1024;

/// Callers choose client ids, and with them the texts of refusals. This much of each is logged.
const MAX_LOGGED_CHARS: usize = 200;

/// Answers a request whose path begins with `/api/`.
pub async fn answer(
    app: &Arc<App>,
    router: &Router,
    head: RequestHead,
    body: impl RequestBody,
) -> Response {
    let path = head.uri.path().to_owned();
    match service_of(&path) {
        Some((service, path)) => answer_at(app, router, (service, path), head, body).await,
        None => unserved::answer(app, &head),
    }
}

/// Answers a request at this path of a service.
pub(super) async fn answer_at(
    app: &Arc<App>,
    router: &Router,
    (service, path): (Service, &str),
    head: RequestHead,
    body: impl RequestBody,
) -> Response {
    if head.method == Method::OPTIONS {
        let verbs = router.verbs(service, path);
        return match verbs.is_empty() {
            true => unserved::answer(app, &head),
            false => options(&verbs),
        };
    }
    let Some(verb) = Verb::of(&head.method) else {
        return not_found();
    };
    let found = match router.find(service, verb, path) {
        Ok(Some(found)) => found,
        Ok(None) => return unserved::answer(app, &head),
        Err(_) => {
            let text = "The path is not valid percent-encoded UTF-8";
            let error = ApiError::new(Code::InvalidRequestArguments, text);
            return error_reply(&error, "unknown", &[], Value::Null, app.engine.clock.now());
        }
    };
    let watch = Stopwatch::start();
    let (endpoint, name) = (found.endpoint, found.name);
    let response = run(app, &head, found, body).await;
    let status = response.status().as_u16();
    let took = watch.elapsed();
    app.telemetry.request(
        service.as_str(),
        endpoint.name,
        head.method.to_string(),
        status,
        took,
    );
    if let Some(traces) = &app.traces {
        let parent = text_header(&head.headers, TRACE_PARENT);
        let request = TracedRequest {
            name,
            method: head.method.as_str(),
            path: head.uri.path(),
            status,
        };
        let (now, random) = (app.engine.clock.now(), &app.engine.random);
        traces.request(&request, parent, now, took, random);
    }
    if app.engine.taskcluster_records {
        log_call(app, &head, endpoint, status, took);
    }
    tracing::debug!(http.method = %head.method, http.path = head.uri.path(), http.status = status,
        elapsed_ms = took.as_millis(), "{name} answered {status}");
    response
}

async fn run(
    app: &Arc<App>,
    head: &RequestHead,
    found: RouteMatch,
    body: impl RequestBody,
) -> Response {
    let now = app.engine.clock.now();
    let RouteMatch {
        endpoint,
        name,
        parameters,
    } = found;
    let for_error = parameters.clone();
    let host = addressed(app, head);
    let mut payload = Value::Object(Map::new());
    let call = Call {
        app: Arc::clone(app),
        name: endpoint.name,
        required_scopes: endpoint.scopes,
        parameters,
        query: Vec::new(),
        body: payload.clone(),
        raw: Mutex::new(None),
        memory: None,
        now,
        request_id: head.tags.request_id.clone(),
        cancelled: head.cancelled.clone(),
        auth_request: auth_request(app, head, &host),
        foreign_host: Some(host).filter(|host| !app.hosts.contains(host, head.sender.local)),
        address: client_address::address(app, head),
        connection: head.sender.connection.clone(),
        last_event_id: last_event_id(&head.headers),
        conditions: Conditions::of(head),
        caller: None,
        person: head.person.clone(),
    };
    let outcome = match app.engine.clock.doubt() {
        None => answer_call(call, endpoint, head, body, &mut payload).await,
        Some(doubt) => Err(ApiError::clock_unknown(&doubt)),
    };
    match outcome {
        Ok(reply) => {
            let response = reply_with(app, endpoint, reply, &for_error, payload, now);
            compress(head, response).await
        }
        Err(mut error) => {
            log_internal(app, name, &mut error);
            if matches!(
                error.code,
                Code::AuthenticationFailed | Code::InsufficientScopes
            ) {
                log_refusal(app, name, head, &error);
            }
            error_reply(&error, name, &for_error, payload, now)
        }
    }
}

/// The steps in their order. `payload` becomes the part of the body that an error repeats.
async fn answer_call(
    mut call: Call,
    endpoint: &Endpoint,
    head: &RequestHead,
    body: impl RequestBody,
    payload: &mut Value,
) -> Result<Reply, ApiError> {
    if let Err(refused) = admit(&mut call, endpoint).await {
        read_body::discard(&call.app.config.server, &head.headers, body).await;
        return Err(refused);
    }
    let is_json = if endpoint.takes_raw_body {
        let encoding = text_header(&head.headers, CONTENT_ENCODING).map(str::to_owned);
        let raw = RawBody::new(body, encoding, &call.app.config.server, share(&call));
        call.raw = Mutex::new(Some(raw));
        false
    } else if call.auth_request.content_type == JSON {
        let received =
            read_body::receive(body, &body_limits(&call, endpoint), share(&call)).await?;
        call.body = received.json;
        call.auth_request.body = received.text;
        call.memory = Some(received.memory);
        true
    } else {
        false
    };
    if let Some(caller) = &call.caller {
        caller.check_payload(&call.auth_request)?;
    }
    *payload = payload_for_errors(&call, endpoint.payload);
    check_and_handle(call, endpoint, head.uri.query().unwrap_or(""), is_json).await
}

/// Admits a call before its body is read. If the URL decides the scopes, the caller needs them;
/// otherwise it needs valid credentials. Calls that need no credentials are rate-limited.
async fn admit(call: &mut Call, endpoint: &Endpoint) -> Result<(), ApiError> {
    if endpoint.scopes.is_none() {
        // Without input no resources are used, and signed URLs count as credentials.
        if endpoint.input.is_some() {
            call.app.open_calls.take(call.address, call.now)?;
        }
        return Ok(());
    }
    if endpoint.authorized_by_url() {
        return call.authorize(call.url_params()).await;
    }
    call.authenticate().await
}

/// Whether a known client sent the call. The role `anonymous` may admit a call, but its sender may
/// not send much.
fn is_by_known_client(call: &Call) -> bool {
    let is_known = |caller: &Caller| caller.client_id.is_some();
    call.caller.as_ref().is_some_and(is_known)
}

fn share(call: &Call) -> BodyShare {
    let budget = &call.app.body_budget;
    if is_by_known_client(call) {
        return budget.admitted();
    }
    budget.open(call.address)
}

/// Where no body is expected, it is read for its signature alone, so it must be small.
fn body_limits(call: &Call, endpoint: &Endpoint) -> BodyLimits {
    let limits = &call.app.config.server;
    if is_by_known_client(call) && endpoint.input.is_some() {
        return BodyLimits::admitted(limits, &call.app.body_budget);
    }
    BodyLimits::open(limits)
}

/// The steps after the body has been read.
async fn check_and_handle(
    mut call: Call,
    endpoint: &Endpoint,
    query: &str,
    json_given: bool,
) -> Result<Reply, ApiError> {
    check_parameters(endpoint, &call.parameters)?;
    call.query = query::checked(endpoint, query)?;
    if let Some(schema) = endpoint.input {
        if !json_given {
            let given = &call.auth_request.content_type;
            let text = format!(
                "Payload must be JSON with content-type: application/json got content-type: {given}"
            );
            return Err(ApiError::new(Code::MalformedPayload, text));
        }
        if !endpoint.is_checked_by_handler {
            let name = endpoint.schema_name(schema);
            let checked = call.app.engine.schemas.validate(&name, &mut call.body);
            checked.map_err(|invalid| ApiError::invalid(&invalid, &call.app.engine.root_url))?;
        }
    }
    (endpoint.handler)(call).await
}

/// Whether a call with this address may be made with these scopes, with some body.
pub(super) fn permits(router: &Router, scopes: &ScopeSet, method: &Method, path: &str) -> bool {
    let found = Verb::of(method)
        .zip(service_of(path))
        .and_then(|(verb, (service, path))| router.find(service, verb, path).ok().flatten());
    let Some(found) = found else {
        return false;
    };
    let Some(template) = found.endpoint.scopes else {
        return true;
    };
    let parameters = found.parameters.iter();
    let parameters = parameters.fold(Params::new(), |parameters, (name, value)| {
        parameters.text(*name, value.as_str())
    });
    template.may_be_satisfied(&parameters, scopes)
}

/// Parses `/api/<service>/v1/<path>`.
fn service_of(path: &str) -> Option<(Service, &str)> {
    let rest = path.strip_prefix("/api/")?;
    Service::ALL.into_iter().find_map(|service| {
        let rest = rest.strip_prefix(service.as_str())?.strip_prefix("/v1")?;
        rest.starts_with('/').then_some((service, rest))
    })
}

pub(super) fn text_header(headers: &HeaderMap, name: impl AsHeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

/// In lower case, without parameters; empty if the header is missing.
fn content_type(headers: &HeaderMap) -> String {
    let given = text_header(headers, CONTENT_TYPE).unwrap_or("");
    given.split(';').next().unwrap_or("").trim().to_lowercase()
}

/// The host that the client addressed. Only trusted proxies know better than the client.
pub(super) fn addressed(app: &App, head: &RequestHead) -> Host {
    let text = |name: &str| text_header(&head.headers, name);
    let is_proxied = app.config.server.trusted_proxies > 0;
    let forwarded = |name| text(name).filter(|_| is_proxied).map(str::trim);
    let port = forwarded("x-forwarded-port").and_then(|port| port.parse().ok());
    let is_https = forwarded("x-forwarded-proto") == Some("https");
    let port = port.or(is_https.then_some(443));
    let header = text("host").unwrap_or("");
    app.hosts.addressed(header, port, head.sender.is_tls)
}

fn auth_request(app: &App, head: &RequestHead, host: &Host) -> RequestToAuthenticate {
    RequestToAuthenticate {
        method: head.method.as_str().to_owned(),
        resource: head
            .uri
            .path_and_query()
            .map_or("/", |whole| whole.as_str())
            .to_owned(),
        host: host.name.clone(),
        port: host.port,
        authorization: authorization(&head.headers),
        source_ip: client_address::address(app, head).to_string(),
        may_look_up: true,
        content_type: content_type(&head.headers),
        body: Bytes::new(),
    }
}

/// A header that is not text is not a position; the handler then reports it.
fn last_event_id(headers: &HeaderMap) -> Option<String> {
    let given = headers.get("last-event-id")?;
    Some(String::from_utf8_lossy(given.as_bytes()).into_owned())
}

/// Several headers count as a single header of no known scheme, as does a header that is not text.
fn authorization(headers: &HeaderMap) -> Option<String> {
    let given: Vec<_> = headers
        .get_all(AUTHORIZATION)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    (!given.is_empty()).then(|| given.join(", "))
}

pub(super) fn parameter_pattern(service: Service, name: &str) -> Option<&'static str> {
    match (service, name) {
        (Service::WorkerManager, "workerPoolId") => Some(patterns::WORKER_POOL_ID),
        (Service::WorkerManager, "workerConfigurationId") => Some(patterns::CONFIGURATION_ID),
        (Service::WorkerManager, "workerGroup" | "workerId") => Some(patterns::GENERIC_ID),
        (Service::Queue | Service::Fleetwright, "taskId" | "taskGroupId") => Some(patterns::SLUGID),
        (Service::Queue | Service::Fleetwright, "runId") => Some(patterns::RUN_ID),
        (Service::Queue, "taskQueueId") | (Service::PurgeCache, "workerPoolId") => {
            Some(patterns::TASK_QUEUE_ID)
        }
        (Service::Queue, "provisionerId" | "workerType" | "workerGroup" | "workerId") => {
            Some(patterns::GENERIC_ID)
        }
        (Service::Auth, "clientId") => Some(patterns::CLIENT_ID),
        (Service::Auth, "roleId") => Some(patterns::ROLE_ID),
        (Service::Auth, "wstAudience") => Some(patterns::GENERIC_ID),
        (Service::Auth, "wstClient") => Some(patterns::TUNNEL_CLIENT),
        _ => None,
    }
}

fn check_parameters(
    endpoint: &Endpoint,
    parameters: &[(&'static str, String)],
) -> Result<(), ApiError> {
    let mut problems = String::new();
    for (name, value) in parameters {
        let pattern = parameter_pattern(endpoint.service, name);
        if let Some(pattern) = pattern.filter(|pattern| !patterns::matches(pattern, value)) {
            problems.push_str(&format!(
                "\nURL parameter '{name}' given as '{value}' must match regular expression: \
                 '{pattern}'"
            ));
        } else if value.contains('\0') {
            problems.push_str(&format!(
                "\nURL parameter '{name}' contains the character U+0000"
            ));
        }
    }
    if problems.is_empty() {
        return Ok(());
    }
    let text = format!("Invalid URL patterns:{problems}");
    Err(ApiError::new(Code::InvalidRequestArguments, text))
}

fn payload_for_errors(call: &Call, shown: Payload) -> Value {
    let omitted = || Value::String("(OMITTED)".to_owned());
    if call.auth_request.body.len() > MAX_PAYLOAD_IN_ERROR {
        return omitted();
    }
    match shown {
        Payload::Shown => call.body.clone(),
        Payload::Omitted => omitted(),
        Payload::WithoutSecret => {
            let mut payload = call.body.clone();
            if let Some(secret) = payload.pointer_mut("/providerInfo/staticSecret") {
                *secret = omitted();
            }
            payload
        }
    }
}

/// The record of a call, as Taskcluster's services write it. It names no client and no query: the
/// log of refusals and the audit log do.
fn log_call(app: &App, head: &RequestHead, endpoint: &Endpoint, status: u16, took: Duration) {
    let record = Record {
        kind: "monitor.apiMethod",
        version: 2,
        severity: Severity::Notice,
        fields: json!({
            "name": endpoint.name,
            "apiVersion": "v1",
            "public": endpoint.scopes.is_none(),
            "resource": head.uri.path(),
            "method": head.method.as_str(),
            "sourceIp": client_address::address(app, head).to_string(),
            "duration": took.as_secs_f64() * 1_000.0,
            "statusCode": status,
        }),
    };
    record.write();
}

/// Logs who was refused what: a limited number of lines, so that callers cannot fill the log.
fn log_refusal(app: &App, name: &str, head: &RequestHead, error: &ApiError) {
    let address = client_address::address(app, head);
    let Some(n_left_out) = app.refusals.line(address, app.engine.clock.now()) else {
        return;
    };
    let claimed = claimed_client(app, head);
    let client = claimed.as_deref().unwrap_or("no client");
    let reason = shortened(error.message.lines().next().unwrap_or_default());
    tracing::info!(client.id = %client, source.ip = %address, api.method = name,
        http.method = %head.method, http.path = head.uri.path(),
        http.status = error.code.status().as_u16(), refusals.left_out = n_left_out,
        "refused {name} to {client} at {address}: {reason}");
}

/// The client that the sender of a request claims to be.
fn claimed_client(app: &App, head: &RequestHead) -> Option<String> {
    if let Some(person) = &head.person {
        return person.client_id.as_deref().map(shortened);
    }
    let signed = auth_request(app, head, &addressed(app, head));
    let read = access::hawk::read(&signed.line(), signed.authorization.as_deref());
    read.ok()?.sender().map(shortened)
}

fn shortened(text: &str) -> String {
    text.chars().take(MAX_LOGGED_CHARS).collect()
}

/// Logs the cause of an error that is ours, and gives an internal error its id. Without a database
/// all requests fail alike, so they share a line.
fn log_internal(app: &App, name: &str, error: &mut ApiError) {
    let Some(cause) = error.cause.take() else {
        return;
    };
    if error.code == Code::DatabaseUnavailable {
        let chain = with_causes(&*cause);
        tracing::error!(api.method = name, "requests get 503: {chain}");
        return;
    }
    let incident = app.engine.random.slugid();
    let chain = with_causes(&*cause);
    tracing::error!(incident.id = %incident, api.method = name, "{name} failed, incident {incident}: {chain}");
    *error = ApiError::internal(&incident);
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn only_paths_of_our_services_are_api_paths() {
        let path = "/api/worker-manager/v1/ping";
        assert_eq!(service_of(path), Some((Service::WorkerManager, "/ping")));
        assert_eq!(
            service_of("/api/auth/v1/clients/"),
            Some((Service::Auth, "/clients/"))
        );
        for path in [
            "/api/queues/v1/ping",
            "/api/auth/v2/ping",
            "/api/auth/v1",
            "/api/authx/v1/a",
        ] {
            assert_eq!(service_of(path), None, "{path}");
        }
    }

    #[test]
    fn several_authorization_headers_are_no_valid_one() {
        let mut headers = HeaderMap::new();
        assert_eq!(authorization(&headers), None);
        headers.append(AUTHORIZATION, HeaderValue::from_static("Hawk a"));
        headers.append(AUTHORIZATION, HeaderValue::from_static("Hawk b"));
        assert_eq!(authorization(&headers).as_deref(), Some("Hawk a, Hawk b"));
    }
}
