//! Reads files and folders, and checks what they define.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::Schemas;
use domain::configuration::Configuration;
use domain::time::Timestamp;
use serde_json::{Map, Value};

use super::definitions::{Item, Wanted, worker_types};
use super::judge;
use super::kind::Kind;
use super::owns::Owns;
use crate::failure::Failure;
use crate::input::read_document;

/// More problems than that are counted and not listed.
const MAX_LISTED: usize = 50;
const OWNS: &str = "owns";
const STANDARD_INPUT: &str = "-";

/// How files are called in messages.
pub(super) fn names(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|file| name_of(file)).collect();
    names.join(" and ")
}

fn name_of(file: &Path) -> String {
    match file.as_os_str() == STANDARD_INPUT {
        true => "the standard input".to_owned(),
        false => file.display().to_string(),
    }
}

/// Reads files, and all files of folders and those below them.
pub(super) fn read(paths: &[PathBuf], now: Timestamp) -> Result<Wanted, Failure> {
    let mut reader = Reader::at(now);
    let mut found = Vec::new();
    for path in paths {
        match path.as_os_str() == STANDARD_INPUT {
            true => found.push(path.clone()),
            false => found.extend(reader.find(path)),
        }
    }
    let mut seen = BTreeSet::new();
    // What is named twice, as by a folder and a file in it, is read once.
    found.retain(|file| seen.insert(file.clone()));
    for file in found {
        let is_input = file.as_os_str() == STANDARD_INPUT;
        let name = name_of(&file);
        let document = match is_input {
            true => read_document(STANDARD_INPUT),
            false => files::read(&file).map_err(Failure::from),
        };
        match document {
            Ok(document) => reader.document(&name, document),
            Err(failure) => {
                reader.problems.push(failure.message);
                reader.advice.extend(failure.advice);
            }
        }
    }
    reader.finish()
}

struct Reader {
    now: Timestamp,
    wanted: Wanted,
    /// Where `owns` stands.
    owner: Option<String>,
    problems: Vec<String>,
    /// What helps against some of them.
    advice: BTreeSet<String>,
}

impl Reader {
    fn at(now: Timestamp) -> Self {
        Self {
            now,
            wanted: Wanted::default(),
            owner: None,
            problems: Vec::new(),
            advice: BTreeSet::new(),
        }
    }

    /// The files below this path. A folder that cannot be read is one more problem, reported with the others.
    fn find(&mut self, path: &Path) -> Vec<PathBuf> {
        match files::find(path) {
            Ok(found) => {
                self.advice.extend(found.advice());
                self.problems.extend(found.strange);
                found.files
            }
            Err(failure) => {
                self.problems.push(failure.message);
                self.advice.extend(failure.advice);
                Vec::new()
            }
        }
    }

    fn document(&mut self, file: &str, document: Value) {
        let mut document = match document {
            Value::Object(document) => document,
            // A YAML file with nothing in it but comments.
            Value::Null => return,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let text = format!("{file}: must be a mapping: {}", forms());
                return self.problems.push(text);
            }
        };
        if let Some(owns) = document.remove(OWNS) {
            self.owns(file, &owns);
        }
        // Backwards, for an override names its worker pool.
        let single = Kind::ALL
            .into_iter()
            .rev()
            .find(|kind| document.contains_key(kind.id_key()));
        if let Some(kind) = single {
            return self.item(kind, file, "", document);
        }
        for (key, list) in document {
            match (Kind::of_list_key(&key), list) {
                (Some(kind), Value::Array(items)) => self.items(kind, file, items),
                (Some(_), Value::Null) => {}
                (Some(_), _) => self
                    .problems
                    .push(format!("{file}: /{key}: must be a list")),
                (None, _) => {
                    let text = format!("{file}: /{key}: is not known here; a file has {}", forms());
                    self.problems.push(text);
                }
            }
        }
    }

    fn owns(&mut self, file: &str, owns: &Value) {
        if let Some(other) = &self.owner {
            let text = format!(
                "{file}: /{OWNS}: stands in {other} already, and one place says what the folder owns"
            );
            self.wanted.owns = None;
            return self.problems.push(text);
        }
        self.owner = Some(file.to_owned());
        match Owns::parse(owns) {
            Ok(owns) => self.wanted.owns = Some(owns),
            Err(problems) => self.problems.extend(
                problems
                    .into_iter()
                    .map(|(place, text)| format!("{file}: /{OWNS}{place}: {text}")),
            ),
        }
    }

    fn items(&mut self, kind: Kind, file: &str, items: Vec<Value>) {
        for (position, item) in items.into_iter().enumerate() {
            let pointer = format!("/{}/{position}", kind.list_key());
            match item {
                Value::Object(item) => self.item(kind, file, &pointer, item),
                Value::Null
                | Value::Bool(_)
                | Value::Number(_)
                | Value::String(_)
                | Value::Array(_) => {
                    self.problems
                        .push(format!("{file}: {pointer}: must be a mapping"));
                }
            }
        }
    }

    fn item(&mut self, kind: Kind, file: &str, pointer: &str, mut item: Map<String, Value>) {
        let place = match pointer {
            "" => file.to_owned(),
            pointer => format!("{file}: {pointer}"),
        };
        let id = match item.remove(kind.id_key()) {
            Some(Value::String(id)) => id,
            Some(_) => {
                return self.problems.push(format!(
                    "{file}: {pointer}/{}: must be a text",
                    kind.id_key()
                ));
            }
            None => {
                return self
                    .problems
                    .push(format!("{place}: {} is missing", kind.id_key()));
            }
        };
        if let Err(bad) = kind.check_id(&id) {
            return self
                .problems
                .push(format!("{file}: {pointer}/{}: {bad}", kind.id_key()));
        }
        let title = format!("{} {id}", kind.noun());
        let before = self.problems.len();
        for key in item
            .keys()
            .filter(|key| !kind.writable().contains(&key.as_str()))
        {
            self.problems
                .push(format!("{file}: {pointer}/{key}: {}", unknown(kind, key)));
        }
        if self.problems.len() > before {
            return;
        }
        for (key, value) in kind.defaults().as_object().into_iter().flatten() {
            item.entry(key).or_insert_with(|| value.clone());
        }
        let mut content = Value::Object(item);
        for (below, problem) in problems_of(kind, &id, &mut content, self.now) {
            let at = match (pointer, below.as_str()) {
                ("", "") => String::new(),
                (pointer, below) => format!("{pointer}{below}: "),
            };
            self.problems
                .push(format!("{file}: {at}{title}: {problem}"));
        }
        let key = (kind, id);
        match self.wanted.items.get(&key) {
            Some(known) => self.problems.push(format!(
                "{place}: {title} stands in {} already",
                known.place
            )),
            None => drop(self.wanted.items.insert(key, Item { place, content })),
        }
    }

    fn finish(mut self) -> Result<Wanted, Failure> {
        self.check_owners();
        self.check_pools();
        if self.problems.is_empty() {
            return Ok(self.wanted);
        }
        let more = self.problems.len().saturating_sub(MAX_LISTED);
        self.problems.truncate(MAX_LISTED);
        if more > 0 {
            self.problems.push(format!("and {more} more"));
        }
        let mut failure = Failure::usage(self.problems.join("\n"));
        if !self.advice.is_empty() {
            let advice: Vec<_> = self.advice.into_iter().collect();
            failure = failure.advise(advice.join("; "));
        }
        Err(failure)
    }

    fn check_owners(&mut self) {
        let Some(owns) = &self.wanted.owns else {
            return;
        };
        for ((kind, id), item) in &self.wanted.items {
            if !owns.has(*kind, id) {
                self.problems.push(format!(
                    "{}: {} {id} is not owned: of {}, {OWNS} lists {}",
                    item.place,
                    kind.noun(),
                    kind.list_key(),
                    owns.listed(*kind)
                ));
            }
        }
    }

    /// A pool is made by hand or follows from one configuration.
    fn check_pools(&mut self) {
        let mut owners: BTreeMap<String, (Kind, &str, &str)> = BTreeMap::new();
        for ((kind, id), item) in &self.wanted.items {
            let pools = match kind {
                Kind::Role | Kind::Client | Kind::Override => continue,
                Kind::WorkerPool => BTreeSet::from([id.clone()]),
                Kind::WorkerConfiguration => worker_types(&item.content),
            };
            for pool in pools {
                if let Some((other, name, place)) = owners.get(&pool) {
                    let who = match kind {
                        Kind::Role | Kind::Client | Kind::WorkerPool | Kind::Override => {
                            "it".to_owned()
                        }
                        Kind::WorkerConfiguration => format!("{} {id}", kind.noun()),
                    };
                    self.problems.push(format!(
                        "{}: {who} makes worker pool {pool}, and so does {} {name} in {place}",
                        item.place,
                        other.noun()
                    ));
                    continue;
                }
                owners.insert(pool, (*kind, id, &item.place));
            }
        }
    }
}

/// What is wrong with a thing, and where in it. Defaults of its schema are put in.
fn problems_of(kind: Kind, id: &str, content: &mut Value, now: Timestamp) -> Vec<(String, String)> {
    if let Err(invalid) = Schemas::new().validate(kind.schema(), content) {
        let problems = invalid.problems.into_iter();
        return problems
            .map(|problem| (problem.pointer, problem.message))
            .collect();
    }
    match kind {
        Kind::Role | Kind::Client | Kind::WorkerPool | Kind::Override => {
            let problem = judge::problem(kind, id, content, now);
            problem
                .map(|problem| (String::new(), problem))
                .into_iter()
                .collect()
        }
        Kind::WorkerConfiguration => match Configuration::parse(content) {
            Ok(_) => Vec::new(),
            Err(problems) => problems
                .iter()
                .map(|problem| {
                    let rules: Vec<_> = problem
                        .rules
                        .iter()
                        .map(|id| format!("rule {id:?}: "))
                        .collect();
                    (
                        problem.pointer.clone(),
                        format!("{}{}", rules.concat(), problem.message),
                    )
                })
                .collect(),
        },
    }
}

fn unknown(kind: Kind, key: &str) -> String {
    match key {
        "accessToken" => "access tokens do not belong into files".to_owned(),
        _ => format!(
            "{} {} has no such key; it has {}, {}",
            match kind {
                Kind::Override => "an",
                Kind::Role | Kind::Client | Kind::WorkerConfiguration | Kind::WorkerPool => "a",
            },
            kind.noun(),
            kind.id_key(),
            kind.writable().join(", ")
        ),
    }
}

fn forms() -> String {
    format!(
        "any of the lists {}, or one thing with its {}",
        Kind::ALL.map(Kind::list_key).join(", "),
        Kind::ALL.map(Kind::id_key).join(" or ")
    )
}
