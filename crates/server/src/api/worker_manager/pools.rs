//! Worker pools: made, changed, deleted, shown.

use std::collections::BTreeMap;

use cloud::NotValidated;
use domain::audit::EntityType;
use domain::counts::{self, Counts};
use domain::event::{EventBody, LaunchConfigChange};
use domain::id::{PoolId, ProviderId};
use domain::launch_config::{BadLaunchConfigs, LaunchConfig, Reconciled, reconcile, split_off};
use domain::pool::{MAX_LAUNCH_CONFIGS, Pool, PoolDefinition};
use domain::time::Timestamp;
use serde::Serialize;
use serde_json::{Map, Value};
use store::{StoreError, Tx};

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::paging::MAX_PAGE_BYTES;
use super::super::reply::Reply;
use super::providers;
use super::wire::{PoolBody, PoolReply};
use crate::app::App;

/// A pool that somebody wants, its launch configs apart.
#[derive(Clone)]
pub(super) struct Wanted {
    pub(super) definition: PoolDefinition,
    pub(super) launch_configs: Vec<Map<String, Value>>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolsReply {
    worker_pools: Vec<PoolReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

pub(super) async fn create(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.pool_id()?, call.body::<PoolBody>()?);
    let wanted = wanted(&mut call, body).await?;
    let audit = call.audit(EntityType::WorkerPool, id.as_str(), "created");
    let written = call.change("pool_create", move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let Wanted {
            definition,
            launch_configs,
        } = wanted.clone();
        let known = store::launch_config_all(tx, &id)?;
        let done = reconcile(&id, known.clone(), launch_configs, now)?;
        if let Some(pool) = store::pool_get(tx, &id)? {
            refuse_compiled(&pool)?;
            // The same again is a repeat of a request whose answer was lost.
            let same = pool.definition == definition && changes_nothing(&known, &done);
            return if same {
                load(tx, pool)
            } else {
                Err(exists_already())
            };
        }
        let pool = Pool::new(id.clone(), definition, now);
        if !store::pool_insert(tx, &pool)? {
            return Err(tx.lost_race().into());
        }
        let provider_id = pool.definition.provider_id.clone();
        let created = EventBody::PoolCreated {
            pool_id: id.clone(),
            provider_id,
        };
        let events = std::iter::once(created).chain(launch_config_events(&pool, &done));
        change.announce(events)?;
        change.wake_pool(&id);
        write_launch_configs(change.tx, &done, now)?;
        store::audit_insert(change.tx, &audit)?;
        load(change.tx, pool)
    });
    written.await?.reply()
}

pub(super) async fn update(mut call: Call) -> Result<Reply, ApiError> {
    let (id, body) = (call.pool_id()?, call.body::<PoolBody>()?);
    let claimed = body.worker_pool_id.clone();
    let wanted = wanted(&mut call, body).await?;
    if claimed.is_some_and(|claimed| claimed != id.as_str()) {
        return Err(ApiError::input("Incorrect workerPoolId in request body"));
    }
    redefine(call, id, "updated", move |_| wanted.clone()).await
}

/// A deleted pool has the null provider and no launch configs; it goes when its last worker has.
pub(super) async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let emptied = |pool: &Pool| Wanted {
        definition: PoolDefinition {
            provider_id: ProviderId::null(),
            further_provider_ids: Vec::new(),
            ..pool.definition.clone()
        },
        launch_configs: Vec::new(),
    };
    redefine(call, id, "deleted", emptied).await
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let loaded = call.app.engine.store.read("pool_show", move |tx| {
        let pool = store::pool_get(tx, &id)?.ok_or_else(no_such_pool)?;
        load(tx, pool)
    });
    loaded.await?.reply()
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let after = page
        .after
        .as_ref()
        .map(|(id,)| id.parse::<PoolId>())
        .transpose()?;
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("pool_list", move |tx| {
        let part = store::pool_part(tx, after.as_ref(), limit, MAX_PAGE_BYTES)?;
        let (Some(first), Some(last)) = (part.items.first(), part.items.last()) else {
            return Ok::<_, ApiError>((part, Vec::new(), Vec::new()));
        };
        let counts = store::worker_counts_between(tx, &first.id, &last.id)?;
        let configs = store::launch_config_active_between(tx, &first.id, &last.id)?;
        Ok((part, configs, counts))
    });
    let (part, configs, by_pool) = read.await?;
    let (pools, continuation_token) = page.cut_part(part, |pool| (pool.id.to_string(),));
    let worker_pools = pools
        .iter()
        .map(|pool| {
            let counts = counts::of_pool(&by_pool, &pool.id);
            PoolReply::new(pool, of_pool(&configs, &pool.id), &counts)
        })
        .collect();
    Reply::json(&PoolsReply {
        worker_pools,
        continuation_token,
    })
}

/// The part of the launch configs, ordered by pool, that belongs to one.
fn of_pool<'a>(configs: &'a [LaunchConfig], id: &PoolId) -> &'a [LaunchConfig] {
    let start = configs.partition_point(|config| config.pool_id < *id);
    let end = configs.partition_point(|config| config.pool_id <= *id);
    &configs[start..end]
}

/// Authorises the caller for the provider, and checks the config that it gives.
async fn wanted(call: &mut Call, body: PoolBody) -> Result<Wanted, ApiError> {
    let params = call.url_params().text("providerId", &body.provider_id);
    call.authorize(params).await?;
    // Nothing that the config could say would change a pool made of rules; the transaction looks once more.
    let id = call.pool_id()?;
    let read = call.app.engine.store.read("pool_is_compiled", move |tx| {
        store::pool_get(tx, &id)?
            .as_ref()
            .map_or(Ok(()), refuse_compiled)
    });
    read.await?;
    judged(&call.app, body).await
}

/// What is wanted, as its provider completes it.
pub(super) async fn judged(app: &App, body: PoolBody) -> Result<Wanted, ApiError> {
    let provider_id: ProviderId = body
        .provider_id
        .parse()
        .map_err(|_| ApiError::input("Invalid Provider"))?;
    let provider = providers::wanted(app, &provider_id)?;
    let mut config = body.config;
    provider
        .validate(&mut config)
        .map_err(|invalid| ApiError::invalid(&invalid, &app.engine.root_url))?;
    let outside = provider.validate_outside(&mut config).await;
    outside.map_err(|problem| match problem {
        NotValidated::Invalid(invalid) => ApiError::invalid(&invalid, &app.engine.root_url),
        NotValidated::Cloud(problem) => {
            tracing::warn!(provider.id = %provider_id, "provider {provider_id} cannot check a config: {problem}");
            ApiError::provider_setup_failed()
        }
    })?;
    let Value::Object(mut config) = config else {
        return Err(ApiError::input("config must be an object"));
    };
    let launch_configs = split_off(&mut config)?;
    if launch_configs.len() > MAX_LAUNCH_CONFIGS {
        let text = format!("A pool has at most {MAX_LAUNCH_CONFIGS} launch configs");
        return Err(ApiError::input(text));
    }
    let definition = PoolDefinition {
        provider_id,
        further_provider_ids: Vec::new(),
        description: body.description,
        config,
        owner: body.owner,
        email_on_error: body.email_on_error,
    };
    Ok(Wanted {
        definition,
        launch_configs,
    })
}

/// Gives a pool a new definition, with all that follows from it, in one transaction.
async fn redefine(
    call: Call,
    id: PoolId,
    action: &str,
    wanted: impl Fn(&Pool) -> Wanted + Send + 'static,
) -> Result<Reply, ApiError> {
    let audit = call.audit(EntityType::WorkerPool, id.as_str(), action);
    let written = call.change("pool_redefine", move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let mut pool = store::pool_get(tx, &id)?.ok_or_else(no_such_pool)?;
        refuse_compiled(&pool)?;
        let previous_provider_id = pool.definition.provider_id.clone();
        let Wanted {
            definition,
            launch_configs,
        } = wanted(&pool);
        let known = store::launch_config_all(tx, &id)?;
        let done = reconcile(&id, known, launch_configs, now)?;
        pool.redefine(definition, now);
        pool.version = store::pool_update(tx, &pool)?;
        let updated = EventBody::PoolUpdated {
            pool_id: id.clone(),
            provider_id: pool.definition.provider_id.clone(),
            previous_provider_id,
        };
        let events = std::iter::once(updated).chain(launch_config_events(&pool, &done));
        change.announce(events)?;
        change.wake_pool(&id);
        write_launch_configs(change.tx, &done, now)?;
        store::audit_insert(change.tx, &audit)?;
        load(change.tx, pool)
    });
    written.await?.reply()
}

/// What is made of rules is changed by changing the rules.
pub(super) fn refuse_compiled(pool: &Pool) -> Result<(), ApiError> {
    match &pool.worker_configuration_id {
        None => Ok(()),
        Some(configuration) => Err(ApiError::conflict(format!(
            "Worker pool {} is made of the worker configuration {configuration}: change its rules instead, or take the \
             worker type out of it first",
            pool.id
        ))),
    }
}

/// A pool with all that a reply shows of it.
struct Loaded {
    pool: Pool,
    active: Vec<LaunchConfig>,
    counts: Counts,
}

impl Loaded {
    fn reply(&self) -> Result<Reply, ApiError> {
        Reply::json(&PoolReply::new(&self.pool, &self.active, &self.counts))
    }
}

fn load(tx: &mut Tx<'_>, pool: Pool) -> Result<Loaded, ApiError> {
    let active = store::launch_config_active_between(tx, &pool.id, &pool.id)?;
    let counts = store::worker_counts(tx, &pool.id)?;
    Ok(Loaded {
        pool,
        active,
        counts,
    })
}

/// Would this leave every launch config as it is?
pub(super) fn changes_nothing(known: &[LaunchConfig], done: &Reconciled) -> bool {
    done.inserts.is_empty()
        && done.retirements.is_empty()
        && done.rewrites.iter().all(|rewrite| {
            known
                .iter()
                .any(|row| row.id == rewrite.id && row.looks_like(rewrite))
        })
}

pub(super) fn write_launch_configs(
    tx: &mut Tx<'_>,
    done: &Reconciled,
    now: Timestamp,
) -> Result<(), StoreError> {
    for config in &done.inserts {
        if !store::launch_config_insert(tx, config)? {
            return Err(tx.lost_race());
        }
    }
    for config in &done.rewrites {
        store::launch_config_update(tx, config)?;
    }
    for config in &done.retirements {
        store::launch_config_archive(tx, config, now)?;
    }
    Ok(())
}

/// Each names the provider of its launch config; if that one is archived because the pool has left its provider, the
/// pool's first, as Taskcluster has it.
pub(super) fn launch_config_events(pool: &Pool, done: &Reconciled) -> Vec<EventBody> {
    let configs = done.inserts.iter().chain(&done.rewrites);
    let configs = configs.chain(&done.retirements);
    let providers: BTreeMap<_, _> = configs
        .map(|config| (&config.id, config.provider_id(pool)))
        .collect();
    let first = &pool.definition.provider_id;
    let lists = [
        (LaunchConfigChange::Updated, &done.updated),
        (LaunchConfigChange::Created, &done.created),
        (LaunchConfigChange::Archived, &done.archived),
    ];
    lists
        .into_iter()
        .flat_map(|(change, ids)| ids.iter().map(move |id| (change, id)))
        .map(|(change, id)| EventBody::LaunchConfig {
            change,
            pool_id: pool.id.clone(),
            provider_id: (*providers.get(id).unwrap_or(&first)).clone(),
            launch_config_id: id.clone(),
        })
        .collect()
}

pub(super) fn no_such_pool() -> ApiError {
    ApiError::not_found("Worker pool does not exist")
}

fn exists_already() -> ApiError {
    ApiError::conflict("Worker pool already exists")
}

impl From<BadLaunchConfigs> for ApiError {
    fn from(bad: BadLaunchConfigs) -> Self {
        match bad {
            BadLaunchConfigs::Clash(_) => Self::conflict(bad.to_string()),
            BadLaunchConfigs::NotObjects | BadLaunchConfigs::Id(_) => Self::input(bad.to_string()),
        }
    }
}
