//! Who holds credentials: a request is signed with them, and authenticated.

use std::net::IpAddr;

use access::hawk::{RequestLine, payload_hash, sign_header};
use api_client::Credentials;
use domain::time::Timestamp;
use http::Method;

use super::{AuthenticationError, Caller, RequestToAuthenticate};
use crate::app::App;
use crate::hosts::Host;

/// The `Authorization` header of a request to this host.
pub fn sign(
    app: &App,
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
        app.engine.clock.now().as_millis() / 1_000,
        &app.engine.random.slugid(),
        Some(&hash),
        credentials.extension.as_deref(),
    )
}

/// The client of these credentials, and its scopes.
pub async fn holder(
    app: &App,
    credentials: &Credentials,
    host: &Host,
    address: IpAddr,
    now: Timestamp,
) -> Result<Caller, AuthenticationError> {
    let nothing = api_client::Body::Nothing;
    let authorization = sign(app, credentials, host, (&Method::GET, "/"), &nothing);
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
    app.authenticator.authenticate(&request, now).await
}
