//! For simulations: transactions on the caller's thread, and processes that crash, freeze or run
//! out of disk space.
//!
//! On one thread, the same seed gives the same history; with more threads it would not. A crashed
//! process is a store that refuses every transaction from some commit on: committed changes stay,
//! and nothing that the code still does reaches the database. A crash within a transaction has the
//! same effect as a crash before it. A frozen process waits before its next transaction until it is
//! thawed. On a full disk, inserts fail.

use crate::engine::{
    error::Result, error::StoreError, failure::Failure, lock::lock, options::Options,
    options::Target, session::Connection, simulation_state::SimulationState, sqlite::Mode,
    sqlite::SqliteSession, store::Engine, store::Store,
};

impl Store {
    /// Makes every transaction run immediately, on the caller's thread. SQLite only: the driver of
    /// PostgreSQL cannot wait on a thread that runs other futures, so there this changes nothing.
    pub fn run_in_place(&self) -> Result<()> {
        let Target::Sqlite { path } = self.inner.options.target()? else {
            return Ok(());
        };
        let spare = lock(&self.inner.inline_readers).pop();
        let mut session = spare.ok_or(StoreError::Closed)?;
        let opened = SqliteSession::open(&path, Mode::Write, &session.backoff);
        session.connection =
            Connection::Sqlite(opened.map_err(|failure| StoreError::Unavailable {
                address: session.address.clone(),
                source: failure.into_source(),
            })?);
        self.inner.simulation.put_back(session);
        Ok(())
    }

    /// Opens an empty database in memory. Every transaction runs immediately, on the caller's
    /// thread: it has no threads, no files, and one connection for all processes of a simulation.
    pub fn in_memory() -> Result<Self> {
        let options = Options {
            url: "sqlite:in-memory".to_owned(),
            connections: 1,
        };
        let store = Self::without_threads(Engine::Sqlite, &options, SimulationState::default());
        let opened = SqliteSession::open_in_memory();
        let opened = opened.map_err(|failure| StoreError::Unavailable {
            address: options.url,
            source: failure.into_source(),
        })?;
        let session = store.session_without_threads(Connection::Sqlite(opened));
        store.inner.simulation.put_back(session);
        Ok(store)
    }

    /// Adds a process to the simulation. It freezes and crashes independently of the others.
    #[must_use]
    pub fn another_process(&self) -> Self {
        let state = self.inner.simulation.for_another_process();
        Self::without_threads(self.engine(), &self.inner.options, state)
    }

    /// Copies all rows of a database in memory, for `restore_rows`.
    pub fn save_rows(&self) -> Result<()> {
        self.on_memory(SqliteSession::save_rows)
    }

    /// Restores the rows that `save_rows` copied.
    pub fn restore_rows(&self) -> Result<()> {
        self.on_memory(SqliteSession::restore_rows)
    }

    fn on_memory(&self, change: impl FnOnce(&SqliteSession) -> Result<(), Failure>) -> Result<()> {
        let state = &self.inner.simulation;
        let session = state.take().ok_or(StoreError::Closed)?;
        let changed = match &session.connection {
            Connection::Sqlite(sqlite) => change(sqlite),
            Connection::Postgres(_) => Ok(()),
        };
        let changed = changed.map_err(|failure| session.error("simulation", failure));
        state.put_back(session);
        changed
    }

    /// Crashes the process after this many further write transactions: this handle and its clones
    /// refuse everything.
    pub fn stop_after(&self, n_writes: u64) {
        self.inner.simulation.stop_after(n_writes);
    }

    /// Whether the process has crashed.
    pub fn is_stopped(&self) -> bool {
        self.inner.simulation.is_stopped()
    }

    /// Freezes the process after this many further write transactions: all later ones wait until
    /// `thaw`.
    pub fn freeze_after(&self, n_writes: u64) {
        self.inner.simulation.freeze_after(n_writes);
    }

    /// Whether the process is frozen now.
    pub fn is_frozen(&self) -> bool {
        self.inner.simulation.is_frozen()
    }

    /// Waits while the process is frozen.
    pub async fn await_thaw(&self) {
        self.inner.simulation.await_thaw().await;
    }

    /// Resumes the process, which does not freeze again.
    pub fn thaw(&self) {
        self.inner.simulation.thaw();
    }

    /// Makes inserts fail in all processes of the simulation, as on a full disk.
    pub fn set_full(&self, is_full: bool) {
        self.inner.simulation.set_full(is_full);
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
    async fn a_stopped_handle_refuses_everything_and_committed_rows_stay() {
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
    async fn processes_in_memory_share_rows_and_stop_independently() {
        let store = Store::in_memory().unwrap();
        store.migrate(0).await.unwrap();
        store.save_rows().unwrap();
        for _ in 0..2 {
            let (first, second) = (store.another_process(), store.another_process());
            assert_eq!(turn(&first).await.unwrap(), 1);
            assert_eq!(turn(&second).await.unwrap(), 2);
            first.stop_after(0);
            assert!(matches!(turn(&first).await, Err(StoreError::Closed)));
            assert_eq!(turn(&second).await.unwrap(), 3);
            assert_eq!(
                store.pending_migrations().await.unwrap(),
                Vec::<String>::new()
            );
            store.restore_rows().unwrap();
        }
    }

    #[tokio::test]
    async fn a_thawed_process_continues_its_transaction() {
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
    async fn on_a_full_disk_only_inserts_fail() {
        let store = Store::in_memory().unwrap();
        store.migrate(0).await.unwrap();
        store.another_process().set_full(true);
        let refused = turn(&store).await.unwrap_err();
        assert!(matches!(refused, StoreError::Full { .. }), "{refused:?}");
        let depth: Result<u64, StoreError> = store.read("depth", outbox::depth).await;
        assert_eq!(depth.unwrap(), 0);
        store.set_full(false);
        assert_eq!(turn(&store).await.unwrap(), 1);
    }
}
