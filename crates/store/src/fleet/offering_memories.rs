//! The memory of offerings, which all pools share.

use domain::Version;
use domain::id::ProviderId;
use domain::market::{OfferingId, OfferingMemory};
use domain::time::Timestamp;

use crate::engine::{BadRow, Cells, FromRow, Result, Table, Tx, statements, to_json};
use crate::fleet::offering_news::list;

static TABLE: Table = Table::unlisted("offering_memories", 1);

macro_rules! memories {
    ($($rest:literal),+) => {
        concat!(
            "SELECT m.offering, m.provider_id, m.memory, m.survivors_until, m.last_modified, \
             m.version ",
            $($rest),+
        )
    };
}

statements! { TABLE;
    OF "offering_memory_list" = memories!(
        "FROM json_each($1) AS v CROSS JOIN offering_memories AS m ",
        "WHERE m.offering = v.value ->> 0");
    AWAITING "offering_memory_list_awaiting_survival" = memories!(
        "FROM offering_memories AS m WHERE m.awaits_survival = 1 AND m.offering > $1 ",
        "ORDER BY m.offering LIMIT $2");
    WRITE "offering_memory_write" =
        "INSERT INTO offering_memories (offering, provider_id, memory, awaits_survival, \
         survivors_until, last_modified, version) VALUES ($1, $2, $3, $4, $5, $6, 1) \
         ON CONFLICT (offering) DO UPDATE SET memory = excluded.memory, \
         awaits_survival = excluded.awaits_survival, \
         survivors_until = excluded.survivors_until, last_modified = excluded.last_modified, \
         version = offering_memories.version + 1 WHERE offering_memories.version = $7";
    DELETE_BEFORE "offering_memory_delete_before" =
        "DELETE FROM offering_memories WHERE offering IN (SELECT offering FROM offering_memories \
         WHERE last_modified < $1 ORDER BY last_modified LIMIT $2)";
}

/// The stored record of an offering.
#[derive(Clone, Debug, PartialEq)]
pub struct OfferingRecord {
    pub offering: OfferingId,
    pub provider_id: ProviderId,
    /// `None`: another version of the program wrote it, in a form that is not known.
    pub memory: Option<OfferingMemory>,
    /// Survivors of launches up to this moment are in the memory.
    pub survivors_until: Timestamp,
    pub last_modified: Timestamp,
    /// 0: the record is not stored yet.
    pub version: Version,
}

impl OfferingRecord {
    /// A record that is not stored yet.
    pub fn new(offering: OfferingId, provider_id: ProviderId, now: Timestamp) -> Self {
        Self {
            memory: Some(OfferingMemory::new(&offering)),
            offering,
            provider_id,
            survivors_until: now,
            last_modified: now,
            version: Version(0),
        }
    }

    pub fn memory(&self) -> OfferingMemory {
        self.memory
            .unwrap_or_else(|| OfferingMemory::new(&self.offering))
    }
}

impl FromRow for OfferingRecord {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (offering, provider_id) = (cells.next()?, cells.next()?);
        let memory: String = cells.next()?;
        Ok(Self {
            offering,
            provider_id,
            memory: serde_json::from_str(&memory).ok(),
            survivors_until: cells.next()?,
            last_modified: cells.next()?,
            version: cells.next()?,
        })
    }
}

/// The records of these offerings; those without one are absent.
pub fn of(tx: &mut Tx<'_>, offerings: &[OfferingId]) -> Result<Vec<OfferingRecord>> {
    tx.rows(&OF, list(offerings))
}

/// The offerings whose memory waits for machines that survive, ordered by name.
pub fn list_awaiting_survival(
    tx: &mut Tx<'_>,
    after: Option<&OfferingId>,
    limit: u32,
) -> Result<Vec<OfferingRecord>> {
    tx.rows(&AWAITING, (after.map_or("", OfferingId::as_str), limit))
}

/// Writes the record, unless another transaction changed it since it was read.
pub fn write(tx: &mut Tx<'_>, record: &OfferingRecord) -> Result<()> {
    let memory = record.memory();
    let awaits_survival = memory.breaker.fails_late
        && (memory.breaker.failures_in_a_row > 0 || memory.window.is_some());
    let memory = to_json(&memory);
    let times = (record.survivors_until, record.last_modified);
    let values = (&memory, awaits_survival, times, record.version);
    tx.execute_guarded(&WRITE, (&record.offering, &record.provider_id, values))
}

/// Deletes memory without news since this moment. Call it again while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (before, limit))
}
