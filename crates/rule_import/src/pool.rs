//! A worker pool as a deployment or a file describes it.

use domain::id::PoolId;
use serde::Deserialize;
use serde_json::{Value, json};

/// A pool with this provider is about to be removed.
const NULL_PROVIDER: &str = "null-provider";

/// The keys that are read; sources add others.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Pool {
    pub provider_id: String,
    #[serde(default)]
    pub description: String,
    pub owner: String,
    #[serde(default)]
    pub email_on_error: bool,
    pub config: Value,
    /// The configuration whose rules make the pool, if any and if the source reported it.
    #[serde(skip)]
    pub worker_configuration_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct WirePool {
    worker_pool_id: String,
    #[serde(flatten)]
    pool: Pool,
}

impl Pool {
    pub fn parse(document: Value) -> Result<(PoolId, Self), String> {
        let named: WirePool =
            serde_json::from_value(document).map_err(|problem| problem.to_string())?;
        let id = named.worker_pool_id.parse();
        let id: PoolId = id.map_err(|problem| format!("{problem}"))?;
        Ok((id, named.pool))
    }

    /// Whether its source is deleting it.
    pub fn is_being_deleted(&self) -> bool {
        self.provider_id == NULL_PROVIDER
    }

    /// The body of the request that creates or replaces it.
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
