//! Divides the rules of a configuration among files: a file for each project or owner, and a shared
//! file.

use std::collections::{BTreeMap, BTreeSet};

use rules::Pattern;
use serde_json::{Map, Value, json};

use super::applications::Applications;
use super::sets::NamedSet;
use super::source::Source;
use super::words::slug;

/// The name of the file with the ids of launch configs, which no project can have.
pub const IDS_FILE: &str = "launch-config-ids";
/// The provisioner of worker types without one.
const SHORT_NAMES: &str = "worker-manager";

/// How the rules of a configuration are divided among files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilesBy {
    /// The part of the worker pool id before the slash, which is often a project.
    Provisioner,
    Owner,
}

/// The file of each worker type, by worker type.
pub(super) type Files = BTreeMap<String, String>;

/// The files of these worker types: none of them has the name of the shared file.
pub(super) fn files(sources: &[Source], by: FilesBy, shared: &str) -> Files {
    let owners: BTreeSet<&str> = sources.iter().filter_map(Source::owner).collect();
    let name = |source: &Source| {
        let name = match by {
            FilesBy::Provisioner => match source.worker_type().split_once('/') {
                Some((provisioner, _)) => provisioner.to_owned(),
                None => SHORT_NAMES.to_owned(),
            },
            FilesBy::Owner => owner_name(source.owner().unwrap_or_default(), &owners),
        };
        match name.is_empty() || name == shared || name == IDS_FILE {
            true => format!("{name}-pools"),
            false => name,
        }
    };
    let named = sources
        .iter()
        .map(|source| (source.worker_type().to_owned(), name(source)));
    named.collect()
}

/// `build-team` for `build-team@example.com`, if no other owner has this name.
fn owner_name(owner: &str, owners: &BTreeSet<&str>) -> String {
    let short = |owner: &str| slug(owner.split('@').next().unwrap_or_default());
    let own = short(owner);
    match owners.iter().filter(|other| short(other) == own).count() {
        0 | 1 => own,
        _ => slug(owner),
    }
}

/// The file of each rule: that of all its worker types, or none for the shared one.
///
/// Shared rules come first. A rule that a later shared rule overrides is shared, too.
pub(super) fn assign(
    rules: &[(usize, Value)],
    files: &Files,
    applications: &Applications,
) -> Vec<Option<String>> {
    let mut assigned: Vec<Option<String>> = rules
        .iter()
        .map(|(_, rule)| file_of(&rule["conditions"], files))
        .collect();
    for place in (0..rules.len()).rev() {
        let is_overridden = (place + 1..rules.len()).any(|later| {
            assigned[later].is_none() && applications.conflict(rules[place].0, rules[later].0)
        });
        if is_overridden {
            assigned[place] = None;
        }
    }
    assigned
}

/// The only file of the worker types of these conditions.
fn file_of(conditions: &Value, files: &Files) -> Option<String> {
    let mappings = conditions
        .as_array()
        .map_or(std::slice::from_ref(conditions), Vec::as_slice);
    let mut found: BTreeSet<&String> = BTreeSet::new();
    for mapping in mappings {
        let asked = mapping.get("workerType")?;
        let texts = asked
            .as_array()
            .map_or(std::slice::from_ref(asked), Vec::as_slice);
        for text in texts {
            let pattern = Pattern::parse(text.as_str()?).ok()?;
            let matching = files.iter().filter(|(name, _)| pattern.matches(name));
            found.extend(matching.map(|(_, file)| file));
        }
    }
    let one = found.first().filter(|_| found.len() == 1)?;
    Some((*one).clone())
}

/// The documents by file, the shared one without a name.
pub(super) fn documents(
    shared: &Value,
    rules: Vec<Value>,
    assigned: &[Option<String>],
    files: &Files,
    sets: &[NamedSet],
) -> BTreeMap<Option<String>, Value> {
    let id = &shared["workerConfigurationId"];
    let part = |file: &String| (Some(file.clone()), json!({ "partOf": id }));
    let mut documents: BTreeMap<Option<String>, Value> = files.values().map(part).collect();
    let mut first = shared.clone();
    first["rules"] = json!([]);
    if !files.is_empty() {
        first["workerTypes"] = json!([]);
    }
    documents.insert(None, first);
    for (worker_type, file) in files {
        let document = documents.get_mut(&Some(file.clone()));
        add(document, "workerTypes", json!(worker_type));
    }
    for (rule, file) in rules.into_iter().zip(assigned) {
        add(documents.get_mut(file), "rules", rule);
    }
    for set in sets {
        let users: BTreeSet<&Option<String>> =
            set.users.iter().map(|user| &assigned[*user]).collect();
        let file = users.first().filter(|_| users.len() == 1);
        let file = file.and_then(|file| (*file).clone());
        if let Some(document) = documents.get_mut(&file) {
            document["sets"][&set.name] = json!(set.texts);
        }
    }
    documents
}

fn add(document: Option<&mut Value>, list: &str, item: Value) {
    if let Some(document) = document {
        match document[list].as_array_mut() {
            Some(items) => items.push(item),
            None => document[list] = json!([item]),
        }
    }
}

/// The documents as one, as they are read: the shared one first, then the others by name.
pub(super) fn joined(documents: impl IntoIterator<Item = Value>) -> Value {
    let mut joined = Map::new();
    for document in documents {
        let Value::Object(document) = document else {
            continue;
        };
        for (key, value) in document {
            match (joined.get_mut(&key), value) {
                (Some(Value::Array(list)), Value::Array(more)) => list.extend(more),
                (Some(Value::Object(object)), Value::Object(more)) => object.extend(more),
                (Some(_), _) => {}
                (None, value) => {
                    joined.insert(key, value);
                }
            }
        }
    }
    joined.remove("partOf");
    Value::Object(joined)
}
