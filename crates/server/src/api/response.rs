//! Converts a reply or an error to HTTP.

use bytes::Bytes;
use domain::time::Timestamp;
use http::header::{ALLOW, CONTENT_TYPE, HeaderName, LOCATION, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderMap, HeaderValue, StatusCode};
use serde_json::Value;

use super::body::Body;
use super::body_chunk::BodyChunk;
use super::endpoint::{Endpoint, Verb};
use super::error::{ApiError, Code};
use super::reply::{Redirect, Reply, StreamReply};
use crate::app::App;

pub type Response = http::Response<Body>;

/// Marks a reply that pages of other sites may not read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Private;

/// Clients that fetch artifacts use this header to distinguish the kinds of replies.
const ADVICE: HeaderName = HeaderName::from_static("fleetwright-advice");
const STORAGE_TYPE: HeaderName = HeaderName::from_static("x-taskcluster-artifact-storage-type");

pub(super) fn reply_with(
    app: &App,
    endpoint: &Endpoint,
    reply: Reply,
    parameters: &[(&'static str, String)],
    payload: Value,
    now: Timestamp,
) -> Response {
    let (bytes, if_unheard) = match reply {
        Reply::Empty => return with_status(StatusCode::NO_CONTENT, Bytes::new()),
        Reply::Json(bytes) => (bytes, None),
        Reply::MustBeHeard(bytes, if_unheard) => (bytes, Some(if_unheard)),
        Reply::Redirect(elsewhere) => return redirect(elsewhere),
        Reply::NeverMade(json) => return never_made(json),
        Reply::HeadersOnly(status, headers) => return headers_only(status, headers),
        Reply::Stream(streamed) => return stream(streamed),
    };
    if app.config.server.check_responses
        && let Some(problem) = wrong_reply(app, endpoint, &bytes)
    {
        let incident = app.engine.random.slugid();
        let name = endpoint.name;
        tracing::error!(
            incident.id = %incident,
            "{name} sent an invalid reply, incident {incident}: {problem}"
        );
        let error = ApiError::internal(&incident);
        return error_reply(&error, endpoint.name, parameters, payload, now);
    }
    let mut response = json_response(StatusCode::OK, Bytes::new());
    *response.body_mut() = Body::Whole(BodyChunk::new(bytes, if_unheard));
    response
}

fn redirect(elsewhere: Redirect) -> Response {
    let mut response = json_response(StatusCode::SEE_OTHER, elsewhere.json);
    let headers = response.headers_mut();
    // The location was a URL when it was stored. A value that is not a valid header cannot be sent.
    if let Ok(location) = HeaderValue::from_str(&elsewhere.location) {
        headers.insert(LOCATION, location);
    }
    let storage_type = HeaderValue::from_static(elsewhere.storage_type);
    headers.insert(STORAGE_TYPE, storage_type);
    response
}

fn never_made(json: Bytes) -> Response {
    let mut response = json_response(StatusCode::FAILED_DEPENDENCY, json);
    let storage_type = HeaderValue::from_static("error");
    response.headers_mut().insert(STORAGE_TYPE, storage_type);
    response
}

fn headers_only(status: StatusCode, headers: HeaderMap) -> Response {
    let mut response = with_status(status, Bytes::new());
    *response.headers_mut() = headers;
    response
}

fn stream(streamed: StreamReply) -> Response {
    let mut response = http::Response::new(Body::stream(streamed.bytes, streamed.length));
    *response.status_mut() = streamed.status;
    *response.headers_mut() = streamed.headers;
    response
}

fn wrong_reply(app: &App, endpoint: &Endpoint, bytes: &[u8]) -> Option<String> {
    let name = endpoint.schema_name(endpoint.output?);
    let reply = serde_json::from_slice(bytes).ok()?;
    app.engine
        .schemas
        .check(&name, &reply)
        .err()
        .map(|invalid| invalid.message(&app.engine.root_url))
}

pub(super) fn error_reply(
    error: &ApiError,
    name: &str,
    parameters: &[(&'static str, String)],
    payload: Value,
    now: Timestamp,
) -> Response {
    let body = error.body(name, parameters, payload, now);
    let text = serde_json::to_vec_pretty(&body).unwrap_or_default();
    let mut response = json_response(error.code.status(), text.into());
    if let Some(seconds) = error.code.retry_after_seconds() {
        let headers = response.headers_mut();
        headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    // The body has exactly Taskcluster's members.
    let advice = error.advice(parameters);
    if let Some(Ok(advice)) = advice.map(|advice| HeaderValue::from_str(&advice)) {
        response.headers_mut().insert(ADVICE, advice);
    }
    if error.code == Code::AuthenticationFailed {
        response
            .headers_mut()
            .insert(WWW_AUTHENTICATE, HeaderValue::from_static("hawk"));
    }
    response
}

pub(super) fn options(verbs: &[Verb]) -> Response {
    if verbs.is_empty() {
        return not_found();
    }
    let mut allowed: Vec<String> = verbs
        .iter()
        .map(|verb| verb.as_str().to_uppercase())
        .collect();
    if verbs.contains(&Verb::Get) {
        allowed.push("HEAD".to_owned());
    }
    let mut response = with_status(StatusCode::OK, Bytes::new());
    if let Ok(value) = HeaderValue::from_str(&allowed.join(",")) {
        response.headers_mut().insert(ALLOW, value);
    }
    response
}

pub fn json_response(status: StatusCode, body: Bytes) -> Response {
    let mut response = with_status(status, body);
    let json = HeaderValue::from_static("application/json; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, json);
    response
}

pub fn with_status(status: StatusCode, body: Bytes) -> Response {
    let mut response = http::Response::new(Body::from(body));
    *response.status_mut() = status;
    response
}

/// The reply for an unknown path. As upstream, it does not have the format of API errors.
pub fn not_found() -> Response {
    json_response(
        StatusCode::NOT_FOUND,
        Bytes::from_static(b"{\"error\":\"Not found\"}"),
    )
}
