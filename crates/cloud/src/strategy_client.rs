//! Asks a strategy service for a decision (docs/strategies.md), and checks its answer.
//!
//! The answer is checked against its schema here. Whether the pool can follow it is decided by the
//! planner.

#[cfg(test)]
mod tests;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use access::seal::Keyring;
use api_client::{BodyError, read_body};
use contract::Schemas;
use contract::numbers::as_javascript;
use domain::id::StrategyServiceId;
use domain::plan::Proposal;
use domain::text::one_line;
use domain::time::Clock;
use reqwest::Response;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::signed_client::{Address, SignedClient, chain};

const VERSION: u64 = 1;
const OPERATION: &str = "plan";
const ANSWER_SCHEMA: &str = "fleetwright/v1/strategy-response.json";
const MAX_TIME_LIMIT_SECONDS: u64 = 30;
const DEFAULT_MAX_ANSWER_BYTES: usize = 1024 * 1024;
const MAX_MAX_ANSWER_BYTES: usize = 16 * 1024 * 1024;
/// Longest text about an answer that goes into a plan.
const MAX_TEXT_CHARS: usize = 300;

/// The section `[strategies.<name>]`.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StrategySettings {
    /// The URL of the service, to which `/v1/plan` is added.
    pub url: String,
    /// The secret shared with the service. Set either this or `secret_file`.
    #[serde(default)]
    pub secret: Option<Secret>,
    #[serde(default)]
    pub secret_file: Option<PathBuf>,
    /// Time limit of a request, with its answer.
    #[serde(default = "default_time_limit")]
    pub time_limit_seconds: u64,
    /// Larger answers are invalid.
    #[serde(default = "default_max_answer")]
    pub max_answer_bytes: usize,
}

fn default_time_limit() -> u64 {
    3
}

fn default_max_answer() -> usize {
    DEFAULT_MAX_ANSWER_BYTES
}

impl StrategySettings {
    /// The key and the problem of the first invalid value.
    pub fn problem(&self) -> Option<(&'static str, String)> {
        let most = MAX_TIME_LIMIT_SECONDS;
        if !(1..=most).contains(&self.time_limit_seconds) {
            return Some(("time_limit_seconds", format!("must be from 1 to {most}")));
        }
        let most = MAX_MAX_ANSWER_BYTES;
        if !(1..=most).contains(&self.max_answer_bytes) {
            return Some(("max_answer_bytes", format!("must be from 1 to {most}")));
        }
        None
    }
}

/// The environment of every strategy client.
pub struct StrategyContext {
    pub schemas: Schemas,
    pub keyring: Arc<Keyring>,
    /// The URL where workers and clients reach the server, without a trailing slash.
    pub root_url: String,
    pub clock: Arc<dyn Clock>,
}

/// Why there is no valid answer. The text is for people.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AskError {
    /// The service does not work: it is late, unreachable, or reports an error.
    #[error("{0}")]
    Failed(String),
    /// The service works, and its answer is wrong.
    #[error("{0}")]
    Invalid(String),
}

pub struct StrategyClient {
    id: StrategyServiceId,
    settings: StrategySettings,
    client: SignedClient,
    schemas: Schemas,
    root_url: String,
}

impl StrategyClient {
    /// `Err`: which setting is wrong.
    pub fn new(
        id: StrategyServiceId,
        settings: StrategySettings,
        context: &StrategyContext,
    ) -> Result<Self, String> {
        let address = Address {
            section: format!("strategies.{id}"),
            id: id.to_string(),
            url: &settings.url,
            secret: settings.secret.as_ref(),
            secret_file: settings.secret_file.as_deref(),
            time_limit: Duration::from_secs(settings.time_limit_seconds),
        };
        let client = SignedClient::new(address, &context.keyring, &context.clock)?;
        Ok(Self {
            id,
            client,
            settings,
            schemas: context.schemas,
            root_url: context.root_url.clone(),
        })
    }

    pub fn id(&self) -> &StrategyServiceId {
        &self.id
    }

    /// Sends the view of a pool, and returns the valid answer.
    pub async fn ask(&self, mut request: Value) -> Result<Proposal, AskError> {
        request["version"] = json!(VERSION);
        request["deployment"] = json!(self.root_url);
        request["strategy"] = json!(self.id.as_str());
        let body = request.to_string().into_bytes();
        let asked = self.client.post(OPERATION, body).await;
        let response = asked.map_err(|error| AskError::Failed(self.lateness(&error)))?;
        let status = response.status();
        if !status.is_success() {
            let text = format!("it answered with the status {}", status.as_u16());
            return Err(AskError::Failed(text));
        }
        let answer = self.read(response).await?;
        self.check(answer)
    }

    async fn read(&self, response: Response) -> Result<Value, AskError> {
        let body = read_body(response, self.settings.max_answer_bytes).await;
        let body = body.map_err(|error| match error {
            BodyError::Broken(error) => AskError::Failed(self.lateness(&error)),
            BodyError::TooLong(most) => {
                AskError::Invalid(format!("its answer is longer than {most} bytes"))
            }
        })?;
        serde_json::from_slice(&body)
            .map_err(|error| AskError::Invalid(format!("its answer is not JSON: {error}")))
    }

    fn check(&self, mut answer: Value) -> Result<Proposal, AskError> {
        let invalid = |text: String| AskError::Invalid(shorten(&text));
        let version = answer.get("version").cloned().unwrap_or_default();
        if answer.is_object() && version.as_f64() != Some(1.0) {
            let text = format!(
                "its answer has the version {version}, and this program reads version {VERSION}"
            );
            return Err(invalid(text));
        }
        // Other languages print 3.0 for 3.
        as_javascript(&mut answer);
        let schemas = &self.schemas;
        schemas.check(ANSWER_SCHEMA, &answer).map_err(|wrong| {
            let problems = wrong.problems.iter().map(ToString::to_string);
            let problems: Vec<String> = problems.collect();
            invalid(format!("its answer is wrong: {}", problems.join(", ")))
        })?;
        if let Some(fields) = answer.as_object_mut() {
            fields.remove("version");
        }
        let proposal: Proposal = serde_json::from_value(answer)
            .map_err(|error| invalid(format!("its answer is wrong: {error}")))?;
        Ok(proposal.with_printable_reasons())
    }

    fn lateness(&self, error: &reqwest::Error) -> String {
        if error.is_timeout() {
            let seconds = self.settings.time_limit_seconds;
            return format!("no answer within {seconds} s");
        }
        chain(error)
    }
}

/// Texts may contain parts of the answer: they become one bounded line.
fn shorten(text: &str) -> String {
    one_line(text, MAX_TEXT_CHARS)
}
