//! A provider that somebody else wrote, behind a versioned protocol: docs/providers/protocol.md says what it is.
//!
//! Questions and answers are JSON with published schemas; how they travel is the business of a [`Carrier`]. An answer
//! that does not fit is no answer: for a launch that means that nobody knows what was made.

mod bids;
mod carrier;
mod messages;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap};
use std::sync::{Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use contract::{Invalid, Problem};
use domain::id::{LaunchToken, WorkerGroup, WorkerKey};
use domain::launch::{self, Cause};
use domain::plan::Bid;
use domain::worker::Worker;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use self::bids::BidBook;
pub(crate) use self::carrier::{Answer, Carrier, Failure, MAX_ANSWER_BYTES, NoAnswer, Operation};
use self::messages::{
    Bids, ErrorBody, Judgement, Made, OneBid, OneSighting, Page, Ready, Sightings, Verdict, read,
};
use crate::identity::{Tokens, refuse, register_once};
use crate::place::{self, Fills, Place, PlacesUnknown};
use crate::{
    BidRequest, CloudError, IdentityClaim, LaunchError, LaunchOrder, Launched, Machines,
    NotValidated, NotVerified, OwnedPage, Proof, Provider, ProviderContext, Region, SetupFailed,
    Sighting, Verified,
};

const VERSION: u32 = 1;
/// How many workers are looked at at a time until the other side says otherwise.
const DEFAULT_LOOK_BATCH: usize = 100;
/// How many launch configs are asked about at a time.
const BID_BATCH: usize = 100;
/// More machines than this are not asked for at a time.
const MAX_MACHINES: u32 = 1_000;
const MAX_GROUP_LENGTH: usize = 38;
/// A longer text of somebody else's is cut before it gets into an error.
const MAX_TEXT_CHARS: usize = 500;

pub struct OutsideProvider<C> {
    context: ProviderContext,
    carrier: C,
    tokens: Tokens,
    bids: BidBook,
    said: Mutex<Said>,
}

/// What the other side said about itself, last.
struct Said {
    look_batch: usize,
    max_machines: Option<u64>,
    places: Vec<Place>,
    fills: Fills,
    /// Why it could not be asked again lately.
    problem: Option<CloudError>,
}

#[expect(private_bounds, reason = "a carrier is a detail of this crate")]
impl<C: Carrier> OutsideProvider<C> {
    pub(crate) fn over(context: ProviderContext, carrier: C) -> Self {
        Self {
            tokens: Tokens::new(&context),
            context,
            carrier,
            bids: BidBook::default(),
            said: Mutex::new(Said {
                look_batch: DEFAULT_LOOK_BATCH,
                max_machines: None,
                places: Vec::new(),
                fills: Fills::new(),
                problem: None,
            }),
        }
    }

    fn said(&self) -> MutexGuard<'_, Said> {
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lets the other side say what there is to say about it. What it said before stays if this fails.
    async fn ask_about_itself(&self) -> Result<(), CloudError> {
        let ready: Ready = self.ask(Operation::Setup, json!({})).await?;
        place::check(&ready.places, &ready.fills).map_err(|problem| {
            CloudError::Unavailable(format!(
                "the answer to setup has bad {}",
                cut(&problem.to_string())
            ))
        })?;
        *self.said() = Said {
            look_batch: ready.look_batch,
            max_machines: ready.max_machines,
            places: ready.places,
            fills: ready.fills,
            problem: None,
        };
        Ok(())
    }

    /// The same again, now and then: places come and go. A failure is told once.
    async fn ask_about_itself_again(&self) {
        let was_in_trouble = self.said().problem.is_some();
        let id = &self.context.id;
        match self.ask_about_itself().await {
            Ok(()) if was_in_trouble => {
                tracing::info!(provider.id = %id, "{id} says again what it can do");
            }
            Ok(()) => {}
            Err(problem) => {
                if !was_in_trouble {
                    tracing::warn!(provider.id = %id, error = %problem,
                        "{id} does not say any more what it can do, and where; what it said before holds: {problem}");
                }
                self.said().problem = Some(problem);
            }
        }
    }

    /// Asks, and reads the answer if it fits its schema.
    async fn ask<T: DeserializeOwned>(
        &self,
        operation: Operation,
        mut question: Value,
    ) -> Result<T, Failure> {
        question["version"] = json!(VERSION);
        question["deployment"] = json!(self.context.root_url);
        question["providerId"] = json!(self.context.id.as_str());
        let answer = self
            .carrier
            .carry(operation, question.to_string().into_bytes())
            .await?;
        if !answer.done {
            return Err(self.refusal(operation, answer));
        }
        let schema = format!(
            "fleetwright/v1/provider-{}-response.json",
            operation.as_str()
        );
        let lost = |problem: String| {
            Failure::Lost(format!(
                "the answer to {} {}",
                operation.as_str(),
                cut(&problem)
            ))
        };
        let mut body = serde_json::from_slice(&answer.body)
            .map_err(|problem| lost(format!("is not JSON: {problem}")))?;
        self.context
            .schemas
            .validate(&schema, &mut body)
            .map_err(|invalid| lost(invalid.to_string()))?;
        read(body).map_err(lost)
    }

    /// What the other side says that it could not do.
    fn refusal(&self, operation: Operation, answer: Answer) -> Failure {
        let body: Value = serde_json::from_slice(&answer.body).unwrap_or_default();
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
                    message: cut(&error.message),
                },
                // The cause `unknown`, in so many words.
                Err(_) => Failure::Lost(cut(&error.message)),
            },
            (Err(_), Some(cause)) => Failure::Refused {
                cause,
                message: outline,
            },
            (Err(problem), None) => {
                Failure::Lost(format!("{outline}, and the body {}", cut(&problem)))
            }
        }
    }

    /// Names that machines may take, with proofs that we know.
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

    async fn ask_to_launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<Launched>, Failure> {
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
        let made: Made = self.ask(Operation::Launch, question).await?;
        let launched: Vec<_> = made
            .machines
            .iter()
            .filter_map(|it| it.launched())
            .collect();
        let names: BTreeSet<_> = launched.iter().map(|it| (&it.group, &it.id)).collect();
        if names.len() != made.machines.len() || names.len() > machines as usize {
            let n_told = made.machines.len();
            let text = format!(
                "{machines} machines were asked for, and the answer names {} different ones in {n_told} entries",
                names.len()
            );
            return Err(Failure::Lost(text));
        }
        Ok(launched)
    }

    async fn ask_for_bids(&self) -> Result<(), CloudError> {
        let now = self.context.clock.now();
        for batch in self.bids.wanted(now, BID_BATCH) {
            let (keys, contents): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let question = json!({"launchConfigs": contents});
            let answer: Bids = self.ask(Operation::Bids, question).await?;
            // Somebody without an opinion lists none.
            if answer.bids.is_empty() {
                continue;
            }
            if answer.bids.len() != keys.len() {
                let (asked, told) = (keys.len(), answer.bids.len());
                let text = format!("{told} bids came for {asked} launch configs");
                return Err(CloudError::Unavailable(text));
            }
            for (key, bid) in keys.iter().zip(answer.bids) {
                self.bids.answered(key, OneBid::bid(bid), now);
            }
        }
        Ok(())
    }

    /// The proof is none of ours.
    async fn ask_to_verify(&self, claim: &IdentityClaim<'_>) -> Result<(), NotVerified> {
        let question = json!({
            "worker": messages::worker(claim.worker),
            "proof": messages::proof(claim.proof),
        });
        let no = |detail: &str| {
            let detail = format!("the proof is none of ours, and the provider says no: {detail}");
            NotVerified::from(refuse(&detail))
        };
        let asked = self.ask::<Verdict>(Operation::Verify, question).await;
        match asked.map_err(CloudError::from) {
            Ok(verdict) if verdict.verified => Ok(()),
            Ok(verdict) => Err(no(&cut(&verdict.detail))),
            Err(CloudError::Refused(problem)) => Err(no(&problem)),
            Err(
                problem @ (CloudError::Throttled(_)
                | CloudError::Credentials(_)
                | CloudError::Unavailable(_)),
            ) => Err(problem.into()),
        }
    }
}

#[async_trait]
impl<C: Carrier> Provider for OutsideProvider<C> {
    fn kind(&self) -> &'static str {
        self.carrier.kind()
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.context.schemas.validate(self.carrier.schema(), config)
    }

    async fn validate_outside(&self, config: &mut Value) -> Result<(), NotValidated> {
        let schema = self.carrier.schema();
        let invalid = |problems| {
            let schema = schema.to_owned();
            NotValidated::Invalid(Invalid { schema, problems })
        };
        let asked = self
            .ask(Operation::Validate, json!({"config": config}))
            .await;
        let judgement: Judgement = match asked {
            Ok(judgement) => judgement,
            Err(Failure::Refused {
                cause: Cause::Configuration,
                message,
            }) => {
                let pointer = String::new();
                return Err(invalid(vec![Problem { pointer, message }]));
            }
            Err(failure) => return Err(NotValidated::Cloud(failure.into())),
        };
        if !judgement.problems.is_empty() {
            let placed = judgement.problems.into_iter().map(|problem| Problem {
                pointer: cut(&problem.pointer),
                message: cut(&problem.message),
            });
            return Err(invalid(placed.collect()));
        }
        if let Some(mut completed) = judgement.config {
            let fits = self.context.schemas.validate(schema, &mut completed);
            fits.map_err(|problem| {
                let text = format!(
                    "the config with the provider's defaults {}",
                    cut(&problem.to_string())
                );
                CloudError::Unavailable(text)
            })?;
            *config = completed;
        }
        Ok(())
    }

    async fn setup(&self) -> Result<(), SetupFailed> {
        self.carrier.prepare().await.map_err(SetupFailed)?;
        let asked = self.ask_about_itself().await;
        asked.map_err(|problem| SetupFailed(problem.to_string()))
    }

    fn places(&self) -> Result<Vec<Place>, PlacesUnknown> {
        Ok(self.said().places.clone())
    }

    fn fills(&self) -> Fills {
        self.said().fills.clone()
    }

    /// A worker registers once, with a proof that we offered for it or with a proof that the other side knows.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verified, NotVerified> {
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
}

#[async_trait]
impl<C: Carrier> Machines for OutsideProvider<C> {
    fn max_machines(&self) -> Option<u64> {
        self.said().max_machines
    }

    fn bids(&self, ask: &BidRequest<'_>) -> Vec<Result<Bid, String>> {
        self.bids.bids(ask)
    }

    /// Beside each other: a side that is slow about itself does not keep us from its bids.
    async fn refresh(&self) -> Result<(), CloudError> {
        tokio::join!(self.ask_about_itself_again(), self.ask_for_bids()).1
    }

    async fn launch(&self, order: &LaunchOrder<'_>) -> Result<Vec<Launched>, LaunchError> {
        let launched = self.ask_to_launch(order).await;
        launched.map_err(|failure| match failure {
            Failure::NotSent(problem) => LaunchError::Refused {
                cause: Cause::Unavailable,
                problem,
            },
            Failure::Refused { cause, message } => LaunchError::Refused {
                cause,
                problem: message,
            },
            Failure::Lost(problem) => LaunchError::Unknown(problem),
        })
    }

    async fn look(&self, workers: &[Worker]) -> Result<Vec<(WorkerKey, Sighting)>, CloudError> {
        let described: Vec<Value> = workers.iter().map(messages::worker).collect();
        let question = json!({"workers": described});
        let answer: Sightings = self.ask(Operation::Look, question).await?;
        let asked: HashMap<_, _> = workers.iter().map(|it| (named(&it.key), it)).collect();
        let seen = |sighting: OneSighting| {
            let worker = asked.get(&sighting.name()).ok_or_else(|| {
                let (pool, group, id) = sighting.name();
                let text = format!(
                    "the answer to look speaks of {pool}/{group}/{id}, which was not asked about"
                );
                CloudError::Unavailable(text)
            })?;
            Ok((worker.key.clone(), sighting.sighting()))
        };
        answer.sightings.into_iter().map(seen).collect()
    }

    fn look_batch(&self) -> usize {
        self.said().look_batch
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
        let page: Page = self.ask(Operation::Owned, question).await?;
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

fn named(key: &WorkerKey) -> (&str, &str, &str) {
    (key.pool_id.as_str(), key.group.as_str(), key.id.as_str())
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(MAX_TEXT_CHARS) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text.to_owned(),
    }
}
