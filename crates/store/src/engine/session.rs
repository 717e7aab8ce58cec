//! One connection to either database, owned by one thread.

use std::sync::Arc;

use crate::engine::{
    backoff::Backoff, checkpoints::Checkpoints, counts::Counter, error::Result, error::StoreError,
    failure::Failure, pipeline::Expected, pipeline::lost_race, postgres_session::PostgresSession,
    row::ReadRow, sqlite::Mode, sqlite::SqliteSession, statement::Statement, stopwatch::Stopwatch,
    touched::Touched, touched::Touches, value::Value,
};

pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) address: String,
    pub(crate) backoff: Backoff,
    /// Of the connection to SQLite that writes.
    pub(crate) checkpoints: Option<Checkpoints>,
    pub(crate) counter: Counter,
    /// While transactions are committed together: what those that succeeded have changed.
    pub(crate) group: Option<Vec<Touches>>,
    /// For simulations: inserts fail.
    pub(crate) is_full: bool,
    pub(crate) touched: Arc<Touched>,
}

pub(crate) enum Connection {
    Sqlite(SqliteSession),
    Postgres(Box<PostgresSession>),
}

impl Session {
    /// Durable commits survive a power failure.
    pub(crate) fn set_durable(&mut self, is_durable: bool) -> Result<()> {
        let set = match &self.connection {
            Connection::Sqlite(sqlite) => sqlite.set_durable(is_durable),
            // PostgreSQL waits for the disk at each commit, unless its configuration says
            // otherwise.
            Connection::Postgres(_) => Ok(()),
        };
        set.map_err(|failure| self.error("synchronous", failure))
    }

    /// How long a transaction waited for this session.
    pub(crate) fn has_waited(&self, waiting: &Stopwatch) {
        metrics::histogram!("fleetwright_store_wait_seconds", "engine" => self.engine_name())
            .record(waiting.seconds());
    }

    pub(crate) fn begin(&mut self, mode: Mode) -> Result<(), Failure> {
        match &mut self.connection {
            Connection::Sqlite(sqlite) if self.group.is_some() => sqlite.begin_member(),
            Connection::Sqlite(sqlite) => sqlite.begin(mode),
            Connection::Postgres(postgres) => postgres.begin(mode),
        }
    }

    pub(crate) fn commit(&mut self) -> Result<(), Failure> {
        if self.group.is_none() {
            self.counter.commit();
        }
        match &mut self.connection {
            Connection::Sqlite(sqlite) if self.group.is_some() => sqlite.commit_member(),
            Connection::Sqlite(sqlite) => {
                sqlite.commit()?;
                if let Some(checkpoints) = &self.checkpoints {
                    checkpoints.note(sqlite.total_changes());
                }
                Ok(())
            }
            Connection::Postgres(postgres) => postgres.commit(),
        }
    }

    /// Counts what the database has done in this transaction, if that is wanted.
    pub(crate) fn note_work(&mut self, name: &'static str) -> Result<(), Failure> {
        if !self.counter.counts_work() {
            return Ok(());
        }
        let work = match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.work(),
            Connection::Postgres(postgres) => postgres.work()?,
        };
        self.counter.work(name, work);
        Ok(())
    }

    /// Ends a read. Nothing can be lost, so PostgreSQL does it on its own.
    pub(crate) fn end_read(&mut self) -> Result<(), Failure> {
        match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.commit(),
            Connection::Postgres(postgres) => postgres.end_read(),
        }
    }

    pub(crate) fn rollback(&mut self) {
        let rolled_back = match &mut self.connection {
            Connection::Sqlite(sqlite) if self.group.is_some() => sqlite.rollback_member(),
            Connection::Sqlite(sqlite) => sqlite.rollback(),
            Connection::Postgres(postgres) => postgres.rollback(),
        };
        if let Err(failure) = rolled_back {
            tracing::warn!(
                ?failure,
                "a rollback failed; the database ends the transaction itself"
            );
            self.abandon_connection();
        }
    }

    /// Resets or drops the connection: after a panic or a failed rollback its state is not known.
    pub(crate) fn abandon_connection(&mut self) {
        match &mut self.connection {
            // SQLite has no protocol that could be out of step, so a rollback is enough.
            Connection::Sqlite(sqlite) => {
                if self.group.is_none() || sqlite.rollback_member().is_err() {
                    let _ = sqlite.rollback();
                }
            }
            Connection::Postgres(postgres) => postgres.drop_connection(),
        }
    }

    pub(crate) fn execute(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failure> {
        if self.is_full && statement.inserts() {
            return Err(Failure::Full("database or disk is full".into()));
        }
        let watch = self.counter.watch();
        let done = match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.execute(statement, values),
            Connection::Postgres(postgres) => postgres.execute(statement, values),
        };
        self.counter.statement(statement, 0, watch.as_ref());
        done
    }

    /// Runs a statement whose result is not needed: PostgreSQL gets it with the next one.
    pub(crate) fn run_later(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value<'_>>,
        expected: Expected,
    ) -> Result<(), Failure> {
        if self.is_full && statement.inserts() {
            return Err(Failure::Full("database or disk is full".into()));
        }
        match &mut self.connection {
            Connection::Postgres(postgres) => {
                // Its rows are counted when they are read.
                if matches!(expected, Expected::Done | Expected::Change) {
                    self.counter.statement(statement, 0, None);
                }
                postgres.run_later(statement, values, expected)
            }
            Connection::Sqlite(_) if matches!(expected, Expected::Rows | Expected::Setting) => {
                Ok(())
            }
            Connection::Sqlite(_) => match self.execute(statement, &values)? {
                0 if expected == Expected::Change => Err(lost_race()),
                _ => Ok(()),
            },
        }
    }

    /// The statement that failed, if it was an earlier one than that which was sent.
    pub(crate) fn take_failed(&mut self) -> Option<&'static str> {
        match &mut self.connection {
            Connection::Sqlite(_) => None,
            Connection::Postgres(postgres) => postgres.take_failed(),
        }
    }

    /// Hands each row to `read`, and returns their number. The inner error is that of a row that
    /// cannot be read.
    pub(crate) fn rows(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        read: ReadRow<'_>,
    ) -> Result<Result<usize>, Failure> {
        if self.is_full && statement.inserts() {
            return Err(Failure::Full("database or disk is full".into()));
        }
        let watch = self.counter.watch();
        let rows = match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.rows(statement, values, read),
            Connection::Postgres(postgres) => postgres.rows(statement, values, read),
        };
        let n_rows = match &rows {
            Ok(Ok(n_rows)) => *n_rows,
            Ok(Err(_)) | Err(_) => 0,
        };
        self.counter.statement(statement, n_rows, watch.as_ref());
        rows
    }

    /// Prepares the statement, and returns the number of parameters that the database finds in it.
    pub(crate) fn prepare(&mut self, statement: &Statement) -> Result<usize, Failure> {
        match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.prepare(statement),
            Connection::Postgres(postgres) => postgres.prepare(statement),
        }
    }

    pub(crate) fn engine_name(&self) -> &'static str {
        match &self.connection {
            Connection::Sqlite(_) => "sqlite",
            Connection::Postgres(_) => "postgres",
        }
    }

    /// One transaction that is tried once, for work below statements.
    pub(crate) fn once<T>(
        &mut self,
        name: &'static str,
        mode: Mode,
        work: impl FnOnce(&mut Self) -> Result<T>,
    ) -> Result<T> {
        self.begin(mode)
            .map_err(|failure| self.error(name, failure))?;
        let done = work(self).and_then(|value| {
            let committed = self.commit();
            committed.map_err(|failure| self.error(name, failure))?;
            Ok(value)
        });
        if done.is_err() {
            self.rollback();
        }
        done
    }

    pub(crate) fn error(&self, statement: &'static str, failure: Failure) -> StoreError {
        match failure {
            Failure::Lost(source) => StoreError::Unavailable {
                address: self.address.clone(),
                source,
            },
            Failure::NotMigrated(source) => StoreError::NotMigrated { statement, source },
            Failure::Full(source) => StoreError::Full { statement, source },
            Failure::Conflict(source) | Failure::Other(source) => {
                StoreError::Query { statement, source }
            }
        }
    }
}
