//! Who changed what; rows are only ever added.

use domain::audit::{AuditEntry, EntityType};
use domain::id::ClientId;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::Tx;

static TABLE: Table = Table {
    name: "audit",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "entity_type, entity_id, client_id, action, created, source_ip, request_id, detail"
    };
}

statements! { TABLE;
    INSERT "audit_insert" = concat!(
        "INSERT INTO audit (", columns!(), ") VALUES ($1, $2, $3, $4, $5, $6, $7, $8)");
    BY_ENTITY "audit_by_entity" = concat!(
        "SELECT sequence, ", columns!(), " FROM audit \
         WHERE entity_type = $1 AND entity_id = $2 AND sequence > $3 ORDER BY sequence LIMIT $4");
    BY_CLIENT "audit_by_client" = concat!(
        "SELECT sequence, ", columns!(), " FROM audit \
         WHERE client_id = $1 AND sequence > $2 ORDER BY sequence LIMIT $3");
}

pub fn audit_insert(tx: &mut Tx<'_>, entry: &AuditEntry) -> Result<(), StoreError> {
    let detail = entry.detail.to_string();
    tx.execute(
        &INSERT,
        &[
            entry.entity_type.as_str().into(),
            (&entry.entity_id).into(),
            (&entry.client_id).into(),
            (&entry.action).into(),
            entry.created.into(),
            entry.source_ip.as_ref().into(),
            entry.request_id.as_ref().into(),
            (&detail).into(),
        ],
    )
    .map(drop)
}

/// What happened to one thing, oldest first, each with its number by which to go on.
pub fn audit_by_entity(
    tx: &mut Tx<'_>,
    entity_type: EntityType,
    entity_id: &str,
    after_sequence: Option<i64>,
    limit: u32,
) -> Result<Vec<(i64, AuditEntry)>, StoreError> {
    let values = [
        entity_type.as_str().into(),
        entity_id.into(),
        after_sequence.unwrap_or(0).into(),
        limit.into(),
    ];
    tx.rows(&BY_ENTITY, &values, entry)
}

/// What one client did, oldest first, each with its number by which to go on.
pub fn audit_by_client(
    tx: &mut Tx<'_>,
    client_id: &ClientId,
    after_sequence: Option<i64>,
    limit: u32,
) -> Result<Vec<(i64, AuditEntry)>, StoreError> {
    let values = [
        client_id.as_str().into(),
        after_sequence.unwrap_or(0).into(),
        limit.into(),
    ];
    tx.rows(&BY_CLIENT, &values, entry)
}

fn entry(row: &Row<'_>) -> Result<(i64, AuditEntry), BadRow> {
    let entry = AuditEntry {
        entity_type: row.text(1)?.parse()?,
        entity_id: row.text(2)?.to_owned(),
        client_id: row.text(3)?.to_owned(),
        action: row.text(4)?.to_owned(),
        created: row.time(5)?,
        source_ip: row.optional_text(6)?.map(str::to_owned),
        request_id: row.optional_text(7)?.map(str::to_owned),
        detail: row.json(8)?,
    };
    Ok((row.integer(0)?, entry))
}
