//! Authenticates requests for other services and for clients that test themselves.

use std::sync::Arc;

use access::Secret;
use access::authenticate::{Client, NO_AUTH, Policy, verify};
use access::hawk::{RequestAuth, RequestLine, read};
use access::scope::{Expression, ScopeSet};
use domain::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};

use super::embedded;
use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::authentication::{AuthenticationError, Caller};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct HawkBody {
    method: String,
    resource: String,
    host: String,
    port: u16,
    #[serde(default)]
    authorization: Option<String>,
    #[serde(default, rename = "sourceIp")]
    _source_ip: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TestBody {
    client_scopes: Vec<String>,
    required_scopes: Vec<String>,
}

/// Always 200: the reply says whether the signature was valid.
pub(super) async fn authenticate(call: Call) -> Result<Reply, ApiError> {
    let body: HawkBody = call.body()?;
    let (method, host) = (body.method.to_uppercase(), body.host.to_lowercase());
    let line = RequestLine {
        method: &method,
        resource: &body.resource,
        host: &host,
        port: body.port,
    };
    let authenticator = embedded(&call)?;
    let reply = match authenticator
        .verify(&line, body.authorization.as_deref(), true, call.now)
        .await
    {
        Err(AuthenticationError::Refused(message)) => {
            metrics::counter!(crate::telemetry::AUTH_FAILURE).increment(1);
            json!({"status": "auth-failed", "message": message})
        }
        // An error of ours, not of the request in question.
        Err(ours) => return Err(ours.into()),
        Ok(None) => {
            let (scopes, expires) = authenticator.anonymous(call.now).await?;
            json!({"status": "no-auth", "scheme": "none", "scopes": scopes.to_vec(),
                "expires": expires.to_string()})
        }
        Ok(Some(authenticated)) => {
            metrics::counter!(crate::telemetry::AUTH_SUCCESS).increment(1);
            let expires = Timestamp::from_millis(authenticated.expires_ms);
            let mut reply = json!({"status": "auth-success", "scheme": "hawk",
                "clientId": authenticated.client_id, "scopes": authenticated.scopes.to_vec(),
                "expires": expires.to_string()});
            if let Some(hash) = authenticated.payload_hash {
                reply["hash"] = json!(hash);
            }
            reply
        }
    };
    Reply::json(&reply)
}

pub(super) async fn test(call: Call) -> Result<Reply, ApiError> {
    let body: TestBody = call.body()?;
    test_client(&call, body.client_scopes, body.required_scopes)
}

pub(super) async fn test_get(call: Call) -> Result<Reply, ApiError> {
    let client_scopes = ["test:*", "auth:create-client:test:*"]
        .map(str::to_owned)
        .to_vec();
    test_client(
        &call,
        client_scopes,
        vec!["test:authenticate-get".to_owned()],
    )
}

/// Authenticates the request with a well-known client: it holds the scopes that the request names.
fn test_client(
    call: &Call,
    client_scopes: Vec<String>,
    required: Vec<String>,
) -> Result<Reply, ApiError> {
    let line = call.auth_request.line();
    let presented = read(&line, call.auth_request.authorization.as_deref())
        .map_err(AuthenticationError::from)?;
    let tester = Client {
        client_id: "tester".to_owned(),
        access_token: Secret::new("no-secret"),
        scopes: client_scopes,
        expires_ms: i64::MAX,
        disabled: false,
    };
    let client = presented
        .client_to_load()
        .filter(|id| *id == tester.client_id)
        .map(|_| &tester);
    let as_given = |scopes: &[String]| Ok(Arc::new(ScopeSet::new(scopes.iter().cloned())));
    let now_ms = call.now.as_millis();
    let policy = Policy::default();
    let authenticated = verify(&presented, &line, client, &as_given, now_ms, &policy)
        .map_err(AuthenticationError::from)?;
    let with_credentials = !matches!(presented, RequestAuth::Nothing);
    let caller = Caller {
        client_id: with_credentials.then(|| authenticated.client_id.clone()),
        scopes: Arc::clone(&authenticated.scopes),
        expires: Timestamp::from_millis(authenticated.expires_ms),
        payload_hash: authenticated.payload_hash,
    };
    caller.check_payload(&call.auth_request)?;
    let required = required.into_iter().map(Expression::Scope).collect();
    caller.check(&Expression::AllOf(required))?;
    let client_id = caller.client_id.as_deref().unwrap_or(NO_AUTH);
    let reply: Value = json!({"clientId": client_id, "scopes": authenticated.scopes.to_vec()});
    Reply::json(&reply)
}
