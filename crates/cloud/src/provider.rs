//! The traits that every provider implements, and their types.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use access::Secret;
use async_trait::async_trait;
use contract::{Invalid, Problem};
use domain::id::{LaunchToken, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::lifecycle;
use domain::plan::{Bid, BidRequest, Bids};
use domain::pool::Pool;
use domain::time::Timestamp;
use domain::worker::{Terms, Worker};
use futures_util::stream::{self, StreamExt as _};
use serde_json::{Map, Value, json};

use crate::cloud_error::CloudError;
use crate::place::{ConfiguredRegion, Fills, Place, PlacesUnknown};
use crate::region::Region;
use crate::{
    CallBudget, ImageTarget, Leftover, PoolResourceMaker, Sighting, WorkerCreator, WorkerLog,
};

/// Pages of a list of machines at most: a longer list is treated as endless.
const MAX_OWNED_PAGES: usize = 1_000;
/// The time limit of a page. A large region may have many.
const PAGE_LIMIT: Duration = Duration::from_secs(60);
/// Machines that `end_many` ends at the same time at most, unless a provider has its own call for
/// many.
const MAX_ENDS_AT_ONCE: usize = 8;

/// Starts workers, verifies their identity and ends them. Constructors do no I/O and cannot fail.
///
/// Every outgoing call has its own time limit and is not repeated: the next activation of the
/// caller is the retry.
#[async_trait]
pub trait Provider: Send + Sync {
    /// The `providerType` that clients see.
    fn kind(&self) -> &'static str;

    /// Checks a pool's config, and writes defaults into it.
    fn validate(&self, config: &mut Value) -> Result<(), Invalid>;

    /// Checks what only the provider's service can check, and writes its defaults. Handlers call
    /// this after `validate` succeeded.
    async fn validate_outside(&self, _config: &mut Value) -> Result<(), ValidateError> {
        Ok(())
    }

    /// Prepares the provider. May be called repeatedly and concurrently. A failure takes only this
    /// provider out of service, until the next try.
    async fn setup(&self) -> Result<(), SetupError> {
        Ok(())
    }

    /// Called once when a process that launched machines stops in an orderly way. Processes often
    /// stop in another way, so no cleaning may depend on it.
    async fn terminate(&self) -> Result<(), CloudError> {
        Ok(())
    }

    /// Verifies that the caller is the worker that it claims to be. An outage is not a refusal.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError>;

    /// The launch that offered this identity to a machine, if the proof is the offered one. This is
    /// for a worker that registers before its launch call returned, and so has no row yet.
    fn offered_by(&self, _worker: &WorkerKey, _proof: &Proof) -> Option<LaunchToken> {
        None
    }

    /// Where workers can be started, for rules. The order is stable, and the answer comes from
    /// memory. Empty: the provider has only one place.
    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        Ok(Vec::new())
    }

    /// The region that the operator gave to places that have none.
    fn region(&self) -> Option<&ConfiguredRegion> {
        None
    }

    /// Where in a launch config the value of each condition belongs, unless a rule sets that value.
    fn fills(&self) -> Fills {
        Fills::new()
    }

    /// For providers whose workers are declared by people.
    fn declarer(&self) -> Option<&dyn WorkerDeclarer> {
        None
    }

    /// For providers with machines that also make single workers when people ask for them.
    fn creator(&self) -> Option<&dyn WorkerCreator> {
        None
    }

    /// For providers that keep resources for each pool.
    fn pool_resources(&self) -> Option<&dyn PoolResourceMaker> {
        None
    }

    /// For providers that make machines.
    fn machines(&self) -> Option<&dyn Machines> {
        None
    }

    /// For providers that take images. Providers of the operator say so after their set-up.
    fn images(&self) -> Option<&dyn ImageTarget> {
        None
    }

    /// The setting without which the provider takes no images; `None`: it takes them, or never
    /// does.
    fn images_need(&self) -> Option<&'static str> {
        None
    }
}

/// Makes and ends machines. Knows nothing of demand, of limits on pools, or of the database.
#[async_trait]
pub trait Machines: Send + Sync {
    /// Machines at a time over all pools; `None`: the provider sets no limit.
    fn max_machines(&self) -> Option<u64> {
        None
    }

    /// The bids for machines of this launch config, from memory; or why there is none. They are
    /// alternatives, and may be combined. `request`: the need of the pool, for providers that bid
    /// by quantity; `None` only looks, and leaves the last request valid.
    fn bids(&self, _config: &LaunchConfig, _request: Option<&BidRequest>, _now: Timestamp) -> Bids {
        Ok(vec![Bid::plain(String::new())])
    }

    /// The first bid for this launch config, for people.
    fn first_bid(&self, config: &LaunchConfig, now: Timestamp) -> Result<Bid, String> {
        let bids = self.bids(config, None, now)?;
        let first = bids.into_iter().next();
        first.ok_or_else(|| "its provider makes no bid for it now".to_owned())
    }

    /// How often regions may be called now.
    fn call_budgets(&self) -> Vec<CallBudget> {
        Vec::new()
    }
    /// Whether bids need data that only `refresh` gets, so that it should be called soon.
    fn wants_refresh(&self) -> bool {
        false
    }

    /// Reads files of the operator that have changed. Called every few seconds.
    async fn reread_files(&self) {}

    /// An error that an operator should look at, although the provider works.
    fn warning(&self) -> Option<String> {
        None
    }

    /// Updates the data of `bids` and `places`, for example prices. Called now and then. Places
    /// that cannot be updated stay and are logged once by the provider: the error is about bids.
    async fn refresh(&self) -> Result<(), CloudError> {
        Ok(())
    }

    /// Makes up to the ordered number of machines. A second call with the same token must not make
    /// more. It is an error if none is made.
    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError>;

    /// The state of these workers' machines, at most `look_batch` of them. Nothing is known about a
    /// worker that the answer leaves out.
    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError>;

    /// The log of the worker: the output of its process, or the console of its machine.
    async fn read_log(&self, _worker: &Worker) -> Result<WorkerLog, CloudError> {
        Ok(WorkerLog::NotKept)
    }

    /// Workers that one `look` takes.
    fn look_batch(&self) -> usize {
        100
    }

    /// The regions where our machines can be, as far as known. Each region is listed, looked at and
    /// slowed down separately.
    fn regions(&self) -> Vec<Region> {
        vec![Region::Everything]
    }

    /// The region of the machines of this group.
    fn region_of(&self, _group: &WorkerGroup) -> Region {
        Region::Everything
    }

    /// Whether this process can end the machine of the worker. `false`: another one does.
    fn can_end(&self, _worker: &Worker) -> bool {
        true
    }

    /// A page of the machines in a region that carry this deployment's and this provider's tags and
    /// have not ended, including those without a row. `after` is `next` of the page before.
    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError>;

    /// A page of the machines in a region that have not ended, that a Taskcluster's worker manager
    /// made for a provider of this name, and that are not ours. No launch of ours made them.
    async fn inherited_page(
        &self,
        _region: &Region,
        _after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        Err(CloudError::Refused(
            "it does not know the machines of a Taskcluster".to_owned(),
        ))
    }

    /// All pages of all regions, one after the other. Fails only if no region can be listed.
    async fn owned(&self) -> Result<MachineListing, CloudError> {
        let mut listing = MachineListing::default();
        let mut n_listed = 0;
        for region in self.regions() {
            match (list_machines(self, &region, MachineMaker::Us).await, region) {
                (Ok(machines), _) => {
                    n_listed += 1;
                    listing.machines.extend(machines);
                }
                (Err(error), Region::Group(group)) => {
                    listing.missing.insert(group, error);
                }
                (Err(error), Region::Everything) => return Err(error),
            }
        }
        match listing.missing.first_key_value() {
            Some((_, error)) if n_listed == 0 => Err(error.clone()),
            _ => Ok(listing),
        }
    }

    /// Removes what machines have left in a region: resources with this deployment's and this
    /// provider's tags that no machine has used for an hour. Called now and then. Returns those
    /// whose removal has begun.
    async fn remove_leftovers(&self, _region: &Region) -> Result<Vec<Leftover>, CloudError> {
        Ok(Vec::new())
    }

    /// The group of this launch config's machines; `None`: not known before the launch.
    fn group(&self, _launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        None
    }

    /// Ends the machine. May be called again, and succeeds if the machine has ended.
    async fn end(&self, worker: &Worker) -> Result<(), CloudError>;

    /// Ends the machines of these workers, all of one region and at most `end_batch` of them.
    /// Returns one result per worker, in their order: a failure for one machine does not keep the
    /// others from ending.
    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        // Collected first: a future that holds a closure over borrows is not general enough for the
        // background tasks.
        let mut ends = Vec::new();
        for worker in workers {
            ends.push(self.end(worker));
        }
        stream::iter(ends)
            .buffered(MAX_ENDS_AT_ONCE)
            .collect()
            .await
    }

    /// Workers that one `end_many` takes. More than one is for clouds that end many machines by one
    /// call.
    fn end_batch(&self) -> usize {
        1
    }
}

/// An order to make machines.
pub struct LaunchOrder<'a> {
    pub token: &'a LaunchToken,
    pub pool: &'a Pool,
    pub launch_config: &'a LaunchConfig,
    /// At least 1.
    pub machines: u32,
    pub capacity_each: u32,
    /// The highest price per hour and machine.
    pub max_price: Option<f64>,
    /// The price per hour and machine of the bid that won; `None`: not known.
    pub price: Option<f64>,
    /// The data of the bid that won.
    pub bid_data: &'a Map<String, Value>,
    /// The data of the pool's resources; `null`: the provider keeps none.
    pub pool_data: &'a Value,
    /// The URL where the machines reach the server.
    pub root_url: &'a str,
    pub now: Timestamp,
}

/// One machine that a launch made.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchedMachine {
    pub group: WorkerGroup,
    pub id: WorkerId,
    /// When it was made, by the clock of the provider; `None`: not known.
    pub made: Option<Timestamp>,
    /// Owned by the provider; no other code reads it.
    pub provider_data: Value,
}

impl LaunchedMachine {
    pub fn key(&self, pool_id: PoolId) -> WorkerKey {
        WorkerKey {
            pool_id,
            group: self.group.clone(),
            id: self.id.clone(),
        }
    }
}

/// A machine with our tags.
#[derive(Clone, Debug, PartialEq)]
pub struct OwnedMachine {
    /// The launch that made it; `None`: the tags do not name it, so the machine is left alone.
    pub token: Option<LaunchToken>,
    /// The pool for which it was made; `None`: the tags do not name it.
    pub pool_id: Option<PoolId>,
    pub machine: LaunchedMachine,
    /// Its state; `None`: the list does not contain states, so only a look shows it.
    pub sighting: Option<Sighting>,
}

/// A page of a list of machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedPage {
    pub machines: Vec<OwnedMachine>,
    /// The argument for the next page; `None`: this was the last page.
    pub next: Option<String>,
}

impl OwnedPage {
    /// A single page.
    pub fn only(machines: Vec<OwnedMachine>) -> Self {
        Self {
            machines,
            next: None,
        }
    }
}

/// The worker manager that made the machines of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MachineMaker {
    /// This deployment and this provider.
    Us,
    /// A Taskcluster, for a provider of the same name.
    Taskcluster,
}

/// All machines in a region that this maker made.
pub async fn list_machines<M: Machines + ?Sized>(
    machines: &M,
    region: &Region,
    maker: MachineMaker,
) -> Result<Vec<OwnedMachine>, CloudError> {
    let (mut found, mut next) = (Vec::new(), None::<String>);
    for _ in 0..MAX_OWNED_PAGES {
        let after = next.as_deref();
        let page = match maker {
            MachineMaker::Us => machines.owned_page(region, after),
            MachineMaker::Taskcluster => machines.inherited_page(region, after),
        };
        let page = tokio::time::timeout(PAGE_LIMIT, page).await.map_err(|_| {
            CloudError::Unavailable(format!("no answer within {} s", PAGE_LIMIT.as_secs()))
        })??;
        found.extend(page.machines);
        next = page.next;
        if next.is_none() {
            return Ok(found);
        }
    }
    Err(CloudError::Unavailable(format!(
        "the list of machines did not end within {MAX_OWNED_PAGES} pages"
    )))
}

/// Our machines, as far as they could be listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MachineListing {
    pub machines: Vec<OwnedMachine>,
    /// Groups that could not be listed, and why. A machine that may be there must not count as
    /// ended.
    pub missing: BTreeMap<WorkerGroup, CloudError>,
}

impl MachineListing {
    /// Whether the list would contain machines of this group; `None`: of all groups.
    pub fn covers(&self, group: Option<&WorkerGroup>) -> bool {
        match group {
            Some(group) => !self.missing.contains_key(group),
            None => self.missing.is_empty(),
        }
    }
}

/// A pool's config is invalid or cannot be checked now.
#[derive(Debug, thiserror::Error)]
pub enum ValidateError {
    #[error(transparent)]
    Invalid(#[from] Invalid),
    #[error("the config cannot be checked now")]
    Cloud(#[from] CloudError),
}

/// Refuses a document that has problems, at most [`contract::MAX_PROBLEMS`] of them.
pub(crate) fn refuse_if_any(schema: &str, mut problems: Vec<Problem>) -> Result<(), Invalid> {
    problems.truncate(contract::MAX_PROBLEMS);
    if problems.is_empty() {
        return Ok(());
    }
    let schema = schema.to_owned();
    Err(Invalid { schema, problems })
}

/// A launch made no machine, as far as is known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// Nothing was made.
    #[error("{error}")]
    Refused { cause: Cause, error: String },
    /// Something may have been made. Never repeat the launch; the scan finds its machines by the
    /// token.
    #[error("the outcome of the launch is unknown: {0}")]
    Unknown(String),
}

/// A provider whose workers people declare instead of launching them.
pub trait WorkerDeclarer: Send + Sync {
    /// Makes the data to keep for a new or changed worker, from the `providerInfo` of the request.
    fn describe(
        &self,
        worker: &WorkerKey,
        provider_info: Option<&Value>,
    ) -> Result<Value, DeclarationError>;

    /// Dollars per hour of a worker that is declared now; `None`: not known.
    fn price(&self) -> Option<f64> {
        None
    }
}

/// A caller's claim to be this worker.
pub struct IdentityClaim<'a> {
    pub pool: &'a Pool,
    pub worker: &'a Worker,
    /// The launch config of a declared worker.
    pub launch_config: Option<&'a LaunchConfig>,
    pub proof: &'a Proof,
    pub now: Timestamp,
}

/// The evidence for a claim.
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
    /// A relay, authorised by its scopes, has identified the host.
    Relay,
}

/// An identity claim that was verified.
#[derive(Debug, PartialEq)]
pub struct Verification {
    /// How long its credentials are valid.
    pub lasts_ms: i64,
    /// The configuration that the worker gets.
    pub worker_config: Value,
}

impl Verification {
    /// By the terms of the launch that made the worker.
    pub(crate) fn by_terms(terms: &Terms) -> Self {
        let own = terms.reregistration_timeout;
        Self {
            lasts_ms: own.unwrap_or(lifecycle::DEFAULT_REREGISTRATION_MS),
            worker_config: terms.worker_config.clone().unwrap_or_else(|| json!({})),
        }
    }
}

/// The proof was refused. The message goes to the caller, the detail only to our log.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct ProofRefused {
    pub message: &'static str,
    pub detail: String,
}

impl ProofRefused {
    pub fn new(message: &'static str, detail: impl Into<String>) -> Self {
        let detail = detail.into();
        Self { message, detail }
    }
}

/// A claim was refused or cannot be checked now.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum VerifyError {
    /// Refused for good.
    #[error(transparent)]
    Refused(#[from] ProofRefused),
    /// The caller may try the same proof again later.
    #[error("the proof cannot be checked now")]
    Cloud(#[from] CloudError),
}

/// The provider does not support this.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct DeclarationError(pub String);

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SetupError(pub String);

impl DeclarationError {
    pub fn not_supported() -> Self {
        Self("not supported for this provider".to_owned())
    }
}
