//! Worker configurations as files: how many it takes, where they go, and what was saved.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use domain::configuration::MAX_WORKER_TYPES;
use rules::limits::{MAX_RULES, MAX_SET_BYTES};
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
    divided(id, description, sources, MAX_LAUNCH_CONFIGS)
}

/// Why there is no configuration.
enum Unproven {
    /// Fewer pools may fit.
    TooLarge(String),
    /// No server would take it.
    Refused(String),
    /// Other pools would come of it.
    Differs(String),
}

/// Why this pool cannot be written, whatever stands beside it.
pub(super) fn obstacle(source: &Source) -> Result<Option<String>, Failure> {
    match proven("alone", "", std::slice::from_ref(source)) {
        Ok(_) => Ok(None),
        Err(Unproven::TooLarge(problem) | Unproven::Refused(problem)) => {
            let first = problem.lines().next().unwrap_or_default();
            Ok(Some(format!("as rules: {first}")))
        }
        Err(differs @ Unproven::Differs(_)) => Err(differs.into()),
    }
}

fn divided(
    id: &str,
    description: &str,
    sources: &[Source],
    max_launch_configs: usize,
) -> Result<Vec<Written>, Failure> {
    let n_launch_configs: usize = sources
        .iter()
        .map(|source| source.launch_configs.len())
        .sum();
    let is_one = sources.len() < 2;
    if sources.len() <= MAX_WORKER_TYPES && n_launch_configs <= max_launch_configs || is_one {
        match proven(id, description, sources) {
            Ok(written) => return Ok(vec![written]),
            Err(Unproven::TooLarge(_)) if !is_one => {}
            Err(unproven) => return Err(unproven.into()),
        }
    }
    let (left, right) = sources.split_at(sources.len() / 2);
    let part = |name: &str, sources| {
        divided(
            &format!("{id}-{name}"),
            description,
            sources,
            max_launch_configs,
        )
    };
    let mut parts = part("1", left)?;
    parts.extend(part("2", right)?);
    Ok(parts)
}

fn proven(id: &str, description: &str, sources: &[Source]) -> Result<Written, Unproven> {
    let document = factor::document(id, description, sources).map_err(Unproven::Refused)?;
    let n_rules = document["rules"].as_array().map_or(0, Vec::len);
    let n_bytes = document["rules"].to_string().len();
    if n_rules > MAX_RULES || n_bytes > MAX_SET_BYTES {
        return Err(Unproven::TooLarge(format!(
            "it would take {n_rules} rules of {n_bytes} bytes, and a worker configuration has at most {MAX_RULES} of \
             {MAX_SET_BYTES} bytes"
        )));
    }
    let text = to_yaml(&document, &FIRST);
    // What is proven is the file as it will be read.
    let read = parse(id, &text, Format::Yaml).map_err(|bad| Unproven::Refused(bad.message))?;
    let compiled = verify::compiled(&read, sources).map_err(Unproven::Refused)?;
    verify::compare(&compiled, sources).map_err(Unproven::Differs)?;
    Ok(Written {
        id: id.to_owned(),
        n_worker_types: sources.len(),
        n_rules,
        text,
    })
}

impl From<Unproven> for Failure {
    fn from(unproven: Unproven) -> Self {
        let (Unproven::TooLarge(problem) | Unproven::Refused(problem) | Unproven::Differs(problem)) =
            unproven;
        Self::failed(format!(
            "nothing was written, because the rules would not give the same pools: {problem}"
        ))
        .advise("this is a mistake in fleetwright: please report it, with that worker pool")
    }
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

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::super::sorted;
    use super::*;
    use crate::import::fleet::Fleet;

    /// Pools of two launch configs, the last of what is left.
    fn fleet(n_launch_configs: usize) -> Fleet {
        let firsts = (0..n_launch_configs).step_by(2);
        let pools = firsts.map(|first| {
            let numbers = first..n_launch_configs.min(first + 2);
            let configs: Vec<_> = numbers.map(|number| json!({"number": number})).collect();
            json!({"workerPoolId": format!("a/p{first}"), "providerId": "p", "owner": "o@example.com",
                "description": "", "config": {"maxCapacity": 1, "launchConfigs": configs}})
        });
        Fleet::parse(json!({ "workerPools": pools.collect::<Vec<_>>() })).unwrap()
    }

    #[test]
    fn a_configuration_of_too_many_launch_configs_is_divided_and_loses_none() {
        let limit = 6;
        for count in sizes_around(
            "fleetwright::import::rules::write::MAX_LAUNCH_CONFIGS",
            limit,
        ) {
            let found = sorted(&fleet(count));
            assert_eq!(found.refused, []);
            let written = divided("all", "", &found.sources, limit).unwrap();
            let n_types = written.iter().map(|part| part.n_worker_types);
            assert_eq!(n_types.clone().sum::<usize>(), count.div_ceil(2));
            assert!(
                n_types.clone().all(|n_types| n_types <= limit / 2),
                "{count}"
            );
            assert_eq!(written.len() == 1, count <= limit, "{count}");
            let texts: String = written.iter().map(|part| part.text.as_str()).collect();
            for number in 0..count {
                let lines = texts.lines().filter(|line| {
                    let numbers = line.split(|byte: char| !byte.is_ascii_digit());
                    line.contains("number:") && numbers.into_iter().any(|n| n == number.to_string())
                });
                assert_eq!(lines.count(), 1, "{number} of {count}: {texts}");
            }
        }
    }
}
