//! Everything outside `/api/`: health, metrics, references, schemas and the start page.

use std::net::IpAddr;
use std::sync::Arc;

use access::Secret;
use bytes::Bytes;
use http::header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderName, WWW_AUTHENTICATE};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::documents::Documents;
use super::request_head::RequestHead;
use super::response::{Private, Response, json_response, not_found, with_status};
use super::web;
use super::worker_manager::monitoring::version_document;
use crate::app::App;
use crate::hosts::split_host;

/// Headers that proxies add to forwarded requests, besides `X-Forwarded-…`.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "cf-connecting-ip",
    "true-client-ip",
];
const PLAIN: &str = "text/plain; charset=utf-8";

/// `None`: there is no such document, but perhaps a page for people.
pub async fn answer(app: &Arc<App>, documents: &Documents, head: &RequestHead) -> Option<Response> {
    if head.method != Method::GET && head.method != Method::HEAD {
        return None;
    }
    let path = head.uri.path();
    if let Some(document) = documents.get(app, path) {
        return Some(json_response(StatusCode::OK, document));
    }
    Some(match path {
        "/" if !web::is_wanted(head) => small(&welcome(&app.engine.root_url)),
        "/live" => text(StatusCode::OK, "alive\n"),
        "/ready" => ready(app).await,
        "/metrics" => metrics(app, head),
        "/__version__" => small(&version_document()),
        "/__heartbeat__" | "/__lbheartbeat__" => small(&json!({})),
        "/robots.txt" => text(StatusCode::OK, "User-Agent: *\nDisallow: /\n"),
        _ => return None,
    })
}

fn small(document: &Value) -> Response {
    match serde_json::to_vec_pretty(document) {
        Ok(text) => json_response(StatusCode::OK, text.into()),
        Err(_) => not_found(),
    }
}

fn welcome(root_url: &str) -> Value {
    json!({
        "name": "Fleetwright",
        "version": version_document()["version"],
        "openapi": format!("{root_url}/openapi.json"),
        "references": format!("{root_url}/references/manifest.json"),
        "ready": format!("{root_url}/ready"),
    })
}

/// A process is ready if the database accepts writes, and its time is that of the database.
/// Other problems of the clock are reported only.
async fn ready(app: &App) -> Response {
    let health = app
        .health
        .check(&app.engine.store, &*app.engine.clock)
        .await;
    if health.database.is_err() {
        // The log has the reason: this page is open to everybody.
        let problem = "the database cannot be written\n";
        return text(StatusCode::SERVICE_UNAVAILABLE, problem);
    }
    if let Some(doubt) = health.doubt {
        return text(StatusCode::SERVICE_UNAVAILABLE, format!("{doubt}\n"));
    }
    let warnings = health.warnings.iter().map(|it| format!("warning: {it}\n"));
    let body: String = std::iter::once("ready\n".to_owned())
        .chain(warnings)
        .collect();
    text(StatusCode::OK, body)
}

/// Answers all requests at `metrics.listen`, or those with the token.
pub fn answer_metrics(app: &App, head: &RequestHead) -> Response {
    let is_read = head.method == Method::GET || head.method == Method::HEAD;
    if !is_read || head.uri.path() != "/metrics" {
        return not_found();
    }
    match &app.secrets.metrics_token {
        Some(token) => metrics_by_token(app, head, token),
        None => all_metrics(app),
    }
}

fn metrics_by_token(app: &App, head: &RequestHead, token: &Secret) -> Response {
    let mut given = head.headers.get_all(AUTHORIZATION).iter();
    let given = match (given.next(), given.next()) {
        (Some(value), None) => value.to_str().ok(),
        _ => None,
    };
    let given = given.and_then(|value| value.split_once(' '));
    let is_token = given.is_some_and(|(scheme, given)| {
        scheme.eq_ignore_ascii_case("bearer") && Secret::new(given.trim()) == *token
    });
    if is_token {
        return all_metrics(app);
    }
    let problem = "give the token of `metrics.token_file`: Authorization: Bearer <token>\n";
    let mut refused = text(StatusCode::UNAUTHORIZED, problem);
    let scheme = HeaderValue::from_static("Bearer");
    refused.headers_mut().insert(WWW_AUTHENTICATE, scheme);
    refused.extensions_mut().insert(Private);
    refused
}

/// Metrics contain names of pools, so only programs on this machine may read them, unless they
/// have an address or a token of their own.
///
/// A forwarded request comes from elsewhere. A browser on this machine may send a request for a
/// site whose name points at this machine: then its `Host` is the site's name.
fn metrics(app: &App, head: &RequestHead) -> Response {
    let is_forwarded = |name: &HeaderName| {
        let name = name.as_str();
        FORWARDED.contains(&name) || name.starts_with("x-forwarded-")
    };
    let is_local = head.sender.peer.ip().to_canonical().is_loopback() && names_this_machine(head);
    let has_address = app.config.metrics.listen.is_some();
    match &app.secrets.metrics_token {
        _ if has_address => not_found(),
        Some(token) => metrics_by_token(app, head, token),
        None if !is_local || head.headers.keys().any(is_forwarded) => not_found(),
        None => all_metrics(app),
    }
}

fn all_metrics(app: &App) -> Response {
    let body = Bytes::from(app.telemetry.render());
    let response = with_status(StatusCode::OK, body);
    let mut response = with_type(response, "text/plain; version=0.0.4; charset=utf-8");
    response.extensions_mut().insert(Private);
    response
}

/// The one `Host` is `localhost` or a loopback address.
fn names_this_machine(head: &RequestHead) -> bool {
    let mut hosts = head.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let (name, _) = split_host(host.to_str().unwrap_or_default());
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(is_loopback)
}

fn text(status: StatusCode, body: impl Into<Bytes>) -> Response {
    with_type(with_status(status, body.into()), PLAIN)
}

fn with_type(mut response: Response, content_type: &'static str) -> Response {
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
