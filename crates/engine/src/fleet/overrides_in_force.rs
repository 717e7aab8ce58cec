//! The overrides in force, and the pools that they concern.

use std::collections::BTreeMap;

use domain::id::{ConfigurationId, PoolId};
use domain::overrides::{Override, Target};
use domain::pool::Pool;
use domain::time::Timestamp;
use store::Tx;

/// The overrides in force, and the worker configurations of some pools.
pub(crate) struct OverridesInForce {
    overrides: Vec<Override>,
    owners: BTreeMap<PoolId, ConfigurationId>,
}

impl OverridesInForce {
    /// Those at this moment, for the pools from the first to the last.
    pub(crate) fn read(
        tx: &mut Tx<'_>,
        now: Timestamp,
        first: &PoolId,
        last: &PoolId,
    ) -> store::Result<Self> {
        let overrides = store::overrides::list_in_force(tx, now)?;
        let of_configuration = |given: &Override| matches!(given.target, Target::Configuration(_));
        let owners = if overrides.iter().any(of_configuration) {
            store::worker_types::owners_between(tx, first, last)?
        } else {
            Vec::new()
        };
        Ok(Self {
            overrides,
            owners: owners.into_iter().collect(),
        })
    }

    /// Those that concern this pool.
    pub(crate) fn of_pool(&self, pool: &Pool) -> Vec<Override> {
        let owner = self.owners.get(&pool.id);
        let own = self.overrides.iter();
        let own = own.filter(|given| given.concerns(pool, owner));
        own.cloned().collect()
    }
}
