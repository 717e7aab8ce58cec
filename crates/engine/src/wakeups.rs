//! Wakes background loops of this process before their next interval.
//!
//! A wake-up carries no data: the loop that is woken reads the store. A lost wake-up only delays
//! work.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::id::{PoolId, ProviderId};
use domain::plan::LONGEST_PAUSE_MS;
use domain::time::Timestamp;
use tokio::sync::Notify;

/// No wake-up is scheduled later than this. A later one is from before the clock was set back.
const LONGEST_DELAY_MS: i64 = 2 * LONGEST_PAUSE_MS;

/// One notification for each loop that can be woken.
#[derive(Default)]
pub struct Wakeups {
    /// The outbox may have events to publish.
    pub publish: Arc<Notify>,
    /// The refreshes of prices that plans wait for.
    refreshes: Mutex<BTreeMap<ProviderId, RefreshRequests>>,
    /// A pool may need more or fewer workers.
    pub provision: Arc<Notify>,
    /// A definition of an image changed.
    pub images: Arc<Notify>,
    /// The builds of an image changed, or a person decided about one.
    pub image_rollouts: Arc<Notify>,
    /// A worker of the provider is stopping.
    ending: Mutex<BTreeMap<ProviderId, Arc<Notify>>>,
    /// The pools to plan, and when.
    pools: Mutex<BTreeMap<PoolId, PlanTime>>,
}

/// The requests to refresh the prices of one provider.
#[derive(Default)]
struct RefreshRequests {
    wake: Arc<Notify>,
    /// The pools whose plans wait for the prices.
    pools: BTreeSet<PoolId>,
}

/// When to plan a pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum PlanTime {
    Now,
    /// Then, or as soon as the pool is woken.
    At(Timestamp),
    /// Not earlier, even if the pool is woken.
    NotBefore(Timestamp),
}

impl PlanTime {
    /// Milliseconds until then.
    fn wait_ms(self, now: Timestamp) -> i64 {
        match self {
            Self::Now => 0,
            Self::At(at) | Self::NotBefore(at) => match at.millis_since(now) {
                wait @ 0..=LONGEST_DELAY_MS => wait,
                _ => 0,
            },
        }
    }
}

impl Wakeups {
    /// The demand, the config or the workers of this pool have changed.
    pub fn wake_pool(&self, id: &PoolId) {
        self.plan_pool(id, PlanTime::Now);
    }

    /// Plans the pool at this moment, unless it is woken before.
    pub fn wake_pool_at(&self, id: &PoolId, at: Timestamp) {
        self.plan_pool(id, PlanTime::At(at));
    }

    /// A plan of this pool lacked prices of the provider: refresh them, and then plan it again.
    pub fn refresh_for(&self, provider_id: &ProviderId, pool_id: &PoolId) {
        let mut refreshes = self.refreshes();
        let requests = refreshes.entry(provider_id.clone()).or_default();
        requests.pools.insert(pool_id.clone());
        requests.wake.notify_one();
    }

    /// The notification of the loop that refreshes the prices of this provider.
    pub fn refresh(&self, id: &ProviderId) -> Arc<Notify> {
        Arc::clone(&self.refreshes().entry(id.clone()).or_default().wake)
    }

    /// Takes the pools that wait for refreshed prices of this provider.
    pub fn take_awaiting_refresh(&self, id: &ProviderId) -> BTreeSet<PoolId> {
        let mut refreshes = self.refreshes();
        let requests = refreshes.get_mut(id);
        requests.map_or_else(BTreeSet::new, |requests| {
            std::mem::take(&mut requests.pools)
        })
    }

    fn refreshes(&self) -> MutexGuard<'_, BTreeMap<ProviderId, RefreshRequests>> {
        let refreshes = self.refreshes.lock();
        refreshes.unwrap_or_else(PoisonError::into_inner)
    }

    fn plan_pool(&self, id: &PoolId, time: PlanTime) {
        let mut pools = self.pools();
        let is_known = match pools.get(id) {
            None => false,
            Some(PlanTime::NotBefore(_)) => true,
            Some(PlanTime::Now) => time != PlanTime::Now,
            Some(PlanTime::At(known)) => matches!(time, PlanTime::At(at) if *known <= at),
        };
        if !is_known {
            pools.insert(id.clone(), time);
            drop(pools);
            self.provision.notify_one();
        }
    }

    /// Plans the pool at this moment and not before, however often it is woken meanwhile.
    pub fn hold_pool(&self, id: &PoolId, until: Timestamp) {
        self.pools().insert(id.clone(), PlanTime::NotBefore(until));
    }

    /// The notification of the loop that ends the machines of this provider.
    pub fn ending(&self, id: &ProviderId) -> Arc<Notify> {
        let mut loops = self.ending.lock().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(loops.entry(id.clone()).or_default())
    }

    /// Takes the pools to plan now: at most this many, and none that is busy. The others stay.
    pub fn take_due_pools(
        &self,
        now: Timestamp,
        limit: usize,
        busy: &BTreeSet<PoolId>,
    ) -> Vec<PoolId> {
        let mut pools = self.pools();
        let due = pools
            .iter()
            .filter(|(id, time)| time.wait_ms(now) == 0 && !busy.contains(id));
        let due: Vec<PoolId> = due.map(|(id, _)| id.clone()).take(limit).collect();
        for id in &due {
            pools.remove(id);
        }
        due
    }

    /// Milliseconds until the next pool that is not busy is to be planned; `None`: no such pool.
    pub fn next_pool_ms(&self, now: Timestamp, busy: &BTreeSet<PoolId>) -> Option<i64> {
        let pools = self.pools();
        let waits = pools.iter().filter(|(id, _)| !busy.contains(id));
        waits.map(|(_, time)| time.wait_ms(now)).min()
    }

    /// Takes all pools that are to be planned now or later.
    pub fn take_pools(&self) -> BTreeSet<PoolId> {
        std::mem::take(&mut *self.pools()).into_keys().collect()
    }

    fn pools(&self) -> MutexGuard<'_, BTreeMap<PoolId, PlanTime>> {
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

    fn taken(wake: &Wakeups, now: Timestamp) -> Vec<PoolId> {
        wake.take_due_pools(now, usize::MAX, &BTreeSet::new())
    }

    fn next(wake: &Wakeups, now: Timestamp) -> Option<i64> {
        wake.next_pool_ms(now, &BTreeSet::new())
    }

    #[test]
    fn a_pool_that_is_woken_twice_is_planned_once() {
        let wake = Wakeups::default();
        wake.wake_pool(&pool("a"));
        wake.wake_pool(&pool("a"));
        wake.wake_pool_at(&pool("a"), at(500));
        assert_eq!(taken(&wake, at(0)), [pool("a")]);
        assert_eq!((taken(&wake, at(500)), next(&wake, at(0))), (vec![], None));
    }

    #[test]
    fn a_pool_is_planned_at_its_moment_or_when_it_is_woken() {
        let wake = Wakeups::default();
        wake.wake_pool_at(&pool("a"), at(500));
        wake.wake_pool_at(&pool("a"), at(300));
        wake.wake_pool_at(&pool("a"), at(900));
        wake.wake_pool_at(&pool("b"), at(400));
        assert_eq!(
            (taken(&wake, at(0)), next(&wake, at(0))),
            (vec![], Some(300))
        );
        wake.wake_pool(&pool("b"));
        assert_eq!(taken(&wake, at(0)), [pool("b")]);
        assert_eq!(taken(&wake, at(299)), []);
        assert_eq!(taken(&wake, at(300)), [pool("a")]);
    }

    #[test]
    fn a_pool_that_is_held_back_is_not_woken() {
        let wake = Wakeups::default();
        wake.hold_pool(&pool("a"), at(100));
        wake.wake_pool(&pool("a"));
        wake.wake_pool_at(&pool("a"), at(50));
        assert_eq!(
            (taken(&wake, at(99)), next(&wake, at(0))),
            (vec![], Some(100))
        );
        assert_eq!(taken(&wake, at(100)), [pool("a")]);
    }

    #[test]
    fn each_provider_has_its_own_pools_that_wait_for_its_prices() {
        let wake = Wakeups::default();
        let [one, other] = ["one", "other"].map(|id| id.parse::<ProviderId>().unwrap());
        assert_eq!(wake.take_awaiting_refresh(&one), BTreeSet::new());
        wake.refresh_for(&one, &pool("a"));
        wake.refresh_for(&one, &pool("a"));
        wake.refresh_for(&other, &pool("a"));
        wake.refresh_for(&other, &pool("b"));
        let all = BTreeSet::from([pool("a"), pool("b")]);
        assert_eq!(wake.take_awaiting_refresh(&other), all);
        assert_eq!(wake.take_awaiting_refresh(&one), [pool("a")].into());
        assert_eq!(wake.take_awaiting_refresh(&one), BTreeSet::new());
    }

    #[test]
    fn a_clock_that_was_set_back_delays_no_pool() {
        let wake = Wakeups::default();
        wake.wake_pool_at(&pool("a"), at(LONGEST_DELAY_MS));
        wake.wake_pool_at(&pool("b"), at(LONGEST_DELAY_MS + 1));
        wake.hold_pool(&pool("c"), at(3_600_000));
        assert_eq!(taken(&wake, at(0)), [pool("b"), pool("c")]);
    }

    #[test]
    fn pools_are_taken_up_to_a_limit_and_busy_ones_are_not() {
        for limit in [1, 3, 20] {
            for count in sizes_around("server::background::provision::PAGE", limit) {
                let wake = Wakeups::default();
                let all: Vec<_> = (0..count)
                    .map(|number| pool(&format!("n{number:03}")))
                    .collect();
                all.iter().for_each(|id| wake.wake_pool(id));
                let mut seen = Vec::new();
                while seen.len() < count {
                    let some = wake.take_due_pools(at(0), limit, &BTreeSet::new());
                    assert_eq!(some.len(), limit.min(count - seen.len()));
                    seen.extend(some);
                }
                assert_eq!((seen, next(&wake, at(0))), (all, None));
            }
        }
        let wake = Wakeups::default();
        wake.wake_pool(&pool("a"));
        let busy = BTreeSet::from([pool("a")]);
        assert_eq!(wake.take_due_pools(at(0), 9, &busy), []);
        assert_eq!(wake.next_pool_ms(at(0), &busy), None);
        assert_eq!(taken(&wake, at(0)), [pool("a")]);
    }
}
