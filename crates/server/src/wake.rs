//! Hints within this process that something is worth looking at now instead of at the next tick.
//!
//! They carry no facts: whoever is woken reads what is true. A lost hint only delays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, PoisonError};

use domain::id::{PoolId, ProviderId};
use tokio::sync::Notify;

/// One bell for each task that can be woken.
#[derive(Default)]
pub struct Wake {
    /// Something was written that others may want to hear of.
    pub publish: Arc<Notify>,
    /// Some provider was asked for a price that it does not know yet.
    pub refresh: Arc<Notify>,
    /// Some pool may need workers, or fewer.
    pub provision: Arc<Notify>,
    /// Some worker of the provider was told to go.
    ending: Mutex<BTreeMap<ProviderId, Arc<Notify>>>,
    /// Which pools rang `provision`.
    pools: Mutex<BTreeSet<PoolId>>,
}

impl Wake {
    /// The demand, the config or the workers of this pool have changed.
    pub fn pool(&self, id: &PoolId) {
        let mut pools = self.pools.lock().unwrap_or_else(PoisonError::into_inner);
        if !pools.contains(id) {
            pools.insert(id.clone());
        }
        drop(pools);
        self.provision.notify_one();
    }

    /// The bell of those who end the machines of this provider.
    pub fn ending(&self, id: &ProviderId) -> Arc<Notify> {
        let mut bells = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(bells.entry(id.clone()).or_default())
    }

    /// Those that rang since the last time this was asked.
    pub fn take_pools(&self) -> BTreeSet<PoolId> {
        std::mem::take(&mut *self.pools.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pool_that_rings_twice_is_looked_at_once() {
        let wake = Wake::default();
        let pool: PoolId = "a/b".parse().unwrap();
        wake.pool(&pool);
        wake.pool(&pool);
        assert_eq!(wake.take_pools().into_iter().collect::<Vec<_>>(), [pool]);
        assert!(wake.take_pools().is_empty());
    }
}
