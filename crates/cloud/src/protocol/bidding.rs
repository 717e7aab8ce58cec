//! Asks a protocol provider for its bids, and matches them to launch configs.
//!
//! An invalid bid concerns its own launch config only, and an answer that is late, too long or
//! missing concerns those of its request only. Each has a reason, which plans show.

use std::time::Duration;

use contract::{Problem, Schemas};
use domain::plan::{Bid, Bids, MAX_BIDS as MAX_BIDS_EACH};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::bids::Key;
use super::messages::{BidBody, BidsResponse, read};
use super::transport::{Failure, Operation, Transport};
use super::{ProtocolProvider, shorten};
use crate::CloudError;

/// Launch configs in one request for bids.
pub(super) const BID_BATCH: usize = 100;
/// Bids in one response at most.
const MAX_BIDS: usize = 1_000;
/// The data of a bid is at most this long as JSON.
const MAX_DATA_BYTES: usize = 4_096;
/// A later answer does not count, even if the provider's own time limit is longer.
const MAX_BID_TIME: Duration = Duration::from_secs(30);
/// No request begins later than this after the first.
const MAX_ROUND_TIME: Duration = Duration::from_secs(75);

/// Bids for launch configs, or why there are none.
type Matched = Vec<Bids>;

#[expect(private_bounds, reason = "a transport is a detail of this crate")]
impl<C: Transport> ProtocolProvider<C> {
    /// A failed request does not keep the others from being sent.
    pub(super) async fn ask_for_bids(&self) -> Result<(), CloudError> {
        let id = &self.context.id;
        let (now, start) = (self.context.clock.now(), Instant::now());
        let mut result = Ok(());
        for batch in self.bids.wanted(now, BID_BATCH) {
            let (keys, contents): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
            let answer = match start.elapsed() < MAX_ROUND_TIME {
                true => self.ask_for_batch(&keys, contents).await,
                false => Err(format!("{id} answers too slowly to be asked for all bids")),
            };
            match answer {
                Ok(bids) => {
                    for (key, bid) in keys.iter().zip(bids) {
                        self.bids.answered(key, bid, now);
                    }
                }
                Err(why) => {
                    for key in &keys {
                        self.bids.failed(key, why.clone());
                    }
                    result = Err(CloudError::Unavailable(why));
                }
            }
        }
        result
    }

    /// The bids in the order of the keys. `Err`: why the answer has none that count.
    async fn ask_for_batch(&self, keys: &[Key], contents: Vec<Value>) -> Result<Matched, String> {
        let id = &self.context.id;
        let question = json!({"launchConfigs": contents});
        let asked = self.ask_unchecked(Operation::Bids, question);
        let answer = match tokio::time::timeout(MAX_BID_TIME, asked).await {
            Ok(Ok((answer, _))) => answer,
            Ok(Err(Failure::Refused { cause, message })) => {
                return Err(format!("{id} refuses to bid ({cause}): {message}"));
            }
            Ok(Err(Failure::Lost(error))) => {
                return Err(format!("{id} did not answer the request for bids: {error}"));
            }
            Err(_) => {
                return Err(format!(
                    "{id} did not answer the request for bids within {} s",
                    MAX_BID_TIME.as_secs()
                ));
            }
        };
        let bids = read::<BidsResponse>(answer).map_err(|error| {
            let error = shorten(&error);
            format!("{id} did not answer the request for bids: the response to bids {error}")
        })?;
        let checked = |bid| CheckedBid::of(&self.context.schemas, bid);
        match bids.bids.len() {
            // A provider that does not price launch configs returns no bids.
            0 => Ok(vec![Ok(vec![Bid::plain(String::new())]); keys.len()]),
            count if count > MAX_BIDS => Err(format!(
                "{id} answered with {count} bids, and {MAX_BIDS} are the limit"
            )),
            _ => {
                let bids = bids.bids.into_iter().map(checked).collect();
                self.matched(keys, bids)
            }
        }
    }

    /// By name if any bid names its launch config, otherwise by position.
    fn matched(&self, keys: &[Key], bids: Vec<CheckedBid>) -> Result<Matched, String> {
        let id = &self.context.id;
        if bids.iter().any(|bid| bid.launch_config_id.is_some()) {
            return Ok(keys
                .iter()
                .map(|key| self.named(key, keys, &bids))
                .collect());
        }
        let (asked, received) = (keys.len(), bids.len());
        if asked != received {
            return Err(format!(
                "{id} answered with {received} bids for {asked} launch configs"
            ));
        }
        Ok(bids.into_iter().map(|bid| Ok(vec![bid.bid?])).collect())
    }

    fn named(&self, key: &Key, keys: &[Key], bids: &[CheckedBid]) -> Bids {
        let id = &self.context.id;
        let own: Vec<&CheckedBid> = bids.iter().filter(|bid| bid.is_for(key)).collect();
        let most = match self.bids_for_quantity() {
            true => MAX_BIDS_EACH,
            false => 1,
        };
        match own.as_slice() {
            [only] => Ok(vec![only.bid.clone()?]),
            [first, ..] if own.len() <= most => {
                let good: Vec<Bid> = own.iter().filter_map(|bid| bid.bid.clone().ok()).collect();
                match good.is_empty() {
                    true => Ok(vec![first.bid.clone()?]),
                    false => Ok(good),
                }
            }
            [_, ..] if most == 1 => Err(format!("{id} made {} bids for it", own.len())),
            [_, ..] => {
                let count = own.len();
                Err(format!(
                    "{id} made {count} bids for it, and {most} are the limit"
                ))
            }
            [] => {
                let mut others = bids
                    .iter()
                    .filter(|bid| !keys.iter().any(|key| bid.is_for(key)));
                let other = others.find_map(|bid| bid.launch_config_id.as_deref());
                let other = other.map(|other| {
                    let other = shorten(other);
                    format!("; it bid for {other}, which it was not asked about")
                });
                Err(format!(
                    "{id} made no bid for it{}",
                    other.unwrap_or_default()
                ))
            }
        }
    }
}

/// A bid of a response, checked alone.
struct CheckedBid {
    launch_config_id: Option<String>,
    worker_pool_id: Option<String>,
    bid: Result<Bid, String>,
}

impl CheckedBid {
    fn of(schemas: &Schemas, mut body: Value) -> Self {
        let name = |key: &str| body.get(key).and_then(Value::as_str).map(str::to_owned);
        let (launch_config_id, worker_pool_id) = (name("launchConfigId"), name("workerPoolId"));
        let valid = schemas.validate("fleetwright/v1/provider-bid.json", &mut body);
        let bid = valid.map_err(|invalid| {
            let text = |problem: &Problem| format!("{} {}", problem.pointer, problem.message);
            let problems: Vec<String> = invalid.problems.iter().map(text).collect();
            format!(
                "its bid is invalid: {}",
                shorten(problems.join("; ").trim())
            )
        });
        let bid = bid.and_then(|()| {
            let size_bytes = body.get("data").map_or(0, |data| data.to_string().len());
            if size_bytes > MAX_DATA_BYTES {
                return Err(format!(
                    "its bid has {size_bytes} bytes of data, and {MAX_DATA_BYTES} are the limit"
                ));
            }
            read::<BidBody>(body)
                .map_err(|error| format!("its bid is invalid: {}", shorten(&error)))?
                .bid()
        });
        Self {
            launch_config_id,
            worker_pool_id,
            bid,
        }
    }

    fn is_for(&self, (pool_id, launch_config_id): &Key) -> bool {
        self.launch_config_id.as_deref() == Some(launch_config_id.as_str())
            && self
                .worker_pool_id
                .as_deref()
                .is_none_or(|named| named == pool_id.as_str())
    }
}
