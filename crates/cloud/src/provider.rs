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
use domain::worker::Worker;
use futures_util::stream::{self, StreamExt as _};
use serde_json::Value;

use crate::place::{Fills, Place, PlacesUnknown};
use crate::region::Region;

/// A list of machines that goes on after this many pages has no end.
pub const MAX_OWNED_PAGES: usize = 1_000;
/// Machines that `end_many` ends at the same time, unless a provider has a call for many.
const MAX_ENDS_AT_ONCE: usize = 8;

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

    /// The launch that offered this identity to a machine, if the proof is the one that was offered with it: for a
    /// worker that comes before the launch was answered, and has no row yet.
    fn offered_by(&self, _worker: &WorkerKey, _proof: &Proof) -> Option<LaunchToken> {
        None
    }

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

    /// Whether bids asked about something that only `refresh` finds out, so that it should be called soon.
    fn wants_refresh(&self) -> bool {
        false
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

    /// Where our machines can be, as far as that is known. Each region is listed, looked at and slowed down by itself.
    fn regions(&self) -> Vec<Region> {
        vec![Region::Everything]
    }

    /// Where the machines of this group are.
    fn region_of(&self, _group: &WorkerGroup) -> Region {
        Region::Everything
    }

    /// A page of the machines in a region that carry our mark (this deployment's and this provider's) and have not
    /// ended: also those that we forgot. `after` is what the page before gave as `next`.
    async fn owned_page(
        &self,
        region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError>;

    /// All pages of all regions, one after the other. An error only if none of it can be listed.
    async fn owned(&self) -> Result<Listing, CloudError> {
        let mut listing = Listing::default();
        let mut n_listed = 0;
        for region in self.regions() {
            match (self.owned_in(&region).await, region) {
                (Ok(machines), _) => {
                    n_listed += 1;
                    listing.machines.extend(machines);
                }
                (Err(problem), Region::Group(group)) => {
                    listing.missing.insert(group, problem);
                }
                (Err(problem), Region::Everything) => return Err(problem),
            }
        }
        match listing.missing.first_key_value() {
            Some((_, problem)) if n_listed == 0 => Err(problem.clone()),
            _ => Ok(listing),
        }
    }

    /// All pages of a region.
    async fn owned_in(&self, region: &Region) -> Result<Vec<Owned>, CloudError> {
        let (mut owned, mut next) = (Vec::new(), None);
        for _ in 0..MAX_OWNED_PAGES {
            let page = self.owned_page(region, next.as_deref()).await?;
            owned.extend(page.machines);
            next = page.next;
            if next.is_none() {
                return Ok(owned);
            }
        }
        Err(CloudError::Unavailable(format!(
            "the list of machines did not end within {MAX_OWNED_PAGES} pages"
        )))
    }

    /// In which group the machines of this launch config are; `None`: that is not known beforehand.
    fn group(&self, _launch_config: &LaunchConfig) -> Option<WorkerGroup> {
        None
    }

    /// Ends the machine. May be called again; gone already is success.
    async fn end(&self, worker: &Worker) -> Result<(), CloudError>;

    /// Ends the machines of these workers, all of one region and at most `end_batch` of them. One result for each
    /// worker, in their order: a machine that cannot be ended keeps no other from it.
    async fn end_many(&self, workers: &[Worker]) -> Vec<Result<(), CloudError>> {
        // Gathered first: a future that holds a closure over borrows is not general enough for the tasks.
        let mut ends = Vec::new();
        for worker in workers {
            ends.push(self.end(worker));
        }
        stream::iter(ends)
            .buffered(MAX_ENDS_AT_ONCE)
            .collect()
            .await
    }

    /// How many workers `end_many` takes at a time. More than one is for clouds that end many by one call.
    fn end_batch(&self) -> usize {
        1
    }
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
    /// For which pool it was made; `None`: the mark does not say.
    pub pool_id: Option<PoolId>,
    pub machine: Launched,
    /// How it is; `None`: the list does not say, and only a look tells.
    pub sighting: Option<Sighting>,
}

/// A page of a list of machines.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnedPage {
    pub machines: Vec<Owned>,
    /// What to ask for the next page with; `None`: this was the last one.
    pub next: Option<String>,
}

impl OwnedPage {
    /// The first page and the last.
    pub fn only(machines: Vec<Owned>) -> Self {
        Self {
            machines,
            next: None,
        }
    }
}

/// What of ours there is, as far as it could be listed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    pub machines: Vec<Owned>,
    /// Groups that could not be listed, and why. Nothing can be concluded about a machine that may be there.
    pub missing: BTreeMap<WorkerGroup, CloudError>,
}

impl Listing {
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
    fn describe(&self, worker: &WorkerKey, provider_info: Option<&Value>)
    -> Result<Value, Refused>;
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

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ::testing::sizes_around;
    use domain::worker::WorkerState;
    use serde_json::json;

    use super::*;
    use crate::provider_tests::{edit, worker};

    /// Lists one machine on each page, and counts what it is asked.
    #[derive(Default)]
    struct Counting {
        n_pages: usize,
        n_lists: AtomicUsize,
        ends_now: AtomicUsize,
        most_ends: AtomicUsize,
    }

    #[async_trait]
    impl Machines for Counting {
        async fn launch(&self, _order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError> {
            Ok(Vec::new())
        }

        async fn look(
            &self,
            _workers: &[Worker],
        ) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
            Ok(Vec::new())
        }

        async fn owned_page(
            &self,
            _region: &Region,
            after: Option<&str>,
        ) -> Result<OwnedPage, CloudError> {
            self.n_lists.fetch_add(1, Ordering::SeqCst);
            let number = after.map_or(0, |page| page.parse::<usize>().unwrap());
            let machine = |number: usize| Owned {
                token: None,
                pool_id: None,
                machine: Launched {
                    group: "dc1".parse().unwrap(),
                    id: format!("m{number}").parse().unwrap(),
                    provider_data: json!({}),
                },
                sighting: None,
            };
            let next = number + 1;
            Ok(OwnedPage {
                machines: (number..next.min(self.n_pages)).map(machine).collect(),
                next: (next < self.n_pages).then(|| next.to_string()),
            })
        }

        /// Says of each machine that it cannot be ended, so that each result is known again.
        async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
            let n_now = self.ends_now.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_ends.fetch_max(n_now, Ordering::SeqCst);
            tokio::task::yield_now().await;
            self.ends_now.fetch_sub(1, Ordering::SeqCst);
            Err(CloudError::Refused(worker.key.id.to_string()))
        }
    }

    #[tokio::test]
    async fn a_list_is_read_to_its_end_unless_that_is_more_than_so_many_pages_away() {
        for n_pages in sizes_around("cloud::provider::MAX_OWNED_PAGES", MAX_OWNED_PAGES) {
            let cloud = Counting {
                n_pages,
                ..Counting::default()
            };
            let listed = cloud.owned_in(&Region::Everything).await;
            if n_pages <= MAX_OWNED_PAGES {
                let listed = listed.unwrap();
                let ids: Vec<_> = listed.iter().map(|it| it.machine.id.to_string()).collect();
                let all: Vec<_> = (0..n_pages).map(|number| format!("m{number}")).collect();
                assert_eq!(ids, all);
            } else {
                let problem = listed.unwrap_err().to_string();
                assert!(
                    problem.ends_with("did not end within 1000 pages"),
                    "{problem}"
                );
            }
            let n_lists = cloud.n_lists.load(Ordering::SeqCst);
            assert_eq!(
                n_lists,
                n_pages.clamp(1, MAX_OWNED_PAGES),
                "{n_pages} pages"
            );
        }
    }

    #[tokio::test]
    async fn machines_that_end_one_by_one_do_so_a_few_at_a_time_and_each_has_its_own_result() {
        for count in sizes_around("cloud::provider::MAX_ENDS_AT_ONCE", MAX_ENDS_AT_ONCE) {
            let cloud = Counting::default();
            let named = |number: usize| {
                let mut worker = worker(WorkerState::Stopping);
                edit(&mut worker, |it| {
                    it.key.id = format!("m{number}").parse().unwrap()
                });
                worker
            };
            let workers: Vec<Worker> = (0..count).map(named).collect();
            let results = cloud.end_many(&workers).await;
            let refused = |number: usize| Err(CloudError::Refused(format!("m{number}")));
            assert_eq!(results, (0..count).map(refused).collect::<Vec<_>>());
            let most = cloud.most_ends.load(Ordering::SeqCst);
            assert_eq!(most, count.min(MAX_ENDS_AT_ONCE), "{count} to end");
        }
    }
}
