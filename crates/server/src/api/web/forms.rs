//! Forms: what a person does, as calls of the API.

use bytes::Bytes;
use http::StatusCode;
use http::header::CONTENT_TYPE;

use super::calls::Browser;
use super::{html, pairs, see_other, sign_in, visit};
use crate::api::error::ApiError;
use crate::api::raw_body::RawBody;
use crate::api::read_body::RequestBody;
use crate::api::request::text_header;
use crate::api::request_head::RequestHead;
use crate::api::response::{Response, with_status};

/// A set of rules is the largest text that a person sends.
const MAX_FORM_BYTES: u64 = 4 * 1024 * 1024;
const FORM: &str = "application/x-www-form-urlencoded";

/// The fields of a form.
pub(super) struct Form(Vec<(String, String)>);

impl Form {
    /// A field; empty if it is missing.
    pub(super) fn text(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }
}

/// Reads a form. An error is the response to it.
pub(super) async fn read(
    browser: &Browser,
    head: &RequestHead,
    body: impl RequestBody,
) -> Result<Form, Response> {
    let given = text_header(&head.headers, CONTENT_TYPE).unwrap_or_default();
    if given.split(';').next() != Some(FORM) {
        return Err(with_status(
            StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Bytes::new(),
        ));
    }
    let app = &browser.web.app;
    let memory = app.body_budget.open(browser.origin.address);
    let raw = RawBody::new(body, None, &app.config.server, memory);
    let read = async { raw.limited(MAX_FORM_BYTES)?.whole().await };
    let text = read.await.map_err(|problem| wrong(&problem))?;
    let fields = std::str::from_utf8(&text).ok().and_then(pairs);
    fields
        .map(Form)
        .ok_or_else(|| with_status(StatusCode::BAD_REQUEST, Bytes::new()))
}

fn wrong(problem: &ApiError) -> Response {
    with_status(problem.code.status(), Bytes::from(problem.message.clone()))
}

/// Does what the form asks for, and shows the page from which it came, or why it was refused.
pub(super) async fn answer(
    browser: &Browser,
    head: &RequestHead,
    body: impl RequestBody,
) -> Response {
    if !sign_in::is_from_here(browser, head) {
        return with_status(StatusCode::FORBIDDEN, Bytes::new());
    }
    let form = match read(browser, head, body).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    let person = match browser.person().await {
        Ok(person) => person,
        Err(why) => return sign_in::ask(browser, head, why).await,
    };
    if !person.made(form.text("token")) {
        let text = "This form is not from a page of your session. Load the page again.";
        return html(
            StatusCode::FORBIDDEN,
            page::refused(person.shown().as_ref(), text),
        );
    }
    let path = head.uri.path();
    let Some(visit) = visit(&person, path, head.uri.query().unwrap_or_default()) else {
        return with_status(StatusCode::NOT_FOUND, Bytes::new());
    };
    match page::act(&visit, &form.0).await {
        page::Done::To(path) => see_other(&path),
        page::Done::Page(status, text) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            html(status, text)
        }
    }
}
