//! A connection to PostgreSQL that is made when it is needed and made again when it was lost.

use std::collections::HashMap;
use std::time::Duration;

use postgres::types::ToSql;
use postgres::{Client, NoTls};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::engine::error::StoreError;
use crate::engine::failure::Failure;
use crate::engine::row::{BadRow, Row};
use crate::engine::sqlite::Mode;
use crate::engine::statement::Statement;
use crate::engine::value::Value;

/// No statement of ours runs this long; a server on which one does is stuck. Migrations lift it.
const STATEMENT_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a statement waits for a row that another transaction has written. Then all of its transaction runs
/// again, as after any conflict. Migrations lift it.
const LOCK_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a transaction may leave the server waiting for its next statement. Then the server ends it, and lets
/// others have what it had locked: our process was frozen, or its machine has vanished.
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

    /// Nothing has happened in a transaction that has not begun, so a lost connection is replaced here.
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
        // Not on a new connection, which has nothing to commit and would say that it did.
        self.with(|connection| connection.client.batch_execute("COMMIT"))
    }

    pub(crate) fn rollback(&mut self) -> Result<(), Failure> {
        match &self.connection {
            Some(_) => self.batch("ROLLBACK"),
            None => Ok(()),
        }
    }

    /// Drops the connection, and with it whatever state it was in.
    pub(crate) fn forget(&mut self) {
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

    /// The outer result is the driver's, the inner one the reader's.
    pub(crate) fn rows<T>(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        read: &mut dyn FnMut(&Row<'_>) -> Result<T, BadRow>,
    ) -> Result<Result<Vec<T>, StoreError>, Failure> {
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
        // Whatever kept us from connecting, there is no connection.
        let mut client =
            connected.map_err(|error| Failure::Lost(Failure::from(error).into_source()))?;
        client.batch_execute(&session_settings())?;
        self.connection = Some(Connection {
            client,
            prepared: HashMap::new(),
        });
        Ok(())
    }

    /// Runs one step and drops the connection when the step finds it broken.
    fn with<T>(
        &mut self,
        step: impl FnOnce(&mut Connection) -> Result<T, postgres::Error>,
    ) -> Result<T, Failure> {
        let Some(connection) = &mut self.connection else {
            // Never reconnect here: the rest of a transaction must not run outside of it.
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
