//! Snapshots and plans as JSON documents, with a version and strict parsing.
//!
//! A snapshot that an operator copies into a file is a test case.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Plan, Snapshot};
use crate::id::WorkerKey;
use crate::worker::Advice;

/// The version that is written. The first version can be read, too.
const VERSION: u64 = 2;

#[derive(Debug, thiserror::Error)]
pub enum BadDocument {
    #[error(
        "the {kind} document has version {found}, and this program reads versions up to {VERSION}"
    )]
    Version { kind: &'static str, found: String },
    #[error("the {kind} document cannot be read")]
    Content {
        kind: &'static str,
        #[source]
        problem: serde_json::Error,
    },
}

impl Snapshot {
    pub fn to_json(&self) -> Value {
        write("snapshot", self)
    }

    pub fn from_json(document: &Value) -> Result<Self, BadDocument> {
        read("snapshot", document, add_only_source)
    }
}

impl Plan {
    pub fn to_json(&self) -> Value {
        write("plan", self)
    }

    pub fn from_json(document: &Value) -> Result<Self, BadDocument> {
        read("plan", document, |_| ())
    }
}

fn write(kind: &'static str, content: &impl Serialize) -> Value {
    json!({"version": VERSION, kind: content})
}

fn read<T: DeserializeOwned>(
    kind: &'static str,
    document: &Value,
    renew: impl FnOnce(&mut Value),
) -> Result<T, BadDocument> {
    let found = document.get("version").unwrap_or(&Value::Null);
    let mut content = document.get(kind).cloned().unwrap_or_default();
    match found.as_u64() {
        Some(VERSION) => {}
        Some(1) => renew(&mut content),
        Some(_) | None => {
            let found = found.to_string();
            return Err(BadDocument::Version { kind, found });
        }
    }
    serde_json::from_value(content).map_err(|problem| BadDocument::Content { kind, problem })
}

/// The first version had one provider per pool, and all offers came from it.
fn add_only_source(snapshot: &mut Value) {
    let Some(fields) = snapshot.as_object_mut() else {
        return;
    };
    let provider_id = fields.remove("providerId").unwrap_or_default();
    let room = fields.remove("room").unwrap_or_default();
    let offers = fields.get_mut("offers").and_then(Value::as_array_mut);
    for offer in offers.into_iter().flatten() {
        if let Some(offer) = offer.as_object_mut() {
            offer.insert("providerId".to_owned(), provider_id.clone());
        }
    }
    let source = json!({"providerId": provider_id, "room": room});
    fields.insert("sources".to_owned(), json!([source]));
}

/// The number of tasks of a worker. Older documents only say whether it has any.
pub(super) fn number_of_tasks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    match value.as_bool() {
        Some(is_busy) => Ok(u64::from(is_busy)),
        None => u64::deserialize(value).map_err(D::Error::custom),
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct AdviceEntry {
    worker: WorkerKey,
    advice: Advice,
}

pub(super) mod advice_list {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{Advice, AdviceEntry, WorkerKey};

    pub(in crate::plan) fn serialize<S: Serializer>(
        list: &[(WorkerKey, Advice)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|(worker, advice)| AdviceEntry {
            worker: worker.clone(),
            advice: advice.clone(),
        }))
    }

    pub(in crate::plan) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(WorkerKey, Advice)>, D::Error> {
        let list: Vec<AdviceEntry> = Vec::deserialize(deserializer)?;
        Ok(list
            .into_iter()
            .map(|told| (told.worker, told.advice))
            .collect())
    }
}
