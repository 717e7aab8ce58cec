//! Wakes those who wait for one thing among many: the log of a run that grows, a launch that is answered.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

type Senders<K> = Arc<Mutex<HashMap<K, watch::Sender<()>>>>;

/// One sender for each key that somebody waits for: never more than there are listeners.
pub struct Wakeups<K: Clone + Eq + Hash>(Senders<K>);

/// Somebody who waits for a key.
pub struct Listener<K: Clone + Eq + Hash> {
    senders: Senders<K>,
    key: K,
    receiver: watch::Receiver<()>,
}

impl<K: Clone + Eq + Hash> Default for Wakeups<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash> Wakeups<K> {
    /// All who listen to this key look now.
    pub fn wake(&self, key: &K) {
        let senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(sender) = senders.get(key) {
            sender.send_replace(());
        }
    }

    pub fn listen(&self, key: &K) -> Listener<K> {
        let mut senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let sender = senders.entry(key.clone()).or_default();
        Listener {
            receiver: sender.subscribe(),
            key: key.clone(),
            senders: Arc::clone(&self.0),
        }
    }

    /// How many wait for this key.
    pub fn n_listeners(&self, key: &K) -> usize {
        let senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        senders.get(key).map_or(0, watch::Sender::receiver_count)
    }
}

impl<K: Clone + Eq + Hash> Listener<K> {
    /// Whether the key was woken since the last time; false after this time. The caller looks again either way.
    pub async fn woken_within(&mut self, limit: Duration) -> bool {
        let changed = tokio::time::timeout(limit, self.receiver.changed()).await;
        changed.is_ok()
    }
}

impl<K: Clone + Eq + Hash> Drop for Listener<K> {
    fn drop(&mut self) {
        let mut senders = self.senders.lock().unwrap_or_else(PoisonError::into_inner);
        let is_last = senders
            .get(&self.key)
            .is_some_and(|sender| sender.receiver_count() <= 1);
        if is_last {
            senders.remove(&self.key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_before_the_wait_is_not_lost() {
        let wakeups = Wakeups::default();
        wakeups.wake(&"a");
        let (mut first, mut second) = (wakeups.listen(&"a"), wakeups.listen(&"a"));
        let mut other = wakeups.listen(&"b");
        let start = tokio::time::Instant::now();
        wakeups.wake(&"a");
        assert!(first.woken_within(LONG).await);
        assert!(second.woken_within(LONG).await);
        assert!(start.elapsed() < LONG);
        assert!(!other.woken_within(LONG).await);
        assert!(start.elapsed() >= LONG);
    }

    #[test]
    fn a_sender_is_dropped_with_its_last_listener() {
        let wakeups = Wakeups::default();
        let (first, second) = (wakeups.listen(&"a"), wakeups.listen(&"a"));
        assert_eq!(wakeups.n_listeners(&"a"), 2);
        drop(first);
        assert_eq!(wakeups.0.lock().unwrap().len(), 1);
        drop(second);
        assert!(wakeups.0.lock().unwrap().is_empty());
    }
}
