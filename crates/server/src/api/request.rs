//! The steps of a request, in the order that clients of Taskcluster know.
//!
//! Credentials, body, parameters, query, schema, handler: the first that refuses decides the error.
//! Credentials come first, so that those who may not call do not make us read or keep anything.

use std::sync::{Arc, Mutex};

use api_client::with_causes;
use bytes::Bytes;
use contract::patterns;
use engine::measures::Stopwatch;
use http::header::{
    AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderName, IF_NONE_MATCH,
};
use http::{HeaderMap, Method};
use serde_json::{Map, Value};

use super::call::Call;
use super::endpoint::{Endpoint, Payload, Service, Verb};
use super::error::{ApiError, Code};
use super::head::Head;
use super::query;
use super::raw_body::RawBody;
use super::read_body::{self, BodyLimits};
use super::reply::Reply;
use super::response::{Response, error_reply, not_found, options, reply_with};
use super::route::{Found, Router};
use super::sender;
use crate::app::App;
use crate::gate::{Asking, Caller};
use crate::limits::BodyShare;

const JSON: &str = "application/json";
/// An error repeats the body that it is about only if that is not larger than this.
const MAX_PAYLOAD_IN_ERROR: usize = 64 * 1024;

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
    tracing::debug!(http.method = %head.method, http.path = head.uri.path(), http.status = status,
        elapsed_ms = took.as_millis(), "{name} answered {status}");
    response
}

async fn run<B>(app: &Arc<App>, head: &Head, found: Found, body: B) -> Response
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let now = app.engine.clock.now();
    let Found {
        endpoint,
        name,
        parameters,
    } = found;
    let for_error = parameters.clone();
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
        gone: head.gone.clone(),
        asking: asking(app, head),
        last_event_id: last_event_id(&head.headers),
        if_none_match: text_header(&head.headers, IF_NONE_MATCH),
        caller: None,
    };
    let outcome = answer_call(call, endpoint, head, body, &mut payload).await;
    match outcome {
        Ok(reply) => reply_with(app, endpoint, reply, &for_error, payload, now),
        Err(mut error) => {
            tell_internal(app, name, &mut error);
            error_reply(&error, name, &for_error, payload, now)
        }
    }
}

/// The steps in their order. `payload` becomes what an error repeats of the body.
async fn answer_call<B>(
    mut call: Call,
    endpoint: &Endpoint,
    head: &Head,
    body: B,
    payload: &mut Value,
) -> Result<Reply, ApiError>
where
    B: http_body::Body<Data = Bytes> + Send + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    if let Err(refused) = admit(&mut call, endpoint, head).await {
        read_body::discard(&call.app.config.server, &head.headers, body).await;
        return Err(refused);
    }
    let is_json = if endpoint.takes_raw_body {
        let encoding = text_header(&head.headers, CONTENT_ENCODING);
        let raw = RawBody::new(body, encoding, &call.app.config.server, share(&call, head));
        call.raw = Mutex::new(Some(raw));
        false
    } else if call.asking.content_type == JSON {
        let received =
            read_body::receive(body, &body_limits(&call, endpoint), share(&call, head)).await?;
        call.body = received.json;
        call.asking.body = received.text;
        call.memory = Some(received.memory);
        true
    } else {
        false
    };
    if let Some(caller) = &call.caller {
        caller.check_payload(&call.asking)?;
    }
    *payload = payload_for_errors(&call, endpoint.payload);
    check_and_handle(call, endpoint, head.uri.query().unwrap_or(""), is_json).await
}

/// Lets a call in before anything of its body is read, as far as its head says enough: by its scopes
/// where the URL decides which, else by its credentials. What needs none may come only so often.
async fn admit(call: &mut Call, endpoint: &Endpoint, head: &Head) -> Result<(), ApiError> {
    if endpoint.scopes.is_none() {
        // Without input there is nothing to work on, and signed URLs count as credentials.
        if endpoint.input.is_some() {
            let address = sender::address(&call.app, head);
            call.app.open_calls.take(address, call.now)?;
        }
        return Ok(());
    }
    if endpoint.authorized_by_url() {
        return call.authorize(call.url_params()).await;
    }
    call.authenticate().await
}

/// Is it known which client calls? What anybody may do, by the role `anonymous` say, lets a call in, too,
/// but does not make its sender one who may send much.
fn is_by_known_client(call: &Call) -> bool {
    let is_known = |caller: &Caller| caller.client_id.is_some();
    call.caller.as_ref().is_some_and(is_known)
}

fn share(call: &Call, head: &Head) -> BodyShare {
    let budget = &call.app.body_budget;
    if is_by_known_client(call) {
        return budget.admitted();
    }
    budget.open(sender::address(&call.app, head))
}

/// A body where none is expected is read for its signature alone, so it may only be small.
fn body_limits(call: &Call, endpoint: &Endpoint) -> BodyLimits {
    let limits = &call.app.config.server;
    if is_by_known_client(call) && endpoint.input.is_some() {
        return BodyLimits::admitted(limits, &call.app.body_budget);
    }
    BodyLimits::open(limits)
}

/// What follows once the body is there.
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
            let given = &call.asking.content_type;
            let text = format!(
                "Payload must be JSON with content-type: application/json got content-type: {given}"
            );
            return Err(ApiError::new(Code::MalformedPayload, text));
        }
        let name = endpoint.schema_name(schema);
        call.app
            .engine
            .schemas
            .validate(&name, &mut call.body)
            .map_err(|invalid| ApiError::invalid(&invalid, &call.app.engine.root_url))?;
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

fn asking(app: &App, head: &Head) -> Asking {
    let text = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    let host = head
        .headers
        .get(HOST)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("");
    let (name, port) = split_host(host);
    let forwarded_port = text("x-forwarded-port").and_then(|port| port.trim().parse().ok());
    let forwarded_tls = text("x-forwarded-proto").is_some_and(|proto| proto.trim() == "https");
    let usual_port = if head.is_tls { 443 } else { 80 };
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
            .unwrap_or(usual_port),
        authorization: authorization(&head.headers),
        source_ip: sender::address(app, head).to_string(),
        content_type: content_type(&head.headers),
        body: Bytes::new(),
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
pub(super) fn split_host(host: &str) -> (&str, Option<u16>) {
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

fn payload_for_errors(call: &Call, shown: Payload) -> Value {
    let omitted = || Value::String("(OMITTED)".to_owned());
    if call.asking.body.len() > MAX_PAYLOAD_IN_ERROR {
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

/// Gives an internal error its id, and our log what lies behind it.
fn tell_internal(app: &App, name: &str, error: &mut ApiError) {
    let Some(cause) = error.cause.take() else {
        return;
    };
    let incident = app.engine.random.slugid();
    let chain = with_causes(&*cause);
    tracing::error!(incident.id = %incident, api.method = name, "{name} failed: {chain}");
    *error = ApiError::internal(&incident);
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
