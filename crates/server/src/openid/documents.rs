//! Documents of the provider: its metadata, fetched within limits.

use std::time::Duration;

use api_client::{read_body, with_causes};
use reqwest::{RequestBuilder, Url};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::config::is_protected;

/// Time limit of each answer.
const TIME_LIMIT: Duration = Duration::from_secs(10);
/// Replies of the provider are at most this long.
const MAX_REPLY_BYTES: usize = 256 * 1024;
const WELL_KNOWN: &str = "/.well-known/openid-configuration";

/// The parts of a provider's metadata that are used here.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Metadata {
    issuer: String,
    #[serde(deserialize_with = "url")]
    pub authorization_endpoint: Url,
    #[serde(deserialize_with = "url")]
    pub token_endpoint: Url,
    #[serde(deserialize_with = "url")]
    pub jwks_uri: Url,
    #[serde(default, deserialize_with = "optional_url")]
    pub userinfo_endpoint: Option<Url>,
    #[serde(default, deserialize_with = "optional_url")]
    pub end_session_endpoint: Option<Url>,
    token_endpoint_auth_methods_supported: Option<Vec<String>>,
    /// Whether answers to a browser name the issuer.
    #[serde(default)]
    pub authorization_response_iss_parameter_supported: bool,
}

/// Why a document cannot be used. The texts go on after "it".
#[derive(Debug, thiserror::Error)]
pub enum DocumentError {
    #[error("does not answer at {0}: {1}")]
    Unreachable(String, String),
    #[error("sent no JSON from {0}, or more than 256 KiB")]
    Body(String),
    #[error("answered {1} at {0}")]
    Status(String, u16),
    #[error("has no usable metadata at {0}: {1}")]
    Metadata(String, String),
    #[error("calls itself {0:?}: set page.openid.issuer to exactly this text, if it is right")]
    OtherIssuer(String),
}

fn url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Url, D::Error> {
    let text = String::deserialize(deserializer)?;
    text.parse().map_err(serde::de::Error::custom)
}

fn optional_url<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Url>, D::Error> {
    let text = Option::<String>::deserialize(deserializer)?;
    let parsed = text.map(|text| text.parse()).transpose();
    parsed.map_err(serde::de::Error::custom)
}

/// A client that follows no redirects and waits for no answer for long.
pub(super) fn http_client() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .timeout(TIME_LIMIT)
        .redirect(reqwest::redirect::Policy::none())
        .user_agent(concat!("fleetwright/", env!("CARGO_PKG_VERSION")))
        .build()
}

/// The status and the JSON of a reply.
pub(super) async fn json(
    request: RequestBuilder,
    url: &str,
) -> Result<(u16, Value), DocumentError> {
    let response = request.header("accept", "application/json").send().await;
    let response = response.map_err(|problem| {
        // The address may have a code in its query.
        let text = with_causes(&problem.without_url());
        DocumentError::Unreachable(url.to_owned(), text)
    })?;
    let status = response.status().as_u16();
    let body = read_body(response, MAX_REPLY_BYTES).await;
    let parsed = body
        .ok()
        .and_then(|body| serde_json::from_slice(&body).ok());
    match parsed {
        Some(value) => Ok((status, value)),
        None if (200..300).contains(&status) => Err(DocumentError::Body(url.to_owned())),
        None => Err(DocumentError::Status(url.to_owned(), status)),
    }
}

/// The JSON of a successful reply.
pub(super) async fn json_of_success(
    request: RequestBuilder,
    url: &str,
) -> Result<Value, DocumentError> {
    match json(request, url).await? {
        (200..300, value) => Ok(value),
        (status, _) => Err(DocumentError::Status(url.to_owned(), status)),
    }
}

impl Metadata {
    /// Reads the metadata of this issuer.
    pub(super) async fn read(http: &reqwest::Client, issuer: &str) -> Result<Self, DocumentError> {
        let url = format!("{}{WELL_KNOWN}", issuer.trim_end_matches('/'));
        let value = json_of_success(http.get(&url), &url).await?;
        Self::of(value, issuer).map_err(|problem| match problem {
            Ok(other) => DocumentError::OtherIssuer(other),
            Err(problem) => DocumentError::Metadata(url, problem),
        })
    }

    /// An error is the name of another issuer, or a problem.
    fn of(value: Value, issuer: &str) -> Result<Self, Result<String, String>> {
        let metadata: Self =
            serde_json::from_value(value).map_err(|problem| Err(problem.to_string()))?;
        if metadata.issuer != issuer {
            return Err(Ok(metadata.issuer.chars().take(200).collect()));
        }
        let urls = [
            Some(&metadata.authorization_endpoint),
            Some(&metadata.token_endpoint),
            Some(&metadata.jwks_uri),
            metadata.userinfo_endpoint.as_ref(),
            metadata.end_session_endpoint.as_ref(),
        ];
        let is_local = issuer.starts_with("http:");
        let is_usable = |url: &&Url| is_protected(url) && (url.scheme() == "https" || is_local);
        let wrong = urls.into_iter().flatten().find(|url| !is_usable(url));
        match wrong.map(|url| format!("{url} is not encrypted")) {
            Some(problem) => Err(Err(problem)),
            None => Ok(metadata),
        }
    }

    /// Whether the secret of a client goes into the body of a request: by default it does not.
    pub(super) fn takes_secret_in_body(&self) -> bool {
        let methods = self.token_endpoint_auth_methods_supported.as_deref();
        let has = |method: &str| methods.is_some_and(|it| it.iter().any(|known| known == method));
        has("client_secret_post") && !has("client_secret_basic")
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const ISSUER: &str = "https://id.example";

    fn metadata(name: &str, value: Value) -> Result<Metadata, Result<String, String>> {
        let mut metadata = json!({
            "issuer": ISSUER,
            "authorization_endpoint": "https://id.example/a",
            "token_endpoint": "https://id.example/t",
            "jwks_uri": "https://keys.example/k",
        });
        metadata[name] = value;
        Metadata::of(metadata, ISSUER)
    }

    #[test]
    fn metadata_are_of_the_issuer_and_name_encrypted_addresses() {
        assert!(metadata("further", json!({"a": [1]})).is_ok());
        let other = metadata("issuer", json!("https://id.example/")).unwrap_err();
        assert_eq!(other, Ok("https://id.example/".to_owned()));
        for (name, value) in [
            ("authorization_endpoint", json!("http://id.example/a")),
            ("authorization_endpoint", json!("javascript:alert(1)")),
            ("token_endpoint", json!("http://127.0.0.1/t")),
            ("jwks_uri", json!("file:///etc/passwd")),
            ("userinfo_endpoint", json!("http://id.example/u")),
            ("end_session_endpoint", json!("data:text/html,x")),
            ("jwks_uri", json!(null)),
            ("token_endpoint", json!("/t")),
        ] {
            assert!(
                metadata(name, value.clone()).unwrap_err().is_err(),
                "{name}: {value}"
            );
        }
    }

    #[test]
    fn the_secret_is_in_the_body_only_where_it_must_be() {
        let takes = |methods: Value| {
            let metadata = metadata("token_endpoint_auth_methods_supported", methods).unwrap();
            metadata.takes_secret_in_body()
        };
        assert!(!takes(json!(null)));
        assert!(!takes(json!(["client_secret_post", "client_secret_basic"])));
        assert!(takes(json!(["client_secret_post", "private_key_jwt"])));
    }
}
