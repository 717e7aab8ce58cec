//! Requests to purge caches: one for each cache of a pool, until it expires.

use domain::id::PoolId;
use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, from_row, statements};

static TABLE: Table = Table::unlisted("cache_purges", 2);

statements! { TABLE;
    PUT "cache_purge_put" =
        "INSERT INTO cache_purges (worker_pool_id, cache_name, purge_before, expires) \
         VALUES ($1, $2, $3, $4) ON CONFLICT (worker_pool_id, cache_name) DO UPDATE \
         SET purge_before = excluded.purge_before, expires = excluded.expires \
         WHERE cache_purges.purge_before < excluded.purge_before";
    OTHERS "cache_purge_count_others" =
        "SELECT COUNT(*) FROM cache_purges \
         WHERE worker_pool_id = $1 AND cache_name <> $2 AND expires > $3";
    OF_POOL "cache_purge_list_of_pool" =
        "SELECT worker_pool_id, cache_name, purge_before FROM cache_purges \
         WHERE worker_pool_id = $1 AND expires > $2 AND purge_before >= $3 \
         ORDER BY cache_name LIMIT $4";
    LIST "cache_purge_list" =
        "SELECT worker_pool_id, cache_name, purge_before FROM cache_purges \
         WHERE (worker_pool_id, cache_name) > ($1, $2) AND expires > $3 \
         ORDER BY worker_pool_id, cache_name LIMIT $4";
    DELETE "cache_purge_delete_expired" =
        "DELETE FROM cache_purges WHERE (worker_pool_id, cache_name) IN \
         (SELECT worker_pool_id, cache_name FROM cache_purges \
         WHERE expires <= $1 ORDER BY expires LIMIT $2)";
}

/// Asks the workers of a pool to delete caches of this name that were created before a moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CachePurge {
    pub pool_id: PoolId,
    pub cache_name: String,
    pub before: Timestamp,
}

/// If a request for the cache exists, the later moment counts.
pub fn put(tx: &mut Tx<'_>, purge: &CachePurge, expires: Timestamp) -> Result<()> {
    let values = (&purge.pool_id, &purge.cache_name, purge.before, expires);
    tx.run(&PUT, values)
}

/// Number of other caches of the pool with a request.
pub fn count_others(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    cache_name: &str,
    now: Timestamp,
) -> Result<u64> {
    tx.number(&OTHERS, (pool_id, cache_name, now))
}

/// The requests of a pool whose `before` is not earlier than `since`, ordered by name.
pub fn list_of_pool(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    now: Timestamp,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<CachePurge>> {
    tx.rows(&OF_POOL, (pool_id, now, since, limit))
}

/// The requests of all pools, ordered by pool and name.
pub fn list(
    tx: &mut Tx<'_>,
    after: Option<(&PoolId, &str)>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<CachePurge>> {
    let after = after.map_or(("", ""), |(pool_id, name)| (pool_id.as_str(), name));
    tx.rows(&LIST, (after, now, limit))
}

/// Deletes at most `limit` rows. Call it again while it returns the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE, (now, limit))
}

from_row! { CachePurge { pool_id, cache_name, before } }
