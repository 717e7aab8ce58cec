//! A change of the present configuration, as one document: of flags, a form, or a request.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::configuration::{
    Compilation, CompiledPool, Configuration as RuleDocument, Lineup, ProviderCatalog,
};
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch_config::{id_of, named_provider, split_off};
use domain::plan::{Settings, StrategyName};
use domain::provider_list;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::Recording;
use super::configuration::{Configuration, ConfiguredLaunchConfig, ConfiguredPool};

/// At most this many problems are named.
const MAX_NAMED: usize = 20;
/// Larger factors are typing errors.
const MAX_FACTOR: f64 = 1_000.0;
/// The largest maximum capacity that a factor makes: what a pool may have.
const MOST_CAPACITY: f64 = 1e9;
/// A week: workers that are idle for longer are of no pool.
const MAX_IDLE_SECONDS: u32 = 604_800;
/// The idle time of a launch config: generic-worker's own, and that of other workers.
const GENERIC_IDLE: [&str; 3] = ["genericWorker", "config", "idleTimeoutSecs"];
const OUR_IDLE: [&str; 2] = ["fleetwright", "idleTimeoutSeconds"];

/// The differences from the present configuration. An empty change changes nothing.
///
/// Definitions come first, then the settings, which hold for all simulated pools.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct Change {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_capacity: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_capacity: Option<u32>,
    /// The maximum of each pool is multiplied by it, and rounded up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_capacity_factor: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_price: Option<f64>,
    /// How long an idle worker is kept.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub strategy: Option<StrategyName>,
    /// Nothing is launched at these providers.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without_providers: BTreeSet<ProviderId>,
    /// Nothing is launched from these launch configs.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    pub without_launch_configs: BTreeSet<LaunchConfigId>,
    /// Definitions of pools, as for `createWorkerPool`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub worker_pools: BTreeMap<PoolId, Value>,
    /// Worker configurations, which make pools, by their ids.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub worker_configurations: BTreeMap<String, Value>,
}

/// A change that cannot be simulated, with all that is wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{}", text(.0))]
pub struct BadChange(pub Vec<String>);

fn text(problems: &[String]) -> String {
    let named: Vec<&str> = problems
        .iter()
        .take(MAX_NAMED)
        .map(String::as_str)
        .collect();
    match problems.len().saturating_sub(MAX_NAMED) {
        0 => named.join("\n"),
        more => format!("{}\nand {more} further problems", named.join("\n")),
    }
}

impl Change {
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }

    /// Changes definitions of pools. Other pools stay unchanged.
    pub fn define(
        &self,
        recording: &Recording,
        configuration: &mut Configuration,
    ) -> Result<(), BadChange> {
        let mut problems = Vec::new();
        for (id, content) in &self.worker_pools {
            match ConfiguredPool::defined(id, content) {
                Ok(pool) => drop(configuration.0.insert(id.clone(), pool)),
                Err(error) => problems.push(format!("pool {id}: {error}")),
            }
        }
        for (id, document) in &self.worker_configurations {
            let done = match RuleDocument::parse(document) {
                Ok(document) => configuration.compile(recording, document),
                Err(errors) => {
                    let texts = errors.iter();
                    let texts = texts.map(|error| format!("{}: {}", error.pointer, error.message));
                    Err(texts.collect())
                }
            };
            let errors = done.err().into_iter().flatten();
            problems.extend(errors.map(|error| format!("worker configuration {id}: {error}")));
        }
        none(problems)
    }

    /// Changes the settings of all pools of a configuration.
    pub fn set(&self, configuration: &mut Configuration) -> Result<(), BadChange> {
        none(self.problems(configuration))?;
        if let Some(factor) = self.max_capacity_factor {
            for pool in configuration.0.values_mut() {
                multiply(&mut pool.config, factor);
            }
        }
        let settings = [
            ("minCapacity", self.min_capacity.map(|it| json!(it))),
            ("maxCapacity", self.max_capacity.map(|it| json!(it))),
            ("maxPrice", self.max_price.map(|it| json!(it))),
            ("strategy", self.strategy.map(|it| json!(it.as_str()))),
        ];
        for (key, value) in settings {
            if let Some(value) = value {
                configuration.set(key, &value);
            }
        }
        for pool in configuration.0.values_mut() {
            pool.launch_configs.retain(|config| {
                !self.without_providers.contains(&config.provider_id)
                    && !self.without_launch_configs.contains(&config.id)
            });
            if let Some(seconds) = self.idle_seconds {
                for config in &mut pool.launch_configs {
                    set_idle(&mut config.configuration, seconds);
                }
            }
        }
        Ok(())
    }

    fn problems(&self, configuration: &Configuration) -> Vec<String> {
        let mut problems = Vec::new();
        if let Some(factor) = self.max_capacity_factor
            && !(0.0..=MAX_FACTOR).contains(&factor)
        {
            problems.push(format!(
                "maxCapacityFactor must be a number from 0 to {MAX_FACTOR}, not {factor}"
            ));
        }
        if self.max_capacity_factor.is_some() && self.max_capacity.is_some() {
            problems.push("maxCapacity and maxCapacityFactor exclude each other".to_owned());
        }
        if self
            .idle_seconds
            .is_some_and(|seconds| !(1..=MAX_IDLE_SECONDS).contains(&seconds))
        {
            problems.push(format!(
                "idleSeconds must be a whole number from 1 to {MAX_IDLE_SECONDS}"
            ));
        }
        if self.strategy == Some(StrategyName::External) {
            problems.push(
                "the strategy external asks a service, which cannot be asked in a simulation"
                    .to_owned(),
            );
        }
        let configs = || {
            let pools = configuration.0.values();
            pools.flat_map(|pool| &pool.launch_configs)
        };
        for id in &self.without_providers {
            if !configs().any(|config| config.provider_id == *id) {
                problems.push(format!("no simulated pool launches at a provider {id}"));
            }
        }
        for id in &self.without_launch_configs {
            if !configs().any(|config| config.id == *id) {
                problems.push(format!("no simulated pool has a launch config {id}"));
            }
        }
        problems
    }
}

fn none(problems: Vec<String>) -> Result<(), BadChange> {
    match problems.is_empty() {
        true => Ok(()),
        false => Err(BadChange(problems)),
    }
}

fn multiply(config: &mut Map<String, Value>, factor: f64) {
    let present = config.get("maxCapacity").and_then(Value::as_f64);
    let capacity = (present.unwrap_or_default() * factor).ceil();
    let capacity = capacity.clamp(0.0, MOST_CAPACITY);
    config.insert("maxCapacity".to_owned(), json!(capacity));
}

/// Sets the idle time where the workers of a launch config look for it.
fn set_idle(configuration: &mut Map<String, Value>, seconds: u32) {
    let worker_config = configuration.entry("workerConfig").or_insert(json!({}));
    let has_generic = worker_config.get(GENERIC_IDLE[0]).is_some();
    let place: &[&str] = if has_generic {
        &GENERIC_IDLE
    } else {
        &OUR_IDLE
    };
    let mut value = worker_config;
    for name in place {
        if !value.is_object() {
            *value = json!({});
        }
        value = &mut value[*name];
    }
    *value = json!(seconds);
}

impl Configuration {
    /// Adds the pools that a worker configuration makes.
    pub fn compile(
        &mut self,
        recording: &Recording,
        document: RuleDocument,
    ) -> Result<(), Vec<String>> {
        let compiled = Compilation::new(document, Arc::new(catalog(recording)));
        let compiled = compiled.map_err(|errors| {
            let texts = errors.iter().map(|error| {
                let rules = error.rules.iter();
                let rules: Vec<String> = rules.map(|id| format!("rule {id:?}: ")).collect();
                format!("{}: {}{}", error.pointer, rules.concat(), error.message)
            });
            texts.collect::<Vec<_>>()
        })?;
        let mut problems = Vec::new();
        for pool in &compiled.pools {
            match ConfiguredPool::compiled(pool) {
                Ok(made) => drop(self.0.insert(pool.pool_id().clone(), made)),
                Err(error) => problems.push(format!("pool {}: {error}", pool.pool_id())),
            }
        }
        match problems.is_empty() {
            true => Ok(()),
            false => Err(problems),
        }
    }
}

/// The providers of the server, as they were recorded.
fn catalog(recording: &Recording) -> ProviderCatalog {
    match recording.providers.is_empty() {
        true => ProviderCatalog::assumed(),
        false => ProviderCatalog {
            providers: recording.providers.clone(),
            ..ProviderCatalog::default()
        },
    }
}

impl ConfiguredPool {
    /// The pool of a definition, as `createWorkerPool` takes it.
    pub fn defined(id: &PoolId, content: &Value) -> Result<Self, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let first = content["providerId"].as_str();
        let first = first.ok_or("providerId is not the name of a provider")?;
        let first: ProviderId = first.parse().map_err(|bad| text(&bad))?;
        let listed = provider_list::provider_ids(&first, &content["config"]);
        let listed = listed.map_err(|bad| text(&bad))?;
        let mut config = content["config"].as_object().cloned().unwrap_or_default();
        let launch_configs = split_off(&mut config).map_err(|bad| text(&bad))?;
        Settings::parse(&config).map_err(|bad| format!("config: {bad}"))?;
        let provider_of = |configuration: &Map<String, Value>| {
            let named = named_provider(configuration).and_then(Value::as_str);
            let known = listed.iter().flatten();
            let known = known.chain([&first]).find(|id| named == Some(id.as_str()));
            known.unwrap_or(&first).clone()
        };
        let launch_configs = launch_configs.into_iter().map(|configuration| {
            Ok(ConfiguredLaunchConfig {
                id: id_of(id, &configuration).map_err(|bad| text(&bad))?,
                provider_id: provider_of(&configuration),
                configuration,
            })
        });
        Ok(Self {
            launch_configs: launch_configs.collect::<Result<_, String>>()?,
            config,
        })
    }

    /// A pool of a worker configuration.
    fn compiled(pool: &CompiledPool) -> Result<Self, String> {
        Settings::parse(&pool.config).map_err(|bad| bad.to_string())?;
        let mut lineup = Lineup::new(pool.pool_id());
        let first = pool.providers.first().map(|provider| &provider.id);
        for provider in &pool.providers {
            for config in &provider.launch_configs {
                let is_of_first = first == Some(&provider.id);
                let content = config.configuration.clone();
                let added = lineup.add(provider, &config.attributes, is_of_first, content);
                added.map_err(|error| error.to_string())?;
            }
        }
        let launch_configs = lineup.into_configs().into_iter();
        Ok(Self {
            config: pool.config.clone(),
            launch_configs: launch_configs
                .map(|config| ConfiguredLaunchConfig {
                    id: config.id,
                    provider_id: config.provider_id,
                    configuration: config.configuration,
                })
                .collect(),
        })
    }
}
