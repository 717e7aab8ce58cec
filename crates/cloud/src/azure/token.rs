//! Access tokens for Resource Manager: for a secret, a certificate or a managed identity.

use std::path::Path;

use access::Secret;
use api_client::{read_body, with_causes};
use async_trait::async_trait;
use aws_lc_rs::digest::{SHA256, digest};
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PSS_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use domain::time::{SECOND_MS, Timestamp};
use reqwest::RequestBuilder;
use rustls_pki_types::pem::PemObject as _;
use rustls_pki_types::{CertificateDer, PrivateKeyDer};
use serde_json::{Value, json};

use super::config::{CredentialSource, SecretText};
use crate::signing::http::{Http, read_bounded};
use crate::vendor::{Failure, Token, TokenSource};

/// Longest file with a secret or a key.
const MAX_FILE_BYTES: u64 = 65_536;
/// Longest answer of a token service.
const MAX_ANSWER_BYTES: usize = 65_536;
/// Lifetime of an assertion.
const ASSERTION_SECONDS: i64 = 300;
const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";
const METADATA_VERSION: &str = "2018-02-01";

pub(super) struct AzureTokens {
    pub(super) source: CredentialSource,
    /// The address that tokens are for.
    pub(super) endpoint: String,
    pub(super) login_endpoint: String,
    pub(super) metadata_endpoint: String,
    pub(super) http: Http,
}

#[async_trait]
impl TokenSource for AzureTokens {
    async fn fetch(&self, now: Timestamp) -> Result<Token, Failure> {
        match &self.source {
            CredentialSource::Secret {
                tenant,
                client_id,
                secret,
            } => {
                let secret = read_secret(secret).await.map_err(Failure::NoCredentials)?;
                let form = [("client_secret", secret.expose())];
                self.sign_in(tenant, client_id, &form, now).await
            }
            CredentialSource::Certificate {
                tenant,
                client_id,
                file,
            } => {
                let audience = self.token_url(tenant);
                let assertion = assertion(file, &audience, client_id, now).await;
                let assertion = assertion.map_err(Failure::NoCredentials)?;
                let form = [
                    ("client_assertion_type", ASSERTION_TYPE),
                    ("client_assertion", assertion.expose()),
                ];
                self.sign_in(tenant, client_id, &form, now).await
            }
            CredentialSource::ManagedIdentity { client_id } => {
                self.managed_identity(client_id.as_deref(), now).await
            }
        }
    }
}

impl AzureTokens {
    fn token_url(&self, tenant: &str) -> String {
        format!("{}/{tenant}/oauth2/v2.0/token", self.login_endpoint)
    }

    async fn sign_in(
        &self,
        tenant: &str,
        client_id: &str,
        proof: &[(&str, &str)],
        now: Timestamp,
    ) -> Result<Token, Failure> {
        let scope = format!("{}/.default", self.endpoint);
        let mut form = vec![
            ("grant_type", "client_credentials"),
            ("client_id", client_id),
            ("scope", &scope),
        ];
        form.extend(proof);
        let client = self.http.client();
        let client = client.map_err(|error| Failure::NoTokenService(with_causes(&error)))?;
        let body = encode_form(&form);
        let request = client
            .post(self.token_url(tenant))
            .header("content-type", "application/x-www-form-urlencoded")
            .body(body);
        token_of(request, now).await
    }

    async fn managed_identity(
        &self,
        client_id: Option<&str>,
        now: Timestamp,
    ) -> Result<Token, Failure> {
        let mut query = vec![
            ("api-version", METADATA_VERSION),
            ("resource", &self.endpoint),
        ];
        query.extend(client_id.map(|id| ("client_id", id)));
        let client = self.http.client();
        let client = client.map_err(|error| Failure::NoTokenService(with_causes(&error)))?;
        let url = format!(
            "{}/metadata/identity/oauth2/token?{}",
            self.metadata_endpoint,
            encode_form(&query)
        );
        token_of(client.get(url).header("Metadata", "true"), now).await
    }
}

/// Asks for a token, and reads it.
async fn token_of(request: RequestBuilder, now: Timestamp) -> Result<Token, Failure> {
    let answer = request.send().await;
    let answer = answer.map_err(|error| Failure::NoTokenService(with_causes(&error)))?;
    let status = answer.status().as_u16();
    let body = read_body(answer, MAX_ANSWER_BYTES).await;
    let body = body.map_err(|error| Failure::NoTokenService(with_causes(&error)))?;
    let body: Value = serde_json::from_slice(&body).unwrap_or_default();
    if status != 200 {
        let text = |key: &str| body[key].as_str().unwrap_or_default();
        let (error, description) = (text("error"), text("error_description"));
        let error = format!("status {status} {error}: {description}");
        return Err(match status {
            400..=403 => Failure::NoCredentials(error),
            _ => Failure::NoTokenService(error),
        });
    }
    // The metadata service writes the number as text.
    let seconds = &body["expires_in"];
    let as_text = || seconds.as_str().and_then(|text| text.parse().ok());
    let seconds = seconds.as_i64().or_else(as_text);
    match (body["access_token"].as_str(), seconds) {
        (Some(token), Some(seconds)) => Ok(Token {
            secret: Secret::new(token),
            expires: now.plus_millis(seconds.clamp(0, 86_400) * SECOND_MS),
        }),
        (_, None) | (None, _) => Err(Failure::NoTokenService(
            "the answer of the token service has no token".to_owned(),
        )),
    }
}

async fn read_secret(secret: &SecretText) -> Result<Secret, String> {
    match secret {
        SecretText::Given(secret) => Ok(secret.clone()),
        SecretText::File(path) => {
            let text = read_file(path).await?;
            Ok(Secret::new(text.trim()))
        }
    }
}

async fn read_file(path: &Path) -> Result<String, String> {
    let text = read_bounded(path, MAX_FILE_BYTES).await;
    text.map_err(|error| format!("cannot read {}: {error}", path.display()))
}

/// A statement of the client, signed by the key in the file.
async fn assertion(
    path: &Path,
    audience: &str,
    client_id: &str,
    now: Timestamp,
) -> Result<Secret, String> {
    let pem = read_file(path).await?;
    let certificate = CertificateDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| format!("{} has no certificate: {error}", path.display()))?;
    let key = PrivateKeyDer::from_pem_slice(pem.as_bytes())
        .map_err(|error| format!("{} has no private key: {error}", path.display()))?;
    let key = match &key {
        PrivateKeyDer::Pkcs1(key) => KeyPair::from_der(key.secret_pkcs1_der()),
        PrivateKeyDer::Pkcs8(key) => KeyPair::from_pkcs8(key.secret_pkcs8_der()),
        PrivateKeyDer::Sec1(_) | _ => {
            return Err(format!("the key in {} is not of RSA", path.display()));
        }
    };
    let key = key.map_err(|error| format!("the key in {}: {error}", path.display()))?;
    let thumbprint = URL_SAFE_NO_PAD.encode(digest(&SHA256, &certificate));
    let seconds = now.as_millis() / SECOND_MS;
    let header = json!({"alg": "PS256", "typ": "JWT", "x5t#S256": thumbprint});
    let claims = json!({
        "aud": audience,
        "iss": client_id,
        "sub": client_id,
        "jti": format!("{thumbprint}-{}", now.as_millis()),
        "nbf": seconds,
        "exp": seconds + ASSERTION_SECONDS,
    });
    let encode = |part: &Value| URL_SAFE_NO_PAD.encode(part.to_string());
    let signed = format!("{}.{}", encode(&header), encode(&claims));
    let mut signature = vec![0; key.public_modulus_len()];
    key.sign(
        &RSA_PSS_SHA256,
        &SystemRandom::new(),
        signed.as_bytes(),
        &mut signature,
    )
    .map_err(|_| format!("cannot sign with the key in {}", path.display()))?;
    let signature = URL_SAFE_NO_PAD.encode(signature);
    Ok(Secret::new(format!("{signed}.{signature}")))
}

fn encode_form(pairs: &[(&str, &str)]) -> String {
    let escape = |text: &str| {
        percent_encoding::utf8_percent_encode(text, percent_encoding::NON_ALPHANUMERIC).to_string()
    };
    let pairs = pairs.iter();
    let pairs = pairs.map(|(name, value)| format!("{}={}", escape(name), escape(value)));
    pairs.collect::<Vec<_>>().join("&")
}
