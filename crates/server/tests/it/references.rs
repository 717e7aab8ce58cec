//! The published references, compared with the contract if it is available.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::Schemas;
use http_body_util::BodyExt;
use regex::Regex;
use serde_json::{Map, Value, json};
use server::api::openapi;
use server::background::Measure;
use server::background::driver::BackgroundTask;
use server::telemetry::catalogue::{METRICS, TASKCLUSTER_METRICS};

use crate::database::{Database, on_sqlite_first};
use crate::world::{ROOT_URL, World};

/// The keys of an entry from which clients are generated.
const ENTRY: [&str; 11] = [
    "type",
    "name",
    "method",
    "route",
    "args",
    "query",
    "scopes",
    "input",
    "output",
    "stability",
    "category",
];
const EXCHANGE: [&str; 5] = ["type", "name", "exchange", "routingKey", "schema"];
const KEY_WORD: [&str; 4] = ["name", "constant", "multipleWords", "required"];

/// Methods of Taskcluster's auth service that return credentials for other systems, which a fleet
/// of workers does not need; upstream has removed the last five as well.
const LEFT_OUT: [&str; 9] = [
    "awsS3Credentials",
    "sentryDSN",
    "gcpCredentials",
    "githubRepoToken",
    "azureAccounts",
    "azureTables",
    "azureTableSAS",
    "azureContainers",
    "azureContainerSAS",
];

/// The contract's data, if this is a checkout that has it next to it.
#[expect(clippy::print_stdout, reason = "a skipped test must say so")]
fn contract_data(path: &str) -> Option<Value> {
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/contract/data");
    let Ok(text) = std::fs::read_to_string(data.join(path)) else {
        println!("skipped: there is no {path} next to this checkout");
        return None;
    };
    Some(serde_json::from_str(&text).unwrap())
}

async fn served(world: &World, path: &str) -> Value {
    world
        .get(&format!("root:{path}"))
        .anonymously()
        .await
        .expect(200)
}

/// The entries of a reference by name, with only these keys; what is empty counts as absent.
fn entries(reference: &Value, keys: &[&str]) -> BTreeMap<String, Value> {
    let entries = reference["entries"].as_array().unwrap().iter();
    let pick = |entry: &Value| {
        let members = entry.as_object().unwrap().iter();
        let picked = members.filter(|(name, value)| {
            keys.contains(&name.as_str()) && **value != json!([]) && !value.is_null()
        });
        picked
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect::<Map<_, _>>()
    };
    entries
        .map(|entry| {
            (
                entry["name"].as_str().unwrap().to_owned(),
                Value::Object(pick(entry)),
            )
        })
        .collect()
}

/// Methods and exchanges that Taskcluster does not have.
const FURTHER: [&str; 13] = [
    "planWorkerPool",
    "setBudget",
    "budget",
    "listBudgets",
    "removeBudget",
    "setOverride",
    "override",
    "listOverrides",
    "removeOverride",
    "pauseLaunchConfig",
    "resumeLaunchConfig",
    "launchConfigPaused",
    "launchConfigResumed",
];

/// Methods that the queue got after the copy of its reference was made.
fn added_to_queue() -> BTreeMap<String, Value> {
    let added = contract_data("additions/after-v106.json");
    added.map_or_else(BTreeMap::new, |added| entries(&added["queue"], &ENTRY))
}

/// Methods of the worker manager that Taskcluster does not have: RFC 124's rule sets and their
/// parts.
const BEYOND: [&str; 12] = [
    "Provider Tests",
    "Relays",
    "Selected Workers",
    "Takeover",
    "Worker Configurations",
    "Rules",
    "Worker Types",
    "Worker State",
    "Documentation",
    "Overrides",
    "Budgets",
    "Launch Configs",
];

fn leave_out_ours_alone(reference: &mut Value) {
    let entries = reference["entries"].as_array_mut().unwrap();
    entries.retain(|entry| !BEYOND.contains(&entry["category"].as_str().unwrap()));
}

#[tokio::test]
async fn our_methods_are_those_of_the_contract() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    for service in ["worker-manager", "queue", "auth"] {
        let Some(theirs) = contract_data(&format!("references/{service}/v1/api.json")) else {
            return;
        };
        let mut ours = served(&world, &format!("/references/{service}/v1/api.json")).await;
        leave_out_ours_alone(&mut ours);
        let (mut ours, mut theirs) = (entries(&ours, &ENTRY), entries(&theirs, &ENTRY));
        if service == "auth" {
            theirs.retain(|name, _| !LEFT_OUT.contains(&name.as_str()));
        }
        if service == "queue" {
            theirs.extend(added_to_queue());
            // Its scopes are only described in words there.
            let batch = ours.get_mut("taskQueueCountsBatch").unwrap();
            batch.as_object_mut().unwrap().remove("scopes").unwrap();
        }
        ours.retain(|name, _| !FURTHER.contains(&name.as_str()));
        assert_eq!(
            ours.keys().collect::<Vec<_>>(),
            theirs.keys().collect::<Vec<_>>()
        );
        for (name, entry) in theirs {
            assert_eq!(ours[&name], entry, "{service} {name}");
        }
    }
}

#[tokio::test]
async fn our_methods_are_declared_in_the_order_of_the_contract() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    for service in ["worker-manager", "queue", "auth"] {
        let Some(theirs) = contract_data(&format!("references/{service}/v1/api.json")) else {
            return;
        };
        let names = |reference: &Value| -> Vec<String> {
            let entries = reference["entries"].as_array().unwrap().iter();
            let names = entries.map(|entry| entry["name"].as_str().unwrap().to_owned());
            names
                .filter(|name| !LEFT_OUT.contains(&name.as_str()) && name != "taskQueueCountsBatch")
                .filter(|name| !FURTHER.contains(&name.as_str()))
                .collect()
        };
        let mut ours = served(&world, &format!("/references/{service}/v1/api.json")).await;
        leave_out_ours_alone(&mut ours);
        assert_eq!(names(&ours), names(&theirs));
    }
}

#[tokio::test]
async fn our_exchanges_are_those_of_the_contract() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    for service in ["worker-manager", "queue", "auth"] {
        let Some(theirs) = contract_data(&format!("references/{service}/v1/exchanges.json")) else {
            return;
        };
        let mut ours = served(&world, &format!("/references/{service}/v1/exchanges.json")).await;
        assert_eq!(ours["exchangePrefix"], theirs["exchangePrefix"]);
        for entry in ours["entries"].as_array_mut().unwrap() {
            for word in entry["routingKey"].as_array_mut().unwrap() {
                let word = word.as_object_mut().unwrap();
                word.retain(|name, _| KEY_WORD.contains(&name.as_str()));
            }
        }
        let mut ours = entries(&ours, &EXCHANGE);
        ours.retain(|name, _| !FURTHER.contains(&name.as_str()));
        assert_eq!(ours, entries(&theirs, &EXCHANGE));
    }
}

on_sqlite_first!(every_event_of_rfc_191_is_in_the_references, |world| {
    let reference = served(world, "/references/fleetwright/v1/exchanges.json").await;
    assert_eq!(reference["exchangePrefix"], "exchange/fleetwright/v1/");
    let entries = reference["entries"].as_array().unwrap().iter();
    // The others are about images and budgets.
    let others = ["v1/image-message.json#", "v1/budget-step-message.json#"];
    let entries = entries.filter(|entry| !others.iter().any(|other| entry["schema"] == *other));
    let shown = entries.map(|entry| {
        let word = |name: &str| entry[name].as_str().unwrap();
        let name = word("exchange");
        assert_eq!(entry["routingKey"].as_array().unwrap().len(), 8, "{name}");
        format!("{name} {}", word("schema"))
    });
    assert_eq!(
        shown.collect::<Vec<_>>(),
        [
            "launch-configuration-created v1/launch-configuration-message.json#",
            "launch-configuration-updated v1/launch-configuration-message.json#",
            "launch-configuration-archived v1/launch-configuration-message.json#",
            "launch-configuration-paused v1/launch-configuration-paused-message.json#",
            "launch-configuration-resumed v1/launch-configuration-paused-message.json#",
            "worker-error v1/worker-error-message.json#",
            "worker-stopping v1/worker-stopping-message.json#",
        ]
    );
    // Under the names that Taskcluster chose, and ours for pauses.
    let reference = served(world, "/references/worker-manager/v1/exchanges.json").await;
    let text = reference.to_string();
    for name in [
        "launch-config-created",
        "launch-config-updated",
        "launch-config-archived",
        "launch-config-paused",
        "launch-config-resumed",
        "worker-pool-error",
        "worker-requested",
        "worker-running",
        "worker-stopped",
        "worker-removed",
    ] {
        assert!(text.contains(&format!("\"exchange\":\"{name}\"")), "{name}");
    }
});

on_sqlite_first!(
    every_published_document_fits_the_schema_that_it_names,
    |world| {
        let manifest = served(world, "/references/manifest.json").await;
        let references: Vec<&str> = manifest["references"]
            .as_array()
            .unwrap()
            .iter()
            .map(|url| url.as_str().unwrap())
            .collect();
        assert!(references.is_sorted());
        assert_eq!(references.len(), 24);
        let mut paths = vec!["/references/manifest.json".to_owned()];
        for reference in references {
            paths.push(reference.strip_prefix(ROOT_URL).unwrap().to_owned());
        }
        for path in paths {
            let mut document = served(world, &path).await;
            let schema = document["$schema"].as_str().unwrap().to_owned();
            let schema = schema
                .strip_prefix(&format!("{ROOT_URL}/schemas/"))
                .unwrap();
            let schema = schema.strip_suffix('#').unwrap();
            if schema == "common/manifest-v3.json" {
                // The manifest names its schema, which has no place for that.
                document.as_object_mut().unwrap().remove("$schema");
            }
            Schemas::new()
                .check(schema, &document)
                .unwrap_or_else(|wrong| panic!("{path}: {wrong}"));
        }
    }
);

on_sqlite_first!(everything_that_is_measured_is_in_the_catalogue, |world| {
    world.get("/worker-pools").await.expect(200);
    Measure(world.app.clone()).activate().await.unwrap();
    let measured = world.app.telemetry.render();
    let types = measured
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE "));
    let mut n_measured = 0;
    for (name, kind) in types.filter_map(|line| line.split_once(' ')) {
        let known = METRICS.iter().find(|metric| metric.name == name);
        assert_eq!(
            known.map(|metric| metric.kind.as_str()),
            Some(kind),
            "{name}"
        );
        n_measured += 1;
    }
    assert!(n_measured >= 5, "{measured}");
});

#[test]
fn every_name_of_a_metric_is_in_the_catalogue() {
    let name = Regex::new(r#""((?:http|auth|worker_manager|iterate|fleetwright|queue)_[a-z_]+)""#)
        .unwrap();
    let sources = [
        include_str!("../../../engine/src/measures.rs"),
        include_str!("../../src/telemetry.rs"),
        include_str!("../../src/telemetry/taskcluster.rs"),
        include_str!("../../../store/src/engine/attempts.rs"),
        include_str!("../../../store/src/engine/store.rs"),
    ];
    let named: BTreeSet<&str> = sources
        .iter()
        .flat_map(|text| name.captures_iter(text))
        .map(|found| found.get(1).unwrap().as_str())
        .collect();
    let known = METRICS.iter().chain(TASKCLUSTER_METRICS);
    let known: BTreeSet<&str> = known.map(|metric| metric.name).collect();
    assert_eq!(named, known);
}

on_sqlite_first!(everything_that_a_reference_names_is_served, |world| {
    let mut schemas = Vec::new();
    for service in [
        "worker-manager",
        "queue",
        "purge-cache",
        "secrets",
        "auth",
        "fleetwright",
    ] {
        let api = served(world, &format!("/references/{service}/v1/api.json")).await;
        let exchanges = served(world, &format!("/references/{service}/v1/exchanges.json")).await;
        for entry in [&api, &exchanges]
            .into_iter()
            .flat_map(|it| it["entries"].as_array().unwrap())
        {
            for key in ["input", "output", "schema"] {
                let named = entry.get(key).and_then(Value::as_str);
                schemas.extend(named.map(|name| format!("/schemas/{service}/{name}")));
            }
        }
    }
    assert!(schemas.len() > 30);
    for schema in schemas {
        let path = schema.strip_suffix('#').unwrap();
        let document = served(world, path).await;
        assert_eq!(document["$id"], format!("{ROOT_URL}{schema}"));
        let metaschema = document["$schema"].as_str().unwrap();
        assert!(metaschema.starts_with(ROOT_URL), "{metaschema}");
    }
});

on_sqlite_first!(one_document_has_all_references_and_schemas, |world| {
    let all = served(world, "/references/references.json").await;
    let all = all.as_array().unwrap();
    let names: Vec<&str> = all
        .iter()
        .map(|file| file["filename"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"references/worker-manager/v1/api.json"));
    assert!(names.contains(&"schemas/worker-manager/v1/worker-full.json"));
    for file in all
        .iter()
        .filter(|file| file["content"].get("$schema").is_some())
    {
        let schema = file["content"]["$schema"].as_str().unwrap();
        assert!(!schema.starts_with(ROOT_URL), "{}", file["filename"]);
    }
});

on_sqlite_first!(a_document_is_made_once_for_all_who_ask, |world| {
    // Where the bytes of a reply are, and the reply so that they stay there.
    let opened = async |path: &str| {
        let reply = world.get(&format!("root:{path}")).anonymously().open();
        let frame = reply.await.into_body().frame().await.unwrap().unwrap();
        let bytes = frame.into_data().unwrap();
        (bytes.as_ptr() as usize, bytes)
    };
    for path in [
        "/openapi.json",
        "/references/references.json",
        "/references/queue/v1/api.json",
        "/schemas/worker-manager/v1/worker-full.json",
    ] {
        let (first, second) = (opened(path).await, opened(path).await);
        assert_eq!(first.0, second.0, "{path}");
        assert!(serde_json::from_slice::<Value>(&first.1).is_ok(), "{path}");
    }
    for path in ["/references/", "/schemas/none.json", "/openapi.json/"] {
        let none = world.get(&format!("root:{path}")).anonymously().await;
        assert_eq!(none.status, 404, "{path}");
    }
});

pub(crate) fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// `UPDATE_DOCS=1` writes it instead.
#[test]
fn the_openapi_document_in_the_repository_is_the_generated_one() {
    let path = repository().join("docs/openapi.json");
    let generated = serde_json::to_string_pretty(&openapi::document("")).unwrap() + "\n";
    if std::env::var("UPDATE_DOCS").is_ok() {
        std::fs::write(&path, &generated).unwrap();
    }
    let stored = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(
        stored == generated,
        "docs/openapi.json is out of date: run this test with UPDATE_DOCS=1"
    );
}

#[test]
fn every_reference_in_the_openapi_document_leads_somewhere() {
    let document = openapi::document("");
    let mut targets = Vec::new();
    collect_references(&document, &mut targets);
    assert!(targets.len() > 50);
    for target in targets {
        let pointer = target.strip_prefix('#').unwrap();
        assert!(document.pointer(pointer).is_some(), "{target}");
    }
}

fn collect_references(value: &Value, targets: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            if let Some(Value::String(target)) = members.get("$ref") {
                targets.push(target.clone());
            }
            members
                .values()
                .for_each(|member| collect_references(member, targets));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| collect_references(item, targets)),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

#[test]
fn every_endpoint_is_in_the_openapi_document_once() {
    let document = openapi::document("");
    let operations = document["paths"].as_object().unwrap().values();
    let operations = operations.flat_map(|path| path.as_object().unwrap().values());
    let mut ids: Vec<&str> = operations
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    ids.sort_unstable();
    let mut expected: Vec<String> = server::api::endpoints()
        .iter()
        .map(|endpoint| format!("{}.{}", endpoint.service.as_str(), endpoint.name))
        .collect();
    expected.sort();
    assert_eq!(ids, expected);
}

#[test]
fn every_endpoint_has_a_description() {
    for endpoint in server::api::endpoints() {
        assert!(!endpoint.description.is_empty(), "{}", endpoint.name);
    }
}
