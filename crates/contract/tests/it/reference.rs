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
const LEFT_OUT: [&str; 13] = [
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

/// Their schema of this name, unless only we have one. Changes that are newer than the copy are in
/// a file of their own.
fn theirs(folder: &Path, name: &str) -> Option<Value> {
    if let Ok(text) = fs::read_to_string(folder.join(name)) {
        return Some(serde_json::from_str(&text).unwrap());
    }
    let text = fs::read_to_string(folder.join("../additions/after-v106.json")).unwrap();
    let added: Value = serde_json::from_str(&text).unwrap();
    let (service, file) = name.split_once('/').unwrap();
    added
        .pointer(&format!("/{service}/schemas"))?
        .get(file)
        .cloned()
}

/// Optional properties, and alternatives, that we add to a known schema.
const ADDED: [(&str, &str); 7] = [
    (
        "auth/v1/get-entity-history-response.json",
        "/properties/auditHistory/items/properties/detail",
    ),
    (
        "worker-manager/v1/config-aws.json",
        "/properties/launchConfigs/items/properties/instanceTypes",
    ),
    (
        "worker-manager/v1/config-static.json",
        "/properties/costPerHour",
    ),
    (
        "worker-manager/v1/config-static.json",
        "/properties/launchConfigs",
    ),
    (
        "worker-manager/v1/create-worker-request.json",
        "/properties/launchConfigId",
    ),
    (
        "worker-manager/v1/create-worker-request.json",
        "/properties/providerInfo/oneOf/1",
    ),
    (
        "worker-manager/v1/provider-list.json",
        "/properties/providers/items/properties/problem",
    ),
];

#[test]
fn the_shapes_are_those_of_taskcluster() {
    let Some(folder) = reference() else { return };
    let schemas = Schemas::new();
    let mut compared = 0;
    for name in schemas.names() {
        let Some(theirs) = theirs(&folder, name) else {
            continue;
        };
        let mut ours: Value = serde_json::from_str(schemas.text(name).unwrap()).unwrap();
        for (_, added) in ADDED.iter().filter(|(known, _)| *known == name) {
            let (parent, property) = added.rsplit_once('/').unwrap();
            let parent = ours.pointer_mut(parent).unwrap();
            if let Some(alternatives) = parent.as_array_mut() {
                alternatives.remove(property.parse().unwrap());
            } else {
                let removed = parent.as_object_mut().unwrap().remove(property);
                assert!(removed.is_some(), "{name}: {added}");
            }
        }
        assert_eq!(shape(&ours), shape(&theirs), "{name}");
        compared += 1;
    }
    assert!(compared > 100, "{compared}");
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
