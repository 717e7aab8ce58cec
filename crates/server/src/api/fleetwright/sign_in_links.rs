//! Links that sign a browser in once.

use domain::session::{MAX_SESSION_MS, SessionKind};
use engine::access::{SignIn, open_session};
use serde_json::json;

use crate::api::call::Call;
use crate::api::error::ApiError;
use crate::api::reply::Reply;
use crate::authentication::{given, holder, stored};
use crate::hosts::Host;

pub(super) async fn create(call: Call) -> Result<Reply, ApiError> {
    let text = |name: &str| call.body[name].as_str().unwrap_or_default();
    let certificate = call.body.get("certificate").map(ToString::to_string);
    let certificate = certificate.unwrap_or_default();
    let credentials = given(text("clientId"), text("accessToken"), &certificate)
        .map_err(|problem| ApiError::input(format!("`certificate`: {problem}")))?;
    let host = Host {
        name: call.auth_request.host.clone(),
        port: call.auth_request.port,
    };
    let app = &call.app;
    let sender = (&host, call.address);
    let caller = holder(app.holders(), &credentials, sender, call.now).await?;
    let Some(client_id) = caller.client_id else {
        return Err(ApiError::input(
            "The credentials name no client: give the `clientId` and `accessToken` of a client",
        ));
    };
    call.identify()?;
    let sign_in = SignIn {
        client_id: client_id.clone(),
        credentials: stored(&credentials),
        longest_ms: MAX_SESSION_MS,
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
