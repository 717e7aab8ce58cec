//! The first pool of a new installation: worker processes on this machine.

use serde_json::{Value, json};

use crate::client::Client;
use crate::code::Kind;
use crate::failure::Failure;

pub(crate) const FIRST_POOL: &str = "local/default";
pub(crate) const FIRST_POOL_OWNER: &str = "owner@localhost.localdomain";
pub(crate) const LOCAL_PROVIDER: &str = "local";
/// Seconds that a worker without tasks waits before it stops.
pub(super) const IDLE_SECONDS: u32 = 60;

/// Creates the pool. Called only on the first start: a deleted pool is not created again.
pub(super) async fn make(client: &Client) -> Result<(), Failure> {
    let call = Kind::WorkerPool.create_call(FIRST_POOL, definition());
    let call = call.to(format!("create the first pool, {FIRST_POOL}"));
    client.call(&call).await.map(drop)
}

fn definition() -> Value {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    json!({
        "providerId": LOCAL_PROVIDER,
        "description": "Worker processes on this machine",
        "owner": FIRST_POOL_OWNER,
        "emailOnError": false,
        "config": {
            "minCapacity": 0,
            "maxCapacity": cores,
            "launchConfigs": [
                {"workerConfig": {"fleetwright": {"idleTimeoutSeconds": IDLE_SECONDS}}}
            ],
        },
    })
}
