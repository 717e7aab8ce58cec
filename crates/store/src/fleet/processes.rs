//! The processes of the deployment, as each of them last announced itself.

use domain::time::Timestamp;

use crate::engine::{Result, Table, Tx, columns, statements};

columns! { row: ProcessRow {
    process_id: Key "process_id",
    host: Fixed "host",
    pid: Fixed "pid",
    roles: Mutable "roles",
    version: Fixed "version",
    started: Fixed "started",
    last_seen: Mutable "last_seen",
    clock_ahead_ms: Mutable "clock_ahead_ms",
} }

static TABLE: Table = Table::of::<ProcessRow>("processes");

statements! { TABLE;
    LIST "process_list" =
        "SELECT {columns} FROM processes WHERE process_id > $1 ORDER BY process_id LIMIT $2";
    WRITE "process_write" =
        "INSERT INTO processes ({written}) VALUES ({values}) ON CONFLICT (process_id) \
         DO UPDATE SET roles = excluded.roles, last_seen = excluded.last_seen, \
         clock_ahead_ms = excluded.clock_ahead_ms";
    DELETE "process_delete" = "DELETE FROM processes WHERE process_id = $1";
    DELETE_SILENT "process_delete_silent" =
        "DELETE FROM processes WHERE process_id IN (SELECT process_id FROM processes \
         WHERE last_seen < $1 ORDER BY last_seen LIMIT $2)";
}

/// A process of the deployment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessRow {
    pub process_id: String,
    pub host: String,
    pub pid: u32,
    pub roles: Vec<String>,
    pub version: String,
    pub started: Timestamp,
    pub last_seen: Timestamp,
    /// How far the clock of its machine is ahead of the database's; `None`: not known yet.
    pub clock_ahead_ms: Option<i64>,
}

/// Ordered by id.
pub fn list(tx: &mut Tx<'_>, after: Option<&str>, limit: u32) -> Result<Vec<ProcessRow>> {
    tx.rows(&LIST, (after.unwrap_or(""), limit))
}

/// Writes what the process announces now.
pub fn write(tx: &mut Tx<'_>, row: &ProcessRow) -> Result<()> {
    tx.insert(&WRITE, row)?;
    Ok(())
}

/// The process ends.
pub fn delete(tx: &mut Tx<'_>, process_id: &str) -> Result<()> {
    tx.run(&DELETE, process_id)
}

/// Deletes processes that announced nothing since then. Call it again while it returns the limit.
pub fn delete_silent(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_SILENT, (before, limit))
}
