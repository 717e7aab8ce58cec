//! The provider protocol over HTTP: signed requests to a service.
//!
//! Each request is a POST to `<url>/v1/<operation>`, with a Hawk signature that covers its body. So
//! the service can check the sender and the content. Responses are trusted as far as TLS is.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::OnceLock;
use std::time::Duration;

use access::Secret;
use api_client::{BodyError, read_body};
use async_trait::async_trait;
use domain::launch::Cause;
use reqwest::StatusCode;
use serde::Deserialize;

use crate::protocol::{Answer, Failure, MAX_ANSWER_BYTES, Operation, ProtocolProvider, Transport};
use crate::signed_client::{Address, SignedClient, chain};
use crate::{ConfiguredRegion, ProviderContext};

const DEFAULT_TIME_LIMIT_SECONDS: u64 = 30;

#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExternalSettings {
    /// The URL of the service, to which `/v1/<operation>` is added.
    pub url: String,
    /// The secret shared with the service. Set either this or `secret_file`.
    #[serde(default)]
    pub secret: Option<Secret>,
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Time limit of every call.
    #[serde(default = "default_time_limit")]
    pub time_limit_seconds: u64,
    /// The region of places that have none. Default: the id of the provider.
    #[serde(default)]
    pub region: Option<ConfiguredRegion>,
}

fn default_time_limit() -> u64 {
    DEFAULT_TIME_LIMIT_SECONDS
}

/// A provider behind an HTTP service.
pub type ExternalProvider = ProtocolProvider<Service>;

pub struct Service {
    context: ProviderContext,
    settings: ExternalSettings,
    /// Set once the provider is set up.
    client: OnceLock<SignedClient>,
}

impl ExternalProvider {
    pub fn new(context: ProviderContext, settings: ExternalSettings) -> Self {
        let service = Service {
            context: context.clone(),
            settings,
            client: OnceLock::new(),
        };
        Self::new_over(context, service)
    }
}

impl Service {
    fn connect(&self) -> Result<SignedClient, String> {
        let (context, settings) = (&self.context, &self.settings);
        let address = Address {
            section: format!("providers.{}", context.id),
            id: context.id.to_string(),
            url: &settings.url,
            secret: settings.secret.as_ref(),
            secret_file: settings.secret_file.as_deref(),
            time_limit: Duration::from_secs(settings.time_limit_seconds),
        };
        SignedClient::new(address, &context.keyring, &context.clock)
    }
}

#[async_trait]
impl Transport for Service {
    fn kind(&self) -> &'static str {
        "external"
    }

    fn region(&self) -> Option<&ConfiguredRegion> {
        self.settings.region.as_ref()
    }

    fn schema(&self) -> &'static str {
        "fleetwright/v1/config-external.json"
    }

    async fn prepare(&self) -> Result<(), String> {
        if self.client.get().is_none() {
            let client = self.connect()?;
            // Two set-ups may run at the same time; either result is valid.
            let _ = self.client.set(client);
        }
        Ok(())
    }

    async fn send(&self, operation: Operation, question: Vec<u8>) -> Result<Answer, Failure> {
        let client = self
            .client
            .get()
            .ok_or_else(|| Failure::not_sent("the provider is not set up"))?;
        let asked = client.post(operation.as_str(), question).await;
        let response = asked.map_err(|error| {
            let text = format!("{}: {}", operation.as_str(), chain(&error));
            if error.is_connect() || error.is_builder() {
                Failure::not_sent(text)
            } else {
                Failure::Lost(text)
            }
        })?;
        let status = response.status();
        let body = read_body(response, MAX_ANSWER_BYTES).await;
        let body = body.map_err(|error| {
            let text = match &error {
                BodyError::Broken(error) => chain(error),
                BodyError::TooLong(most) => format!("the response is longer than {most} bytes"),
            };
            Failure::Lost(format!("{}: {text}", operation.as_str()))
        })?;
        Ok(Answer {
            done: status.is_success(),
            body,
            outline: format!("status {}", status.as_u16()),
            cause: cause_of(status),
            log: None,
        })
    }
}

/// The cause that a status alone shows.
fn cause_of(status: StatusCode) -> Option<Cause> {
    match status.as_u16() {
        401 | 403 => Some(Cause::Credentials),
        429 => Some(Cause::Throttled),
        _ => None,
    }
}
