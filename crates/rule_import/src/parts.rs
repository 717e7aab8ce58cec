//! Divides the rules of a configuration among files: a file for each project or owner, and a shared
//! file.

use std::collections::{BTreeMap, BTreeSet};

use rules::Pattern;
use serde_json::{Map, Value, json};

use super::applications::Applications;
use super::sets::NamedSet;
use super::source::Source;
use super::words::{fallback, slug};

/// The name of the file with the ids of launch configs, which no project can have.
pub const IDS_FILE: &str = "launch-config-ids";
/// The provisioner of worker types without one.
const SHORT_NAMES: &str = "worker-manager";

/// Maximum length of the name of a group's file. File systems allow 255 bytes with the extension
/// and all additions.
const MAX_FILE_NAME: usize = 100;
/// Added to a name that another file has.
const OTHER_NAME: &str = "-pools";

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
    let group = |source: &Source| match by {
        FilesBy::Provisioner => match source.worker_type().split_once('/') {
            Some((provisioner, _)) => provisioner.to_owned(),
            None => SHORT_NAMES.to_owned(),
        },
        FilesBy::Owner => owner_name(source.owner().unwrap_or_default(), &owners),
    };
    let names = file_names(sources.iter().map(group).collect(), shared);
    let named = sources.iter().map(|source| {
        (
            source.worker_type().to_owned(),
            names[&group(source)].clone(),
        )
    });
    named.collect()
}

/// The name of each group's file. They differ also where case does not matter.
fn file_names(groups: BTreeSet<String>, shared: &str) -> BTreeMap<String, String> {
    let mut taken = BTreeSet::from([shared, IDS_FILE].map(str::to_lowercase));
    let mut names = BTreeMap::new();
    let mut others = Vec::new();
    for group in groups {
        let name = shortened(&group);
        match taken.insert(name.to_lowercase()) {
            true => drop(names.insert(group, name)),
            false => others.push((group, name)),
        }
    }
    for (group, mut name) in others {
        name.push_str(OTHER_NAME);
        while !taken.insert(name.to_lowercase()) {
            name.push_str(OTHER_NAME);
        }
        names.insert(group, name);
    }
    names
}

/// The name, or the start of a long one with a word that tells it from others.
fn shortened(name: &str) -> String {
    if name.len() <= MAX_FILE_NAME {
        return name.to_owned();
    }
    let word = fallback(name);
    let length = MAX_FILE_NAME - word.len() - 1;
    format!("{}-{word}", &name[..name.floor_char_boundary(length)])
}

/// `build-team` for `build-team@example.com`, if no other owner has this name.
fn owner_name(owner: &str, owners: &BTreeSet<&str>) -> String {
    let short = |owner: &str| slug(owner.split('@').next().unwrap_or_default());
    let is_only = |name: &str, of: &dyn Fn(&str) -> String| {
        owners.iter().filter(|other| of(other) == name).count() < 2
    };
    let own = short(owner);
    let long = slug(owner);
    match own.is_empty() {
        // The name is in other letters.
        true if long.is_empty() || !is_only(&long, &slug) => fallback(owner),
        true => long,
        false if is_only(&own, &short) => own,
        false => long,
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

/// The documents as one, as they are read: the shared one first, then the others by the
/// names of their files.
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

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    #[test]
    fn long_names_of_groups_are_shortened_and_stay_different() {
        let limit = MAX_FILE_NAME;
        for count in sizes_around("rule_import::parts::MAX_FILE_NAME", limit) {
            let name = "x".repeat(count);
            let short = shortened(&name);
            assert_eq!(short == name, count <= limit, "{short}");
            assert!(short.len() <= limit, "{short}");
            assert_ne!(short, shortened(&format!("{name}y")));
        }
    }
}
