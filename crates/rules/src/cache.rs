//! A bounded cache of computed values that keeps the recently used ones.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Has two generations. When the younger one is full, it becomes the older one, and the older one
/// is dropped. So the cache holds at most twice `most` entries, and entries in use stay.
pub(crate) struct GenerationCache<K, V> {
    most: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V: Clone> GenerationCache<K, V> {
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if let Some(value) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, value) = self.old.remove_entry(key)?;
        self.insert(key, value.clone());
        Some(value)
    }

    pub(crate) fn insert(&mut self, key: K, value: V) {
        if self.young.len() == self.most {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::GenerationCache;

    #[test]
    fn entries_in_use_stay_and_others_are_dropped() {
        let mut cache = GenerationCache::new(3);
        cache.insert(0, "kept");
        for number in 1..100 {
            cache.insert(number, "other");
            assert_eq!(cache.get(&0), Some("kept"));
            assert!(cache.young.len() + cache.old.len() <= 6);
        }
        assert_eq!(cache.get(&1), None);
        assert_eq!(cache.get(&99), Some("other"));
    }
}
