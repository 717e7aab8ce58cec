//! For simulations: transactions on the caller's thread, and processes that die, freeze or find the disk full.
//!
//! On one thread the same seed gives the same history, which threads of their own would not. A crash is a store
//! that refuses everything from some commit on: what was committed stays, what was not is lost, and whatever the
//! code still does, no trace of it reaches the database. A crash within a transaction is the same as one before it.
//! A frozen process waits before its next transaction, until it is thawed. On a full disk nothing can be inserted.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::error::StoreError;
use crate::lock::lock;
use crate::options::{Options, Target};
use crate::session::{Connection, Session};
use crate::sqlite::{Mode, SqliteSession};
use crate::store::{Engine, Store};

/// Nobody counts.
const UNLIMITED: u64 = u64::MAX;

/// How a handle differs from one in production; by default not at all.
pub(crate) struct InPlace {
    /// Runs everything on the caller's thread, if there is one. Processes of one simulation share it.
    session: Arc<Mutex<Option<Session>>>,
    /// How many transactions that write may still begin.
    left: AtomicU64,
    /// How many may begin until all wait.
    until_frozen: AtomicU64,
    thawed: Notify,
    is_full: Arc<AtomicBool>,
}

impl Default for InPlace {
    fn default() -> Self {
        Self {
            session: Arc::default(),
            left: AtomicU64::new(UNLIMITED),
            until_frozen: AtomicU64::new(UNLIMITED),
            thawed: Notify::new(),
            is_full: Arc::default(),
        }
    }
}

impl InPlace {
    /// Counts a transaction, unless there may be no more. Waits while the process is frozen.
    pub(crate) async fn begin(&self, mode: Mode) -> Result<(), StoreError> {
        while count_down(&self.until_frozen, mode).is_none() {
            self.thawed.notified().await;
        }
        count_down(&self.left, mode).ok_or(StoreError::Closed)
    }

    pub(crate) fn take(&self) -> Option<Session> {
        let mut session = lock(&self.session).take()?;
        session.is_full = self.is_full.load(Ordering::SeqCst);
        Some(session)
    }

    pub(crate) fn put_back(&self, session: Session) {
        *lock(&self.session) = Some(session);
    }
}

/// Only what writes is counted; at zero nothing begins any more.
fn count_down(left: &AtomicU64, mode: Mode) -> Option<()> {
    let next = |left: u64| match (left, mode) {
        (0, Mode::Read | Mode::Write) => None,
        (UNLIMITED, _) | (_, Mode::Read) => Some(left),
        (_, Mode::Write) => Some(left - 1),
    };
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
        .ok()
        .map(drop)
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

    /// An empty database in memory, of which every transaction runs at once, on the caller's thread: no threads, no
    /// files, and one connection for all processes of a simulation.
    pub fn in_memory() -> Result<Self, StoreError> {
        let options = Options {
            url: "sqlite:in-memory".to_owned(),
            connections: 1,
        };
        let store = Self::without_threads(Engine::Sqlite, &options, InPlace::default());
        let opened = SqliteSession::open_in_memory();
        let opened = opened.map_err(|failure| StoreError::Unavailable {
            address: options.url,
            source: failure.into_source(),
        })?;
        let session = store.session_without_threads(Connection::Sqlite(opened));
        store.inner.in_place.put_back(session);
        Ok(store)
    }

    /// Another process of the same simulation: it lives, freezes and dies by itself.
    #[must_use]
    pub fn another_process(&self) -> Self {
        let in_place = InPlace {
            session: Arc::clone(&self.inner.in_place.session),
            is_full: Arc::clone(&self.inner.in_place.is_full),
            ..InPlace::default()
        };
        Self::without_threads(self.engine(), &self.inner.options, in_place)
    }

    /// Remembers all rows of a database in memory, for `restore_rows`.
    pub fn remember_rows(&self) -> Result<(), StoreError> {
        self.on_memory(SqliteSession::remember_rows)
    }

    /// Makes a database in memory what it was when its rows were remembered.
    pub fn restore_rows(&self) -> Result<(), StoreError> {
        self.on_memory(SqliteSession::restore_rows)
    }

    fn on_memory(
        &self,
        change: impl FnOnce(&SqliteSession) -> Result<(), crate::failure::Failure>,
    ) -> Result<(), StoreError> {
        let in_place = &self.inner.in_place;
        let session = in_place.take().ok_or(StoreError::Closed)?;
        let changed = match &session.connection {
            Connection::Sqlite(sqlite) => change(sqlite),
            Connection::Postgres(_) => Ok(()),
        };
        let changed = changed.map_err(|failure| session.error("simulation", failure));
        in_place.put_back(session);
        changed
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

    /// After so many further transactions that write, all others wait until `thaw`.
    pub fn freeze_after(&self, n_writes: u64) {
        let until_frozen = &self.inner.in_place.until_frozen;
        until_frozen.store(n_writes, Ordering::SeqCst);
    }

    /// Whether the process is frozen now.
    pub fn is_frozen(&self) -> bool {
        self.inner.in_place.until_frozen.load(Ordering::SeqCst) == 0
    }

    /// Waits while the process is frozen.
    pub async fn await_thaw(&self) {
        while self.is_frozen() {
            self.inner.in_place.thawed.notified().await;
        }
    }

    /// The process goes on, and freezes no more.
    pub fn thaw(&self) {
        self.freeze_after(UNLIMITED);
        self.inner.in_place.thawed.notify_waiters();
    }

    /// For all processes of a simulation: nothing can be inserted, as on a full disk.
    pub fn set_full(&self, is_full: bool) {
        self.inner.in_place.is_full.store(is_full, Ordering::SeqCst);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{outbox_depth, turn_take};

    async fn turn(store: &Store) -> Result<i64, StoreError> {
        store.write("turn", |tx| turn_take(tx, "a")).await
    }

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
            let first: i64 = turn(&store).await.unwrap();
            store.stop_after(1);
            assert!(!store.is_stopped());
            assert_eq!(turn(&store).await.unwrap(), first + 1);
            assert!(store.is_stopped());
            assert!(matches!(turn(&store).await, Err(StoreError::Closed)));
            let read = store.read("depth", outbox_depth).await;
            assert!(matches!(read, Err(StoreError::Closed)));
        }
        assert_eq!(turn(&store).await.unwrap(), 5);
    }

    #[tokio::test]
    async fn processes_in_memory_share_rows_and_die_alone() {
        let store = Store::in_memory().unwrap();
        store.migrate(0).await.unwrap();
        store.remember_rows().unwrap();
        for _ in 0..2 {
            let (one, other) = (store.another_process(), store.another_process());
            assert_eq!(turn(&one).await.unwrap(), 1);
            assert_eq!(turn(&other).await.unwrap(), 2);
            one.stop_after(0);
            assert!(matches!(turn(&one).await, Err(StoreError::Closed)));
            assert_eq!(turn(&other).await.unwrap(), 3);
            assert_eq!(
                store.pending_migrations().await.unwrap(),
                Vec::<String>::new()
            );
            store.restore_rows().unwrap();
        }
    }

    #[tokio::test]
    async fn a_frozen_process_goes_on_where_it_was() {
        let store = Store::in_memory().unwrap();
        store.migrate(0).await.unwrap();
        let (frozen, other) = (store.another_process(), store.another_process());
        frozen.freeze_after(1);
        assert_eq!(turn(&frozen).await.unwrap(), 1);
        assert!(frozen.is_frozen());
        let waiting = tokio::spawn({
            let frozen = frozen.clone();
            async move { turn(&frozen).await }
        });
        tokio::task::yield_now().await;
        assert_eq!(turn(&other).await.unwrap(), 2);
        assert!(!waiting.is_finished());
        frozen.thaw();
        assert_eq!(waiting.await.unwrap().unwrap(), 3);
    }

    #[tokio::test]
    async fn on_a_full_disk_nothing_is_inserted_and_all_else_works() {
        let store = Store::in_memory().unwrap();
        store.migrate(0).await.unwrap();
        store.another_process().set_full(true);
        let refused = turn(&store).await.unwrap_err();
        assert!(format!("{refused:?}").contains("full"), "{refused:?}");
        let depth: Result<u64, StoreError> = store.read("depth", outbox_depth).await;
        assert_eq!(depth.unwrap(), 0);
        store.set_full(false);
        assert_eq!(turn(&store).await.unwrap(), 1);
    }
}
