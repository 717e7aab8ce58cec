//! Changes to simulate: pools and worker configurations in files.

use std::path::PathBuf;
use std::sync::Arc;

use domain::configuration::{Compilation, CompiledPool, Lineup, ProviderCatalog};
use domain::id::{PoolId, ProviderId};
use domain::launch_config::{id_of, named_provider, split_off};
use domain::plan::Settings;
use domain::provider_list;
use domain::time::Timestamp;
use serde_json::{Map, Value};
use simulate::recording::{Configuration, ConfiguredLaunchConfig, ConfiguredPool, Recording};

use crate::code::{DefinedPools, read_pools};
use crate::failure::Failure;
use crate::output;

/// Applies the pools and worker configurations of these files to a configuration.
pub(super) fn apply(
    files: &[PathBuf],
    recording: &Recording,
    configuration: &mut Configuration,
    now: Timestamp,
) -> Result<(), Failure> {
    if files.is_empty() {
        return Ok(());
    }
    let defined: DefinedPools = read_pools(files, now)?;
    for kind in defined.ignored {
        output::note(&format!(
            "note: simulations ignore every {kind} in the files"
        ));
    }
    let mut problems = Vec::new();
    for (id, place, content) in &defined.pools {
        match pool(id, content) {
            Ok(pool) => drop(configuration.0.insert(id.clone(), pool)),
            Err(error) => problems.push(format!("{place}: pool {id}: {error}")),
        }
    }
    let catalog = Arc::new(catalog(recording));
    for (id, place, document) in defined.configurations {
        let compiled = Compilation::new(document, Arc::clone(&catalog));
        match compiled {
            Ok(compiled) => {
                for pool in &compiled.pools {
                    match compiled_pool(pool) {
                        Ok(made) => drop(configuration.0.insert(pool.pool_id().clone(), made)),
                        Err(error) => problems.push(format!(
                            "{place}: worker configuration {id}: pool {}: {error}",
                            pool.pool_id()
                        )),
                    }
                }
            }
            Err(errors) => problems.extend(errors.iter().map(|error| {
                let rules: Vec<String> = error
                    .rules
                    .iter()
                    .map(|id| format!("rule {id:?}: "))
                    .collect();
                format!(
                    "{place}: {}: worker configuration {id}: {}{}",
                    error.pointer,
                    rules.concat(),
                    error.message
                )
            })),
        }
    }
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Failure::usage(problems.join("\n"))),
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

fn pool(id: &PoolId, content: &Value) -> Result<ConfiguredPool, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let first = content["providerId"].as_str().unwrap_or_default();
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
    Ok(ConfiguredPool {
        launch_configs: launch_configs.collect::<Result<_, String>>()?,
        config,
    })
}

fn compiled_pool(pool: &CompiledPool) -> Result<ConfiguredPool, String> {
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
    Ok(ConfiguredPool {
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
