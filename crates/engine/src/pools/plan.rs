//! Plans the creation or update of a pool without writing.

use domain::id::{ImageName, PoolId};
use domain::launch_config::{Reconciliation, reconcile};
use domain::time::Timestamp;
use store::Tx;

use super::{ValidatedPool, changes_nothing, refuse_compiled};

pub struct PoolPlan {
    /// A pool of this name exists.
    pub exists: bool,
    pub changes: bool,
    pub launch_configs: Reconciliation,
    /// Reasons why the request would be refused.
    pub conflicts: Vec<String>,
    /// Images that have to be created first.
    pub missing_images: Vec<ImageName>,
}

pub fn plan(
    tx: &mut Tx<'_>,
    id: &PoolId,
    validated: &ValidatedPool,
    now: Timestamp,
) -> store::Result<PoolPlan> {
    let pool = store::pools::get(tx, id)?;
    let known = store::launch_configs::all(tx, id)?;
    let refused = pool.as_ref().and_then(|pool| refuse_compiled(pool).err());
    let mut conflicts: Vec<String> = refused.iter().map(ToString::to_string).collect();
    let done = reconcile(id, known.clone(), validated.launch_configs.clone(), now);
    let same_configs = done
        .as_ref()
        .is_ok_and(|done| changes_nothing(&known, done));
    let launch_configs = done.unwrap_or_else(|problem| {
        conflicts.push(format!(
            "{problem}: give the new one another launchConfigId, or none"
        ));
        Reconciliation::default()
    });
    let same_definition = pool
        .as_ref()
        .is_some_and(|pool| pool.definition == validated.definition);
    Ok(PoolPlan {
        exists: pool.is_some(),
        changes: !(same_definition && same_configs),
        launch_configs,
        conflicts,
        missing_images: validated.missing_images.clone(),
    })
}
