//! Worker configurations: rule sets with their worker types, compiled to pools.
//!
//! `docs/rules.md` describes them for authors. Here a document is parsed into a [`Configuration`],
//! and [`Compilation`] makes pools from it and from the places that the providers offer
//! ([`ProviderCatalog`]).

mod adoption;
mod compilation;
mod compiled;
mod compiler;
mod difference;
mod given_ids;
mod lineup;
mod places;
mod problem;
mod provider_catalog;
mod settings;
mod stored;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

use rules::{Attributes, Evaluator, Rule, RuleSet, Sets};
use serde_json::{Map, Value, json};

pub use self::adoption::{StoredPool, WantedPool, adoption};
pub use self::compilation::Compilation;
pub use self::compiled::{CompiledLaunchConfig, CompiledPool, CompiledProvider};
pub use self::difference::{
    PoolChange, PoolDifference, Replacement, RuleChange, ValueChange, difference, rule_changes,
    value_changes,
};
pub use self::given_ids::{GivenIds, MAX_GIVEN_IDS};
pub use self::lineup::{CompletedLaunchConfig, Lineup, LineupError};
pub(crate) use self::problem::below;
pub use self::problem::{Problem, Problems, keep_common, rules_behind};
pub use self::provider_catalog::{
    CompletedIds, Place, ProviderCatalog, ProviderEntry, WorkerSource,
};
pub use self::settings::{CONFIG_KEYS, ProviderOptions, is_setting, value_keys};
pub use self::stored::{Action, StoredConfiguration, VersionRecord, WorkerTypeRecord};

use crate::id::{BadId, PoolId};

/// The provisioner of worker types that are named without one (RFC 124).
const PROVISIONER: &str = "worker-manager/";
/// Maximum number of worker types of a configuration.
pub const MAX_WORKER_TYPES: usize = 2_000;
/// Characters.
const MAX_DESCRIPTION: usize = 10_240;
const KEYS: [&str; 6] = [
    "workerConfigurationId",
    "description",
    "workerTypes",
    "sets",
    "rules",
    "launchConfigIds",
];

/// A worker pool as rule sets name it: `build-opt` for the pool `worker-manager/build-opt`, the
/// complete id for other pools.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct WorkerType(PoolId);

/// A configuration as its author wrote it: a list of worker types and a list of rules.
#[derive(Clone, Debug)]
pub struct Configuration {
    pub description: String,
    /// In their order in the document, without duplicates.
    pub worker_types: Vec<WorkerType>,
    pub rules: RuleSet,
    pub launch_config_ids: GivenIds,
}

impl WorkerType {
    pub fn pool_id(&self) -> &PoolId {
        &self.0
    }

    /// The value of the condition `workerType`.
    pub fn name(&self) -> &str {
        let id = self.0.as_str();
        id.strip_prefix(PROVISIONER).unwrap_or(id)
    }

    pub fn attributes(&self) -> Attributes {
        [("workerType", self.name())].into_iter().collect()
    }
}

impl From<PoolId> for WorkerType {
    fn from(pool_id: PoolId) -> Self {
        Self(pool_id)
    }
}

impl FromStr for WorkerType {
    type Err = BadId;

    fn from_str(text: &str) -> Result<Self, BadId> {
        match text.contains('/') {
            true => text.parse().map(Self),
            false => format!("{PROVISIONER}{text}").parse().map(Self),
        }
    }
}

impl fmt::Display for WorkerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl Configuration {
    /// Parses a document. All errors are returned together, each with its pointer.
    pub fn parse(document: &Value) -> Result<Self, Problems> {
        let mut problems = Problems::default();
        let Value::Object(document) = document else {
            return Err(Problem::at("", "a worker configuration is an object").into());
        };
        for key in document.keys() {
            if !KEYS.contains(&key.as_str()) {
                let text = format!(
                    "`{key}` is not known here; known are {}",
                    KEYS.map(|key| format!("`{key}`")).join(", ")
                );
                problems.add(Problem::at(&below("", key), text));
            }
        }
        let description = description(document, &mut problems);
        let worker_types = worker_types(document, &mut problems);
        let none = Value::Null;
        let rules = match Sets::parse(document.get("sets").unwrap_or(&none)) {
            Ok(sets) => RuleSet::parse_with(document.get("rules").unwrap_or(&none), sets)
                .map_err(|wrong| problems.add_rules("/rules", &wrong)),
            Err(wrong) => {
                problems.add_rules("/sets", &wrong);
                Err(())
            }
        };
        let launch_config_ids = GivenIds::read(document.get("launchConfigIds"), &mut problems);
        match rules {
            Ok(rules) if problems.is_empty() => Ok(Self {
                description,
                worker_types,
                rules,
                launch_config_ids,
            }),
            Ok(_) | Err(()) => Err(problems),
        }
    }

    /// Every provider that a rule opts in to, whether or not the rule applies.
    pub fn named_providers(&self) -> BTreeSet<String> {
        named_providers(self.rules.rules())
    }

    /// The rule that sets a value of this pool, from the evaluation with the worker type alone.
    pub fn rule_that_sets(&self, pool_id: &PoolId, pointer: &str) -> Option<String> {
        let attributes = WorkerType::from(pool_id.clone()).attributes();
        rules_behind(&Evaluator::new(&self.rules), &attributes, pointer).pop()
    }

    /// The document, as it is stored and shown.
    pub fn to_document(&self) -> Value {
        let worker_types: Vec<&str> = self.worker_types.iter().map(WorkerType::name).collect();
        let mut document = json!({
            "description": self.description,
            "workerTypes": worker_types,
            "rules": self.rules.to_value(),
        });
        if !self.rules.sets().is_empty() {
            document["sets"] = self.rules.sets().to_value();
        }
        if let Some(ids) = self.launch_config_ids.to_value() {
            document["launchConfigIds"] = ids;
        }
        document
    }
}

/// Every provider that one of these rules opts in to.
pub fn named_providers<'a>(rules: impl IntoIterator<Item = &'a Rule>) -> BTreeSet<String> {
    let mut providers = BTreeSet::new();
    for rule in rules {
        if let Some(Value::Object(named)) = rule.values().get("providers") {
            let opted = named.iter().filter(|(_, options)| !options.is_null());
            providers.extend(opted.map(|(id, _)| id.clone()));
        }
        providers.extend(providers_in_elements(rule));
    }
    providers
}

/// The providers in whose options a rule changes elements of lists.
pub fn providers_in_elements(rule: &Rule) -> impl Iterator<Item = String> {
    rule.elements().source().keys().filter_map(|path| {
        let (id, _) = path.strip_prefix("/providers/")?.split_once('/')?;
        Some(id.replace("~1", "/").replace("~0", "~"))
    })
}

fn description(document: &Map<String, Value>, problems: &mut Problems) -> String {
    match document.get("description") {
        None => String::new(),
        Some(Value::String(text)) if text.chars().count() <= MAX_DESCRIPTION => text.clone(),
        Some(_) => {
            let text = format!("must be a text of at most {MAX_DESCRIPTION} characters");
            problems.add(Problem::at("/description", text));
            String::new()
        }
    }
}

fn worker_types(document: &Map<String, Value>, problems: &mut Problems) -> Vec<WorkerType> {
    let Some(Value::Array(listed)) = document.get("workerTypes") else {
        let text = "must be a list of worker types: names like `build-opt`, or complete pool ids like `proj-x/ci`";
        problems.add(Problem::at("/workerTypes", text));
        return Vec::new();
    };
    if listed.len() > MAX_WORKER_TYPES {
        let text = format!(
            "lists {} worker types; at most {MAX_WORKER_TYPES} are possible",
            listed.len()
        );
        problems.add(Problem::at("/workerTypes", text));
        return Vec::new();
    }
    let (mut worker_types, mut seen) = (Vec::new(), BTreeSet::new());
    for (index, item) in listed.iter().enumerate() {
        let place = format!("/workerTypes/{index}");
        let parsed = item.as_str().map(str::parse::<WorkerType>);
        match parsed {
            Some(Ok(worker_type)) if seen.insert(worker_type.clone()) => {
                worker_types.push(worker_type);
            }
            Some(Ok(worker_type)) => {
                problems.add(Problem::at(
                    &place,
                    format!("`{worker_type}` is listed twice"),
                ));
            }
            Some(Err(bad)) => problems.add(Problem::at(&place, bad.to_string())),
            None => problems.add(Problem::at(
                &place,
                "must be a text: the name of a worker type",
            )),
        }
    }
    worker_types
}
