//! Worker pools that people create: validated by their providers, planned and written.

mod error;
mod launch_configs;
mod plan;

use cloud::ValidateError;
use domain::audit::AuditEntry;
use domain::counts::Counts;
use domain::event::EventBody;
use domain::id::{PoolId, ProviderId};
use domain::launch_config::{LaunchConfig, reconcile, split_off};
use domain::pool::{MAX_LAUNCH_CONFIGS, Pool, PoolDefinition};
use serde_json::{Map, Value};
use store::{StoreError, Tx};

use crate::Engine;
use crate::change::Change;

pub use error::PoolError;
pub use plan::{PoolPlan, plan};

pub(crate) use launch_configs::{changes_nothing, launch_config_events, write_launch_configs};

/// A pool as the caller requests it.
pub struct PoolRequest {
    pub provider_id: ProviderId,
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
    launch_configs: Vec<Map<String, Value>>,
}

/// A pool with its launch configs and the counts of its workers.
pub struct PoolDetails {
    pub pool: Pool,
    /// Only those that are not archived.
    pub launch_configs: Vec<LaunchConfig>,
    /// The workers of the pool.
    pub counts: Counts,
}

impl PoolDetails {
    pub fn load(tx: &mut Tx<'_>, pool: Pool) -> Result<Self, StoreError> {
        let launch_configs = store::launch_configs::active_between(tx, &pool.id, &pool.id)?;
        let counts = store::worker_counts::of_pool(tx, &pool.id)?;
        Ok(Self {
            pool,
            launch_configs,
            counts,
        })
    }
}

/// Validates a requested pool; its provider completes the config.
pub async fn validate(engine: &Engine, asked: PoolRequest) -> Result<ValidatedPool, PoolError> {
    let provider = engine.providers.get(&asked.provider_id)?;
    let mut config = asked.config;
    provider
        .validate(&mut config)
        .map_err(|invalid| PoolError::Invalid(invalid.message(&engine.root_url)))?;
    let outside = provider.validate_outside(&mut config).await;
    outside.map_err(|problem| match problem {
        ValidateError::Invalid(invalid) => PoolError::Invalid(invalid.message(&engine.root_url)),
        ValidateError::Cloud(problem) => {
            let id = &asked.provider_id;
            tracing::warn!(provider.id = %id, "provider {id} cannot check a config: {problem}");
            PoolError::ProviderSetupFailed
        }
    })?;
    let Value::Object(mut config) = config else {
        return Err(PoolError::NotAnObject);
    };
    let launch_configs = split_off(&mut config)?;
    if launch_configs.len() > MAX_LAUNCH_CONFIGS {
        return Err(PoolError::TooManyLaunchConfigs);
    }
    let definition = PoolDefinition {
        provider_id: asked.provider_id,
        further_provider_ids: Vec::new(),
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

/// Creates a pool. A repeated request changes nothing.
pub fn create(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    validated: ValidatedPool,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
    let (tx, now) = (&mut *change.tx, change.now);
    let known = store::launch_configs::all(tx, id)?;
    let done = reconcile(id, known.clone(), validated.launch_configs, now)?;
    if let Some(pool) = store::pools::get(tx, id)? {
        refuse_compiled(&pool)?;
        let same = pool.definition == validated.definition && changes_nothing(&known, &done);
        return if same {
            Ok(PoolDetails::load(tx, pool)?)
        } else {
            Err(PoolError::Exists)
        };
    }
    let pool = Pool::new(id.clone(), validated.definition, now);
    if !store::pools::insert(tx, &pool)? {
        return Err(tx.lost_race().into());
    }
    let created = EventBody::PoolCreated {
        pool_id: id.clone(),
        provider_id: pool.definition.provider_id.clone(),
    };
    let events = std::iter::once(created).chain(launch_config_events(&pool, &done));
    change.announce(events)?;
    change.wake_pool(id);
    write_launch_configs(change.tx, &done, now)?;
    store::audit::insert(change.tx, audit)?;
    Ok(PoolDetails::load(change.tx, pool)?)
}

/// Gives a pool a new definition.
pub fn update(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    validated: ValidatedPool,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
    let pool = load_declared_pool(change.tx, id)?;
    redefine(change, pool, validated, audit)
}

/// Deletes a pool: it gets the null provider and no launch configs, and is removed after its last
/// worker.
pub fn delete(
    change: &mut Change<'_, '_>,
    id: &PoolId,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
    let pool = load_declared_pool(change.tx, id)?;
    let emptied = ValidatedPool {
        definition: PoolDefinition {
            provider_id: ProviderId::null(),
            further_provider_ids: Vec::new(),
            ..pool.definition.clone()
        },
        launch_configs: Vec::new(),
    };
    redefine(change, pool, emptied, audit)
}

fn redefine(
    change: &mut Change<'_, '_>,
    mut pool: Pool,
    validated: ValidatedPool,
    audit: &AuditEntry,
) -> Result<PoolDetails, PoolError> {
    let (tx, now) = (&mut *change.tx, change.now);
    let previous_provider_id = pool.definition.provider_id.clone();
    let known = store::launch_configs::all(tx, &pool.id)?;
    let done = reconcile(&pool.id, known, validated.launch_configs, now)?;
    pool.redefine(validated.definition, now);
    pool.version = store::pools::update(tx, &pool)?;
    let updated = EventBody::PoolUpdated {
        pool_id: pool.id.clone(),
        provider_id: pool.definition.provider_id.clone(),
        previous_provider_id,
    };
    let events = std::iter::once(updated).chain(launch_config_events(&pool, &done));
    change.announce(events)?;
    change.wake_pool(&pool.id);
    write_launch_configs(change.tx, &done, now)?;
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
