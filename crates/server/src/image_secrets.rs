//! Secrets of the secrets service, for builds of images.

use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use api_client::{Call, CallError, Client, Credentials, Options, SECRETS, Stamp, with_causes};
use async_trait::async_trait;
use domain::id::ImageName;
use domain::image::ImageDefinition;
use domain::time::Clock;
use engine::Engine;
use engine::access::secret;
use engine::random::Random;
use images::SecretsReader;
use serde_json::Value;

use crate::config::{Config, ConfigError};

const CALL_LIMIT: Duration = Duration::from_secs(20);
/// Values have at most a MiB.
const MAX_REPLY_BYTES: usize = 2 << 20;

/// Reads the database of a server.
pub(crate) struct EngineSecrets(pub(crate) Arc<Engine>);

#[async_trait]
impl SecretsReader for EngineSecrets {
    /// A node of the tree could name any secret. The database has the definition for whose secrets
    /// its author showed scopes.
    async fn read(&self, image: &ImageName, name: &str) -> Result<Secret, String> {
        let engine = &self.0;
        let id = image.clone();
        let read = engine
            .store
            .read("image_get", move |tx| store::images::get(tx, &id));
        let stored = read.await.map_err(|error| with_causes(&error))?;
        let definition = stored.and_then(|it| ImageDefinition::parse(&it.document).ok());
        let mut known = definition.iter().flat_map(|it| &it.service_secrets);
        if !known.any(|secret| secret.secret == name) {
            return Err(format!(
                "the definition of image {image} does not name it now"
            ));
        }
        let value = secret(engine, name.to_owned(), engine.clock.now()).await;
        value
            .map(|(value, _)| value)
            .map_err(|error| with_causes(&error))
    }
}

/// Reads the API of a server, for a builder of its own.
pub(crate) struct ApiSecrets {
    client: Client,
    credentials: Credentials,
}

/// For a builder without a client.
pub(crate) struct NoSecrets;

#[async_trait]
impl SecretsReader for NoSecrets {
    async fn read(&self, _image: &ImageName, _name: &str) -> Result<Secret, String> {
        Err("the configuration of this builder has no images.secrets_client".to_owned())
    }
}

/// The source of a builder of its own.
pub(crate) fn of_builder(
    config: &Config,
    clock: &Arc<dyn Clock>,
    random: &Arc<Random>,
) -> Result<Arc<dyn SecretsReader>, ConfigError> {
    let Some(settings) = &config.images.secrets_client else {
        return Ok(Arc::new(NoSecrets));
    };
    let wrong = |problem: String| ConfigError::value("images.secrets_client", problem);
    let file = settings.access_token_file.display();
    let token = std::fs::read_to_string(&settings.access_token_file)
        .map_err(|error| wrong(format!("{file} cannot be read: {error}")))?;
    let url = api_client::parse_root_url(&config.root_url());
    let url = url.map_err(|error| wrong(error.to_string()))?;
    let (clock, random) = (Arc::clone(clock), Arc::clone(random));
    let options = Options {
        user_agent: None,
        call_limit: CALL_LIMIT,
        max_reply_bytes: MAX_REPLY_BYTES,
        stamp: Box::new(move || Stamp {
            seconds: clock.now().as_millis() / 1_000,
            nonce: random.slugid(),
        }),
        observer: None,
    };
    let client = Client::new(url, options).map_err(|error| wrong(with_causes(&error)))?;
    Ok(Arc::new(ApiSecrets {
        client,
        credentials: Credentials {
            client_id: settings.client_id.clone(),
            access_token: Secret::new(token.trim()),
            extension: None,
        },
    }))
}

#[async_trait]
impl SecretsReader for ApiSecrets {
    async fn read(&self, _image: &ImageName, name: &str) -> Result<Secret, String> {
        let call = Call::get(SECRETS, &["secret", name]);
        let credentials = Some(&self.credentials);
        let mut once = |_: &CallError| None;
        let reply = self.client.call::<Value>(&call, credentials, &mut once);
        let reply = reply.await.map_err(|error| problem(&error))?;
        Ok(Secret::new(reply["secret"].to_string()))
    }
}

fn problem(error: &CallError) -> String {
    match error {
        CallError::Refused(refusal) => {
            let message = refusal.message().unwrap_or_default();
            let first = message.lines().next().unwrap_or_default();
            format!("the server answers {}: {first}", refusal.status)
        }
        CallError::NoAnswer(_) | CallError::BadReply(_) => with_causes(error),
    }
}
