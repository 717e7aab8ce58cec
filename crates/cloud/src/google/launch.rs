//! Builds the `instances.insert` calls of a launch order from its launch config.

use aws_lc_rs::digest;
use domain::id::{LaunchToken, PoolId, ProviderId};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use serde_json::{Map, Value, json};

use super::labels::{LaunchLabels, plain};
use super::machine_types;
use super::responses::Instance;
use crate::leftovers::KEEP;
use crate::{LaunchError, LaunchOrder, hex};

/// Google's limit for the value of one metadata key.
const MAX_METADATA_BYTES: usize = 262_144;
/// Machines that one order makes at most. The next plan orders the rest.
pub(super) const MAX_MACHINES: u32 = 64;
/// Characters of the pool in the name of a machine, as in Taskcluster.
const POOL_CHARS: usize = 38;
/// Permits what the roles of the account permit.
const SCOPE: &str = "https://www.googleapis.com/auth/cloud-platform";

/// Keys of a launch config that are for us.
const OURS: [&str; 6] = [
    "region",
    "zone",
    "workerConfig",
    "workerManager",
    "capacityPerInstance",
    machine_types::SEVERAL,
];

/// The account, the provider and the deployment for which machines are made.
pub(super) struct Maker<'a> {
    pub(super) provider_id: &'a ProviderId,
    /// The deployment. Machines may reach it by another URL.
    pub(super) root_url: &'a str,
    pub(super) worker_email: &'a str,
}

/// One call of `instances.insert`.
#[derive(Debug, PartialEq)]
pub(super) struct InsertCall {
    pub(super) zone: String,
    pub(super) name: String,
    pub(super) machine_type: String,
    pub(super) spot: bool,
    /// Google acts on one request id once.
    pub(super) request_id: String,
    pub(super) instance: Value,
}

/// The zone of a launch config.
pub(super) fn zone(config: &LaunchConfig) -> Option<&str> {
    config.configuration.get("zone")?.as_str()
}

/// Whether the launch config asks for machines that Google may take away.
pub(super) fn is_spot(configuration: &Map<String, Value>) -> bool {
    let scheduling = configuration.get("scheduling");
    scheduling.is_some_and(|it| it["provisioningModel"] == "SPOT" || it["preemptible"] == true)
}

/// Whether Google may take this machine away.
pub(super) fn is_spot_machine(instance: &Instance) -> bool {
    let scheduling = &instance.scheduling;
    let is = |key: &str, value: Value| scheduling.get(key) == Some(&value);
    is("provisioningModel", json!("SPOT")) || is("preemptible", json!(true))
}

/// Builds the calls, one for each machine. The same order makes the same calls.
pub(super) fn build_calls(
    order: &LaunchOrder<'_>,
    maker: &Maker<'_>,
) -> Result<Vec<InsertCall>, LaunchError> {
    let zone = zone(order.launch_config);
    let zone = zone.ok_or_else(|| invalid_config("the launch config has no zone"))?;
    let machine_type = machine_types::chosen(order).map_err(|error| invalid_config(&error))?;
    let instance = instance(order, maker, zone, machine_type)?;
    let spot = is_spot(&order.launch_config.configuration);
    let call = |index: u32| {
        let name = name(&order.pool.id, order.token, index);
        let mut instance = instance.clone();
        instance.insert("name".to_owned(), json!(name));
        InsertCall {
            zone: zone.to_owned(),
            name,
            machine_type: machine_type.to_owned(),
            spot,
            request_id: request_id(order.token, index),
            instance: Value::Object(instance),
        }
    };
    Ok((0..order.machines.clamp(1, MAX_MACHINES))
        .map(call)
        .collect())
}

/// The machine, without its name.
fn instance(
    order: &LaunchOrder<'_>,
    maker: &Maker<'_>,
    zone: &str,
    machine_type: &str,
) -> Result<Map<String, Value>, LaunchError> {
    let configuration = &order.launch_config.configuration;
    let mut instance = configuration.clone();
    instance.retain(|key, _| !OURS.contains(&key.as_str()));
    let labels = LaunchLabels {
        root_url: maker.root_url,
        provider_id: maker.provider_id,
        token: order.token,
        pool_id: &order.pool.id,
        owner: &order.pool.definition.owner,
        launch_config_id: order.launch_config.id.as_str(),
    };
    let labels = labels.merge_into(configuration.get("labels"));
    let disks = disks(configuration, &labels);
    let description = instance.remove("description");
    let description = description.unwrap_or_else(|| json!(order.pool.definition.description));
    let mut scheduling = object(configuration.get("scheduling"));
    scheduling.insert("automaticRestart".to_owned(), json!(false));
    let account = json!({"email": maker.worker_email, "scopes": [SCOPE]});
    for (key, value) in [
        ("labels", labels),
        ("description", description),
        ("disks", Value::Array(disks)),
        ("serviceAccounts", json!([account])),
        ("scheduling", Value::Object(scheduling)),
        ("metadata", metadata(order, maker, zone)?),
        (
            "machineType",
            json!(format!("zones/{zone}/machineTypes/{machine_type}")),
        ),
    ] {
        instance.insert(key.to_owned(), value);
    }
    Ok(instance)
}

/// The disks. Those that are made with the machine carry its labels, and end with it, unless the
/// launch config says otherwise about a disk that is not for booting: such a disk is kept.
fn disks(configuration: &Map<String, Value>, labels: &Value) -> Vec<Value> {
    let given = configuration.get("disks").and_then(Value::as_array);
    let mut disks = given.cloned().unwrap_or_default();
    for (index, disk) in disks.iter_mut().enumerate() {
        let Value::Object(disk) = disk else { continue };
        let is_persistent = disk.get("type").is_none_or(|kind| kind == "PERSISTENT");
        let own = disk.remove("labels");
        if !is_persistent || disk.contains_key("source") {
            continue;
        }
        let boots = disk.get("boot").map_or(index == 0, |boot| *boot == true);
        if boots {
            disk.insert("autoDelete".to_owned(), json!(true));
        }
        let ends = disk.entry("autoDelete").or_insert(json!(true)) != false;
        let mut merged = Map::new();
        if !ends {
            merged.insert(KEEP.to_owned(), json!("true"));
        }
        let mut parameters = object(disk.get("initializeParams"));
        merged.extend(object(own.as_ref()));
        merged.extend(object(parameters.get("labels")));
        merged.extend(object(Some(labels)));
        parameters.insert("labels".to_owned(), Value::Object(merged));
        disk.insert("initializeParams".to_owned(), Value::Object(parameters));
    }
    disks
}

/// The metadata of the launch config, with the document from which the worker learns its pool and
/// its configuration.
fn metadata(order: &LaunchOrder<'_>, maker: &Maker<'_>, zone: &str) -> Result<Value, LaunchError> {
    let configuration = &order.launch_config.configuration;
    let document = json!({
        "workerPoolId": order.pool.id.as_str(),
        "providerId": maker.provider_id.as_str(),
        "workerGroup": zone,
        "rootUrl": order.root_url,
        "workerConfig": object(configuration.get("workerConfig")),
    })
    .to_string();
    if document.len() > MAX_METADATA_BYTES {
        let bytes = document.len();
        return Err(invalid_config(&format!(
            "the metadata is too long: {bytes} bytes, and Google takes {MAX_METADATA_BYTES}. Make workerConfig shorter"
        )));
    }
    let mut metadata = object(configuration.get("metadata"));
    let items = metadata.get("items").and_then(Value::as_array);
    let mut items = items.cloned().unwrap_or_default();
    items.retain(|item| item["key"] != "taskcluster");
    items.push(json!({"key": "taskcluster", "value": document}));
    metadata.insert("items".to_owned(), Value::Array(items));
    Ok(Value::Object(metadata))
}

/// As Taskcluster names machines: the pool and an id, here the token. Further machines of one order
/// have their number at the end.
pub(super) fn name(pool_id: &PoolId, token: &LaunchToken, index: u32) -> String {
    let mut pool = plain(pool_id.as_str()).replace('_', "-");
    pool.truncate(POOL_CHARS);
    // A name begins with a letter.
    if !pool.starts_with(|first: char| first.is_ascii_lowercase()) {
        pool.replace_range(..1, "w");
    }
    let token = plain(token.as_str()).replace('_', "-");
    let number = match index {
        0 => String::new(),
        index => index.to_string(),
    };
    format!("{pool}-{token}{number}")
}

/// A UUID that only this machine of this launch has. Google wants version 4.
fn request_id(token: &LaunchToken, index: u32) -> String {
    let digest = digest::digest(&digest::SHA256, format!("{token}/{index}").as_bytes());
    let mut bytes = [0; 16];
    bytes.copy_from_slice(&digest.as_ref()[..16]);
    bytes[6] = bytes[6] & 0x0f | 0x40;
    bytes[8] = bytes[8] & 0x3f | 0x80;
    let text = hex(&bytes);
    let (a, b, c) = (&text[..8], &text[8..12], &text[12..16]);
    format!("{a}-{b}-{c}-{}-{}", &text[16..20], &text[20..])
}

fn object(value: Option<&Value>) -> Map<String, Value> {
    value
        .and_then(Value::as_object)
        .cloned()
        .unwrap_or_default()
}

pub(super) fn invalid_config(error: &str) -> LaunchError {
    LaunchError::Refused {
        cause: Cause::Configuration,
        error: error.to_owned(),
    }
}

#[cfg(test)]
mod tests;
