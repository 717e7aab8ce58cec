//! Tokens for Google's APIs: by a service account key, by an external account, or from the metadata
//! server of the machine.

use std::path::{Path, PathBuf};
use std::time::Duration;

use access::Secret;
use api_client::{read_body, with_causes};
use async_trait::async_trait;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::time::{HOUR_MS, Timestamp};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use reqwest::RequestBuilder;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::signing::http::{Http, read_bounded};
use crate::vendor::{Failure, Token, TokenSource, is_endpoint};

/// Permits what the roles of the account permit.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";
/// The audience of the token service, whatever its address.
const TOKEN_SERVICE: &str = "https://oauth2.googleapis.com/token";
const JWT_GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";
const EXCHANGE_GRANT: &str = "urn:ietf:params:oauth:grant-type:token-exchange";
const ACCESS_TOKEN: &str = "urn:ietf:params:oauth:token-type:access_token";
/// Longest file of a key or of a subject token.
const MAX_FILE_BYTES: u64 = 64 * 1024;
/// Longest answer of a token service.
const MAX_ANSWER_BYTES: usize = 64 * 1024;
/// Time limit of one call of a token service.
const CALL_LIMIT: Duration = Duration::from_secs(7);

/// Escapes all but the unreserved characters.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Where credentials come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// A service account key or an external account, as a file of JSON. It is read for each token,
    /// so a key can be changed without a restart.
    File(PathBuf),
    /// The content of such a file.
    Given(Secret),
    Metadata,
}

/// Gets tokens from the source.
pub(super) struct GoogleTokens {
    pub(super) source: Source,
    /// Overrides the address in the key file.
    pub(super) token_endpoint: Option<String>,
    pub(super) metadata_endpoint: String,
    pub(super) http: Http,
}

#[derive(Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum KeyDocument {
    ServiceAccount(ServiceAccount),
    ExternalAccount(ExternalAccount),
}

#[derive(Deserialize)]
struct ServiceAccount {
    client_email: String,
    private_key_id: Option<String>,
    private_key: Secret,
    token_uri: Option<String>,
}

#[derive(Deserialize)]
struct ExternalAccount {
    audience: String,
    subject_token_type: String,
    token_url: String,
    service_account_impersonation_url: Option<String>,
    credential_source: CredentialSource,
}

#[derive(Deserialize)]
struct CredentialSource {
    file: PathBuf,
    format: Option<SubjectFormat>,
}

#[derive(Deserialize)]
struct SubjectFormat {
    #[serde(rename = "type")]
    kind: String,
    subject_token_field_name: Option<String>,
}

#[derive(Deserialize)]
struct TokenAnswer {
    access_token: Secret,
    expires_in: Option<i64>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ImpersonationAnswer {
    access_token: Secret,
    expire_time: String,
}

#[async_trait]
impl TokenSource for GoogleTokens {
    async fn fetch(&self, now: Timestamp) -> Result<Token, Failure> {
        let text = match &self.source {
            Source::File(path) => read_file(path).await?,
            Source::Given(text) => text.clone(),
            Source::Metadata => return self.ask_metadata_server(now).await,
        };
        match read_key(&text)? {
            KeyDocument::ServiceAccount(account) => self.by_key(&account, now).await,
            KeyDocument::ExternalAccount(account) => self.by_exchange(&account, now).await,
        }
    }
}

impl GoogleTokens {
    async fn ask_metadata_server(&self, now: Timestamp) -> Result<Token, Failure> {
        let base = self.metadata_endpoint.trim_end_matches('/');
        let url = format!("{base}/computeMetadata/v1/instance/service-accounts/default/token");
        let request = self.client()?.get(url).header("metadata-flavor", "Google");
        token(self.answer(request, "the metadata server").await?, now)
    }

    /// Signs an assertion, which the token service exchanges for a token.
    async fn by_key(&self, account: &ServiceAccount, now: Timestamp) -> Result<Token, Failure> {
        let url = self.token_endpoint.as_deref();
        let url = url
            .or(account.token_uri.as_deref())
            .unwrap_or(TOKEN_SERVICE);
        let assertion = assertion(account, now)?;
        let form = [("grant_type", JWT_GRANT), ("assertion", &assertion)];
        token(self.post_form(url, &form).await?, now)
    }

    /// Exchanges the token of another identity provider, and then, if the account says so, takes
    /// the role of a service account.
    async fn by_exchange(
        &self,
        account: &ExternalAccount,
        now: Timestamp,
    ) -> Result<Token, Failure> {
        let subject = subject_token(&account.credential_source).await?;
        let form = [
            ("grant_type", EXCHANGE_GRANT),
            ("audience", &account.audience),
            ("scope", SCOPE),
            ("requested_token_type", ACCESS_TOKEN),
            ("subject_token_type", &account.subject_token_type),
            ("subject_token", subject.expose()),
        ];
        let url = self.token_endpoint.as_deref().unwrap_or(&account.token_url);
        let own = token(self.post_form(url, &form).await?, now)?;
        let Some(url) = &account.service_account_impersonation_url else {
            return Ok(own);
        };
        check_address(url)?;
        let body = json!({"scope": [SCOPE], "lifetime": "3600s"});
        let request = self.client()?.post(url).bearer_auth(own.secret.expose());
        let answer = self.answer(request.json(&body), url).await?;
        let answer: ImpersonationAnswer = serde_json::from_value(answer)
            .map_err(|error| Failure::NoTokenService(format!("{url}: {error}")))?;
        Ok(Token {
            secret: answer.access_token,
            expires: answer.expire_time.parse().unwrap_or(own.expires),
        })
    }

    async fn post_form(&self, url: &str, form: &[(&str, &str)]) -> Result<Value, Failure> {
        check_address(url)?;
        let encode = |text: &str| utf8_percent_encode(text, ESCAPED).to_string();
        let pairs = form.iter();
        let body: Vec<String> = pairs
            .map(|(name, value)| format!("{}={}", encode(name), encode(value)))
            .collect();
        let request = self.client()?.post(url);
        let request = request
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body.join("&"));
        self.answer(request, url).await
    }

    fn client(&self) -> Result<&reqwest::Client, Failure> {
        let client = self.http.client();
        client.map_err(|error| Failure::NoTokenService(with_causes(&error)))
    }

    async fn answer(&self, request: RequestBuilder, from: &str) -> Result<Value, Failure> {
        let lost = |error: String| Failure::NoTokenService(format!("{from}: {error}"));
        let answer = request.timeout(CALL_LIMIT).send().await;
        let answer = answer.map_err(|error| lost(with_causes(&error)))?;
        let status = answer.status();
        let body = read_body(answer, MAX_ANSWER_BYTES)
            .await
            .map_err(|error| lost(with_causes(&error)))?;
        let body: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(body);
        }
        let said = |key: &str| body[key].as_str().unwrap_or_default();
        let (code, text) = (said("error"), said("error_description"));
        let error = format!("{from}: status {} {code} {text}", status.as_u16());
        match status.as_u16() {
            400..=403 => Err(Failure::NoCredentials(error)),
            _ => Err(Failure::NoTokenService(error)),
        }
    }
}

async fn read_file(path: &Path) -> Result<Secret, Failure> {
    let text = read_bounded(path, MAX_FILE_BYTES).await;
    text.map(Secret::new).map_err(|error| {
        let path = path.display();
        Failure::NoCredentials(format!("{path} cannot be read: {error}"))
    })
}

/// The key as JSON, or as base64 of that. Errors do not repeat the content.
fn read_key(text: &Secret) -> Result<KeyDocument, Failure> {
    let text = text.expose().trim();
    let decoded = STANDARD.decode(text).ok();
    let json = decoded.as_deref().unwrap_or(text.as_bytes());
    serde_json::from_slice(json).map_err(|_| {
        let needs = "the key is not the JSON of a service account (`type`, `client_email`, \
                     `private_key`) or of an external account with a `file`";
        Failure::NoCredentials(needs.to_owned())
    })
}

/// The addresses in key files are the operator's, and get secrets.
fn check_address(url: &str) -> Result<(), Failure> {
    if is_endpoint(url) {
        return Ok(());
    }
    let error = format!("the token service {url:?} must have an address with https://");
    Err(Failure::NoCredentials(error))
}

fn assertion(account: &ServiceAccount, now: Timestamp) -> Result<String, Failure> {
    let seconds = now.as_millis() / 1_000;
    let header = json!({"alg": "RS256", "typ": "JWT", "kid": account.private_key_id});
    let claims = json!({"iss": account.client_email, "sub": account.client_email,
        "scope": SCOPE, "aud": TOKEN_SERVICE, "iat": seconds, "exp": seconds + 3_600});
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    let signed = format!("{}.{}", part(&header), part(&claims));
    let signature = sign(&account.private_key, signed.as_bytes()).ok_or_else(|| {
        Failure::NoCredentials("private_key is not an RSA key in PKCS#8 PEM".to_owned())
    })?;
    Ok(format!("{signed}.{}", URL_SAFE_NO_PAD.encode(signature)))
}

fn sign(key: &Secret, message: &[u8]) -> Option<Vec<u8>> {
    let lines = key.expose().lines().filter(|line| !line.contains("-----"));
    let der = STANDARD.decode(lines.map(str::trim).collect::<String>());
    let key = KeyPair::from_pkcs8(&der.ok()?).ok()?;
    let mut signature = vec![0; key.public_modulus_len()];
    let random = SystemRandom::new();
    key.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
        .ok()?;
    Some(signature)
}

async fn subject_token(source: &CredentialSource) -> Result<Secret, Failure> {
    let text = read_file(&source.file).await?;
    let Some(format) = source.format.as_ref().filter(|it| it.kind == "json") else {
        return Ok(Secret::new(text.expose().trim()));
    };
    let name = format.subject_token_field_name.as_deref();
    let document: Value = serde_json::from_str(text.expose()).unwrap_or_default();
    let token = name.and_then(|name| document[name].as_str());
    token.map(Secret::new).ok_or_else(|| {
        let path = source.file.display();
        Failure::NoCredentials(format!("{path} has no subject token as its format says"))
    })
}

fn token(answer: Value, now: Timestamp) -> Result<Token, Failure> {
    let answer: TokenAnswer = serde_json::from_value(answer).map_err(|_| {
        Failure::NoTokenService("the answer of the token service has no token".to_owned())
    })?;
    let lasts_ms = answer.expires_in.unwrap_or(3_600).saturating_mul(1_000);
    Ok(Token {
        secret: answer.access_token,
        expires: now.plus_millis(lasts_ms.clamp(0, 12 * HOUR_MS)),
    })
}
