//! The answers of the provider protocol, read only after they fit their schemas.

use domain::id::{LaunchToken, WorkerGroup, WorkerId};
use domain::plan::Bid;
use domain::worker::Worker;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use crate::{Fills, Launched, Owned, Place, Proof, Sighting};

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Ready {
    pub(super) look_batch: usize,
    pub(super) max_machines: Option<u64>,
    #[serde(default)]
    pub(super) places: Vec<Place>,
    #[serde(default)]
    pub(super) fills: Fills,
}

#[derive(Debug, Deserialize)]
pub(super) struct Judgement {
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
pub(super) struct Bids {
    pub(super) bids: Vec<OneBid>,
}

#[derive(Debug, Deserialize)]
pub(super) struct OneBid {
    refusal: Option<String>,
    price: Option<f64>,
    utility: f64,
    #[serde(default)]
    place: String,
    available: Option<u64>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Made {
    pub(super) machines: Vec<Machine>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Machine {
    token: Option<String>,
    worker_group: String,
    worker_id: String,
    #[serde(default)]
    provider_data: Map<String, Value>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Page {
    pub(super) machines: Vec<Machine>,
    pub(super) continuation: Option<String>,
}

#[derive(Debug, Deserialize)]
pub(super) struct Sightings {
    pub(super) sightings: Vec<OneSighting>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct OneSighting {
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
    state: SeenState,
    reason: Option<String>,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum SeenState {
    Alive,
    Going,
    Gone,
    NotFound,
}

#[derive(Debug, Deserialize)]
pub(super) struct Verdict {
    pub(super) verified: bool,
    #[serde(default)]
    pub(super) detail: String,
}

#[derive(Debug, Deserialize)]
pub(super) struct ErrorBody {
    pub(super) cause: String,
    pub(super) message: String,
}

/// What the schema demands, the type demands too; if they ever differ, that is told and nothing breaks.
pub(super) fn read<T: DeserializeOwned>(answer: Value) -> Result<T, String> {
    serde_json::from_value(answer).map_err(|problem| problem.to_string())
}

impl OneBid {
    pub(super) fn bid(self) -> Result<Bid, String> {
        match self.refusal {
            Some(refusal) => Err(refusal),
            None => Ok(Bid {
                price: self.price,
                utility: self.utility,
                place: self.place,
                available: self.available,
            }),
        }
    }
}

impl Machine {
    pub(super) fn launched(&self) -> Option<Launched> {
        Some(Launched {
            group: self.worker_group.parse::<WorkerGroup>().ok()?,
            id: self.worker_id.parse::<WorkerId>().ok()?,
            provider_data: Value::Object(self.provider_data.clone()),
        })
    }

    pub(super) fn owned(&self) -> Option<Owned> {
        let token = self.token.as_deref();
        Some(Owned {
            token: token.and_then(|token| token.parse::<LaunchToken>().ok()),
            pool_id: None,
            machine: self.launched()?,
            sighting: None,
        })
    }
}

impl OneSighting {
    pub(super) fn name(&self) -> (&str, &str, &str) {
        (&self.worker_pool_id, &self.worker_group, &self.worker_id)
    }

    pub(super) fn sighting(self) -> Sighting {
        match self.state {
            SeenState::Alive => Sighting::Alive,
            SeenState::Going => Sighting::Going,
            SeenState::Gone => Sighting::Gone(self.reason),
            SeenState::NotFound => Sighting::NotFound,
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

/// The proof as the worker sent it.
pub(super) fn proof(proof: &Proof) -> Value {
    match proof {
        Proof::Token(token) => json!({"token": token.expose()}),
        Proof::StaticSecret(secret) => json!({"staticSecret": secret.expose()}),
        Proof::SignedDocument {
            document,
            signature,
        } => json!({"document": document, "signature": signature.expose()}),
        Proof::Document(document) => json!({"document": document}),
    }
}
