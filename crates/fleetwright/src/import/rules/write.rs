//! Worker configurations as files: how many it takes, where they go, and what was saved.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use domain::configuration::MAX_WORKER_TYPES;
use rules::limits::{MAX_BYTES, MAX_RULES};
use serde_json::Value;

use super::pools::Source;
use super::{factor, verify};
use crate::failure::Failure;
use crate::files::{Format, parse, to_yaml};

/// Of one configuration; a server takes twice as many.
const MAX_LAUNCH_CONFIGS: usize = 25_000;
/// How people read a configuration: what it is, then what is in it.
const FIRST: [&str; 9] = [
    "workerConfigurationId",
    "ruleId",
    "description",
    "owner",
    "workerTypes",
    "rules",
    "conditions",
    "values",
    "launchConfigIds",
];

/// A configuration that is proven to give the pools that it was made of.
pub(super) struct Written {
    pub(super) id: String,
    pub(super) n_worker_types: usize,
    pub(super) n_rules: usize,
    pub(super) text: String,
}

/// One configuration, or several if one would be too large.
pub(super) fn configurations(
    id: &str,
    description: &str,
    sources: &[Source],
) -> Result<Vec<Written>, Failure> {
    let n_launch_configs: usize = sources
        .iter()
        .map(|source| source.launch_configs.len())
        .sum();
    if sources.len() <= MAX_WORKER_TYPES && n_launch_configs <= MAX_LAUNCH_CONFIGS
        || sources.len() < 2
    {
        let document = factor::document(id, description, sources).map_err(unproven)?;
        let n_rules = document["rules"].as_array().map_or(0, Vec::len);
        let n_bytes = document["rules"].to_string().len();
        if n_rules <= MAX_RULES && n_bytes <= MAX_BYTES || sources.len() < 2 {
            let text = to_yaml(&document, &FIRST);
            // What is proven is the file as it will be read.
            let read = parse(id, &text, Format::Yaml)?;
            verify::verify(&read, sources).map_err(unproven)?;
            return Ok(vec![Written {
                id: id.to_owned(),
                n_worker_types: sources.len(),
                n_rules,
                text,
            }]);
        }
    }
    let (left, right) = sources.split_at(sources.len() / 2);
    let mut parts = configurations(&format!("{id}-1"), description, left)?;
    parts.extend(configurations(&format!("{id}-2"), description, right)?);
    Ok(parts)
}

fn unproven(problem: String) -> Failure {
    Failure::failed(format!(
        "nothing was written, because the rules would not give the same pools: {problem}"
    ))
    .advise("this is a mistake in fleetwright: please report it, with that worker pool")
}

/// Where each goes; what is there already stays unless that is meant.
pub(super) fn paths(
    folder: &Path,
    written: &[Written],
    force: bool,
) -> Result<Vec<PathBuf>, Failure> {
    let paths: Vec<PathBuf> = written
        .iter()
        .map(|written| folder.join(format!("{}.yaml", written.id)))
        .collect();
    let there = paths.iter().find(|path| path.exists());
    match there {
        Some(path) if !force => Err(Failure::new(
            crate::failure::Exit::Conflict,
            format!("{} is there already", path.display()),
        )
        .advise("give --force to write over it, or another folder with --out")),
        Some(_) | None => Ok(paths),
    }
}

pub(super) fn save(folder: &Path, paths: &[PathBuf], written: &[Written]) -> Result<(), Failure> {
    let name = folder.display();
    std::fs::create_dir_all(folder).with_context(|| format!("cannot make the folder {name}"))?;
    for (path, written) in paths.iter().zip(written) {
        std::fs::write(path, &written.text)
            .with_context(|| format!("cannot write {}", path.display()))?;
    }
    Ok(())
}

/// Other files in the folder that `plan` would read with these.
pub(super) fn others(folder: &Path, paths: &[PathBuf]) -> Vec<PathBuf> {
    let there = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let there = there.map(|entry| entry.path());
    let mut others: Vec<PathBuf> = there
        .filter(|path| Format::of(path).is_some() && !paths.contains(path))
        .collect();
    others.sort();
    others
}

/// Bytes of the pools as JSON, compact and indented.
pub(super) fn size_before(pools: &[Value]) -> (usize, usize) {
    let compact = pools.iter().map(|pool| pool.to_string().len() + 1).sum();
    let indented = pools
        .iter()
        .map(|pool| crate::output::pretty(pool).len() + 1)
        .sum();
    (compact, indented)
}
