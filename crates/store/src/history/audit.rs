//! The audit log: which client changed what. Rows are added, and deleted when they are old.

use domain::audit::{AuditEntry, EntityType};
use domain::id::ClientId;
use domain::time::{MINUTE_MS, Timestamp};

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

/// Entries are numbered when they are written, which is up to this long after their time.
const LATE_MS: i64 = 10 * MINUTE_MS;

static TABLE: Table = Table::of::<AuditEntry>("audit");

columns! { entry: AuditEntry {
    entity_type: Fixed "entity_type",
    entity_id: Fixed "entity_id",
    client_id: Fixed "client_id",
    action: Fixed "action",
    created: Fixed "created",
    source_ip: Fixed "source_ip",
    request_id: Fixed "request_id",
    detail: Fixed "detail",
} }

/// Entries before this number (`$1`) and of this time, the newest first. Adding 0 keeps PostgreSQL
/// from the index on times, which has another order.
macro_rules! newest {
    ($rows:literal) => {
        concat!(
            "SELECT sequence, {columns} FROM audit WHERE sequence < $1 AND sequence > $2 \
             AND created + 0 >= $3 AND created + 0 < $4 AND ",
            $rows,
            " ORDER BY sequence DESC LIMIT $8"
        )
    };
}

statements! { TABLE;
    // An empty text means no filter, since ids and types are never empty.
    NEWEST "audit_list" = newest!(
        "($5 = '' OR entity_type = $5) AND ($6 = '' OR entity_id = $6) \
         AND ($7 = '' OR client_id = $7)");
    NEWEST_OF_TYPE "audit_list_of_type" = newest!(
        "entity_type = $5 AND ($6 = '' OR entity_id = $6) AND ($7 = '' OR client_id = $7)");
    NEWEST_OF_ENTITY "audit_list_of_entity" = newest!(
        "entity_type = $5 AND entity_id = $6 AND ($7 = '' OR client_id = $7)");
    NEWEST_OF_CLIENT "audit_list_of_client" = newest!(
        "($5 = '' OR entity_type = $5) AND ($6 = '' OR entity_id = $6) AND client_id = $7");
    FIRST_SINCE "audit_first_since" =
        "SELECT sequence FROM audit WHERE created >= $1 ORDER BY created, sequence LIMIT 1";
    LAST_BEFORE "audit_last_before" =
        "SELECT sequence FROM audit WHERE created < $1 \
         ORDER BY created DESC, sequence DESC LIMIT 1";
    INSERT "audit_insert" =
        "INSERT INTO audit ({written}) VALUES ({values})";
    BY_ENTITY "audit_by_entity" =
        "SELECT sequence, {columns} FROM audit \
         WHERE entity_type = $1 AND entity_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4";
    BY_CLIENT "audit_by_client" =
        "SELECT sequence, {columns} FROM audit \
         WHERE client_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3";
    DELETE_BEFORE "audit_delete_before" =
        "DELETE FROM audit WHERE sequence IN (SELECT o.sequence FROM (SELECT sequence, created \
         FROM audit ORDER BY sequence LIMIT $1) AS o WHERE o.created < $2)";
}

/// Selects entries; an empty filter selects all.
#[derive(Clone, Debug, Default)]
pub struct AuditFilter {
    pub entity_type: Option<EntityType>,
    /// An id of that type.
    pub entity_id: Option<String>,
    pub client_id: Option<ClientId>,
    pub since: Option<Timestamp>,
    /// Entries of this moment are left out.
    pub until: Option<Timestamp>,
}

pub fn insert(tx: &mut Tx<'_>, entry: &AuditEntry) -> Result<()> {
    tx.note_audit(entry);
    tx.run(&INSERT, entry.inserted())
}

/// Looks at `limit` entries from the first on, and deletes those from before this time. Call it
/// again while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (limit, before))
}

/// Changes of one entity, oldest first. Pass the number of the last entry to continue after it.
pub fn by_entity(
    tx: &mut Tx<'_>,
    entity_type: EntityType,
    entity_id: &str,
    after_sequence: Option<i64>,
    limit: u32,
) -> Result<Vec<(i64, AuditEntry)>> {
    let values = (&entity_type, entity_id, after_sequence.unwrap_or(0), limit);
    tx.rows(&BY_ENTITY, values)
}

/// Changes by one client, oldest first. Pass the number of the last entry to continue after it.
pub fn by_client(
    tx: &mut Tx<'_>,
    client_id: &ClientId,
    after_sequence: Option<i64>,
    limit: u32,
) -> Result<Vec<(i64, AuditEntry)>> {
    tx.rows(&BY_CLIENT, (client_id, after_sequence.unwrap_or(0), limit))
}

/// Changes of all entities, newest first. Pass the number of the last entry to continue after it.
pub fn list(
    tx: &mut Tx<'_>,
    filter: &AuditFilter,
    before: Option<i64>,
    limit: u32,
) -> Result<Vec<(i64, AuditEntry)>> {
    let (low, high) = numbers_of(tx, filter, before)?;
    let since = filter.since.map_or(i64::MIN, Timestamp::as_millis);
    let until = filter.until.map_or(i64::MAX, Timestamp::as_millis);
    let entity_type = filter.entity_type.map_or("", EntityType::as_str);
    let entity_id = filter.entity_id.as_deref().unwrap_or("");
    let client_id = filter.client_id.as_ref().map_or("", ClientId::as_str);
    let statement = if !entity_type.is_empty() && !entity_id.is_empty() {
        &NEWEST_OF_ENTITY
    } else if !client_id.is_empty() {
        &NEWEST_OF_CLIENT
    } else if !entity_type.is_empty() {
        &NEWEST_OF_TYPE
    } else {
        &NEWEST
    };
    let range = (high, low, since, until);
    tx.rows(statement, (range, entity_type, entity_id, client_id, limit))
}

/// The numbers between which all entries of the filter's time are. An entry from long before the
/// time has a lower number than all of them, and one from long after it a higher one.
fn numbers_of(tx: &mut Tx<'_>, filter: &AuditFilter, before: Option<i64>) -> Result<(i64, i64)> {
    let (mut low, mut high) = (0, before.unwrap_or(i64::MAX));
    if let Some(since) = filter.since {
        let last: Option<i64> = tx.row(&LAST_BEFORE, since.plus_millis(-LATE_MS))?;
        low = last.unwrap_or(low);
    }
    if let Some(until) = filter.until {
        let first: Option<i64> = tx.row(&FIRST_SINCE, until.plus_millis(LATE_MS))?;
        high = first.map_or(high, |first| high.min(first));
    }
    Ok((low, high))
}
