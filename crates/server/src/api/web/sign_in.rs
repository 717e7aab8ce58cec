//! Sign-in and sign-out: by client id and access token, or by a link that works once.

use access::Secret;
use domain::session::{MAX_SESSION_MS, SessionKind};
use engine::access::{SessionError, SignIn, end_session, find_session, open_link, open_session};
use http::{Method, StatusCode};
use page::Fields;

use super::calls::{Browser, Why};
use super::cookie;
use super::form::{self, is_from_here};
use super::openid;
use super::reply::{html, pairs, see_other, set_cookie};
use super::sign_in_page::{local, page_with, refused, too_often};
use crate::api::read_body::RequestBody;
use crate::api::request_head::RequestHead;
use crate::api::response::Response;
use crate::authentication::{AuthenticationError, given, stored};

/// Asks a person to sign in, who then sees the page of this request.
pub(super) async fn ask(browser: &Browser, head: &RequestHead, why: Why) -> Response {
    let text = match why {
        Why::Needed => None,
        Why::Ended => Some("Your session has ended. Sign in again."),
        Why::Away(problem) => {
            tracing::warn!("cannot look up a session: {problem}");
            return html(StatusCode::SERVICE_UNAVAILABLE, page::away());
        }
    };
    let to = head.uri.path_and_query().map_or("/", |it| it.as_str());
    let mut response = html(
        StatusCode::UNAUTHORIZED,
        page_with(browser, text, local(to)),
    );
    if browser.secret.is_some() {
        forget(browser, &mut response);
    }
    response
}

pub(super) async fn answer(
    browser: &Browser,
    head: &RequestHead,
    body: impl RequestBody,
) -> Response {
    if head.method != Method::POST {
        return show(browser, head).await;
    }
    if !is_from_here(browser, head) {
        return refused(browser, "This form was sent by another site.");
    }
    let form = match form::read(browser, head, body).await {
        Ok(form) => form,
        Err(response) => return response,
    };
    if head.uri.path() == "/sign-out" {
        return sign_out(browser, &form).await;
    }
    let app = &browser.local.app;
    let now = app.engine.clock.now();
    if app.open_calls.take(browser.origin.address, now).is_err() {
        return too_often(browser);
    }
    let opened = match form.text("link") {
        "" => by_credentials(browser, &form).await,
        link => by_link(browser, &Secret::new(link)).await,
    };
    match opened {
        Ok(secret) => {
            let mut response = see_other(local(form.text("to")));
            let name = cookie::name(&browser.origin.host, browser.origin.is_encrypted);
            let cookie = cookie::set(&name, &secret, browser.origin.is_encrypted);
            set_cookie(&mut response, &cookie);
            response
        }
        Err(response) => response,
    }
}

/// The form, or the question whether to use a link: programs that only look at a link do not use
/// it up.
async fn show(browser: &Browser, head: &RequestHead) -> Response {
    let query = pairs(head.uri.query().unwrap_or_default()).unwrap_or_default();
    let value = |name: &str| {
        let found = query.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str()).to_owned()
    };
    let link = value("link");
    if link.is_empty() {
        return html(
            StatusCode::OK,
            page_with(browser, None, local(&value("to"))),
        );
    }
    let app = &browser.local.app;
    let now = app.engine.clock.now();
    match find_session(&app.engine, &Secret::new(&*link), SessionKind::Link, now).await {
        Ok(found) => html(
            StatusCode::OK,
            page::confirm_link(&found.client_id, &link, local(&value("to"))),
        ),
        Err(SessionError::Store(problem)) => {
            tracing::warn!("cannot look up a link: {problem}");
            html(StatusCode::SERVICE_UNAVAILABLE, page::away())
        }
        Err(_) => refused(browser, USED),
    }
}

const USED: &str = "This link was used, or is older than ten minutes. Make a new one with \
    `fleetwright open`.";

const NO_CERTIFICATE: &str = "The certificate is not one of temporary credentials.";

async fn by_link(browser: &Browser, link: &Secret) -> Result<Secret, Response> {
    let app = &browser.local.app;
    let now = app.engine.clock.now();
    let sender = (
        browser.origin.address.to_string(),
        browser.origin.tags.request_id.clone(),
    );
    let opened = open_link(&app.engine, link, browser.name.clone(), sender, now).await;
    opened.map_err(|problem| match problem {
        SessionError::Store(problem) => {
            tracing::warn!("cannot open a link: {problem}");
            html(StatusCode::SERVICE_UNAVAILABLE, page::away())
        }
        SessionError::NotFound | SessionError::Sealed(_) => refused(browser, USED),
    })
}

async fn by_credentials(browser: &Browser, form: &Fields) -> Result<Secret, Response> {
    let texts = ["clientId", "accessToken", "certificate"].map(|name| form.text(name));
    let credentials =
        given(texts[0], texts[1], texts[2]).map_err(|_| refused(browser, NO_CERTIFICATE))?;
    let app = &browser.local.app;
    let now = app.engine.clock.now();
    let caller = browser.origin.caller(app, &credentials, now).await;
    let client_id = match caller {
        Ok(caller) => caller.client_id,
        Err(AuthenticationError::Refused(_)) => None,
        Err(AuthenticationError::NotLookedUp) => return Err(too_often(browser)),
        Err(problem) => {
            tracing::warn!("cannot check credentials: {problem}");
            return Err(html(StatusCode::SERVICE_UNAVAILABLE, page::away()));
        }
    };
    let Some(client_id) = client_id else {
        // One answer for all reasons.
        return Err(refused(browser, "These credentials are not valid."));
    };
    let sign_in = SignIn {
        client_id,
        credentials: stored(&credentials),
        longest_ms: MAX_SESSION_MS,
        browser: browser.name.clone(),
        by: "access token",
        source_ip: browser.origin.address.to_string(),
        request_id: browser.origin.tags.request_id.clone(),
    };
    let opened = open_session(&app.engine, SessionKind::Browser, sign_in, now).await;
    opened.map_err(|problem| {
        tracing::warn!("cannot open a session: {problem}");
        html(StatusCode::SERVICE_UNAVAILABLE, page::away())
    })
}

async fn sign_out(browser: &Browser, form: &Fields) -> Response {
    let mut response = see_other("/sign-in");
    if let Ok(person) = browser.person().await
        && let Some(session) = person.session()
    {
        if !person.made(form.text("token")) {
            return refused(browser, "This form is not from a page of your session.");
        }
        let app = &browser.local.app;
        let ended = end_session(&app.engine, session, person.now()).await;
        if let Err(problem) = ended {
            tracing::warn!("cannot end a session: {problem}");
            return html(StatusCode::SERVICE_UNAVAILABLE, page::away());
        }
        if let Some(named) = person.named()
            && let Some(page) = openid::signed_out(browser, named).await
        {
            response = page;
        }
    }
    forget(browser, &mut response);
    response
}

fn forget(browser: &Browser, response: &mut Response) {
    let name = cookie::name(&browser.origin.host, browser.origin.is_encrypted);
    let cookie = cookie::remove(&name, browser.origin.is_encrypted);
    set_cookie(response, &cookie);
}
