//! For simulations: transactions on the caller's thread, and processes that die after a given number of them.
//!
//! On one thread the same seed gives the same history, which threads of their own would not. A crash is a store
//! that refuses everything from some commit on: what was committed stays, what was not is lost, and whatever the
//! code still does, no trace of it reaches the database. A crash within a transaction is the same as one before it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::StoreError;
use crate::options::Target;
use crate::session::{Connection, Session};
use crate::sqlite::{Mode, SqliteSession};
use crate::store::{Store, lock};

/// Nobody counts.
const UNLIMITED: u64 = u64::MAX;

/// How a handle differs from one in production; by default not at all.
pub(crate) struct InPlace {
    /// Runs everything on the caller's thread, if there is one.
    session: Mutex<Option<Session>>,
    /// How many transactions that write may still begin.
    left: AtomicU64,
}

impl Default for InPlace {
    fn default() -> Self {
        Self {
            session: Mutex::new(None),
            left: AtomicU64::new(UNLIMITED),
        }
    }
}

impl InPlace {
    /// Counts a transaction, unless there may be no more.
    pub(crate) fn begin(&self, mode: Mode) -> Result<(), StoreError> {
        let next = |left: u64| match (left, mode) {
            (0, Mode::Read | Mode::Write) => None,
            (UNLIMITED, _) | (_, Mode::Read) => Some(left),
            (_, Mode::Write) => Some(left - 1),
        };
        let counted = self
            .left
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next);
        counted.map(drop).map_err(|_| StoreError::Closed)
    }

    pub(crate) fn take(&self) -> Option<Session> {
        lock(&self.session).take()
    }

    pub(crate) fn put_back(&self, session: Session) {
        *lock(&self.session) = Some(session);
    }
}

impl Store {
    /// From now on every transaction runs at once, on the caller's thread. SQLite only: the driver of PostgreSQL
    /// cannot wait on a thread that runs other futures, so there nothing changes.
    pub fn run_in_place(&self) -> Result<(), StoreError> {
        let Target::Sqlite { path } = self.inner.options.target()? else {
            return Ok(());
        };
        let spare = lock(&self.inner.inline_readers).pop();
        let mut session = spare.ok_or(StoreError::Closed)?;
        let opened = SqliteSession::open(&path, Mode::Write, &session.pause);
        session.connection =
            Connection::Sqlite(opened.map_err(|failure| StoreError::Unavailable {
                address: session.address.clone(),
                source: failure.into_source(),
            })?);
        self.inner.in_place.put_back(session);
        Ok(())
    }

    /// After so many further transactions that write, this handle and its clones refuse everything: the process is
    /// dead.
    pub fn stop_after(&self, n_writes: u64) {
        self.inner.in_place.left.store(n_writes, Ordering::SeqCst);
    }

    /// Whether that has come to pass.
    pub fn is_stopped(&self) -> bool {
        self.inner.in_place.left.load(Ordering::SeqCst) == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Options, outbox_depth, turn_take};

    #[tokio::test]
    async fn after_its_last_write_a_handle_refuses_everything_and_what_was_written_stays() {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}", folder.path().join("a.db").display());
        let options = Options {
            url,
            connections: 2,
        };
        let store = Store::open(&options).unwrap();
        store.migrate(0).await.unwrap();
        for in_place in [false, true] {
            let store = Store::open(&options).unwrap();
            if in_place {
                store.run_in_place().unwrap();
            }
            let turn = || store.write("turn", |tx| turn_take(tx, "a"));
            let first: i64 = turn().await.unwrap();
            store.stop_after(1);
            assert!(!store.is_stopped());
            assert_eq!(turn().await.unwrap(), first + 1);
            assert!(store.is_stopped());
            assert!(matches!(turn().await, Err(StoreError::Closed)));
            let read = store.read("depth", outbox_depth).await;
            assert!(matches!(read, Err(StoreError::Closed)));
        }
        let left: i64 = store.write("turn", |tx| turn_take(tx, "a")).await.unwrap();
        assert_eq!(left, 5);
    }
}
