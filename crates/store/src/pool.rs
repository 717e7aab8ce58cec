//! Worker pools.

use std::collections::BTreeMap;

use domain::Version;
use domain::id::{BadId, ConfigurationId, PoolId, ProviderId};
use domain::pool::{Pool, PoolDefinition};

use crate::error::StoreError;
use crate::part::{self, Part};
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
         email_on_error, created, last_modified, version, further_provider_ids, \
         worker_configuration_id"
    };
}

statements! { TABLE;
    GET "pool_get" = concat!("SELECT ", columns!(), " FROM worker_pools WHERE worker_pool_id = $1");
    INSERT "pool_insert" = concat!(
        "INSERT INTO worker_pools (", columns!(), ") \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING");
    UPDATE "pool_update" =
        "UPDATE worker_pools SET provider_id = $1, previous_provider_ids = $2, description = $3, \
         config = $4, owner = $5, email_on_error = $6, last_modified = $7, \
         further_provider_ids = $8, worker_configuration_id = $9, version = version + 1 \
         WHERE worker_pool_id = $10 AND version = $11";
    DELETE "pool_delete" = "DELETE FROM worker_pools WHERE worker_pool_id = $1";
    LIST "pool_list" = concat!(
        "SELECT ", columns!(), " FROM worker_pools WHERE worker_pool_id > $1 \
         ORDER BY worker_pool_id LIMIT $2");
    // As much for each row as it takes beside its text.
    SIZES "pool_sizes" =
        "SELECT CAST(OCTET_LENGTH(p.config) + OCTET_LENGTH(p.description) + 256 + COALESCE((\
         SELECT SUM(OCTET_LENGTH(c.configuration) + 256) FROM launch_configs AS c \
         WHERE c.worker_pool_id = p.worker_pool_id AND c.archived = 0), 0) AS BIGINT) \
         FROM worker_pools AS p WHERE p.worker_pool_id > $1 ORDER BY p.worker_pool_id LIMIT $2";
    LIST_EXPIRABLE "pool_list_expirable" = concat!(
        "SELECT ", columns!(), " FROM worker_pools \
         WHERE provider_id = $1 AND previous_provider_ids = '[]' \
         AND worker_configuration_id IS NULL ORDER BY worker_pool_id LIMIT $2");
    LIST_LEAVING "pool_list_leaving" = concat!(
        "SELECT ", columns!(), " FROM worker_pools \
         WHERE worker_pool_id > $1 AND previous_provider_ids <> '[]' \
         ORDER BY worker_pool_id LIMIT $2");
    BY_PROVIDER "pools_by_provider" =
        "SELECT provider_id, further_provider_ids, COUNT(*) FROM worker_pools \
         GROUP BY provider_id, further_provider_ids ORDER BY 1, 2 LIMIT $1";
}

pub fn pool_get(tx: &mut Tx<'_>, id: &PoolId) -> Result<Option<Pool>, StoreError> {
    tx.row(&GET, &[id.as_str().into()], pool)
}

/// `false` if there is one of this id already; nothing changes then.
pub fn pool_insert(tx: &mut Tx<'_>, pool: &Pool) -> Result<bool, StoreError> {
    let previous = list(&pool.previous_provider_ids);
    let further = list(&pool.definition.further_provider_ids);
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
            (&further).into(),
            configuration_id(pool).into(),
        ],
    )?;
    Ok(n_inserted > 0)
}

/// Writes what can change, if nobody changed it since it was read. Returns the new version.
pub fn pool_update(tx: &mut Tx<'_>, pool: &Pool) -> Result<Version, StoreError> {
    let previous = list(&pool.previous_provider_ids);
    let further = list(&pool.definition.further_provider_ids);
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
            (&further).into(),
            configuration_id(pool).into(),
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

/// By id, as many as weigh no more than this with their active launch configs; one at least.
pub fn pool_part(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
    max_bytes: u64,
) -> Result<Part<Pool>, StoreError> {
    let after = after.map_or("", PoolId::as_str);
    part::read_within(tx, max_bytes, &SIZES, &LIST, &[after.into()], limit, pool)
}

/// Those made by hand that have no provider any more, present or previous.
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

/// How many pools each provider has at present; a pool of several counts for each of them.
pub fn pools_by_provider(tx: &mut Tx<'_>) -> Result<Vec<(ProviderId, u64)>, StoreError> {
    let groups = tx.rows(&BY_PROVIDER, &[ALL_ROWS.into()], |row| {
        let mut ids = provider_ids(row, 1)?;
        ids.push(row.text(0)?.parse()?);
        Ok((ids, row.number::<u64>(2)?))
    })?;
    let mut counts = BTreeMap::new();
    for (ids, n_pools) in groups {
        for id in ids {
            *counts.entry(id).or_default() += n_pools;
        }
    }
    Ok(counts.into_iter().collect())
}

fn list(ids: &[ProviderId]) -> String {
    let ids: Vec<&str> = ids.iter().map(ProviderId::as_str).collect();
    to_json(&ids)
}

fn provider_ids(row: &Row<'_>, column: usize) -> Result<Vec<ProviderId>, BadRow> {
    let texts: Vec<String> = row.json(column)?;
    let ids = texts.iter().map(|text| text.parse());
    Ok(ids.collect::<Result<_, BadId>>()?)
}

fn configuration_id(pool: &Pool) -> Option<&str> {
    let id = pool.worker_configuration_id.as_ref();
    id.map(ConfigurationId::as_str)
}

fn pool(row: &Row<'_>) -> Result<Pool, BadRow> {
    let configuration_id = row.optional_text(11)?;
    Ok(Pool {
        id: row.text(0)?.parse()?,
        definition: PoolDefinition {
            provider_id: row.text(1)?.parse()?,
            further_provider_ids: provider_ids(row, 10)?,
            description: row.text(3)?.to_owned(),
            config: row.json(4)?,
            owner: row.text(5)?.to_owned(),
            email_on_error: row.flag(6)?,
        },
        previous_provider_ids: provider_ids(row, 2)?,
        worker_configuration_id: configuration_id.map(str::parse).transpose()?,
        created: row.time(7)?,
        last_modified: row.time(8)?,
        version: row.version(9)?,
    })
}
