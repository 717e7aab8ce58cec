//! The holder of credentials: a request is signed with them, and authenticated.

use std::net::IpAddr;

use access::Secret;
use access::certificate::Certificate;
use access::hawk::{RequestLine, extension, payload_hash, sign_header};
use api_client::Credentials;
use domain::time::Timestamp;
use engine::Engine;
use http::Method;
use serde_json::{Value, json};

use super::{AuthenticationError, Authenticator, Caller, RequestToAuthenticate};
use crate::hosts::Host;
use crate::limits::OpenCalls;

/// The `Authorization` header of a request to this host.
pub fn sign(
    engine: &Engine,
    credentials: &Credentials,
    host: &Host,
    (method, resource): (&Method, &str),
    body: &api_client::Body,
) -> String {
    let line = RequestLine {
        method: method.as_str(),
        resource,
        host: &host.name,
        port: host.port,
    };
    let hash = match body.content() {
        None => payload_hash("", b""),
        Some((content_type, content)) => payload_hash(content_type, &content),
    };
    sign_header(
        &line,
        &credentials.client_id,
        &credentials.access_token,
        engine.clock.now().as_millis() / 1_000,
        &engine.random.slugid(),
        Some(&hash),
        credentials.extension.as_deref(),
    )
}

/// The parts that tell who holds credentials.
#[derive(Clone, Copy)]
pub struct Holders<'a> {
    pub authenticator: &'a dyn Authenticator,
    pub engine: &'a Engine,
    /// An address that fails too often learns of known clients only.
    pub failed: &'a OpenCalls,
}

/// The client of these credentials, and its scopes.
pub async fn holder(
    parts: Holders<'_>,
    credentials: &Credentials,
    (host, address): (&Host, IpAddr),
    now: Timestamp,
) -> Result<Caller, AuthenticationError> {
    let nothing = api_client::Body::Nothing;
    let line = (&Method::GET, "/");
    let authorization = sign(parts.engine, credentials, host, line, &nothing);
    let request = RequestToAuthenticate {
        method: Method::GET.as_str().to_owned(),
        resource: "/".to_owned(),
        host: host.name.clone(),
        port: host.port,
        authorization: Some(authorization),
        source_ip: address.to_string(),
        may_look_up: !parts.failed.is_exhausted(address, now),
        ..RequestToAuthenticate::default()
    };
    let held = parts.authenticator.authenticate(&request, now).await;
    if let Err(AuthenticationError::Refused(_)) = &held {
        let is_limited = parts.failed.take(address, now).is_err();
        if is_limited {
            return Err(AuthenticationError::NotLookedUp);
        }
    }
    held
}

/// Credentials as a person writes them.
pub fn given(
    client_id: &str,
    access_token: &str,
    certificate: &str,
) -> Result<Credentials, serde_json::Error> {
    let extension = match certificate.trim() {
        "" => None,
        text => {
            let certificate: Certificate = serde_json::from_str(text)?;
            extension(Some(&certificate), None)
        }
    };
    Ok(Credentials {
        client_id: client_id.trim().to_owned(),
        access_token: Secret::new(access_token.trim()),
        extension,
    })
}

/// The rights that a session keeps.
pub enum Holding {
    /// Credentials of a client, which sign the calls.
    Credentials(Credentials),
    /// Roles of a person who signed in at the provider.
    Person(PersonHolding),
}

/// A person who signed in at the provider of this issuer.
#[derive(Clone, Debug)]
pub struct PersonHolding {
    pub issuer: String,
    pub client_id: String,
    /// The roles of the person, as scopes, not expanded.
    pub scopes: Vec<String>,
    /// The ID token, for the sign-out at the provider.
    pub hint: Option<Secret>,
}

/// The form in which a session keeps credentials.
pub fn stored(credentials: &Credentials) -> Secret {
    let text = json!({
        "clientId": credentials.client_id,
        "accessToken": credentials.access_token.expose(),
        "extension": credentials.extension,
    });
    Secret::new(text.to_string())
}

/// The form in which a session keeps a person.
pub fn stored_person(person: &PersonHolding) -> Secret {
    let text = json!({
        "issuer": person.issuer,
        "clientId": person.client_id,
        "scopes": person.scopes,
        "hint": person.hint.as_ref().map(Secret::expose),
    });
    Secret::new(text.to_string())
}

/// The rights out of their stored form.
pub fn restored(stored: &Secret) -> Option<Holding> {
    let value: Value = serde_json::from_str(stored.expose()).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    let client_id = text("clientId")?;
    if let Some(issuer) = text("issuer") {
        let scopes = value.get("scopes")?.as_array()?.iter();
        return Some(Holding::Person(PersonHolding {
            issuer,
            client_id,
            scopes: scopes
                .map(|scope| scope.as_str().map(str::to_owned))
                .collect::<Option<_>>()?,
            hint: text("hint").map(Secret::new),
        }));
    }
    Some(Holding::Credentials(Credentials {
        client_id,
        access_token: Secret::new(text("accessToken")?),
        extension: text("extension"),
    }))
}
