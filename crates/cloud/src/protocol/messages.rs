//! The responses of the provider protocol, parsed after they passed their schemas.

use domain::id::{LaunchToken, WorkerGroup, WorkerId};
use domain::plan::Bid;
use domain::time::Timestamp;
use domain::worker::Worker;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::images::ImagesBody;
use crate::{CloudError, Fills, LaunchedMachine, MachineEnd, OwnedMachine, Place, Proof, Sighting};

/// The provider's description of itself, from its last response to `setup`.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Description {
    /// The highest version of the protocol that the provider knows.
    pub(super) version: u32,
    pub(super) look_batch: usize,
    pub(super) max_machines: Option<u64>,
    #[serde(default)]
    pub(super) places: Vec<Place>,
    #[serde(default)]
    pub(super) fills: Fills,
    /// `None`: the provider takes no images.
    #[serde(default)]
    pub(super) images: Option<ImagesBody>,
    /// The optional operations that the provider knows.
    #[serde(default)]
    pub(super) operations: Vec<OptionalOperation>,
    /// The error of the last try, if it failed.
    #[serde(skip)]
    pub(super) error: Option<CloudError>,
}

/// An optional operation that a provider knows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum OptionalOperation {
    CreateWorker,
    UpdateWorker,
    PreparePool,
    ReleasePool,
    Terminate,
}

#[derive(Debug, Deserialize)]
pub(super) struct ConfigCheck {
    pub(super) config: Option<Value>,
    #[serde(default)]
    pub(super) problems: Vec<PlacedProblem>,
}

#[derive(Debug, Deserialize)]
pub(super) struct PlacedProblem {
    pub(super) pointer: String,
    pub(super) message: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct BidsResponse {
    /// Each is checked alone.
    pub(super) bids: Vec<Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct BidBody {
    refusal: Option<String>,
    price: Option<f64>,
    utility: f64,
    #[serde(default)]
    place: String,
    available: Option<u64>,
    capacity_per_instance: Option<u32>,
    reliability: Option<f64>,
    ready_seconds: Option<f64>,
    expires: Option<Timestamp>,
    #[serde(default)]
    data: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct MachineBody {
    token: Option<String>,
    worker_group: String,
    worker_id: String,
    #[serde(default)]
    provider_data: Map<String, Value>,
}

/// The response to `launch` and `owned`.
#[derive(Debug, Deserialize)]
pub(super) struct MachinesResponse {
    pub(super) machines: Vec<MachineBody>,
    /// Only in a page of `owned`.
    pub(super) continuation: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct LookResponse {
    pub(super) sightings: Vec<SightingBody>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct SightingBody {
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
    state: SightingState,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SightingState {
    Alive,
    #[serde(rename = "going")]
    Ending,
    #[serde(rename = "gone")]
    Ended,
    NotFound,
}

#[derive(Debug, Deserialize)]
pub(super) struct VerifyResponse {
    pub(super) verified: bool,
    #[serde(default)]
    pub(super) detail: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) cause: String,
    pub(super) message: String,
}

/// Parses a response that passed its schema. If type and schema ever differ, this returns an error.
pub(super) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, String> {
    serde_json::from_value(answer).map_err(|error| error.to_string())
}

impl BidBody {
    pub(super) fn bid(self) -> Result<Bid, String> {
        match self.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(Bid {
                price: self.price,
                utility: self.utility,
                place: self.place,
                available: self.available,
                capacity_each: self.capacity_per_instance,
                reliability: self.reliability,
                ready_ms: self.ready_seconds.map(in_milliseconds),
                expires: self.expires,
                data: self.data,
            }),
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "the schema limits the time to a week"
)]
fn in_milliseconds(seconds: f64) -> i64 {
    (seconds * 1e3).round() as i64
}

impl MachineBody {
    pub(super) fn launched(&self) -> Option<LaunchedMachine> {
        Some(LaunchedMachine {
            group: self.worker_group.parse::<WorkerGroup>().ok()?,
            id: self.worker_id.parse::<WorkerId>().ok()?,
            made: None,
            provider_data: Value::Object(self.provider_data.clone()),
        })
    }

    pub(super) fn owned(&self) -> Option<OwnedMachine> {
        let token = self.token.as_deref();
        Some(OwnedMachine {
            token: token.and_then(|token| token.parse::<LaunchToken>().ok()),
            pool_id: None,
            machine: self.launched()?,
            sighting: None,
        })
    }
}

impl SightingBody {
    pub(super) fn name(&self) -> (&str, &str, &str) {
        (&self.worker_pool_id, &self.worker_group, &self.worker_id)
    }

    pub(super) fn sighting(self) -> Sighting {
        match self.state {
            SightingState::Alive => Sighting::Alive,
            SightingState::Ending => Sighting::Ending,
            SightingState::Ended => Sighting::Ended(MachineEnd::because(self.reason)),
            SightingState::NotFound => Sighting::NotFound,
        }
    }
}

pub(super) fn worker(worker: &Worker) -> Value {
    let data = match &worker.provider_data {
        Value::Object(data) => data.clone(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
            Map::new()
        }
    };
    let mut described = json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "workerGroup": worker.key.group.as_str(),
        "workerId": worker.key.id.as_str(),
        "state": worker.state.as_str(),
        "providerData": data,
    });
    if let Some(id) = &worker.launch_config_id {
        described["launchConfigId"] = json!(id.as_str());
    }
    described
}

/// Adds the data that the provider keeps for the pool, if there is any: providers that keep none
/// may refuse members that they do not know.
pub(super) fn add_pool_data(question: &mut Value, data: &Value) {
    if let Value::Object(data) = data
        && !data.is_empty()
    {
        question["poolData"] = json!(data);
    }
}

/// The proof in the form in which the worker sent it.
pub(super) fn proof(proof: &Proof) -> Value {
    match proof {
        Proof::Token(token) => json!({"token": token.expose()}),
        Proof::StaticSecret(secret) => json!({"staticSecret": secret.expose()}),
        Proof::SignedDocument {
            document,
            signature,
        } => json!({"document": document, "signature": signature.expose()}),
        Proof::Document(document) => json!({"document": document}),
        // Relays identify declared hosts only, and programs have none.
        Proof::Relay => json!({}),
    }
}
