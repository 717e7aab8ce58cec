//! How a handle differs from one in production: where its transactions run, and when they stop or wait.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tokio::sync::Notify;

use crate::engine::error::StoreError;
use crate::engine::lock::lock;
use crate::engine::session::Session;
use crate::engine::sqlite::Mode;

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

    /// Another process of the same simulation.
    pub(crate) fn of_another_process(&self) -> Self {
        Self {
            session: Arc::clone(&self.session),
            is_full: Arc::clone(&self.is_full),
            ..Self::default()
        }
    }

    pub(crate) fn stop_after(&self, n_writes: u64) {
        self.left.store(n_writes, Ordering::SeqCst);
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.left.load(Ordering::SeqCst) == 0
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
