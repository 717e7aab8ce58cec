//! Clients: those who can sign requests.

use domain::Version;
use domain::access::ClientRecord;
use domain::id::ClientId;
use domain::time::Timestamp;

use crate::access_revision;
use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{AFTER_ALL, Table, statements};
use crate::tx::Tx;
use crate::value::to_json;

static TABLE: Table = Table {
    name: "clients",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "client_id, description, scopes, access_token, expires, created, last_modified, \
         last_date_used, last_rotated, delete_on_expiration, disabled, version"
    };
}

statements! { TABLE;
    GET "client_get" = concat!("SELECT ", columns!(), " FROM clients WHERE client_id = $1");
    INSERT "client_insert" = concat!(
        "INSERT INTO clients (", columns!(), ") \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12) ON CONFLICT DO NOTHING");
    UPDATE "client_update" =
        "UPDATE clients SET description = $1, scopes = $2, access_token = $3, expires = $4, \
         last_modified = $5, last_date_used = $6, last_rotated = $7, delete_on_expiration = $8, \
         disabled = $9, version = version + 1 WHERE client_id = $10 AND version = $11";
    DELETE "client_delete" = "DELETE FROM clients WHERE client_id = $1";
    LIST "client_list" = concat!(
        "SELECT ", columns!(), " FROM clients \
         WHERE client_id > $1 AND client_id >= $2 AND client_id < $3 ORDER BY client_id LIMIT $4");
    DELETE_EXPIRED "client_delete_expired" =
        "DELETE FROM clients WHERE client_id IN (SELECT client_id FROM clients \
         WHERE delete_on_expiration = 1 AND expires < $1 ORDER BY expires LIMIT $2) \
         RETURNING client_id";
    TOUCH "client_touch" =
        "UPDATE clients SET last_date_used = $1 WHERE client_id = $2 AND last_date_used < $1";
}

pub fn client_get(tx: &mut Tx<'_>, id: &ClientId) -> Result<Option<ClientRecord>, StoreError> {
    tx.row(&GET, &[id.as_str().into()], client)
}

/// `false` if there is one of this id already; nothing changes then.
pub fn client_insert(tx: &mut Tx<'_>, client: &ClientRecord) -> Result<bool, StoreError> {
    let scopes = to_json(&client.scopes);
    let n_inserted = tx.execute(
        &INSERT,
        &[
            client.client_id.as_str().into(),
            (&client.description).into(),
            (&scopes).into(),
            (&client.sealed_access_token).into(),
            client.expires.into(),
            client.created.into(),
            client.last_modified.into(),
            client.last_date_used.into(),
            client.last_rotated.into(),
            client.delete_on_expiration.into(),
            client.disabled.into(),
            client.version.into(),
        ],
    )?;
    bump_if(tx, n_inserted > 0)
}

/// Writes what can change, if nobody changed it since it was read. Returns the new version.
pub fn client_update(tx: &mut Tx<'_>, client: &ClientRecord) -> Result<Version, StoreError> {
    let scopes = to_json(&client.scopes);
    tx.execute_guarded(
        &UPDATE,
        &[
            (&client.description).into(),
            (&scopes).into(),
            (&client.sealed_access_token).into(),
            client.expires.into(),
            client.last_modified.into(),
            client.last_date_used.into(),
            client.last_rotated.into(),
            client.delete_on_expiration.into(),
            client.disabled.into(),
            client.client_id.as_str().into(),
            client.version.into(),
        ],
    )?;
    access_revision::bump(tx)?;
    Ok(client.version.next())
}

/// `false` if there was none.
pub fn client_delete(tx: &mut Tx<'_>, id: &ClientId) -> Result<bool, StoreError> {
    let n_deleted = tx.execute(&DELETE, &[id.as_str().into()])?;
    bump_if(tx, n_deleted > 0)
}

/// Those whose id begins with the prefix, by id.
pub fn client_list(
    tx: &mut Tx<'_>,
    prefix: &str,
    after: Option<&ClientId>,
    limit: u32,
) -> Result<Vec<ClientRecord>, StoreError> {
    let end = format!("{prefix}{AFTER_ALL}");
    let after = after.map_or("", ClientId::as_str);
    tx.rows(
        &LIST,
        &[after.into(), prefix.into(), (&end).into(), limit.into()],
        client,
    )
}

/// Returns which there were; as many as the limit means: ask again.
pub fn client_delete_expired(
    tx: &mut Tx<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<Vec<ClientId>, StoreError> {
    let values = [now.into(), limit.into()];
    let deleted = tx.rows(&DELETE_EXPIRED, &values, |row| Ok(row.text(0)?.parse()?))?;
    bump_if(tx, !deleted.is_empty())?;
    Ok(deleted)
}

/// Remembers that they signed something. No change of the client: version and revision stay.
pub fn client_touch(tx: &mut Tx<'_>, ids: &[ClientId], date: Timestamp) -> Result<(), StoreError> {
    for id in ids {
        tx.execute(&TOUCH, &[date.into(), id.as_str().into()])?;
    }
    Ok(())
}

fn bump_if(tx: &mut Tx<'_>, changed: bool) -> Result<bool, StoreError> {
    if changed {
        access_revision::bump(tx)?;
    }
    Ok(changed)
}

fn client(row: &Row<'_>) -> Result<ClientRecord, BadRow> {
    Ok(ClientRecord {
        client_id: row.text(0)?.parse()?,
        description: row.text(1)?.to_owned(),
        scopes: row.json(2)?,
        sealed_access_token: row.text(3)?.to_owned(),
        expires: row.time(4)?,
        created: row.time(5)?,
        last_modified: row.time(6)?,
        last_date_used: row.time(7)?,
        last_rotated: row.time(8)?,
        delete_on_expiration: row.flag(9)?,
        disabled: row.flag(10)?,
        version: row.version(11)?,
    })
}
