//! Compares the plan of a worker configuration with the stored pools, and finds conflicts.

use std::collections::BTreeMap;

use domain::configuration::{PoolChange, PoolDifference, StoredPool, WantedPool, adoption};
use domain::id::{ConfigurationId, PoolId};
use domain::pool::Pool;
use domain::time::Timestamp;
use store::{StoreError, Tx};

use super::ConfigurationError;
use super::compilation_cache::Purpose;
use super::validate_pools::{DesiredPool, DesiredPools};
use crate::Engine;

/// The planned pools of a configuration.
pub(super) struct ConflictCheck {
    pub(super) id: ConfigurationId,
    pub(super) pools: Vec<PoolId>,
    pub(super) judged: DesiredPools,
    /// Whether pools made by hand may be adopted.
    pub(super) adopts: bool,
}

impl ConflictCheck {
    /// A pool made by hand is shown only to callers who want to adopt it.
    fn may_compare(&self, pool: &Pool) -> bool {
        match &pool.worker_configuration_id {
            None => self.adopts,
            Some(owner) => *owner == self.id,
        }
    }
}

/// Compares the new pools of a plan with stored pools of the same names, and returns the conflicts
/// that would prevent writing the plan now.
pub(super) async fn find_conflicts(
    engine: &Engine,
    now: Timestamp,
    wanted: ConflictCheck,
    differences: &mut Vec<PoolDifference>,
) -> Result<Vec<String>, ConfigurationError> {
    let id = wanted.id.clone();
    let created = differences.iter();
    let created = created.filter(|pool| pool.change == PoolChange::Created);
    let created: Vec<PoolId> = created
        .map(|pool| pool.worker_type.pool_id().clone())
        .collect();
    let read = engine.store.scan("configuration_conflicts", move |tx| {
        let (mut conflicts, mut pools) = (Vec::new(), Vec::new());
        for pool_id in &wanted.pools {
            conflicts.extend(owner_conflict(tx, pool_id, &wanted)?);
        }
        for judged in &wanted.judged.pools {
            let pool_id = judged.compiled.pool_id();
            let launch_configs = store::launch_configs::all(tx, pool_id)?;
            let clash = judged.reconcile(launch_configs.clone(), now).err();
            conflicts.extend(clash.map(|clash| clash.to_string()));
            if created.contains(pool_id)
                && let Some(pool) = store::pools::get(tx, pool_id)?
                && wanted.may_compare(&pool)
            {
                let stored = StoredPool {
                    pool,
                    launch_configs,
                };
                pools.push((judged.clone(), stored));
            }
        }
        Ok::<_, StoreError>((conflicts, pools))
    });
    let (conflicts, pools) = read.await?;
    let compared = engine.compilations.run_limited(Purpose::Question, move || {
        let pools = pools
            .iter()
            .map(|(judged, stored)| (stored.pool.id.clone(), compare_pool(&id, judged, stored)));
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
    wanted: &ConflictCheck,
) -> store::Result<Option<String>> {
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

fn compare_pool(id: &ConfigurationId, judged: &DesiredPool, stored: &StoredPool) -> PoolDifference {
    let wanted = WantedPool {
        compiled: &judged.compiled,
        definition: &judged.definition,
        launch_configs: &judged.launch_configs,
    };
    let mut difference = adoption(stored, wanted);
    if stored.pool.worker_configuration_id.as_ref() == Some(id) {
        // The last version does not compile today, so it could not be compared.
        difference.change = PoolChange::Changed;
    }
    difference
}
