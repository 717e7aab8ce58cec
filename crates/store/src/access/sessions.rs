//! Sessions: browsers that are signed in, and links that sign a browser in.

use domain::session::Session;
use domain::time::Timestamp;

use crate::engine::{ALL_ROWS, Result, Table, Tx, columns, statements};

columns! { session: Session {
    id: Key "session_id",
    kind: Fixed "kind",
    client_id: Fixed "client_id",
    sealed_credentials: Fixed "sealed_credentials",
    browser: Fixed "browser",
    created: Fixed "created",
    last_used: Mutable "last_used",
    expires: Mutable "expires",
    ends: Fixed "ends",
} }

static TABLE: Table = Table::of::<Session>("sessions");

statements! { TABLE;
    GET "session_get" = "SELECT {columns} FROM sessions WHERE session_id = $1";
    INSERT "session_insert" = "INSERT INTO sessions ({written}) VALUES ({values})";
    NOTE_USE "session_note_use" =
        "UPDATE sessions SET last_used = $1, expires = $2 WHERE session_id = $3";
    DELETE "session_delete" = "DELETE FROM sessions WHERE session_id = $1";
    DELETE_OF_CLIENT "session_delete_of_client" =
        "DELETE FROM sessions WHERE client_id = $1";
    DELETE_OLDER "session_delete_older" =
        "DELETE FROM sessions WHERE session_id IN (SELECT session_id FROM sessions \
         WHERE client_id = $1 AND kind = $2 ORDER BY last_used DESC, session_id DESC \
         LIMIT $3 OFFSET $4)";
    DELETE_ENDED "session_delete_ended" =
        "DELETE FROM sessions WHERE session_id IN (SELECT session_id FROM sessions \
         WHERE expires < $1 ORDER BY expires LIMIT $2)";
}

pub fn get(tx: &mut Tx<'_>, id: &str) -> Result<Option<Session>> {
    tx.row(&GET, id)
}

/// Writes a new session. Links have a limit of their own, so that they end no session: this deletes
/// those of the same client and kind that were used longest ago, until
/// `limit` are left.
pub fn insert(tx: &mut Tx<'_>, session: &Session, limit: u32) -> Result<()> {
    tx.insert(&INSERT, session)?;
    let (client, kind) = (session.client_id.as_str(), session.kind.as_str());
    tx.run(&DELETE_OLDER, (client, kind, ALL_ROWS, limit))?;
    Ok(())
}

pub fn note_use(tx: &mut Tx<'_>, session: &Session) -> Result<()> {
    let Session {
        id,
        last_used,
        expires,
        ..
    } = session;
    tx.run(&NOTE_USE, (*last_used, *expires, id.as_str()))
}

/// Whether there was such a session. Of two transactions that delete it, one gets `true`.
pub fn delete(tx: &mut Tx<'_>, id: &str) -> Result<bool> {
    Ok(tx.execute(&DELETE, id)? > 0)
}

/// Ends all sessions and links of a client, and returns their number.
pub fn delete_of_client(tx: &mut Tx<'_>, client_id: &str) -> Result<u64> {
    tx.execute(&DELETE_OF_CLIENT, client_id)
}

/// Deletes sessions that ended before this time. Call it again while it returns the limit.
pub fn delete_ended(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_ENDED, (before, limit))
}
