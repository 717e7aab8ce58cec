//! The versioned protocol of providers that operators write (docs/providers/protocol.md).
//!
//! Requests and responses are JSON with published schemas, and a [`Transport`] carries them. A
//! response that does not fit its schema counts as lost: for a launch, its outcome is unknown.

mod bidding;
mod bids;
mod images;
mod messages;
#[cfg(test)]
mod tests;
mod transport;
mod workers;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use contract::{Invalid, Problem};
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch::{self, Cause};
use domain::launch_config::LaunchConfig;
use domain::plan::{BidRequest, Bids};
use domain::text::one_line;
use domain::time::{MINUTE_MS, Timestamp};
use domain::worker::Worker;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::bids::BidCache;
use self::messages::{
    ConfigCheck, Description, ErrorBody, LookResponse, MachinesResponse, OptionalOperation,
    SightingBody, VerifyResponse, read,
};
pub(crate) use self::transport::{Answer, Failure, MAX_ANSWER_BYTES, Operation, Transport};
use crate::identity::{Tokens, refuse, register_once};
use crate::place::{self, Fills, Place, PlacesUnknown};
use crate::provider::refuse_if_any;
use crate::{
    CloudError, IdentityClaim, ImageTarget, LaunchError, LaunchOrder, LaunchedMachine, Machines,
    OwnedPage, PoolResourceMaker, Proof, Provider, ProviderContext, Region, SetupError, Sighting,
    ValidateError, Verification, VerifyError, WorkerCreator,
};

/// The version of `setup`, and of all requests to a provider that names no other.
const FIRST_VERSION: u32 = 1;
/// From this version on, providers bid for a quantity.
const QUANTITY_VERSION: u32 = 2;
/// Workers that one `look` takes until the provider sets its own limit.
const DEFAULT_LOOK_BATCH: usize = 100;
/// A description is refreshed after this time. A little shorter than the time from one refresh to
/// the next, so that none is skipped; refreshes for the sake of bids may follow more closely.
const DESCRIPTION_FRESH_MS: i64 = 4 * MINUTE_MS;
/// Machines in one launch request at most.
const MAX_MACHINES: u32 = 1_000;
const MAX_GROUP_LENGTH: usize = 38;
/// Longest text of the provider that goes into an error.
const MAX_TEXT_CHARS: usize = 500;

pub struct ProtocolProvider<C> {
    context: ProviderContext,
    transport: C,
    tokens: Tokens,
    bids: BidCache,
    description: Mutex<Description>,
    /// When the provider was last asked to describe itself, by the steady clock.
    described: Mutex<Option<i64>>,
}

#[expect(private_bounds, reason = "a transport is a detail of this crate")]
impl<C: Transport> ProtocolProvider<C> {
    pub(crate) fn new_over(context: ProviderContext, transport: C) -> Self {
        Self {
            tokens: Tokens::new(&context),
            context,
            transport,
            bids: BidCache::default(),
            description: Mutex::new(Description {
                version: FIRST_VERSION,
                look_batch: DEFAULT_LOOK_BATCH,
                max_machines: None,
                places: Vec::new(),
                fills: Fills::new(),
                images: None,
                operations: Vec::new(),
                error: None,
            }),
            described: Mutex::default(),
        }
    }

    fn description(&self) -> MutexGuard<'_, Description> {
        self.description
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether requests for bids say how much is needed.
    fn bids_for_quantity(&self) -> bool {
        self.description().version >= QUANTITY_VERSION
    }

    fn described(&self) -> MutexGuard<'_, Option<i64>> {
        self.described
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the provider to describe itself. If this fails, the last description stays.
    async fn ask_for_description(&self) -> Result<(), CloudError> {
        *self.described() = Some(self.context.clock.steady_ms());
        let described: Description = self.ask(Operation::Setup, json!({})).await?;
        place::check(&described.places, &described.fills).map_err(|error| {
            CloudError::Unavailable(format!(
                "the response to setup has invalid {}",
                shorten(&error.to_string())
            ))
        })?;
        *self.description() = described;
        Ok(())
    }

    /// Asks again now and then, since places change. A failure is logged once.
    async fn refresh_description(&self) {
        let now_ms = self.context.clock.steady_ms();
        let is_fresh = |at| now_ms - at < DESCRIPTION_FRESH_MS;
        if self.described().is_some_and(is_fresh) {
            return;
        }
        let had_failed = self.description().error.is_some();
        let id = &self.context.id;
        match self.ask_for_description().await {
            Ok(()) if had_failed => {
                tracing::info!(provider.id = %id, "{id} answers setup again");
            }
            Ok(()) => {}
            Err(error) => {
                if !had_failed {
                    tracing::warn!(provider.id = %id, error = %error,
                        "{id} does not answer setup, its last answer stays valid: {error}");
                }
                self.description().error = Some(error);
            }
        }
    }

    /// Sends a request and reads the response if it fits its schema.
    async fn ask<T: DeserializeOwned>(
        &self,
        operation: Operation,
        question: Value,
    ) -> Result<T, Failure> {
        let (mut body, log) = self.ask_unchecked(operation, question).await?;
        let schema = format!(
            "fleetwright/v1/provider-{}-response.json",
            operation.as_str()
        );
        let fits = self.context.schemas.validate(&schema, &mut body);
        let fits = fits.map_err(|invalid| invalid.to_string());
        let parsed = fits.and_then(|()| read(body));
        parsed.map_err(|error| lost(operation, &error).with_log(log.as_deref()))
    }

    /// Sends a request and returns the response, which is JSON, and the line of the provider's log.
    async fn ask_unchecked(
        &self,
        operation: Operation,
        mut question: Value,
    ) -> Result<(Value, Option<String>), Failure> {
        let version = match operation == Operation::Setup {
            true => FIRST_VERSION,
            false => self.description().version,
        };
        question["version"] = json!(version);
        question["deployment"] = json!(self.context.root_url);
        question["providerId"] = json!(self.context.id.as_str());
        let answer = self
            .transport
            .send(operation, question.to_string().into_bytes())
            .await?;
        if !answer.done {
            return Err(self.refusal(operation, answer));
        }
        let log = answer.log;
        match serde_json::from_slice(&answer.body) {
            Ok(body) => Ok((body, log)),
            Err(error) => {
                let error = format!("is not JSON: {error}");
                Err(lost(operation, &error).with_log(log.as_deref()))
            }
        }
    }

    /// The failure in an error response.
    fn refusal(&self, operation: Operation, answer: Answer) -> Failure {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
        let is_empty = answer.body.trim_ascii().is_empty();
        let outline = format!("{}: {}", operation.as_str(), answer.outline);
        let fits = self
            .context
            .schemas
            .check("fleetwright/v1/provider-error.json", &body);
        let stated = fits
            .map_err(|invalid| invalid.to_string())
            .and_then(|()| read::<ErrorBody>(body));
        match (stated, answer.cause) {
            (Ok(error), _) => match error.cause.parse() {
                Ok(cause) => Failure::Refused {
                    cause,
                    message: shorten(&error.message),
                },
                // The cause is `unknown`.
                Err(_) => Failure::Lost(shorten(&error.message)),
            },
            (Err(_), Some(cause)) => Failure::Refused {
                cause,
                message: outline,
            },
            (Err(_), None) if is_empty => {
                let failure = Failure::Lost(format!("{outline}, and the response is empty"));
                failure.with_log(answer.log.as_deref())
            }
            (Err(error), None) => {
                let error = shorten(&error);
                let failure = Failure::Lost(format!("{outline}, and the response body {error}"));
                failure.with_log(answer.log.as_deref())
            }
        }
    }

    /// Identities that machines may take, with proofs that we know.
    fn identities(&self, order: &LaunchOrder<'_>, machines: u32) -> Vec<Value> {
        let group: String = self
            .context
            .id
            .as_str()
            .chars()
            .take(MAX_GROUP_LENGTH)
            .collect();
        let group = group.parse::<WorkerGroup>();
        let identity = |number: u32| {
            let key = WorkerKey {
                pool_id: order.pool.id.clone(),
                group: group.as_ref().ok()?.clone(),
                id: launch::offered_id(order.token, number)?,
            };
            Some(json!({
                "workerGroup": key.group.as_str(),
                "workerId": key.id.as_str(),
                "proof": {"token": self.tokens.token(&key).expose()},
                "staticSecret": self.tokens.static_secret(&key).expose(),
            }))
        };
        (0..machines).filter_map(identity).collect()
    }

    /// Asks about a proof that we did not make.
    async fn ask_to_verify(&self, claim: &IdentityClaim<'_>) -> Result<(), VerifyError> {
        let question = json!({
            "worker": messages::worker(claim.worker),
            "proof": messages::proof(claim.proof),
        });
        let no = |detail: &str| {
            let detail = format!(
                "the proof is not this worker's token, and the provider refused it: {detail}"
            );
            VerifyError::from(refuse(&detail))
        };
        let asked = self
            .ask::<VerifyResponse>(Operation::Verify, question)
            .await;
        match asked.map_err(CloudError::from) {
            Ok(verdict) if verdict.verified => Ok(()),
            Ok(verdict) => Err(no(&shorten(&verdict.detail))),
            Err(CloudError::Refused(error)) => Err(no(&error)),
            Err(
                error @ (CloudError::Throttled(_)
                | CloudError::Credentials(_)
                | CloudError::Unavailable(_)),
            ) => Err(error.into()),
        }
    }
}

#[async_trait]
impl<C: Transport> Provider for ProtocolProvider<C> {
    fn kind(&self) -> &'static str {
        self.transport.kind()
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.context
            .schemas
            .validate(self.transport.schema(), config)
    }

    async fn validate_outside(&self, config: &mut Value) -> Result<(), ValidateError> {
        let schema = self.transport.schema();
        let asked = self
            .ask(Operation::Validate, json!({"config": config}))
            .await;
        let check: ConfigCheck = match asked {
            Ok(check) => check,
            Err(Failure::Refused {
                cause: Cause::Configuration,
                message,
            }) => {
                let pointer = String::new();
                let problems = vec![Problem { pointer, message }];
                let schema = schema.to_owned();
                return Err(Invalid { schema, problems }.into());
            }
            Err(failure) => return Err(ValidateError::Cloud(failure.into())),
        };
        let placed = check.problems.into_iter().map(|error| Problem {
            pointer: shorten(&error.pointer),
            message: shorten(&error.message),
        });
        refuse_if_any(schema, placed.collect())?;
        if let Some(mut completed) = check.config {
            let fits = self.context.schemas.validate(schema, &mut completed);
            fits.map_err(|error| {
                let text = format!(
                    "the config with the provider's defaults {}",
                    shorten(&error.to_string())
                );
                CloudError::Unavailable(text)
            })?;
            *config = completed;
        }
        Ok(())
    }

    async fn setup(&self) -> Result<(), SetupError> {
        self.transport.prepare().await.map_err(SetupError)?;
        let asked = self.ask_for_description().await;
        asked.map_err(|error| SetupError(error.to_string()))
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        Ok(self.description().places.clone())
    }

    fn fills(&self) -> Fills {
        self.description().fills.clone()
    }

    /// A worker registers once, with a proof that we offered or with a proof that the provider
    /// knows.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        let verified = register_once(claim)?;
        if !self.tokens.is_ours(&claim.worker.key, claim.proof) {
            self.ask_to_verify(claim).await?;
        }
        Ok(verified)
    }

    fn offered_by(&self, worker: &WorkerKey, proof: &Proof) -> Option<LaunchToken> {
        self.tokens.offered_by(worker, proof)
    }

    fn machines(&self) -> Option<&dyn Machines> {
        Some(self)
    }

    async fn terminate(&self) -> Result<(), CloudError> {
        if self.knows(OptionalOperation::Terminate) {
            let _: Value = self.ask(Operation::Terminate, json!({})).await?;
        }
        Ok(())
    }

    fn creator(&self) -> Option<&dyn WorkerCreator> {
        let creates = self.knows(OptionalOperation::CreateWorker);
        creates.then_some(self as &dyn WorkerCreator)
    }

    /// A provider that makes resources for pools also removes them.
    fn pool_resources(&self) -> Option<&dyn PoolResourceMaker> {
        let both = [
            OptionalOperation::PreparePool,
            OptionalOperation::ReleasePool,
        ];
        let makes = both.into_iter().all(|operation| self.knows(operation));
        makes.then_some(self as &dyn PoolResourceMaker)
    }

    fn images(&self) -> Option<&dyn ImageTarget> {
        let has_images = self.description().images.is_some();
        has_images.then_some(self as &dyn ImageTarget)
    }
}

#[async_trait]
impl<C: Transport> Machines for ProtocolProvider<C> {
    fn max_machines(&self) -> Option<u64> {
        self.description().max_machines
    }

    fn bids(&self, config: &LaunchConfig, request: Option<&BidRequest>, now: Timestamp) -> Bids {
        let request = request.filter(|_| self.bids_for_quantity());
        self.bids.bids(&self.context.id, config, request, now)
    }

    fn wants_refresh(&self) -> bool {
        self.bids.lacks_some(self.context.clock.now())
    }

    /// Runs both requests at the same time, so that a slow description does not delay bids.
    async fn refresh(&self) -> Result<(), CloudError> {
        tokio::join!(self.refresh_description(), self.ask_for_bids()).1
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<LaunchedMachine>, LaunchError> {
        let machines = order.machines.min(MAX_MACHINES);
        let mut question = json!({
            "token": order.token.as_str(),
            "workerPoolId": order.pool.id.as_str(),
            "launchConfigId": order.launch_config.id.as_str(),
            "launchConfig": order.launch_config.configuration,
            "machines": machines,
            "capacityEach": order.capacity_each,
            "identities": self.identities(order, machines),
        });
        if let Some(max_price) = order.max_price {
            question["maxPrice"] = json!(max_price);
        }
        messages::add_pool_data(&mut question, order.pool_data);
        // Providers that send no data with their bids may refuse members that they do not know.
        if !order.bid_data.is_empty() {
            question["bid"] = json!({"data": order.bid_data});
            if let Some(price) = order.price {
                question["bid"]["price"] = json!(price);
            }
        }
        let made: MachinesResponse = self.ask(Operation::Launch, question).await?;
        let launched: Vec<_> = made
            .machines
            .iter()
            .filter_map(|it| it.launched())
            .collect();
        let names: BTreeSet<_> = launched.iter().map(|it| (&it.group, &it.id)).collect();
        if names.len() != made.machines.len() || names.len() > machines as usize {
            let n_listed = made.machines.len();
            let text = format!(
                "{machines} machines were requested, and the response lists {} different ones in {n_listed} entries",
                names.len()
            );
            return Err(LaunchError::Unknown(text));
        }
        Ok(launched)
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let described: Vec<Value> = workers.iter().map(messages::worker).collect();
        let question = json!({"workers": described});
        let answer: LookResponse = self.ask(Operation::Look, question).await?;
        let asked: HashMap<_, _> = workers.iter().map(|it| (named(&it.key), it)).collect();
        let seen = |sighting: SightingBody| {
            let worker = asked.get(&sighting.name()).ok_or_else(|| {
                let (pool, group, id) = sighting.name();
                let text = format!(
                    "the response to look has {pool}/{group}/{id}, which was not in the request"
                );
                CloudError::Unavailable(text)
            })?;
            Ok((worker.key.clone(), sighting.sighting()))
        };
        answer.sightings.into_iter().map(seen).collect()
    }

    fn look_batch(&self) -> usize {
        self.description().look_batch
    }

    async fn owned_page(
        &self,
        _region: &Region,
        after: Option<&str>,
    ) -> Result<OwnedPage, CloudError> {
        let question = match after {
            Some(continuation) => json!({"continuation": continuation}),
            None => json!({}),
        };
        let page: MachinesResponse = self.ask(Operation::Owned, question).await?;
        let machines = page.machines.iter();
        Ok(OwnedPage {
            machines: machines.filter_map(|machine| machine.owned()).collect(),
            next: page.continuation,
        })
    }

    async fn end(&self, worker: &Worker) -> Result<(), CloudError> {
        let question = json!({"worker": messages::worker(worker)});
        let _: Value = self.ask(Operation::End, question).await?;
        Ok(())
    }
}

fn lost(operation: Operation, error: &str) -> Failure {
    let operation = operation.as_str();
    Failure::Lost(format!("the response to {operation} {}", shorten(error)))
}

fn named(key: &WorkerKey) -> (&str, &str, &str) {
    (key.pool_id.as_str(), key.group.as_str(), key.id.as_str())
}

fn shorten(text: &str) -> String {
    one_line(text, MAX_TEXT_CHARS)
}
