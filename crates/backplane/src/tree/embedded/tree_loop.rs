//! The task that keeps an embedded tree: it answers calls in order, and writes in batches.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::time::Clock;
use tokio::sync::{mpsc, watch};

use super::requests::{Answer, Call, Control, Request, WatchKind};
use super::state::{Effects, TreeState};
use super::storage::TreeStorage;
use super::watches::Watches;
use crate::tree::error::TreeError;
use crate::tree::node::{Op, OpResult, Stat};
use crate::tree::path::TreePath;
use crate::tree::session::{SessionId, SessionState};
use crate::tree::watch::{NodeWatch, SUBTREE_EVENTS, SubtreeWatch, TreeEvent, subtree_watch};

/// Calls whose changes are written together.
const CALLS_PER_BATCH: usize = 256;

pub(super) struct TreeLoop {
    state: TreeState,
    storage: Arc<dyn TreeStorage>,
    clock: Arc<dyn Clock>,
    watches: Watches,
    sessions: BTreeMap<i64, watch::Sender<SessionState>>,
    controls: mpsc::WeakUnboundedSender<Control>,
    /// Writes of the current batch that wait for the storage.
    open: Vec<OpenWrite>,
    /// Nodes whose rows may differ from the state: a batch failed, or an ephemeral node ended.
    dirty: BTreeSet<TreePath>,
    next_watch: u64,
    /// Why the tree accepts nothing any more.
    end: Option<TreeError>,
}

/// A write that was applied to the state only.
struct OpenWrite {
    answer: Answer<(Vec<OpResult>, Vec<Option<Stat>>)>,
    results: Vec<OpResult>,
    stats: Vec<Option<Stat>>,
    effects: Effects,
}

impl TreeLoop {
    pub(super) fn new(
        state: TreeState,
        storage: Arc<dyn TreeStorage>,
        clock: Arc<dyn Clock>,
        controls: mpsc::WeakUnboundedSender<Control>,
    ) -> Self {
        Self {
            state,
            storage,
            clock,
            watches: Watches::default(),
            sessions: BTreeMap::new(),
            controls,
            open: Vec::new(),
            dirty: BTreeSet::new(),
            next_watch: 0,
            end: None,
        }
    }

    /// Runs until all handles of the tree are dropped.
    pub(super) async fn run(
        mut self,
        mut requests: mpsc::Receiver<Request>,
        mut controls: mpsc::UnboundedReceiver<Control>,
    ) {
        let mut batch = Vec::with_capacity(CALLS_PER_BATCH);
        loop {
            tokio::select! {
                biased;
                control = controls.recv() => match control {
                    Some(control) => self.take_control(control),
                    None => return,
                },
                n_calls = requests.recv_many(&mut batch, CALLS_PER_BATCH) => {
                    if n_calls == 0 {
                        return;
                    }
                    // A session begins before its first call.
                    while let Ok(control) = controls.try_recv() {
                        self.take_control(control);
                    }
                    for request in batch.drain(..) {
                        self.take_request(request).await;
                    }
                    self.flush().await;
                }
            }
        }
    }

    fn take_control(&mut self, control: Control) {
        match control {
            Control::Begin { id, state } => {
                if self.end.is_some() {
                    let _ = state.send(SessionState::Lost);
                }
                self.sessions.insert(id.0, state);
            }
            Control::End { id, next } => self.end_session(id, next),
            Control::TakenOver(by) => self.give_up(TreeError::TakenOver(by)),
            Control::RemoveWatch { kind, path, number } => {
                self.watches.remove(kind, &path, number);
            }
        }
    }

    fn end_session(&mut self, id: SessionId, next: Option<SessionId>) {
        let Some(state) = self.sessions.remove(&id.0) else {
            return;
        };
        let effects = self.state.end_session(id);
        self.watches.end_session(id);
        for event in &effects.events {
            self.watches.notify(event);
        }
        self.dirty.extend(effects.changed);
        let _ = state.send(SessionState::Lost);
        let Some(next) = next else {
            self.watches.remove_subtrees(id);
            return;
        };
        self.watches.move_subtrees(id, next);
        let _ = state.send(SessionState::Connected(next));
        self.sessions.insert(next.0, state);
    }

    async fn take_request(&mut self, request: Request) {
        if let Some(end) = &self.end {
            request.call.refuse(end.clone());
            return;
        }
        if !self.sessions.contains_key(&request.session.0) {
            request.call.refuse(TreeError::SessionLost);
            return;
        }
        if let Call::Write(ops, answer) = request.call {
            self.write(request.session, &ops, answer);
            return;
        }
        // A read sees all writes before it, and none that may be undone.
        self.flush().await;
        self.read(request.session, request.call);
    }

    fn write(
        &mut self,
        session: SessionId,
        ops: &[Op],
        answer: Answer<(Vec<OpResult>, Vec<Option<Stat>>)>,
    ) {
        match self.state.apply(session, ops, self.clock.now()) {
            Err(error) => drop(answer.send(Err(error))),
            Ok((results, effects)) => {
                let stats = results.iter().map(|result| match result {
                    OpResult::Created(path) => self.state.stat(path),
                    OpResult::Set(stat) => Some(*stat),
                    OpResult::Deleted | OpResult::Checked => None,
                });
                let stats = stats.collect();
                self.open.push(OpenWrite {
                    answer,
                    results,
                    stats,
                    effects,
                });
            }
        }
    }

    /// Writes the open changes to the storage, and answers their callers.
    async fn flush(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let of_open = self.open.iter().flat_map(|open| &open.effects.changed);
        let changed: BTreeSet<TreePath> = of_open.chain(&self.dirty).cloned().collect();
        let batch = self.state.batch(&changed);
        let written = if batch.put.is_empty() && batch.delete.is_empty() {
            Ok(())
        } else {
            self.storage.apply(batch).await.map_err(TreeError::from)
        };
        let open = std::mem::take(&mut self.open);
        match written {
            Ok(()) => {
                self.dirty.clear();
                self.answer(open);
            }
            Err(error) => {
                // Until the next batch succeeds, the rows of this one may be there or not.
                self.dirty = changed;
                self.take_back(open, &error);
            }
        }
    }

    fn answer(&mut self, open: Vec<OpenWrite>) {
        for write in open {
            for event in &write.effects.events {
                self.watches.notify(event);
            }
            let _ = write.answer.send(Ok((write.results, write.stats)));
        }
    }

    fn take_back(&mut self, open: Vec<OpenWrite>, error: &TreeError) {
        for write in open.into_iter().rev() {
            self.state.undo(write.effects);
            let _ = write.answer.send(Err(error.clone()));
        }
        if matches!(error, TreeError::TakenOver(_)) {
            self.give_up(error.clone());
        }
    }

    fn give_up(&mut self, error: TreeError) {
        self.end = Some(error);
        for state in self.sessions.values() {
            let _ = state.send(SessionState::Lost);
        }
    }

    fn read(&mut self, session: SessionId, call: Call) {
        match call {
            // Writes are taken before.
            Call::Write(..) => {}
            Call::Get(path, answer) => drop(answer.send(self.state.get(&path))),
            Call::Exists(path, answer) => drop(answer.send(Ok(self.state.stat(&path)))),
            Call::Children(path, answer) => drop(answer.send(self.state.children(&path))),
            Call::WatchNode(path, answer) => {
                let stat = self.state.stat(&path);
                let watch = self.watch(WatchKind::Node, path, session);
                let _ = answer.send(Ok((stat, watch)));
            }
            Call::WatchChildren(path, answer) => {
                let names = self.state.children(&path);
                let names = names.map(|names| {
                    let watch = self.watch(WatchKind::Children, path, session);
                    (names, watch)
                });
                let _ = answer.send(names);
            }
            Call::WatchSubtree(path, answer) => {
                let watch = self.watch_subtree(path, session);
                let _ = answer.send(Ok(watch));
            }
        }
    }

    fn watch(&mut self, kind: WatchKind, path: TreePath, session: SessionId) -> NodeWatch {
        let number = self.next_watch;
        self.next_watch += 1;
        let receiver = self.watches.add(kind, path.clone(), number, session);
        let guard = WatchGuard {
            kind,
            path,
            number,
            controls: self.controls.clone(),
        };
        NodeWatch::of(async move {
            let _guard = guard;
            receiver.await.unwrap_or(TreeEvent::Resync)
        })
    }

    fn watch_subtree(&mut self, path: TreePath, session: SessionId) -> SubtreeWatch {
        self.watches.sweep();
        let (sender, watch) = subtree_watch(SUBTREE_EVENTS);
        self.watches.add_subtree(path, session, sender);
        watch
    }
}

/// Removes a watch that nobody waits for any more.
struct WatchGuard {
    kind: WatchKind,
    path: TreePath,
    number: u64,
    controls: mpsc::WeakUnboundedSender<Control>,
}

impl Drop for WatchGuard {
    fn drop(&mut self) {
        if let Some(controls) = self.controls.upgrade() {
            let (kind, number) = (self.kind, self.number);
            let path = std::mem::replace(&mut self.path, TreePath::root());
            let _ = controls.send(Control::RemoveWatch { kind, path, number });
        }
    }
}
