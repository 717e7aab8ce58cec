//! Snapshots and plans as JSON documents: versioned and strict, so that what is read means what was written.
//!
//! A snapshot that an operator copies into a file is a test case.

use serde::de::{DeserializeOwned, Error};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::{Value, json};

use super::{Plan, Snapshot};
use crate::demand::Demand;

/// Written; of the versions before it, the first is still read.
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
        read("snapshot", document, alone)
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

/// In the first version a pool had one provider, and all its offers came from there.
fn alone(snapshot: &mut Value) {
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

/// Whatever prints and parses alike.
pub(super) mod plain {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    pub(in crate::plan) fn serialize<S: Serializer>(
        value: &impl Display,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(value)
    }

    pub(in crate::plan) fn deserialize<'de, D, T>(deserializer: D) -> Result<T, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err: Display>,
    {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(D::Error::custom)
    }
}

/// The same, where there may be none.
pub(super) mod plain_option {
    use std::fmt::Display;
    use std::str::FromStr;

    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(in crate::plan) fn serialize<S: Serializer, T: Display>(
        value: &Option<T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        value.as_ref().map(T::to_string).serialize(serializer)
    }

    pub(in crate::plan) fn deserialize<'de, D, T>(deserializer: D) -> Result<Option<T>, D::Error>
    where
        D: Deserializer<'de>,
        T: FromStr<Err: Display>,
    {
        let text: Option<String> = Option::deserialize(deserializer)?;
        text.map(|text| text.parse().map_err(D::Error::custom))
            .transpose()
    }
}

/// How many tasks a worker has. Older documents only say whether it has any.
pub(super) fn number_of_tasks<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    let value = Value::deserialize(deserializer)?;
    match value.as_bool() {
        Some(is_busy) => Ok(u64::from(is_busy)),
        None => u64::deserialize(value).map_err(D::Error::custom),
    }
}

/// `provisioner/type/group/id`.
pub(super) mod worker_key {
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    use crate::id::WorkerKey;

    pub(in crate::plan) fn serialize<S: Serializer>(
        key: &WorkerKey,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_str(key)
    }

    pub(in crate::plan) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<WorkerKey, D::Error> {
        let text = String::deserialize(deserializer)?;
        parse(&text).ok_or_else(|| D::Error::custom(format!("{text:?} is not a worker")))
    }

    fn parse(text: &str) -> Option<WorkerKey> {
        let (rest, id) = text.rsplit_once('/')?;
        let (pool_id, group) = rest.rsplit_once('/')?;
        Some(WorkerKey {
            pool_id: pool_id.parse().ok()?,
            group: group.parse().ok()?,
            id: id.parse().ok()?,
        })
    }
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Told {
    #[serde(with = "worker_key")]
    worker: crate::id::WorkerKey,
    advice: crate::worker::Advice,
}

pub(super) mod advice_list {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Told;
    use crate::id::WorkerKey;
    use crate::worker::Advice;

    pub(in crate::plan) fn serialize<S: Serializer>(
        list: &[(WorkerKey, Advice)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(list.iter().map(|(worker, advice)| Told {
            worker: worker.clone(),
            advice: advice.clone(),
        }))
    }

    pub(in crate::plan) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(WorkerKey, Advice)>, D::Error> {
        let list: Vec<Told> = Vec::deserialize(deserializer)?;
        Ok(list
            .into_iter()
            .map(|told| (told.worker, told.advice))
            .collect())
    }
}

/// The demand, whose own home knows nothing of documents.
#[derive(Serialize, Deserialize)]
#[serde(remote = "Demand", rename_all = "camelCase", deny_unknown_fields)]
pub(super) struct DemandShape {
    pending: u64,
    claimed: u64,
}
