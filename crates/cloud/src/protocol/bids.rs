//! Caches the bids of a protocol provider, because plans ask often and must not wait.
//!
//! A launch config waits for the first answer of its provider: without a bid there is no launch. A
//! provider that fails to answer keeps its last bids until they are stale. A provider that bids
//! for a quantity is asked again when the need has grown, and plans wait a little for its answer.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::launch_config::LaunchConfig;
use domain::plan::{Bid, BidRequest, Bids};
use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use serde_json::{Value, json};

/// Answers older than this are not used.
const FRESH_MS: i64 = 10 * MINUTE_MS;
/// Ask again about a launch config whose answer is older than this.
const ASK_AGAIN_MS: i64 = 4 * MINUTE_MS;
/// Do not ask again before this time has passed, if bids are missing after the last answers.
const RETRY_MS: i64 = MINUTE_MS;
/// Ask again about a bid this long before it expires, so that the next one is there in time.
const AHEAD_MS: i64 = 15 * SECOND_MS;
/// Do not ask again because needs have grown before this time has passed.
const GROWN_RETRY_MS: i64 = 10 * SECOND_MS;
/// Plans wait this long for bids for a need that has grown; then the last bids count again.
const AWAITED_FOR_MS: i64 = 15 * SECOND_MS;
/// Stop asking about a launch config that no plan has needed for this long.
const WANTED_FOR_MS: i64 = HOUR_MS;
/// Launch configs beyond this limit get a default bid without asking the provider.
const MAX_REMEMBERED: usize = 10_000;

pub(super) type Key = (PoolId, LaunchConfigId);

#[derive(Default)]
pub(super) struct BidCache(Mutex<CacheState>);

#[derive(Default)]
struct CacheState {
    entries: BTreeMap<Key, Entry>,
    /// A plan needs a launch config for the first time.
    has_new: bool,
    /// A plan needs a bid that is missing or expires soon.
    lacks_some: bool,
    /// The need of a plan is larger than the one of the last request.
    has_grown: bool,
    last_asked: Option<Timestamp>,
}

struct Entry {
    content: Value,
    wanted: Timestamp,
    answer: Option<(Timestamp, Bids)>,
    /// The last need; `None`: the provider does not bid for a quantity.
    need: Option<BidRequest>,
    /// The units of the last request.
    asked_units: u64,
    /// The same, of the last request that was answered.
    answered_units: u64,
    /// Since when plans wait for bids for the present need.
    awaited: Option<Timestamp>,
    /// Why there is no valid answer to the last request.
    failure: Option<String>,
}

impl BidCache {
    /// `request`: the present need, if the provider bids for a quantity.
    pub(super) fn bids(
        &self,
        provider_id: &ProviderId,
        config: &LaunchConfig,
        request: Option<&BidRequest>,
        now: Timestamp,
    ) -> Bids {
        let mut state = self.state();
        let asked_at = state.last_asked;
        let key = (config.pool_id.clone(), config.id.clone());
        let Some(entry) = state.entries.get_mut(&key) else {
            if state.entries.len() >= MAX_REMEMBERED {
                return Ok(vec![Bid::plain(String::new())]);
            }
            state.entries.insert(key, Entry::new(config, request, now));
            state.has_new = true;
            return Err(awaited(provider_id));
        };
        entry.wanted = now;
        let may_ask = !is_within(GROWN_RETRY_MS, asked_at, now);
        let has_grown = entry.note(request, may_ask, now);
        if entry.waits(now) {
            let units = entry.need.map_or(0, |need| need.units);
            state.has_grown |= has_grown;
            return Err(format!(
                "its bids for {units} units are not known yet, and {provider_id} is asked for them"
            ));
        }
        let bid = match (entry.usable_answer(now), &entry.failure) {
            (Some(answer), _) => answer.clone(),
            (None, Some(failure)) => Err(failure.clone()),
            (None, None) => Err(awaited(provider_id)),
        };
        let lacks_some = entry.is_lacking(now);
        state.lacks_some |= lacks_some;
        state.has_grown |= has_grown;
        bid
    }

    /// Whether to ask soon: a plan needs bids that are missing.
    pub(super) fn lacks_some(&self, now: Timestamp) -> bool {
        let state = self.state();
        let asked_within = |ms| is_within(ms, state.last_asked, now);
        state.has_new
            || state.lacks_some && !asked_within(RETRY_MS)
            || state.has_grown && !asked_within(GROWN_RETRY_MS)
    }

    /// The launch configs to ask about now, in batches. Forgets those that no plan needs any more.
    pub(super) fn wanted(&self, now: Timestamp, batch: usize) -> Vec<Vec<(Key, Value)>> {
        let mut state = self.state();
        state.has_new = false;
        state.lacks_some = false;
        state.has_grown = false;
        state.last_asked = Some(now);
        let entries = &mut state.entries;
        entries.retain(|_, entry| now.millis_since(entry.wanted) <= WANTED_FOR_MS);
        let wanted: Vec<_> = entries
            .iter_mut()
            .filter(|(_, entry)| entry.is_due(now))
            .map(|(key, entry)| (key.clone(), entry.question()))
            .collect();
        wanted.chunks(batch).map(<[_]>::to_vec).collect()
    }

    /// A valid answer: bids, or why there are none.
    pub(super) fn answered(&self, key: &Key, answer: Bids, now: Timestamp) {
        if let Some(entry) = self.state().entries.get_mut(key) {
            entry.answer = Some((now, answer));
            entry.answered_units = entry.asked_units;
            entry.failure = None;
            entry.awaited = None;
        }
    }

    /// No valid answer came. The last one stays until it is stale.
    pub(super) fn failed(&self, key: &Key, why: String) {
        if let Some(entry) = self.state().entries.get_mut(key) {
            entry.failure = Some(why);
            entry.awaited = None;
        }
    }

    fn state(&self) -> MutexGuard<'_, CacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entry {
    fn new(config: &LaunchConfig, request: Option<&BidRequest>, now: Timestamp) -> Self {
        let content = json!({
            "workerPoolId": config.pool_id.as_str(),
            "launchConfigId": config.id.as_str(),
            "launchConfig": config.configuration,
        });
        Self {
            content,
            wanted: now,
            answer: None,
            need: request.copied(),
            asked_units: 0,
            answered_units: 0,
            awaited: None,
            failure: None,
        }
    }

    /// Notes the present need, and whether plans wait for bids for it. Returns whether it is larger
    /// than that of the last request.
    fn note(&mut self, request: Option<&BidRequest>, may_ask: bool, now: Timestamp) -> bool {
        if request.is_some() {
            self.need = request.copied();
        }
        let has_grown = self.has_grown();
        if self
            .need
            .is_none_or(|need| need.units <= self.answered_units)
        {
            self.awaited = None;
        } else if has_grown && may_ask && self.awaited.is_none() {
            self.awaited = Some(now);
        }
        has_grown
    }

    fn has_grown(&self) -> bool {
        self.need.is_some_and(|need| need.units > self.asked_units)
    }

    /// Whether plans wait for bids for the present need.
    fn waits(&self, now: Timestamp) -> bool {
        self.answer.is_some() && is_within(AWAITED_FOR_MS, self.awaited, now)
    }

    /// The part of a request about this launch config.
    fn question(&mut self) -> Value {
        let mut question = self.content.clone();
        if let Some(need) = self.need {
            self.asked_units = need.units;
            question["need"] = json!({"units": need.units, "by": need.by.to_string()});
        }
        question
    }

    /// After the clock was set back a little, the answer stays in use until there is a new one.
    fn usable_answer(&self, now: Timestamp) -> Option<&Bids> {
        let (at, answer) = self.answer.as_ref()?;
        (now.millis_since(*at).abs() <= FRESH_MS).then_some(answer)
    }

    /// Whether to ask now, if there is a request for bids.
    fn is_due(&self, now: Timestamp) -> bool {
        let is_old = |at: Timestamp| now.millis_since(at) >= ASK_AGAIN_MS;
        self.is_lacking(now)
            || self.has_grown()
            || self.answer.as_ref().is_some_and(|(at, _)| is_old(*at))
    }

    /// Whether this is a reason for a request: no answer is valid now and for a little longer.
    fn is_lacking(&self, now: Timestamp) -> bool {
        let expires_soon = |bids: &Vec<Bid>| {
            let soon = now.plus_millis(AHEAD_MS);
            let mut ends = bids.iter().filter_map(|bid| bid.expires);
            ends.any(|expires| expires <= soon)
        };
        self.failure.is_some()
            || self.usable_answer(now).is_none()
            || self.answer.as_ref().is_some_and(|(at, answer)| {
                // An answer of the future: the clock was set back.
                *at > now || answer.as_ref().is_ok_and(expires_soon)
            })
    }
}

/// Whether this moment, if there is one, is less than this time ago.
fn is_within(ms: i64, at: Option<Timestamp>, now: Timestamp) -> bool {
    at.is_some_and(|at| (0..ms).contains(&now.millis_since(at)))
}

fn awaited(provider_id: &ProviderId) -> String {
    format!("its bid is not known yet, and {provider_id} is asked for it")
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

    fn priced(price: f64) -> Bid {
        Bid {
            price: Some(price),
            ..Bid::plain(String::new())
        }
    }

    fn bid(book: &BidCache, config: &LaunchConfig, at: Timestamp) -> Result<Option<f64>, String> {
        let bid = book.bids(&"racks".parse().unwrap(), config, None, at);
        bid.map(|bids| bids[0].price)
    }

    fn bids(
        book: &BidCache,
        launch_configs: &[LaunchConfig],
        at: Timestamp,
    ) -> Vec<Result<Option<f64>, String>> {
        launch_configs
            .iter()
            .map(|config| bid(book, config, at))
            .collect()
    }

    const AWAITED: &str = "its bid is not known yet, and racks is asked for it";

    #[test]
    fn launch_configs_beyond_the_limit_get_default_bids() {
        for count in sizes_around("cloud::protocol::bids::MAX_REMEMBERED", MAX_REMEMBERED) {
            let (book, all) = (BidCache::default(), launch_configs(0..count));
            let n_asked = count.min(MAX_REMEMBERED);
            let mut expected = vec![Err(AWAITED.to_owned()); n_asked];
            expected.resize(count, Ok(None));
            assert_eq!(bids(&book, &all, now()), expected);
            let batches = book.wanted(now(), 100);
            assert_eq!(batches.len(), n_asked.div_ceil(100));
            for (key, _) in batches.iter().flatten() {
                book.answered(key, Ok(vec![priced(1.0)]), now());
            }
            let mut expected = vec![Ok(Some(1.0)); n_asked];
            expected.resize(count, Ok(None));
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

    /// One launch config, and the keys to ask about at this time.
    struct One(BidCache, LaunchConfig);

    impl One {
        fn new() -> Self {
            Self(BidCache::default(), launch_configs(0..1).remove(0))
        }

        fn bid(&self, minute: i64) -> Result<Option<f64>, String> {
            bid(&self.0, &self.1, at(minute))
        }

        fn key(&self) -> Key {
            (self.1.pool_id.clone(), self.1.id.clone())
        }

        fn n_wanted(&self, minute: i64) -> usize {
            self.0.wanted(at(minute), 9).concat().len()
        }
    }

    fn at(minute: i64) -> Timestamp {
        now().plus_millis(minute * MINUTE_MS)
    }

    #[test]
    fn a_new_launch_config_is_asked_about_at_once_and_a_missing_answer_after_a_pause() {
        let one = One::new();
        assert!(!one.0.lacks_some(at(0)));
        assert_eq!(one.bid(0), Err(AWAITED.to_owned()));
        assert!(one.0.lacks_some(at(0)));
        assert_eq!(one.n_wanted(0), 1);
        one.0.failed(&one.key(), "racks is down".to_owned());
        assert_eq!(one.bid(0), Err("racks is down".to_owned()));
        assert!(!one.0.lacks_some(at(0)));
        assert!(one.0.lacks_some(at(1)));
        // The clock was set back.
        assert!(one.0.lacks_some(at(-9)));
        one.0.answered(&one.key(), Ok(vec![priced(2.0)]), at(1));
        assert_eq!(one.n_wanted(1), 0);
        assert_eq!(one.bid(2), Ok(Some(2.0)));
        assert!(!one.0.lacks_some(at(3)));
        assert_eq!((one.n_wanted(4), one.n_wanted(5)), (0, 1));
    }

    #[test]
    fn a_failure_replaces_the_last_bid_only_when_that_is_stale() {
        let one = One::new();
        let _ = one.bid(0);
        one.0.answered(&one.key(), Ok(vec![priced(2.0)]), at(0));
        one.0.failed(&one.key(), "racks is down".to_owned());
        assert_eq!(one.bid(10), Ok(Some(2.0)));
        assert!(one.0.lacks_some(at(10)));
        assert_eq!(one.bid(11), Err("racks is down".to_owned()));
        one.0
            .answered(&one.key(), Err("sold out".to_owned()), at(11));
        assert_eq!(one.bid(12), Err("sold out".to_owned()));
    }

    #[test]
    fn a_bid_is_asked_for_again_shortly_before_it_expires() {
        let one = One::new();
        let _ = one.bid(0);
        one.n_wanted(0);
        let short = Bid {
            expires: Some(at(2)),
            ..priced(2.0)
        };
        one.0.answered(&one.key(), Ok(vec![short]), at(0));
        let before_ms = |millis: i64| at(2).plus_millis(-millis);
        let lacks_at = |time: Timestamp| {
            assert_eq!(bid(&one.0, &one.1, time), Ok(Some(2.0)));
            one.0.lacks_some(time)
        };
        assert!(!lacks_at(before_ms(AHEAD_MS + 1)));
        assert!(lacks_at(before_ms(AHEAD_MS)));
        assert_eq!(one.0.wanted(before_ms(AHEAD_MS), 9).concat().len(), 1);
        // The plan says that it expired.
        assert!(!lacks_at(before_ms(AHEAD_MS - RETRY_MS + 1)));
        assert!(lacks_at(before_ms(AHEAD_MS - RETRY_MS)));
        assert_eq!(one.n_wanted(3), 1);
    }

    #[test]
    fn an_answer_stays_in_use_and_is_asked_for_again_after_the_clock_was_set_back() {
        let one = One::new();
        let _ = one.bid(100);
        assert_eq!(one.n_wanted(100), 1);
        one.0.answered(&one.key(), Ok(vec![priced(2.0)]), at(100));
        assert_eq!(one.bid(99), Ok(Some(2.0)));
        assert!(one.0.lacks_some(at(99)));
        assert_eq!(one.n_wanted(99), 1);
        // By so much that its age is unknown.
        assert_eq!(one.bid(89), Err(AWAITED.to_owned()));
    }
}
