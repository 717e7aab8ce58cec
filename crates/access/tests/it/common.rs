//! A client, a request, and a function that reads and verifies it.

use std::sync::Arc;

use access::Secret;
use access::authenticate::{AuthenticatedClient, Client, Policy, verify};
use access::certificate::{Credentials, Issuer, issue};
use access::hawk::{RequestLine, extension, read, sign_header};
use access::role::ExpansionTooLarge;
use access::scope::ScopeSet;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::Value;

pub(crate) const NOW: i64 = 1_700_000_000_000;
pub(crate) const HOUR: i64 = 3_600_000;

pub(crate) fn line() -> RequestLine<'static> {
    RequestLine {
        method: "POST",
        resource: "/api/x/v1/y?z=1",
        host: "tc.example.com",
        port: 443,
    }
}

pub(crate) fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|&text| text.to_owned()).collect()
}

pub(crate) fn tester() -> Client {
    Client {
        client_id: "tester".to_owned(),
        access_token: Secret::new("no-secret"),
        scopes: texts(&["scope:*", "auth:create-client:worker/*"]),
        expires_ms: NOW + 100 * HOUR,
        disabled: false,
    }
}

/// Expansion without any role.
pub(crate) fn no_roles(scopes: &[String]) -> Result<Arc<ScopeSet>, ExpansionTooLarge> {
    Ok(Arc::new(ScopeSet::new(scopes.iter().cloned())))
}

pub(crate) fn rng() -> StdRng {
    StdRng::seed_from_u64(1)
}

/// The tester's certificate.
pub(crate) fn credentials(name: Option<&str>, scopes: &[&str]) -> Credentials {
    let token = Secret::new("no-secret");
    let issuer = Issuer {
        client_id: "tester",
        access_token: &token,
    };
    issue(&issuer, name, texts(scopes), NOW, NOW + HOUR, &mut rng())
}

pub(crate) fn header_of(credentials: &Credentials, authorized: Option<&[String]>) -> String {
    let ext = extension(Some(&credentials.certificate), authorized);
    let token = &credentials.access_token;
    sign_header(
        &line(),
        &credentials.client_id,
        token,
        NOW / 1000,
        "n",
        None,
        ext.as_deref(),
    )
}

/// A header of the tester with any JSON as its `ext`.
pub(crate) fn header_with_ext(json: &Value) -> String {
    let ext = STANDARD.encode(json.to_string());
    let token = Secret::new("no-secret");
    sign_header(&line(), "tester", &token, NOW / 1000, "n", None, Some(&ext))
}

pub(crate) fn authenticate(
    header: &str,
    client: Option<&Client>,
) -> Result<AuthenticatedClient, String> {
    authenticate_at(&line(), Some(header), client, NOW)
}

pub(crate) fn authenticate_at(
    line: &RequestLine<'_>,
    header: Option<&str>,
    client: Option<&Client>,
    now_ms: i64,
) -> Result<AuthenticatedClient, String> {
    let presented = read(line, header).map_err(|refused| refused.to_string())?;
    verify(
        &presented,
        line,
        client,
        &no_roles,
        now_ms,
        &Policy::default(),
    )
    .map_err(|refused| refused.message)
}
