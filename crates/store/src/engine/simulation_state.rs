//! State of a simulated process: where its transactions run, and when they stop or wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::engine::{error::Result, error::StoreError, lock::lock, session::Session, sqlite::Mode};

/// No limit is set.
const UNLIMITED: u64 = u64::MAX;

/// In production, the default: transactions run on threads, and nothing stops or waits.
pub(crate) struct SimulationState {
    /// If set, every transaction runs on the caller's thread, on this session. The processes of one
    /// simulation share it.
    session: Arc<Mutex<Option<Session>>>,
    /// Number of write transactions that may still begin before the process stops.
    until_stopped: AtomicU64,
    /// Number of write transactions that may still begin before the process freezes.
    until_frozen: AtomicU64,
    thawed: Notify,
    is_full: Arc<AtomicBool>,
}

impl Default for SimulationState {
    fn default() -> Self {
        Self {
            session: Arc::default(),
            until_stopped: AtomicU64::new(UNLIMITED),
            until_frozen: AtomicU64::new(UNLIMITED),
            thawed: Notify::new(),
            is_full: Arc::default(),
        }
    }
}

impl SimulationState {
    /// Counts a transaction, or refuses it if the process has stopped. Waits while the process is
    /// frozen.
    pub(crate) async fn begin(&self, mode: Mode) -> Result<()> {
        while count_down(&self.until_frozen, mode).is_none() {
            self.thawed.notified().await;
        }
        count_down(&self.until_stopped, mode).ok_or(StoreError::Closed)
    }

    pub(crate) fn take(&self) -> Option<Session> {
        let mut session = lock(&self.session).take()?;
        session.is_full = self.is_full.load(Ordering::SeqCst);
        Some(session)
    }

    pub(crate) fn put_back(&self, session: Session) {
        *lock(&self.session) = Some(session);
    }

    /// The state of another process in the same simulation.
    pub(crate) fn for_another_process(&self) -> Self {
        Self {
            session: Arc::clone(&self.session),
            is_full: Arc::clone(&self.is_full),
            ..Self::default()
        }
    }

    pub(crate) fn stop_after(&self, n_writes: u64) {
        self.until_stopped.store(n_writes, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.until_stopped.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn freeze_after(&self, n_writes: u64) {
        self.until_frozen.store(n_writes, Ordering::SeqCst);
    }

    pub(crate) fn is_frozen(&self) -> bool {
        self.until_frozen.load(Ordering::SeqCst) == 0
    }

    pub(crate) async fn await_thaw(&self) {
        while self.is_frozen() {
            self.thawed.notified().await;
        }
    }

    pub(crate) fn thaw(&self) {
        self.freeze_after(UNLIMITED);
        self.thawed.notify_waiters();
    }

    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::SeqCst);
    }
}

/// Counts writes only. At zero, no transaction begins.
fn count_down(counter: &AtomicU64, mode: Mode) -> Option<()> {
    let next = |left: u64| match (left, mode) {
        (0, Mode::Read | Mode::Write) => None,
        (UNLIMITED, _) | (_, Mode::Read) => Some(left),
        (_, Mode::Write) => Some(left - 1),
    };
    counter
        .fetch_update(Ordering::SeqCst, Ordering::SeqCst, next)
        .ok()
        .map(drop)
}
