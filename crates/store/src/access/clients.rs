//! Clients: the identities that can sign requests.

use domain::Version;
use domain::access::ClientRecord;
use domain::id::ClientId;
use domain::time::Timestamp;

use crate::access::revisions;
use crate::engine::{AFTER_ALL, Result, Table, Tx, columns, statements};

columns! { client: ClientRecord {
    client_id: Key "client_id",
    description: Mutable "description",
    scopes: Mutable "scopes",
    sealed_access_token: Mutable "access_token",
    expires: Mutable "expires",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    last_date_used: Mutable "last_date_used",
    last_rotated: Mutable "last_rotated",
    delete_on_expiration: Mutable "delete_on_expiration",
    disabled: Mutable "disabled",
    version: Version "version",
} }

static TABLE: Table = Table::of::<ClientRecord>("clients");

statements! { TABLE;
    GET "client_get" =
        "SELECT {columns} FROM clients WHERE client_id = $1";
    INSERT "client_insert" =
        "INSERT INTO clients ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "client_update" =
        "UPDATE clients SET {changes} WHERE {key}";
    DELETE "client_delete" = "DELETE FROM clients WHERE client_id = $1";
    LIST "client_list" =
        "SELECT {columns} FROM clients \
         WHERE client_id > $1 AND client_id >= $2 AND client_id < $3 ORDER BY client_id LIMIT $4";
    DELETE_EXPIRED "client_delete_expired" =
        "DELETE FROM clients WHERE client_id IN (SELECT client_id FROM clients \
         WHERE delete_on_expiration = 1 AND expires < $1 ORDER BY expires LIMIT $2) \
         RETURNING client_id";
    TOUCH "client_touch" =
        "UPDATE clients SET last_date_used = $1 WHERE client_id = $2 AND last_date_used < $1";
}

pub fn get(tx: &mut Tx<'_>, id: &ClientId) -> Result<Option<ClientRecord>> {
    tx.row(&GET, id)
}

/// Returns `false` and changes nothing if the id exists already.
pub fn insert(tx: &mut Tx<'_>, client: &ClientRecord) -> Result<bool> {
    let is_new = tx.insert(&INSERT, client)?;
    increment_if(tx, is_new)
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
/// Returns the new version.
pub fn update(tx: &mut Tx<'_>, client: &ClientRecord) -> Result<Version> {
    tx.update(&UPDATE, client)?;
    revisions::increment(tx)?;
    Ok(client.version.next())
}

/// Returns `false` if the row does not exist.
pub fn delete(tx: &mut Tx<'_>, id: &ClientId) -> Result<bool> {
    let n_deleted = tx.execute(&DELETE, id)?;
    increment_if(tx, n_deleted > 0)
}

/// Lists clients whose id begins with the prefix, ordered by id.
pub fn list(
    tx: &mut Tx<'_>,
    prefix: &str,
    after: Option<&ClientId>,
    limit: u32,
) -> Result<Vec<ClientRecord>> {
    let end = format!("{prefix}{AFTER_ALL}");
    let after = after.map_or("", ClientId::as_str);
    tx.rows(&LIST, (after, prefix, &end, limit))
}

/// Returns the ids of the deleted clients. Call it again while there are as many as the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<Vec<ClientId>> {
    let deleted = tx.rows(&DELETE_EXPIRED, (now, limit))?;
    increment_if(tx, !deleted.is_empty())?;
    Ok(deleted)
}

/// Records when these clients last signed a request. Their versions and the revision do not change.
pub fn touch(tx: &mut Tx<'_>, ids: &[ClientId], date: Timestamp) -> Result<()> {
    for id in ids {
        tx.run(&TOUCH, (date, id))?;
    }
    Ok(())
}

fn increment_if(tx: &mut Tx<'_>, changed: bool) -> Result<bool> {
    if changed {
        revisions::increment(tx)?;
    }
    Ok(changed)
}
