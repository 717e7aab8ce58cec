//! Results that are known already, by the rules they come from.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use serde_json::{Map, Value};

pub(crate) type Shared = Arc<Map<String, Value>>;

/// What the results that nobody else holds may take, in bytes as estimated by [`weight`].
const KEPT: usize = 4 * 1024 * 1024;

/// With fewer entries than this it is not worth looking for those that are gone.
const FEW: usize = 1_024;

/// Kept by an evaluator together with its successors. A result is found again for as long as somebody
/// holds it, and the latest ones also without; so it costs little memory beyond what is in use.
pub(crate) struct Results {
    next_number: AtomicU64,
    known: Mutex<Known>,
}

struct Known {
    /// By the numbers of what the rules assign, in the order of the rules.
    by_rules: HashMap<Box<[u64]>, Weak<Map<String, Value>>>,
    /// At this many entries those that are gone are removed.
    sweep_at: usize,
    latest: VecDeque<(Shared, usize)>,
    weight: usize,
}

impl Results {
    pub(crate) fn new() -> Self {
        Self {
            next_number: AtomicU64::new(0),
            known: Mutex::new(Known {
                by_rules: HashMap::new(),
                sweep_at: FEW,
                latest: VecDeque::new(),
                weight: 0,
            }),
        }
    }

    /// A number for what a rule assigns, that no other has.
    pub(crate) fn number(&self) -> u64 {
        self.next_number.fetch_add(1, Ordering::Relaxed)
    }

    /// What is known, or else what `evaluate` gives.
    pub(crate) fn get(
        &self,
        key: Box<[u64]>,
        evaluate: impl FnOnce() -> Map<String, Value>,
    ) -> Shared {
        let known = self.lock().by_rules.get(&key).and_then(Weak::upgrade);
        known.unwrap_or_else(|| {
            let result = Arc::new(evaluate());
            self.lock().insert(key, &result);
            result
        })
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Known {
    fn insert(&mut self, key: Box<[u64]>, result: &Shared) {
        if self.by_rules.len() >= self.sweep_at {
            self.by_rules.retain(|_, result| result.strong_count() > 0);
            self.sweep_at = FEW.max(2 * self.by_rules.len());
        }
        self.by_rules.insert(key, Arc::downgrade(result));
        let weight = weight(result);
        self.latest.push_back((result.clone(), weight));
        self.weight += weight;
        while self.weight > KEPT
            && let Some((_, weight)) = self.latest.pop_front()
        {
            self.weight -= weight;
        }
    }
}

/// About how many bytes an object takes: the nodes of its trees have room for eleven entries each.
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

    fn evaluated(number: u64) -> impl FnOnce() -> Map<String, Value> {
        move || Map::from_iter([(number.to_string(), json!("x".repeat(10_000)))])
    }

    fn unknown() -> Map<String, Value> {
        panic!("it is known already")
    }

    #[test]
    fn what_is_held_is_found_and_little_else_is_kept() {
        let results = Results::new();
        let held: Vec<Shared> = (0..3_000)
            .map(|number| results.get([number].into(), evaluated(number)))
            .collect();
        for (number, held) in (0..).zip(&held) {
            let found = results.get([number].into(), unknown);
            assert!(Arc::ptr_eq(&found, held));
        }
        drop(held);
        let known = results.lock();
        assert!(known.weight <= KEPT);
        let kept: usize = known.latest.iter().map(|(_, weight)| weight).sum();
        assert_eq!(known.weight, kept);
        let found = known
            .by_rules
            .values()
            .filter(|known| known.strong_count() > 0);
        assert_eq!(found.count(), known.latest.len());
    }

    #[test]
    fn the_latest_is_found_without_anybody_holding_it() {
        let results = Results::new();
        results.get([1].into(), evaluated(1));
        results.get([1].into(), unknown);
    }

    #[test]
    fn entries_of_what_is_gone_do_not_pile_up() {
        let results = Results::new();
        for number in 0..50_000 {
            results.get([number].into(), || {
                Map::from_iter([("x".to_owned(), json!("y".repeat(90_000)))])
            });
        }
        assert!(results.lock().by_rules.len() <= FEW + 1);
    }
}
