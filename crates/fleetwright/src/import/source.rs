//! Reads a fleet: from a file, from another deployment, from the server itself.

use std::path::Path;

use anyhow::Context as _;
use serde_json::Value;

use super::Only;
use super::fleet::Fleet;
use crate::client::{Call, Client, Credentials, Settings, WORKER_MANAGER, from_environment};
use crate::commands::role;
use crate::failure::Failure;

/// The largest real fleets have a few megabytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

pub(super) async fn read(from: &str, only: Option<Only>, verbose: bool) -> Result<Fleet, Failure> {
    if from.starts_with("http://") || from.starts_with("https://") {
        let settings = Settings {
            root_url: from.trim_end_matches('/').to_owned(),
            credentials: Credentials::of_environment("SOURCE_", &from_environment)?,
        };
        return of_server(&Client::new(settings, verbose)?, only).await;
    }
    let mut fleet = of_file(Path::new(from))?;
    match only {
        None => {}
        Some(Only::Pools) => fleet.roles.clear(),
        Some(Only::Roles) => fleet.pools.clear(),
    }
    Ok(fleet)
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
    let size = std::fs::metadata(path)
        .with_context(|| format!("cannot read {name}"))?
        .len();
    if size > MAX_FILE_BYTES {
        return Err(Failure::usage(format!(
            "{name} has more than {MAX_FILE_BYTES} bytes"
        )));
    }
    let text = std::fs::read_to_string(path).with_context(|| format!("cannot read {name}"))?;
    let document = serde_json::from_str(&text)
        .map_err(|problem| Failure::usage(format!("{name} is not JSON: {problem}")))?;
    Fleet::parse(document).map_err(|problem| {
        Failure::usage(format!("cannot understand {name}: {problem}")).advise(
            "give what `tc-admin generate --json` prints, or {\"workerPools\": [...], \"roles\": [...]}",
        )
    })
}
