//! Authenticates each request by an outside Taskcluster auth service, over HTTP.

use std::sync::Arc;
use std::time::Duration;

use access::scope::ScopeSet;
use async_trait::async_trait;
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{AuthenticationError, Authenticator, Caller, RequestToAuthenticate};

/// Time limit of the auth service's answer.
const TIME_LIMIT: Duration = Duration::from_secs(15);

pub struct RemoteAuthenticator {
    url: String,
    http: reqwest::Client,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Question<'a> {
    method: String,
    resource: &'a str,
    host: &'a str,
    port: u16,
    #[serde(skip_serializing_if = "Option::is_none")]
    authorization: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_ip: Option<&'a str>,
}

#[derive(Deserialize)]
#[serde(tag = "status", rename_all = "kebab-case")]
enum Answer {
    #[serde(rename_all = "camelCase")]
    AuthSuccess {
        client_id: String,
        scopes: Vec<String>,
        expires: String,
        hash: Option<String>,
    },
    NoAuth {
        scopes: Vec<String>,
        expires: String,
    },
    AuthFailed {
        message: String,
    },
}

impl RemoteAuthenticator {
    /// `root_url` is that of the Taskcluster deployment.
    pub fn new(root_url: &str) -> Result<Self, reqwest::Error> {
        let http = reqwest::Client::builder()
            .timeout(TIME_LIMIT)
            .redirect(reqwest::redirect::Policy::none())
            .build()?;
        Ok(Self {
            url: format!("{root_url}/api/auth/v1/authenticate-hawk"),
            http,
        })
    }

    async fn ask(&self, question: &Question<'_>) -> Result<Answer, reqwest::Error> {
        let reply = self.http.post(&self.url).json(question).send().await?;
        if reply.status() == reqwest::StatusCode::BAD_REQUEST {
            // The auth service refuses requests that it cannot parse, for example with an invalid
            // host.
            let message = "Bad Request: the auth service cannot make sense of this request";
            return Ok(Answer::AuthFailed {
                message: message.to_owned(),
            });
        }
        reply.error_for_status()?.json().await
    }

    fn unreachable(&self, problem: &reqwest::Error) -> AuthenticationError {
        tracing::error!(auth.url = %self.url, error = %problem,
            "the auth service did not answer: {problem}");
        AuthenticationError::NoAnswer("The auth service cannot be asked at the moment")
    }

    fn expires(&self, text: &str) -> Result<Timestamp, AuthenticationError> {
        text.parse().map_err(|_| {
            tracing::error!(auth.url = %self.url, "the auth service sent a bad date: {text:?}");
            AuthenticationError::NoAnswer("The auth service sent a bad answer")
        })
    }
}

#[async_trait]
impl Authenticator for RemoteAuthenticator {
    async fn authenticate(
        &self,
        request: &RequestToAuthenticate,
        _now: Timestamp,
    ) -> Result<Caller, AuthenticationError> {
        let question = Question {
            method: request.method.to_lowercase(),
            resource: &request.resource,
            host: &request.host,
            port: request.port,
            authorization: request.authorization.as_deref(),
            source_ip: Some(request.source_ip.as_str()).filter(|ip| !ip.is_empty()),
        };
        let caller = |scopes: Vec<String>, expires: String| {
            let scopes = Arc::new(ScopeSet::new(scopes));
            Ok(Caller::anonymous(scopes, self.expires(&expires)?))
        };
        let answer = self.ask(&question).await;
        match answer.map_err(|problem| self.unreachable(&problem))? {
            Answer::AuthFailed { message } => Err(AuthenticationError::Refused(message)),
            Answer::NoAuth { scopes, expires } => caller(scopes, expires),
            Answer::AuthSuccess {
                client_id,
                scopes,
                expires,
                hash,
            } => Ok(Caller {
                client_id: Some(client_id),
                payload_hash: hash,
                ..caller(scopes, expires)?
            }),
        }
    }
}
