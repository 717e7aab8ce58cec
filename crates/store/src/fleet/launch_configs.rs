//! Launch configs: one row for each, separate from the row of their pool.

use domain::Version;
use domain::id::{ImageName, LaunchConfigId, PoolId};
use domain::image_reference::canary_mark;
use domain::launch_config::LaunchConfig;
use domain::time::Timestamp;

use crate::engine::{ALL_ROWS, Part, Result, Table, Tx, columns, part, statements, to_json};
use crate::fleet::pool_memories;

columns! { config: LaunchConfig {
    pool_id: Key "worker_pool_id",
    id: Key "launch_config_id",
    archived: Mutable "archived",
    position: Mutable "position",
    configuration: Mutable "configuration",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    version: Version "version",
}
also {
    Mutable "canary_of" = canary_mark(&config.configuration).map(|mark| mark.image.to_string()),
    Mutable "hosts" = config.is_for_hosts(),
} }

static TABLE: Table = Table::of::<LaunchConfig>("launch_configs");

/// Whether launch config `c` is archived, and nothing names it.
macro_rules! is_expirable {
    () => {
        "c.archived = 1 AND NOT EXISTS (SELECT 1 FROM workers AS w \
         WHERE w.worker_pool_id = c.worker_pool_id \
         AND w.state IN ('requested', 'running', 'stopping', 'stopped') \
         AND w.launch_config_id = c.launch_config_id) \
         AND NOT EXISTS (SELECT 1 FROM launches AS l WHERE l.state IN ('open', 'unknown') \
         AND l.worker_pool_id = c.worker_pool_id \
         AND l.launch_config_id = c.launch_config_id)"
    };
}

statements! { TABLE;
    GET "launch_config_get" =
        "SELECT {columns} FROM launch_configs \
         WHERE worker_pool_id = $1 AND launch_config_id = $2";
    LIST "launch_config_list" =
        "SELECT {columns} FROM launch_configs \
         WHERE worker_pool_id = $1 AND launch_config_id > $2 AND archived <= $3 \
         ORDER BY launch_config_id LIMIT $4";
    SIZES "launch_config_sizes" =
        "SELECT CAST(OCTET_LENGTH(configuration) + 256 AS BIGINT) FROM launch_configs \
         WHERE worker_pool_id = $1 AND launch_config_id > $2 AND archived <= $3 \
         ORDER BY launch_config_id LIMIT $4";
    ACTIVE_BETWEEN "launch_config_active_between" =
        "SELECT {columns} FROM launch_configs \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 AND archived = 0 \
         ORDER BY worker_pool_id, position, launch_config_id LIMIT $3";
    // With `|| ''`, the order does not come from an index, which would be read completely.
    ACTIVE_OF "launch_config_active_of" =
        "SELECT {columns} FROM json_each($1) AS v CROSS JOIN launch_configs \
         WHERE worker_pool_id = v.value ->> 0 AND archived = 0 \
         ORDER BY worker_pool_id || '', position, launch_config_id LIMIT $2";
    OF_CANARIES "launch_config_of_canaries" =
        "SELECT {columns} FROM launch_configs WHERE canary_of = $1 \
         ORDER BY worker_pool_id, launch_config_id LIMIT $2";
    COUNT_BETWEEN "launch_config_count_between" =
        "SELECT worker_pool_id, COUNT(*) FROM launch_configs \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id ORDER BY worker_pool_id LIMIT $3";
    INSERT "launch_config_insert" =
        "INSERT INTO launch_configs ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "launch_config_update" =
        "UPDATE launch_configs SET {changes} WHERE {key}";
    ARCHIVE "launch_config_archive" =
        "UPDATE launch_configs SET archived = 1, last_modified = $1, version = version + 1 \
         WHERE worker_pool_id = $2 AND launch_config_id = $3 AND version = $4";
    // Each state, so that the index by state and launch config is used.
    LIST_EXPIRABLE "launch_config_list_expirable" = concat!(
        "SELECT c.worker_pool_id, c.launch_config_id FROM launch_configs AS c WHERE ",
        is_expirable!(), " ORDER BY c.worker_pool_id, c.launch_config_id LIMIT $1");
    DELETE_EXPIRABLE "launch_config_delete_expirable" = concat!(
        "DELETE FROM launch_configs WHERE (worker_pool_id, launch_config_id) IN (\
         SELECT c.worker_pool_id, c.launch_config_id \
         FROM json_each($1) AS v CROSS JOIN launch_configs AS c \
         WHERE c.worker_pool_id = v.value ->> 0 AND c.launch_config_id = v.value ->> 1 AND ",
        is_expirable!(), ")");
}

pub fn get(tx: &mut Tx<'_>, pool_id: &PoolId, id: &LaunchConfigId) -> Result<Option<LaunchConfig>> {
    tx.row(&GET, (pool_id, id))
}

/// Ordered by id.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    include_archived: bool,
    after: Option<&LaunchConfigId>,
    limit: u32,
) -> Result<Vec<LaunchConfig>> {
    let after = after.map_or("", LaunchConfigId::as_str);
    tx.rows(&LIST, (pool_id, after, include_archived, limit))
}

/// Ordered by id. Returns at most `max_bytes`, but at least one launch config.
pub fn part(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    include_archived: bool,
    after: Option<&LaunchConfigId>,
    limit: u32,
    max_bytes: u64,
) -> Result<Part<LaunchConfig>> {
    let after = after.map_or("", LaunchConfigId::as_str);
    let keys = (pool_id, after, include_archived);
    part::read_within(tx, max_bytes, &SIZES, &LIST, keys, limit)
}

/// Active and archived launch configs of a pool, for an edit of the pool.
pub fn all(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Vec<LaunchConfig>> {
    list(tx, pool_id, true, None, ALL_ROWS)
}

/// The active launch configs of all pools from the first to the last, ordered by pool and position:
/// one query for each page of pools.
pub fn active_between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<LaunchConfig>> {
    tx.rows(&ACTIVE_BETWEEN, (first, last, ALL_ROWS))
}

/// The active launch configs of these pools, ordered by pool, and then as their authors did.
pub fn active_of(tx: &mut Tx<'_>, pools: &[PoolId]) -> Result<Vec<LaunchConfig>> {
    tx.rows(&ACTIVE_OF, (&pool_memories::list(pools), ALL_ROWS))
}

/// The launch configs of canaries of this image, also archived ones, in all pools.
pub fn of_canaries(tx: &mut Tx<'_>, image: &ImageName, limit: u32) -> Result<Vec<LaunchConfig>> {
    tx.rows(&OF_CANARIES, (image, limit))
}

/// Number of launch configs, including archived ones, of each pool from the first to the last.
pub fn count_between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<(PoolId, u64)>> {
    tx.rows(&COUNT_BETWEEN, (first, last, ALL_ROWS))
}

/// Inserts a launch config, unless another transaction did so since the pool was read.
pub fn insert(tx: &mut Tx<'_>, config: &LaunchConfig) -> Result<()> {
    tx.touch(config.pool_id.as_str());
    tx.insert_new(&INSERT, config)
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
/// Returns the new version.
pub fn update(tx: &mut Tx<'_>, config: &LaunchConfig) -> Result<Version> {
    tx.touch(config.pool_id.as_str());
    tx.update(&UPDATE, config)?;
    Ok(config.version.next())
}

/// Archives a launch config, unless another transaction changed it since it was read. Returns the
/// new version.
pub fn archive(tx: &mut Tx<'_>, config: &LaunchConfig, now: Timestamp) -> Result<Version> {
    tx.touch(config.pool_id.as_str());
    tx.execute_guarded(&ARCHIVE, (now, &config.pool_id, &config.id, config.version))?;
    Ok(config.version.next())
}

/// Archived launch configs that no worker of their pool and no launch without an answer names. This
/// reads all that are archived, so do it outside of the transaction that deletes them.
pub fn list_expirable(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<(PoolId, LaunchConfigId)>> {
    tx.plan_for_values()?;
    tx.rows(&LIST_EXPIRABLE, limit)
}

/// Deletes those of these launch configs that nothing names.
pub fn delete_expirable(tx: &mut Tx<'_>, found: &[(PoolId, LaunchConfigId)]) -> Result<u64> {
    let keys = found.iter().map(|(pool, id)| [pool.as_str(), id.as_str()]);
    let keys: Vec<[&str; 2]> = keys.collect();
    tx.execute(&DELETE_EXPIRABLE, to_json(&keys))
}
