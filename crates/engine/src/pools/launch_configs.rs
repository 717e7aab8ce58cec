//! Writes the launch configs of a changed pool, and makes their events.

use std::collections::BTreeMap;

use domain::event::{EventBody, LaunchConfigChange};
use domain::launch_config::{LaunchConfig, Reconciliation};
use domain::pool::Pool;
use domain::time::Timestamp;
use store::{StoreError, Tx};

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

pub(crate) fn write_launch_configs(
    tx: &mut Tx<'_>,
    done: &Reconciliation,
    now: Timestamp,
) -> Result<(), StoreError> {
    for config in &done.inserts {
        if !store::launch_configs::insert(tx, config)? {
            return Err(tx.lost_race());
        }
    }
    for config in &done.rewrites {
        store::launch_configs::update(tx, config)?;
    }
    for config in &done.retirements {
        store::launch_configs::archive(tx, config, now)?;
    }
    Ok(())
}

/// Each event names the provider of its launch config. If the pool has left that provider, the
/// event names the first one, as in Taskcluster.
pub(crate) fn launch_config_events(pool: &Pool, done: &Reconciliation) -> Vec<EventBody> {
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
