//! The steps of a request, in the order that clients of Taskcluster know.
//!
//! Body, credentials, parameters, query, schema, handler: the first that refuses decides the error.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use contract::{numbers, patterns};
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, IF_NONE_MATCH,
};
use http::{HeaderMap, Method};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Map, Value};
use tokio_util::sync::CancellationToken;

use super::call::Call;
use super::endpoint::{Endpoint, Payload, Service, Verb};
use super::error::{ApiError, Code};
use super::raw_body::RawBody;
use super::reply::Reply;
use super::response::{Response, error_reply, not_found, options, reply_with};
use super::route::{Found, Router};
use crate::app::App;
use crate::gate::Asking;
use crate::telemetry::Stopwatch;

/// An error repeats the body that it is about only if that is not larger than this.
const MAX_PAYLOAD_IN_ERROR: usize = 64 * 1024;

/// What a request is known by in logs and replies.
#[derive(Clone)]
pub struct Tags {
    pub request_id: String,
    pub trace_id: String,
}

/// A request's head and who sent it.
pub struct Head {
    pub method: Method,
    pub uri: http::Uri,
    pub headers: HeaderMap,
    pub peer: SocketAddr,
    pub tags: Tags,
    /// The client has hung up, or the server stops.
    pub gone: CancellationToken,
}

/// Answers a request whose path begins with `/api/`.
pub async fn answer<B>(app: &Arc<App>, router: &Router, head: Head, body: B) -> Response
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let Some((service, path)) = service_of(head.uri.path()) else {
        return not_found();
    };
    if head.method == Method::OPTIONS {
        return options(&router.verbs(service, path));
    }
    let Some(verb) = Verb::of(&head.method) else {
        return not_found();
    };
    let found = match router.find(service, verb, path) {
        Ok(Some(found)) => found,
        Ok(None) => return not_found(),
        Err(_) => {
            let text = "The path is not valid percent-encoded UTF-8";
            let error = ApiError::new(Code::InvalidRequestArguments, text);
            return error_reply(&error, "unknown", &[], Value::Null, app.clock.now());
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
    tracing::debug!(http.method = %head.method, http.path = head.uri.path(), http.status = status,
        elapsed_ms = took.as_millis(), "{name} answered {status}");
    response
}

async fn run<B>(app: &Arc<App>, head: &Head, found: Found, body: B) -> Response
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let now = app.clock.now();
    let Found {
        endpoint,
        name,
        parameters,
    } = found;
    let for_error = parameters.clone();
    let mut payload = Value::Object(Map::new());
    let read = if endpoint.takes_raw_body {
        let patience = Duration::from_secs(app.config.server.body_seconds);
        let encoding = text_header(&head.headers, CONTENT_ENCODING);
        Ok(ReadBody::raw(RawBody::new(body, encoding, patience)))
    } else {
        read_body(app, head, body).await
    };
    let outcome = match read {
        Err(error) => Err(error),
        Ok(body) => {
            payload = payload_for_errors(endpoint, &body);
            let call = Call {
                app: Arc::clone(app),
                endpoint,
                parameters,
                query: Vec::new(),
                body: body.json,
                raw: Mutex::new(body.raw),
                now,
                request_id: head.tags.request_id.clone(),
                gone: head.gone.clone(),
                asking: asking(app, head, body.text),
                last_event_id: last_event_id(&head.headers),
                if_none_match: text_header(&head.headers, IF_NONE_MATCH),
                caller: None,
            };
            let json_given = body.is_json;
            check_and_handle(call, head.uri.query().unwrap_or(""), json_given).await
        }
    };
    match outcome {
        Ok(reply) => reply_with(app, endpoint, reply, &for_error, payload, now),
        Err(mut error) => {
            tell_internal(app, name, &mut error);
            error_reply(&error, name, &for_error, payload, now)
        }
    }
}

/// Steps 3 to 7 of a request.
async fn check_and_handle(
    mut call: Call,
    query: &str,
    json_given: bool,
) -> Result<Reply, ApiError> {
    let endpoint = call.endpoint;
    if endpoint.authorized_by_url() {
        call.authorize(call.url_params()).await?;
    }
    check_parameters(endpoint, &call.parameters)?;
    call.query = check_query(endpoint, query)?;
    if let Some(schema) = endpoint.input {
        if !json_given {
            let given = &call.asking.content_type;
            let text = format!(
                "Payload must be JSON with content-type: application/json got content-type: {given}"
            );
            return Err(ApiError::new(Code::MalformedPayload, text));
        }
        let name = endpoint.schema_name(schema);
        call.app
            .schemas
            .validate(&name, &mut call.body)
            .map_err(|invalid| ApiError::invalid(&invalid, &call.app.root_url))?;
    }
    (endpoint.handler)(call).await
}

/// `/api/<service>/v1/<path>`.
fn service_of(path: &str) -> Option<(Service, &str)> {
    let rest = path.strip_prefix("/api/")?;
    Service::ALL.into_iter().find_map(|service| {
        let rest = rest.strip_prefix(service.as_str())?.strip_prefix("/v1")?;
        rest.starts_with('/').then_some((service, rest))
    })
}

struct ReadBody {
    json: Value,
    text: Bytes,
    is_json: bool,
    raw: Option<RawBody>,
}

impl ReadBody {
    fn empty(is_json: bool) -> Self {
        Self {
            json: Value::Object(Map::new()),
            text: Bytes::new(),
            is_json,
            raw: None,
        }
    }

    /// Left for the handler to read.
    fn raw(body: RawBody) -> Self {
        Self {
            raw: Some(body),
            ..Self::empty(false)
        }
    }
}

/// Reads the body if it is JSON; everything else counts as an empty object.
async fn read_body<B>(app: &App, head: &Head, body: B) -> Result<ReadBody, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let malformed = |text: String| ApiError::new(Code::MalformedPayload, text);
    if content_type(&head.headers) != "application/json" {
        return Ok(ReadBody::empty(false));
    }
    let limits = &app.config.server;
    let too_large = || {
        let text = format!("The body is larger than {} bytes", limits.max_body_bytes);
        ApiError::new(Code::InputTooLarge, text)
    };
    // What is announced as too large need not arrive first.
    if body.size_hint().lower() > limits.max_body_bytes as u64 {
        return Err(too_large());
    }
    let collected = tokio::time::timeout(
        Duration::from_secs(limits.body_seconds),
        Limited::new(body, limits.max_body_bytes).collect(),
    );
    let text = match collected.await {
        Err(_) => {
            let text = format!(
                "The body did not arrive within {} seconds",
                limits.body_seconds
            );
            return Err(ApiError::new(Code::RequestTimeout, text));
        }
        Ok(Err(problem)) if problem.is::<LengthLimitError>() => return Err(too_large()),
        Ok(Err(problem)) => return Err(malformed(format!("The body broke off: {problem}"))),
        Ok(Ok(collected)) => collected.to_bytes(),
    };
    if text.is_empty() {
        return Ok(ReadBody::empty(true));
    }
    let mut json: Value = serde_json::from_slice(&text)
        .map_err(|problem| malformed(format!("Failed to parse body as JSON: {problem}")))?;
    if !json.is_object() && !json.is_array() {
        return Err(malformed(
            "The body must be a JSON object or array".to_owned(),
        ));
    }
    refuse_nul(&json)?;
    numbers::as_javascript(&mut json);
    Ok(ReadBody {
        json,
        text,
        is_json: true,
        raw: None,
    })
}

/// PostgreSQL has no texts with U+0000, so nobody may store one. A plain look at the bytes would
/// miss the escaped form, so the parsed texts are looked at.
fn refuse_nul(json: &Value) -> Result<(), ApiError> {
    let has_nul = match json {
        Value::String(text) => text.contains('\0'),
        Value::Array(items) => return items.iter().try_for_each(refuse_nul),
        Value::Object(members) => {
            members.values().try_for_each(refuse_nul)?;
            members.keys().any(|key| key.contains('\0'))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
    };
    if has_nul {
        let text = "The body has a text with the character U+0000, which cannot be stored";
        return Err(ApiError::new(Code::MalformedPayload, text));
    }
    Ok(())
}

fn text_header(headers: &HeaderMap, name: HeaderName) -> Option<String> {
    let value = headers.get(name)?.to_str().ok()?;
    Some(value.to_owned())
}

/// In lower case, without parameters; empty if there is none.
fn content_type(headers: &HeaderMap) -> String {
    let given = headers
        .get(CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    given.split(';').next().unwrap_or("").trim().to_lowercase()
}

fn asking(app: &App, head: &Head, body: Bytes) -> Asking {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let host = head
        .headers
        .get(HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let (name, port) = split_host(host);
    let forwarded_port = text("x-forwarded-port").and_then(|port| port.trim().parse().ok());
    let forwarded_tls = text("x-forwarded-proto").is_some_and(|proto| proto.trim() == "https");
    let forwarded_for = app
        .config
        .server
        .trust_proxy
        .then(|| text("x-forwarded-for").and_then(|list| list.split(',').next()))
        .flatten();
    Asking {
        method: head.method.as_str().to_owned(),
        resource: head
            .uri
            .path_and_query()
            .map_or("/", |whole| whole.as_str())
            .to_owned(),
        host: name.to_lowercase(),
        port: forwarded_port
            .or(forwarded_tls.then_some(443))
            .or(port)
            .unwrap_or(80),
        authorization: authorization(&head.headers),
        source_ip: forwarded_for
            .and_then(|ip| ip.trim().parse::<std::net::IpAddr>().ok())
            .unwrap_or_else(|| head.peer.ip())
            .to_string(),
        content_type: content_type(&head.headers),
        body,
    }
}

/// What is no text is no place either, which the handler then says.
fn last_event_id(headers: &HeaderMap) -> Option<String> {
    let given = headers.get("last-event-id")?;
    Some(String::from_utf8_lossy(given.as_bytes()).into_owned())
}

/// Several headers count as one that no scheme understands, and so does one that is not text.
fn authorization(headers: &HeaderMap) -> Option<String> {
    let given: Vec<_> = headers
        .get_all(AUTHORIZATION)
        .iter()
        .map(|value| String::from_utf8_lossy(value.as_bytes()))
        .collect();
    (!given.is_empty()).then(|| given.join(", "))
}

/// A host header's name and port; the name of an IPv6 address keeps its brackets.
fn split_host(host: &str) -> (&str, Option<u16>) {
    match host.rsplit_once(':') {
        Some((name, port)) if !port.ends_with(']') => (name, port.parse().ok()),
        _ => (host, None),
    }
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

fn check_query(endpoint: &Endpoint, query: &str) -> Result<Vec<(&'static str, String)>, ApiError> {
    let mut checked: Vec<(&'static str, String)> = Vec::new();
    let mut problems: Vec<String> = Vec::new();
    for pair in query.split('&').filter(|pair| !pair.is_empty()) {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        let (Some(name), Some(value)) = (form_decoded(name), form_decoded(value)) else {
            problems.push(format!(
                "Query-string parameter: {pair} is not valid UTF-8!"
            ));
            continue;
        };
        if name == "bewit" {
            continue;
        }
        let Some(known) = endpoint.query.iter().find(|known| known.name == name) else {
            problems.push(format!("Query-string parameter: {name} is not supported!"));
            continue;
        };
        if checked.iter().any(|(seen, _)| *seen == known.name) {
            problems.push(format!("Query-string parameter: {name} must be a string!"));
        } else if value.contains('\0') || !patterns::matches(known.pattern, &value) {
            problems.push(format!(
                "Query-string parameter: {name}=\"{value}\" does not match expression: /{}/",
                known.pattern
            ));
        }
        checked.push((known.name, value));
    }
    if problems.is_empty() {
        return Ok(checked);
    }
    Err(ApiError::new(
        Code::InvalidRequestArguments,
        problems.join("\n"),
    ))
}

/// `+` is a space in a query.
fn form_decoded(text: &str) -> Option<String> {
    let text = text.replace('+', " ");
    percent_encoding::percent_decode_str(&text)
        .decode_utf8()
        .ok()
        .map(String::from)
}

fn payload_for_errors(endpoint: &Endpoint, body: &ReadBody) -> Value {
    let omitted = || Value::String("(OMITTED)".to_owned());
    if body.text.len() > MAX_PAYLOAD_IN_ERROR {
        return omitted();
    }
    match endpoint.payload {
        Payload::Shown => body.json.clone(),
        Payload::Omitted => omitted(),
        Payload::WithoutSecret => {
            let mut payload = body.json.clone();
            if let Some(secret) = payload.pointer_mut("/providerInfo/staticSecret") {
                *secret = omitted();
            }
            payload
        }
    }
}

/// Gives an internal error its id, and our log what lies behind it.
fn tell_internal(app: &App, name: &str, error: &mut ApiError) {
    let Some(cause) = error.cause.take() else {
        return;
    };
    let incident = app.random.slugid();
    let chain = chain_of(&*cause);
    tracing::error!(incident.id = %incident, api.method = name, "{name} failed: {chain}");
    *error = ApiError::internal(&incident);
}

/// An error and what caused it, in one line.
fn chain_of(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn hosts_are_split_from_their_ports() {
        assert_eq!(split_host("a.example:8080"), ("a.example", Some(8080)));
        assert_eq!(split_host("a.example"), ("a.example", None));
        assert_eq!(split_host("[::1]:80"), ("[::1]", Some(80)));
        assert_eq!(split_host("[::1]"), ("[::1]", None));
        assert_eq!(split_host(""), ("", None));
    }

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
