//! Links that sign a browser in once.

use access::Secret;
use access::certificate::Certificate;
use api_client::Credentials;
use domain::session::SessionKind;
use engine::access::{SignIn, open_session};
use serde_json::json;

use crate::api::call::Call;
use crate::api::error::ApiError;
use crate::api::reply::Reply;
use crate::authentication::{holder, stored};
use crate::hosts::Host;

pub(super) async fn create(call: Call) -> Result<Reply, ApiError> {
    let credentials = given(&call)?;
    let host = Host {
        name: call.auth_request.host.clone(),
        port: call.auth_request.port,
    };
    let app = &call.app;
    let caller = holder(
        (&*app.authenticator, &app.engine),
        &credentials,
        &host,
        call.address,
        call.now,
    )
    .await?;
    let Some(client_id) = caller.client_id else {
        return Err(ApiError::input("The credentials name no client"));
    };
    call.identify()?;
    let sign_in = SignIn {
        client_id: client_id.clone(),
        credentials: stored(&credentials),
        browser: String::new(),
        by: "command",
        source_ip: call.address.to_string(),
        request_id: call.request_id.clone(),
    };
    let link = open_session(&app.engine, SessionKind::Link, sign_in, call.now).await?;
    let reply = json!({
        "clientId": client_id,
        "url": format!("{}/sign-in?link={}", app.engine.root_url, link.expose()),
        "expires": SessionKind::Link.expires(call.now).to_string(),
    });
    Reply::json(&reply)
}

fn given(call: &Call) -> Result<Credentials, ApiError> {
    let text = |name: &str| call.body[name].as_str().unwrap_or_default().to_owned();
    let extension = match call.body.get("certificate") {
        None => None,
        Some(certificate) => {
            let certificate: Certificate = serde_json::from_value(certificate.clone())
                .map_err(|problem| ApiError::input(format!("`certificate`: {problem}")))?;
            access::hawk::extension(Some(&certificate), None)
        }
    };
    Ok(Credentials {
        client_id: text("clientId"),
        access_token: Secret::new(text("accessToken")),
        extension,
    })
}
