//! Classifies driver errors by their effect on the transaction.

use std::error::Error;

use rusqlite::ErrorCode;
use tokio_postgres::error::SqlState;

use crate::engine::error::{DriverError, ServerReply};

#[derive(Debug)]
pub(crate) enum Failure {
    /// Another transaction conflicted with this one. Running it again can succeed.
    Conflict(DriverError),
    /// The connection was lost, and the transaction with it.
    Lost(DriverError),
    /// A table or column does not exist.
    NotMigrated(DriverError),
    /// The database has no space left, or no memory. The transaction has changed nothing.
    Full(DriverError),
    Other(DriverError),
}

impl Failure {
    pub(crate) fn into_source(self) -> DriverError {
        match self {
            Self::Conflict(error)
            | Self::Lost(error)
            | Self::NotMigrated(error)
            | Self::Full(error)
            | Self::Other(error) => error,
        }
    }
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        let missing =
            |text: &str| text.contains("no such table") || text.contains("no such column");
        match error.sqlite_error_code() {
            Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
                Self::Conflict(error.into())
            }
            Some(ErrorCode::DiskFull) => Self::Full(error.into()),
            _ if missing(&error.to_string()) => Self::NotMigrated(error.into()),
            _ => Self::Other(error.into()),
        }
    }
}

impl From<tokio_postgres::Error> for Failure {
    fn from(error: tokio_postgres::Error) -> Self {
        let Some(state) = error.code().cloned() else {
            // An error without a code is either a wrong value or a lost connection.
            let io = error
                .source()
                .is_some_and(|source| source.is::<std::io::Error>());
            return if error.is_closed() || io {
                Self::Lost(with_server_message(error))
            } else {
                Self::Other(with_server_message(error))
            };
        };
        let error = with_server_message(error);
        match state {
            // The last two: another transaction held a lock for too long, or this one was idle for
            // too long, so the server has ended it and closed the connection.
            SqlState::T_R_SERIALIZATION_FAILURE
            | SqlState::T_R_DEADLOCK_DETECTED
            | SqlState::LOCK_NOT_AVAILABLE
            | SqlState::IDLE_IN_TRANSACTION_SESSION_TIMEOUT => Self::Conflict(error),
            SqlState::ADMIN_SHUTDOWN | SqlState::CRASH_SHUTDOWN | SqlState::CANNOT_CONNECT_NOW => {
                Self::Lost(error)
            }
            SqlState::UNDEFINED_TABLE | SqlState::UNDEFINED_COLUMN => Self::NotMigrated(error),
            other if other.code().starts_with("08") => Self::Lost(error),
            // Insufficient resources, such as 53100: the disk is full.
            other if other.code().starts_with("53") => Self::Full(error),
            _ => Self::Other(error),
        }
    }
}

/// The server's message is in the source of the driver's error.
fn with_server_message(error: tokio_postgres::Error) -> DriverError {
    match error.as_db_error() {
        Some(server) => {
            let detail = server
                .detail()
                .map_or_else(String::new, |d| format!(" ({d})"));
            let reply = ServerReply {
                text: format!("{}{detail}", server.message()),
                state: server.code().code().to_owned(),
            };
            reply.into()
        }
        None => error.into(),
    }
}

#[cfg(test)]
mod tests {
    use rusqlite::ffi;

    use super::*;

    #[test]
    fn a_full_disk_under_sqlite_is_known() {
        let of = |code| Failure::from(rusqlite::Error::SqliteFailure(ffi::Error::new(code), None));
        assert!(matches!(of(ffi::SQLITE_FULL), Failure::Full(_)));
        assert!(matches!(of(ffi::SQLITE_BUSY), Failure::Conflict(_)));
        assert!(matches!(of(ffi::SQLITE_IOERR), Failure::Other(_)));
    }
}
