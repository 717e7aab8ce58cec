//! Sign-in at the provider: the browser is sent there, and comes back with a code.
//!
//! A sealed cookie ties both halves to one browser. It goes with the request that the provider's
//! page makes (`SameSite=Lax`), which the cookie of a session does not.

use access::Secret;
use domain::session::SessionKind;
use engine::access::{SignIn, open_session};
use http::StatusCode;

use super::calls::Browser;
use super::cookie;
use super::form::is_from_here;
use super::reply::{html, pairs, see_other, set_cookie};
use super::sign_in_page::{local, page_with, refused, too_often};
use crate::api::request_head::RequestHead;
use crate::api::response::Response;
use crate::authentication::{PersonHolding, stored_person};
use crate::config::Config;
use crate::hosts::Host;
use crate::openid::{OpenId, OpenIdError, Pending, SignedPerson};

/// Sends the browser to the provider.
pub(super) const BEGIN: &str = "/sign-in/openid";
/// The provider sends the browser back to this path.
pub(super) const RETURN: &str = "/sign-in/openid/return";

const NOT_BEGUN: &str = "This browser did not begin this sign-in, or began it more than ten minutes \
    ago, or began another one since. Begin again.";

/// Begins a sign-in.
pub(super) async fn begin(browser: &Browser, head: &RequestHead) -> Response {
    let app = &browser.local.app;
    let query = pairs(head.uri.query().unwrap_or_default()).unwrap_or_default();
    let to = query.iter().find(|(name, _)| name == "to");
    let to = local(to.map_or("/", |(_, to)| to.as_str()));
    let Some(openid) = &app.openid else {
        return refused(browser, "No provider for the sign-in is configured.");
    };
    // Another site cannot sign people in.
    if !is_from_here(browser, head) {
        return html(StatusCode::OK, page_with(browser, None, to));
    }
    let now = browser.now();
    if app.open_calls.take(browser.origin.address, now).is_err() {
        return too_often(browser);
    }
    let Some(base) = base_url(&app.config, &browser.origin.host) else {
        // The provider knows the addresses of the configuration only.
        return see_other(&format!("{}/sign-in", app.engine.root_url));
    };
    let random = &app.engine.random;
    let redirect_uri = format!("{base}{RETURN}");
    let pending = Pending::begin(random, redirect_uri, to, &browser.name, now);
    match openid.sign_in_url(&pending, now).await {
        Ok(url) => {
            let mut response = see_other(url.as_str());
            let sealed = pending.sealed(&app.engine.keyring, random);
            let name = cookie_name(browser);
            let cookie = cookie::set_for_return(&name, &sealed, browser.origin.is_encrypted);
            set_cookie(&mut response, &cookie);
            response
        }
        Err(problem) => failed(browser, openid, &problem),
    }
}

/// Ends a sign-in: the browser comes back from the provider.
pub(super) async fn finish(browser: &Browser, head: &RequestHead) -> Response {
    let mut response = match signed_in(browser, head).await {
        Ok((session, to)) => {
            let mut response = html(StatusCode::OK, page::go_on(local(&to)));
            let name = cookie::name(&browser.origin.host, browser.origin.is_encrypted);
            let cookie = cookie::set(&name, &session, browser.origin.is_encrypted);
            set_cookie(&mut response, &cookie);
            response
        }
        Err(response) => response,
    };
    let name = cookie_name(browser);
    let cookie = cookie::remove_for_return(&name, browser.origin.is_encrypted);
    set_cookie(&mut response, &cookie);
    response
}

/// The secret of the new session, and the page after the sign-in.
async fn signed_in(browser: &Browser, head: &RequestHead) -> Result<(Secret, String), Response> {
    let app = &browser.local.app;
    let Some(openid) = &app.openid else {
        return Err(refused(
            browser,
            "No provider for the sign-in is configured.",
        ));
    };
    let now = browser.now();
    if app.open_calls.take(browser.origin.address, now).is_err() {
        return Err(too_often(browser));
    }
    let answer = pairs(head.uri.query().unwrap_or_default()).unwrap_or_default();
    let state = answer.iter().find(|(name, _)| name == "state");
    let pending = cookie::read(&head.headers, &cookie_name(browser)).and_then(|cookie| {
        let state = state.map_or("", |(_, state)| state.as_str());
        Pending::resume(&app.engine.keyring, &cookie, state, &browser.name, now)
    });
    let pending = pending.ok_or_else(|| refused(browser, NOT_BEGUN))?;
    let finished = openid.finish(&pending, &answer, now).await;
    let SignedPerson { person, hint } =
        finished.map_err(|problem| failed(browser, openid, &problem))?;
    let holding = PersonHolding {
        issuer: openid.issuer().to_owned(),
        client_id: person.client_id.clone(),
        scopes: person.scopes,
        hint,
    };
    let sign_in = SignIn {
        client_id: person.client_id,
        credentials: stored_person(&holding),
        longest_ms: openid.session_ms(),
        browser: browser.name.clone(),
        by: "openid",
        source_ip: browser.origin.address.to_string(),
        request_id: browser.origin.tags.request_id.clone(),
    };
    // The provider took its time.
    let now = browser.now();
    let opened = open_session(&app.engine, SessionKind::Browser, sign_in, now).await;
    let session = opened.map_err(|problem| {
        tracing::warn!("cannot open a session: {problem}");
        html(StatusCode::SERVICE_UNAVAILABLE, page::away())
    })?;
    Ok((session, pending.to))
}

/// The page after a sign-out, if the provider has a sign-out of its own.
pub(super) async fn signed_out(browser: &Browser, person: &PersonHolding) -> Option<Response> {
    let app = &browser.local.app;
    let openid = app.openid.as_ref()?;
    let base = base_url(&app.config, &browser.origin.host).unwrap_or_else(|| app.config.root_url());
    let back_to = format!("{base}/sign-in");
    let url = openid.sign_out_url(person.hint.as_ref(), &back_to, browser.now());
    let url = url.await.ok()??;
    let text = page::signed_out(&openid.name(), url.as_str());
    Some(html(StatusCode::OK, text))
}

/// The URL under which the browser knows this server, of those that the provider knows.
fn base_url(config: &Config, host: &Host) -> Option<String> {
    let root_url = config.root_url();
    let aliases = config.root_url_aliases.iter();
    let aliases = aliases.map(|url| url.trim_end_matches('/').to_owned());
    let urls: Vec<(Host, String)> = std::iter::once(root_url)
        .chain(aliases)
        .filter_map(|url| Some((Host::of(&url)?, url)))
        .collect();
    // A proxy may be reached at another port than it says.
    let exact = urls.iter().find(|(known, _)| known == host);
    let found = exact.or_else(|| urls.iter().find(|(known, _)| known.name == host.name));
    found.map(|(_, url)| url.clone())
}

fn cookie_name(browser: &Browser) -> String {
    cookie::name_for_return(&browser.origin.host, browser.origin.is_encrypted)
}

/// Says why a sign-in failed, to the person and to the log.
fn failed(browser: &Browser, openid: &OpenId, problem: &OpenIdError) -> Response {
    let text = format!("{} {problem}.", openid.name());
    tracing::warn!(openid.issuer = openid.issuer(), source.ip = %browser.origin.address,
        "a sign-in failed: {text}");
    let status = match problem.is_outage() {
        true => StatusCode::SERVICE_UNAVAILABLE,
        false => StatusCode::FORBIDDEN,
    };
    html(status, page_with(browser, Some(&text), "/"))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    #[test]
    fn a_browser_returns_to_the_address_that_it_used() {
        let text = "root_url = \"https://fleet.example/\"\n\
            root_url_aliases = [\"http://fleet.internal:8080\", \"https://fleet.internal\"]";
        let config = Config::from_toml(text, Path::new("f.toml")).unwrap();
        for (name, port, url) in [
            ("fleet.example", 443, Some("https://fleet.example")),
            ("fleet.example", 8080, Some("https://fleet.example")),
            ("fleet.internal", 443, Some("https://fleet.internal")),
            ("fleet.internal", 8080, Some("http://fleet.internal:8080")),
            ("evil.example", 443, None),
        ] {
            let name = name.to_owned();
            let found = base_url(&config, &Host { name, port });
            assert_eq!(found.as_deref(), url);
        }
    }
}
