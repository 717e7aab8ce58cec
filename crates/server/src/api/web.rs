//! The pages for people: who looks, what they may see and do, and what changes meanwhile.
//!
//! The crate `page` makes the pages. It knows the server only by its API, which it calls within
//! this process with the credentials of the person. So a page can show and do nothing that the
//! person may not.

mod act;
mod calls;
mod cookie;
mod form;
mod live;
mod openid;
mod reply;
mod sign_in;
mod sign_in_page;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, REFERRER_POLICY,
};
use http::{HeaderValue, Method, StatusCode};
use page::{Problem, assets};

use self::calls::{Browser, LocalApi, PersonApi, Why};
use self::live::LivePages;
use self::reply::html;
use super::read_body::RequestBody;
use super::request::text_header;
use super::request_head::RequestHead;
use super::response::{Private, Response, with_status};
use super::route::Router;
use crate::app::App;

/// Scripts and styles come from this server only, and no other site shows these pages in its own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
/// An asset has another address in each release.
const FOR_EVER: &str = "public, max-age=31536000, immutable";

/// The pages of this process, and who has them open.
pub(super) struct Web {
    local: Arc<LocalApi>,
    live: Arc<LivePages>,
}

impl Web {
    pub(super) fn new(app: Arc<App>, router: Arc<Router>) -> Self {
        Self {
            local: Arc::new(LocalApi { app, router }),
            live: Arc::default(),
        }
    }

    pub(super) fn router(&self) -> &Router {
        &self.local.router
    }
}

/// Whether a browser wants a page, and not a program a document.
pub(super) fn is_wanted(head: &RequestHead) -> bool {
    let accepts = text_header(&head.headers, ACCEPT).unwrap_or_default();
    let path = head.uri.path();
    accepts.contains("text/html")
        || ["/assets/", "/live-page", "/sign-in", "/sign-out", "/do/"]
            .iter()
            .any(|start| path.starts_with(start))
}

pub(super) async fn answer(web: &Web, head: RequestHead, body: impl RequestBody) -> Response {
    let path = head.uri.path().to_owned();
    if let Some(asset) = assets::find(&path) {
        return file(asset);
    }
    let browser = Browser::new(Arc::clone(&web.local), &head);
    let is_read = head.method == Method::GET || head.method == Method::HEAD;
    let response = match (path.as_str(), is_read) {
        ("/live-page", true) => live::listen(&web.live, &browser, &head).await,
        (openid::BEGIN, true) => openid::begin(&browser, &head).await,
        (openid::RETURN, true) => openid::finish(&browser, &head).await,
        ("/sign-in", _) | ("/sign-out", false) => sign_in::answer(&browser, &head, body).await,
        (_, true) => show(&browser, &head).await,
        (_, false) if path.starts_with("/do/") => act::answer(&browser, &head, body).await,
        _ => with_status(StatusCode::METHOD_NOT_ALLOWED, Bytes::new()),
    };
    guarded(response)
}

/// Answers with the page of this address.
async fn show(browser: &Browser, head: &RequestHead) -> Response {
    let person = match browser.person().await {
        Ok(person) => person,
        Err(reason) => return sign_in::ask(browser, head, reason).await,
    };
    let without_rights = person.named().filter(|_| person.is_without_rights());
    if let Some(named) = without_rights {
        let text = page::without_rights(person.shown().as_ref(), &named.scopes);
        return html(StatusCode::FORBIDDEN, text);
    }
    let Some(visit) = person.visit(head.uri.path(), head.uri.query().unwrap_or_default()) else {
        return problem(&person, &Problem::NotFound);
    };
    match page::show(&visit).await {
        Ok(view) => html(StatusCode::OK, page::document(&visit, &view)),
        Err(Problem::Refused(refusal)) if refusal.is_forbidden() && person.is_anonymous() => {
            sign_in::ask(browser, head, Why::Needed).await
        }
        Err(found) => problem(&person, &found),
    }
}

fn problem(person: &PersonApi, problem: &Problem) -> Response {
    let status = match problem {
        Problem::NotFound => StatusCode::NOT_FOUND,
        Problem::Refused(refusal) => {
            StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_GATEWAY)
        }
    };
    html(status, page::problem(person.shown().as_ref(), problem))
}

fn file(asset: &'static assets::Asset) -> Response {
    let mut response = with_status(StatusCode::OK, Bytes::from_static(asset.text.as_bytes()));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.content_type));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(FOR_EVER));
    guarded(response)
}

/// Other sites can neither read a page nor show it in one of theirs.
fn guarded(mut response: Response) -> Response {
    response.extensions_mut().insert(Private);
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (REFERRER_POLICY, "same-origin"),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}
