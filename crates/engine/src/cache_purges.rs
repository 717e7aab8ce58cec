//! Purge requests: caches that the workers of a pool delete before their next task.

use std::sync::Arc;

use domain::id::PoolId;
use domain::time::{DAY_MS, Timestamp};
use store::StoreError;
use store::cache_purges::CachePurge;

use crate::Engine;

const KEPT_MS: i64 = DAY_MS;
/// At most this many caches of one pool have a request: workers get them in one list.
pub const MAX_CACHES: u32 = 1_000;

#[derive(Debug, thiserror::Error)]
pub enum CachePurgeError {
    #[error(
        "{MAX_CACHES} caches of worker pool {0} have a purge request; each expires a day after it was made. Try again later"
    )]
    TooMany(PoolId),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Asks the workers of a pool to delete their caches of this name that were made before now.
pub async fn request(
    engine: &Arc<Engine>,
    now: Timestamp,
    pool_id: PoolId,
    cache_name: String,
) -> Result<(), CachePurgeError> {
    let purge = CachePurge {
        pool_id,
        cache_name,
        before: now,
    };
    let written = engine.change("cache_purge", now, move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        let (pool_id, name) = (&purge.pool_id, &purge.cache_name);
        let others = store::cache_purges::count_others(tx, pool_id, name, now)?;
        if others >= u64::from(MAX_CACHES) {
            return Err(CachePurgeError::TooMany(pool_id.clone()));
        }
        Ok(store::cache_purges::put(
            tx,
            &purge,
            now.plus_millis(KEPT_MS),
        )?)
    });
    written.await
}
