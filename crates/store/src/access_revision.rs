//! A number that grows with every change of a client or a role, so that caches know when to reload.
//!
//! It is a sum over several rows: transactions that run at once add to different rows, so that none is in the way
//! of another. Each commit makes the sum larger for all that look afterwards, in whatever order they commit.

use crate::error::StoreError;
use crate::statement::{Table, statements};
use crate::tx::Tx;

static TABLE: Table = Table {
    name: "revisions",
    key_columns: 1,
};

statements! { TABLE;
    GET "access_revision" =
        "SELECT CAST(SUM(value) AS BIGINT) FROM revisions \
         WHERE name = 'access' OR (name > 'access/' AND name < 'access0')";
    BUMP "access_revision_bump" =
        "INSERT INTO revisions (name, value) VALUES ($1, 1) \
         ON CONFLICT (name) DO UPDATE SET value = revisions.value + 1";
}

pub fn access_revision(tx: &mut Tx<'_>) -> Result<i64, StoreError> {
    tx.row(&GET, &[], |row| row.optional_integer(0))?
        .flatten()
        .ok_or_else(|| StoreError::corrupt(TABLE.name, "access", "it is missing"))
}

/// Belongs into every transaction that changes what somebody may do.
pub(crate) fn bump(tx: &mut Tx<'_>) -> Result<(), StoreError> {
    let name = format!("access/{:02}", tx.slot());
    tx.execute(&BUMP, &[(&name).into()]).map(drop)
}
