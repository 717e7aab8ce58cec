//! Everything outside `/api/`: health, metrics, references, schemas, and where to go from here.

use std::net::IpAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderName};
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::documents::Documents;
use super::head::Head;
use super::request::split_host;
use super::response::{Private, Response, json_response, not_found, with_status};
use super::worker_manager::monitoring::version_document;
use crate::app::App;

/// Headers that proxies add to requests that they pass on, beside `X-Forwarded-…`.
const FORWARDED: [&str; 6] = [
    "forwarded",
    "via",
    "x-real-ip",
    "x-client-ip",
    "cf-connecting-ip",
    "true-client-ip",
];
const PLAIN: &str = "text/plain; charset=utf-8";

pub async fn answer(app: &Arc<App>, documents: &Documents, head: &Head) -> Response {
    if head.method != Method::GET && head.method != Method::HEAD {
        return not_found();
    }
    let path = head.uri.path();
    if let Some(document) = documents.get(app, path) {
        return json_response(StatusCode::OK, document);
    }
    match path {
        "/" => small(&welcome(&app.engine.root_url)),
        "/live" => text(StatusCode::OK, "alive\n"),
        "/ready" => ready(app).await,
        "/metrics" => metrics(app, head),
        "/__version__" => small(&version_document()),
        "/__heartbeat__" | "/__lbheartbeat__" => small(&json!({})),
        "/robots.txt" => text(StatusCode::OK, "User-Agent: *\nDisallow: /\n"),
        _ => not_found(),
    }
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

/// A process is ready if it can do its work, for which the database must take writes. What is wrong with
/// the clock is said, and does not keep it from serving.
async fn ready(app: &App) -> Response {
    let health = app
        .vitals
        .check(&app.engine.store, &*app.engine.clock)
        .await;
    if health.database.is_err() {
        // Why, the log says: anybody may ask here.
        let problem = "the database cannot be written\n";
        return text(StatusCode::SERVICE_UNAVAILABLE, problem);
    }
    let warnings = health.clock.iter().map(|it| format!("warning: {it}\n"));
    let body: String = std::iter::once("ready\n".to_owned())
        .chain(warnings)
        .collect();
    with_type(with_status(StatusCode::OK, body.into()), PLAIN)
}

/// Metrics name pools, so only programs on this machine may read them.
///
/// A request that a proxy has passed on comes from elsewhere, and a browser here may ask in the name of a
/// site that has given itself the address of this machine: its `Host` is the site's.
fn metrics(app: &App, head: &Head) -> Response {
    let is_forwarded = |name: &HeaderName| {
        let name = name.as_str();
        FORWARDED.contains(&name) || name.starts_with("x-forwarded-")
    };
    let is_local = head.peer.ip().to_canonical().is_loopback() && names_this_machine(head);
    if !is_local || head.headers.keys().any(is_forwarded) {
        return not_found();
    }
    let body = Bytes::from(app.telemetry.render());
    let response = with_status(StatusCode::OK, body);
    let mut response = with_type(response, "text/plain; version=0.0.4; charset=utf-8");
    response.extensions_mut().insert(Private);
    response
}

/// The one `Host` is `localhost` or an address of this machine's own network.
fn names_this_machine(head: &Head) -> bool {
    let mut hosts = head.headers.get_all(HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let (name, _) = split_host(host.to_str().unwrap_or_default());
    let address = name.trim_start_matches('[').trim_end_matches(']');
    let is_loopback = |address: IpAddr| address.to_canonical().is_loopback();
    name.eq_ignore_ascii_case("localhost") || address.parse().is_ok_and(is_loopback)
}

fn text(status: StatusCode, body: &'static str) -> Response {
    with_type(
        with_status(status, Bytes::from_static(body.as_bytes())),
        PLAIN,
    )
}

fn with_type(mut response: Response, content_type: &'static str) -> Response {
    response
        .headers_mut()
        .insert(CONTENT_TYPE, HeaderValue::from_static(content_type));
    response
}
