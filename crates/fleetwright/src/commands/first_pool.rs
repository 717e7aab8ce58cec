//! The pool that a new installation begins with: worker processes on this machine.

use api_client::Credentials;
use serde_json::{Value, json};

use crate::client::{Call, Client, Settings, WORKER_MANAGER};
use crate::failure::Failure;

pub(crate) const FIRST_POOL: &str = "local/default";
pub(crate) const FIRST_POOL_OWNER: &str = "owner@localhost.localdomain";
pub(crate) const LOCAL_PROVIDER: &str = "local";
/// Seconds that a worker waits for a further task before it leaves.
const IDLE_SECONDS: u32 = 60;

/// Made once, by the first start; whoever deletes it is not given another.
pub(super) async fn make(root_url: String, credentials: Credentials) -> Result<(), Failure> {
    let settings = Settings {
        root_url,
        credentials: Some(credentials),
    };
    let client = Client::new(settings, false)?;
    let call = Call::put(WORKER_MANAGER, &["worker-pool", FIRST_POOL], definition());
    let call = call.to(format!("make the first worker pool, {FIRST_POOL}"));
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
