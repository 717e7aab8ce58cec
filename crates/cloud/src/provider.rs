//! The trait behind which every cloud and datacentre stands.

use std::collections::BTreeMap;

use access::Secret;
use async_trait::async_trait;
use contract::Invalid;
use domain::id::{LaunchToken, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{Worker, WorkerState};
use serde_json::Value;

use crate::place::{Fills, Place, PlacesUnknown};

/// Makes workers, knows them again, and ends them. Constructors do no I/O and cannot fail.
///
/// Every call that goes outside has a time limit of its own and returns; none is repeated inside: the next
/// activation of the task that made it is the retry.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The `providerType` that clients see.
    fn kind(&self) -> &'static str;

    /// Checks a pool's config, and writes defaults into it.
    fn validate(&self, config: &mut Value) -> Result<(), Invalid>;

    /// Checks what only the other side can judge, and writes its defaults. Called by handlers, after `validate` has
    /// found nothing.
    async fn validate_outside(&self, _config: &mut Value) -> Result<(), NotValidated> {
        Ok(())
    }

    /// Gets ready. May be called again and again, side by side; failing takes only this provider
    /// out of service, until the next try.
    async fn setup(&self) -> Result<(), SetupFailed> {
        Ok(())
    }

    /// Is the caller the worker that it claims to be? An outage is not a no.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, NotVerified>;

    /// Where workers can be started, as conditions that hold together, for rules to ask about: in an order that stays, from
    /// memory, without a call outside. None: there is nothing to choose.
    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        Ok(Vec::new())
    }

    /// Where in a launch config the value of a condition belongs, unless a rule puts something else there.
    fn fills(&self) -> Fills {
        Fills::new()
    }

    /// For providers whose workers are declared by people.
    fn by_hand(&self) -> Option<&dyn ByHand> {
        None
    }

    /// For providers that make machines.
    fn machines(&self) -> Option<&dyn Machines> {
        None
    }
}

/// Makes and destroys machines. Knows nothing of demand, of limits on pools, or of the database.
#[async_trait]
pub trait Machines: Send + Sync {
    /// The most machines that there may be at a time, over all pools; `None`: no limit of ours.
    fn max_machines(&self) -> Option<u64> {
        None
    }

    /// What each launch config would give, in their order: from what is known already, without a call outside.
    fn bids(&self, ask: &BidRequest<'_>) -> Vec<Result<Bid, String>> {
        let plain = |_: &LaunchConfig| Ok(Bid::plain(String::new()));
        ask.launch_configs.iter().map(plain).collect()
    }

    /// Brings up to date what `bids` and `places` speak from (prices, say). Called now and then. Places that cannot be
    /// brought up to date stay as they were, and are told of here, once: the error is about bids.
    async fn refresh(&self) -> Result<(), CloudError> {
        Ok(())
    }

    /// Makes up to so many machines. Calling twice with one token must not make more. Some may be made and others
    /// not; none made is an error.
    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError>;

    /// How the machines of these workers are, at most `look_batch` of them. A worker that is not in the answer
    /// has not been seen either way.
    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError>;

    /// How many workers `look` takes at a time.
    fn look_batch(&self) -> usize {
        100
    }

    /// Every machine that carries our mark (this deployment's and this provider's), unless it is gone: also those
    /// that we forgot. An error only if none of it can be listed.
    async fn owned(&self) -> Result<Listing, CloudError>;

    /// In which group the machines of this launch config are; `None`: that is not known beforehand.
    fn group(&self, _launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        None
    }

    /// Ends the machine. May be called again; gone already is success.
    async fn end(&self, worker: &Worker) -> Result<(), CloudError>;
}

/// What would you give for these?
pub struct BidRequest<'a> {
    pub pool_id: &'a PoolId,
    pub launch_configs: &'a [LaunchConfig],
    pub now: Timestamp,
}

/// Make machines.
pub struct LaunchOrder<'a> {
    pub token: &'a LaunchToken,
    pub pool: &'a Pool,
    pub launch_config: &'a LaunchConfig,
    /// At least 1.
    pub machines: u32,
    pub capacity_each: u32,
    /// The most to pay per hour and machine.
    pub max_price: Option<f64>,
    /// Where the machines find us.
    pub root_url: &'a str,
    pub now: Timestamp,
}

/// One machine that was made.
#[derive(Clone, Debug, PartialEq)]
pub struct Launched {
    pub group: WorkerGroup,
    pub id: WorkerId,
    /// Belongs to the provider; nobody else reads it.
    pub provider_data: Value,
}

/// How a machine was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sighting {
    /// It is there, or coming up.
    Alive,
    /// It is on its way out.
    Going,
    /// It was there and is gone, with what is known of why.
    Gone(Option<String>),
    /// There is no such machine. Of one that was just made this says nothing yet.
    NotFound,
}

/// A machine that carries our mark.
#[derive(Clone, Debug, PartialEq)]
pub struct Owned {
    /// Which launch made it; `None`: the mark does not say (then we leave it alone).
    pub token: Option<LaunchToken>,
    pub machine: Launched,
}

/// What of ours there is, as far as it could be listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    pub machines: Vec<Owned>,
    /// Groups that could not be listed, and why. Nothing can be concluded about a machine that may be there.
    pub missing: BTreeMap<WorkerGroup, CloudError>,
}

impl Listing {
    /// Nothing is missing.
    pub fn whole(machines: Vec<Owned>) -> Self {
        Self {
            machines,
            missing: BTreeMap::new(),
        }
    }

    /// Whether machines of this group would be listed; `None`: of any group.
    pub fn covers(&self, group: Option<&WorkerGroup>) -> bool {
        match group {
            Some(group) => !self.missing.contains_key(group),
            None => self.missing.is_empty(),
        }
    }
}

/// A call to a cloud did not do what it should, by what to do next.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CloudError {
    /// We ask too often.
    #[error("the cloud asks to slow down: {0}")]
    Throttled(String),
    /// A person must look at our credentials.
    #[error("the cloud does not accept our credentials: {0}")]
    Credentials(String),
    /// It cannot be reached, does not answer in time, or is broken. Look again later.
    #[error("the cloud does not work: {0}")]
    Unavailable(String),
    /// It understood, and will never do it.
    #[error("the cloud refuses: {0}")]
    Refused(String),
}

/// A pool's config is not good, or nobody can tell now.
#[derive(Debug, thiserror::Error)]
pub enum NotValidated {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("the config cannot be checked now")]
    Cloud(#[from] CloudError),
}

/// No machine was made, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Nothing was made.
    #[error("{problem}")]
    Refused { cause: Cause, problem: String },
    /// Something may have been made. Never launch it again; let the scan find out by its token.
    #[error("the outcome of the launch is unknown: {0}")]
    Unknown(String),
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

/// Whether the claim is true is not proved, or nobody can tell now.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotVerified {
    /// For good.
    #[error(transparent)]
    Refused(#[from] ProofRefused),
    /// The same proof may be shown again later.
    #[error("the proof cannot be checked now")]
    Cloud(#[from] CloudError),
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
