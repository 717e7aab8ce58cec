//! Hints within this process that something is worth looking at now instead of at the next tick.
//!
//! They carry no facts: whoever is woken reads what is true. A lost hint only delays.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::{PoolId, ProviderId};
use domain::plan::LONGEST_PAUSE_MS;
use domain::time::Timestamp;
use tokio::sync::Notify;

/// Nothing asks for a later look. A moment further away is from before the clock was set back.
const LONGEST_DELAY_MS: i64 = 2 * LONGEST_PAUSE_MS;

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
    /// The pools to look at.
    pools: Mutex<BTreeMap<PoolId, Look>>,
}

/// When a pool is to be looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    Now,
    /// Or as soon as it rings.
    At(Timestamp),
    /// Not earlier, even if it rings.
    Held(Timestamp),
}

impl Look {
    /// For how long to wait.
    fn wait_ms(self, now: Timestamp) -> i64 {
        match self {
            Self::Now => 0,
            Self::At(at) | Self::Held(at) => match at.millis_since(now) {
                wait @ 0..=LONGEST_DELAY_MS => wait,
                _ => 0,
            },
        }
    }
}

impl Wake {
    /// The demand, the config or the workers of this pool have changed.
    pub fn pool(&self, id: &PoolId) {
        let mut pools = self.pools();
        match pools.get_mut(id) {
            Some(Look::Held(_)) => return,
            Some(look) => *look = Look::Now,
            None => {
                pools.insert(id.clone(), Look::Now);
            }
        }
        drop(pools);
        self.provision.notify_one();
    }

    /// The pool is worth a look at this moment, if nothing happens to it before.
    pub fn pool_at(&self, id: &PoolId, at: Timestamp) {
        let mut pools = self.pools();
        match pools.get_mut(id) {
            Some(Look::Now | Look::Held(_)) => return,
            Some(Look::At(earlier)) if *earlier <= at => return,
            Some(look @ Look::At(_)) => *look = Look::At(at),
            None => {
                pools.insert(id.clone(), Look::At(at));
            }
        }
        drop(pools);
        self.provision.notify_one();
    }

    /// The pool rang too early: it is looked at then, however often it rings meanwhile.
    pub fn hold(&self, id: &PoolId, until: Timestamp) {
        self.pools().insert(id.clone(), Look::Held(until));
    }

    /// The bell of those who end the machines of this provider.
    pub fn ending(&self, id: &ProviderId) -> Arc<Notify> {
        let mut bells = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(bells.entry(id.clone()).or_default())
    }

    /// The pools that are to be looked at now: at most this many, and none of these. The others
    /// stay.
    pub fn due_pools(&self, now: Timestamp, limit: usize, but: &BTreeSet<PoolId>) -> Vec<PoolId> {
        let mut pools = self.pools();
        let due = pools
            .iter()
            .filter(|(id, look)| look.wait_ms(now) == 0 && !but.contains(id));
        let due: Vec<PoolId> = due.map(|(id, _)| id.clone()).take(limit).collect();
        for id in &due {
            pools.remove(id);
        }
        due
    }

    /// How long it takes until a pool is to be looked at that is none of these; `None`: none is.
    pub fn next_pool_ms(&self, now: Timestamp, but: &BTreeSet<PoolId>) -> Option<i64> {
        let pools = self.pools();
        let waits = pools.iter().filter(|(id, _)| !but.contains(id));
        waits.map(|(_, look)| look.wait_ms(now)).min()
    }

    /// All pools that are to be looked at now or later; they are forgotten.
    pub fn take_pools(&self) -> BTreeSet<PoolId> {
        std::mem::take(&mut *self.pools()).into_keys().collect()
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<PoolId, Look>> {
        self.pools.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::*;

    fn pool(name: &str) -> PoolId {
        format!("p/{name}").parse().unwrap()
    }

    fn at(millis: i64) -> Timestamp {
        Timestamp::from_millis(1_000_000_000 + millis)
    }

    fn taken(wake: &Wake, now: Timestamp) -> Vec<PoolId> {
        wake.due_pools(now, usize::MAX, &BTreeSet::new())
    }

    fn next(wake: &Wake, now: Timestamp) -> Option<i64> {
        wake.next_pool_ms(now, &BTreeSet::new())
    }

    #[test]
    fn a_pool_that_rings_twice_is_looked_at_once() {
        let wake = Wake::default();
        wake.pool(&pool("a"));
        wake.pool(&pool("a"));
        wake.pool_at(&pool("a"), at(500));
        assert_eq!(taken(&wake, at(0)), [pool("a")]);
        assert_eq!((taken(&wake, at(500)), next(&wake, at(0))), (vec![], None));
    }

    #[test]
    fn a_pool_is_looked_at_at_its_moment_or_when_it_rings() {
        let wake = Wake::default();
        wake.pool_at(&pool("a"), at(500));
        wake.pool_at(&pool("a"), at(300));
        wake.pool_at(&pool("a"), at(900));
        wake.pool_at(&pool("b"), at(400));
        assert_eq!(
            (taken(&wake, at(0)), next(&wake, at(0))),
            (vec![], Some(300))
        );
        wake.pool(&pool("b"));
        assert_eq!(taken(&wake, at(0)), [pool("b")]);
        assert_eq!(taken(&wake, at(299)), []);
        assert_eq!(taken(&wake, at(300)), [pool("a")]);
    }

    #[test]
    fn a_pool_that_is_held_back_does_not_ring() {
        let wake = Wake::default();
        wake.hold(&pool("a"), at(100));
        wake.pool(&pool("a"));
        wake.pool_at(&pool("a"), at(50));
        assert_eq!(
            (taken(&wake, at(99)), next(&wake, at(0))),
            (vec![], Some(100))
        );
        assert_eq!(taken(&wake, at(100)), [pool("a")]);
    }

    #[test]
    fn a_clock_that_was_set_back_holds_nobody_up() {
        let wake = Wake::default();
        wake.pool_at(&pool("a"), at(LONGEST_DELAY_MS));
        wake.pool_at(&pool("b"), at(LONGEST_DELAY_MS + 1));
        wake.hold(&pool("c"), at(3_600_000));
        assert_eq!(taken(&wake, at(0)), [pool("b"), pool("c")]);
    }

    #[test]
    fn pools_are_taken_up_to_a_limit_and_not_those_that_are_being_looked_at() {
        for limit in [1, 3, 20] {
            for count in sizes_around("server::background::provision::PAGE", limit) {
                let wake = Wake::default();
                let all: Vec<_> = (0..count)
                    .map(|number| pool(&format!("n{number:03}")))
                    .collect();
                all.iter().for_each(|id| wake.pool(id));
                let mut seen = Vec::new();
                while seen.len() < count {
                    let some = wake.due_pools(at(0), limit, &BTreeSet::new());
                    assert_eq!(some.len(), limit.min(count - seen.len()));
                    seen.extend(some);
                }
                assert_eq!((seen, next(&wake, at(0))), (all, None));
            }
        }
        let wake = Wake::default();
        wake.pool(&pool("a"));
        let busy = BTreeSet::from([pool("a")]);
        assert_eq!(wake.due_pools(at(0), 9, &busy), []);
        assert_eq!(wake.next_pool_ms(at(0), &busy), None);
        assert_eq!(taken(&wake, at(0)), [pool("a")]);
    }
}
