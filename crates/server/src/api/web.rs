//! The pages for people: who looks, what they may see and do, and what changes meanwhile.
//!
//! The crate `page` makes the pages. It knows the server only by its API, which it calls within this
//! process with the credentials of the person, so a page can show and do nothing that the person
//! may not.

mod calls;
mod cookie;
mod forms;
mod live;
mod sign_in;

use std::sync::Arc;

use bytes::Bytes;
use http::header::{
    ACCEPT, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HeaderName, LOCATION,
    REFERRER_POLICY, SET_COOKIE,
};
use http::{HeaderValue, Method, StatusCode};
use page::{Problem, View, Visit, assets};

pub(super) use self::calls::stored;
use self::calls::{Browser, PersonApi};
use self::live::LivePages;
use self::sign_in::Why;
use super::query::form_decoded;
use super::read_body::RequestBody;
use super::request::text_header;
use super::request_head::RequestHead;
use super::response::{Private, Response, with_status};
use super::route::Router;
use crate::app::App;

/// Scripts and styles come from this server only, and no other site shows these pages in its own.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";
const HTML: &str = "text/html; charset=utf-8";
/// An asset has another address in each release.
const FOR_EVER: &str = "public, max-age=31536000, immutable";
/// An address has at most this many parameters.
const MAX_PARAMETERS: usize = 50;

/// The pages of this process, and who has them open.
pub(super) struct Web {
    pub(super) app: Arc<App>,
    pub(super) router: Arc<Router>,
    live: LivePages,
}

impl Web {
    pub(super) fn new(app: Arc<App>, router: Arc<Router>) -> Arc<Self> {
        let live = LivePages::default();
        Arc::new(Self { app, router, live })
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

pub(super) async fn answer(web: &Arc<Web>, head: RequestHead, body: impl RequestBody) -> Response {
    let path = head.uri.path().to_owned();
    if let Some(asset) = assets::find(&path) {
        return file(asset);
    }
    let browser = Browser::new(Arc::clone(web), &head);
    let is_read = head.method == Method::GET || head.method == Method::HEAD;
    let response = match (path.as_str(), is_read) {
        ("/live-page", true) => live::listen(&browser, &head).await,
        ("/sign-in", _) | ("/sign-out", false) => sign_in::answer(&browser, &head, body).await,
        (_, true) => show(&browser, &head).await,
        (_, false) if path.starts_with("/do/") => forms::answer(&browser, &head, body).await,
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
    let Some(visit) = visit(
        &person,
        head.uri.path(),
        head.uri.query().unwrap_or_default(),
    ) else {
        return problem(&person, &Problem::NotFound);
    };
    match page::show(&visit).await {
        Ok(view) => html(StatusCode::OK, page::document(&visit, &view)),
        Err(Problem::Refused(refusal)) if refusal.status == 401 && person.is_anonymous() => {
            sign_in::ask(browser, head, Why::Needed).await
        }
        Err(found) => problem(&person, &found),
    }
}

/// The visit of an address; `None` if its escapes are wrong.
fn visit<'a>(person: &'a PersonApi, path: &str, query: &str) -> Option<Visit<'a>> {
    let decode = |text: &str| {
        let decoded = percent_encoding::percent_decode_str(text).decode_utf8();
        decoded.ok().map(String::from)
    };
    let segments = path.split('/').filter(|segment| !segment.is_empty());
    Some(Visit {
        api: person,
        path: segments.map(decode).collect::<Option<_>>()?,
        query: pairs(query)?,
        now: person.now(),
        person: person.shown(),
        root_url: person.root_url(),
    })
}

/// The pairs of a query or a form.
fn pairs(text: &str) -> Option<Vec<(String, String)>> {
    let pairs = text.split('&').filter(|pair| !pair.is_empty());
    let decoded = pairs.take(MAX_PARAMETERS).map(|pair| {
        let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
        Some((form_decoded(name)?, form_decoded(value)?))
    });
    decoded.collect()
}

fn problem(person: &PersonApi, problem: &Problem) -> Response {
    let status = match problem {
        Problem::NotFound => StatusCode::NOT_FOUND,
        Problem::Wrong(_) => StatusCode::BAD_REQUEST,
        Problem::Refused(refusal) => {
            StatusCode::from_u16(refusal.status).unwrap_or(StatusCode::BAD_GATEWAY)
        }
    };
    html(status, page::problem(person.shown().as_ref(), problem))
}

fn html(status: StatusCode, text: String) -> Response {
    let mut response = with_status(status, Bytes::from(text));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(HTML));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// Leads the browser to another page of this site.
fn see_other(path: &str) -> Response {
    let mut response = with_status(StatusCode::SEE_OTHER, Bytes::new());
    if let Ok(path) = HeaderValue::from_str(path) {
        response.headers_mut().insert(LOCATION, path);
    }
    response
}

fn set_cookie(response: &mut Response, cookie: &str) {
    if let Ok(cookie) = HeaderValue::from_str(cookie) {
        response.headers_mut().append(SET_COOKIE, cookie);
    }
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

/// The sections of a view, as an open page gets them.
fn parts(view: &View) -> Vec<(&'static str, Bytes)> {
    let sections = view.sections.iter();
    sections
        .map(|section| {
            (
                section.id,
                Bytes::copy_from_slice(section.content.0.as_bytes()),
            )
        })
        .collect()
}
