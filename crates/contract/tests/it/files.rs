//! The embedded files are complete, usable, and served with their addresses.

use contract::Schemas;
use serde_json::{Value, json};
use std::{collections::BTreeSet, fs, path::Path};

const ROOT: &str = "https://tc.example.com";

fn parsed(name: &str) -> Value {
    serde_json::from_str(Schemas::new().text(name).unwrap()).unwrap()
}

fn files_below(folder: &Path, prefix: &str, found: &mut BTreeSet<String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let name = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        if entry.file_type().unwrap().is_dir() {
            files_below(&entry.path(), &format!("{name}/"), found);
        } else {
            found.insert(name);
        }
    }
}

/// Every schema inside a schema, each with a pointer for messages.
fn walk(schema: &Value, pointer: &str, visit: &mut impl FnMut(&str, &Value)) {
    visit(pointer, schema);
    for keyword in ["items", "not", "additionalProperties"] {
        if let Some(inner) = schema.get(keyword) {
            walk(inner, &format!("{pointer}/{keyword}"), visit);
        }
    }
    for keyword in ["allOf", "anyOf", "oneOf"] {
        for (index, inner) in schema
            .get(keyword)
            .and_then(Value::as_array)
            .into_iter()
            .flatten()
            .enumerate()
        {
            walk(inner, &format!("{pointer}/{keyword}/{index}"), visit);
        }
    }
    for keyword in ["properties", "definitions"] {
        for (key, inner) in schema
            .get(keyword)
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
        {
            walk(inner, &format!("{pointer}/{keyword}/{key}"), visit);
        }
    }
}

#[test]
fn every_file_is_embedded_under_its_name() {
    let mut found = BTreeSet::new();
    files_below(
        &Path::new(env!("CARGO_MANIFEST_DIR")).join("schemas"),
        "",
        &mut found,
    );
    let names: Vec<&str> = Schemas::new().names().collect();
    assert_eq!(names, found.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(names.len() > 50);
}

#[test]
fn every_schema_compiles_and_so_all_its_references_resolve() {
    let schemas = Schemas::new();
    for name in schemas.names() {
        if let Err(refused) = schemas.check(name, &json!({})) {
            assert!(!refused.to_string().contains("cannot be used"), "{refused}");
        }
    }
}

#[test]
fn every_reference_names_an_embedded_file_and_a_place_in_it() {
    for name in Schemas::new().names() {
        walk(&parsed(name), "", &mut |pointer, schema| {
            let Some(reference) = schema.get("$ref").and_then(Value::as_str) else {
                return;
            };
            let (path, place) = reference.split_once('#').unwrap();
            if path.starts_with("http://json-schema.org/") {
                return;
            }
            let folder = name.rsplit_once('/').unwrap().0;
            // A schema of another service is two folders up.
            let target = match (path.strip_prefix("../../"), path.trim_start_matches("./")) {
                (Some(elsewhere), _) => elsewhere.to_owned(),
                (None, "") => name.to_owned(),
                (None, file) => format!("{folder}/{file}"),
            };
            assert!(
                parsed(&target).pointer(place).is_some(),
                "{name}#{pointer} refers to {reference}"
            );
        });
    }
}

#[test]
fn every_schema_fits_its_metaschema_as_served() {
    const DRAFT_06: &str = "http://json-schema.org/draft-06/schema#";
    let schemas = Schemas::new();
    for name in schemas.names() {
        let document = schemas.served(name, ROOT).unwrap();
        let metaschema = document["$schema"].as_str().unwrap();
        match metaschema.strip_prefix(&format!("{ROOT}/schemas/")) {
            Some(ours) => {
                assert_eq!(
                    schemas.check(ours.trim_end_matches('#'), &document),
                    Ok(()),
                    "{name}"
                )
            }
            None => assert_eq!(metaschema, DRAFT_06, "{name}"),
        }
        // The draft itself, whatever `$schema` the file has.
        assert_eq!(
            schemas.check("common/metaschema.json", &document),
            Ok(()),
            "{name}"
        );
    }
}

#[test]
fn the_metaschema_refuses_an_invalid_schema() {
    let refused = Schemas::new()
        .check(
            "common/metaschema.json",
            &json!({"type": 1, "required": "a"}),
        )
        .unwrap_err();
    assert!(
        refused
            .problems
            .iter()
            .any(|problem| problem.pointer == "/required"),
        "{refused}"
    );
}

#[test]
fn every_schema_has_a_description() {
    let is_told = |schema: &Value| {
        schema["description"]
            .as_str()
            .is_some_and(|text| text.ends_with('.'))
    };
    for name in Schemas::new().names() {
        let document = parsed(name);
        assert!(
            document["title"].is_string() && is_told(&document),
            "{name}"
        );
        walk(&document, "", &mut |pointer, schema| {
            let is_property = pointer.rsplit('/').nth(1) == Some("properties");
            let speaks_for_itself = schema.get("$ref").is_some() || schema == &json!({"not": {}});
            assert!(
                !is_property || speaks_for_itself || is_told(schema),
                "{name}#{pointer} has no description"
            );
        });
    }
}

#[test]
fn ids_are_addresses_below_the_root_url() {
    for name in Schemas::new().names() {
        assert_eq!(parsed(name)["$id"], format!("/schemas/{name}#"));
    }
}

#[test]
fn a_served_schema_has_an_absolute_id_and_relative_references() {
    let schemas = Schemas::new();
    let served = schemas
        .served(
            "worker-manager/v1/worker-list.json",
            "https://tc.example.com/",
        )
        .unwrap();
    assert_eq!(
        served["$id"],
        format!("{ROOT}/schemas/worker-manager/v1/worker-list.json#")
    );
    assert_eq!(
        served["$schema"],
        format!("{ROOT}/schemas/common/metaschema.json#")
    );
    assert_eq!(
        served["properties"]["workers"]["items"]["$ref"],
        "worker-full.json#"
    );
    let metaschema = schemas.served("common/metaschema.json", ROOT).unwrap();
    assert_eq!(
        metaschema["$schema"],
        "http://json-schema.org/draft-06/schema#"
    );
    assert_eq!(schemas.served("no.json", ROOT), None);
    assert_eq!(schemas.text("no.json"), None);
}

#[test]
fn schemas_can_be_shared_between_threads() {
    fn is_shared<T: Send + Sync + Copy>(_: T) {}
    is_shared(Schemas::new());
}
