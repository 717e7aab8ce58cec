//! The audit log: which client changed what. Rows are added, and deleted when they are old.

use domain::audit::{AuditEntry, EntityType};
use domain::id::ClientId;
use domain::time::Timestamp;

use crate::engine::{Entity, Result, Table, Tx, columns, statements};

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

statements! { TABLE;
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

pub fn insert(tx: &mut Tx<'_>, entry: &AuditEntry) -> Result<()> {
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
