//! Wakes the tasks that wait for one key among many: a run whose log grew, a launch with an answer.

use std::collections::HashMap;
use std::hash::Hash;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::sync::watch;

type Senders<K> = Arc<Mutex<HashMap<K, watch::Sender<()>>>>;

/// One sender for each key that has a listener.
pub struct KeyedWakeups<K: Clone + Eq + Hash>(Senders<K>);

pub struct Listener<K: Clone + Eq + Hash> {
    senders: Senders<K>,
    key: K,
    receiver: watch::Receiver<()>,
}

impl<K: Clone + Eq + Hash> Default for KeyedWakeups<K> {
    fn default() -> Self {
        Self(Arc::default())
    }
}

impl<K: Clone + Eq + Hash> KeyedWakeups<K> {
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

    pub fn n_listeners(&self, key: &K) -> usize {
        let senders = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        senders.get(key).map_or(0, watch::Sender::receiver_count)
    }
}

impl<K: Clone + Eq + Hash> Listener<K> {
    /// Whether the key was woken since the last call; false after this time. The caller reads the
    /// state again in both cases.
    pub async fn wait(&mut self, limit: Duration) -> bool {
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
        let wakeups = KeyedWakeups::default();
        wakeups.wake(&"a");
        let (mut first, mut second) = (wakeups.listen(&"a"), wakeups.listen(&"a"));
        let mut other = wakeups.listen(&"b");
        let start = tokio::time::Instant::now();
        wakeups.wake(&"a");
        assert!(first.wait(LONG).await);
        assert!(second.wait(LONG).await);
        assert!(start.elapsed() < LONG);
        assert!(!other.wait(LONG).await);
        assert!(start.elapsed() >= LONG);
    }

    #[test]
    fn a_sender_is_dropped_with_its_last_listener() {
        let wakeups = KeyedWakeups::default();
        let (first, second) = (wakeups.listen(&"a"), wakeups.listen(&"a"));
        assert_eq!(wakeups.n_listeners(&"a"), 2);
        drop(first);
        assert_eq!(wakeups.0.lock().unwrap().len(), 1);
        drop(second);
        assert!(wakeups.0.lock().unwrap().is_empty());
    }
}
