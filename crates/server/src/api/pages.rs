//! Everything outside `/api/`: health, metrics, references, schemas, and where to go from here.

use std::sync::Arc;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, Method, StatusCode};
use serde_json::{Value, json};

use super::request::Head;
use super::response::{Response, json_response, not_found, with_status};
use super::worker_manager::monitoring::version_document;
use super::{openapi, references};
use crate::app::App;

const PLAIN: &str = "text/plain; charset=utf-8";

pub async fn answer(app: &Arc<App>, head: &Head) -> Response {
    if head.method != Method::GET && head.method != Method::HEAD {
        return not_found();
    }
    let path = head.uri.path();
    if let Some(path) = path.strip_prefix("/references/") {
        return document(references::document(path, &app.root_url));
    }
    if let Some(name) = path.strip_prefix("/schemas/") {
        return document(app.schemas.served(name, &app.root_url));
    }
    match path {
        "/" => document(Some(welcome(&app.root_url))),
        "/live" => text(StatusCode::OK, "alive\n"),
        "/ready" => ready(app).await,
        "/metrics" => metrics(app, head),
        "/openapi.json" => document(Some(openapi::document(&app.root_url))),
        "/__version__" => document(Some(version_document())),
        "/__heartbeat__" | "/__lbheartbeat__" => document(Some(json!({}))),
        "/robots.txt" => text(StatusCode::OK, "User-Agent: *\nDisallow: /\n"),
        _ => not_found(),
    }
}

fn document(found: Option<Value>) -> Response {
    match found.map(|document| serde_json::to_vec_pretty(&document)) {
        Some(Ok(text)) => json_response(StatusCode::OK, text.into()),
        Some(Err(_)) | None => not_found(),
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

/// Ready is who can answer requests: the database must be there.
async fn ready(app: &App) -> Response {
    match app.store.ping().await {
        Ok(()) => text(StatusCode::OK, "ready\n"),
        Err(problem) => {
            tracing::warn!(error = %problem, "not ready: {problem}");
            text(
                StatusCode::SERVICE_UNAVAILABLE,
                "the database cannot be reached\n",
            )
        }
    }
}

/// Metrics name pools, so only this machine may read them; a request that a proxy has passed on
/// comes from elsewhere.
fn metrics(app: &App, head: &Head) -> Response {
    let forwarded = head.headers.contains_key("x-forwarded-for");
    if forwarded || !head.peer.ip().to_canonical().is_loopback() {
        return not_found();
    }
    let body = Bytes::from(app.telemetry.render());
    with_type(
        with_status(StatusCode::OK, body),
        "text/plain; version=0.0.4; charset=utf-8",
    )
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
