//! The memory of pools, and the time that was observed.

use std::collections::BTreeMap;

use domain::id::PoolId;
use domain::market::{ObservedTime, OfferingId, PoolNews, PoolRecord};
use serde_json::Value as Json;

use crate::engine::{
    ALL_ROWS, BadRow, Cells, FromRow, Result, Table, Tx, from_row, statements, to_json,
};

static TABLE: Table = Table::unlisted("pool_memories", 1);

statements! { TABLE;
    LEARNED "pool_memory_get_learned" =
        "SELECT learned FROM pool_memories WHERE worker_pool_id = $1";
    OF "pool_memory_list" =
        "SELECT m.worker_pool_id, m.memory, m.sampled, m.level, m.wanted, m.held, \
         m.unexplained, COALESCE(m.quotas, '{}'), m.version FROM json_each($1) AS v \
         CROSS JOIN pool_memories AS m WHERE m.worker_pool_id = v.value ->> 0";
    STATES "pool_memory_list_states" =
        "SELECT worker_pool_id, \
         CAST(CASE WHEN level = 0 AND held = 0 AND quotas IS NULL THEN 1 ELSE 0 END AS BIGINT) \
         FROM pool_memories WHERE worker_pool_id > $1 ORDER BY worker_pool_id LIMIT $2";
    CONTENDING "pool_memory_list_contending" =
        "SELECT worker_pool_id FROM pool_memories WHERE quotas IS NOT NULL \
         AND worker_pool_id >= $1 AND worker_pool_id <= $2 ORDER BY worker_pool_id LIMIT $3";
    // An offering as JSON is part of an object as JSON if the object has it as a key.
    RIVALS "pool_memory_list_rivals" =
        "SELECT m.worker_pool_id, m.wanted, m.held, m.quotas FROM pool_memories AS m \
         WHERE m.quotas IS NOT NULL AND m.worker_pool_id <> $1 AND EXISTS (SELECT 1 \
         FROM json_each($2) AS v WHERE REPLACE(m.quotas, v.value ->> 0, '') <> m.quotas) \
         ORDER BY m.worker_pool_id LIMIT $3";
    WRITE "pool_memory_write" =
        "INSERT INTO pool_memories (worker_pool_id, memory, learned, sampled, level, \
         wanted, held, unexplained, quotas, version) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, 1) \
         ON CONFLICT (worker_pool_id) DO UPDATE SET memory = excluded.memory, \
         learned = excluded.learned, sampled = excluded.sampled, level = excluded.level, \
         wanted = excluded.wanted, held = excluded.held, unexplained = excluded.unexplained, \
         quotas = excluded.quotas, version = pool_memories.version + 1 \
         WHERE pool_memories.version = $10";
    DELETE "pool_memory_delete" =
        "DELETE FROM pool_memories WHERE worker_pool_id IN (\
         SELECT v.value ->> 0 FROM json_each($1) AS v)";
    TIME "observed_time_get" =
        "SELECT clock, observed, version FROM observed_time WHERE name = 'pools'";
    WRITE_TIME "observed_time_write" =
        "INSERT INTO observed_time (name, clock, observed, version) VALUES ('pools', $1, $2, 1) \
         ON CONFLICT (name) DO UPDATE SET clock = excluded.clock, observed = excluded.observed, \
         version = observed_time.version + 1 WHERE observed_time.version = $3";
}

/// Another pool that wants machines of an offering whose quota is used up.
#[derive(Clone, Debug, PartialEq)]
pub struct ContendingPool {
    pub pool_id: PoolId,
    pub wanted: u64,
    pub held: u64,
    /// The units that it has of each quota that is used up.
    pub quotas: BTreeMap<OfferingId, u64>,
}

from_row! { ObservedTime { clock, observed, version } }

impl FromRow for PoolRecord {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let pool_id = cells.next()?;
        let memory: String = cells.next()?;
        Ok(Self {
            pool_id,
            // Another version of the program wrote it if it cannot be read: learned anew.
            memory: serde_json::from_str(&memory).unwrap_or_default(),
            sampled: cells.next()?,
            level: cells.next()?,
            wanted: cells.next()?,
            held: cells.next()?,
            unexplained: cells.next()?,
            quotas: quotas(cells)?,
            version: cells.next()?,
        })
    }
}

impl FromRow for ContendingPool {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        Ok(Self {
            pool_id: cells.next()?,
            wanted: cells.next()?,
            held: cells.next()?,
            quotas: quotas(cells)?,
        })
    }
}

fn quotas(cells: &mut Cells<'_, '_>) -> Result<BTreeMap<OfferingId, u64>, BadRow> {
    let quotas: Json = cells.next()?;
    serde_json::from_value(quotas).map_err(|error| BadRow(error.to_string()))
}

/// The part of the memory of a pool that a plan uses; nothing if there is no memory yet.
pub fn learned(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<PoolNews> {
    let learned: Option<String> = tx.row(&LEARNED, pool_id)?;
    let learned = learned.and_then(|text| serde_json::from_str(&text).ok());
    Ok(learned.unwrap_or_default())
}

/// The records of these pools; those without one are absent.
pub fn of(tx: &mut Tx<'_>, pools: &[PoolId]) -> Result<Vec<PoolRecord>> {
    tx.rows(&OF, list(pools))
}

/// The pools with a memory, ordered by id, and whether each was at rest: without tasks and workers.
pub fn list_states(
    tx: &mut Tx<'_>,
    after: Option<&PoolId>,
    limit: u32,
) -> Result<Vec<(PoolId, bool)>> {
    tx.rows(&STATES, (after.map_or("", PoolId::as_str), limit))
}

/// The pools from the first to the last for which a quota is used up, ordered by id.
pub fn contending_between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<PoolId>> {
    tx.rows(&CONTENDING, (first, last, ALL_ROWS))
}

/// The other pools for which one of these quotas is used up, ordered by id.
pub fn list_rivals(
    tx: &mut Tx<'_>,
    of: &PoolId,
    quotas: &[OfferingId],
    limit: u32,
) -> Result<Vec<ContendingPool>> {
    let quotas: Vec<[String; 1]> = quotas.iter().map(|id| [to_json(id)]).collect();
    tx.rows(&RIVALS, (of, &to_json(&quotas), limit))
}

/// Writes the record, unless another transaction changed it since it was read. A record that was
/// not stored before has the version 0.
pub fn write(tx: &mut Tx<'_>, record: &PoolRecord, time: &ObservedTime) -> Result<()> {
    let (memory, learned) = (to_json(&record.memory), to_json(&record.news(time)));
    let quotas = (!record.quotas.is_empty()).then(|| to_json(&record.quotas));
    let units = (&record.level, &record.wanted, &record.held);
    let counts = (units, &record.unexplained);
    let values = (&memory, &learned, record.sampled, counts, &quotas);
    tx.execute_guarded(&WRITE, (&record.pool_id, values, record.version))
}

pub fn delete(tx: &mut Tx<'_>, pools: &[PoolId]) -> Result<u64> {
    tx.execute(&DELETE, list(pools))
}

/// The observed time; `None` before the first samples.
pub fn time(tx: &mut Tx<'_>) -> Result<Option<ObservedTime>> {
    tx.row(&TIME, ())
}

/// Writes the time, unless another transaction changed it since it was read. The first time has the
/// version 0.
pub fn write_time(tx: &mut Tx<'_>, time: &ObservedTime) -> Result<()> {
    tx.execute_guarded(&WRITE_TIME, (time.clock, time.observed, time.version))
}

/// Pools as a list in one parameter.
pub(crate) fn list(pools: &[PoolId]) -> String {
    let rows: Vec<[&str; 1]> = pools.iter().map(|id| [id.as_str()]).collect();
    to_json(&rows)
}
