//! Actions of people: a form becomes calls of the API.

use bytes::Bytes;
use http::StatusCode;

use super::calls::Browser;
use super::form::{self, is_from_here};
use super::reply::{html, see_other};
use super::sign_in;
use crate::api::read_body::RequestBody;
use crate::api::request_head::RequestHead;
use crate::api::response::{Response, with_status};

/// Does what the form asks for, and shows the page from which it came, or why it was refused.
pub(super) async fn answer(
    browser: &Browser,
    head: &RequestHead,
    body: impl RequestBody,
) -> Response {
    if !is_from_here(browser, head) {
        return with_status(StatusCode::FORBIDDEN, Bytes::new());
    }
    let form = match form::read(browser, head, body).await {
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
    let Some(visit) = person.visit(path, head.uri.query().unwrap_or_default()) else {
        return with_status(StatusCode::NOT_FOUND, Bytes::new());
    };
    match page::act(&visit, &form).await {
        page::Done::To(path) => see_other(&path),
        page::Done::Page(status, text) => {
            let status = StatusCode::from_u16(status).unwrap_or(StatusCode::BAD_GATEWAY);
            html(status, text)
        }
    }
}
