//! A bounded memory of what was computed: what is asked for again stays, the rest goes in time.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Two generations: when the younger one is full it becomes the older one, and what was the older one
/// is forgotten. So at most twice `most` is held, and whatever is in use stays.
pub(crate) struct Recent<K, V> {
    most: usize,
    young: HashMap<K, V>,
    old: HashMap<K, V>,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
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
    use super::Recent;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut recent = Recent::new(3);
        recent.insert(0, "kept");
        for number in 1..100 {
            recent.insert(number, "other");
            assert_eq!(recent.get(&0), Some("kept"));
            assert!(recent.young.len() + recent.old.len() <= 6);
        }
        assert_eq!(recent.get(&1), None);
        assert_eq!(recent.get(&99), Some("other"));
    }
}
