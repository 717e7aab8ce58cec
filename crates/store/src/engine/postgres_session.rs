//! A connection to PostgreSQL, opened when it is needed and reopened when it was lost.
//!
//! A transaction begins with its first statement: both are sent together, and answered together.
//! So are statements whose results are not needed, and the one that follows them. A read sends
//! its end without waiting for the answer. So a read of one statement takes one round trip.

use std::collections::HashMap;
use std::future::Future;
use std::io;
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use tokio::runtime::{self, Runtime};
use tokio_postgres::{Client, Config, SimpleQueryMessage};
use tokio_postgres_rustls::MakeRustlsConnect;

use crate::engine::{
    batch_stream,
    error::Result,
    failure::Failure,
    pipeline::{DriverResult, Expected, Pipeline, Prepared, parameters},
    row::ReadRow,
    row::Row,
    sqlite::Mode,
    statement::Statement,
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

const BEGIN_READ: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY";
const BEGIN_WRITE: &str = "BEGIN ISOLATION LEVEL REPEATABLE READ";
const COMMIT: &str = "COMMIT";

/// Each row, and each entry of an index, that scans have found. The server adds up transactions
/// until it reports them, so this lets it report this one at its end.
const FOUND_ROWS: &str = "SELECT pg_stat_force_next_flush(),
    coalesce(sum(pg_stat_get_xact_tuples_returned(oid)), 0)
    FROM pg_class WHERE relnamespace = current_schema()::regnamespace AND relkind IN ('r', 'i')";

pub(crate) struct PostgresSession {
    config: Config,
    tls: Option<MakeRustlsConnect>,
    connection: Option<Connection>,
    pipeline: Pipeline,
    n_trips: u64,
}

struct Connection {
    /// Sends and receives while a statement is waited for.
    runtime: Runtime,
    link: Link,
}

struct Link {
    client: Client,
    /// By name, and whether it is guarded.
    prepared: HashMap<(&'static str, bool), tokio_postgres::Statement>,
    /// Beginnings and ends of transactions, by their text.
    commands: HashMap<&'static str, tokio_postgres::Statement>,
}

impl PostgresSession {
    pub(crate) fn new(config: Config, tls: Option<MakeRustlsConnect>) -> Self {
        Self {
            config,
            tls,
            connection: None,
            pipeline: Pipeline::default(),
            n_trips: 0,
        }
    }

    /// Opens the connection if there is none. The transaction begins with its first statement.
    pub(crate) fn begin(&mut self, mode: Mode) -> Result<(), Failure> {
        self.connect()?;
        let beginning = match mode {
            Mode::Read => BEGIN_READ,
            Mode::Write => BEGIN_WRITE,
        };
        self.pipeline.begin(beginning, mode);
        Ok(())
    }

    /// Sends what waits with the commit.
    pub(crate) fn commit(&mut self) -> Result<(), Failure> {
        self.pipeline.forget_reads();
        if !self.pipeline.has_written() {
            return self.end_read();
        }
        // The first statements may be sent again on another connection, but no commit.
        if self.pipeline.is_first() && !self.pipeline.is_empty() {
            self.send_waiting()?;
        }
        if self.pipeline.is_first() {
            return Ok(());
        }
        self.n_trips += 1;
        // Never reopens the connection: a commit on a new one would succeed without committing
        // anything.
        self.with(async |link, pipeline| {
            let prepared = link.prepare_all(pipeline).await?;
            let commit = link.command(COMMIT).await?;
            let done = link.client.execute(&commit, &[]);
            pipeline.send(&link.client, &prepared, done).await.map(drop)
        })
    }

    /// Ends a transaction that has changed nothing, without waiting for the answer: it can only
    /// fail with the connection, and then the next statement says so.
    pub(crate) fn end_read(&mut self) -> Result<(), Failure> {
        if self.pipeline.is_first() {
            return Ok(());
        }
        self.with(async |link, _| {
            let commit = link.command(COMMIT).await?;
            let mut ended = pin!(link.client.execute(&commit, &[]));
            let early = std::future::poll_fn(|context| {
                Poll::Ready(match ended.as_mut().poll(context) {
                    Poll::Ready(result) => result.map(drop),
                    Poll::Pending => Ok(()),
                })
            });
            early.await?;
            // The task of the connection sends it now.
            tokio::task::yield_now().await;
            Ok(())
        })
    }

    pub(crate) fn rollback(&mut self) -> Result<(), Failure> {
        let is_unknown_there = self.pipeline.is_first();
        self.pipeline = Pipeline::default();
        if is_unknown_there || self.connection.is_none() {
            return Ok(());
        }
        self.with(async |link, _| Ok(link.client.batch_execute("ROLLBACK").await?))
    }

    /// Drops the connection, whatever its state.
    pub(crate) fn drop_connection(&mut self) {
        self.connection = None;
        self.pipeline = Pipeline::default();
    }

    pub(crate) fn execute(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
    ) -> Result<u64, Failure> {
        self.pipeline.note_write(statement);
        self.run(async |link, pipeline| {
            let last = link.prepare(statement).await?;
            let prepared = link.prepare_all(pipeline).await?;
            let values = parameters(values);
            let done = link.client.execute(&last, &values);
            pipeline.send(&link.client, &prepared, done).await
        })
    }

    /// Lets a statement wait until the next one is sent.
    pub(crate) fn run_later(
        &mut self,
        statement: &'static Statement,
        values: Vec<Value<'_>>,
        expected: Expected,
    ) -> Result<(), Failure> {
        let values = values.into_iter().map(Value::into_owned).collect();
        self.pipeline.add(statement, values, expected)?;
        match self.pipeline.is_full() {
            true => self.send_waiting(),
            false => Ok(()),
        }
    }

    /// The waiting statement that failed instead of the one that was sent with it.
    pub(crate) fn take_failed(&mut self) -> Option<&'static str> {
        self.pipeline.take_failed()
    }

    /// How often an answer was waited for since this was last called.
    pub(crate) fn take_trips(&mut self) -> u64 {
        std::mem::take(&mut self.n_trips)
    }

    fn send_waiting(&mut self) -> Result<(), Failure> {
        self.run(async |link, pipeline| {
            let prepared = link.prepare_all(pipeline).await?;
            let nothing = std::future::ready(Ok(()));
            pipeline.send(&link.client, &prepared, nothing).await
        })
    }

    /// The outer result is an error of the driver, the inner one an error of `read`.
    pub(crate) fn rows(
        &mut self,
        statement: &Statement,
        values: &[Value<'_>],
        read: ReadRow<'_>,
    ) -> Result<Result<usize>, Failure> {
        if !statement.only_reads() {
            self.pipeline.note_write(statement);
        }
        let rows = match self.pipeline.take_rows(statement, values) {
            Some(rows) => rows,
            None => self.run(async |link, pipeline| {
                let last = link.prepare(statement).await?;
                let prepared = link.prepare_all(pipeline).await?;
                let values = parameters(values);
                let rows = link.client.query(&last, &values);
                pipeline.send(&link.client, &prepared, rows).await
            })?,
        };
        for row in &rows {
            let row = Row::Postgres(row);
            if let Err(bad) = read(&row) {
                return Ok(Err(statement.corrupt(&row, bad)));
            }
        }
        Ok(Ok(rows.len()))
    }

    pub(crate) fn batch(&mut self, sql: &str) -> Result<(), Failure> {
        self.connect()?;
        self.pipeline.note_any_write();
        self.run(async |link, pipeline| {
            let prepared = link.prepare_all(pipeline).await?;
            let done = link.client.batch_execute(sql);
            pipeline.send(&link.client, &prepared, done).await
        })
    }

    /// The last column of each row, as text.
    pub(crate) fn lines(&mut self, sql: &str) -> Result<Vec<String>, Failure> {
        let messages = self.run(async |link, pipeline| {
            let prepared = link.prepare_all(pipeline).await?;
            let messages = link.client.simple_query(sql);
            pipeline.send(&link.client, &prepared, messages).await
        })?;
        let lines = messages.iter().filter_map(|message| {
            let SimpleQueryMessage::Row(row) = message else {
                return None;
            };
            row.get(row.len().saturating_sub(1))
        });
        Ok(lines.map(str::to_owned).collect())
    }

    /// Rows and entries of indexes that the transaction has found so far.
    pub(crate) fn work(&mut self) -> Result<u64, Failure> {
        let lines = self.lines(FOUND_ROWS)?;
        let found = lines.first().and_then(|found| found.parse().ok());
        found.ok_or_else(|| Failure::Other("the server does not count what it finds".into()))
    }

    pub(crate) fn prepare(&mut self, statement: &Statement) -> Result<usize, Failure> {
        self.with(async |link, _| Ok(link.prepare(statement).await?.params().len()))
    }

    fn connect(&mut self) -> Result<(), Failure> {
        let is_open = |connection: &Connection| !connection.link.client.is_closed();
        if self.connection.as_ref().is_some_and(is_open) {
            return Ok(());
        }
        self.connection = None;
        // Every error while connecting means that there is no connection.
        let lost = |failure: Failure| Failure::Lost(failure.into_source());
        let runtime = runtime::Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error: io::Error| Failure::Lost(error.into()))?;
        let client = runtime
            .block_on(batch_stream::connect(&self.config, self.tls.as_ref()))
            .map_err(|error| lost(error.into()))?;
        runtime.block_on(client.batch_execute(&session_settings()))?;
        let link = Link {
            client,
            prepared: HashMap::new(),
            commands: HashMap::new(),
        };
        self.connection = Some(Connection { runtime, link });
        Ok(())
    }

    /// Runs a statement, with the beginning of its transaction if it is the first. A connection
    /// that was lost before is reopened then, which is safe: nothing of the transaction is
    /// committed.
    fn run<T>(
        &mut self,
        mut step: impl AsyncFnMut(&mut Link, &mut Pipeline) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        self.n_trips += 1;
        let is_first = self.pipeline.is_first();
        let first = self.with(async |link, pipeline| step(link, pipeline).await);
        match first {
            Err(Failure::Lost(_)) if is_first => {
                self.connect()?;
                self.with(async |link, pipeline| step(link, pipeline).await)
            }
            result => result,
        }
    }

    /// Runs one step, and drops the connection if the step finds it lost.
    fn with<T>(
        &mut self,
        step: impl AsyncFnOnce(&mut Link, &mut Pipeline) -> Result<T, Failure>,
    ) -> Result<T, Failure> {
        let Some(connection) = &mut self.connection else {
            // Never reopen it here: the rest of a transaction must not run outside of it.
            return Err(Failure::Lost("the connection was lost".into()));
        };
        let Connection { runtime, link } = connection;
        let done = runtime.block_on(step(link, &mut self.pipeline));
        if matches!(done, Err(Failure::Lost(_))) {
            self.connection = None;
        }
        done
    }
}

/// A statement is planned once, for all values: for many, that takes longer than to run it. The
/// plan must stay right when a table that was small grows, so it uses indexes, and looks up the
/// rows that it joins. Without values, PostgreSQL takes a limit for a tenth of the rows: for a
/// deletion of a few of a million rows, it would read them all. A bitmap loses the order of its
/// index: for each page of a large pool, PostgreSQL would read and sort the pool. Without the last
/// setting, a statement that has to read all of a table would seem worth compiling.
const PLANS: &str = "SET plan_cache_mode = force_generic_plan; SET enable_seqscan = off; \
                     SET enable_hashjoin = off; SET enable_mergejoin = off; \
                     SET enable_material = off; SET enable_bitmapscan = off; SET jit = off";

fn session_settings() -> String {
    let limits = [
        ("statement_timeout", STATEMENT_TIMEOUT),
        ("lock_timeout", LOCK_TIMEOUT),
        ("idle_in_transaction_session_timeout", IDLE_TIMEOUT),
    ];
    let limits = limits.map(|(name, limit)| format!("SET {name} = {}", limit.as_millis()));
    format!("{}; {PLANS}", limits.join("; "))
}

impl Link {
    async fn prepare(&mut self, statement: &Statement) -> DriverResult<tokio_postgres::Statement> {
        self.prepare_as(statement, false).await
    }

    async fn prepare_as(
        &mut self,
        statement: &Statement,
        is_guard: bool,
    ) -> DriverResult<tokio_postgres::Statement> {
        let key = (statement.name, is_guard);
        if let Some(prepared) = self.prepared.get(&key) {
            return Ok(prepared.clone());
        }
        let sql = match is_guard {
            true => statement.guarded_sql().into(),
            false => statement.postgres_sql(),
        };
        let prepared = self.client.prepare(&sql).await?;
        self.prepared.insert(key, prepared.clone());
        Ok(prepared)
    }

    /// The beginning and the statements that are sent with the next one.
    async fn prepare_all(&mut self, pipeline: &mut Pipeline) -> DriverResult<Prepared> {
        let beginning = match pipeline.beginning() {
            Some(command) => Some(self.command(command).await?),
            None => None,
        };
        let mut waiting = Vec::new();
        for (statement, expected) in pipeline.statements() {
            let is_guard = expected == Expected::Change;
            let prepared = self.prepare_as(statement, is_guard).await;
            if prepared.is_err() {
                pipeline.note_failed(statement);
            }
            waiting.push(prepared?);
        }
        Ok(Prepared { beginning, waiting })
    }

    /// A command without parameters. Prepared, it can be sent with statements.
    async fn command(&mut self, text: &'static str) -> DriverResult<tokio_postgres::Statement> {
        if let Some(prepared) = self.commands.get(text) {
            return Ok(prepared.clone());
        }
        let prepared = self.client.prepare(text).await?;
        self.commands.insert(text, prepared.clone());
        Ok(prepared)
    }
}
