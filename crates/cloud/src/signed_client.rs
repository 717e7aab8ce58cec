//! Signed requests to a service of the operator: a provider or a strategy service.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use access::Secret;
use access::hawk::{RequestLine, payload_hash, sign_header};
use access::seal::Keyring;
use api_client::{JSON, with_causes};
use domain::time::{Clock, SECOND_MS};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE};
use reqwest::redirect::Policy;
use reqwest::{Client, Response, Url};

use crate::call_scope::RequestWatch;

/// Shorter secrets can be guessed, and the holder of the secret can sign requests.
const MIN_SECRET_LENGTH: usize = 22;
const NONCE_LENGTH: usize = 22;

/// Where a service is, and how requests to it are signed.
pub(crate) struct Address<'a> {
    /// The section of the configuration, for messages: `providers.racks`.
    pub(crate) section: String,
    /// The id in the signature.
    pub(crate) id: String,
    /// `/v1/<operation>` is added to it.
    pub(crate) url: &'a str,
    /// Either this or the file is set.
    pub(crate) secret: Option<&'a Secret>,
    pub(crate) secret_file: Option<&'a Path>,
    pub(crate) time_limit: Duration,
}

impl Address<'_> {
    fn key(&self, key: &str) -> String {
        format!("{}.{key}", self.section)
    }

    fn secret(&self) -> Result<Secret, String> {
        let secret = match (self.secret, self.secret_file) {
            (Some(secret), None) => secret.clone(),
            (None, Some(file)) => {
                let text = std::fs::read_to_string(file);
                let place = file.display();
                let text = text
                    .map_err(|error| format!("{} ({place}): {error}", self.key("secret_file")))?;
                Secret::new(text.trim())
            }
            (None, None) | (Some(_), Some(_)) => {
                return Err(format!("set either {} or secret_file", self.key("secret")));
            }
        };
        if secret.expose().len() < MIN_SECRET_LENGTH {
            let key = self.key("secret");
            return Err(format!(
                "{key} is shorter than {MIN_SECRET_LENGTH} characters. Make one with: head -c 33 /dev/urandom | base64"
            ));
        }
        Ok(secret)
    }

    fn parsed_url(&self) -> Result<Url, String> {
        let url = self.url.parse();
        let mut url: Url = url.map_err(|error| format!("{}: {error}", self.key("url")))?;
        if !matches!(url.scheme(), "http" | "https") || url.host_str().is_none() {
            let key = self.key("url");
            return Err(format!("{key} must begin with http:// or https://"));
        }
        url.set_query(None);
        url.set_fragment(None);
        Ok(url)
    }
}

/// A client that signs its requests with a Hawk signature that covers the body.
pub(crate) struct SignedClient {
    http: Client,
    url: Url,
    secret: Secret,
    id: String,
    keyring: Arc<Keyring>,
    clock: Arc<dyn Clock>,
    n_requests: AtomicU64,
}

impl SignedClient {
    pub(crate) fn new(
        address: Address<'_>,
        keyring: &Arc<Keyring>,
        clock: &Arc<dyn Clock>,
    ) -> Result<Self, String> {
        let url = address.parsed_url()?;
        let http = Client::builder()
            .timeout(address.time_limit)
            // A signature is valid for one address only.
            .redirect(Policy::none())
            .build()
            .map_err(|error| format!("cannot create an HTTP client: {error}"))?;
        Ok(Self {
            http,
            url,
            secret: address.secret()?,
            id: address.id,
            keyring: Arc::clone(keyring),
            clock: Arc::clone(clock),
            n_requests: AtomicU64::new(0),
        })
    }

    /// Posts a JSON document to `<url>/v1/<operation>`.
    pub(crate) async fn post(
        &self,
        operation: &str,
        body: Vec<u8>,
    ) -> Result<Response, reqwest::Error> {
        let mut url = self.url.clone();
        let path = format!("{}/v1/{operation}", url.path().trim_end_matches('/'));
        url.set_path(&path);
        let request = self.http.post(url.clone());
        let request = request.header(CONTENT_TYPE, JSON);
        let request = request.header(AUTHORIZATION, self.sign(&url, &body));
        let watch = RequestWatch::start();
        let answer = request.body(body).send().await;
        watch.end(answer.as_ref().ok().map(|answer| answer.status().as_u16()));
        answer
    }

    fn sign(&self, url: &Url, body: &[u8]) -> String {
        let now = self.clock.now();
        let hash = payload_hash(JSON, body);
        let number = self.n_requests.fetch_add(1, Ordering::Relaxed);
        // Unpredictable, and different for any two requests, also of two of our processes.
        let unique = format!("{}:{number}:{}:{hash}", std::process::id(), now.as_millis());
        let digest = self.keyring.digest("external-nonce", &Secret::new(unique));
        let nonce = &digest[digest.len().saturating_sub(NONCE_LENGTH)..];
        let request = RequestLine {
            method: "POST",
            resource: url.path(),
            host: url.host_str().unwrap_or_default(),
            port: url.port_or_known_default().unwrap_or_default(),
        };
        let seconds = now.as_millis() / SECOND_MS;
        let (id, secret) = (&self.id, &self.secret);
        sign_header(&request, id, secret, seconds, nonce, Some(&hash), None)
    }
}

/// The error with its causes, which reqwest hides behind a general phrase. The address is known and
/// left out.
pub(crate) fn chain(error: &reqwest::Error) -> String {
    let what = if error.is_timeout() {
        "no response within the time limit"
    } else {
        "no response"
    };
    match std::error::Error::source(error) {
        Some(cause) => format!("{what}: {}", with_causes(cause)),
        None => what.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::values::{TestClock, context_at};

    #[test]
    fn no_two_questions_have_the_same_nonce() {
        let context = context_at("racks", &TestClock::new());
        let secret = Secret::new("a-secret-of-more-than-22-characters");
        let address = Address {
            section: "providers.racks".to_owned(),
            id: "racks".to_owned(),
            url: "http://127.0.0.1:1/",
            secret: Some(&secret),
            secret_file: None,
            time_limit: Duration::from_secs(1),
        };
        let client = SignedClient::new(address, &context.keyring, &context.clock).unwrap();
        let sign = || client.sign(&client.url, b"{}");
        let (one, other) = (sign(), sign());
        assert_ne!(one, other);
        assert!(
            one.contains("id=\"racks\"") && one.contains("hash="),
            "{one}"
        );
    }
}
