//! The OpenAPI 3.1 document, generated from the table of endpoints and the schemas.

use contract::Schemas;
use serde_json::{Map, Value, json};

use super::endpoint::{Endpoint, Query, Service};
use super::endpoints;
use super::worker_manager::monitoring::version_document;
use crate::config::Limits;

/// Where the document's own schemas are.
const COMPONENTS: &str = "#/components/schemas/";

/// The error responses of every API operation.
const ERRORS: [(&str, &str); 8] = [
    (
        "400",
        "The request is malformed, or it asks for something impossible.",
    ),
    ("401", "The credentials are not valid."),
    ("403", "The credentials are valid but lack scopes."),
    ("404", "The object of the request does not exist."),
    (
        "409",
        "An object of this name exists already, or it was changed at the same time.",
    ),
    ("413", "The body is too large."),
    (
        "500",
        "The server failed. Its log has the details under the incident's id.",
    ),
    ("503", "The provider cannot be reached."),
];

/// `root_url` is the address of the servers. If it is empty, the document fits any deployment.
pub fn document(root_url: &str) -> Value {
    let schemas = Schemas::new();
    let mut paths: Map<String, Value> = Map::new();
    for endpoint in endpoints() {
        let path = format!(
            "/api/{}/v1{}",
            endpoint.service.as_str(),
            braced(endpoint.route)
        );
        let item = paths.entry(path).or_insert_with(|| json!({}));
        item[endpoint.method.as_str()] = operation(endpoint);
    }
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "Fleetwright",
            "version": version_document()["version"],
            "description": "Keeps fleets of CI workers the right size. Speaks Taskcluster's \
                worker-manager and auth APIs. Requests are signed with Hawk.",
            "license": {"name": "MPL-2.0 OR Apache-2.0", "identifier": "MPL-2.0 OR Apache-2.0"},
        },
        "servers": [{"url": if root_url.is_empty() { "/" } else { root_url }}],
        "tags": Service::ALL.map(|service| {
            json!({"name": service.as_str(), "description": service.description()})
        }),
        "paths": paths,
        "components": {
            "schemas": components(&schemas),
            "securitySchemes": {"hawk": {
                "type": "http",
                "scheme": "hawk",
                "description": "Hawk, with Taskcluster credentials, permanent or temporary.",
            }},
        },
    })
}

fn braced(route: &str) -> String {
    route.replace('<', "{").replace('>', "}")
}

fn operation(endpoint: &Endpoint) -> Value {
    let mut parameters: Vec<Value> = endpoint
        .parameters()
        .into_iter()
        .map(|name| path_parameter(endpoint.service, name))
        .collect();
    parameters.extend(endpoint.query.iter().map(query_parameter));
    let mut description = endpoint.description.to_owned();
    if let Some(scopes) = endpoint.scopes {
        description.push_str(&format!("\n\nScopes: `{}`", scopes.to_json()));
    }
    let mut operation = json!({
        "operationId": format!("{}.{}", endpoint.service.as_str(), endpoint.name),
        "tags": [endpoint.service.as_str()],
        "summary": endpoint.title,
        "description": description,
        "parameters": parameters,
        "responses": responses(endpoint),
    });
    if let Some(input) = endpoint.input {
        let schema = component_name(&endpoint.schema_name(input));
        let limit = Limits::default().max_body_bytes;
        operation["requestBody"] = json!({
            "required": true,
            "description": format!("At most {limit} bytes."),
            "content": {"application/json": {"schema": {"$ref": format!("{COMPONENTS}{schema}")}}},
        });
    }
    if endpoint.takes_raw_body {
        operation["requestBody"] = json!({
            "required": true,
            "content": {"application/octet-stream": {"schema": {}}},
        });
    }
    operation["security"] = match endpoint.scopes {
        Some(_) => json!([{"hawk": []}]),
        None => json!([]),
    };
    operation
}

fn path_parameter(service: Service, name: &str) -> Value {
    let mut schema = json!({"type": "string", "minLength": 1});
    if let Some(pattern) = super::request::parameter_pattern(service, name) {
        schema["pattern"] = json!(portable(pattern));
    }
    json!({"name": name, "in": "path", "required": true, "schema": schema})
}

fn query_parameter(query: &Query) -> Value {
    json!({
        "name": query.name,
        "in": "query",
        "required": false,
        "schema": {"type": "string", "pattern": portable(query.pattern)},
    })
}

/// The same pattern in the dialect that all readers of OpenAPI share. Newer ECMAScript reads the
/// dash in `[a-z-_]` as a range, and a slash needs no escape.
fn portable(pattern: &str) -> String {
    pattern.replace("9-_]", "9_-]").replace("\\/", "/")
}

fn responses(endpoint: &Endpoint) -> Value {
    let mut responses = Map::new();
    for (status, description) in ERRORS {
        let schema = json!({"$ref": format!("{COMPONENTS}Error")});
        let content = json!({"application/json": {"schema": schema}});
        responses.insert(
            status.to_owned(),
            json!({"description": description, "content": content}),
        );
    }
    if endpoint.name.starts_with("delete") && endpoint.output.is_none() {
        responses.insert("204".to_owned(), json!({"description": "Done."}));
        return Value::Object(responses);
    }
    let schema = match endpoint.output {
        Some(output) => {
            let name = component_name(&endpoint.schema_name(output));
            json!({"$ref": format!("{COMPONENTS}{name}")})
        }
        None if endpoint.streams.is_some() => json!({}),
        None => json!({"type": "object"}),
    };
    let content_type = endpoint.streams.unwrap_or("application/json");
    let content = json!({content_type: {"schema": schema}});
    responses.insert(
        "200".to_owned(),
        json!({"description": "Done.", "content": content}),
    );
    Value::Object(responses)
}

/// `worker-manager/v1/worker-full.json` is `worker-manager.worker-full` here.
fn component_name(schema: &str) -> String {
    schema
        .replace("/v1/", ".")
        .trim_end_matches(".json")
        .to_owned()
}

fn components(schemas: &Schemas) -> Value {
    let mut components = Map::new();
    for name in schemas.names().filter(|name| !name.starts_with("common/")) {
        let Some(mut schema) = schemas.served(name, "") else {
            continue;
        };
        let service = name.split('/').next().unwrap_or_default();
        adapt(&mut schema, service, &component_name(name));
        components.insert(component_name(name), schema);
    }
    components.insert("Error".to_owned(), error_schema());
    Value::Object(components)
}

/// Converts a draft-06 schema to OpenAPI 3.1: no ids of its own, references into the components.
fn adapt(schema: &mut Value, service: &str, this: &str) {
    match schema {
        Value::Array(items) => items.iter_mut().for_each(|item| adapt(item, service, this)),
        Value::Object(members) => {
            members.remove("$id");
            members.remove("$schema");
            if let Some(Value::String(target)) = members.get_mut("$ref") {
                *target = component_reference(target, service, this);
            }
            if let Some(Value::String(pattern)) = members.get_mut("pattern") {
                *pattern = portable(pattern);
            }
            members
                .values_mut()
                .for_each(|member| adapt(member, service, this));
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
}

/// `worker-pool-full.json#/properties/config` points into another component, `#/…` into this one,
/// and `../../queue/v1/task.json#` into one of another service.
fn component_reference(target: &str, service: &str, this: &str) -> String {
    let (file, pointer) = target.split_once('#').unwrap_or((target, ""));
    let elsewhere = file.strip_prefix("../../");
    let elsewhere = elsewhere.and_then(|path| path.split_once("/v1/"));
    let (service, file) = elsewhere.unwrap_or((service, file.trim_start_matches("./")));
    match file.strip_suffix(".json") {
        None => format!("{COMPONENTS}{this}{pointer}"),
        Some(file) => format!("{COMPONENTS}{service}.{file}{pointer}"),
    }
}

fn error_schema() -> Value {
    json!({
        "type": "object",
        "title": "Error",
        "description": "The form of every error.",
        "required": ["code", "message", "requestInfo"],
        "additionalProperties": false,
        "properties": {
            "code": {"type": "string", "description": "The kind of error, for programs."},
            "message": {"type": "string", "description": "The error message, for people."},
            "requestInfo": {
                "type": "object",
                "description": "The request that failed.",
                "required": ["method", "params", "payload", "time"],
                "properties": {
                    "method": {"type": "string"},
                    "params": {"type": "object"},
                    "payload": {},
                    "time": {"type": "string", "format": "date-time"},
                },
            },
        },
    })
}
