//! The trait behind which every cloud and datacentre stands.

use access::Secret;
use async_trait::async_trait;
use contract::Invalid;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use serde_json::Value;

/// Makes workers, knows them again, and ends them. Constructors do no I/O and cannot fail.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The `providerType` that clients see.
    fn kind(&self) -> &'static str;

    /// Checks a pool's config, and writes defaults into it.
    fn validate(&self, config: &mut Value) -> Result<(), Invalid>;

    /// Gets ready. May be called again and again, side by side; failing takes only this provider
    /// out of service, until the next try.
    async fn setup(&self) -> Result<(), SetupFailed> {
        Ok(())
    }

    /// Is the caller the worker that it claims to be?
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, ProofRefused>;

    /// Ends a worker, and says what it is from now on. Gone already is success.
    async fn end(&self, worker: &Worker) -> Result<WorkerState, Refused>;

    /// For providers whose workers are declared by people.
    fn by_hand(&self) -> Option<&dyn ByHand> {
        None
    }
}

/// Workers that are declared by people instead of launched by us.
pub trait ByHand: Send + Sync {
    /// What to remember about a new or changed worker, from the `providerInfo` of the request.
    fn describe(
        &self,
        worker: &Worker,
        provider_info: Option<&Value>,
    ) -> Result<Descriptor, Refused>;
}

/// What a provider remembers about a worker that was declared by hand.
#[derive(Debug)]
pub struct Descriptor {
    pub provider_data: Value,
    /// The state of a worker that was just declared.
    pub state: WorkerState,
}

/// Somebody says: I am this worker.
pub struct IdentityClaim<'a> {
    pub pool: &'a Pool,
    pub worker: &'a Worker,
    pub proof: &'a Proof,
    pub now: Timestamp,
}

/// The evidence for it.
#[derive(Debug)]
pub enum Proof {
    /// A token signed by the cloud.
    Token(Secret),
    /// A secret that was agreed on beforehand.
    StaticSecret(Secret),
    /// A document and its detached signature.
    SignedDocument { document: Value, signature: Secret },
    /// A document that carries its signature.
    Document(Value),
}

/// The claim is true.
#[derive(Debug, PartialEq)]
pub struct Verified {
    /// What the worker is from now on.
    pub state: WorkerState,
    /// How long its credentials last.
    pub lasts_ms: i64,
    /// What the worker is told to be.
    pub worker_config: Value,
}

/// The claim is not proved. The message goes to the caller, the detail to our log only.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProofRefused {
    pub message: &'static str,
    pub detail: String,
}

/// The provider does not do this.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Refused(pub String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupFailed(pub String);

impl Refused {
    pub fn not_supported() -> Self {
        Self("not supported for this provider".to_owned())
    }
}
