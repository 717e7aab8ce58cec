//! Caches the bids of a protocol provider, because plans ask often and must not wait.
//!
//! A launch config without an answer gets a default bid, so that its first launch does not wait
//! either.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::id::{LaunchConfigId, PoolId};
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::time::{HOUR_MS, MINUTE_MS, Timestamp};
use serde_json::{Value, json};

/// Answers older than this are not used.
const FRESH_MS: i64 = 10 * MINUTE_MS;
/// Stop asking about a launch config that no plan has needed for this long.
const WANTED_FOR_MS: i64 = HOUR_MS;
/// Launch configs beyond this limit get a default bid without asking the provider.
const MAX_REMEMBERED: usize = 10_000;

type Key = (PoolId, LaunchConfigId);

#[derive(Default)]
pub(super) struct BidCache(Mutex<BTreeMap<Key, Entry>>);

struct Entry {
    content: Value,
    wanted: Timestamp,
    answer: Option<(Timestamp, Result<Bid, String>)>,
}

impl BidCache {
    pub(super) fn bid(&self, config: &LaunchConfig, now: Timestamp) -> Result<Bid, String> {
        let mut entries = self.entries();
        let key = (config.pool_id.clone(), config.id.clone());
        if let Some(entry) = entries.get_mut(&key) {
            entry.wanted = now;
            if let Some((at, answer)) = &entry.answer
                && now.millis_since(*at) <= FRESH_MS
            {
                return answer.clone();
            }
        } else if entries.len() < MAX_REMEMBERED {
            entries.insert(key, Entry::new(config, now));
        }
        Ok(Bid::plain(String::new()))
    }

    /// The launch configs to ask about, in batches. Forgets those that no plan needs any more.
    pub(super) fn wanted(&self, now: Timestamp, batch: usize) -> Vec<Vec<(Key, Value)>> {
        let mut entries = self.entries();
        entries.retain(|_, entry| now.millis_since(entry.wanted) <= WANTED_FOR_MS);
        let wanted: Vec<_> = entries
            .iter()
            .map(|(key, entry)| (key.clone(), entry.content.clone()))
            .collect();
        wanted.chunks(batch).map(<[_]>::to_vec).collect()
    }

    pub(super) fn answered(&self, key: &Key, answer: Result<Bid, String>, now: Timestamp) {
        if let Some(entry) = self.entries().get_mut(key) {
            entry.answer = Some((now, answer));
        }
    }

    fn entries(&self) -> MutexGuard<'_, BTreeMap<Key, Entry>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(config: &LaunchConfig, now: Timestamp) -> Self {
        let content = json!({
            "workerPoolId": config.pool_id.as_str(),
            "launchConfigId": config.id.as_str(),
            "launchConfig": config.configuration,
        });
        Self {
            content,
            wanted: now,
            answer: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;
    use crate::tests::suite::launch_config;
    use crate::tests::values::{now, pool, worker};
    use domain::worker::WorkerState;

    fn launch_configs(numbers: std::ops::Range<usize>) -> Vec<LaunchConfig> {
        let pool = pool(&worker(WorkerState::Running), &json!({}));
        let template = launch_config(&pool, 0, serde_json::Map::new());
        let numbered = |number: usize| LaunchConfig {
            id: format!("lc-{number:06}").parse().unwrap(),
            ..template.clone()
        };
        numbers.map(numbered).collect()
    }

    fn bids(book: &BidCache, launch_configs: &[LaunchConfig], now: Timestamp) -> Vec<Option<f64>> {
        let price = |config| book.bid(config, now).unwrap().price;
        launch_configs.iter().map(price).collect()
    }

    #[test]
    fn launch_configs_beyond_the_limit_get_default_bids() {
        for count in sizes_around("cloud::protocol::bids::MAX_REMEMBERED", MAX_REMEMBERED) {
            let (book, all) = (BidCache::default(), launch_configs(0..count));
            assert_eq!(bids(&book, &all, now()), vec![None; count]);
            let batches = book.wanted(now(), 100);
            let n_asked = count.min(MAX_REMEMBERED);
            assert_eq!(batches.len(), n_asked.div_ceil(100));
            for (key, _) in batches.iter().flatten() {
                let bid = Bid {
                    price: Some(1.0),
                    ..Bid::plain(String::new())
                };
                book.answered(key, Ok(bid), now());
            }
            let mut expected = vec![Some(1.0); n_asked];
            expected.resize(count, None);
            assert_eq!(bids(&book, &all, now()), expected);
        }
    }

    #[test]
    fn launch_configs_that_no_plan_needs_make_room_for_others() {
        let (book, later) = (BidCache::default(), now().plus_millis(WANTED_FOR_MS + 1));
        bids(&book, &launch_configs(0..MAX_REMEMBERED), now());
        let late = launch_configs(MAX_REMEMBERED..MAX_REMEMBERED + 1);
        bids(&book, &late, later);
        assert_eq!(book.wanted(later, 100).len(), 0);
        bids(&book, &late, later);
        let wanted = book.wanted(later, 100).concat();
        assert_eq!(wanted.len(), 1);
        assert_eq!(wanted[0].0.1, late[0].id);
    }
}
