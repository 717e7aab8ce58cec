//! Worker pools that people create: validated by their providers, planned and written.

mod error;
mod object_artifacts;
mod plan;
mod several_providers;
mod write_pool;

use cloud::{Provider, ValidateError};
use domain::audit::AuditEntry;
use domain::counts::Counts;
use domain::id::{ImageName, PoolId, ProviderId};
use domain::launch_config::{BadLaunchConfigs, LaunchConfig, named_provider, reconcile, split_off};
use domain::plan::{Settings, has_planning_keys, remove_planning_keys};
use domain::pool::{MAX_LAUNCH_CONFIGS, Pool, PoolDefinition};
use domain::provider_list::remove_only_provider;
use serde_json::{Map, Value};
use store::Tx;

use crate::Engine;
use crate::change::Change;
use crate::image_references::{self, MissingImages, ResolvedConfigs};

pub use error::PoolError;
pub use plan::{PoolPlan, plan};

pub(crate) use write_pool::{changes_nothing, empty_pool, insert_pool, replace_pool};

/// The launch configs of a pool in their order.
type LaunchConfigs = Vec<Map<String, Value>>;

pub struct PoolRequest {
    pub id: PoolId,
    /// The first provider.
    pub provider_id: ProviderId,
    /// All providers, if the config lists them.
    pub listed: Option<Vec<ProviderId>>,
    pub description: String,
    /// Includes the launch configs.
    pub config: Value,
    pub owner: String,
    pub email_on_error: bool,
}

/// A pool as its providers have completed it, with its launch configs.
#[derive(Clone)]
pub struct ValidatedPool {
    definition: PoolDefinition,
    launch_configs: LaunchConfigs,
    missing_images: Vec<ImageName>,
}

impl ValidatedPool {
    pub(crate) fn launch_configs(&self) -> &[Map<String, Value>] {
        &self.launch_configs
    }
}

pub struct PoolDetails {
    pub pool: Pool,
    /// Only those that are not archived.
    pub launch_configs: Vec<LaunchConfig>,
    pub counts: Counts,
}

impl PoolDetails {
    /// `None`: there is no such pool.
    pub fn find(tx: &mut Tx<'_>, id: &PoolId) -> store::Result<Option<Self>> {
        tx.ask(|tx| {
            store::launch_configs::active_between(tx, id, id)?;
            store::worker_counts::of_pool(tx, id)
        });
        let pool = store::pools::get(tx, id)?;
        pool.map(|pool| Self::load(tx, pool)).transpose()
    }

    fn load(tx: &mut Tx<'_>, pool: Pool) -> store::Result<Self> {
        let launch_configs = store::launch_configs::active_between(tx, &pool.id, &pool.id)?;
        let counts = store::worker_counts::of_pool(tx, &pool.id)?;
        Ok(Self {
            pool,
            launch_configs,
            counts,
        })
    }
}

/// Validates a requested pool; its providers complete the config.
pub async fn validate(
    engine: &Engine,
    asked: PoolRequest,
    if_missing: MissingImages,
) -> Result<ValidatedPool, PoolError> {
    let further = asked.listed.iter().flatten();
    let further = further.filter(|id| **id != asked.provider_id);
    let further_provider_ids = further.cloned().collect();
    let mut raw = asked.config.clone();
    let resolved = resolve_images(engine, &asked, &mut raw, if_missing).await?;
    let missing_images = resolved.as_ref().map_or(&[][..], ResolvedConfigs::missing);
    let missing_images = missing_images.to_vec();
    let (config, launch_configs) = check_all(engine, &asked, raw, resolved).await?;
    check_number(&launch_configs)?;
    let services = &engine.strategy_services;
    let checked = services.check(&config);
    checked.map_err(|bad| PoolError::Invalid(format!("config.{bad}")))?;
    let definition = PoolDefinition {
        provider_id: asked.provider_id,
        further_provider_ids,
        description: asked.description,
        config,
        owner: asked.owner,
        email_on_error: asked.email_on_error,
    };
    Ok(ValidatedPool {
        definition,
        launch_configs,
        missing_images,
    })
}

/// The config without its launch configs, and these, with the selected uploads in place of
/// references to images.
async fn check_all(
    engine: &Engine,
    asked: &PoolRequest,
    config: Value,
    resolved: Option<ResolvedConfigs>,
) -> Result<(Map<String, Value>, LaunchConfigs), PoolError> {
    let (config, checked) = match &asked.listed {
        None => check_only_provider(engine, &asked.provider_id, config).await?,
        Some(ids) => {
            let Value::Object(mut config) = config else {
                return Err(PoolError::NotAnObject);
            };
            let authored = split_off(&mut config)?;
            check_number(&authored)?;
            several_providers::check(engine, &asked.id, ids, config, &authored).await?
        }
    };
    match resolved {
        None => Ok((config, checked)),
        Some(resolved) => {
            let marked = resolved.complete(&asked.id, checked);
            Ok((config, marked.map_err(BadLaunchConfigs::from)?))
        }
    }
}

/// Replaces the launch configs that refer to images by those that their providers check. `None`:
/// none does, and nothing is replaced.
async fn resolve_images(
    engine: &Engine,
    asked: &PoolRequest,
    config: &mut Value,
    if_missing: MissingImages,
) -> Result<Option<ResolvedConfigs>, PoolError> {
    let Some(Value::Array(listed)) = config.get_mut("launchConfigs") else {
        return Ok(None);
    };
    let written = listed.iter().filter_map(Value::as_object);
    let written: LaunchConfigs = written.cloned().collect();
    if written.len() != listed.len() || !image_references::uses_images(&written) {
        return Ok(None);
    }
    check_number(&written)?;
    let templates = image_references::templates(&asked.id, &written)?;
    let with_provider = templates.into_iter().map(|template| {
        let named = named_provider(&template).and_then(Value::as_str);
        let named = named.and_then(|named| named.parse().ok());
        (named.unwrap_or_else(|| asked.provider_id.clone()), template)
    });
    let resolved = image_references::resolve(engine, with_provider.collect(), if_missing).await?;
    let to_check = resolved.to_check().into_iter();
    *listed = to_check.map(|(_, config)| Value::Object(config)).collect();
    Ok(Some(resolved))
}

fn check_number(launch_configs: &LaunchConfigs) -> Result<(), PoolError> {
    match launch_configs.len() {
        0..=MAX_LAUNCH_CONFIGS => Ok(()),
        _ => Err(PoolError::TooManyLaunchConfigs),
    }
}

/// The config without its launch configs, and these, as the only provider has completed them.
async fn check_only_provider(
    engine: &Engine,
    id: &ProviderId,
    mut config: Value,
) -> Result<(Map<String, Value>, LaunchConfigs), PoolError> {
    let provider = engine.providers.get(id)?;
    let for_planning = take_planning_keys(&mut config)?;
    let launch_configs = config.get_mut("launchConfigs");
    if let Some(Value::Array(launch_configs)) = launch_configs.filter(|_| !id.is_null()) {
        remove_only_provider(id, launch_configs)?;
    }
    let checked = check_config(engine, provider.as_ref(), &mut config).await;
    checked.map_err(|problem| match problem {
        ValidateError::Invalid(invalid) => PoolError::Invalid(invalid.message(&engine.root_url)),
        ValidateError::Cloud(problem) => {
            tracing::warn!(provider.id = %id, "provider {id} cannot check a config: {problem}");
            let why = problem.to_string();
            PoolError::CannotCheck {
                id: id.clone(),
                why,
            }
        }
    })?;
    let Value::Object(mut config) = config else {
        return Err(PoolError::NotAnObject);
    };
    let launch_configs = split_off(&mut config)?;
    config.extend(for_planning);
    Ok((config, launch_configs))
}

/// Checks and removes the keys that only planning uses: the schemas of providers need not have
/// them.
fn take_planning_keys(config: &mut Value) -> Result<Map<String, Value>, PoolError> {
    let Value::Object(config) = config else {
        return Ok(Map::new());
    };
    if has_planning_keys(config) {
        check_planning(config)?;
    }
    Ok(remove_planning_keys(config))
}

fn check_planning(config: &Map<String, Value>) -> Result<(), PoolError> {
    Settings::check(config).map_err(|bad| PoolError::Invalid(format!("config: {bad}")))
}

/// Lets a provider check and complete a config.
pub(crate) async fn check_config(
    engine: &Engine,
    provider: &dyn Provider,
    config: &mut Value,
) -> Result<(), ValidateError> {
    provider.validate(config).map_err(ValidateError::Invalid)?;
    if !engine.demand_source.is_outside() {
        object_artifacts::check(config).map_err(ValidateError::Invalid)?;
    }
    provider.validate_outside(config).await
}

/// Lets the next statement read the pool and the counts of its workers, too.
fn ask(tx: &mut Tx<'_>, id: &PoolId) {
    tx.ask(|tx| {
        store::pools::get(tx, id)?;
        store::worker_counts::of_pool(tx, id)
    });
}

/// Creates a pool. A repeated request changes nothing.
pub fn create(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    validated: ValidatedPool,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
    ask(change.tx, id);
    let known = store::launch_configs::all(change.tx, id)?;
    let done = reconcile(id, known.clone(), validated.launch_configs, change.now)?;
    if let Some(pool) = store::pools::get(change.tx, id)? {
        refuse_compiled(&pool)?;
        if pool.definition != validated.definition || !changes_nothing(&known, &done) {
            return Err(PoolError::Exists);
        }
        return Ok(PoolDetails::load(change.tx, pool)?);
    }
    let pool = Pool::new(id.clone(), validated.definition, change.now);
    insert_pool(change, &pool, &done)?;
    store::audit::insert(change.tx, audit)?;
    Ok(PoolDetails::load(change.tx, pool)?)
}

pub fn update(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    validated: ValidatedPool,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
    ask(change.tx, id);
    let known = store::launch_configs::all(change.tx, id)?;
    let mut pool = load_declared_pool(change.tx, id)?;
    let done = reconcile(id, known, validated.launch_configs, change.now)?;
    replace_pool(change, &mut pool, validated.definition, &done)?;
    store::audit::insert(change.tx, audit)?;
    Ok(PoolDetails::load(change.tx, pool)?)
}

/// Deletes a pool: it is removed after its last worker.
pub fn delete(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
    let mut pool = load_declared_pool(change.tx, id)?;
    empty_pool(change, &mut pool)?;
    store::audit::insert(change.tx, audit)?;
    Ok(PoolDetails::load(change.tx, pool)?)
}

fn load_declared_pool(tx: &mut Tx<'_>, id: &PoolId) -> Result<Pool, PoolError> {
    let pool = store::pools::get(tx, id)?.ok_or(PoolError::NoSuchPool)?;
    refuse_compiled(&pool)?;
    Ok(pool)
}

/// Refuses changes of pools that belong to a worker configuration.
pub fn refuse_compiled(pool: &Pool) -> Result<(), PoolError> {
    match &pool.worker_configuration_id {
        None => Ok(()),
        Some(configuration) => Err(PoolError::Compiled {
            pool: pool.id.clone(),
            configuration: configuration.clone(),
        }),
    }
}
