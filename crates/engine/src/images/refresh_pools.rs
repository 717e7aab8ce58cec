//! Makes the launch configs of pools again when other uploads of their images are selected.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::id::{ImageName, PoolId};
use domain::launch_config::{LaunchConfig, reconcile};
use domain::pool::Pool;
use serde_json::{Map, Value, json};
use store::{StoreError, Tx};

use crate::Engine;
use crate::change::Change;
use crate::fleet::{ErrorDetails, report_pool_error};
use crate::image_references::MissingImages;
use crate::pools::{self, PoolError, PoolRequest, ValidatedPool, changes_nothing, replace_pool};

/// Pools that are listed together. The next round continues.
const PAGE: u32 = 200;
/// Attempts while people change the pool at the same time.
const ATTEMPTS: usize = 5;

/// A pool as it was read, with the selections of its images at that time.
struct OutdatedPool {
    pool: Pool,
    active: Vec<LaunchConfig>,
    selected: Vec<(ImageName, i64)>,
}

/// The result of a round over all pools whose images have another selection now.
#[derive(Debug, Default)]
pub struct RefreshRound {
    pub n_refreshed: usize,
    /// These were left out, as the caller wished.
    pub postponed: Vec<PoolId>,
    /// These keep the launch configs that they had. The first errors come first.
    pub failed: Vec<(PoolId, RefreshError)>,
}

/// Why a pool could not be brought up to date. The next attempt may succeed.
#[derive(Debug, thiserror::Error)]
pub enum RefreshError {
    #[error("new images cannot be used in {pool} yet")]
    Provider { pool: PoolId, source: PoolError },
    #[error("new images cannot be used in {pool}")]
    Store { pool: PoolId, source: StoreError },
}

/// Brings all pools up to date whose images have another selection now, except those that the
/// caller postpones. A pool that fails hinders no other.
pub async fn refresh_pools(
    engine: &Arc<Engine>,
    is_postponed: impl Fn(&PoolId) -> bool,
) -> Result<RefreshRound, StoreError> {
    let mut round = RefreshRound::default();
    let mut after: Option<PoolId> = None;
    loop {
        let from = after.clone();
        let read = engine.store.read("image_user_outdated", move |tx| {
            store::image_users::list_outdated(tx, from.as_ref(), PAGE)
        });
        let page: Vec<PoolId> = read.await?;
        after = page.last().cloned();
        let is_last = page.len() < PAGE as usize;
        for pool in page {
            if is_postponed(&pool) {
                round.postponed.push(pool);
                continue;
            }
            match refresh_pool(engine, &pool).await {
                Ok(()) => round.n_refreshed += 1,
                Err(error) => round.failed.push((pool, error)),
            }
        }
        if is_last {
            return Ok(round);
        }
    }
}

async fn refresh_pool(engine: &Arc<Engine>, id: &PoolId) -> Result<(), RefreshError> {
    let of_store = |source| RefreshError::Store {
        pool: id.clone(),
        source,
    };
    for _ in 0..ATTEMPTS {
        let named = id.clone();
        let read = engine
            .store
            .read("image_user_pool", move |tx| load(tx, &named));
        let Some(outdated) = read.await.map_err(of_store)? else {
            return Ok(());
        };
        let made = pools::validate(engine, request(&outdated), MissingImages::Refuse).await;
        let is_done = match made {
            Ok(made) => write(engine, outdated, Some(made)).await,
            Err(PoolError::Store(error)) => Err(error),
            // The provider does not work now: another round tries again.
            Err(source @ (PoolError::OutOfService { .. } | PoolError::CannotCheck { .. })) => {
                let pool = id.clone();
                return Err(RefreshError::Provider { pool, source });
            }
            Err(problem) => match report(engine, &outdated, &problem).await {
                Ok(()) => write(engine, outdated, None).await,
                Err(error) => Err(error),
            },
        };
        if is_done.map_err(of_store)? {
            return Ok(());
        }
    }
    Ok(())
}

/// `None`: the pool was deleted meanwhile.
fn load(tx: &mut Tx<'_>, id: &PoolId) -> store::Result<Option<OutdatedPool>> {
    let Some(pool) = store::pools::get(tx, id)? else {
        return Ok(None);
    };
    let active = store::launch_configs::active_between(tx, id, id)?;
    let images = store::image_users::list_images(tx, id)?;
    let rollouts = store::image_rollouts::of(tx, &images)?;
    let selected: BTreeMap<_, _> = rollouts
        .into_iter()
        .map(|rollout| (rollout.image, rollout.selected))
        .collect();
    let selected = images.into_iter().map(|image| {
        let number = selected.get(&image).copied().unwrap_or_default();
        (image, number)
    });
    Ok(Some(OutdatedPool {
        selected: selected.collect(),
        pool,
        active,
    }))
}

/// The pool as if its author wrote it once more.
fn request(outdated: &OutdatedPool) -> PoolRequest {
    let definition = &outdated.pool.definition;
    let further = !definition.further_provider_ids.is_empty();
    let config: Map<String, Value> = outdated.pool.assembled_config(&outdated.active);
    PoolRequest {
        id: outdated.pool.id.clone(),
        provider_id: definition.provider_id.clone(),
        listed: further.then(|| outdated.pool.provider_ids().cloned().collect()),
        description: definition.description.clone(),
        config: Value::Object(config),
        owner: definition.owner.clone(),
        email_on_error: definition.email_on_error,
    }
}

/// Writes the launch configs, and that they are up to date. Returns `false` if the pool was changed
/// meanwhile.
async fn write(
    engine: &Arc<Engine>,
    outdated: OutdatedPool,
    made: Option<ValidatedPool>,
) -> Result<bool, StoreError> {
    let now = engine.clock.now();
    let pool_id = outdated.pool.id.clone();
    let written = engine.change_alone("image_user_refresh", now, move |change| {
        let id = &outdated.pool.id;
        let current = store::pools::get(change.tx, id)?;
        let Some(mut pool) = current.filter(|pool| pool.version == outdated.pool.version) else {
            return Ok(false);
        };
        if let Some(made) = &made {
            replace(change, &mut pool, made)?;
        }
        store::image_users::replace(change.tx, id, &outdated.selected)?;
        Ok::<_, PoolError>(true)
    });
    match written.await {
        Ok(is_done) => Ok(is_done),
        Err(PoolError::Store(error)) => Err(error),
        Err(problem) => {
            tracing::error!(pool.id = %pool_id, "new images cannot be used in {pool_id}: {problem}");
            Ok(true)
        }
    }
}

fn replace(
    change: &mut Change<'_, '_>,
    pool: &mut Pool,
    made: &ValidatedPool,
) -> Result<(), PoolError> {
    let known = store::launch_configs::all(change.tx, &pool.id)?;
    let wanted = made.launch_configs().to_vec();
    let done = reconcile(&pool.id, known.clone(), wanted, change.now)?;
    if changes_nothing(&known, &done) {
        return Ok(());
    }
    let definition = pool.definition.clone();
    Ok(replace_pool(change, pool, definition, &done)?)
}

/// Tells the owner of a pool that it keeps its old images.
async fn report(
    engine: &Arc<Engine>,
    outdated: &OutdatedPool,
    problem: &PoolError,
) -> Result<(), StoreError> {
    let pool = &outdated.pool;
    let id = pool.id.clone();
    let text = problem.to_string();
    let provider_id = pool.definition.provider_id.clone();
    let images: Vec<String> = outdated
        .selected
        .iter()
        .map(|(image, _)| image.to_string())
        .collect();
    let written = engine.change("image_user_report", engine.clock.now(), move |change| {
        let details = ErrorDetails {
            kind: "provision-error",
            title: "A new image cannot be used",
            description: format!(
                "The launch configs of {id} keep the images that they have: {text}"
            ),
            extra: json!({"code": "image-refused", "images": images}),
            launch_config_id: None,
        };
        report_pool_error(change, &id, &provider_id, details)
    });
    written.await
}
