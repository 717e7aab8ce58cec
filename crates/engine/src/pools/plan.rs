//! What making or updating a pool by hand would do, before it is done.

use domain::id::PoolId;
use domain::launch_config::{Reconciled, reconcile};
use domain::time::Timestamp;
use store::{StoreError, Tx};

use super::{JudgedPool, changes_nothing, refuse_compiled};

pub struct PoolPlan {
    /// There is a pool of this name.
    pub exists: bool,
    pub changes: bool,
    pub launch_configs: Reconciled,
    /// What stands in the way.
    pub conflicts: Vec<String>,
}

pub fn plan(
    tx: &mut Tx<'_>,
    id: &PoolId,
    judged: &JudgedPool,
    now: Timestamp,
) -> Result<PoolPlan, StoreError> {
    let pool = store::pools::get(tx, id)?;
    let known = store::launch_configs::all(tx, id)?;
    let refused = pool.as_ref().and_then(|pool| refuse_compiled(pool).err());
    let mut conflicts: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let done = reconcile(id, known.clone(), judged.launch_configs.clone(), now);
    let same_configs = done
        .as_ref()
        .is_ok_and(|done| changes_nothing(&known, done));
    let launch_configs = done.unwrap_or_else(|problem| {
        conflicts.push(format!(
            "{problem}: give the new one another launchConfigId, or none"
        ));
        Reconciled::default()
    });
    let same_definition = pool
        .as_ref()
        .is_some_and(|pool| pool.definition == judged.definition);
    Ok(PoolPlan {
        exists: pool.is_some(),
        changes: !(same_definition && same_configs),
        launch_configs,
        conflicts,
    })
}
