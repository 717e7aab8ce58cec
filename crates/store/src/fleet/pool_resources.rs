//! The resources of pools at their providers, with the data that the providers keep for them.

use domain::Version;
use domain::id::{PoolId, ProviderId};
use domain::pool_resources::PoolResources;

use crate::engine::{ALL_ROWS, Result, Table, Tx, columns, statements};

columns! { resources: PoolResources {
    pool_id: Key "worker_pool_id",
    provider_id: Key "provider_id",
    state: Mutable "state",
    data: Mutable "data",
    problem: Mutable "problem",
    n_failures: Mutable "failures",
    next_try: Mutable "next_try",
    version: Version "version",
} }

static TABLE: Table = Table::of::<PoolResources>("pool_resources");

/// Whether resources `r` are in use: their pool has their provider, or a machine of it exists there
/// or may still appear.
macro_rules! is_used {
    () => {
        "(EXISTS (SELECT 1 FROM worker_pools AS p WHERE p.worker_pool_id = r.worker_pool_id \
         AND (p.provider_id = r.provider_id OR p.further_provider_ids <> \
         REPLACE(p.further_provider_ids, '\"' || r.provider_id || '\"', ''))) \
         OR EXISTS (SELECT 1 FROM workers AS w WHERE w.worker_pool_id = r.worker_pool_id \
         AND w.provider_id = r.provider_id AND w.state <> 'stopped') \
         OR EXISTS (SELECT 1 FROM launches AS l WHERE l.worker_pool_id = r.worker_pool_id \
         AND l.provider_id = r.provider_id AND l.state IN ('open', 'unknown')))"
    };
}

statements! { TABLE;
    GET "pool_resources_get" =
        "SELECT {columns} FROM pool_resources WHERE worker_pool_id = $1 AND provider_id = $2";
    OF_POOL "pool_resources_of_pool" =
        "SELECT {columns} FROM pool_resources WHERE worker_pool_id = $1 \
         ORDER BY provider_id LIMIT $2";
    INSERT "pool_resources_insert" =
        "INSERT INTO pool_resources ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "pool_resources_update" =
        "UPDATE pool_resources SET {changes} WHERE {key}";
    LIST_UNUSED "pool_resources_list_unused" = concat!(
        "SELECT {columns} FROM pool_resources AS r \
         WHERE (worker_pool_id, provider_id) > ($1, $2) \
         AND (r.state = 'releasing' OR NOT ", is_used!(), ") \
         ORDER BY worker_pool_id, provider_id LIMIT $3");
    IS_USED "pool_resources_is_used" = concat!(
        "SELECT 1 FROM pool_resources AS r WHERE worker_pool_id = $1 AND provider_id = $2 AND ",
        is_used!());
    DELETE "pool_resources_delete" =
        "DELETE FROM pool_resources WHERE worker_pool_id = $1 AND provider_id = $2 \
         AND version = $3";
}

pub fn get(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    provider_id: &ProviderId,
) -> Result<Option<PoolResources>> {
    tx.row(&GET, (pool_id, provider_id))
}

/// Those of a pool, ordered by provider.
pub fn of_pool(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Vec<PoolResources>> {
    tx.rows(&OF_POOL, (pool_id, ALL_ROWS))
}

/// Inserts the row, unless another transaction did so since it was looked for.
pub fn insert(tx: &mut Tx<'_>, resources: &PoolResources) -> Result<()> {
    tx.insert_new(&INSERT, resources)
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
pub fn update(tx: &mut Tx<'_>, resources: &PoolResources) -> Result<Version> {
    tx.update(&UPDATE, resources)?;
    Ok(resources.version.next())
}

/// Resources that are being released, or that nothing uses, ordered by pool and provider.
pub fn list_unused(
    tx: &mut Tx<'_>,
    after: Option<(&PoolId, &ProviderId)>,
    limit: u32,
) -> Result<Vec<PoolResources>> {
    let after = after.map_or(("", ""), |(pool, provider)| {
        (pool.as_str(), provider.as_str())
    });
    tx.rows(&LIST_UNUSED, (after, limit))
}

/// Whether a pool or a machine still uses them.
pub fn is_used(tx: &mut Tx<'_>, pool_id: &PoolId, provider_id: &ProviderId) -> Result<bool> {
    tx.exists(&IS_USED, (pool_id, provider_id))
}

/// Deletes the row, unless another transaction changed it since it was read.
pub fn delete(tx: &mut Tx<'_>, resources: &PoolResources) -> Result<()> {
    let key = (&resources.pool_id, &resources.provider_id);
    tx.execute_guarded(&DELETE, (key, resources.version))
}
