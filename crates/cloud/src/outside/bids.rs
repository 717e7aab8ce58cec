//! What the other side would give, remembered: a plan asks often and must not wait.
//!
//! A launch config that nobody has answered for yet gets a plain bid, so that the first launch does not wait either.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::id::{LaunchConfigId, PoolId};
use domain::launch_config::LaunchConfig;
use domain::plan::Bid;
use domain::time::{HOUR_MS, MINUTE_MS, Timestamp};
use serde_json::{Value, json};

use crate::BidRequest;

/// An older answer says nothing any more.
const GOOD_FOR_MS: i64 = 10 * MINUTE_MS;
/// A launch config that no plan has asked about for so long is not asked for any more.
const WANTED_FOR_MS: i64 = HOUR_MS;
/// About further launch configs nobody is asked: they get plain bids.
const MAX_REMEMBERED: usize = 10_000;

type Key = (PoolId, LaunchConfigId);

#[derive(Default)]
pub(super) struct BidBook(Mutex<BTreeMap<Key, Entry>>);

struct Entry {
    content: Value,
    wanted: Timestamp,
    answer: Option<(Timestamp, Result<Bid, String>)>,
}

impl BidBook {
    pub(super) fn bids(&self, ask: &BidRequest<'_>) -> Vec<Result<Bid, String>> {
        let mut entries = self.entries();
        let bid = |config: &LaunchConfig| {
            let key = (config.pool_id.clone(), config.id.clone());
            let answer = match entries.get_mut(&key) {
                Some(entry) => {
                    entry.wanted = ask.now;
                    entry.answer.clone()
                }
                None => {
                    if entries.len() < MAX_REMEMBERED {
                        entries.insert(key, Entry::new(config, ask.now));
                    }
                    None
                }
            };
            let is_good = |(at, _): &(Timestamp, _)| ask.now.millis_since(*at) <= GOOD_FOR_MS;
            match answer.filter(is_good) {
                Some((_, answer)) => answer,
                None => Ok(Bid::plain(String::new())),
            }
        };
        ask.launch_configs.iter().map(bid).collect()
    }

    /// What to ask about, at most so many at a time; forgets what nobody wants any more.
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
