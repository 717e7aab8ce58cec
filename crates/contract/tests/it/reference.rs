//! Compares the schemas with those of Taskcluster's services, if a copy of them exists.

use contract::Schemas;
use serde_json::{Map, Value};
use std::{
    collections::BTreeSet,
    fs,
    path::{Path, PathBuf},
};

/// Methods that we do not serve, another program's settings, menus of task pages, and schemas that
/// no method uses.
const LEFT_OUT: [&str; 14] = [
    "auth/v1/aws-s3-credentials-response.json",
    "auth/v1/azure-account-list-response.json",
    "auth/v1/azure-container-list-response.json",
    "auth/v1/azure-container-response.json",
    "auth/v1/azure-table-access-response.json",
    "auth/v1/azure-table-list-response.json",
    "auth/v1/gcp-credentials-response.json",
    "auth/v1/github-repo-token-request.json",
    "auth/v1/github-token-response.json",
    "auth/v1/sentry-dsn-response.json",
    "auth/v1/websocktunnel-token-response.json",
    "common/action-schema-v1.json",
    "common/values.schema.json",
    "queue/v1/poll-task-urls-response.json",
];

fn reference() -> Option<PathBuf> {
    let folder =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/contract/data/schemas");
    if folder.is_dir() {
        return Some(folder);
    }
    println!("skipped: {} does not exist", folder.display());
    None
}

/// A schema without titles and descriptions. Below `properties` the keys are names, and stay.
fn shape(schema: &Value) -> Value {
    let Value::Object(keywords) = schema else {
        return schema.clone();
    };
    let mut kept = Map::new();
    for (keyword, value) in keywords {
        let value = match keyword.as_str() {
            "title" | "description" | "examples" => continue,
            "properties" | "definitions" => by_name(value.as_object().unwrap()),
            "items" | "not" | "additionalProperties" => shape(value),
            "allOf" | "anyOf" | "oneOf" => value.as_array().unwrap().iter().map(shape).collect(),
            _ => value.clone(),
        };
        kept.insert(keyword.clone(), value);
    }
    Value::Object(kept)
}

fn by_name(schemas: &Map<String, Value>) -> Value {
    schemas
        .iter()
        .map(|(name, schema)| (name.clone(), shape(schema)))
        .collect()
}

/// Changes that are newer than the copy, in their own file.
fn added_since(folder: &Path, name: &str) -> Value {
    let text = fs::read_to_string(folder.join("../additions/after-v106.json")).unwrap();
    let added: Value = serde_json::from_str(&text).unwrap();
    let (service, file) = name.split_once('/').unwrap();
    added[service]["schemas"][file].clone()
}

/// Schemas of the worker manager that only we have: rules, documentation, overrides, worker states.
const BEYOND: [&str; 37] = [
    "worker-manager/v1/budget-full.json",
    "worker-manager/v1/budget-list.json",
    "worker-manager/v1/documentation-list.json",
    "worker-manager/v1/documentation.json",
    "worker-manager/v1/end-selected-workers-request.json",
    "worker-manager/v1/ended-task-run.json",
    "worker-manager/v1/ended-workers.json",
    "worker-manager/v1/evaluate-request.json",
    "worker-manager/v1/evaluate-response.json",
    "worker-manager/v1/launch-config-full.json",
    "worker-manager/v1/launch-config-list.json",
    "worker-manager/v1/move-rule-request.json",
    "worker-manager/v1/override-full.json",
    "worker-manager/v1/override-list.json",
    "worker-manager/v1/pause-launch-config-request.json",
    "worker-manager/v1/payload-schema-response.json",
    "worker-manager/v1/place-list.json",
    "worker-manager/v1/pulse-launch-config-paused-message.json",
    "worker-manager/v1/revert-worker-configuration-request.json",
    "worker-manager/v1/rule-request.json",
    "worker-manager/v1/selected-worker-counts.json",
    "worker-manager/v1/set-budget-request.json",
    "worker-manager/v1/set-override-request.json",
    "worker-manager/v1/task-run-window.json",
    "worker-manager/v1/worker-configuration-list.json",
    "worker-manager/v1/worker-configuration-plan.json",
    "worker-manager/v1/worker-configuration-request.json",
    "worker-manager/v1/worker-configuration-rule-removed.json",
    "worker-manager/v1/worker-configuration-rule.json",
    "worker-manager/v1/worker-configuration-state.json",
    "worker-manager/v1/worker-configuration-version.json",
    "worker-manager/v1/worker-configuration-versions.json",
    "worker-manager/v1/worker-configuration.json",
    "worker-manager/v1/worker-launch-config-response.json",
    "worker-manager/v1/worker-pool-plan.json",
    "worker-manager/v1/worker-pool-state.json",
    "worker-manager/v1/worker-state.json",
];

/// Optional properties that we add to a known schema.
const ADDED: [(&str, &str); 1] = [(
    "worker-manager/v1/provider-list.json",
    "/properties/providers/items/properties/problem",
)];

#[test]
fn the_shapes_are_those_of_taskcluster() {
    let Some(folder) = reference() else { return };
    let schemas = Schemas::new();
    let is_ours = |name: &&str| {
        let elsewhere = ["fleetwright/", "purge-cache/"];
        elsewhere.iter().any(|prefix| name.starts_with(prefix)) || BEYOND.contains(name)
    };
    for name in schemas.names().filter(|name| !is_ours(name)) {
        let theirs = match fs::read_to_string(folder.join(name)) {
            Ok(text) => serde_json::from_str(&text).unwrap(),
            Err(_) => added_since(&folder, name),
        };
        let mut ours: Value = serde_json::from_str(schemas.text(name).unwrap()).unwrap();
        for (_, added) in ADDED.iter().filter(|(known, _)| *known == name) {
            let (parent, property) = added.rsplit_once('/').unwrap();
            let parent = ours.pointer_mut(parent).unwrap().as_object_mut().unwrap();
            assert!(parent.remove(property).is_some(), "{name}: {added}");
        }
        assert_eq!(shape(&ours), shape(&theirs), "{name}");
    }
}

#[test]
fn no_schema_is_left_out_by_mistake() {
    let Some(folder) = reference() else { return };
    let ours: BTreeSet<String> = Schemas::new().names().map(str::to_owned).collect();
    for service in ["common", "auth/v1", "queue/v1", "worker-manager/v1"] {
        for entry in fs::read_dir(folder.join(service)).unwrap() {
            let name = format!("{service}/{}", entry.unwrap().file_name().to_str().unwrap());
            assert_ne!(
                ours.contains(&name),
                LEFT_OUT.contains(&name.as_str()),
                "{name}"
            );
        }
    }
}
