//! Worker pools.

use std::collections::BTreeMap;

use domain::Version;
use domain::id::{PoolId, ProviderId};
use domain::pool::{Pool, PoolDefinition};

use crate::engine::{ALL_ROWS, Part, Result, Table, Tx, columns, part, statements, to_json};

columns! { pool: Pool {
    id: Key "worker_pool_id",
    definition: PoolDefinition {
        provider_id: Mutable "provider_id",
        further_provider_ids: Mutable "further_provider_ids",
        description: Mutable "description",
        config: Mutable "config",
        owner: Mutable "owner",
        email_on_error: Mutable "email_on_error",
    },
    previous_provider_ids: Mutable "previous_provider_ids",
    worker_configuration_id: Mutable "worker_configuration_id",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    version: Version "version",
} }

static TABLE: Table = Table::of::<Pool>("worker_pools");

statements! { TABLE;
    GET "pool_get" =
        "SELECT {columns} FROM worker_pools WHERE worker_pool_id = $1";
    INSERT "pool_insert" =
        "INSERT INTO worker_pools ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "pool_update" =
        "UPDATE worker_pools SET {changes} WHERE {key}";
    DELETE "pool_delete" = "DELETE FROM worker_pools WHERE worker_pool_id = $1";
    LIST "pool_list" =
        "SELECT {columns} FROM worker_pools WHERE worker_pool_id > $1 \
         ORDER BY worker_pool_id LIMIT $2";
    OF "pool_list_of" =
        "SELECT {columns} FROM worker_pools WHERE worker_pool_id \
         IN (SELECT member.value ->> 0 FROM json_each($1) AS member) ORDER BY worker_pool_id";
    // Each row counts 256 bytes more than its long texts.
    SIZES "pool_sizes" =
        "SELECT CAST(OCTET_LENGTH(p.config) + OCTET_LENGTH(p.description) + 256 + COALESCE((\
         SELECT SUM(OCTET_LENGTH(c.configuration) + 256) FROM launch_configs AS c \
         WHERE c.worker_pool_id = p.worker_pool_id AND c.archived = 0), 0) AS BIGINT) \
         FROM worker_pools AS p WHERE p.worker_pool_id > $1 ORDER BY p.worker_pool_id LIMIT $2";
    LIST_EXPIRABLE "pool_list_expirable" =
        "SELECT {columns} FROM worker_pools \
         WHERE provider_id = $1 AND previous_provider_ids = '[]' \
         AND worker_configuration_id IS NULL AND NOT EXISTS (SELECT 1 FROM pool_resources AS r \
         WHERE r.worker_pool_id = worker_pools.worker_pool_id) ORDER BY worker_pool_id LIMIT $2";
    LIST_LEAVING "pool_list_leaving" =
        "SELECT {columns} FROM worker_pools \
         WHERE worker_pool_id > $1 AND previous_provider_ids <> '[]' \
         ORDER BY worker_pool_id LIMIT $2";
    OF_OWNER "pool_of_owner" =
        "SELECT worker_pool_id FROM worker_pools WHERE owner = $1 LIMIT 1";
    BY_PROVIDER "pools_by_provider" =
        "SELECT provider_id, further_provider_ids, COUNT(*) FROM worker_pools \
         GROUP BY provider_id, further_provider_ids ORDER BY 1, 2 LIMIT $1";
}

pub fn get(tx: &mut Tx<'_>, id: &PoolId) -> Result<Option<Pool>> {
    tx.row(&GET, id)
}

/// Whether anybody of this name owns a pool.
pub fn has_owner(tx: &mut Tx<'_>, owner: &str) -> Result<bool> {
    tx.exists(&OF_OWNER, owner)
}

/// Inserts a pool, unless another transaction did so since it was looked for.
pub fn insert(tx: &mut Tx<'_>, pool: &Pool) -> Result<()> {
    tx.touch(pool.id.as_str());
    tx.insert_new(&INSERT, pool)
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
/// Returns the new version.
pub fn update(tx: &mut Tx<'_>, pool: &Pool) -> Result<Version> {
    tx.touch(pool.id.as_str());
    tx.update(&UPDATE, pool)?;
    Ok(pool.version.next())
}

/// Returns `false` if the pool does not exist. Its workers and errors stay until they expire.
pub fn delete(tx: &mut Tx<'_>, id: &PoolId) -> Result<bool> {
    tx.touch(id.as_str());
    Ok(tx.execute(&DELETE, id)? > 0)
}

/// Ordered by id.
pub fn list(tx: &mut Tx<'_>, after: Option<&PoolId>, limit: u32) -> Result<Vec<Pool>> {
    let after = after.map_or("", PoolId::as_str);
    tx.rows(&LIST, (after, limit))
}

/// Those of these pools that exist, ordered by id.
pub fn of(tx: &mut Tx<'_>, ids: &[&PoolId]) -> Result<Vec<Pool>> {
    let ids: Vec<[&str; 1]> = ids.iter().map(|id| [id.as_str()]).collect();
    tx.rows(&OF, to_json(&ids))
}

/// Ordered by id. Returns at most `max_bytes`, including active launch configs, but at least one
/// pool.
pub fn part(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
    max_bytes: u64,
) -> Result<Part<Pool>> {
    let after = after.map_or("", PoolId::as_str);
    part::read_within(tx, max_bytes, &SIZES, &LIST, after, limit)
}

/// The pools without a provider, current or previous, that do not belong to a worker configuration.
pub fn list_expirable(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<Pool>> {
    tx.rows(&LIST_EXPIRABLE, (ProviderId::NULL, limit))
}

/// The pools with a previous provider that may still have workers in them, ordered by id.
pub fn list_leaving(tx: &mut Tx<'_>, after: Option<&PoolId>, limit: u32) -> Result<Vec<Pool>> {
    let after = after.map_or("", PoolId::as_str);
    tx.rows(&LIST_LEAVING, (after, limit))
}

/// Number of pools of each provider. A pool with several providers counts for each of them.
pub fn count_by_provider(tx: &mut Tx<'_>) -> Result<Vec<(ProviderId, u64)>> {
    let groups = tx.rows::<(ProviderId, Vec<ProviderId>, u64)>(&BY_PROVIDER, ALL_ROWS)?;
    let mut counts = BTreeMap::new();
    for (id, further_ids, n_pools) in groups {
        for id in further_ids.into_iter().chain([id]) {
            *counts.entry(id).or_default() += n_pools;
        }
    }
    Ok(counts.into_iter().collect())
}
