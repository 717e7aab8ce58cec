//! Worker configurations as files: the pools are divided among them, and each file is verified.

use std::collections::BTreeMap;

use domain::configuration::{Compilation, MAX_WORKER_TYPES};
use files::{Format, parse, to_yaml};
use rules::limits::{MAX_RULES, MAX_SET_BYTES};
use serde_json::{Value, json};

use super::applications::Applications;
use super::parts::{Files, FilesBy};
use super::source::{Sections, Source, sections};
use super::{factor, list_changes, merge, names, parts, sets, verify};

/// Maximum number of launch configs of a configuration; a server accepts twice as many.
const MAX_LAUNCH_CONFIGS: usize = 25_000;
/// The ids of launch configs: in a file of their own, because people do not edit them.
const IDS: &str = "launchConfigIds";
/// The order of keys in a configuration: its properties first, then its content.
const FIRST: [&str; 13] = [
    "partOf",
    "workerConfigurationId",
    "ruleId",
    "description",
    "owner",
    "workerTypes",
    "sets",
    "rules",
    "conditions",
    "references",
    "values",
    "elements",
    "launchConfigIds",
];

/// A configuration that is verified to compile to the pools that it was made from.
#[derive(Debug)]
pub struct ConfigurationFile {
    pub id: String,
    pub n_worker_types: usize,
    pub n_rules: usize,
    pub n_ids: usize,
    /// YAML.
    pub text: String,
    /// The parts of projects or owners, by name.
    pub parts: Vec<PartFile>,
    /// The part with the ids of launch configs that are not the computed ones.
    pub ids: Option<String>,
    /// Whether rules were merged and lists became sets.
    pub is_refined: bool,
}

/// The rules of one project or owner: a part of a configuration.
#[derive(Debug)]
pub struct PartFile {
    /// The name of its file, without an extension.
    pub name: String,
    pub n_worker_types: usize,
    pub n_rules: usize,
    /// YAML.
    pub text: String,
}

/// A configuration, or several if it would be too large.
pub(super) fn configurations(
    id: &str,
    description: &str,
    sources: &[Source],
    files_by: Option<FilesBy>,
) -> Result<Vec<ConfigurationFile>, Unproven> {
    divided(id, description, sources, files_by, MAX_LAUNCH_CONFIGS)
}

/// Why no configuration can be made.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    /// With fewer pools it may be possible.
    #[error("{0}")]
    TooLarge(String),
    /// No server would accept it.
    #[error("{0}")]
    Refused(String),
    /// It would compile to other pools.
    #[error("{0}")]
    Differs(String),
}

/// The reason why this pool cannot be written in any configuration.
pub(super) fn obstacle(source: &Source) -> Result<Option<String>, Unproven> {
    match proven("alone", "", std::slice::from_ref(source), None) {
        Ok(_) => Ok(None),
        Err(Unproven::TooLarge(problem) | Unproven::Refused(problem)) => {
            let first = problem.lines().next().unwrap_or_default();
            Ok(Some(format!("as rules: {first}")))
        }
        Err(differs @ Unproven::Differs(_)) => Err(differs),
    }
}

fn divided(
    id: &str,
    description: &str,
    sources: &[Source],
    files_by: Option<FilesBy>,
    max_launch_configs: usize,
) -> Result<Vec<ConfigurationFile>, Unproven> {
    let n_launch_configs: usize = sources
        .iter()
        .map(|source| source.launch_configs.len())
        .sum();
    let is_one = sources.len() < 2;
    if sources.len() <= MAX_WORKER_TYPES && n_launch_configs <= max_launch_configs || is_one {
        match proven(id, description, sources, files_by) {
            Ok(written) => return Ok(vec![written]),
            Err(Unproven::TooLarge(_)) if !is_one => {}
            Err(unproven) => return Err(unproven),
        }
    }
    let (left, right) = sources.split_at(sources.len() / 2);
    let part = |name: &str, sources| {
        divided(
            &format!("{id}-{name}"),
            description,
            sources,
            files_by,
            max_launch_configs,
        )
    };
    let mut parts = part("1", left)?;
    parts.extend(part("2", right)?);
    Ok(parts)
}

fn proven(
    id: &str,
    description: &str,
    sources: &[Source],
    files_by: Option<FilesBy>,
) -> Result<ConfigurationFile, Unproven> {
    let sections = sections(sources);
    let mut document =
        factor::document(id, description, sources, &sections).map_err(Unproven::Refused)?;
    let n_rules = document["rules"].as_array().map_or(0, Vec::len);
    let n_bytes = document["rules"].to_string().len();
    if n_rules > MAX_RULES || n_bytes > MAX_SET_BYTES {
        return Err(Unproven::TooLarge(format!(
            "it would take {n_rules} rules of {n_bytes} bytes, and a worker configuration has at most {MAX_RULES} of \
             {MAX_SET_BYTES} bytes"
        )));
    }
    let ids = document
        .as_object_mut()
        .and_then(|document| document.remove(IDS));
    let ids = ids.map(|ids| to_yaml(&json!({ "partOf": id, IDS: ids }), &FIRST));
    let files = files_by.map_or_else(Files::new, |by| parts::files(sources, by, id));
    let plain = Documents::plain(&document, &files);
    let (plain, compiled) = plain.verified(id, ids.as_deref(), sources)?;
    let rules = document["rules"].as_array().map_or(&[][..], Vec::as_slice);
    let shorter = list_changes::shortened(rules, &compiled, &sections);
    let refined = |rules: &[Value]| {
        let draft = Documents::refined(&document, rules, &compiled, &sections, &files);
        draft.verified(id, ids.as_deref(), sources).ok()
    };
    // The plain rules are right without any of this.
    let refined = shorter
        .and_then(|rules| refined(&rules))
        .or_else(|| refined(rules));
    let is_refined = refined.is_some();
    let (written, compiled) = refined.unwrap_or((plain, compiled));
    Ok(ConfigurationFile {
        id: id.to_owned(),
        n_worker_types: sources.len(),
        n_rules: compiled.configuration.rules.rules().len(),
        n_ids: compiled.configuration.launch_config_ids.len(),
        text: written.shared,
        parts: written.parts,
        ids,
        is_refined,
    })
}

/// The documents of a configuration, the shared one without a name.
struct Documents(BTreeMap<Option<String>, Value>);

/// The texts of its files.
struct Written {
    shared: String,
    parts: Vec<PartFile>,
}

impl Documents {
    /// All rules in the shared file.
    fn plain(document: &Value, files: &Files) -> Self {
        let rules = document["rules"].as_array().cloned().unwrap_or_default();
        let assigned = vec![None; rules.len()];
        Self(parts::documents(document, rules, &assigned, files, &[]))
    }

    /// With merged rules, sets, and the rules of each project in its file.
    fn refined(
        document: &Value,
        rules: &[Value],
        compiled: &Compilation,
        sections: &Sections,
        files: &Files,
    ) -> Self {
        let mut applications = Applications::new(rules, compiled);
        let merged = merge::merged(rules, &mut applications);
        let assigned = parts::assign(&merged, files, &applications);
        let mut rules: Vec<Value> = merged.into_iter().map(|(_, rule)| rule).collect();
        names::name_all(&mut rules, sections);
        let sets = sets::introduce(&mut rules);
        Self(parts::documents(document, rules, &assigned, files, &sets))
    }

    /// Verifies the files in the form in which they will be read.
    fn verified(
        self,
        id: &str,
        ids: Option<&str>,
        sources: &[Source],
    ) -> Result<(Written, Compilation), Unproven> {
        let mut written = Written {
            shared: String::new(),
            parts: Vec::new(),
        };
        for (name, document) in self.0 {
            let text = to_yaml(&document, &FIRST);
            let count = |list: &str| document[list].as_array().map_or(0, Vec::len);
            match name {
                None => written.shared = text,
                Some(name) => written.parts.push(PartFile {
                    name,
                    n_worker_types: count("workerTypes"),
                    n_rules: count("rules"),
                    text,
                }),
            }
        }
        // As a folder is read: `a-b.yaml` is before `a.yaml`.
        let file_name = |part: &PartFile| format!("{}.yaml", part.name);
        written.parts.sort_by_cached_key(file_name);
        let parts = written.parts.iter().map(|part| part.text.as_str());
        let texts = [written.shared.as_str()]
            .into_iter()
            .chain(parts)
            .chain(ids);
        let read = texts.map(|text| parse(id, text, Format::Yaml));
        let read: Vec<Value> = read
            .collect::<Result<_, _>>()
            .map_err(|bad| Unproven::Refused(bad.message))?;
        let compiled =
            verify::compiled(&parts::joined(read), sources).map_err(Unproven::Refused)?;
        verify::compare(&compiled, sources).map_err(Unproven::Differs)?;
        Ok((written, compiled))
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;
    use crate::PoolSelection;
    use crate::tests_common::read_pools;

    /// Pools of two launch configs each; the last pool gets the remainder.
    fn selection(n_launch_configs: usize) -> PoolSelection {
        let firsts = (0..n_launch_configs).step_by(2);
        let pools = firsts.map(|first| {
            let numbers = first..n_launch_configs.min(first + 2);
            let configs: Vec<_> = numbers.map(|number| json!({"number": number})).collect();
            json!({"workerPoolId": format!("a/p{first}"), "providerId": "p", "owner": "o@example.com",
                "description": "", "config": {"maxCapacity": 1, "launchConfigs": configs}})
        });
        PoolSelection::new(&read_pools(pools.collect()))
    }

    #[test]
    fn a_configuration_of_too_many_launch_configs_is_divided_and_loses_none() {
        let limit = 6;
        for count in sizes_around("rule_import::configuration_file::MAX_LAUNCH_CONFIGS", limit) {
            let found = selection(count);
            assert_eq!(found.refused, []);
            let written = divided("all", "", &found.sources, None, limit).unwrap();
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
