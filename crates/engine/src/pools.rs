//! Worker pools that people create: validated by their providers, planned and written.

mod error;
mod plan;
mod several_providers;
mod write_pool;

use cloud::{Provider, ValidateError};
use domain::audit::AuditEntry;
use domain::counts::Counts;
use domain::id::{PoolId, ProviderId};
use domain::launch_config::{LaunchConfig, reconcile, split_off};
use domain::pool::{MAX_LAUNCH_CONFIGS, Pool, PoolDefinition};
use domain::provider_list::remove_only_provider;
use serde_json::{Map, Value};
use store::Tx;

use crate::Engine;
use crate::change::Change;

pub use error::PoolError;
pub use plan::{PoolPlan, plan};

pub(crate) use write_pool::{changes_nothing, empty_pool, insert_pool, replace_pool};

/// Keys of a config for the planner, which the schemas of some providers do not have.
pub(crate) const PLANNING_KEYS: [&str; 5] =
    ["strategy", "minPrice", "maxPrice", "waitPrice", "foresight"];

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

/// A pool as its provider has completed it, with its launch configs.
#[derive(Clone)]
pub struct ValidatedPool {
    definition: PoolDefinition,
    launch_configs: LaunchConfigs,
}

pub struct PoolDetails {
    pub pool: Pool,
    /// Only those that are not archived.
    pub launch_configs: Vec<LaunchConfig>,
    pub counts: Counts,
}

impl PoolDetails {
    pub fn load(tx: &mut Tx<'_>, pool: Pool) -> store::Result<Self> {
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
pub async fn validate(engine: &Engine, asked: PoolRequest) -> Result<ValidatedPool, PoolError> {
    let further = asked.listed.iter().flatten();
    let further = further.filter(|id| **id != asked.provider_id);
    let further_provider_ids = further.cloned().collect();
    let (config, launch_configs) = match &asked.listed {
        None => check_only_provider(engine, &asked.provider_id, asked.config).await?,
        Some(ids) => {
            let Value::Object(mut config) = asked.config else {
                return Err(PoolError::NotAnObject);
            };
            let authored = split_off(&mut config)?;
            check_number(&authored)?;
            several_providers::check(engine, &asked.id, ids, config, &authored).await?
        }
    };
    check_number(&launch_configs)?;
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
    })
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
    let launch_configs = config.get_mut("launchConfigs");
    if let Some(Value::Array(launch_configs)) = launch_configs.filter(|_| !id.is_null()) {
        remove_only_provider(id, launch_configs)?;
    }
    let checked = check_config(provider.as_ref(), &mut config).await;
    checked.map_err(|problem| match problem {
        ValidateError::Invalid(invalid) => PoolError::Invalid(invalid.message(&engine.root_url)),
        ValidateError::Cloud(problem) => {
            tracing::warn!(provider.id = %id, "provider {id} cannot check a config: {problem}");
            PoolError::ProviderSetupFailed
        }
    })?;
    let Value::Object(mut config) = config else {
        return Err(PoolError::NotAnObject);
    };
    let launch_configs = split_off(&mut config)?;
    Ok((config, launch_configs))
}

/// Lets a provider check and complete a config.
pub(crate) async fn check_config(
    provider: &dyn Provider,
    config: &mut Value,
) -> Result<(), ValidateError> {
    provider.validate(config).map_err(ValidateError::Invalid)?;
    provider.validate_outside(config).await
}

/// Creates a pool. A repeated request changes nothing.
pub fn create(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    validated: ValidatedPool,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
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
    let mut pool = load_declared_pool(change.tx, id)?;
    let known = store::launch_configs::all(change.tx, id)?;
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
