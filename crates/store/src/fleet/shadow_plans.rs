//! Decisions of pools beside those of their shadows: a bounded history for each pool.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::id::PoolId;
use domain::time::Timestamp;
use serde_json::Value;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

columns! { record: ShadowRecord {
    pool_id: Key "worker_pool_id",
    number: Key "number",
    created: Fixed "created",
    plan_number: Fixed "plan_number",
    comparison: Fixed "comparison",
    plan: Fixed "plan",
} }

static TABLE: Table = Table::of::<ShadowRecord>("shadow_plans");

statements! { TABLE;
    INSERT "shadow_plan_insert" =
        "INSERT INTO shadow_plans ({written}, input) VALUES ({values}, $7)";
    INPUT "shadow_plan_input" =
        "SELECT input FROM shadow_plans WHERE worker_pool_id = $1 AND number = $2";
    FORGET "shadow_plan_forget" =
        "DELETE FROM shadow_plans WHERE worker_pool_id = $1 AND number <= $2";
    LIST "shadow_plan_list" =
        "SELECT {columns} FROM shadow_plans \
         WHERE worker_pool_id = $1 ORDER BY number DESC LIMIT $2";
    DELETE "shadow_plan_delete_before" =
        "DELETE FROM shadow_plans WHERE (worker_pool_id, number) IN (SELECT worker_pool_id, number \
         FROM shadow_plans WHERE created < $1 ORDER BY created LIMIT $2)";
}

#[derive(Clone, Debug, PartialEq)]
pub struct ShadowRecord {
    pub pool_id: PoolId,
    /// Counts up within the pool.
    pub number: i64,
    pub created: Timestamp,
    /// The plan that was stored at the same time; `None`: the pool's strategy did nothing.
    pub plan_number: Option<i64>,
    pub comparison: Value,
    /// The plan with that of the shadow, if it is not stored as a plan of the pool.
    pub plan: Option<Value>,
}

/// Stores a decision and deletes old ones, so that the pool keeps its last `keep`. The input is
/// opaque here.
pub fn insert(
    tx: &mut Tx<'_>,
    record: &ShadowRecord,
    input: Option<&[u8]>,
    keep: i64,
) -> Result<()> {
    let input = input.map(|input| STANDARD.encode(input));
    tx.run(&INSERT, (record.inserted(), &input))?;
    let oldest = record.number.saturating_sub(keep);
    tx.run(&FORGET, (&record.pool_id, oldest))
}

/// Ordered from newest to oldest.
pub fn list(tx: &mut Tx<'_>, pool_id: &PoolId, limit: u32) -> Result<Vec<ShadowRecord>> {
    tx.rows(&LIST, (pool_id, limit))
}

/// The input of a decision, if it was kept here.
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
