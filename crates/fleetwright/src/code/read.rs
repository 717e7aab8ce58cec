//! Reads files and folders, and checks their definitions.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use contract::Schemas;
use domain::configuration::Configuration;
use domain::image::ImageDefinition;
use domain::time::Timestamp;
use files::{Format, Lines};
use serde_json::{Map, Value};

use super::definitions::{Definitions, Item, worker_types};
use super::kind::Kind;
use super::ownership::Ownership;
use super::parts;
use super::validate;
use crate::failure::Failure;
use crate::input::{read_document, read_text};

/// Maximum number of errors to list; further ones are counted.
const MAX_LISTED: usize = 50;
const OWNS: &str = "owns";
const STANDARD_INPUT: &str = "-";

pub(super) fn names(files: &[PathBuf]) -> String {
    let names: Vec<_> = files.iter().map(|file| name_of(file)).collect();
    names.join(" and ")
}

fn name_of(file: &Path) -> String {
    if file.as_os_str() == STANDARD_INPUT {
        "standard input".to_owned()
    } else {
        file.display().to_string()
    }
}

/// Reads files, and all files of folders and their subfolders.
pub(super) fn read(paths: &[PathBuf], now: Timestamp) -> Result<Definitions, Failure> {
    let mut reader = Reader::at(now);
    let mut found = Vec::new();
    for path in paths {
        if path.as_os_str() == STANDARD_INPUT {
            found.push(path.clone())
        } else {
            found.extend(reader.find(path))
        }
    }
    let mut seen = BTreeSet::new();
    // A file that is given twice, such as in its folder too, is read once.
    found.retain(|file| seen.insert(file.clone()));
    let mut documents = Vec::with_capacity(found.len());
    for file in found {
        let is_input = file.as_os_str() == STANDARD_INPUT;
        let name = name_of(&file);
        let document = if is_input {
            read_document(STANDARD_INPUT)
        } else {
            files::read(&file).map_err(Failure::from)
        };
        documents.push((name, document));
    }
    let read = documents.iter_mut().filter_map(|(name, document)| {
        let document = document.as_mut().ok()?;
        Some((name.as_str(), document))
    });
    parts::join(read, &mut reader.problems);
    for (name, document) in documents {
        match document {
            Ok(document) => reader.document(&name, document),
            Err(failure) => {
                reader.problems.push(failure.message);
                reader.advice.extend(failure.hint);
            }
        }
    }
    reader.finish()
}

struct Reader {
    now: Timestamp,
    definitions: Definitions,
    /// The file with the key `owns`.
    owner: Option<String>,
    problems: Vec<String>,
    /// Hints for some of the errors.
    advice: BTreeSet<String>,
}

impl Reader {
    fn at(now: Timestamp) -> Self {
        Self {
            now,
            definitions: Definitions::default(),
            owner: None,
            problems: Vec::new(),
            advice: BTreeSet::new(),
        }
    }

    /// The files below this path. An unreadable folder is reported with the other errors.
    fn find(&mut self, path: &Path) -> Vec<PathBuf> {
        match files::find(path) {
            Ok(found) => {
                self.advice.extend(found.advice());
                self.problems.extend(found.unreadable);
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
            // A YAML file with only comments.
            Value::Null => return,
            Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_) => {
                let text = format!("{file}: must be a mapping: {}", forms());
                return self.problems.push(text);
            }
        };
        if let Some(owns) = document.remove(OWNS) {
            self.owns(file, &owns);
        }
        // In reverse order, because an override has the id of its pool.
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
                    let text = format!("{file}: /{key}: unknown key; a file has {}", forms());
                    self.problems.push(text);
                }
            }
        }
    }

    fn owns(&mut self, file: &str, owns: &Value) {
        if let Some(other) = &self.owner {
            let text = format!(
                "{file}: /{OWNS}: already in {other}; only one file of a folder may have it"
            );
            self.definitions.owns = None;
            return self.problems.push(text);
        }
        self.owner = Some(file.to_owned());
        match Ownership::parse(owns) {
            Ok(owns) => self.definitions.owns = Some(owns),
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
            if let Value::Object(item) = item {
                self.item(kind, file, &pointer, item);
            } else {
                let text = format!("{file}: {pointer}: must be a mapping");
                self.problems.push(text);
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
                    "{file}: {pointer}/{}: must be a string",
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
        for (below, error) in problems_of(kind, &id, &mut content, self.now) {
            let at = match (pointer, below.as_str()) {
                ("", "") => String::new(),
                (pointer, below) => format!("{pointer}{below}: "),
            };
            self.problems.push(format!("{file}: {at}{title}: {error}"));
        }
        let key = (kind, id);
        match self.definitions.items.get(&key) {
            Some(known) => self.problems.push(format!(
                "{place}: {title} is already defined in {}",
                known.place
            )),
            None => {
                let item = Item {
                    place,
                    file: file.to_owned(),
                    pointer: pointer.to_owned(),
                    content,
                };
                self.definitions.items.insert(key, item);
            }
        }
    }

    fn finish(mut self) -> Result<Definitions, Failure> {
        self.check_owners();
        self.check_pools();
        if self.problems.is_empty() {
            return Ok(self.definitions);
        }
        let mut lines = BTreeMap::new();
        for problem in &mut self.problems {
            add_line(problem, &mut lines);
        }
        let more = self.problems.len().saturating_sub(MAX_LISTED);
        self.problems.truncate(MAX_LISTED);
        if more > 0 {
            self.problems.push(format!("and {more} more"));
        }
        let mut failure = Failure::usage(self.problems.join("\n"));
        if !self.advice.is_empty() {
            let advice: Vec<_> = self.advice.into_iter().collect();
            failure = failure.with_hint(advice.join("; "));
        }
        Err(failure)
    }

    fn check_owners(&mut self) {
        let Some(owns) = &self.definitions.owns else {
            return;
        };
        for ((kind, id), item) in &self.definitions.items {
            if !owns.has(*kind, id) {
                self.problems.push(format!(
                    "{}: {} {id} is not owned: {OWNS} lists {} for {}",
                    item.place,
                    kind.noun(),
                    owns.listed(*kind),
                    kind.list_key()
                ));
            }
        }
    }

    /// Reports pools that are defined twice: by hand, or by a worker configuration.
    fn check_pools(&mut self) {
        let mut owners: BTreeMap<String, (Kind, &str, &str)> = BTreeMap::new();
        for ((kind, id), item) in &self.definitions.items {
            let pools = match kind {
                Kind::Role | Kind::Client | Kind::Image | Kind::Override | Kind::Budget => continue,
                Kind::WorkerPool => BTreeSet::from([id.clone()]),
                Kind::WorkerConfiguration => worker_types(&item.content),
            };
            for pool in pools {
                if let Some((other, name, place)) = owners.get(&pool) {
                    let who = match kind {
                        Kind::Role
                        | Kind::Client
                        | Kind::Image
                        | Kind::WorkerPool
                        | Kind::Override
                        | Kind::Budget => "it".to_owned(),
                        Kind::WorkerConfiguration => format!("{} {id}", kind.noun()),
                    };
                    self.problems.push(format!(
                        "{}: {who} defines pool {pool}, and so does {} {name} in {place}",
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

/// Puts the line of a JSON pointer after the name of its file.
fn add_line(problem: &mut String, known: &mut BTreeMap<String, Option<Lines>>) {
    let Some((file, rest)) = problem.split_once(": /") else {
        return;
    };
    let pointer = rest.split_once(": ").map_or(rest, |(pointer, _)| pointer);
    let lines = known.entry(file.to_owned()).or_insert_with(|| {
        let format = Format::of(Path::new(file))?;
        let text = Path::new(file).is_file().then(|| read_text(file).ok())?;
        Some(Lines::of(&text?, format))
    });
    let line = lines
        .as_ref()
        .and_then(|lines| lines.nearest(&format!("/{pointer}")));
    if let Some(line) = line {
        *problem = format!("{file}:{line}: /{rest}");
    }
}

/// The errors of an item, with their positions. Adds the defaults of its schema.
fn problems_of(kind: Kind, id: &str, content: &mut Value, now: Timestamp) -> Vec<(String, String)> {
    if let Err(invalid) = Schemas::new().validate(kind.schema(), content) {
        let problems = invalid.problems.into_iter();
        return problems
            .map(|error| (error.pointer, error.message))
            .collect();
    }
    match kind {
        Kind::Role | Kind::Client | Kind::WorkerPool | Kind::Override | Kind::Budget => {
            let error = validate::find_error(kind, id, content, now);
            error
                .map(|error| (String::new(), error))
                .into_iter()
                .collect()
        }
        Kind::WorkerConfiguration => match Configuration::parse(content) {
            Ok(_) => Vec::new(),
            Err(problems) => problems
                .iter()
                .map(|error| {
                    let rules: Vec<_> = error
                        .rules
                        .iter()
                        .map(|id| format!("rule {id:?}: "))
                        .collect();
                    (
                        error.pointer.clone(),
                        format!("{}{}", rules.concat(), error.message),
                    )
                })
                .collect(),
        },
        Kind::Image => {
            let mut document = content.clone();
            document[kind.id_key()] = Value::from(id);
            let problems = ImageDefinition::parse(&document).err();
            let problems = problems.iter().flat_map(|problems| problems.iter());
            problems
                .map(|error| (error.pointer.clone(), error.message.clone()))
                .collect()
        }
    }
}

fn unknown(kind: Kind, key: &str) -> String {
    match key {
        "accessToken" => "access tokens must not be in files".to_owned(),
        _ => format!(
            "{} {} has no such key; it has {}, {}",
            match kind {
                Kind::Image | Kind::Override => "an",
                Kind::Role
                | Kind::Client
                | Kind::WorkerConfiguration
                | Kind::WorkerPool
                | Kind::Budget => "a",
            },
            kind.noun(),
            kind.id_key(),
            kind.writable().join(", ")
        ),
    }
}

fn forms() -> String {
    format!(
        "any of the lists {}, or one item with its {}",
        Kind::ALL.map(Kind::list_key).join(", "),
        Kind::ALL.map(Kind::id_key).join(" or ")
    )
}
