//! The published references, generated from the tables that the program itself uses.

use domain::event::{EXCHANGES, Exchange, KeyWord, Rfc191};
use serde_json::{Map, Value, json};

use super::endpoint::{Endpoint, Service};
use super::endpoints_of;
use super::reply::without_nulls;
use crate::telemetry::catalogue::{LOG_TYPES, METRICS, TASKCLUSTER_METRICS, concerns};

/// The kinds of references of each service.
const KINDS: [&str; 4] = ["api", "exchanges", "logs", "metrics"];

/// A document below `/references/`, by its path there.
pub fn document(path: &str, root_url: &str) -> Option<Value> {
    match path {
        "manifest.json" => Some(manifest(root_url)),
        "references.json" => Some(everything()),
        path => {
            let (service, rest) = path.split_once("/v1/")?;
            let service = Service::ALL
                .into_iter()
                .find(|known| known.as_str() == service)?;
            match rest {
                "api.json" => Some(api(service, root_url)),
                "exchanges.json" => Some(exchanges(service, root_url)),
                "logs.json" => Some(logs(service, root_url)),
                "metrics.json" => Some(metrics(service, root_url)),
                _ => None,
            }
        }
    }
}

fn manifest(root_url: &str) -> Value {
    let references: Vec<String> = paths()
        .map(|path| format!("{root_url}/references/{path}"))
        .collect();
    json!({
        "$schema": format!("{root_url}/schemas/common/manifest-v3.json#"),
        "references": references,
    })
}

/// The paths of all references, in order.
fn paths() -> impl Iterator<Item = String> {
    Service::ALL
        .into_iter()
        .flat_map(|service| KINDS.map(|kind| format!("{}/v1/{kind}.json", service.as_str())))
}

/// All references and schemas in one document, with ids relative to the root.
fn everything() -> Value {
    let schemas = contract::Schemas::new();
    let references = paths().filter_map(|path| {
        let content = document(&path, "")?;
        Some(json!({"filename": format!("references/{path}"), "content": content}))
    });
    let schemas = schemas.names().filter_map(|name| {
        let content = schemas.served(name, "")?;
        Some(json!({"filename": format!("schemas/{name}"), "content": content}))
    });
    references.chain(schemas).collect()
}

fn api(service: Service, root_url: &str) -> Value {
    let entries: Vec<Value> = endpoints_of(service).map(entry).collect();
    json!({
        "$schema": format!("{root_url}/schemas/common/api-reference-v0.json#"),
        "apiVersion": "v1",
        "serviceName": service.as_str(),
        "title": service.title(),
        "description": service.description(),
        "entries": entries,
    })
}

fn entry(endpoint: &Endpoint) -> Value {
    let query: Vec<&str> = endpoint.query.iter().map(|query| query.name).collect();
    without_nulls(json!({
        "type": "function",
        "method": endpoint.method.as_str(),
        "route": endpoint.route,
        "query": query,
        "args": endpoint.parameters(),
        "name": endpoint.name,
        "stability": endpoint.stability.as_str(),
        "category": endpoint.category,
        "title": endpoint.title,
        "description": endpoint.description,
        "input": endpoint.input.map(|input| format!("v1/{input}#")),
        "output": endpoint.output.map(|output| format!("v1/{output}#")),
        "scopes": endpoint.scopes.map(|scopes| scopes.to_json()),
    }))
}

fn exchanges(service: Service, root_url: &str) -> Value {
    // The names of RFC 191 are ours.
    let second_names = Rfc191::ALL.map(|event| event.reference());
    let entries: Vec<Value> = EXCHANGES
        .iter()
        .chain(&second_names)
        .filter(|exchange| exchange.service == service.as_str())
        .map(exchange_entry)
        .collect();
    json!({
        "$schema": format!("{root_url}/schemas/common/exchanges-reference-v0.json#"),
        "apiVersion": "v1",
        "serviceName": service.as_str(),
        "title": format!("{} events", service.title()),
        "description": "Messages that are published when something has changed.",
        "exchangePrefix": exchange_prefix(service),
        "entries": entries,
    })
}

/// The prefix of our own exchanges is not the name of a Taskcluster service.
fn exchange_prefix(service: Service) -> String {
    match service {
        Service::Fleetwright => "exchange/fleetwright/v1/".to_owned(),
        Service::Auth
        | Service::PurgeCache
        | Service::Queue
        | Service::Secrets
        | Service::WorkerManager => {
            format!("exchange/taskcluster-{}/v1/", service.as_str())
        }
    }
}

fn exchange_entry(exchange: &Exchange) -> Value {
    let words: Vec<Value> = exchange.key.words().iter().map(key_word).collect();
    json!({
        "type": "topic-exchange",
        "name": exchange.method(),
        "exchange": exchange.exchange,
        "title": exchange.title,
        "description": exchange.description,
        "routingKey": words,
        "schema": format!("v1/{}#", exchange.schema),
    })
}

fn key_word(word: &KeyWord) -> Value {
    without_nulls(json!({
        "name": word.name,
        "summary": word.summary,
        "multipleWords": word.multiple_words,
        "required": word.required,
        "constant": word.constant,
    }))
}

fn logs(service: Service, root_url: &str) -> Value {
    let types: Vec<Value> = LOG_TYPES
        .iter()
        .filter(|log| concerns(log.service, service))
        .map(|log| {
            json!({
                "name": log.name,
                "type": log.kind,
                "version": 1,
                "level": log.level,
                "title": log.title,
                "description": log.description,
                "fields": pairs(log.fields),
            })
        })
        .collect();
    json!({
        "$schema": format!("{root_url}/schemas/common/logs-reference-v0.json#"),
        "serviceName": service.as_str(),
        "types": types,
    })
}

fn metrics(service: Service, root_url: &str) -> Value {
    let metrics: Vec<Value> = METRICS
        .iter()
        .chain(TASKCLUSTER_METRICS)
        .filter(|metric| concerns(metric.service, service))
        .map(|metric| {
            json!({
                "name": metric.name,
                "type": metric.kind.as_str(),
                "description": metric.description,
                "labels": pairs(metric.labels),
                "registers": ["default"],
            })
        })
        .collect();
    json!({
        "$schema": format!("{root_url}/schemas/common/metrics-reference-v0.json#"),
        "serviceName": service.as_str(),
        "metrics": metrics,
    })
}

fn pairs(list: &[(&str, &str)]) -> Map<String, Value> {
    list.iter()
        .map(|(name, words)| ((*name).to_owned(), json!(words)))
        .collect()
}
