//! Worker configurations as texts of files: how many it takes, and the proof of each.

use domain::configuration::MAX_WORKER_TYPES;
use files::{Format, parse, to_yaml};
use rules::limits::{MAX_RULES, MAX_SET_BYTES};

use super::source::Source;
use super::{factor, verify};

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
#[derive(Debug)]
pub struct ConfigurationFile {
    pub id: String,
    pub n_worker_types: usize,
    pub n_rules: usize,
    /// YAML.
    pub text: String,
}

/// One configuration, or several if one would be too large.
pub(super) fn configurations(
    id: &str,
    description: &str,
    sources: &[Source],
) -> Result<Vec<ConfigurationFile>, Unproven> {
    divided(id, description, sources, MAX_LAUNCH_CONFIGS)
}

/// Why there is no configuration.
#[derive(Debug, thiserror::Error)]
pub enum Unproven {
    /// Fewer pools may fit.
    #[error("{0}")]
    TooLarge(String),
    /// No server would take it.
    #[error("{0}")]
    Refused(String),
    /// Other pools would come of it.
    #[error("{0}")]
    Differs(String),
}

/// Why this pool cannot be written, whatever stands beside it.
pub(super) fn obstacle(source: &Source) -> Result<Option<String>, Unproven> {
    match proven("alone", "", std::slice::from_ref(source)) {
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
    max_launch_configs: usize,
) -> Result<Vec<ConfigurationFile>, Unproven> {
    let n_launch_configs: usize = sources
        .iter()
        .map(|source| source.launch_configs.len())
        .sum();
    let is_one = sources.len() < 2;
    if sources.len() <= MAX_WORKER_TYPES && n_launch_configs <= max_launch_configs || is_one {
        match proven(id, description, sources) {
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
            max_launch_configs,
        )
    };
    let mut parts = part("1", left)?;
    parts.extend(part("2", right)?);
    Ok(parts)
}

fn proven(id: &str, description: &str, sources: &[Source]) -> Result<ConfigurationFile, Unproven> {
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
    Ok(ConfigurationFile {
        id: id.to_owned(),
        n_worker_types: sources.len(),
        n_rules,
        text,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;
    use crate::PoolSelection;
    use crate::tests_common::read_pools;

    /// Pools of two launch configs, the last of what is left.
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
