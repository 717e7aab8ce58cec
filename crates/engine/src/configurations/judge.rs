//! What providers say to the pools of a worker configuration: each checks what is meant for it.

use std::collections::BTreeSet;
use std::sync::Arc;

use cloud::ValidateError;
use contract::{Invalid, PayloadSchema};
use domain::configuration::{
    Compilation, CompiledPool, CompiledProvider, Completed, Configuration, LinedUp, Lineup, Takes,
    WorkerType, rules_behind,
};
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch_config::{BadLaunchConfigs, LaunchConfig, Reconciled, reconcile, split_off};
use domain::pool::PoolDefinition;
use domain::time::Timestamp;
use serde_json::{Map, Value, json};

use super::ConfigurationError;
use crate::Engine;
use crate::pools::PoolError;

/// So many pools are told of, if they are wrong.
const MAX_TOLD: usize = 10;
/// What the planner reads and the schemas of some providers do not know.
const PLANNING_KEYS: [&str; 3] = ["strategy", "minPrice", "maxPrice"];

/// What is to be written.
#[derive(Clone)]
pub(super) struct Judged {
    pub(super) pools: Vec<JudgedPool>,
    /// Worker types that the configuration has no longer.
    pub(super) gone: Vec<PoolId>,
    /// Of all its pools, also those that stay as they are.
    pub(super) completed: Completed,
}

#[derive(Clone)]
pub(super) struct JudgedPool {
    pub(super) compiled: Arc<CompiledPool>,
    pub(super) definition: PoolDefinition,
    pub(super) launch_configs: Vec<LinedUp>,
}

impl Judged {
    pub(super) fn nothing_left_of(before: &Configuration) -> Self {
        let worker_types = before.worker_types.iter();
        Self {
            pools: Vec::new(),
            gone: worker_types
                .map(|worker_type| worker_type.pool_id().clone())
                .collect(),
            completed: Completed::default(),
        }
    }
}

impl JudgedPool {
    /// Compared with what the pool has.
    pub(super) fn reconcile(
        &self,
        known: Vec<LaunchConfig>,
        now: Timestamp,
    ) -> Result<Reconciled, ConfigurationError> {
        let configs = self.launch_configs.iter();
        let wanted = configs.map(|config| config.configuration.clone()).collect();
        reconcile(self.compiled.pool_id(), known, wanted, now).map_err(|bad| match &bad {
            BadLaunchConfigs::Clash(id) => ConfigurationError::Conflict(self.clash(id)),
            BadLaunchConfigs::NotObjects | BadLaunchConfigs::Id(_) => bad.into(),
        })
    }

    /// An id that somebody gave stands for its first content for ever.
    fn clash(&self, id: &LaunchConfigId) -> String {
        let mut configs = self.launch_configs.iter();
        let config = configs.find(|config| config.id == *id);
        let with = config.map(|config| format!("With {}: ", config.presented));
        format!(
            "{}the pool {} has a launch config `{id}` with other content already. Nothing was changed; give the new content another \
             `launchConfigId`, or none.",
            with.unwrap_or_default(),
            self.compiled.pool_id()
        )
    }
}

/// What there is before an edit.
#[derive(Clone, Copy)]
pub(super) struct Before<'a> {
    pub(super) configuration: &'a Configuration,
    /// `None`: it is refused today, and so nothing of it is taken over.
    pub(super) compilation: Option<&'a Arc<Compilation>>,
}

/// The pools that differ from before, with the consent of their providers.
pub(super) async fn judge(
    engine: &Engine,
    before: Option<Before<'_>>,
    after: &Compilation,
) -> Result<Judged, ConfigurationError> {
    let mut judged = Judged {
        pools: Vec::new(),
        gone: Vec::new(),
        completed: Completed::default(),
    };
    let mut refusals = Refusals::default();
    let known = before.and_then(|before| before.compilation);
    for compiled in &after.pools {
        let pool_id = compiled.pool_id();
        if let Some(known) = known
            && known
                .pool(pool_id)
                .is_some_and(|pool| Arc::ptr_eq(pool, compiled))
        {
            let completed = &mut judged.completed;
            completed.take_over(pool_id, &known.market.completed);
            continue;
        }
        match pool(engine, after, compiled, &mut judged.completed).await {
            Ok(pool) => judged.pools.push(pool),
            Err(refused) => refusals.add(refused)?,
        }
        // Others have their turn between two pools.
        tokio::task::yield_now().await;
    }
    refusals.tell()?;
    let stays: BTreeSet<&WorkerType> = after.pools.iter().map(|pool| &pool.worker_type).collect();
    let were = before
        .into_iter()
        .flat_map(|before| &before.configuration.worker_types);
    let gone = were.filter(|worker_type| !stays.contains(worker_type));
    judged.gone = gone
        .map(|worker_type| worker_type.pool_id().clone())
        .collect();
    Ok(judged)
}

/// Refusals by content are gathered; anything else ends the edit.
#[derive(Default)]
struct Refusals {
    lines: Vec<String>,
    n_pools: usize,
}

impl Refusals {
    fn add(&mut self, refused: ConfigurationError) -> Result<(), ConfigurationError> {
        let ConfigurationError::Refused(text) = refused else {
            return Err(refused);
        };
        self.n_pools += 1;
        if self.n_pools <= MAX_TOLD {
            self.lines.push(text);
        }
        Ok(())
    }

    fn tell(self) -> Result<(), ConfigurationError> {
        if self.n_pools == 0 {
            return Ok(());
        }
        let more = match self.n_pools.saturating_sub(MAX_TOLD) {
            0 => String::new(),
            more => format!("\n\n{more} more worker types are refused."),
        };
        let text = format!("{}{more}\n\nNothing was changed.", self.lines.join("\n\n"));
        Err(ConfigurationError::Refused(text))
    }
}

async fn pool(
    engine: &Engine,
    compilation: &Compilation,
    compiled: &Arc<CompiledPool>,
    completed: &mut Completed,
) -> Result<JudgedPool, ConfigurationError> {
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
    check_payload_schemas(compilation, compiled)?;
    if compiled.launches() {
        // Limits and weights are for those who launch.
        definition.config = compiled.config.clone();
    }
    let mut lineup = Lineup::new(compiled.pool_id());
    for provider in &compiled.providers {
        let Some((config, items)) = checked(engine, compilation, compiled, provider).await? else {
            continue;
        };
        definition.config.extend(config);
        for (config, item) in provider.launch_configs.iter().zip(items) {
            let known = lineup.add(provider, config, provider.id == first, item)?;
            if known != config.id {
                completed.add(compiled.pool_id(), &provider.id, &config.id, &known);
            }
        }
    }
    Ok(JudgedPool {
        compiled: Arc::clone(compiled),
        definition,
        launch_configs: lineup.into_configs(),
    })
}

/// Owner and description must be as a pool made by hand has them.
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
        let presented = compiled.worker_type.presented();
        let lines = invalid.problems.iter().map(|problem| {
            let rules = rules_behind(compilation.evaluator(), &presented, &problem.pointer);
            line(&problem.pointer, &problem.message, &rules)
        });
        let lines: Vec<String> = lines.collect();
        let text = format!("With {presented}:\n{}", lines.join("\n"));
        ConfigurationError::Refused(text)
    })
}

/// Each compiles: that of the pool, and those of places that have their own.
fn check_payload_schemas(
    compilation: &Compilation,
    compiled: &CompiledPool,
) -> Result<(), ConfigurationError> {
    let of_pool = compiled.payload_schema.as_ref();
    let of_pool = of_pool.map(|schema| (compiled.worker_type.presented(), schema));
    let of_places = compiled.launch_configs().filter_map(|(_, config)| {
        let schema = config.payload_schema.as_ref()?;
        Some((config.presented.clone(), schema))
    });
    let mut fine: Vec<&Value> = Vec::new();
    for (presented, schema) in of_pool.into_iter().chain(of_places) {
        if fine.contains(&schema.as_ref()) {
            continue;
        }
        PayloadSchema::compile(schema).map_err(|bad| {
            let rules = rules_behind(compilation.evaluator(), &presented, "/payloadSchema");
            let what = line("/payloadSchema", &bad.to_string(), &rules);
            let text = format!("With {presented}:\n{what}");
            ConfigurationError::Refused(text)
        })?;
        fine.push(schema);
    }
    Ok(())
}

type Checked = (Map<String, Value>, Vec<Map<String, Value>>);

/// The pool's config as the provider completes it, and the launch configs; `None`: it has nothing to do with pools.
async fn checked(
    engine: &Engine,
    compilation: &Compilation,
    compiled: &CompiledPool,
    provider: &CompiledProvider,
) -> Result<Option<Checked>, ConfigurationError> {
    let mut config = compiled.config.clone();
    config.retain(|key, _| !PLANNING_KEYS.contains(&key.as_str()));
    match provider.takes {
        Takes::Nothing => return Ok(None),
        Takes::Launches => {
            let configs = provider.launch_configs.iter();
            let configs = configs.map(|config| Value::Object(config.configuration.clone()));
            config.insert("launchConfigs".to_owned(), configs.collect());
        }
        Takes::Declarations => {
            // What is for launching providers of the same pool is not for this one.
            config.retain(|key, _| key == "lifecycle");
            config.extend(provider.declared.clone());
        }
    }
    let by = engine
        .providers
        .get(&provider.id)
        .map_err(PoolError::from)?;
    let mut config = Value::Object(config);
    let refused = |invalid: &Invalid| refusal(compilation, compiled, provider, invalid);
    by.validate(&mut config)
        .map_err(|invalid| refused(&invalid))?;
    let outside = by.validate_outside(&mut config).await;
    outside.map_err(|problem| match problem {
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
    if launch_configs.len() != provider.launch_configs.len() {
        let text = format!(
            "The provider {} made {} launch configs of {} for the worker type {}: it may complete launch configs, but neither add nor \
             remove any",
            provider.id,
            launch_configs.len(),
            provider.launch_configs.len(),
            compiled.worker_type
        );
        return Err(ConfigurationError::Refused(text));
    }
    Ok(Some((config, launch_configs)))
}

/// What a provider refuses, by place and rules instead of by index.
fn refusal(
    compilation: &Compilation,
    compiled: &CompiledPool,
    provider: &CompiledProvider,
    invalid: &Invalid,
) -> ConfigurationError {
    let lines = invalid.problems.iter().map(|problem| {
        let rest = problem.pointer.strip_prefix("/launchConfigs/");
        let (index, rest) =
            rest.map_or(("", ""), |rest| rest.split_once('/').unwrap_or((rest, "")));
        let config = index.parse::<usize>().ok();
        let config = config.and_then(|index| provider.launch_configs.get(index));
        let (presented, pointer) = match config {
            Some(config) => {
                let pointer = format!("/{}/{rest}", provider.section);
                (
                    config.presented.clone(),
                    pointer.trim_end_matches('/').to_owned(),
                )
            }
            None => (compiled.worker_type.presented(), problem.pointer.clone()),
        };
        let rules = rules_behind(compilation.evaluator(), &presented, &pointer);
        format!(
            "with {presented}: {}",
            line(&pointer, &problem.message, &rules)
        )
    });
    let lines: Vec<String> = lines.map(|line| format!("* {line}")).collect();
    let text = format!(
        "The provider {} refuses the worker type {} (schema {}):\n{}",
        provider.id,
        compiled.worker_type,
        invalid.schema,
        lines.join("\n")
    );
    ConfigurationError::Refused(text)
}

fn line(pointer: &str, message: &str, rules: &[String]) -> String {
    let by = match rules {
        [] => String::new(),
        [rule] => format!(" (rule {rule:?})"),
        rules => {
            let named: Vec<String> = rules.iter().map(|rule| format!("{rule:?}")).collect();
            format!(" (rules {})", named.join(", "))
        }
    };
    format!("{pointer} {message}{by}")
}
