//! What the server has of the things that files are about.

use std::collections::BTreeMap;

use serde_json::Value;

use super::definitions::{Wanted, worker_types};
use super::kind::Kind;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::Progress;

/// One thing as the server has it.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct There {
    /// All that can be written, without the name.
    pub(super) content: Value,
    /// Of worker configurations.
    pub(super) version: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct Here {
    pub(super) items: BTreeMap<(Kind, String), There>,
    /// The pools that follow from worker configurations, and from which.
    pub(super) compiled: BTreeMap<String, String>,
}

impl There {
    pub(super) fn of(kind: Kind, reply: &Value) -> Self {
        Self {
            content: kind.content_of(reply),
            version: reply["version"].as_i64(),
        }
    }
}

/// Reads what the files concern.
pub(super) async fn read(client: &Client, wanted: &Wanted) -> Result<Here, Failure> {
    let mut here = Here::default();
    for kind in Kind::ALL {
        // Which pools are not made by hand is said by the configurations.
        let concerns_pools = kind == Kind::WorkerConfiguration && wanted.concerns(Kind::WorkerPool);
        if !wanted.concerns(kind) && !concerns_pools {
            continue;
        }
        let document = client
            .pages(&kind.list_call(), kind.list_key(), None)
            .await?;
        for reply in document[kind.list_key()].as_array().into_iter().flatten() {
            let id = reply[kind.id_key()].as_str().unwrap_or_default().to_owned();
            if kind == Kind::WorkerConfiguration {
                let pools = worker_types(reply).into_iter();
                here.compiled.extend(pools.map(|pool| (pool, id.clone())));
            }
            here.items.insert((kind, id), There::of(kind, reply));
        }
    }
    read_rules(client, wanted, &mut here).await?;
    Ok(here)
}

/// The list has no rules.
async fn read_rules(client: &Client, wanted: &Wanted, here: &mut Here) -> Result<(), Failure> {
    let mut progress = Progress::start();
    for (key, there) in &mut here.items {
        if key.0 != Kind::WorkerConfiguration || !wanted.items.contains_key(key) {
            continue;
        }
        progress.tell(|| format!("reading {} {}", key.0.noun(), key.1));
        if let Some(whole) = read_one(client, key.0, &key.1).await? {
            *there = whole;
        }
    }
    Ok(())
}

/// One thing as it is now.
pub(super) async fn read_one(
    client: &Client,
    kind: Kind,
    id: &str,
) -> Result<Option<There>, Failure> {
    match client.call(&kind.read_call(id)).await {
        // An override that has ended is as good as none.
        Ok(reply) if reply["inForce"] == false => Ok(None),
        Ok(reply) => Ok(Some(There::of(kind, &reply))),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}
