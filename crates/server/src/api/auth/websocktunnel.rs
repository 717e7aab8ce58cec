//! Tokens for websocktunnel servers, through which workers offer live logs and shells.

use access::Secret;
use domain::time::{HOUR_MS, MINUTE_MS, Timestamp};
use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde::Serialize;
use serde_json::json;

use crate::api::{call::Call, error::ApiError, reply::Reply};

/// As for the credentials of workers: those that ask for a token once live no longer.
const VALID_MS: i64 = 96 * HOUR_MS;
/// The clocks of both servers may differ by this much.
const LEEWAY_MS: i64 = 15 * MINUTE_MS;
/// Servers expect this issuer.
const ISSUER: &str = "taskcluster-auth";

#[derive(Serialize)]
struct Claims<'a> {
    /// The client of the tunnel.
    tid: &'a str,
    aud: &'a str,
    /// The caller.
    #[serde(skip_serializing_if = "Option::is_none")]
    sub: Option<&'a str>,
    iss: &'static str,
    iat: i64,
    nbf: i64,
    exp: i64,
}

pub(super) async fn token(call: Call) -> Result<Reply, ApiError> {
    let (audience, client) = (call.parameter("wstAudience"), call.parameter("wstClient"));
    let Some(secret) = &call.app.secrets.websocktunnel else {
        return Err(ApiError::not_found(
            "`auth.websocktunnelToken` is not served here: this server has no secret of \
             websocktunnel servers. Its operator sets `auth.websocktunnel_secret_file`",
        ));
    };
    let caller = call.caller.as_ref();
    let claims = Claims {
        tid: client,
        aud: audience,
        sub: caller.and_then(|caller| caller.client_id.as_deref()),
        iss: ISSUER,
        iat: seconds(call.now),
        nbf: seconds(call.now.plus_millis(-LEEWAY_MS)),
        exp: seconds(call.now.plus_millis(VALID_MS)),
    };
    let expires = Timestamp::from_millis(claims.exp * 1_000);
    let token = sign(&claims, secret)?;
    Reply::json(
        &json!({"wstClient": client, "wstAudience": audience, "token": token,
        "expires": expires.to_string()}),
    )
}

fn seconds(time: Timestamp) -> i64 {
    time.as_millis().div_euclid(1_000)
}

fn sign(claims: &Claims<'_>, secret: &Secret) -> Result<String, ApiError> {
    EncodingKey::from_secret(secret.expose().as_bytes())
        .and_then(|key| encode(&Header::new(Algorithm::HS256), claims, &key))
        .map_err(|error| ApiError::caused_by(error.into()))
}
