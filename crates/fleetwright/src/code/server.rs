//! Reads the state of the server: the items of the kinds that the files define.

use std::collections::BTreeMap;

use serde_json::Value;

use super::definitions::{Definitions, worker_types};
use super::kind::Kind;
use crate::client::Client;
use crate::failure::{Exit, Failure};
use crate::output::Progress;

/// One item on the server.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ServerItem {
    /// All writable fields, without the id.
    pub(super) content: Value,
    /// The version, of kinds that have versions.
    pub(super) version: Option<i64>,
}

#[derive(Debug, Default)]
pub(super) struct ServerState {
    pub(super) items: BTreeMap<(Kind, String), ServerItem>,
    /// The pools compiled from worker configurations, with the configurations' ids.
    pub(super) compiled: BTreeMap<String, String>,
}

impl ServerItem {
    pub(super) fn of(kind: Kind, reply: &Value) -> Self {
        Self {
            content: kind.content_of(reply),
            version: reply["version"].as_i64(),
        }
    }
}

/// Reads all items of the kinds that the files define or own.
pub(super) async fn read(
    client: &Client,
    definitions: &Definitions,
) -> Result<ServerState, Failure> {
    let mut server_state = ServerState::default();
    for kind in Kind::ALL {
        // Configurations tell which pools are compiled.
        let concerns_pools =
            kind == Kind::WorkerConfiguration && definitions.concerns(Kind::WorkerPool);
        if !definitions.concerns(kind) && !concerns_pools {
            continue;
        }
        let document = client
            .pages(&kind.list_call(), kind.list_key(), None)
            .await?;
        for reply in document[kind.list_key()].as_array().into_iter().flatten() {
            let id = reply[kind.id_key()].as_str().unwrap_or_default().to_owned();
            if kind == Kind::WorkerConfiguration {
                let pools = worker_types(reply).into_iter();
                server_state
                    .compiled
                    .extend(pools.map(|pool| (pool, id.clone())));
            }
            server_state
                .items
                .insert((kind, id), ServerItem::of(kind, reply));
        }
    }
    read_complete(client, definitions, &mut server_state).await?;
    Ok(server_state)
}

/// Reads complete items: the lists have neither the rules of worker configurations nor how images
/// are built.
async fn read_complete(
    client: &Client,
    definitions: &Definitions,
    server_state: &mut ServerState,
) -> Result<(), Failure> {
    let mut progress = Progress::start();
    for (key, stored) in &mut server_state.items {
        if !key.0.has_versions() || !definitions.items.contains_key(key) {
            continue;
        }
        progress.report(|| format!("reading {} {}", key.0.noun(), key.1));
        if let Some(complete) = read_one(client, key.0, &key.1).await? {
            *stored = complete;
        }
    }
    Ok(())
}

pub(super) async fn read_one(
    client: &Client,
    kind: Kind,
    id: &str,
) -> Result<Option<ServerItem>, Failure> {
    match client.call(&kind.read_call("read", id)).await {
        // An ended override counts as missing.
        Ok(reply) if reply["inForce"] == false => Ok(None),
        Ok(reply) => Ok(Some(ServerItem::of(kind, &reply))),
        Err(failure) if failure.exit == Exit::NotFound => Ok(None),
        Err(failure) => Err(failure),
    }
}
