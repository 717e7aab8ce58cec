//! Tokens for websocktunnel servers, which know the same secret.

use std::collections::HashSet;

use domain::time::HOUR_MS;
use jsonwebtoken::{Algorithm, DecodingKey, Validation, decode, decode_header};
use serde_json::{Value, json};

use crate::authorization::{Case, case};
use crate::database::Database;
use crate::world::World;

const TUNNEL: &str = "auth:/websocktunnel/tunnels/rack-1.host-1";
const SECRET: &str = "a-secret-of-two-servers-in-a-file";

pub(crate) fn cases() -> Vec<Case> {
    vec![case(
        "websocktunnelToken",
        TUNNEL,
        &["auth:websocktunnel-token:tunnels/rack-1.host-1"],
    )]
}

async fn with_secret(folder: &tempfile::TempDir) -> World {
    let file = folder.path().join("tunnel");
    std::fs::write(&file, format!("{SECRET}\n")).unwrap();
    World::open(Database::sqlite(), |config| {
        config.auth.websocktunnel_secret_file = Some(file);
    })
    .await
}

/// As the server of the tunnel does, but without its clock.
fn claims(token: &str, secret: &str) -> Option<Value> {
    let mut validation = Validation::new(Algorithm::HS256);
    validation.validate_exp = false;
    validation.required_spec_claims = HashSet::new();
    validation.set_audience(&["tunnels"]);
    let key = DecodingKey::from_secret(secret.as_bytes()).unwrap();
    let decoded = decode::<Value>(token, &key, &validation);
    decoded.ok().map(|token| token.claims)
}

#[tokio::test]
async fn a_token_is_signed_for_the_audience_and_the_client_of_the_tunnel() {
    let folder = tempfile::tempdir().unwrap();
    let world = with_secret(&folder).await;
    let ci = world
        .client("ci", &["auth:websocktunnel-token:tunnels/*"])
        .await;
    let reply = world.get(TUNNEL).by(&ci).await.expect(200);
    let expires = world.now().plus_millis(96 * HOUR_MS).to_string();
    assert_eq!(reply["wstAudience"], "tunnels");
    assert_eq!(reply["wstClient"], "rack-1.host-1");
    assert_eq!(reply["expires"], expires);
    let token = reply["token"].as_str().unwrap();
    assert_eq!(decode_header(token).unwrap().alg, Algorithm::HS256);
    let now = world.now().as_millis() / 1_000;
    let expected = json!({
        "tid": "rack-1.host-1",
        "aud": "tunnels",
        "sub": "ci",
        "iss": "taskcluster-auth",
        "iat": now,
        "nbf": now - 15 * 60,
        "exp": now + 96 * 60 * 60,
    });
    assert_eq!(claims(token, SECRET), Some(expected));
    assert_eq!(claims(token, "another secret, just as long"), None);
    assert!(!world.log.text().contains(token));
}

#[tokio::test]
async fn names_that_no_tunnel_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let world = with_secret(&folder).await;
    let long = "a".repeat(39);
    for (path, name) in [
        ("a%20b/c", "wstAudience"),
        ("a/b%20c", "wstClient"),
        (&format!("{long}/c"), "wstAudience"),
        ("a/b%2Fc", "wstClient"),
    ] {
        let refused = world.get(&format!("auth:/websocktunnel/{path}")).await;
        assert_eq!(refused.status, 400, "{path}: {}", refused.text);
        let text = format!("URL parameter '{name}' given as ");
        assert!(refused.text.contains(&text), "{}", refused.text);
    }
}

#[tokio::test]
async fn a_server_without_the_secret_says_which_key_to_set() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let refused = world.get(TUNNEL).await;
    let text = "Its operator sets `auth.websocktunnel_secret_file`";
    refused.refused_with(404, "ResourceNotFound", text);
}
