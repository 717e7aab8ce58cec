//! A provider under test, for the suites of all providers.

use async_trait::async_trait;
use domain::id::ProviderId;
use domain::launch::Cause;
use domain::time::Timestamp;
use domain::worker::Worker;
use serde_json::Value;

use crate::{Proof, Provider};

/// A provider, and the values that its tests need.
#[async_trait]
pub(crate) trait Fixture: Sync {
    /// The provider, set up and without machines.
    fn provider(&self) -> &dyn Provider;

    fn id(&self) -> ProviderId;

    fn root_url(&self) -> String;

    fn now(&self) -> Timestamp;

    /// A valid pool config with at least one launch config; the first one is launched.
    fn config(&self) -> Value;

    /// A pointer into the config to a default that the provider writes and that `config` lacks.
    fn default_pointer(&self) -> Option<&'static str>;

    /// An invalid config, and the pointer that the refusal must name.
    fn wrong_config(&self) -> (Value, &'static str);

    /// A launch config that is valid but cannot be launched, and the cause.
    fn unlaunchable(&self) -> Option<(Value, Cause)>;

    /// The proof of this worker, and of no other.
    fn proof(&self, worker: &Worker) -> Proof;

    /// A machine that exists and is not ours, as a worker of ours; `None`: no such machine can
    /// exist.
    async fn foreigner(&self) -> Option<Worker>;

    /// Whether that machine still exists.
    async fn foreigner_lives(&self, _worker: &Worker) -> bool {
        true
    }

    /// The id of a worker that never existed.
    fn unknown_id(&self) -> &'static str {
        "nobody"
    }

    /// Lets the cloud continue. Called repeatedly until the expected state is reached.
    async fn settle(&self);
}
