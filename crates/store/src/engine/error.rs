//! What can go wrong in the store, and what to do about it.

/// Boxed because two drivers have two error types and no caller tells them apart.
pub type DriverError = Box<dyn std::error::Error + Send + Sync>;

#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// Nothing was read or written. Try again later, or look after the database.
    #[error("the database {address} cannot be used; is it running, and is its address right?")]
    Unavailable {
        address: String,
        #[source]
        source: DriverError,
    },
    /// The connection broke between the order to commit and its answer. Read before trying again.
    #[error(
        "the connection broke during the commit of `{name}`: its changes may or may not be there"
    )]
    OutcomeUnknown {
        name: &'static str,
        #[source]
        source: DriverError,
    },
    /// Others changed the same rows each time. Try again later.
    #[error("`{name}` lost to other changes {attempts} times; try again later")]
    Congested { name: &'static str, attempts: u32 },
    /// Somebody changed the row since it was read. The transaction runs again by itself.
    #[error("somebody else changed the row first")]
    LostRace,
    /// A row that this program cannot have written. A person has to look.
    #[error("the row {key} of table {table} is corrupt: {reason}")]
    Corrupt {
        table: &'static str,
        key: String,
        reason: String,
    },
    /// A text that the databases would not treat alike, or that is too large. Refuse the input.
    #[error("`{statement}` was given a text that cannot be stored: {reason}")]
    BadText {
        statement: &'static str,
        reason: &'static str,
    },
    /// A list that should have been paged.
    #[error("`{statement}` found more than {limit} rows")]
    TooMany {
        statement: &'static str,
        limit: usize,
    },
    #[error("`{statement}` failed in the database")]
    Query {
        statement: &'static str,
        #[source]
        source: DriverError,
    },
    /// A bug in the closure of the named transaction; it was rolled back.
    #[error("a statement of `{name}` failed, but its error was overlooked")]
    Overlooked { name: &'static str },
    /// The tables are not there. Run the migrations.
    #[error("`{statement}` found no such table or column; run `fleetwright migrate`")]
    NotMigrated {
        statement: &'static str,
        #[source]
        source: DriverError,
    },
    #[error("migration {migration} failed: {reason}")]
    Migration { migration: String, reason: String },
    #[error("the database address is wrong: {0}")]
    BadUrl(String),
    #[error("encryption of the connection to the database cannot be set up: {0}")]
    Tls(String),
    /// A bug in the closure of the named transaction; it was rolled back.
    #[error("the transaction `{name}` panicked and was rolled back")]
    Panicked { name: &'static str },
    /// The store was closed, or the program is ending.
    #[error("the store is closed")]
    Closed,
}

impl StoreError {
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
