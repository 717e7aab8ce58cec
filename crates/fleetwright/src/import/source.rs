//! Reads a fleet: from a file, from another deployment, from the server itself.

use std::path::Path;

use domain::configuration::WorkerType;
use domain::id::PoolId;
use serde::Deserialize;
use serde_json::Value;

use super::Only;
use super::fleet::Fleet;
use crate::client::{
    Call, Client, Settings, WORKER_MANAGER, credentials_of_environment, from_environment,
};
use crate::commands::role;
use crate::failure::{Exit, Failure};

/// The largest real fleets have a few megabytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

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

/// The worker pools, and of whose rules they are made.
pub(super) async fn read_pools(from: &str, verbose: bool) -> Result<Fleet, Failure> {
    let mut fleet = read(from, Some(Only::Pools), verbose).await?;
    if let Some(client) = client(from, verbose)? {
        let compiled = compiled(&client).await;
        let compiled = compiled.map_err(|failure| to_the_source(failure, &client))?;
        for (pool_id, configuration) in compiled {
            if let Some(pool) = fleet.pools.get_mut(&pool_id) {
                pool.worker_configuration_id = Some(configuration);
            }
        }
    }
    Ok(fleet)
}

/// For another deployment, if that is what it is.
fn client(from: &str, verbose: bool) -> Result<Option<Client>, Failure> {
    if !from.starts_with("http://") && !from.starts_with("https://") {
        return Ok(None);
    }
    let settings = Settings {
        root_url: from.trim_end_matches('/').to_owned(),
        credentials: credentials_of_environment("SOURCE_", &from_environment)?,
    };
    Client::new(settings, verbose).map(Some)
}

/// Who is not let in should know whose credentials are asked for.
fn to_the_source(failure: Failure, client: &Client) -> Failure {
    match (failure.exit, client.client_id()) {
        (Exit::NotAllowed, None) => failure.advise(
            "no credentials were given for the deployment that is read: set SOURCE_CLIENT_ID and SOURCE_ACCESS_TOKEN",
        ),
        (_, _) => failure,
    }
}

/// Which pools are made of rules, where there are rules.
async fn compiled(client: &Client) -> Result<Vec<(PoolId, String)>, Failure> {
    const KEY: &str = "workerConfigurations";
    let call = Call::get(WORKER_MANAGER, &["worker-configurations"]).to(format!(
        "read the worker configurations of {}",
        client.root_url()
    ));
    let listed = match client.pages(&call, KEY, None).await {
        Ok(listed) => items(listed, KEY),
        // Taskcluster has none.
        Err(failure) if failure.exit == Exit::NotFound => Vec::new(),
        Err(failure) => return Err(failure),
    };
    let mut compiled = Vec::new();
    for configuration in listed {
        let Listed {
            worker_configuration_id: id,
            worker_types,
        } = serde_json::from_value(configuration)
            .map_err(|problem| strange(client, &problem.to_string()))?;
        for name in worker_types {
            let worker_type: WorkerType = name
                .parse()
                .map_err(|problem| strange(client, &format!("worker type {name}: {problem}")))?;
            compiled.push((worker_type.pool_id().clone(), id.clone()));
        }
    }
    Ok(compiled)
}

/// What of a worker configuration is read.
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
            .to(format!("read the worker pools of {}", client.root_url()));
        let document = client.pages(&call, "workerPools", None).await?;
        fleet
            .add_pools(items(document, "workerPools"))
            .map_err(|problem| strange(client, &problem))?;
    }
    if only != Some(Only::Pools) {
        let call = role::list().to(format!("read the roles of {}", client.root_url()));
        let document = client.pages(&call, "roles", None).await?;
        fleet
            .add_roles(items(document, "roles"))
            .map_err(|problem| strange(client, &problem))?;
    }
    Ok(fleet)
}

fn items(mut document: Value, key: &str) -> Vec<Value> {
    match document[key].take() {
        Value::Array(items) => items,
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Vec::new()
        }
    }
}

fn strange(client: &Client, problem: &str) -> Failure {
    Failure::failed(format!(
        "cannot understand what {} has: {problem}",
        client.root_url()
    ))
}

fn of_file(path: &Path) -> Result<Fleet, Failure> {
    let name = path.display();
    let unreadable =
        |problem: std::io::Error| Failure::usage(format!("cannot read {name}: {problem}"));
    let size = std::fs::metadata(path).map_err(unreadable)?.len();
    if size > MAX_FILE_BYTES {
        return Err(Failure::usage(format!(
            "{name} has more than {MAX_FILE_BYTES} bytes"
        )));
    }
    let text = std::fs::read_to_string(path).map_err(unreadable)?;
    let document = serde_json::from_str(&text)
        .map_err(|problem| Failure::usage(format!("{name} is not JSON: {problem}")))?;
    Fleet::parse(document).map_err(|problem| {
        Failure::usage(format!("cannot understand {name}: {problem}")).advise(
            "give what `tc-admin generate --json` prints, or {\"workerPools\": [...], \"roles\": [...]}",
        )
    })
}
