//! A number that grows with every change of a client or a role, so that caches know when to reload.

use crate::error::StoreError;
use crate::statement::{Table, statements};
use crate::tx::Tx;

static TABLE: Table = Table {
    name: "revisions",
    key_columns: 1,
};

statements! { TABLE;
    GET "access_revision" = "SELECT name, value FROM revisions WHERE name = 'access'";
    BUMP "access_revision_bump" = "UPDATE revisions SET value = value + 1 WHERE name = 'access'";
}

pub fn access_revision(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    tx.row(&GET, &[], |row| row.integer(1))?
        .ok_or_else(|| StoreError::corrupt(TABLE.name, "access", "it is missing"))
}

/// Belongs into every transaction that changes what somebody may do.
pub(crate) fn bump(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    tx.execute(&BUMP, &[]).map(drop)
}
