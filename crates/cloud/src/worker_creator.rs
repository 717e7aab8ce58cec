//! The trait of providers that make single workers when people ask for them (`createWorker`).

use async_trait::async_trait;
use domain::id::{LaunchToken, WorkerKey};
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::worker::Worker;
use serde_json::{Map, Value};

use crate::cloud_error::CloudError;

/// A request for one worker.
pub struct WorkerOrder<'a> {
    /// Marks the machine, as that of a launch. It is the same if the request is repeated.
    pub token: &'a LaunchToken,
    pub pool: &'a Pool,
    pub key: &'a WorkerKey,
    pub launch_config: Option<&'a LaunchConfig>,
    pub capacity: u32,
    /// The parameters of the request, which only the provider reads.
    pub parameters: &'a Map<String, Value>,
    /// The data that the provider keeps for the pool.
    pub pool_data: &'a Value,
}

/// Makes a machine for a worker whose name is given. An ordinary end removes it.
#[async_trait]
pub trait WorkerCreator: Send + Sync {
    /// Makes the worker's machine. Calling twice for one worker must not make two. Returns the
    /// provider's data of the worker.
    async fn create_worker(&self, order: &WorkerOrder<'_>) -> Result<Value, CloudError>;

    /// Changes a worker. Returns its data.
    async fn update_worker(
        &self,
        worker: &Worker,
        parameters: &Map<String, Value>,
    ) -> Result<Value, CloudError>;
}
