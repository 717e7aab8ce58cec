//! Single workers that a provider of the operator makes, and the resources that it keeps for pools.
//!
//! All of these operations are optional: the answer to `setup` lists those that it knows.

use async_trait::async_trait;
use domain::id::PoolId;
use domain::pool::Pool;
use domain::worker::Worker;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::messages::{self, OptionalOperation};
use super::transport::{Operation, Transport};
use super::{ProtocolProvider, shorten};
use crate::{CloudError, PoolResourceMaker, WorkerCreator, WorkerOrder};

/// Longest data that a provider keeps for a pool or a worker.
pub(super) const MAX_DATA_BYTES: usize = 65_536;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct WorkerBody {
    #[serde(default)]
    provider_data: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
struct PoolBody {
    #[serde(default)]
    data: Map<String, Value>,
}

#[async_trait]
impl<C: Transport> WorkerCreator for ProtocolProvider<C> {
    async fn create_worker(&self, order: &WorkerOrder<'_>) -> Result<Value, CloudError> {
        let key = order.key;
        let mut question = json!({
            "token": order.token.as_str(),
            "workerPoolId": key.pool_id.as_str(),
            "workerGroup": key.group.as_str(),
            "workerId": key.id.as_str(),
            "capacity": order.capacity,
            "parameters": order.parameters,
            "proof": {"token": self.tokens.token(key).expose()},
            "staticSecret": self.tokens.static_secret(key).expose(),
        });
        if let Some(config) = order.launch_config {
            question["launchConfigId"] = json!(config.id.as_str());
            question["launchConfig"] = json!(config.configuration);
        }
        messages::add_pool_data(&mut question, order.pool_data);
        let body: WorkerBody = self.ask(Operation::CreateWorker, question).await?;
        bounded(Operation::CreateWorker, body.provider_data)
    }

    async fn update_worker(
        &self,
        worker: &Worker,
        parameters: &Map<String, Value>,
    ) -> Result<Value, CloudError> {
        if !self.knows(OptionalOperation::UpdateWorker) {
            let text = "the provider does not change workers (it does not list update-worker)";
            return Err(CloudError::Refused(text.to_owned()));
        }
        let question = json!({"worker": messages::worker(worker), "parameters": parameters});
        let body: WorkerBody = self.ask(Operation::UpdateWorker, question).await?;
        bounded(Operation::UpdateWorker, body.provider_data)
    }
}

#[async_trait]
impl<C: Transport> PoolResourceMaker for ProtocolProvider<C> {
    async fn prepare_pool(&self, pool: &Pool, data: &Value) -> Result<Value, CloudError> {
        let mut question = json!({
            "workerPoolId": pool.id.as_str(),
            "config": pool.definition.config,
        });
        add_data(&mut question, data);
        let body: PoolBody = self.ask(Operation::PreparePool, question).await?;
        bounded(Operation::PreparePool, body.data)
    }

    async fn release_pool(&self, pool_id: &PoolId, data: &Value) -> Result<(), CloudError> {
        let mut question = json!({"workerPoolId": pool_id.as_str()});
        add_data(&mut question, data);
        let _: Value = self.ask(Operation::ReleasePool, question).await?;
        Ok(())
    }
}

#[expect(private_bounds, reason = "a transport is a detail of this crate")]
impl<C: Transport> ProtocolProvider<C> {
    /// Whether the provider listed an optional operation in its last description.
    pub(super) fn knows(&self, operation: OptionalOperation) -> bool {
        self.description().operations.contains(&operation)
    }
}

fn add_data(question: &mut Value, data: &Value) {
    if let Value::Object(data) = data {
        question["data"] = json!(data);
    }
}

fn bounded(operation: Operation, data: Map<String, Value>) -> Result<Value, CloudError> {
    let data = Value::Object(data);
    let n_bytes = data.to_string().len();
    if n_bytes > MAX_DATA_BYTES {
        let operation = operation.as_str();
        return Err(CloudError::Unavailable(shorten(&format!(
            "the response to {operation} has {n_bytes} bytes of data, and {MAX_DATA_BYTES} are the \
             limit"
        ))));
    }
    Ok(data)
}
