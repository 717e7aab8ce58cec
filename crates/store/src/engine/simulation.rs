//! For simulations: transactions on the caller's thread, and processes that die, freeze or find the disk full.
//!
//! On one thread the same seed gives the same history, which threads of their own would not. A crash is a store
//! that refuses everything from some commit on: what was committed stays, what was not is lost, and whatever the
//! code still does, no trace of it reaches the database. A crash within a transaction is the same as one before it.
//! A frozen process waits before its next transaction, until it is thawed. On a full disk nothing can be inserted.

use super::error::StoreError;
use super::failure::Failure;
use super::in_place::InPlace;
use super::lock::lock;
use super::options::{Options, Target};
use super::session::Connection;
use super::sqlite::{Mode, SqliteSession};
use super::store::{Engine, Store};

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
        let in_place = self.inner.in_place.of_another_process();
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
        change: impl FnOnce(&SqliteSession) -> Result<(), Failure>,
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
        self.inner.in_place.stop_after(n_writes);
    }

    /// Whether that has come to pass.
    pub fn is_stopped(&self) -> bool {
        self.inner.in_place.is_stopped()
    }

    /// After so many further transactions that write, all others wait until `thaw`.
    pub fn freeze_after(&self, n_writes: u64) {
        self.inner.in_place.freeze_after(n_writes);
    }

    /// Whether the process is frozen now.
    pub fn is_frozen(&self) -> bool {
        self.inner.in_place.is_frozen()
    }

    /// Waits while the process is frozen.
    pub async fn await_thaw(&self) {
        self.inner.in_place.await_thaw().await;
    }

    /// The process goes on, and freezes no more.
    pub fn thaw(&self) {
        self.inner.in_place.thaw();
    }

    /// For all processes of a simulation: nothing can be inserted, as on a full disk.
    pub fn set_full(&self, is_full: bool) {
        self.inner.in_place.set_full(is_full);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::turns;
    use crate::history::outbox;

    async fn turn(store: &Store) -> Result<i64, StoreError> {
        store.write("turn", |tx| turns::take(tx, "a")).await
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
            let read = store.read("depth", outbox::depth).await;
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
        let depth: Result<u64, StoreError> = store.read("depth", outbox::depth).await;
        assert_eq!(depth.unwrap(), 0);
        store.set_full(false);
        assert_eq!(turn(&store).await.unwrap(), 1);
    }
}
