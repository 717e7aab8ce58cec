//! Plans of worker configurations against the pools that are stored: what stands in the way, and what would differ.

use std::collections::BTreeMap;

use domain::configuration::{PoolChange, PoolDifference, StoredPool, WantedPool, adoption};
use domain::id::{ConfigurationId, PoolId};
use domain::pool::Pool;
use domain::time::Timestamp;
use store::{StoreError, Tx};

use super::ConfigurationError;
use super::judge::{Judged, JudgedPool};
use crate::Engine;

/// What a plan wants to be stored.
pub(super) struct Wanted {
    pub(super) id: ConfigurationId,
    pub(super) pools: Vec<PoolId>,
    pub(super) judged: Judged,
    /// Whether pools made by hand may be taken over.
    pub(super) adopts: bool,
}

impl Wanted {
    /// A pool made by hand is shown only to callers who asked to adopt it.
    fn may_compare(&self, pool: &Pool) -> bool {
        match &pool.worker_configuration_id {
            None => self.adopts,
            Some(owner) => *owner == self.id,
        }
    }
}

/// What was found in the way of it.
struct Found {
    conflicts: Vec<String>,
    /// Pools that the last version of the configuration did not have, that are stored, and that the caller may see.
    pools: Vec<(JudgedPool, StoredPool)>,
}

/// Compares the pools that a plan takes for new ones with what is stored under their names, and returns what stands in the
/// way of writing it, as far as can be said now.
pub(super) async fn compare(
    engine: &Engine,
    now: Timestamp,
    wanted: Wanted,
    differences: &mut Vec<PoolDifference>,
) -> Result<Vec<String>, ConfigurationError> {
    let id = wanted.id.clone();
    let created = differences.iter();
    let created = created.filter(|pool| pool.change == PoolChange::Created);
    let created: Vec<PoolId> = created
        .map(|pool| pool.worker_type.pool_id().clone())
        .collect();
    let read = engine.store.scan("configuration_conflicts", move |tx| {
        let mut found = Found {
            conflicts: Vec::new(),
            pools: Vec::new(),
        };
        for pool_id in &wanted.pools {
            found
                .conflicts
                .extend(owner_conflict(tx, pool_id, &wanted)?);
        }
        for judged in &wanted.judged.pools {
            let pool_id = judged.compiled.pool_id();
            let launch_configs = store::launch_configs::all(tx, pool_id)?;
            let clash = judged.reconcile(launch_configs.clone(), now).err();
            found.conflicts.extend(clash.map(|clash| clash.to_string()));
            if created.contains(pool_id)
                && let Some(pool) = store::pools::get(tx, pool_id)?
                && wanted.may_compare(&pool)
            {
                let stored = StoredPool {
                    pool,
                    launch_configs,
                };
                found.pools.push((judged.clone(), stored));
            }
        }
        Ok::<_, StoreError>(found)
    });
    let Found { conflicts, pools } = read.await?;
    let compared = engine.compilations.in_turn(move || {
        let pools = pools
            .iter()
            .map(|(judged, stored)| (stored.pool.id.clone(), compared(&id, judged, stored)));
        pools.collect::<BTreeMap<_, _>>()
    });
    let mut compared = compared.await?;
    for difference in differences.iter_mut() {
        if let Some(compared) = compared.remove(difference.worker_type.pool_id()) {
            *difference = compared;
        }
    }
    differences.retain(|pool| pool.change != PoolChange::Changed || !pool.is_empty());
    Ok(conflicts)
}

fn owner_conflict(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    wanted: &Wanted,
) -> Result<Option<String>, StoreError> {
    let owner = store::worker_types::get(tx, pool_id)?.map(|owner| owner.configuration_id);
    Ok(match owner {
        Some(owner) if owner != wanted.id => Some(format!(
            "{pool_id} belongs to the worker configuration {owner}"
        )),
        Some(_) => None,
        None if wanted.adopts => None,
        None => {
            let pool = store::pools::get(tx, pool_id)?;
            let by_hand = pool.is_some_and(|pool| !pool.definition.provider_id.is_null());
            by_hand.then(|| {
                format!("there is a worker pool {pool_id} that was made by hand (see adoptPools)")
            })
        }
    })
}

fn compared(id: &ConfigurationId, judged: &JudgedPool, stored: &StoredPool) -> PoolDifference {
    let wanted = WantedPool {
        compiled: &judged.compiled,
        definition: &judged.definition,
        launch_configs: &judged.launch_configs,
    };
    let mut difference = adoption(stored, wanted);
    if stored.pool.worker_configuration_id.as_ref() == Some(id) {
        // Its last version is refused today, so that there was nothing else to compare with.
        difference.change = PoolChange::Changed;
    }
    difference
}
