//! The trait of providers that keep resources for each pool, such as a network or a group.

use async_trait::async_trait;
use domain::id::PoolId;
use domain::pool::Pool;
use serde_json::Value;

use crate::cloud_error::CloudError;

/// Makes and removes the resources of pools. Name them after the pool, so that they are found
/// again without data.
#[async_trait]
pub trait PoolResourceMaker: Send + Sync {
    /// Makes the resources of a pool, before anything is launched there. May be called again with
    /// the data of the last time (`null` at first), and by two processes at once; it never makes a
    /// second set. Returns the data that launches and `release_pool` get.
    async fn prepare_pool(&self, pool: &Pool, data: &Value) -> Result<Value, CloudError>;

    /// Removes the resources of a pool that has left the provider or was deleted, once no machine
    /// of it is left. May be called again, and succeeds if there is none. The data is `null` if it
    /// is not known whether they were made.
    async fn release_pool(&self, pool_id: &PoolId, data: &Value) -> Result<(), CloudError>;
}
