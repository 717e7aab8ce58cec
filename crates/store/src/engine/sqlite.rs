//! A connection to SQLite, in write-ahead mode: one writer and many readers.

use std::cell::Cell;
use std::path::Path;
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, StatementStatus};

use crate::engine::{
    backoff::Backoff, error::Result, failure::Failure, row::ReadRow, row::Row,
    statement::Statement, value::Value,
};

/// How long SQLite waits for a lock that another process holds.
const BUSY_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of attempts to open the database: switching to write-ahead mode does not wait for
/// locks.
const OPEN_ATTEMPTS: u32 = 10;
/// Exceeds the number of statements.
const STATEMENT_CACHE: usize = 256;
/// A commit moves a longer log into the file, and waits for the disk. The thread of `Checkpoints`
/// does so earlier, unless transactions follow each other without a gap.
const LOG_BYTES: i64 = 16 * 1024 * 1024;
const PAGE_BYTES: i64 = 4096;
/// Memory of the connection that writes. SQLite's own limit, 2 MiB, holds less than the inner pages
/// of a large database's indexes.
const WRITER_CACHE_BYTES: i64 = 16 * 1024 * 1024;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

pub(crate) struct SqliteSession {
    connection: Connection,
    /// Steps of SQLite's machine for the statements of this transaction so far.
    work: Cell<u64>,
}

impl SqliteSession {
    pub(crate) fn open(path: &Path, mode: Mode, backoff: &Backoff) -> Result<Self, Failure> {
        let mut attempt = 1;
        loop {
            match Self::try_open(path, mode).map_err(Failure::from) {
                Err(Failure::Conflict(_)) if attempt < OPEN_ATTEMPTS => {
                    backoff.wait_before_attempt(attempt + 1);
                    attempt += 1;
                }
                result => return result,
            }
        }
    }

    fn try_open(path: &Path, mode: Mode) -> rusqlite::Result<Self> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_CREATE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        make_private(path);
        let connection = Connection::open_with_flags(path, flags)?;
        connection.busy_timeout(BUSY_TIMEOUT)?;
        connection.pragma_update_and_check(None, "journal_mode", "WAL", |_| Ok(()))?;
        connection.pragma_update(None, "synchronous", "NORMAL")?;
        let session = Self::configured(connection, mode)?;
        if mode == Mode::Write {
            session.prepare_for_writing()?;
        }
        Ok(session)
    }

    fn prepare_for_writing(&self) -> rusqlite::Result<()> {
        let pages = LOG_BYTES / PAGE_BYTES;
        self.connection
            .pragma_update_and_check(None, "wal_autocheckpoint", pages, |_| Ok(()))?;
        // A negative number is KiB.
        self.connection
            .pragma_update(None, "cache_size", -WRITER_CACHE_BYTES / 1024)
    }

    pub(crate) fn open_in_memory() -> Result<Self, Failure> {
        Ok(Self::configured(
            Connection::open_in_memory()?,
            Mode::Write,
        )?)
    }

    fn configured(connection: Connection, mode: Mode) -> rusqlite::Result<Self> {
        connection.pragma_update(None, "foreign_keys", true)?;
        connection.pragma_update(None, "query_only", mode == Mode::Read)?;
        // Otherwise SQLite plans a statement again whenever a parameter of a range is bound, which
        // costs more than most of our statements.
        connection.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        connection.set_prepared_statement_cache_capacity(STATEMENT_CACHE);
        Ok(Self {
            connection,
            work: Cell::new(0),
        })
    }

    /// Copies every row to a temporary table.
    pub(crate) fn save_rows(&self) -> Result<(), Failure> {
        self.each_table("CREATE TEMP TABLE saved_{} AS SELECT * FROM main.{};")
    }

    /// Replaces all rows by the copies. The tables stay, and with them all prepared statements.
    pub(crate) fn restore_rows(&self) -> Result<(), Failure> {
        self.each_table("DELETE FROM main.{}; INSERT INTO main.{} SELECT * FROM temp.saved_{};")
    }

    fn each_table(&self, sql: &str) -> Result<(), Failure> {
        let names = "SELECT name FROM main.sqlite_master WHERE type = 'table'";
        let mut names = self.connection.prepare_cached(names)?;
        let names = names.query_map([], |row| row.get::<_, String>(0))?;
        let mut batch = String::from("BEGIN;");
        for name in names {
            batch.push_str(&sql.replace("{}", &name?));
        }
        batch.push_str("COMMIT;");
        self.batch(&batch)
    }

    /// Sets whether a commit waits for the disk, so that it survives a failure of the machine and
    /// not only of the process. Call it between transactions only.
    pub(crate) fn set_durable(&self, is_durable: bool) -> Result<(), Failure> {
        let level = if is_durable { "FULL" } else { "NORMAL" };
        Ok(self.connection.pragma_update(None, "synchronous", level)?)
    }

    pub(crate) fn begin(&self, mode: Mode) -> Result<(), Failure> {
        self.work.set(0);
        self.command(match mode {
            Mode::Read => "BEGIN DEFERRED",
            Mode::Write => "BEGIN IMMEDIATE",
        })
    }

    pub(crate) fn commit(&self) -> Result<(), Failure> {
        self.command("COMMIT")
    }

    pub(crate) fn rollback(&self) -> Result<(), Failure> {
        // Some errors end the transaction.
        if self.has_ended() {
            return Ok(());
        }
        self.command("ROLLBACK")
    }

    /// Begins one of the transactions that are committed together. After an error has ended theirs,
    /// a savepoint would be a transaction of its own, which is committed at once.
    pub(crate) fn begin_member(&self) -> Result<(), Failure> {
        if self.has_ended() {
            return Err(Failure::Other("the shared transaction has ended".into()));
        }
        self.work.set(0);
        self.command("SAVEPOINT member")
    }

    pub(crate) fn commit_member(&self) -> Result<(), Failure> {
        self.command("RELEASE member")
    }

    /// Some errors end the transaction of the group, and with it that of each member.
    pub(crate) fn rollback_member(&self) -> Result<(), Failure> {
        if self.has_ended() {
            return Ok(());
        }
        self.command("ROLLBACK TO member")?;
        self.command("RELEASE member")
    }

    /// Whether no transaction is open.
    pub(crate) fn has_ended(&self) -> bool {
        self.connection.is_autocommit()
    }

    /// The rows that this connection has changed since it opened.
    pub(crate) fn total_changes(&self) -> u64 {
        self.connection.total_changes()
    }

    pub(crate) fn execute(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failure> {
        let mut prepared = self.connection.prepare_cached(statement.sql())?;
        bind(&mut prepared, values)?;
        let n_changed = prepared.raw_execute()?;
        self.note_work(&prepared);
        Ok(u64::try_from(n_changed).unwrap_or(u64::MAX))
    }

    /// The outer result is an error of the driver, the inner one an error of `read`.
    pub(crate) fn rows(
        &self,
        statement: &Statement,
        values: &[Value<'_>],
        read: ReadRow<'_>,
    ) -> Result<Result<usize>, Failure> {
        let mut prepared = self.connection.prepare_cached(statement.sql())?;
        bind(&mut prepared, values)?;
        let mut rows = prepared.raw_query();
        let mut n_rows = 0;
        while let Some(row) = rows.next()? {
            let row = Row::Sqlite(row);
            if let Err(bad) = read(&row) {
                return Ok(Err(statement.corrupt(&row, bad)));
            }
            n_rows += 1;
        }
        drop(rows);
        self.note_work(&prepared);
        Ok(Ok(n_rows))
    }

    fn note_work(&self, prepared: &rusqlite::Statement<'_>) {
        let steps = prepared.reset_status(StatementStatus::VmStep);
        let steps = u64::try_from(steps).unwrap_or(0);
        self.work.set(self.work.get() + steps);
    }

    pub(crate) fn work(&self) -> u64 {
        self.work.get()
    }

    /// Moves the log into the file, as far as no reader needs the old pages. Neither waits for
    /// other connections nor makes them wait. Returns the pages of the log, and of those the moved.
    pub(crate) fn checkpoint(&self) -> Result<(i64, i64), Failure> {
        let pages = |row: &rusqlite::Row<'_>| Ok((row.get(1)?, row.get(2)?));
        Ok(self
            .connection
            .query_row("PRAGMA wal_checkpoint(PASSIVE)", [], pages)?)
    }

    pub(crate) fn batch(&self, sql: &str) -> Result<(), Failure> {
        Ok(self.connection.execute_batch(sql)?)
    }

    /// The last column of each row, as text.
    pub(crate) fn lines(&self, sql: &str) -> Result<Vec<String>, Failure> {
        let mut prepared = self.connection.prepare(sql)?;
        let last = prepared.column_count().saturating_sub(1);
        let mut rows = prepared.raw_query();
        let mut lines = Vec::new();
        while let Some(row) = rows.next()? {
            let value = row.get_ref(last)?;
            lines.push(match value {
                rusqlite::types::ValueRef::Text(text) => String::from_utf8_lossy(text).into_owned(),
                rusqlite::types::ValueRef::Integer(number) => number.to_string(),
                rusqlite::types::ValueRef::Null
                | rusqlite::types::ValueRef::Real(_)
                | rusqlite::types::ValueRef::Blob(_) => String::new(),
            });
        }
        Ok(lines)
    }

    pub(crate) fn prepare(&self, statement: &Statement) -> Result<usize, Failure> {
        Ok(self.connection.prepare(statement.sql())?.parameter_count())
    }

    fn command(&self, sql: &str) -> Result<(), Failure> {
        self.connection.prepare_cached(sql)?.raw_execute()?;
        Ok(())
    }
}

/// Creates the file readable by its owner only. If that fails, opening it reports the error.
#[cfg(unix)]
fn make_private(path: &Path) {
    use std::os::unix::fs::OpenOptionsExt;
    let mut new = std::fs::OpenOptions::new();
    let _ = new.write(true).create_new(true).mode(0o600).open(path);
}

#[cfg(not(unix))]
fn make_private(_path: &Path) {}

fn bind(prepared: &mut rusqlite::Statement<'_>, values: &[Value<'_>]) -> rusqlite::Result<()> {
    if prepared.parameter_count() != values.len() {
        return Err(rusqlite::Error::InvalidParameterCount(
            values.len(),
            prepared.parameter_count(),
        ));
    }
    for (index, value) in values.iter().enumerate() {
        prepared.raw_bind_parameter(index + 1, value)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_durable_commit_waits_for_the_disk() {
        let folder = tempfile::tempdir().unwrap();
        let (_open, closing) = flume::bounded(0);
        let backoff = Backoff { closing, thread: 0 };
        let path = folder.path().join("a.db");
        let session = SqliteSession::open(&path, Mode::Write, &backoff).unwrap();
        let level = |session: &SqliteSession| -> i64 {
            let found = session
                .connection
                .pragma_query_value(None, "synchronous", |row| row.get(0));
            found.unwrap()
        };
        assert_eq!(level(&session), 1);
        session.set_durable(true).unwrap();
        assert_eq!(level(&session), 2);
        session.set_durable(false).unwrap();
        assert_eq!(level(&session), 1);
    }
}
