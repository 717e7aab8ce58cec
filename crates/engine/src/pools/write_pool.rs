//! Writes pools with their launch configs and events, for people and for worker configurations.

use std::collections::BTreeMap;

use domain::event::{EventBody, LaunchConfigChange};
use domain::id::{ImageName, ProviderId};
use domain::image_reference::images_of;
use domain::launch_config::{LaunchConfig, Reconciliation, reconcile};
use domain::pool::{Pool, PoolDefinition};

use store::Tx;

use super::PoolError;
use crate::change::Change;

/// No selection has this number.
const NOT_APPLIED: i64 = -1;

/// Whether no launch config would change.
pub(crate) fn changes_nothing(known: &[LaunchConfig], done: &Reconciliation) -> bool {
    done.inserts.is_empty()
        && done.retirements.is_empty()
        && done.rewrites.iter().all(|rewrite| {
            known
                .iter()
                .any(|row| row.id == rewrite.id && row.is_same_for_clients(rewrite))
        })
}

pub(crate) fn insert_pool(
    change: &mut Change<'_, '_>,
    pool: &Pool,
    done: &Reconciliation,
) -> store::Result<()> {
    store::pools::insert(change.tx, pool)?;
    let created = EventBody::PoolCreated {
        pool_id: pool.id.clone(),
        provider_id: pool.definition.provider_id.clone(),
    };
    write_launch_configs(change, pool, created, done)
}

pub(crate) fn replace_pool(
    change: &mut Change<'_, '_>,
    pool: &mut Pool,
    definition: PoolDefinition,
    done: &Reconciliation,
) -> store::Result<()> {
    let previous_provider_id = pool.definition.provider_id.clone();
    pool.redefine(definition, change.now);
    pool.version = store::pools::update(change.tx, pool)?;
    let updated = EventBody::PoolUpdated {
        pool_id: pool.id.clone(),
        provider_id: pool.definition.provider_id.clone(),
        previous_provider_id,
    };
    write_launch_configs(change, pool, updated, done)
}

/// Gives a pool the null provider and no launch configs.
pub(crate) fn empty_pool(change: &mut Change<'_, '_>, pool: &mut Pool) -> Result<(), PoolError> {
    let known = store::launch_configs::all(change.tx, &pool.id)?;
    let done = reconcile(&pool.id, known, Vec::new(), change.now)?;
    let definition = PoolDefinition {
        provider_id: ProviderId::null(),
        further_provider_ids: Vec::new(),
        ..pool.definition.clone()
    };
    Ok(replace_pool(change, pool, definition, &done)?)
}

/// Announces the pool and its launch configs, and writes these.
fn write_launch_configs(
    change: &mut Change<'_, '_>,
    pool: &Pool,
    event: EventBody,
    done: &Reconciliation,
) -> store::Result<()> {
    change.announce(std::iter::once(event).chain(launch_config_events(pool, done)))?;
    change.wake_pool(&pool.id);
    let (tx, now) = (&mut *change.tx, change.now);
    for config in &done.inserts {
        store::launch_configs::insert(tx, config)?;
    }
    for config in &done.rewrites {
        store::launch_configs::update(tx, config)?;
    }
    for config in &done.retirements {
        store::launch_configs::archive(tx, config, now)?;
    }
    write_image_users(tx, pool, done)
}

/// Notes which images the pool uses. Their selection may have changed since the launch configs were
/// made, so it is compared once more.
fn write_image_users(tx: &mut Tx<'_>, pool: &Pool, done: &Reconciliation) -> store::Result<()> {
    let of = |configs: &[LaunchConfig]| -> Vec<ImageName> {
        let configs = configs.iter();
        configs
            .flat_map(|config| images_of(&config.configuration))
            .collect()
    };
    let mut used = [of(&done.inserts), of(&done.rewrites)].concat();
    if used.is_empty() && of(&done.retirements).is_empty() {
        return Ok(());
    }
    used.sort_unstable();
    used.dedup();
    let used: Vec<(ImageName, i64)> = used.into_iter().map(|image| (image, NOT_APPLIED)).collect();
    store::image_users::replace(tx, &pool.id, &used)
}

/// Each event names the provider of its launch config. If the pool has left that provider, the
/// event names the first one, as in Taskcluster.
fn launch_config_events(pool: &Pool, done: &Reconciliation) -> Vec<EventBody> {
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
