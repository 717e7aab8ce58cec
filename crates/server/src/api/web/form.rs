//! Forms: read within limits, and only from pages of this site.

use bytes::Bytes;
use http::StatusCode;
use http::header::{CONTENT_TYPE, ORIGIN};
use page::Fields;

use super::calls::Browser;
use super::reply::pairs;
use crate::api::error::ApiError;
use crate::api::raw_body::RawBody;
use crate::api::read_body::RequestBody;
use crate::api::request::text_header;
use crate::api::request_head::RequestHead;
use crate::api::response::{Response, with_status};

/// A set of rules is the largest text that a person sends.
const MAX_FORM_BYTES: u64 = 4 * 1024 * 1024;
const FORM: &str = "application/x-www-form-urlencoded";

/// Reads a form. An error is the response to it.
pub(super) async fn read(
    browser: &Browser,
    head: &RequestHead,
    body: impl RequestBody,
) -> Result<Fields, Response> {
    let given = text_header(&head.headers, CONTENT_TYPE).unwrap_or_default();
    if given.split(';').next() != Some(FORM) {
        return Err(with_status(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Bytes::new(),
        ));
    }
    let app = &browser.local.app;
    let memory = app.body_budget.open(browser.origin.address);
    let raw = RawBody::new(body, None, &app.config.server, memory);
    let read = async { raw.limited(MAX_FORM_BYTES)?.whole().await };
    let text = read.await.map_err(|problem| wrong(&problem))?;
    let fields = std::str::from_utf8(&text).ok().and_then(pairs);
    fields
        .map(Fields)
        .ok_or_else(|| with_status(StatusCode::BAD_REQUEST, Bytes::new()))
}

fn wrong(problem: &ApiError) -> Response {
    with_status(problem.code.status(), Bytes::from(problem.message.clone()))
}

/// Whether a form was sent by a page of this site. Browsers say so in one of two headers.
pub(super) fn is_from_here(browser: &Browser, head: &RequestHead) -> bool {
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    if let Some(site) = header("sec-fetch-site") {
        return site == "same-origin" || site == "none";
    }
    match text_header(&head.headers, ORIGIN) {
        None => true,
        Some(origin) => {
            let scheme = match browser.origin.is_encrypted {
                true => "https",
                false => "http",
            };
            let host = &browser.origin.host;
            let (with, without) = (
                format!("{scheme}://{}:{}", host.name, host.port),
                format!("{scheme}://{}", host.name),
            );
            let usual = if browser.origin.is_encrypted { 443 } else { 80 };
            origin == with || host.port == usual && origin == without
        }
    }
}
