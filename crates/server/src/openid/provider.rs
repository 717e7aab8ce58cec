//! The provider: found by its metadata, asked for tokens, and believed by its keys.

use std::sync::Arc;

use access::Secret;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use reqwest::Url;
use serde_json::Value;
use tokio::sync::{Mutex, Semaphore};

use super::documents::{DocumentError, Metadata, http_client, json, json_of_success};
use super::identity::{ClaimNames, IdentityError, OpenIdPerson};
use super::pending::Pending;
use super::token::{self, Claims, Expected, PublicKey, TokenError};
use crate::config::{ClientSecretError, OpenIdSettings};

/// Metadata and keys are read again after this time.
const KEPT_MS: i64 = HOUR_MS;
/// For a token with an unknown key, the keys are read again at most this often.
const KEYS_AGAIN_MS: i64 = MINUTE_MS;
/// After a failure, further sign-ins fail for this time without a request.
const FAILED_MS: i64 = 5 * SECOND_MS;
/// Sign-ins that ask the provider at once. Others are refused.
const MAX_EXCHANGES: usize = 16;
/// Text of the provider in a message.
const MAX_TEXT_CHARS: usize = 200;
/// An ID token that is kept for the sign-out at the provider: it becomes part of an address.
const MAX_HINT_BYTES: usize = 4_096;

/// The configured provider.
pub struct OpenId {
    settings: OpenIdSettings,
    secret: Option<Secret>,
    http: reqwest::Client,
    known: Mutex<Known>,
    exchanges: Semaphore,
}

/// The documents of the provider. One request reads at a time; the others wait for its result.
#[derive(Default)]
struct Known {
    metadata: Option<(Timestamp, Arc<Metadata>)>,
    keys: Option<(Timestamp, Arc<Vec<PublicKey>>)>,
    failed: Option<(Timestamp, String)>,
}

/// A person who signed in at the provider.
#[derive(Debug)]
pub struct SignedPerson {
    pub person: OpenIdPerson,
    /// The ID token, for the sign-out at the provider.
    pub hint: Option<Secret>,
}

/// Why a sign-in fails. The texts go on after the name of the provider.
#[derive(Debug, thiserror::Error)]
pub enum OpenIdError {
    #[error("{0}")]
    Document(#[from] DocumentError),
    #[error("{0}")]
    Failed(String),
    #[error("refused the sign-in: {0}")]
    Refused(String),
    #[error("sent an answer of another provider")]
    OtherProvider,
    #[error("sent no ID token")]
    NoToken,
    #[error("sent an ID token that is not accepted: {0}")]
    Token(#[from] TokenError),
    #[error("describes another person than its ID token")]
    OtherPerson,
    #[error("does not say who you are: {0}")]
    Identity(#[from] IdentityError),
    #[error("is asked by many people at the moment. Try again")]
    Busy,
}

impl OpenIdError {
    /// Whether the provider or this server fails, and not the sign-in.
    pub fn is_outage(&self) -> bool {
        match self {
            Self::Document(_) | Self::Failed(_) | Self::Busy => true,
            Self::Refused(_)
            | Self::OtherProvider
            | Self::NoToken
            | Self::Token(_)
            | Self::OtherPerson
            | Self::Identity(_) => false,
        }
    }
}

impl OpenId {
    /// Asks nothing yet.
    pub fn new(settings: &OpenIdSettings) -> Result<Self, OpenIdSetUpError> {
        Ok(Self {
            secret: settings.secret()?,
            settings: settings.clone(),
            http: http_client()?,
            known: Mutex::default(),
            exchanges: Semaphore::new(MAX_EXCHANGES),
        })
    }

    pub fn name(&self) -> String {
        self.settings.shown_name()
    }

    pub fn issuer(&self) -> &str {
        &self.settings.issuer
    }

    /// A session ends this long after the sign-in.
    pub fn session_ms(&self) -> i64 {
        i64::from(self.settings.session_hours) * HOUR_MS
    }

    /// Whether the provider answers as it should, for the doctor and the log.
    pub async fn check(&self, now: Timestamp) -> Result<(), OpenIdError> {
        self.metadata(now).await?;
        self.keys(now, false).await.map(drop)
    }

    /// Logs whether the provider answers: the server serves without it.
    pub async fn report(&self, now: Timestamp) {
        let (name, issuer) = (self.name(), self.issuer());
        match self.check(now).await {
            Ok(()) => tracing::info!(openid.issuer = issuer, "people can sign in with {name}"),
            Err(problem) => tracing::warn!(
                openid.issuer = issuer,
                "people cannot sign in with {name} (page.openid) at the moment: it {problem}"
            ),
        }
    }

    /// Where the browser signs in.
    pub async fn sign_in_url(&self, pending: &Pending, now: Timestamp) -> Result<Url, OpenIdError> {
        let mut url = self.metadata(now).await?.authorization_endpoint.clone();
        url.query_pairs_mut()
            .append_pair("response_type", "code")
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("redirect_uri", &pending.redirect_uri)
            .append_pair("scope", &self.settings.scopes.join(" "))
            .append_pair("state", pending.state())
            .append_pair("nonce", pending.nonce())
            .append_pair("code_challenge", &pending.challenge())
            .append_pair("code_challenge_method", "S256");
        Ok(url)
    }

    /// Where the browser signs out, if the provider has such a page.
    pub async fn sign_out_url(
        &self,
        hint: Option<&Secret>,
        back_to: &str,
        now: Timestamp,
    ) -> Result<Option<Url>, OpenIdError> {
        let Some(mut url) = self.metadata(now).await?.end_session_endpoint.clone() else {
            return Ok(None);
        };
        url.query_pairs_mut()
            .append_pair("client_id", &self.settings.client_id)
            .append_pair("post_logout_redirect_uri", back_to);
        if let Some(hint) = hint {
            url.query_pairs_mut()
                .append_pair("id_token_hint", hint.expose());
        }
        Ok(Some(url))
    }

    /// The person whom an answer of the provider names. The answer is one to `pending`, as its
    /// state shows.
    pub async fn finish(
        &self,
        pending: &Pending,
        answer: &[(String, String)],
        now: Timestamp,
    ) -> Result<SignedPerson, OpenIdError> {
        let value = |name: &str| {
            let found = answer.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        let metadata = self.metadata(now).await?;
        let issuer = value("iss");
        let must_name = metadata.authorization_response_iss_parameter_supported;
        if issuer.is_some_and(|it| it != self.issuer()) || issuer.is_none() && must_name {
            return Err(OpenIdError::OtherProvider);
        }
        if let Some(error) = value("error") {
            return Err(refused(error, value("error_description")));
        }
        let code = value("code").ok_or(OpenIdError::NoToken)?;
        let _turn = self
            .exchanges
            .try_acquire()
            .map_err(|_| OpenIdError::Busy)?;
        let tokens = self.exchange(&metadata, pending, code).await?;
        let text = |name: &str| tokens.get(name).and_then(Value::as_str);
        let id_token = text("id_token").ok_or(OpenIdError::NoToken)?;
        let claims = self.verified(id_token, now).await?;
        let expected = Expected {
            issuer: self.issuer(),
            client_id: &self.settings.client_id,
            nonce: pending.nonce(),
        };
        token::check(&claims, expected, now)?;
        let names = self.claim_names();
        let person = match (&metadata.userinfo_endpoint, text("access_token")) {
            (Some(url), Some(access_token)) if !names.are_in(&claims) => {
                let further = self.further_claims(url, access_token, &claims).await?;
                names.person(&[&claims, &further])?
            }
            _ => names.person(&[&claims])?,
        };
        let hint = (id_token.len() <= MAX_HINT_BYTES).then(|| Secret::new(id_token));
        Ok(SignedPerson { person, hint })
    }

    fn claim_names(&self) -> ClaimNames<'_> {
        ClaimNames {
            identity: self.settings.identity.as_deref(),
            groups: self.settings.groups.as_deref(),
        }
    }

    /// Exchanges a code for tokens.
    async fn exchange(
        &self,
        metadata: &Metadata,
        pending: &Pending,
        code: &str,
    ) -> Result<Value, OpenIdError> {
        let url = &metadata.token_endpoint;
        let mut fields = vec![
            ("grant_type", "authorization_code"),
            ("code", code),
            ("redirect_uri", &pending.redirect_uri),
            ("code_verifier", pending.verifier()),
        ];
        let mut request = self.http.post(url.clone());
        match &self.secret {
            Some(secret) if metadata.takes_secret_in_body() => {
                fields.push(("client_id", &self.settings.client_id));
                fields.push(("client_secret", secret.expose()));
            }
            Some(secret) => {
                let id = &self.settings.client_id;
                request = request.header("authorization", basic(id, secret));
            }
            None => fields.push(("client_id", &self.settings.client_id)),
        }
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(form(&fields));
        let (status, reply) = json(request, url.as_str()).await?;
        let text = |name: &str| reply.get(name).and_then(Value::as_str);
        match (status, text("error")) {
            (200, None) => Ok(reply),
            (_, Some(error)) => Err(refused(error, text("error_description"))),
            (status, None) => Err(DocumentError::Status(url.to_string(), status).into()),
        }
    }

    /// The claims of a token that the provider signed.
    async fn verified(&self, id_token: &str, now: Timestamp) -> Result<Claims, OpenIdError> {
        let keys = self.keys(now, false).await?;
        match token::verified(id_token, &keys) {
            Err(TokenError::UnknownKey) => {
                let keys = self.keys(now, true).await?;
                Ok(token::verified(id_token, &keys)?)
            }
            other => Ok(other?),
        }
    }

    /// Claims that the ID token does not have.
    async fn further_claims(
        &self,
        url: &Url,
        access_token: &str,
        claims: &Claims,
    ) -> Result<Claims, OpenIdError> {
        let request = self.http.get(url.clone()).bearer_auth(access_token);
        let reply = json_of_success(request, url.as_str()).await?;
        match reply {
            Value::Object(further) if further.get("sub") == claims.get("sub") => Ok(further),
            Value::Object(_)
            | Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Array(_) => Err(OpenIdError::OtherPerson),
        }
    }

    async fn metadata(&self, now: Timestamp) -> Result<Arc<Metadata>, OpenIdError> {
        let mut known = self.known.lock().await;
        if let Some((read, metadata)) = &known.metadata
            && is_within(*read, KEPT_MS, now)
        {
            return Ok(Arc::clone(metadata));
        }
        known.fail_if_failed(now)?;
        let read = Metadata::read(&self.http, self.issuer()).await;
        let metadata = Arc::new(known.noted(read, now)?);
        known.metadata = Some((now, Arc::clone(&metadata)));
        Ok(metadata)
    }

    /// The keys. `again`: they lack one, and may have changed.
    async fn keys(&self, now: Timestamp, again: bool) -> Result<Arc<Vec<PublicKey>>, OpenIdError> {
        let url = self.metadata(now).await?.jwks_uri.clone();
        let mut known = self.known.lock().await;
        let kept_ms = if again { KEYS_AGAIN_MS } else { KEPT_MS };
        if let Some((read, keys)) = &known.keys
            && is_within(*read, kept_ms, now)
        {
            return Ok(Arc::clone(keys));
        }
        known.fail_if_failed(now)?;
        let request = self.http.get(url.clone());
        let read = json_of_success(request, url.as_str())
            .await
            .and_then(|set| {
                let problem = || DocumentError::Body(url.to_string());
                PublicKey::of_set(&set).ok_or_else(problem)
            });
        let keys = Arc::new(known.noted(read, now)?);
        known.keys = Some((now, Arc::clone(&keys)));
        Ok(keys)
    }
}

impl Known {
    /// Those who waited for a request that failed do not make it again.
    fn fail_if_failed(&self, now: Timestamp) -> Result<(), OpenIdError> {
        match &self.failed {
            Some((at, text)) if is_within(*at, FAILED_MS, now) => {
                Err(OpenIdError::Failed(text.clone()))
            }
            Some(_) | None => Ok(()),
        }
    }

    fn noted<T>(
        &mut self,
        read: Result<T, DocumentError>,
        now: Timestamp,
    ) -> Result<T, DocumentError> {
        self.failed = read
            .as_ref()
            .err()
            .map(|problem| (now, problem.to_string()));
        read
    }
}

/// Why no provider can be used at all.
#[derive(Debug, thiserror::Error)]
pub enum OpenIdSetUpError {
    #[error(transparent)]
    Secret(#[from] ClientSecretError),
    #[error("cannot create the HTTP client for page.openid")]
    Http(#[from] reqwest::Error),
}

/// Whether this was a short time ago. If a clock was set back, it was not.
fn is_within(past: Timestamp, limit_ms: i64, now: Timestamp) -> bool {
    (0..limit_ms).contains(&now.millis_since(past))
}

/// An error as OAuth describes it.
fn refused(error: &str, description: Option<&str>) -> OpenIdError {
    let shown = |text: &str| -> String {
        let printable = text.chars().filter(|letter| !letter.is_control());
        printable.take(MAX_TEXT_CHARS).collect()
    };
    OpenIdError::Refused(match description {
        Some(description) => format!("{} ({})", shown(error), shown(description)),
        None => shown(error),
    })
}

/// The credentials of this client in a header: both parts are escaped first.
fn basic(id: &str, secret: &Secret) -> String {
    let parts = [id, secret.expose()].map(form_escaped);
    format!("Basic {}", STANDARD.encode(parts.join(":")))
}

fn form(fields: &[(&str, &str)]) -> String {
    let pairs = fields.iter();
    let pairs = pairs.map(|(name, value)| format!("{name}={}", form_escaped(value)));
    pairs.collect::<Vec<_>>().join("&")
}

fn form_escaped(text: &str) -> String {
    percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_of_a_client_are_escaped() {
        let secret = Secret::new("a:b c");
        let header = basic("fleet/1", &secret);
        let encoded = header.strip_prefix("Basic ").unwrap();
        let decoded = String::from_utf8(STANDARD.decode(encoded).unwrap()).unwrap();
        assert_eq!(decoded, "fleet%2F1:a%3Ab%20c");
        assert_eq!(form(&[("a", "b&c"), ("d", "")]), "a=b%26c&d=");
    }

    #[test]
    fn texts_of_the_provider_are_shortened() {
        let long = "ä\n".repeat(MAX_TEXT_CHARS + 1);
        let OpenIdError::Refused(text) = refused(&long, Some("why")) else {
            unreachable!("it is refused");
        };
        assert_eq!(text, format!("{} (why)", "ä".repeat(MAX_TEXT_CHARS)));
    }
}
