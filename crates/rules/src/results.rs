//! A cache of results by the rules that made them.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::{Map, Value};

use crate::evaluated::Evaluated;

pub(crate) type Shared = Arc<Evaluated>;

/// The rules of a result, and the values of the conditions that their texts refer to.
#[derive(PartialEq, Eq, Hash)]
pub(crate) struct ResultKey {
    /// The numbers of what the rules assign, in the order of the rules.
    pub(crate) rules: Box<[u64]>,
    /// Empty for rules without references.
    pub(crate) referenced: Box<str>,
}

/// Bytes of the results that the cache alone holds, as estimated by [`weight`].
const MAX_LATEST_BYTES: usize = 4 * 1024 * 1024;

/// Entries below which the cache is not searched for dropped results.
const MIN_SWEEP_ENTRIES: usize = 1_024;

/// The cache of an evaluator and its successors. A result is found while anybody holds it, and the
/// latest results also after that. So the cache needs little memory of its own.
pub(crate) struct ResultCache {
    next_number: AtomicU64,
    state: Mutex<CacheState>,
}

struct CacheState {
    by_rules: HashMap<ResultKey, Weak<Evaluated>>,
    /// At this number of entries, those of dropped results are removed.
    sweep_at: usize,
    latest: VecDeque<(Shared, usize)>,
    weight: usize,
}

impl ResultCache {
    pub(crate) fn new() -> Self {
        Self {
            next_number: AtomicU64::new(0),
            state: Mutex::new(CacheState {
                by_rules: HashMap::new(),
                sweep_at: MIN_SWEEP_ENTRIES,
                latest: VecDeque::new(),
                weight: 0,
            }),
        }
    }

    /// A new number for what a rule assigns.
    pub(crate) fn next_number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// The cached result, or else that of `evaluate`.
    pub(crate) fn get(&self, key: ResultKey, evaluate: impl FnOnce() -> Evaluated) -> Shared {
        let known = self.lock().by_rules.get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let result = Arc::new(evaluate());
            self.lock().insert(key, &result);
            result
        })
    }

    fn lock(&self) -> MutexGuard<'_, CacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CacheState {
    fn insert(&mut self, key: ResultKey, result: &Shared) {
        if self.by_rules.len() >= self.sweep_at {
            self.by_rules.retain(|_, result| result.strong_count() > 0);
            self.sweep_at = MIN_SWEEP_ENTRIES.max(2 * self.by_rules.len());
        }
        self.by_rules.insert(key, Arc::downgrade(result));
        let weight = weight(&result.values);
        self.latest.push_back((result.clone(), weight));
        self.weight += weight;
        while self.weight > MAX_LATEST_BYTES
            && let Some((_, weight)) = self.latest.pop_front()
        {
            self.weight -= weight;
        }
    }
}

/// Estimates the bytes of an object: each node of its trees has room for eleven entries.
fn weight(object: &Map<String, Value>) -> usize {
    let entries = object
        .iter()
        .map(|(key, value)| key.len() + weight_of(value));
    640 * object.len().div_ceil(8) + entries.sum::<usize>()
}

fn weight_of(value: &Value) -> usize {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => 0,
        Value::String(text) => text.len(),
        Value::Array(list) => list.iter().map(|item| 32 + weight_of(item)).sum(),
        Value::Object(object) => weight(object),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn evaluated(number: u64) -> impl FnOnce() -> Evaluated {
        move || Evaluated {
            values: Map::from_iter([(number.to_string(), json!("x".repeat(10_000)))]),
            errors: Vec::new(),
        }
    }

    fn key(number: u64) -> ResultKey {
        ResultKey {
            rules: [number].into(),
            referenced: Box::default(),
        }
    }

    fn unknown() -> Evaluated {
        panic!("the result is cached")
    }

    #[test]
    fn held_results_are_found_and_few_others_are_kept() {
        let results = ResultCache::new();
        let held: Vec<Shared> = (0..3_000)
            .map(|number| results.get(key(number), evaluated(number)))
            .collect();
        for (number, held) in (0..).zip(&held) {
            let found = results.get(key(number), unknown);
            assert!(Arc::ptr_eq(&found, held));
        }
        drop(held);
        let known = results.lock();
        assert!(known.weight <= MAX_LATEST_BYTES);
        let kept: usize = known.latest.iter().map(|(_, weight)| weight).sum();
        assert_eq!(known.weight, kept);
        let found = known
            .by_rules
            .values()
            .filter(|known| known.strong_count() > 0);
        assert_eq!(found.count(), known.latest.len());
    }

    #[test]
    fn the_latest_result_is_found_without_a_holder() {
        let results = ResultCache::new();
        results.get(key(1), evaluated(1));
        results.get(key(1), unknown);
    }

    #[test]
    fn entries_of_dropped_results_are_removed() {
        let results = ResultCache::new();
        for number in 0..50_000 {
            results.get(key(number), || Evaluated {
                values: Map::from_iter([("x".to_owned(), json!("y".repeat(90_000)))]),
                errors: Vec::new(),
            });
        }
        assert!(results.lock().by_rules.len() <= MIN_SWEEP_ENTRIES + 1);
    }
}
