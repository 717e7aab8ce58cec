//! Plans: a bounded history for each pool.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::id::PoolId;
use domain::time::Timestamp;
use serde_json::Value;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

columns! { record: PlanRecord {
    pool_id: Key "worker_pool_id",
    number: Key "number",
    created: Fixed "created",
    plan: Fixed "plan",
} }

static TABLE: Table = Table::of::<PlanRecord>("plans");

statements! { TABLE;
    INSERT "plan_insert" =
        "INSERT INTO plans ({written}, input) VALUES ({values}, $5)";
    INPUT "plan_input" = "SELECT input FROM plans WHERE worker_pool_id = $1 AND number = $2";
    FORGET "plan_forget" = "DELETE FROM plans WHERE worker_pool_id = $1 AND number <= $2";
    LIST "plan_list" =
        "SELECT {columns} FROM plans \
         WHERE worker_pool_id = $1 ORDER BY number DESC LIMIT $2";
    LIST_UNTIL "plan_list_until" =
        "SELECT {columns} FROM plans \
         WHERE worker_pool_id = $1 AND created <= $2 ORDER BY number DESC LIMIT $3";
    GET "plan_get" =
        "SELECT {columns} FROM plans \
         WHERE worker_pool_id = $1 AND number = $2";
    DELETE "plan_delete_before" =
        "DELETE FROM plans WHERE (worker_pool_id, number) IN (SELECT worker_pool_id, number \
         FROM plans WHERE created < $1 ORDER BY created LIMIT $2)";
}

#[derive(Clone, Debug, PartialEq)]
pub struct PlanRecord {
    pub pool_id: PoolId,
    /// Counts up within the pool.
    pub number: i64,
    pub created: Timestamp,
    pub plan: Value,
}

/// Stores a plan and deletes old ones, so that the pool keeps its last `keep` plans. The input is
/// opaque here.
pub fn insert(tx: &mut Tx<'_>, record: &PlanRecord, input: Option<&[u8]>, keep: i64) -> Result<()> {
    let input = input.map(|input| STANDARD.encode(input));
    tx.run(&INSERT, (record.inserted(), &input))?;
    let oldest = record.number.saturating_sub(keep);
    tx.run(&FORGET, (&record.pool_id, oldest))
}

/// Ordered from newest to oldest.
pub fn list(tx: &mut Tx<'_>, pool_id: &PoolId, limit: u32) -> Result<Vec<PlanRecord>> {
    tx.rows(&LIST, (pool_id, limit))
}

/// The plans up to this moment, ordered from newest to oldest.
pub fn list_until(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<PlanRecord>> {
    tx.rows(&LIST_UNTIL, (pool_id, until, limit))
}

pub fn get(tx: &mut Tx<'_>, pool_id: &PoolId, number: i64) -> Result<Option<PlanRecord>> {
    tx.row(&GET, (pool_id, number))
}

/// The input of a plan, if it was kept.
pub fn input(tx: &mut Tx<'_>, pool_id: &PoolId, number: i64) -> Result<Option<Vec<u8>>> {
    let input = tx.row_with(&INPUT, (pool_id, number), |row| {
        let input = row.optional_text(0)?;
        Ok(input.map(|text| STANDARD.decode(text)).transpose()?)
    })?;
    Ok(input.flatten())
}

/// Deletes at most `limit` rows. Call it again while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE, (before, limit))
}
