//! Replies about single pools and their launch configs, kept in memory.
//!
//! A change in this process counts at once, since it changes the pool's stamp. A change in another
//! process counts within a second, as for clients and roles: older replies are not used.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use domain::id::PoolId;
use domain::time::Timestamp;
use store::PoolStamp;

/// How long a reply counts as current.
const FRESH_MS: i64 = 1_000;
/// Pools choose how large their replies are. This is the limit for all together.
const MAX_BYTES: usize = 32 * 1024 * 1024;
/// A larger reply is not kept.
const MAX_REPLY_BYTES: usize = 1024 * 1024;

#[derive(Default)]
pub struct PoolReplies(Mutex<Kept>);

/// The part of a pool that a reply shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Shown {
    Pool,
    /// The first page of its launch configs.
    LaunchConfigs {
        limit: u32,
        has_archived: bool,
    },
}

type Key = (PoolId, Shown);

#[derive(Default)]
struct Kept {
    replies: HashMap<Key, KeptReply>,
    n_bytes: usize,
}

struct KeptReply {
    stamp: PoolStamp,
    read: Timestamp,
    bytes: Bytes,
}

impl PoolReplies {
    pub fn get(&self, key: &Key, stamp: PoolStamp, now: Timestamp) -> Option<Bytes> {
        let kept = self.kept();
        let reply = kept.replies.get(key)?;
        // A clock that was set back makes the age negative: then it is read again.
        let is_fresh = (0..FRESH_MS).contains(&now.millis_since(reply.read));
        (is_fresh && reply.stamp == stamp).then(|| reply.bytes.clone())
    }

    /// Keeps a reply that was read at this time. The stamp is that from before the read.
    pub fn keep(&self, key: Key, stamp: PoolStamp, read: Timestamp, bytes: Bytes) {
        if bytes.len() > MAX_REPLY_BYTES {
            return;
        }
        let mut kept = self.kept();
        let size = size(&key, &bytes);
        if kept.n_bytes + size > MAX_BYTES {
            *kept = Kept::default();
        }
        kept.n_bytes += size;
        let reply = KeptReply { stamp, read, bytes };
        if let Some(before) = kept.replies.insert(key.clone(), reply) {
            kept.n_bytes -= self::size(&key, &before.bytes);
        }
    }

    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn size((id, _): &Key, bytes: &Bytes) -> usize {
    size_of::<(Key, KeptReply)>() + id.as_str().len() + bytes.len()
}

#[cfg(test)]
mod tests {
    use store::Store;

    use super::*;

    fn stamp() -> PoolStamp {
        Store::in_memory().unwrap().pool_stamp("demo/one")
    }

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn pool(number: usize) -> Key {
        let id = format!("demo/pool-{number}").parse().unwrap();
        (id, Shown::Pool)
    }

    #[test]
    fn a_reply_is_used_for_a_second_and_never_from_the_future() {
        let (replies, key, stamp) = (PoolReplies::default(), pool(1), stamp());
        replies.keep(key.clone(), stamp, at(5_000), Bytes::from_static(b"{}"));
        for age in [0, 1, FRESH_MS - 1] {
            assert!(replies.get(&key, stamp, at(5_000 + age)).is_some(), "{age}");
        }
        for age in [-1, FRESH_MS, FRESH_MS + 1, 10 * FRESH_MS] {
            assert!(replies.get(&key, stamp, at(5_000 + age)).is_none(), "{age}");
        }
        assert!(replies.get(&pool(2), stamp, at(5_000)).is_none());
    }

    #[test]
    fn replies_are_kept_up_to_a_number_of_bytes() {
        let (replies, stamp) = (PoolReplies::default(), stamp());
        let large = Bytes::from(vec![b' '; MAX_REPLY_BYTES]);
        let most = MAX_BYTES / MAX_REPLY_BYTES;
        for number in [0, 1, most - 1, most, most + 1, 10 * most] {
            for _ in 0..2 {
                // A second time under the same id takes no more memory.
                replies.keep(pool(number), stamp, at(0), large.clone());
            }
            let kept = replies.kept();
            let sizes = kept
                .replies
                .iter()
                .map(|(key, reply)| size(key, &reply.bytes));
            assert_eq!(kept.n_bytes, sizes.sum::<usize>());
            assert!(kept.n_bytes <= MAX_BYTES);
            assert!(kept.replies.contains_key(&pool(number)));
        }
        for number in 0..10 * most {
            replies.keep(pool(number), stamp, at(0), large.clone());
            assert!(replies.kept().n_bytes <= MAX_BYTES);
        }
        for length in [
            0,
            1,
            MAX_REPLY_BYTES - 1,
            MAX_REPLY_BYTES,
            MAX_REPLY_BYTES + 1,
        ] {
            let (replies, bytes) = (PoolReplies::default(), Bytes::from(vec![b' '; length]));
            replies.keep(pool(0), stamp, at(0), bytes);
            let is_kept = replies.get(&pool(0), stamp, at(0)).is_some();
            assert_eq!(is_kept, length <= MAX_REPLY_BYTES, "{length}");
        }
    }
}
