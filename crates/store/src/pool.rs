//! Worker pools.

use domain::Version;
use domain::id::{PoolId, ProviderId};
use domain::pool::{Pool, PoolDefinition};

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::{ALL_ROWS, Tx};
use crate::value::to_json;

static TABLE: Table = Table {
    name: "worker_pools",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "worker_pool_id, provider_id, previous_provider_ids, description, config, owner, \
         email_on_error, created, last_modified, version"
    };
}

statements! { TABLE;
    GET "pool_get" = concat!("SELECT ", columns!(), " FROM worker_pools WHERE worker_pool_id = $1");
    INSERT "pool_insert" = concat!(
        "INSERT INTO worker_pools (", columns!(), ") \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT DO NOTHING");
    UPDATE "pool_update" =
        "UPDATE worker_pools SET provider_id = $1, previous_provider_ids = $2, description = $3, \
         config = $4, owner = $5, email_on_error = $6, last_modified = $7, version = version + 1 \
         WHERE worker_pool_id = $8 AND version = $9";
    DELETE "pool_delete" = "DELETE FROM worker_pools WHERE worker_pool_id = $1";
    LIST "pool_list" = concat!(
        "SELECT ", columns!(), " FROM worker_pools WHERE worker_pool_id > $1 \
         ORDER BY worker_pool_id LIMIT $2");
    LIST_EXPIRABLE "pool_list_expirable" = concat!(
        "SELECT ", columns!(), " FROM worker_pools \
         WHERE provider_id = $1 AND previous_provider_ids = '[]' ORDER BY worker_pool_id LIMIT $2");
    LIST_LEAVING "pool_list_leaving" = concat!(
        "SELECT ", columns!(), " FROM worker_pools \
         WHERE worker_pool_id > $1 AND previous_provider_ids <> '[]' \
         ORDER BY worker_pool_id LIMIT $2");
    BY_PROVIDER "pools_by_provider" =
        "SELECT provider_id, COUNT(*) FROM worker_pools GROUP BY provider_id \
         ORDER BY provider_id LIMIT $1";
}

pub fn pool_get(tx: &mut Tx<'_>, id: &PoolId) -> Result<Option<Pool>, StoreError> {
    tx.row(&GET, &[id.as_str().into()], pool)
}

/// `false` if there is one of this id already; nothing changes then.
pub fn pool_insert(tx: &mut Tx<'_>, pool: &Pool) -> Result<bool, StoreError> {
    let previous = previous_provider_ids(pool);
    let config = to_json(&pool.definition.config);
    let n_inserted = tx.execute(
        &INSERT,
        &[
            pool.id.as_str().into(),
            pool.definition.provider_id.as_str().into(),
            (&previous).into(),
            (&pool.definition.description).into(),
            (&config).into(),
            (&pool.definition.owner).into(),
            pool.definition.email_on_error.into(),
            pool.created.into(),
            pool.last_modified.into(),
            pool.version.into(),
        ],
    )?;
    Ok(n_inserted > 0)
}

/// Writes what can change, if nobody changed it since it was read. Returns the new version.
pub fn pool_update(tx: &mut Tx<'_>, pool: &Pool) -> Result<Version, StoreError> {
    let previous = previous_provider_ids(pool);
    let config = to_json(&pool.definition.config);
    tx.execute_guarded(
        &UPDATE,
        &[
            pool.definition.provider_id.as_str().into(),
            (&previous).into(),
            (&pool.definition.description).into(),
            (&config).into(),
            (&pool.definition.owner).into(),
            pool.definition.email_on_error.into(),
            pool.last_modified.into(),
            pool.id.as_str().into(),
            pool.version.into(),
        ],
    )?;
    Ok(pool.version.next())
}

/// `false` if there was none. Its workers and errors stay until they expire.
pub fn pool_delete(tx: &mut Tx<'_>, id: &PoolId) -> Result<bool, StoreError> {
    Ok(tx.execute(&DELETE, &[id.as_str().into()])? > 0)
}

/// By id.
pub fn pool_list(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
) -> Result<Vec<Pool>, StoreError> {
    let after = after.map_or("", PoolId::as_str);
    tx.rows(&LIST, &[after.into(), limit.into()], pool)
}

/// Those that have no provider any more, present or previous.
pub fn pool_list_expirable(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<Pool>, StoreError> {
    tx.rows(
        &LIST_EXPIRABLE,
        &[ProviderId::NULL.into(), limit.into()],
        pool,
    )
}

/// Those that have left a provider which may still have workers in them, by id.
pub fn pool_list_leaving(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
) -> Result<Vec<Pool>, StoreError> {
    let after = after.map_or("", PoolId::as_str);
    tx.rows(&LIST_LEAVING, &[after.into(), limit.into()], pool)
}

/// How many pools each provider has at present.
pub fn pools_by_provider(tx: &mut Tx<'_>) -> Result<Vec<(ProviderId, u64)>, StoreError> {
    tx.rows(&BY_PROVIDER, &[ALL_ROWS.into()], |row| {
        Ok((row.text(0)?.parse()?, row.number(1)?))
    })
}

fn previous_provider_ids(pool: &Pool) -> String {
    let ids: Vec<&str> = pool
        .previous_provider_ids
        .iter()
        .map(ProviderId::as_str)
        .collect();
    to_json(&ids)
}

fn pool(row: &Row<'_>) -> Result<Pool, BadRow> {
    let previous: Vec<String> = row.json(2)?;
    let mut previous_provider_ids = Vec::with_capacity(previous.len());
    for id in previous {
        previous_provider_ids.push(id.parse()?);
    }
    Ok(Pool {
        id: row.text(0)?.parse()?,
        definition: PoolDefinition {
            provider_id: row.text(1)?.parse()?,
            description: row.text(3)?.to_owned(),
            config: row.json(4)?,
            owner: row.text(5)?.to_owned(),
            email_on_error: row.flag(6)?,
        },
        previous_provider_ids,
        created: row.time(7)?,
        last_modified: row.time(8)?,
        version: row.version(9)?,
    })
}
