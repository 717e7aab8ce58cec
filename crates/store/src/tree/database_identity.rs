//! The identity of the database. A tree elsewhere knows it by this.

use crate::engine::{Result, StoreError, Table, Tx, statements};

static TABLE: Table = Table::unlisted("database_identity", 1);

const THIS: &str = "this";

statements! { TABLE;
    GET "database_identity_get" = "SELECT id FROM database_identity WHERE name = $1";
    INSERT "database_identity_insert" =
        "INSERT INTO database_identity (name, id) VALUES ($1, $2) ON CONFLICT (name) DO NOTHING";
}

/// The id; the given one if there is none yet.
pub fn get_or_insert(tx: &mut Tx<'_>, new: &str) -> Result<String> {
    if let Some(id) = tx.row(&GET, THIS)? {
        return Ok(id);
    }
    tx.execute(&INSERT, (THIS, new))?;
    let id = tx.row(&GET, THIS)?;
    id.ok_or_else(|| StoreError::corrupt(TABLE.name, THIS, "it is missing"))
}
