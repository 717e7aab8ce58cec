//! A bounded memory of what was computed: what is asked for again stays, the rest goes in time.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::hash::Hash;

/// Two generations: when the younger one is full it becomes the older one, and what was the older one
/// is forgotten. So at most twice `most` is held, and whatever is in use stays.
pub(crate) struct Recent<K, V> {
    most: usize,
    weight: usize,
    young: HashMap<K, (V, usize)>,
    old: HashMap<K, (V, usize)>,
}

impl<K: Eq + Hash, V: Clone> Recent<K, V> {
    /// `most` is the weight of one generation.
    pub(crate) fn new(most: usize) -> Self {
        Self {
            most,
            weight: 0,
            young: HashMap::new(),
            old: HashMap::new(),
        }
    }

    pub(crate) fn get<Q: Eq + Hash + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        if let Some((value, _)) = self.young.get(key) {
            return Some(value.clone());
        }
        let (key, (value, weight)) = self.old.remove_entry(key)?;
        self.insert(key, value.clone(), weight);
        Some(value)
    }

    /// What is heavier than a generation is not kept.
    pub(crate) fn insert(&mut self, key: K, value: V, weight: usize) {
        if weight > self.most {
            return;
        }
        if self.weight + weight > self.most {
            self.old = std::mem::take(&mut self.young);
            self.weight = 0;
        }
        self.weight += weight;
        self.young.insert(key, (value, weight));
    }
}

#[cfg(test)]
mod tests {
    use super::Recent;

    #[test]
    fn what_is_asked_for_stays_and_the_rest_goes() {
        let mut recent = Recent::new(10);
        recent.insert("kept", 0, 1);
        for number in 1..100 {
            recent.insert("other", number, 4);
            assert_eq!(recent.get("kept"), Some(0));
            assert!(recent.young.len() + recent.old.len() <= 4);
        }
        recent.insert("too heavy", 7, 11);
        assert_eq!(recent.get("too heavy"), None);
    }
}
