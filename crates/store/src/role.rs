//! Roles: scopes under a name.

use domain::Version;
use domain::access::RoleRecord;
use domain::id::RoleId;

use crate::access_revision;
use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::{ALL_ROWS, Tx};
use crate::value::to_json;

static TABLE: Table = Table {
    name: "roles",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "role_id, description, scopes, created, last_modified, version"
    };
}

/// What the counter is about to be counted up to. Somebody else who counts it up at the same time is in conflict with
/// that, so the number is right if the transaction is committed.
macro_rules! next_revision {
    ($name:literal) => {
        concat!(
            "COALESCE((SELECT value FROM revisions WHERE name = ",
            $name,
            "), 0) + 1"
        )
    };
}

statements! { TABLE;
    GET "role_get" = concat!("SELECT ", columns!(), " FROM roles WHERE role_id = $1");
    INSERT "role_insert" = concat!(
        "INSERT INTO roles (", columns!(), ", revision_name, revision) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, ", next_revision!("$7"), ") ON CONFLICT DO NOTHING");
    UPDATE "role_update" = concat!(
        "UPDATE roles SET description = $1, scopes = $2, last_modified = $3, version = version + 1, \
         revision_name = $4, revision = ", next_revision!("$4"), " WHERE role_id = $5 AND version = $6");
    DELETE "role_delete" = "DELETE FROM roles WHERE role_id = $1";
    LIST "role_list" = concat!(
        "SELECT ", columns!(), " FROM roles WHERE role_id > $1 ORDER BY role_id LIMIT $2");
    CHANGED "role_changed" = concat!(
        "SELECT ", columns!(), " FROM roles WHERE revision_name = $1 AND revision > $2");
}

pub fn role_get(tx: &mut Tx<'_>, id: &RoleId) -> Result<Option<RoleRecord>, StoreError> {
    tx.row(&GET, &[id.as_str().into()], role)
}

/// `false` if there is one of this id already; nothing changes then.
pub fn role_insert(tx: &mut Tx<'_>, role: &RoleRecord) -> Result<bool, StoreError> {
    let (scopes, counter) = (to_json(&role.scopes), access_revision::counter(tx));
    let n_inserted = tx.execute(
        &INSERT,
        &[
            role.role_id.as_str().into(),
            (&role.description).into(),
            (&scopes).into(),
            role.created.into(),
            role.last_modified.into(),
            role.version.into(),
            (&counter).into(),
        ],
    )?;
    if n_inserted > 0 {
        access_revision::bump(tx)?;
    }
    Ok(n_inserted > 0)
}

/// Writes what can change, if nobody changed it since it was read. Returns the new version.
pub fn role_update(tx: &mut Tx<'_>, role: &RoleRecord) -> Result<Version, StoreError> {
    let (scopes, counter) = (to_json(&role.scopes), access_revision::counter(tx));
    tx.execute_guarded(
        &UPDATE,
        &[
            (&role.description).into(),
            (&scopes).into(),
            role.last_modified.into(),
            (&counter).into(),
            role.role_id.as_str().into(),
            role.version.into(),
        ],
    )?;
    access_revision::bump(tx)?;
    Ok(role.version.next())
}

/// `false` if there was none.
pub fn role_delete(tx: &mut Tx<'_>, id: &RoleId) -> Result<bool, StoreError> {
    let n_deleted = tx.execute(&DELETE, &[id.as_str().into()])?;
    if n_deleted > 0 {
        access_revision::bump_deleted(tx)?;
    }
    Ok(n_deleted > 0)
}

/// By id.
pub fn role_list(
    tx: &mut Tx<'_>,
    after: Option<&RoleId>,
    limit: u32,
) -> Result<Vec<RoleRecord>, StoreError> {
    let after = after.map_or("", RoleId::as_str);
    tx.rows(&LIST, &[after.into(), limit.into()], role)
}

/// All of them, as expanding scopes needs them.
pub fn role_all(tx: &mut Tx<'_>) -> Result<Vec<RoleRecord>, StoreError> {
    role_list(tx, None, ALL_ROWS)
}

/// Those whose last change counted this counter up above the value.
pub(crate) fn role_changed(
    tx: &mut Tx<'_>,
    counter: &str,
    above: i64,
) -> Result<Vec<RoleRecord>, StoreError> {
    tx.rows(&CHANGED, &[counter.into(), above.into()], role)
}

fn role(row: &Row<'_>) -> Result<RoleRecord, BadRow> {
    Ok(RoleRecord {
        role_id: row.text(0)?.parse()?,
        description: row.text(1)?.to_owned(),
        scopes: row.json(2)?,
        created: row.time(3)?,
        last_modified: row.time(4)?,
        version: row.version(5)?,
    })
}
