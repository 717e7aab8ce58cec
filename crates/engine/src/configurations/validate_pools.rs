//! Validates the pools of a worker configuration: each provider checks its own launch configs.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud::ValidateError;
use contract::Invalid;
use domain::configuration::{
    Compilation, CompiledLaunchConfig, CompiledPool, CompiledProvider, CompletedIds,
    CompletedLaunchConfig, Configuration, Lineup, WorkerSource, WorkerType, rules_behind,
};
use domain::id::{ImageName, LaunchConfigId, PoolId, ProviderId};
use domain::launch_config::{BadLaunchConfigs, LaunchConfig, Reconciliation, reconcile, split_off};
use domain::plan::remove_planning_keys;
use domain::pool::PoolDefinition;
use domain::time::Timestamp;
use serde_json::{Map, Value, json};

use super::ConfigurationError;
use super::compilation_cache::{PreviousState, Purpose};
use super::refusals::{PoolRefusal, Refusals, RefusedValue, Refuser};
use super::schema_check::SchemaCheck;
use crate::Engine;
use crate::image_references::{self, MissingImages, ResolvedConfigs};
use crate::pools::{PoolError, check_config};
use crate::strategy_services::BadService;

/// The pools to write.
#[derive(Clone, Default)]
pub(super) struct DesiredPools {
    pub(super) pools: Vec<DesiredPool>,
    /// Worker types that the configuration no longer has.
    pub(super) removed: Vec<PoolId>,
    /// Of all its pools, also of unchanged ones.
    pub(super) completed: CompletedIds,
    /// Images to which rules refer and which do not exist. Only a question may have some.
    pub(super) missing_images: BTreeSet<ImageName>,
}

#[derive(Clone)]
pub(super) struct DesiredPool {
    pub(super) compiled: Arc<CompiledPool>,
    pub(super) definition: PoolDefinition,
    pub(super) launch_configs: Vec<CompletedLaunchConfig>,
}

impl DesiredPools {
    pub(super) fn without_pools_of(before: &Configuration) -> Self {
        let worker_types = before.worker_types.iter();
        let removed = worker_types.map(|worker_type| worker_type.pool_id().clone());
        Self {
            removed: removed.collect(),
            ..Self::default()
        }
    }
}

impl DesiredPool {
    /// Compares the launch configs with those of the pool.
    pub(super) fn reconcile(
        &self,
        known: Vec<LaunchConfig>,
        now: Timestamp,
    ) -> Result<Reconciliation, ConfigurationError> {
        let configs = self.launch_configs.iter();
        let wanted = configs.map(|config| config.configuration.clone()).collect();
        reconcile(self.compiled.pool_id(), known, wanted, now).map_err(|bad| match &bad {
            BadLaunchConfigs::Clash(id) => ConfigurationError::Conflict(self.clash_message(id)),
            BadLaunchConfigs::NotObjects | BadLaunchConfigs::Id(_) => bad.into(),
        })
    }

    /// A given id stands for its first content for ever.
    fn clash_message(&self, id: &LaunchConfigId) -> String {
        let mut configs = self.launch_configs.iter();
        let config = configs.find(|config| config.id == *id);
        let with = config.map(|config| format!("With {}: ", config.attributes));
        format!(
            "{}the pool {} has a launch config `{id}` with other content already. Nothing was changed; give the new content another \
             `launchConfigId`, or none.",
            with.unwrap_or_default(),
            self.compiled.pool_id()
        )
    }
}

/// The pools that an edit changes, validated by their providers.
pub(super) async fn validate_pools(
    engine: &Engine,
    purpose: Purpose,
    before: Option<&PreviousState>,
    after: &Compilation,
) -> Result<DesiredPools, ConfigurationError> {
    let mut judged = DesiredPools::default();
    let mut refusals = Refusals::default();
    let known = before.and_then(|before| before.compilation.as_ref());
    let mut schemas = SchemaCheck::new(engine, purpose);
    for compiled in &after.pools {
        let pool_id = compiled.pool_id();
        if let Some(known) = known
            && known
                .pool(pool_id)
                .is_some_and(|pool| Arc::ptr_eq(pool, compiled))
        {
            let completed = &mut judged.completed;
            completed.take_over(pool_id, &known.catalog.completed);
            continue;
        }
        match validate_pool(engine, purpose, after, compiled, &mut schemas, &mut judged).await {
            Ok(pool) => judged.pools.push(pool),
            Err(ConfigurationError::Refused(text)) => refusals.add_text(text),
            Err(ConfigurationError::RefusedPool(refusal)) => refusals.add(refusal),
            Err(other) => return Err(other),
        }
        // Other async tasks get their turn between two pools.
        tokio::task::yield_now().await;
    }
    if !refusals.is_empty() {
        return Err(ConfigurationError::Refused(refusals.to_string()));
    }
    let remaining: BTreeSet<&WorkerType> =
        after.pools.iter().map(|pool| &pool.worker_type).collect();
    let were = before
        .into_iter()
        .flat_map(|before| &before.configuration.worker_types);
    let removed = were.filter(|worker_type| !remaining.contains(worker_type));
    judged.removed = removed
        .map(|worker_type| worker_type.pool_id().clone())
        .collect();
    Ok(judged)
}

async fn validate_pool(
    engine: &Engine,
    purpose: Purpose,
    compilation: &Compilation,
    compiled: &Arc<CompiledPool>,
    schemas: &mut SchemaCheck<'_>,
    judged: &mut DesiredPools,
) -> Result<DesiredPool, ConfigurationError> {
    let mut ids = compiled.providers.iter().map(|provider| &provider.id);
    let first = ids.next().cloned().unwrap_or_else(ProviderId::null);
    let mut definition = PoolDefinition {
        provider_id: first.clone(),
        further_provider_ids: ids.cloned().collect(),
        description: compiled.description.clone(),
        config: Map::new(),
        owner: compiled.owner.clone(),
        email_on_error: compiled.email_on_error,
    };
    check_definition(engine, compilation, compiled, &definition)?;
    schemas.check(compilation, compiled).await?;
    if compiled.launches() {
        // Limits and weights are for providers that launch.
        definition.config = compiled.config.clone();
        check_strategy_service(engine, compilation, compiled)?;
    }
    let mut lineup = Lineup::new(compiled.pool_id());
    for provider in &compiled.providers {
        let resolved = resolve_images(engine, purpose, provider).await?;
        let missing = resolved.missing().iter().cloned();
        judged.missing_images.extend(missing);
        let checked = check_provider_config(engine, compilation, compiled, provider, &resolved);
        let Some((config, items)) = checked.await? else {
            continue;
        };
        definition.config.extend(config);
        if provider.takes == WorkerSource::Declarations {
            let attributes = compiled.worker_type.attributes();
            for item in items {
                lineup.add(provider, &attributes, provider.id == first, item)?;
            }
            continue;
        }
        let mut items = items.into_iter();
        for (config, resolved) in provider.launch_configs.iter().zip(resolved) {
            let known = resolved.complete(&mut items, |item| {
                lineup.add(provider, &config.attributes, provider.id == first, item)
            })?;
            if let Some(known) = known.filter(|known| *known != config.id) {
                let completed = &mut judged.completed;
                completed.add(compiled.pool_id(), &provider.id, &config.id, &known);
            }
        }
    }
    Ok(DesiredPool {
        compiled: Arc::clone(compiled),
        definition,
        launch_configs: lineup.into_configs(),
    })
}

/// The launch configs of a provider, with the selected uploads in place of references to images.
async fn resolve_images(
    engine: &Engine,
    purpose: Purpose,
    provider: &CompiledProvider,
) -> Result<ResolvedConfigs, ConfigurationError> {
    let configs = provider.launch_configs.iter();
    let templates = configs.map(|config| (provider.id.clone(), config.configuration.clone()));
    let if_missing = match purpose {
        Purpose::Edit => MissingImages::Refuse,
        Purpose::Question => MissingImages::List,
    };
    let resolved = image_references::resolve(engine, templates.collect(), if_missing).await;
    Ok(resolved.map_err(PoolError::from)?)
}

/// Owner and description must be valid for a pool made by hand.
fn check_definition(
    engine: &Engine,
    compilation: &Compilation,
    compiled: &CompiledPool,
    definition: &PoolDefinition,
) -> Result<(), ConfigurationError> {
    let mut body = json!({
        "providerId": definition.provider_id.as_str(),
        "description": definition.description,
        "config": {},
        "owner": definition.owner,
        "emailOnError": definition.email_on_error,
    });
    let judged = engine.schemas.validate(
        "worker-manager/v1/create-worker-pool-request.json",
        &mut body,
    );
    judged.map_err(|invalid| {
        let problems = invalid.problems.into_iter();
        ConfigurationError::RefusedPool(PoolRefusal::by_server(
            compilation,
            &compiled.worker_type,
            &compiled.worker_type.attributes(),
            problems.map(|problem| (problem.pointer, problem.message)),
        ))
    })
}

/// The strategy service of the pool must be configured.
fn check_strategy_service(
    engine: &Engine,
    compilation: &Compilation,
    compiled: &CompiledPool,
) -> Result<(), ConfigurationError> {
    let checked = engine.strategy_services.check(&compiled.config);
    checked.map_err(|bad| {
        let why = match bad {
            BadService::Unknown(why) => why,
            BadService::Settings(bad) => bad.to_string(),
        };
        ConfigurationError::RefusedPool(PoolRefusal::by_server(
            compilation,
            &compiled.worker_type,
            &compiled.worker_type.attributes(),
            [("/externalStrategy".to_owned(), why)],
        ))
    })
}

type CheckedConfig = (Map<String, Value>, Vec<Map<String, Value>>);

/// The config and launch configs as completed by the provider; `None`: it has nothing to do with
/// pools.
async fn check_provider_config(
    engine: &Engine,
    compilation: &Compilation,
    compiled: &CompiledPool,
    provider: &CompiledProvider,
    resolved: &ResolvedConfigs,
) -> Result<Option<CheckedConfig>, ConfigurationError> {
    let to_check = resolved.to_check();
    let mut config = compiled.config.clone();
    remove_planning_keys(&mut config);
    match provider.takes {
        WorkerSource::Nothing => return Ok(None),
        WorkerSource::Launches => {
            let configs = to_check.iter();
            let configs = configs.map(|(_, config)| Value::Object(config.clone()));
            config.insert("launchConfigs".to_owned(), configs.collect());
        }
        WorkerSource::Declarations => {
            // Keys for launching providers of the same pool do not apply to this provider.
            config.retain(|key, _| key == "lifecycle");
            config.extend(provider.declared.clone());
        }
    }
    let by = engine
        .providers
        .get(&provider.id)
        .map_err(PoolError::from)?;
    let mut config = Value::Object(config);
    let refused = |invalid: &Invalid| {
        let config = |index: usize| provider.launch_configs.get(to_check.get(index)?.0);
        refusal_by_provider(compilation, compiled, provider, config, invalid)
    };
    let checked = check_config(engine, by.as_ref(), &mut config).await;
    checked.map_err(|problem| match problem {
        ValidateError::Invalid(invalid) => refused(&invalid),
        ValidateError::Cloud(problem) => ConfigurationError::ProviderSetupFailed(format!(
            "The provider {} cannot check the worker type {} now: {problem}. Nothing was changed; try again.",
            provider.id, compiled.worker_type
        )),
    })?;
    let Value::Object(mut config) = config else {
        return Err(PoolError::NotAnObject.into());
    };
    let launch_configs = split_off(&mut config)?;
    let is_launching = provider.takes == WorkerSource::Launches;
    if is_launching && launch_configs.len() != to_check.len() {
        let text = format!(
            "The provider {} made {} launch configs of {} for the worker type {}: it may complete launch configs, but neither add nor \
             remove any",
            provider.id,
            launch_configs.len(),
            to_check.len(),
            compiled.worker_type
        );
        return Err(ConfigurationError::Refused(text));
    }
    Ok(Some((config, launch_configs)))
}

/// The refusal of a provider, by place and rules instead of by index.
fn refusal_by_provider<'a>(
    compilation: &Compilation,
    compiled: &CompiledPool,
    provider: &CompiledProvider,
    config_of: impl Fn(usize) -> Option<&'a CompiledLaunchConfig>,
    invalid: &Invalid,
) -> ConfigurationError {
    let errors = invalid.problems.iter().map(|problem| {
        let rest = problem.pointer.strip_prefix("/launchConfigs/");
        let (index, rest) =
            rest.map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
        let config = index.parse::<usize>().ok();
        let config = config.and_then(&config_of);
        let (attributes, pointer) = match config {
            Some(config) => {
                let pointer = format!("/{}/{rest}", provider.section);
                (
                    config.attributes.clone(),
                    pointer.trim_end_matches('/').to_owned(),
                )
            }
            None => (compiled.worker_type.attributes(), problem.pointer.clone()),
        };
        RefusedValue {
            rules: rules_behind(compilation.evaluator(), &attributes, &pointer),
            attributes,
            pointer,
            message: problem.message.clone(),
        }
    });
    ConfigurationError::RefusedPool(PoolRefusal {
        worker_type: compiled.worker_type.clone(),
        by: Refuser::Provider {
            id: provider.id.to_string(),
            schema: invalid.schema.to_string(),
        },
        errors: errors.collect(),
    })
}
