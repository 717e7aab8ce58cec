//! One connection to either database, owned by one thread, and the transactions that run on it.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::counts::Counter;
use crate::error::StoreError;
use crate::failure::Failure;
use crate::lanes::Lanes;
use crate::lock::lock;
use crate::pause::Pause;
use crate::postgres_session::PostgresSession;
use crate::row::{BadRow, Row};
use crate::sqlite::{Mode, SqliteSession};
use crate::statement::Statement;
use crate::stopwatch::Stopwatch;
use crate::tx::Tx;
use crate::value::Value;

/// How often a transaction that lost to others runs before the caller is told.
pub const MAX_ATTEMPTS: u32 = 20;

pub(crate) struct Session {
    pub(crate) connection: Connection,
    pub(crate) address: String,
    pub(crate) pause: Pause,
    pub(crate) counter: Counter,
    /// For simulations: nothing can be inserted.
    pub(crate) is_full: bool,
    pub(crate) lanes: Arc<Lanes>,
}

pub(crate) enum Connection {
    Sqlite(SqliteSession),
    Postgres(Box<PostgresSession>),
}

/// What one run of a transaction came to.
enum Attempt<R> {
    Done(R),
    /// Another transaction was in the way of this statement.
    Again(&'static str),
}

impl Session {
    /// Runs the closure until it commits, fails for good, or lost too often.
    pub(crate) fn write<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        mut f: impl FnMut(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.measured(name, |session| {
            let mut run = |session: &mut Self| match session.attempt(Mode::Write, name, &mut f) {
                Attempt::Done(result) => Some(result),
                Attempt::Again(statement) => {
                    metrics::counter!(
                        "fleetwright_store_conflicts_total", "name" => name, "statement" => statement
                    )
                    .increment(1);
                    None
                }
            };
            if let Some(result) = run(session) {
                return result;
            }
            let lane = session.lanes.of(name);
            let _alone = lock(&lane);
            for attempt in 2..=MAX_ATTEMPTS {
                metrics::counter!("fleetwright_store_retries_total", "name" => name).increment(1);
                session.pause.before_attempt(attempt);
                if let Some(result) = run(session) {
                    return result;
                }
            }
            Err(StoreError::Congested {
                name,
                attempts: MAX_ATTEMPTS,
            }
            .into())
        })
    }

    /// What is committed meanwhile is on the disk, whatever happens to the machine.
    pub(crate) fn durably<T, E: From<StoreError>>(
        &mut self,
        run: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        self.set_durable(true)?;
        let result = run(self);
        self.set_durable(false)?;
        result
    }

    fn set_durable(&mut self, is_durable: bool) -> Result<(), StoreError> {
        let set = match &self.connection {
            Connection::Sqlite(sqlite) => sqlite.set_durable(is_durable),
            // There each commit waits for the disk, unless the server was told otherwise.
            Connection::Postgres(_) => Ok(()),
        };
        set.map_err(|failure| self.error("synchronous", failure))
    }

    /// Runs the closure once on one snapshot.
    pub(crate) fn read<T, E: From<StoreError>>(
        &mut self,
        name: &'static str,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> Result<T, E> {
        self.measured(name, |session| match session.attempt(Mode::Read, name, f) {
            Attempt::Done(result) => result,
            Attempt::Again(_) => Err(StoreError::Congested { name, attempts: 1 }.into()),
        })
    }

    fn measured<T, E>(
        &mut self,
        name: &'static str,
        run: impl FnOnce(&mut Self) -> Result<T, E>,
    ) -> Result<T, E> {
        let stopwatch = Stopwatch::start();
        let engine = self.engine_name();
        let result = run(self);
        let outcome = if result.is_ok() { "ok" } else { "error" };
        metrics::histogram!(
            "fleetwright_store_seconds", "name" => name, "engine" => engine, "outcome" => outcome
        )
        .record(stopwatch.seconds());
        result
    }

    fn attempt<T, E: From<StoreError>>(
        &mut self,
        mode: Mode,
        name: &'static str,
        f: impl FnOnce(&mut Tx<'_>) -> Result<T, E>,
    ) -> Attempt<Result<T, E>> {
        self.counter.transaction(name);
        if let Err(failure) = self.begin(mode) {
            return match failure {
                Failure::Conflict(_) => Attempt::Again("begin"),
                Failure::Lost(_) | Failure::NotMigrated(_) | Failure::Other(_) => {
                    Attempt::Done(Err(self.error("begin", failure).into()))
                }
            };
        }
        let mut tx = Tx::new(self);
        let outcome = catch_unwind(AssertUnwindSafe(|| f(&mut tx)));
        let (conflict, spoiled) = (tx.conflict(), tx.is_spoiled());
        let again = conflict.is_some();
        match outcome {
            Err(_panic) => {
                self.give_up_connection();
                Attempt::Done(Err(StoreError::Panicked { name }.into()))
            }
            Ok(Err(error)) if !again => {
                self.rollback();
                Attempt::Done(Err(error))
            }
            Ok(Ok(_)) if spoiled && !again && mode == Mode::Write => {
                self.rollback();
                Attempt::Done(Err(StoreError::Overlooked { name }.into()))
            }
            Ok(Ok(value)) if !again => self.finish(mode, name, value),
            // A read runs once: its own error says more than "congested".
            Ok(Err(error)) if mode == Mode::Read => {
                self.rollback();
                Attempt::Done(Err(error))
            }
            Ok(_) => {
                self.rollback();
                Attempt::Again(conflict.unwrap_or("unknown"))
            }
        }
    }

    fn finish<T, E: From<StoreError>>(
        &mut self,
        mode: Mode,
        name: &'static str,
        value: T,
    ) -> Attempt<Result<T, E>> {
        let committed = match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.commit(),
            Connection::Postgres(postgres) => postgres.commit(),
        };
        match committed {
            Ok(()) => Attempt::Done(Ok(value)),
            // All that was asked for has been read.
            Err(_) if mode == Mode::Read => {
                self.rollback();
                Attempt::Done(Ok(value))
            }
            Err(Failure::Conflict(_)) => {
                self.rollback();
                Attempt::Again("commit")
            }
            Err(Failure::Lost(source)) => {
                Attempt::Done(Err(StoreError::OutcomeUnknown { name, source }.into()))
            }
            Err(failure @ (Failure::NotMigrated(_) | Failure::Other(_))) => {
                self.rollback();
                Attempt::Done(Err(self.error("commit", failure).into()))
            }
        }
    }

    pub(crate) fn begin(&mut self, mode: Mode) -> Result<(), Failure> {
        match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.begin(mode),
            Connection::Postgres(postgres) => postgres.begin(mode),
        }
    }

    pub(crate) fn rollback(&mut self) {
        let rolled_back = match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.rollback(),
            Connection::Postgres(postgres) => postgres.rollback(),
        };
        if let Err(failure) = rolled_back {
            tracing::warn!(
                ?failure,
                "a roll-back failed; the database ends the transaction itself"
            );
            self.give_up_connection();
        }
    }

    /// After a panic or a failed roll-back the state of the connection is not known.
    fn give_up_connection(&mut self) {
        match &mut self.connection {
            Connection::Sqlite(sqlite) => {
                // A file has no half-sent messages: rolling back is enough.
                let _ = sqlite.rollback();
            }
            Connection::Postgres(postgres) => postgres.forget(),
        }
    }

    pub(crate) fn execute(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failure> {
        self.counter.statement(statement, 0);
        if self.is_full && statement.inserts() {
            return Err(Failure::Other("database or disk is full".into()));
        }
        match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.execute(statement, values),
            Connection::Postgres(postgres) => postgres.execute(statement, values),
        }
    }

    pub(crate) fn rows<T>(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        read: &mut dyn FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<Result<Vec<T>, StoreError>, Failure> {
        if self.is_full && statement.inserts() {
            return Err(Failure::Other("database or disk is full".into()));
        }
        let rows = match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.rows(statement, values, read),
            Connection::Postgres(postgres) => postgres.rows(statement, values, read),
        };
        let n_rows = match &rows {
            Ok(Ok(rows)) => rows.len(),
            Ok(Err(_)) | Err(_) => 0,
        };
        self.counter.statement(statement, n_rows);
        rows
    }

    /// How many parameters the database sees in the statement.
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

    pub(crate) fn error(&self, statement: &'static str, failure: Failure) -> StoreError {
        match failure {
            Failure::Lost(source) => StoreError::Unavailable {
                address: self.address.clone(),
                source,
            },
            Failure::NotMigrated(source) => StoreError::NotMigrated { statement, source },
            Failure::Conflict(source) | Failure::Other(source) => {
                StoreError::Query { statement, source }
            }
        }
    }
}
