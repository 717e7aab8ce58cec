//! Secrets: values that workers and people fetch by name.

use domain::access::SecretRecord;
use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, columns, statements};

columns! { secret: SecretRecord {
    name: Key "name",
    sealed_value: Mutable "sealed_value",
    expires: Mutable "expires",
    last_modified: Mutable "last_modified",
} }

static TABLE: Table = Table::of::<SecretRecord>("secrets");

statements! { TABLE;
    GET "secret_get" = "SELECT {columns} FROM secrets WHERE name = $1";
    PUT "secret_put" =
        "INSERT INTO secrets ({written}) VALUES ({values}) ON CONFLICT (name) DO UPDATE \
         SET sealed_value = excluded.sealed_value, expires = excluded.expires, \
         last_modified = excluded.last_modified";
    SEAL_AGAIN "secret_seal_again" =
        "UPDATE secrets SET sealed_value = $1 WHERE name = $2 AND sealed_value = $3";
    DELETE "secret_delete" = "DELETE FROM secrets WHERE name = $1";
    NAMES "secret_names" =
        "SELECT name FROM secrets WHERE name > $1 AND expires > $2 ORDER BY name LIMIT $3";
    LIST "secret_list" =
        "SELECT {columns} FROM secrets WHERE name > $1 ORDER BY name LIMIT $2";
    DELETE_EXPIRED "secret_delete_expired" =
        "DELETE FROM secrets WHERE name IN \
         (SELECT name FROM secrets WHERE expires <= $1 ORDER BY expires LIMIT $2)";
}

pub fn get(tx: &mut Tx<'_>, name: &str) -> Result<Option<SecretRecord>> {
    tx.row(&GET, name)
}

/// Writes a secret, in place of the one that has this name.
pub fn put(tx: &mut Tx<'_>, secret: &SecretRecord) -> Result<()> {
    tx.insert(&PUT, secret).map(drop)
}

/// Replaces the sealed value, unless it was changed since it was read.
pub fn seal_again(tx: &mut Tx<'_>, known: &SecretRecord, sealed: &str) -> Result<()> {
    let values = (sealed, known.name.as_str(), known.sealed_value.as_str());
    tx.run(&SEAL_AGAIN, values)
}

/// Returns `false` if the row does not exist.
pub fn delete(tx: &mut Tx<'_>, name: &str) -> Result<bool> {
    Ok(tx.execute(&DELETE, name)? > 0)
}

/// The names of those that have not expired, in order.
pub fn names(tx: &mut Tx<'_>, after: &str, now: Timestamp, limit: u32) -> Result<Vec<String>> {
    tx.rows(&NAMES, (after, now, limit))
}

/// Secrets in the order of their names. Each may have a megabyte: ask for few.
pub fn list(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<Vec<SecretRecord>> {
    tx.rows(&LIST, (after, limit))
}

/// Deletes at most `limit` rows. Call it again while it returns the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_EXPIRED, (now, limit))
}
