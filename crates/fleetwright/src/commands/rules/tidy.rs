//! `rules tidy`: removes ids of launch configs that no longer exist.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;

use clap::Args;
use domain::configuration::{Compilation, Configuration, ProviderCatalog};
use files::Format;
use serde_json::Value;

use super::{comments, format};
use crate::code::{IN_REPLIES, join_parts, part_of};
use crate::failure::{Exit, Failure};
use crate::output;

const IDS: &str = "launchConfigIds";
const ID: &str = "workerConfigurationId";

#[derive(Args, Debug)]
pub(crate) struct Arguments {
    /// Files or folders with worker configurations and their parts
    #[arg(value_name = "FILE|DIR", required = true)]
    paths: Vec<PathBuf>,
    /// File with the places of each provider, such as {"ec2": [{"region": "us-east-1"}]}; null if
    /// it launches no workers
    #[arg(long, value_name = "FILE")]
    places: Option<String>,
    /// List ids to remove; exit with 7 if there are any
    #[arg(long)]
    check: bool,
}

struct Document {
    path: PathBuf,
    content: Value,
}

impl Arguments {
    /// The file with the places of providers.
    pub(super) fn places(&self) -> Option<&str> {
        self.places.as_deref()
    }
}

/// `market` has the places that are known.
pub(super) fn run(arguments: &Arguments, market: ProviderCatalog) -> Result<(), Failure> {
    let documents = read(&arguments.paths)?;
    let market = Arc::new(market);
    let mut joined: Vec<(String, Value)> = documents
        .iter()
        .map(|document| {
            (
                document.path.display().to_string(),
                document.content.clone(),
            )
        })
        .collect();
    let mut problems = Vec::new();
    let each = joined
        .iter_mut()
        .map(|(name, content)| (name.as_str(), content));
    join_parts(each, &mut problems);
    if !problems.is_empty() {
        return Err(Failure::usage(problems.join("\n")));
    }
    let mut n_dead = 0;
    for (name, content) in &joined {
        if content.get("workerConfigurations").is_some() {
            return Err(Failure::usage(format!(
                "{name}: put each worker configuration into a file of its own to tidy it"
            )));
        }
        if content.get(IDS).is_none() || content.get("rules").is_none() {
            continue;
        }
        let dead = dead_ids(name, content, &market)?;
        n_dead += dead.len();
        let id = content.get(ID).and_then(Value::as_str);
        for document in &documents {
            let is_its = document.path.display().to_string() == *name
                || id.is_some() && part_of(&document.content) == id;
            if is_its {
                remove(document, &dead, arguments.check)?;
            }
        }
    }
    if arguments.check && n_dead > 0 {
        let message = format!("{} of no launch config", output::counted(n_dead, "id"));
        return Err(Failure::new(Exit::Differs, message).with_hint("run `fleetwright rules tidy`"));
    }
    Ok(())
}

fn read(paths: &[PathBuf]) -> Result<Vec<Document>, Failure> {
    let mut documents = Vec::new();
    let mut seen = BTreeSet::new();
    for path in paths {
        let found = files::find(path)?;
        if let Some(problem) = found.unreadable.first() {
            return Err(Failure::failed(problem.clone()));
        }
        for path in found.files {
            if seen.insert(path.clone()) {
                let content = files::read(&path)?;
                documents.push(Document { path, content });
            }
        }
    }
    Ok(documents)
}

/// The ids that stand for no launch config. Fails if the launch configs are not known.
fn dead_ids(
    name: &str,
    document: &Value,
    market: &Arc<ProviderCatalog>,
) -> Result<BTreeSet<String>, Failure> {
    let wrong = |text: String| Failure::usage(format!("{name}: {text}"));
    let mut document = document.clone();
    if let Some(fields) = document.as_object_mut() {
        fields.retain(|key, _| !IN_REPLIES.contains(&key.as_str()));
    }
    let configuration =
        Configuration::parse(&document).map_err(|problems| wrong(problems.to_string()))?;
    let hint = "give the places of all providers with --places, or use `exact`";
    let compilation = Compilation::new(configuration, Arc::clone(market))
        .map_err(|problems| wrong(problems.to_string()).with_hint(hint))?;
    if let Some(provider) = compilation.provider_with_assumed_places() {
        let text = format!("the places of provider {provider} are not known");
        return Err(wrong(text).with_hint(hint));
    }
    let dead = compilation.unused_given_ids();
    Ok(dead.iter().map(ToString::to_string).collect())
}

fn remove(document: &Document, dead: &BTreeSet<String>, is_check: bool) -> Result<(), Failure> {
    let mut content = document.content.clone();
    let Some(ids) = content.get_mut(IDS).and_then(Value::as_object_mut) else {
        return Ok(());
    };
    let n_before = ids.len();
    ids.retain(|computed, _| !dead.contains(computed));
    let n_removed = n_before - ids.len();
    let path = document.path.display();
    if n_removed == 0 {
        return Ok(());
    }
    if is_check {
        output::out(&format!("{path}: {n_removed} of {n_before} ids"));
        return Ok(());
    }
    let format = Format::of(&document.path).unwrap_or(Format::Yaml);
    let before = std::fs::read_to_string(&document.path)
        .map_err(|error| Failure::failed(format!("cannot read {path}: {error}")))?;
    let after = without_lines(&before, dead);
    let is_right = files::parse("", &after, format).is_ok_and(|read| read == content);
    let has_aliases = comments::find(&before, format).has_aliases;
    let name = path.to_string();
    let text = match is_right {
        true => Some(after),
        false if has_aliases => None,
        false => format::with_comments(&name, &before, &content, format),
    };
    let text = text.ok_or_else(|| {
        Failure::failed(format!(
            "{path}: to remove {n_removed} ids would delete comments or aliases: remove them by hand"
        ))
    })?;
    format::replace(&name, &text)?;
    output::out(&format!("{path}: removed {n_removed} of {n_before} ids"));
    Ok(())
}

/// The text without the lines of these keys and the deeper lines below them.
fn without_lines(text: &str, dead: &BTreeSet<String>) -> String {
    let mut kept = String::with_capacity(text.len());
    let mut removed_indent: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        if removed_indent.is_some_and(|removed| indent > removed && !trimmed.trim_end().is_empty())
        {
            continue;
        }
        let key = trimmed.split(':').next().unwrap_or_default();
        let is_dead = dead.contains(key.trim_matches('"').trim_matches('\''));
        removed_indent = is_dead.then_some(indent);
        if !is_dead {
            kept.push_str(line);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    const MAIN: &str = "workerConfigurationId: fleet\nworkerTypes: [a/b]\nrules:\n  - ruleId: all\n    values:\n      owner: o@example.com\n      description: d\n      maxCapacity: 1\n      providers: { p: { exact: true, places: [{ zone: z }] } }\n      p: { x: 1 }\n";

    fn folder(ids: &str) -> (tempfile::TempDir, PathBuf) {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("fleet.yaml"), MAIN).unwrap();
        let path = folder.path().join("launch-config-ids.yaml");
        std::fs::write(&path, ids).unwrap();
        (folder, path)
    }

    fn arguments(folder: &Path, check: bool) -> Arguments {
        Arguments {
            paths: vec![folder.to_owned()],
            places: None,
            check,
        }
    }

    fn market() -> ProviderCatalog {
        ProviderCatalog::assumed()
    }

    #[test]
    fn ids_of_no_launch_config_are_removed_and_comments_stay() {
        let content = serde_json::json!({"x": 1});
        let pool = "a/b".parse().unwrap();
        let computed = domain::launch_config::id_of(&pool, content.as_object().unwrap()).unwrap();
        let ids = format!(
            "# mine\npartOf: fleet\nlaunchConfigIds:\n  {computed}: lc-kept\n  lc-00000000000000000001: lc-old\n  lc-00000000000000000002:\n    - lc-older\n    - lc-oldest\n"
        );
        let (folder, path) = folder(&ids);
        let failure = run(&arguments(folder.path(), true), market()).unwrap_err();
        assert_eq!(failure.message, "2 ids of no launch config");
        run(&arguments(folder.path(), false), market()).unwrap();
        let wanted = format!("# mine\npartOf: fleet\nlaunchConfigIds:\n  {computed}: lc-kept\n");
        assert_eq!(std::fs::read_to_string(&path).unwrap(), wanted);
        run(&arguments(folder.path(), true), market()).unwrap();
    }

    #[test]
    fn nothing_is_removed_while_places_are_not_known() {
        let (folder, path) = folder("partOf: fleet\nlaunchConfigIds: { lc-1: lc-2 }\n");
        let main = MAIN.replace("exact: true, places: [{ zone: z }]", "");
        std::fs::write(folder.path().join("fleet.yaml"), main).unwrap();
        let failure = run(&arguments(folder.path(), false), market()).unwrap_err();
        assert!(failure.hint.unwrap().contains("--places"));
        assert!(std::fs::read_to_string(&path).unwrap().contains("lc-1"));
    }
}
