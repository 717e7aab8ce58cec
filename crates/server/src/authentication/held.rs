//! The holder of credentials: a request is signed with them, and authenticated.

use std::net::IpAddr;

use access::Secret;
use access::hawk::{RequestLine, payload_hash, sign_header};
use api_client::Credentials;
use domain::time::Timestamp;
use engine::Engine;
use http::Method;
use serde_json::{Value, json};

use super::{AuthenticationError, Authenticator, Caller, RequestToAuthenticate};
use crate::hosts::Host;

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

/// The client of these credentials, and its scopes.
pub async fn holder(
    (authenticator, engine): (&dyn Authenticator, &Engine),
    credentials: &Credentials,
    host: &Host,
    address: IpAddr,
    now: Timestamp,
) -> Result<Caller, AuthenticationError> {
    let nothing = api_client::Body::Nothing;
    let authorization = sign(engine, credentials, host, (&Method::GET, "/"), &nothing);
    let request = RequestToAuthenticate {
        method: Method::GET.as_str().to_owned(),
        resource: "/".to_owned(),
        host: host.name.clone(),
        port: host.port,
        authorization: Some(authorization),
        source_ip: address.to_string(),
        may_look_up: true,
        ..RequestToAuthenticate::default()
    };
    authenticator.authenticate(&request, now).await
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

/// The credentials out of their stored form.
pub fn restored(stored: &Secret) -> Option<Credentials> {
    let value: Value = serde_json::from_str(stored.expose()).ok()?;
    let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
    Some(Credentials {
        client_id: text("clientId")?,
        access_token: Secret::new(text("accessToken")?),
        extension: text("extension"),
    })
}
