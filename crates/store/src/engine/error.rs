//! Errors of the store, and what the caller should do about each.

/// Boxed because the two drivers have different error types and no caller distinguishes them.
pub type DriverError = Box<dyn std::error::Error + Send + Sync>;

pub type Result<T, E = StoreError> = std::result::Result<T, E>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was read or written. Try again later, or repair the database.
    #[error(
        "cannot use the database {address}; check that it is running and that its address is right"
    )]
    Unavailable {
        address: String,
        #[source]
        source: DriverError,
    },
    /// The connection broke between the request to commit and its reply. Read before trying again.
    #[error(
        "the connection broke during the commit of `{name}`, which may have succeeded or failed"
    )]
    OutcomeUnknown {
        name: &'static str,
        #[source]
        source: DriverError,
    },
    /// Every attempt conflicted with another transaction. Try again later.
    #[error("`{name}` conflicted with other transactions {attempts} times; try again later")]
    TooManyConflicts { name: &'static str, attempts: u32 },
    /// Another transaction changed the row since it was read. `Store::write` runs the closure
    /// again.
    #[error("another transaction changed the row first")]
    LostRace,
    /// This program cannot have written the row. An operator must look at it.
    #[error("the row {key} of table {table} is corrupt: {reason}")]
    Corrupt {
        table: &'static str,
        key: String,
        reason: String,
    },
    /// The text is too large, or the two databases would store it differently. Refuse the input.
    #[error("`{statement}` cannot store a text: {reason}")]
    BadText {
        statement: &'static str,
        reason: &'static str,
    },
    /// The list must be read in pages.
    #[error("`{statement}` found more than {limit} rows")]
    TooManyRows {
        statement: &'static str,
        limit: usize,
    },
    /// The transaction was rolled back. Try again later, or make room.
    #[error("the database has not enough disk space or memory for `{statement}`")]
    Full {
        statement: &'static str,
        #[source]
        source: DriverError,
    },
    #[error("`{statement}` failed in the database")]
    Query {
        statement: &'static str,
        #[source]
        source: DriverError,
    },
    /// A bug in the closure of the named transaction, which was rolled back.
    #[error("a statement of `{name}` failed, but the closure ignored its error")]
    IgnoredFailure { name: &'static str },
    /// A table or column does not exist. Run the migrations.
    #[error("`{statement}` found no such table or column; run `fleetwright migrate`")]
    NotMigrated {
        statement: &'static str,
        #[source]
        source: DriverError,
    },
    #[error("migration {migration} failed: {reason}")]
    Migration { migration: String, reason: String },
    /// The database is not of this program, or of this version of it. Nothing was changed.
    #[error("the database has the migration {migration}, {problem}")]
    OtherMigration {
        migration: String,
        problem: &'static str,
    },
    #[error("the database address is invalid: {0}")]
    BadUrl(String),
    #[error("cannot set up TLS for the connection to the database: {0}")]
    Tls(String),
    /// A bug in the closure of the named transaction, which was rolled back.
    #[error("the transaction `{name}` panicked and was rolled back")]
    Panicked { name: &'static str },
    /// The store was closed, or the program is shutting down.
    #[error("the store is closed")]
    Closed,
}

/// A reply of the server in which it refuses something. The driver's own text is only "db error".
#[derive(Debug, thiserror::Error)]
#[error("{text}, SQLSTATE {state}")]
pub(crate) struct ServerReply {
    pub(crate) text: String,
    pub(crate) state: String,
}

impl StoreError {
    /// Whether the database cannot be reached now, so that it may be reached later. A server that
    /// refuses the user, has no database of this name, or takes no TLS, was reached.
    pub fn is_away(&self) -> bool {
        let Self::Unavailable { source, .. } = self else {
            return false;
        };
        if let Some(reply) = source.downcast_ref::<ServerReply>() {
            return !reply.state.starts_with("28") && reply.state != "3D000";
        }
        source
            .downcast_ref::<tokio_postgres::Error>()
            .is_none_or(is_of_connection)
    }

    pub(crate) fn corrupt(
        table: &'static str,
        key: impl Into<String>,
        reason: impl std::fmt::Display,
    ) -> Self {
        Self::Corrupt {
            table,
            key: key.into(),
            reason: reason.to_string(),
        }
    }
}

/// Whether the connection broke or was not made. Other errors of the driver are about what it was
/// asked for, such as a password that is missing.
fn is_of_connection(error: &tokio_postgres::Error) -> bool {
    let source = std::error::Error::source(error);
    let io = source.and_then(|source| source.downcast_ref::<std::io::Error>());
    error.is_closed() || io.is_some_and(|io| io.kind() != std::io::ErrorKind::InvalidData)
}
