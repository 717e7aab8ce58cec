//! A worker pool as a deployment or a file gives it.

use domain::id::PoolId;
use serde::Deserialize;
use serde_json::{Value, json};

/// A pool with this provider is about to be removed.
const NULL_PROVIDER: &str = "null-provider";

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub provider_id: String,
    pub description: String,
    pub owner: String,
    pub email_on_error: bool,
    pub config: Value,
    /// The configuration whose rules make the pool, if one does and the source was asked.
    pub worker_configuration_id: Option<String>,
}

/// The keys that are read; sources add others.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePool {
    worker_pool_id: String,
    provider_id: String,
    #[serde(default)]
    description: String,
    owner: String,
    #[serde(default)]
    email_on_error: bool,
    config: Value,
}

impl Pool {
    pub fn parse(document: Value) -> Result<(PoolId, Self), String> {
        let wire: WirePool =
            serde_json::from_value(document).map_err(|problem| problem.to_string())?;
        let id: PoolId = wire
            .worker_pool_id
            .parse()
            .map_err(|problem| format!("{problem}"))?;
        let pool = Self {
            provider_id: wire.provider_id,
            description: wire.description,
            owner: wire.owner,
            email_on_error: wire.email_on_error,
            config: wire.config,
            worker_configuration_id: None,
        };
        Ok((id, pool))
    }

    /// Whether its source is deleting it.
    pub fn is_being_deleted(&self) -> bool {
        self.provider_id == NULL_PROVIDER
    }

    /// The body that creates it, or replaces it.
    pub fn body(&self) -> Value {
        json!({
            "providerId": self.provider_id,
            "description": self.description,
            "owner": self.owner,
            "emailOnError": self.email_on_error,
            "config": self.config,
        })
    }
}
