//! Reads a fleet from a file, another deployment or the target server.

use std::path::Path;

use clap::ValueEnum;
use domain::configuration::WorkerType;
use domain::id::PoolId;
use serde::Deserialize;
use serde_json::Value;

use super::fleet::Fleet;
use crate::client::{
    Call, Client, Settings, WORKER_MANAGER, credentials_of_environment, from_environment,
};
use crate::commands::role;
use crate::failure::{Exit, Failure};
use crate::output;

/// Maximum size of a file; the largest known fleets have a few megabytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Only {
    /// Only pools
    Pools,
    /// Only roles
    Roles,
}

pub(super) async fn read(from: &str, only: Option<Only>, verbose: bool) -> Result<Fleet, Failure> {
    if let Some(client) = client(from, verbose)? {
        let read = of_server(&client, only).await;
        return read.map_err(|failure| to_the_source(failure, &client));
    }
    let mut fleet = of_file(Path::new(from))?;
    match only {
        None => {}
        Some(Only::Pools) => fleet.roles.clear(),
        Some(Only::Roles) => fleet.pools.clear(),
    }
    Ok(fleet)
}

/// Reads the pools, with the worker configurations that they are compiled from. The roles of a file
/// are only counted.
pub(super) async fn read_pools(from: &str, verbose: bool) -> Result<Fleet, Failure> {
    let Some(client) = client(from, verbose)? else {
        let mut fleet = of_file(Path::new(from))?;
        let roles = std::mem::take(&mut fleet.roles);
        if !roles.is_empty() {
            fleet.ignored.insert("roles".to_owned(), roles.len());
        }
        return Ok(fleet);
    };
    let mut fleet = of_server(&client, Some(Only::Pools))
        .await
        .map_err(|failure| to_the_source(failure, &client))?;
    let compiled = compiled(&client).await;
    let compiled = compiled.map_err(|failure| to_the_source(failure, &client))?;
    for (pool_id, configuration) in compiled {
        if let Some(pool) = fleet.pools.get_mut(&pool_id) {
            pool.worker_configuration_id = Some(configuration);
        }
    }
    Ok(fleet)
}

/// The client for a deployment; `None` for a file.
pub(super) fn client(from: &str, verbose: bool) -> Result<Option<Client>, Failure> {
    if !from.starts_with("http://") && !from.starts_with("https://") {
        return Ok(None);
    }
    let settings = Settings {
        root_url: from.trim_end_matches('/').to_owned(),
        credentials: credentials_of_environment("SOURCE_", &from_environment)?,
    };
    Client::new(settings, verbose).map(Some)
}

/// Adds the hint that the source needs credentials of its own.
pub(super) fn to_the_source(failure: Failure, client: &Client) -> Failure {
    match (failure.exit, client.client_id()) {
        (Exit::NotAllowed, None) => failure.with_hint(
            "no credentials are set for the source: set SOURCE_CLIENT_ID and SOURCE_ACCESS_TOKEN",
        ),
        (_, _) => failure,
    }
}

/// The pools compiled from rules, with their worker configurations.
async fn compiled(client: &Client) -> Result<Vec<(PoolId, String)>, Failure> {
    const KEY: &str = "workerConfigurations";
    let call = Call::get(WORKER_MANAGER, &["worker-configurations"]).to(format!(
        "read the worker configurations of {}",
        client.root_url()
    ));
    let listed = match client.pages(&call, KEY, None).await {
        Ok(listed) => items(listed, KEY),
        // Taskcluster has no worker configurations.
        Err(failure) if failure.exit == Exit::NotFound => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let mut compiled = Vec::new();
    for configuration in listed {
        let Listed {
            worker_configuration_id: id,
            worker_types,
        } = serde_json::from_value(configuration)
            .map_err(|error| invalid_reply(client, &error.to_string()))?;
        for name in worker_types {
            let worker_type: WorkerType = name
                .parse()
                .map_err(|error| invalid_reply(client, &format!("worker type {name}: {error}")))?;
            compiled.push((worker_type.pool_id().clone(), id.clone()));
        }
    }
    Ok(compiled)
}

/// The fields of a worker configuration that are read.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Listed {
    worker_configuration_id: String,
    worker_types: Vec<String>,
}

pub(super) async fn of_server(client: &Client, only: Option<Only>) -> Result<Fleet, Failure> {
    let mut fleet = Fleet::default();
    if only != Some(Only::Roles) {
        let call = Call::get(WORKER_MANAGER, &["worker-pools"])
            .to(format!("read the pools of {}", client.root_url()));
        let document = client.pages(&call, "workerPools", None).await?;
        fleet
            .add_pools(items(document, "workerPools"))
            .map_err(|error| invalid_reply(client, &error))?;
    }
    if only != Some(Only::Pools) {
        let call = role::list().to(format!("read the roles of {}", client.root_url()));
        let document = client.pages(&call, "roles", None).await?;
        fleet
            .add_roles(items(document, "roles"))
            .map_err(|error| invalid_reply(client, &error))?;
    }
    Ok(fleet)
}

/// The fleet of the target. If the auth service of another deployment keeps its roles, those of the
/// source are left out, unless only they are wanted.
pub(super) async fn of_target(
    client: &Client,
    only: Option<Only>,
    source: &mut Fleet,
) -> Result<Fleet, Failure> {
    match of_server(client, only).await {
        Err(failure) if only.is_none() && failure.exit == Exit::NotFound => {
            let pools = of_server(client, Some(Only::Pools)).await?;
            output::note(
                "roles are left out: the server keeps none, because it uses another auth service",
            );
            source.roles.clear();
            Ok(pools)
        }
        read => read,
    }
}

pub(super) fn items(mut document: Value, key: &str) -> Vec<Value> {
    let items = document[key].as_array_mut();
    items.map(std::mem::take).unwrap_or_default()
}

fn invalid_reply(client: &Client, error: &str) -> Failure {
    Failure::failed(format!(
        "cannot parse the reply of {}: {error}",
        client.root_url()
    ))
}

fn of_file(path: &Path) -> Result<Fleet, Failure> {
    let name = path.display();
    let unreadable = |error: std::io::Error| Failure::usage(format!("cannot read {name}: {error}"));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        return Err(Failure::usage(format!(
            "{name} may have at most {MAX_FILE_BYTES} bytes"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let document = serde_json::from_str(&text)
        .map_err(|error| Failure::usage(format!("{name} is not JSON: {error}")))?;
    Fleet::parse(document).map_err(|error| {
        Failure::usage(format!("cannot parse {name}: {error}")).with_hint(
            "expected the output of `tc-admin generate --json`, or {\"workerPools\": [...], \
             \"roles\": [...]}",
        )
    })
}
