//! Notes of this process about long work.
//!
//! They make messages better. Without them, after a restart, the work goes on all the same.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Notes at most. Of more, those with the lowest names are dropped.
const MAX_NOTES: usize = 1_000;

/// Texts by names.
#[derive(Default)]
pub(crate) struct Notes(Mutex<BTreeMap<String, String>>);

impl Notes {
    pub(crate) fn get(&self, name: &str) -> Option<String> {
        self.all().get(name).cloned()
    }

    pub(crate) fn put(&self, name: &str, text: &str) {
        let mut all = self.all();
        all.insert(name.to_owned(), text.to_owned());
        if all.len() > MAX_NOTES {
            all.pop_first();
        }
    }

    pub(crate) fn remove(&self, name: &str) {
        self.all().remove(name);
    }

    fn all(&self) -> MutexGuard<'_, BTreeMap<String, String>> {
        // Every statement leaves the map consistent, so a panic elsewhere does not spoil it.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use ::testing::sizes_around;

    use super::*;

    #[test]
    fn a_limited_number_of_notes_is_kept() {
        for size in sizes_around("cloud::vendor::notes::MAX_NOTES", MAX_NOTES) {
            let notes = Notes::default();
            for number in 0..size {
                notes.put(&format!("{number:09}"), "x");
            }
            assert_eq!(notes.all().len(), size.min(MAX_NOTES));
        }
        let notes = Notes::default();
        notes.put("a", "b");
        assert_eq!(notes.get("a").as_deref(), Some("b"));
        notes.remove("a");
        assert_eq!(notes.get("a"), None);
    }
}
