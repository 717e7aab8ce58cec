//! A connection to PostgreSQL, opened when it is needed and reopened when it was lost.

use std::collections::HashMap;
use std::time::Duration;

use postgres::types::ToSql;
use postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::engine::{
    error::Result, failure::Failure, row::BadRow, row::Row, sqlite::Mode, statement::Statement,
    value::Value,
};

/// Our statements are faster than this; otherwise the server is stuck. Does not apply to
/// migrations.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a statement waits for a row that another transaction has written. Then its transaction
/// runs again, as after any conflict. Does not apply to migrations.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a transaction may be idle between two statements. Then the server ends it and releases
/// its locks: this process was frozen, or its machine has failed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(5);

pub(crate) struct PostgresSession {
    config: postgres::Config,
    tls: Option<MakeRustlsConnect>,
    connection: Option<Connection>,
}

struct Connection {
    client: Client,
    prepared: HashMap<&'static str, postgres::Statement>,
}

impl PostgresSession {
    pub(crate) fn new(config: postgres::Config, tls: Option<MakeRustlsConnect>) -> Self {
        Self {
            config,
            tls,
            connection: None,
        }
    }

    /// Reopens a lost connection, which is safe because the transaction has not begun.
    pub(crate) fn begin(&mut self, mode: Mode) -> Result<(), Failure> {
        let sql = match mode {
            Mode::Read => "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY",
            Mode::Write => "BEGIN ISOLATION LEVEL REPEATABLE READ",
        };
        match self.batch(sql) {
            Err(Failure::Lost(_)) => self.batch(sql),
            result => result,
        }
    }

    pub(crate) fn commit(&mut self) -> Result<(), Failure> {
        // Never reopens the connection: a commit on a new one would succeed without committing
        // anything.
        self.with(|connection| connection.client.batch_execute("COMMIT"))
    }

    pub(crate) fn rollback(&mut self) -> Result<(), Failure> {
        match &self.connection {
            Some(_) => self.batch("ROLLBACK"),
            None => Ok(()),
        }
    }

    /// Drops the connection, whatever its state.
    pub(crate) fn drop_connection(&mut self) {
        self.connection = None;
    }

    pub(crate) fn execute(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failure> {
        self.with(|connection| {
            let prepared = connection.prepare(statement)?;
            connection.client.execute(&prepared, &parameters(values))
        })
    }

    /// The outer result is an error of the driver, the inner one an error of `read`.
    pub(crate) fn rows<T>(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        read: &mut dyn FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<Result<Vec<T>>, Failure> {
        let rows = self.with(|connection| {
            let prepared = connection.prepare(statement)?;
            connection.client.query(&prepared, &parameters(values))
        })?;
        let mut found = Vec::with_capacity(rows.len());
        for row in &rows {
            let row = Row::Postgres(row);
            match read(&row) {
                Ok(item) => found.push(item),
                Err(bad) => return Ok(Err(statement.corrupt(&row, bad))),
            }
        }
        Ok(Ok(found))
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Failure> {
        self.connect()?;
        self.with(|connection| connection.client.batch_execute(sql))
    }

    pub(crate) fn prepare(&mut self, statement: &Statement) -> Result<usize, Failure> {
        self.with(|connection| Ok(connection.prepare(statement)?.params().len()))
    }

    fn connect(&mut self) -> Result<(), Failure> {
        if self
            .connection
            .as_ref()
            .is_some_and(|c| !c.client.is_closed())
        {
            return Ok(());
        }
        self.connection = None;
        let connected = match &self.tls {
            Some(tls) => self.config.connect(tls.clone()),
            None => self.config.connect(NoTls),
        };
        // Every error while connecting means that there is no connection.
        let mut client =
            connected.map_err(|error| Failure::Lost(Failure::from(error).into_source()))?;
        client.batch_execute(&session_settings())?;
        self.connection = Some(Connection {
            client,
            prepared: HashMap::new(),
        });
        Ok(())
    }

    /// Runs one step, and drops the connection if the step finds it lost.
    fn with<T>(
        &mut self,
        step: impl FnOnce(&mut Connection) -> Result<T, postgres::Error>,
    ) -> Result<T, Failure> {
        let Some(connection) = &mut self.connection else {
            // Never reopen it here: the rest of a transaction must not run outside of it.
            return Err(Failure::Lost("the connection was lost".into()));
        };
        step(connection).map_err(|error| {
            let failure = Failure::from(error);
            if matches!(failure, Failure::Lost(_)) {
                self.connection = None;
            }
            failure
        })
    }
}

fn session_settings() -> String {
    let limits = [
        ("statement_timeout", STATEMENT_TIMEOUT),
        ("lock_timeout", LOCK_TIMEOUT),
        ("idle_in_transaction_session_timeout", IDLE_TIMEOUT),
    ];
    let settings = limits.map(|(name, limit)| format!("SET {name} = {}", limit.as_millis()));
    settings.join("; ")
}

impl Connection {
    fn prepare(&mut self, statement: &Statement) -> Result<postgres::Statement, postgres::Error> {
        if let Some(prepared) = self.prepared.get(statement.name) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(&statement.postgres_sql())?;
        self.prepared.insert(statement.name, prepared.clone());
        Ok(prepared)
    }
}

fn parameters<'a>(values: &'a [Value<'_>]) -> Vec<&'a (dyn ToSql + Sync)> {
    values
        .iter()
        .map(|value| value as &(dyn ToSql + Sync))
        .collect()
}
