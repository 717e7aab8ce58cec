//! A session with the tree whose calls fail, take long, or never return.

use std::collections::BTreeSet;
use std::future::pending;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use backplane::tree::{
    Lifetime, Node, NodeWatch, Op, OpResult, SessionState, Stat, SubtreeWatch, Tree, TreeError,
    TreePath,
};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::task::AbortOnDropHandle;

use super::monitor::{self, Monitor};
use super::mutants::Mutant;
use testing::Chance;

/// How long a call waits for a suspended session.
const SUSPENDED_LIMIT: Duration = Duration::from_secs(40);

/// Dice of a world for its calls.
#[derive(Clone)]
pub(super) struct Faults {
    pub(super) chance: Chance,
    pub(super) monitor: Arc<Monitor>,
    /// Calls in a thousand that fail, and as many whose answers are lost.
    pub(super) per_mille: Arc<AtomicI64>,
    /// Each call takes up to this long.
    pub(super) slow_ms: Arc<AtomicI64>,
    pub(super) mutant: Option<Mutant>,
}

pub(super) struct ChaosTree {
    inner: Arc<dyn Tree>,
    faults: Faults,
    is_dead: AtomicBool,
    /// It dies after this many calls. Negative: it does not.
    calls_left: AtomicI64,
    suspended: watch::Sender<bool>,
    state: watch::Receiver<SessionState>,
    /// The contenders that this session made.
    contenders: Mutex<BTreeSet<String>>,
    _states: AbortOnDropHandle<()>,
}

impl std::fmt::Debug for ChaosTree {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("ChaosTree").finish_non_exhaustive()
    }
}

/// Passes on the states of the session, and hides it while it is suspended.
async fn pass_on(
    mut inner: watch::Receiver<SessionState>,
    mut suspended: watch::Receiver<bool>,
    state: watch::Sender<SessionState>,
) {
    loop {
        let known = *inner.borrow_and_update();
        let shown = match (*suspended.borrow_and_update(), *state.borrow()) {
            (true, SessionState::Connected(id)) => SessionState::Suspended(id),
            (true, other) => other,
            (false, _) => known,
        };
        state.send_if_modified(|state| std::mem::replace(state, shown) != shown);
        tokio::select! {
            changed = inner.changed() => if changed.is_err() {
                return;
            },
            changed = suspended.changed() => if changed.is_err() {
                return;
            },
        }
    }
}

impl ChaosTree {
    pub(super) fn new(inner: Arc<dyn Tree>, faults: Faults) -> Arc<Self> {
        let (suspended, is_suspended) = watch::channel(false);
        let (sender, state) = watch::channel(*inner.session().borrow());
        let states = tokio::spawn(pass_on(inner.session(), is_suspended, sender));
        Arc::new(Self {
            inner,
            faults,
            is_dead: AtomicBool::new(false),
            calls_left: AtomicI64::new(-1),
            suspended,
            state,
            contenders: Mutex::default(),
            _states: AbortOnDropHandle::new(states),
        })
    }

    /// No call returns from now on.
    pub(super) fn die(&self) {
        self.is_dead.store(true, Ordering::SeqCst);
    }

    pub(super) fn die_after(&self, n_calls: i64) {
        self.calls_left.store(n_calls, Ordering::SeqCst);
    }

    pub(super) fn is_dead(&self) -> bool {
        self.is_dead.load(Ordering::SeqCst)
    }

    pub(super) fn suspend(&self, is_suspended: bool) {
        self.suspended.send_replace(is_suspended);
    }

    async fn stop_if_dead(&self) {
        if self.is_dead() {
            pending::<()>().await;
        }
    }

    async fn delay(&self) {
        let slow = self.faults.slow_ms.load(Ordering::SeqCst);
        if slow > 0 && !self.faults.monitor.is_calm() {
            let millis = self.faults.chance.between(0, slow);
            let millis = u64::try_from(millis).unwrap();
            // Time: a slow call, mostly in stopped time.
            let _ = timeout(Duration::from_millis(millis), pending::<()>()).await;
        }
    }

    fn fail_sometimes(&self) -> Result<(), TreeError> {
        let per_mille = self.faults.per_mille.load(Ordering::SeqCst);
        let fails =
            !self.faults.monitor.is_calm() && self.faults.chance.between(0, 999) < per_mille;
        match (fails, self.faults.chance.percent(50)) {
            (false, _) => Ok(()),
            (true, true) => Err(TreeError::ConnectionLost),
            (true, false) => Err(TreeError::TimedOut { limit_ms: 1 }),
        }
    }

    async fn before(&self) -> Result<(), TreeError> {
        if self.calls_left.load(Ordering::SeqCst) >= 0
            && self.calls_left.fetch_sub(1, Ordering::SeqCst) == 0
        {
            self.die();
        }
        self.stop_if_dead().await;
        self.delay().await;
        let mut suspended = self.suspended.subscribe();
        let resumed = suspended.wait_for(|is_suspended| !is_suspended);
        if timeout(SUSPENDED_LIMIT, resumed).await.is_err() {
            return Err(TreeError::Disconnected {
                limit_ms: SUSPENDED_LIMIT.as_millis(),
                reason: "a test".to_owned(),
            });
        }
        self.stop_if_dead().await;
        self.fail_sometimes()
    }

    /// The answer of a write, which may be lost.
    async fn after<T>(&self, result: Result<T, TreeError>) -> Result<T, TreeError> {
        self.delay().await;
        self.stop_if_dead().await;
        self.fail_sometimes()?;
        result
    }

    fn is_mutant(&self, mutant: Mutant) -> bool {
        self.faults.mutant == Some(mutant)
    }
}

#[async_trait]
impl Tree for ChaosTree {
    async fn create(
        &self,
        path: &TreePath,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<Stat, TreeError> {
        self.before().await?;
        let created = self.inner.create(path, data, lifetime).await;
        self.after(created).await
    }

    async fn create_sequential(
        &self,
        parent: &TreePath,
        prefix: &str,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<(TreePath, Stat), TreeError> {
        self.before().await?;
        let created = self.inner.create_sequential(parent, prefix, data, lifetime);
        let created = created.await;
        if let Ok((path, _)) = &created {
            let contenders = self.contenders.lock();
            let mut contenders = contenders.unwrap_or_else(PoisonError::into_inner);
            contenders.insert(path.name().to_owned());
        }
        self.after(created).await
    }

    async fn get(&self, path: &TreePath) -> Result<Node, TreeError> {
        self.before().await?;
        self.inner.get(path).await
    }

    async fn set(
        &self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
    ) -> Result<Stat, TreeError> {
        self.before().await?;
        let set = self.inner.set(path, data, expected).await;
        self.after(set).await
    }

    async fn delete(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError> {
        self.before().await?;
        let deleted = self.inner.delete(path, expected).await;
        self.after(deleted).await
    }

    async fn exists(&self, path: &TreePath) -> Result<Option<Stat>, TreeError> {
        self.before().await?;
        self.inner.exists(path).await
    }

    async fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError> {
        self.before().await?;
        let mut names = self.inner.children(path).await?;
        if self.is_mutant(Mutant::BelievesItHoldsTheLock) && path.name() == "lock" {
            let own = self.contenders.lock();
            let own = own.unwrap_or_else(PoisonError::into_inner);
            names.retain(|name| own.contains(name));
        }
        Ok(names)
    }

    async fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, TreeError> {
        self.before().await?;
        let unchecked = match ops {
            [Op::Check { path, .. }, rest @ ..]
                if self.is_mutant(Mutant::WritesWithoutFence)
                    && path.parent().is_some_and(|it| it.name() == "lock") =>
            {
                // Its session ends at the last moment. Without this, few seeds find the mutant.
                if !monitor::results(rest).is_empty() {
                    let _ended_before = self.inner.delete(path, None).await;
                }
                Some(rest)
            }
            _ => None,
        };
        let without_lock = self.faults.monitor.results_without_lock(ops).await;
        let written = match unchecked {
            Some(rest) => {
                let written = self.inner.multi(rest).await;
                written.map(|results| [vec![OpResult::Checked], results].concat())
            }
            None => self.inner.multi(ops).await,
        };
        self.faults.monitor.note_writes(ops, written.is_ok());
        if written.is_ok() && !without_lock.is_empty() {
            let problem = format!("I17: a result was written without the lock: {without_lock:?}");
            self.faults.monitor.problem(problem);
        }
        self.after(written).await
    }

    async fn watch_node(&self, path: &TreePath) -> Result<(Option<Stat>, NodeWatch), TreeError> {
        self.before().await?;
        self.inner.watch_node(path).await
    }

    async fn watch_children(&self, path: &TreePath) -> Result<(Vec<String>, NodeWatch), TreeError> {
        self.before().await?;
        self.inner.watch_children(path).await
    }

    async fn watch_subtree(&self, path: &TreePath) -> Result<SubtreeWatch, TreeError> {
        self.before().await?;
        self.inner.watch_subtree(path).await
    }

    fn session(&self) -> watch::Receiver<SessionState> {
        self.state.clone()
    }
}
