//! One connection to either database, owned by one thread.

use std::sync::Arc;

use crate::engine::counts::Counter;
use crate::engine::error::StoreError;
use crate::engine::failure::Failure;
use crate::engine::lanes::Lanes;
use crate::engine::pause::Pause;
use crate::engine::postgres_session::PostgresSession;
use crate::engine::row::{BadRow, Row};
use crate::engine::sqlite::{Mode, SqliteSession};
use crate::engine::statement::Statement;
use crate::engine::value::Value;

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

impl Session {
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

    pub(crate) fn begin(&mut self, mode: Mode) -> Result<(), Failure> {
        match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.begin(mode),
            Connection::Postgres(postgres) => postgres.begin(mode),
        }
    }

    pub(crate) fn commit(&mut self) -> Result<(), Failure> {
        match &mut self.connection {
            Connection::Sqlite(sqlite) => sqlite.commit(),
            Connection::Postgres(postgres) => postgres.commit(),
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
    pub(crate) fn give_up_connection(&mut self) {
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
