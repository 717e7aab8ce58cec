//! Temporary credentials, as the server returns them for a worker and for a task.

use access::Secret;
use access::certificate::Certificate;
use access::hawk::extension;
use serde::Deserialize;
use serde_json::{Value, json};

/// Credentials for signing requests.
#[derive(Clone, Debug, Deserialize)]
#[serde(try_from = "CredentialsBody")]
pub(crate) struct Credentials {
    pub(crate) signing: api_client::Credentials,
    /// The certificate as it was received, to be stored.
    certificate: Option<String>,
}

/// The form in replies and in the state file.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CredentialsBody {
    client_id: String,
    access_token: Secret,
    /// JSON in a string.
    #[serde(default)]
    certificate: Option<String>,
}

#[derive(Debug, thiserror::Error)]
#[error("the certificate of {client_id} is damaged")]
struct BadCertificate {
    client_id: String,
}

impl Credentials {
    /// The form for the worker's state file, which only its owner can read.
    pub(crate) fn to_stored(&self) -> Value {
        let mut stored = json!({
            "clientId": self.signing.client_id,
            "accessToken": self.signing.access_token.expose(),
        });
        if let Some(certificate) = &self.certificate {
            stored["certificate"] = json!(certificate);
        }
        stored
    }
}

impl TryFrom<CredentialsBody> for Credentials {
    type Error = BadCertificate;

    fn try_from(body: CredentialsBody) -> Result<Self, BadCertificate> {
        let certificate: Option<Certificate> = body
            .certificate
            .as_deref()
            .map(serde_json::from_str)
            .transpose()
            // The parser's message may quote the certificate.
            .map_err(|_| BadCertificate {
                client_id: body.client_id.clone(),
            })?;
        let signing = api_client::Credentials {
            client_id: body.client_id,
            access_token: body.access_token,
            extension: extension(certificate.as_ref(), None),
        };
        Ok(Self {
            signing,
            certificate: body.certificate,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(body: Value) -> Result<Credentials, serde_json::Error> {
        serde_json::from_value(body)
    }

    #[test]
    fn stored_credentials_are_read_back_unchanged() {
        let certificate = json!({"version": 1, "scopes": ["a"], "start": 1, "expiry": 2,
            "seed": "s", "signature": "x", "issuer": "i"});
        let body =
            json!({"clientId": "w", "accessToken": "t", "certificate": certificate.to_string()});
        let credentials = read(body.clone()).unwrap();
        assert!(credentials.signing.extension.is_some());
        assert_eq!(credentials.to_stored(), body);
    }

    #[test]
    fn a_damaged_certificate_is_named_without_its_content() {
        let body = json!({"clientId": "w", "accessToken": "t", "certificate": "{\"seed\": 12345"});
        let problem = read(body).unwrap_err();
        assert_eq!(problem.to_string(), "the certificate of w is damaged");
        assert!(!format!("{problem:?}").contains("12345"));
    }
}
