//! Results that are kept for a time, and that concurrent requests wait for together.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::OnceCell;
use tokio::time::Instant;

pub(crate) struct Cache<K, V> {
    /// At most this many results; the ones that expire first make room.
    max_entries: usize,
    entries: Mutex<HashMap<K, Arc<Entry<V>>>>,
}

/// A result to come, or with the moment up to which it is kept.
type Entry<V> = OnceCell<(V, Instant)>;

impl<K: Clone + Eq + Hash, V: Clone> Cache<K, V> {
    pub(crate) fn new(max_entries: usize) -> Self {
        Self {
            max_entries,
            entries: Mutex::default(),
        }
    }

    /// The result for the key. `find` makes it, and says how long it is kept; it runs once for all
    /// requests that come meanwhile.
    pub(crate) async fn get(&self, key: &K, find: impl Future<Output = (V, Duration)>) -> V {
        let entry = self.entry(key);
        let found = entry.get_or_init(|| async {
            let (value, lasts) = find.await;
            (value, Instant::now() + lasts)
        });
        found.await.0.clone()
    }

    fn entry(&self, key: &K) -> Arc<Entry<V>> {
        let now = Instant::now();
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let known = entries.get(key);
        if let Some(known) = known.filter(|known| !has_expired(known, now)) {
            return Arc::clone(known);
        }
        if known.is_none() && entries.len() >= self.max_entries {
            make_room(&mut entries, now, self.max_entries);
        }
        let entry = Arc::default();
        entries.insert(key.clone(), Arc::clone(&entry));
        entry
    }

    #[cfg(test)]
    fn len(&self) -> usize {
        self.entries.lock().unwrap().len()
    }
}

fn has_expired<V>(entry: &Entry<V>, now: Instant) -> bool {
    entry.get().is_some_and(|(_, until)| *until <= now)
}

fn make_room<K: Clone + Eq + Hash, V>(
    entries: &mut HashMap<K, Arc<Entry<V>>>,
    now: Instant,
    max_entries: usize,
) {
    entries.retain(|_, entry| !has_expired(entry, now));
    if entries.len() < max_entries {
        return;
    }
    // A result to come is worth the most: requests wait for it.
    let until = |entry: &Entry<V>| entry.get().map(|(_, until)| *until);
    let first = entries
        .iter()
        .min_by_key(|(_, entry)| (until(entry).is_none(), until(entry)))
        .map(|(key, _)| key.clone());
    if let Some(first) = first {
        entries.remove(&first);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[tokio::test(start_paused = true)]
    async fn requests_at_the_same_time_share_one_search_and_later_ones_its_result() {
        let (cache, n_searches) = (Cache::<u8, usize>::new(9), AtomicUsize::new(0));
        let get = || {
            cache.get(&1, async {
                tokio::task::yield_now().await;
                (n_searches.fetch_add(1, Ordering::Relaxed), MINUTE)
            })
        };
        assert_eq!(join_all((0..50).map(|_| get())).await, [0; 50]);
        tokio::time::advance(MINUTE - Duration::from_millis(1)).await;
        assert_eq!(get().await, 0);
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(get().await, 1);
        assert_eq!(n_searches.load(Ordering::Relaxed), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn a_search_that_its_request_gives_up_is_done_by_another_one() {
        let cache = Cache::<u8, u8>::new(9);
        let given_up = cache.get(&1, std::future::pending());
        let given_up = tokio::time::timeout(MINUTE, given_up).await;
        assert!(given_up.is_err());
        assert_eq!(cache.get(&1, std::future::ready((7, MINUTE))).await, 7);
    }

    #[tokio::test(start_paused = true)]
    async fn a_full_cache_drops_what_expires_first() {
        let limit = 4;
        for size in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
            let cache = Cache::<usize, usize>::new(limit);
            for key in 0..size {
                let lasts = MINUTE * u32::try_from(size - key).unwrap();
                cache.get(&key, std::future::ready((key, lasts))).await;
            }
            assert_eq!(cache.len(), size.min(limit), "{size}");
            if size > 0 {
                // The first one lasts longest.
                assert_eq!(cache.get(&0, std::future::ready((99, MINUTE))).await, 0);
            }
        }
    }
}
