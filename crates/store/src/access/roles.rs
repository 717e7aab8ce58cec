//! Roles: scopes under a name.

use domain::Version;
use domain::access::RoleRecord;
use domain::id::RoleId;

use crate::access::revisions::{self, AccessRevision};
use crate::engine::{ALL_ROWS, Entity, Result, Table, Tx, columns, statements};

columns! { role: RoleRecord {
    role_id: Key "role_id",
    description: Mutable "description",
    scopes: Mutable "scopes",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    version: Version "version",
} }

static TABLE: Table = Table::of::<RoleRecord>("roles");

/// The next value of the counter. A concurrent transaction that increments the same counter
/// conflicts with this one, so the value is right if the transaction commits.
macro_rules! next_revision {
    () => {
        "COALESCE((SELECT value FROM revisions WHERE name = $1), 0) + 1"
    };
}

statements! { TABLE;
    GET "role_get" =
        "SELECT {columns} FROM roles WHERE role_id = $1";
    INSERT "role_insert" = concat!(
        "INSERT INTO roles (revision_name, revision, {written}) VALUES ($1, ", next_revision!(),
        ", {values}) ON CONFLICT DO NOTHING");
    UPDATE "role_update" = concat!(
        "UPDATE roles SET revision_name = $1, revision = ", next_revision!(),
        ", {changes} WHERE {key}");
    DELETE "role_delete" = "DELETE FROM roles WHERE role_id = $1";
    LIST "role_list" =
        "SELECT {columns} FROM roles WHERE role_id > $1 ORDER BY role_id LIMIT $2";
    CHANGED "role_changed" =
        "SELECT {columns} FROM roles WHERE revision_name = $1 AND revision > $2";
}

pub fn get(tx: &mut Tx<'_>, id: &RoleId) -> Result<Option<RoleRecord>> {
    tx.row(&GET, id)
}

/// Returns `false` and changes nothing if the id exists already.
pub fn insert(tx: &mut Tx<'_>, role: &RoleRecord) -> Result<bool> {
    let counter = revisions::counter(tx);
    let values = (&counter, role.inserted());
    let is_new = tx.execute(&INSERT, values)? > 0;
    if is_new {
        revisions::increment(tx)?;
    }
    Ok(is_new)
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
/// Returns the new version.
pub fn update(tx: &mut Tx<'_>, role: &RoleRecord) -> Result<Version> {
    let counter = revisions::counter(tx);
    tx.execute_guarded(&UPDATE, (&counter, role.updated()))?;
    revisions::increment(tx)?;
    Ok(role.version.next())
}

/// Returns `false` if the row does not exist.
pub fn delete(tx: &mut Tx<'_>, id: &RoleId) -> Result<bool> {
    let n_deleted = tx.execute(&DELETE, id)?;
    if n_deleted > 0 {
        revisions::increment_deleted(tx)?;
    }
    Ok(n_deleted > 0)
}

/// Ordered by id.
pub fn list(tx: &mut Tx<'_>, after: Option<&RoleId>, limit: u32) -> Result<Vec<RoleRecord>> {
    let after = after.map_or("", RoleId::as_str);
    tx.rows(&LIST, (after, limit))
}

/// All roles, as the expansion of scopes needs them.
pub fn all(tx: &mut Tx<'_>) -> Result<Vec<RoleRecord>> {
    list(tx, None, ALL_ROWS)
}

/// The roles whose last change brought this counter above the value.
fn changed_since(tx: &mut Tx<'_>, counter: &str, above: i64) -> Result<Vec<RoleRecord>> {
    tx.rows(&CHANGED, (counter, above))
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RoleChanges {
    /// These roles are new or changed; all others are unchanged.
    Changed(Vec<RoleRecord>),
    /// All existing roles.
    All(Vec<RoleRecord>),
}

/// Returns the changes of roles between the revision that a cache has seen and the current one.
pub fn changes(
    tx: &mut Tx<'_>,
    seen: &AccessRevision,
    current: &AccessRevision,
) -> Result<RoleChanges> {
    let Some(grown) = current.grown_since(seen) else {
        return all(tx).map(RoleChanges::All);
    };
    let mut changed = Vec::new();
    for (counter, known) in grown {
        changed.extend(changed_since(tx, counter, known)?);
    }
    Ok(RoleChanges::Changed(changed))
}
