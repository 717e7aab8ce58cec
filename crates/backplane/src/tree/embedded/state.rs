//! The nodes of an embedded tree, and how operations change them. Pure: no clock, no input, no
//! output.

use std::collections::{BTreeMap, BTreeSet};

use domain::time::Timestamp;

use super::storage::{TreeBatch, TreeRow};
use crate::tree::error::TreeError;
use crate::tree::node::{Lifetime, Node, Op, OpResult, Stat, check_ops, sequential_path};
use crate::tree::path::TreePath;
use crate::tree::session::SessionId;
use crate::tree::watch::TreeEvent;

/// How large an embedded tree may become: it is kept in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TreeLimits {
    pub nodes: usize,
    pub bytes: usize,
}

impl Default for TreeLimits {
    fn default() -> Self {
        Self {
            nodes: 200_000,
            bytes: 256 * 1024 * 1024,
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NodeRecord {
    pub(super) data: Vec<u8>,
    pub(super) version: i32,
    pub(super) created: Timestamp,
    pub(super) changed: Timestamp,
    pub(super) created_by: i64,
    pub(super) changed_by: i64,
    pub(super) children_changed_by: i64,
    pub(super) next_sequence: u32,
    pub(super) owner: Option<SessionId>,
    pub(super) children: BTreeSet<String>,
}

#[derive(Debug)]
pub(super) struct TreeState {
    pub(super) nodes: BTreeMap<TreePath, NodeRecord>,
    pub(super) ephemerals: BTreeMap<i64, BTreeSet<TreePath>>,
    pub(super) size_bytes: usize,
    /// Number of the last change.
    pub(super) last_change: i64,
    limits: TreeLimits,
}

/// The effects of a transaction: for watches, for the storage, and to undo it.
#[derive(Debug, Default)]
pub(super) struct Effects {
    pub(super) events: Vec<TreeEvent>,
    pub(super) changed: BTreeSet<TreePath>,
    pub(super) undo: Vec<Undo>,
}

/// A step back.
#[derive(Debug)]
pub(super) enum Undo {
    Create {
        path: TreePath,
        next_sequence: u32,
        children_changed_by: i64,
    },
    Set {
        path: TreePath,
        data: Vec<u8>,
        version: i32,
        changed: Timestamp,
        changed_by: i64,
    },
    Delete {
        path: TreePath,
        record: NodeRecord,
        children_changed_by: i64,
    },
}

impl TreeState {
    pub(super) fn load(
        rows: Vec<TreeRow>,
        limits: TreeLimits,
        now: Timestamp,
    ) -> Result<Self, TreeError> {
        let mut state = Self {
            nodes: BTreeMap::new(),
            ephemerals: BTreeMap::new(),
            size_bytes: 0,
            last_change: 0,
            limits,
        };
        let rows = rows.into_iter().map(|row| (row.path.clone(), row));
        for (path, row) in rows {
            let last = row.created_by.max(row.changed_by);
            state.last_change = state.last_change.max(last).max(row.children_changed_by);
            state.size_bytes += row.data.len();
            state.nodes.insert(path, NodeRecord::from_row(row));
        }
        let root = NodeRecord::new(Vec::new(), 0, now, None);
        state.nodes.entry(TreePath::root()).or_insert(root);
        let paths: Vec<TreePath> = state.nodes.keys().cloned().collect();
        for path in paths {
            let Some(parent) = path.parent() else {
                continue;
            };
            let Some(record) = state.nodes.get_mut(&parent) else {
                let problem = format!("the database has node {path} without its parent");
                return Err(TreeError::Storage(problem));
            };
            record.children.insert(path.name().to_owned());
        }
        Ok(state)
    }

    /// Carries out all operations, or none.
    pub(super) fn apply(
        &mut self,
        session: SessionId,
        ops: &[Op],
        now: Timestamp,
    ) -> Result<(Vec<OpResult>, Effects), TreeError> {
        check_ops(ops)?;
        let mut effects = Effects::default();
        let mut results = Vec::with_capacity(ops.len());
        self.last_change += 1;
        for (index, op) in ops.iter().enumerate() {
            match self.apply_op(session, op, now, &mut effects) {
                Ok(result) => results.push(result),
                Err(error) => {
                    self.undo(effects);
                    self.last_change -= 1;
                    return Err(error.of_op(index));
                }
            }
        }
        Ok((results, effects))
    }

    fn apply_op(
        &mut self,
        session: SessionId,
        op: &Op,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<OpResult, TreeError> {
        match op {
            Op::Create {
                path,
                data,
                lifetime,
            } => {
                let owner = owner_of(*lifetime, session);
                self.create(path, data, owner, now, effects)?;
                Ok(OpResult::Created(path.clone()))
            }
            Op::CreateSequential {
                parent,
                prefix,
                data,
                lifetime,
            } => {
                let number = self.record(parent)?.next_sequence;
                let path = sequential_path(parent, prefix, number)?;
                let owner = owner_of(*lifetime, session);
                self.create(&path, data, owner, now, effects)?;
                Ok(OpResult::Created(path))
            }
            Op::Set {
                path,
                data,
                expected,
            } => {
                let stat = self.set(path, data, *expected, now, effects)?;
                Ok(OpResult::Set(stat))
            }
            Op::Delete { path, expected } => {
                self.delete(path, *expected, effects)?;
                Ok(OpResult::Deleted)
            }
            Op::Check { path, expected } => {
                self.record(path)?.check_version(path, *expected)?;
                Ok(OpResult::Checked)
            }
        }
    }

    fn create(
        &mut self,
        path: &TreePath,
        data: &[u8],
        owner: Option<SessionId>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<(), TreeError> {
        let parent = path.parent().ok_or(TreeError::Root("created"))?;
        let change = self.last_change;
        if self.nodes.contains_key(path) {
            return Err(TreeError::NodeExists(path.clone()));
        }
        self.check_room(1, data.len())?;
        let above = self.record_mut(&parent)?;
        if above.owner.is_some() {
            return Err(TreeError::EphemeralParent(path.clone()));
        }
        if above.next_sequence >= i32::MAX.unsigned_abs() {
            return Err(TreeError::SequenceUsedUp(parent));
        }
        effects.undo.push(Undo::Create {
            path: path.clone(),
            next_sequence: above.next_sequence,
            children_changed_by: above.children_changed_by,
        });
        above.next_sequence += 1;
        above.children_changed_by = change;
        above.children.insert(path.name().to_owned());
        let record = NodeRecord::new(data.to_vec(), change, now, owner);
        self.size_bytes += data.len();
        if let Some(session) = owner {
            let of_session = self.ephemerals.entry(session.0).or_default();
            of_session.insert(path.clone());
        }
        self.nodes.insert(path.clone(), record);
        effects.events.push(TreeEvent::Created(path.clone()));
        effects.events.push(TreeEvent::Children(parent.clone()));
        effects.changed.extend([path.clone(), parent]);
        Ok(())
    }

    fn set(
        &mut self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
        now: Timestamp,
        effects: &mut Effects,
    ) -> Result<Stat, TreeError> {
        let change = self.last_change;
        let record = self.record(path)?;
        record.check_version(path, expected)?;
        let freed = record.data.len();
        self.check_room(0, data.len().saturating_sub(freed))?;
        let record = self.record_mut(path)?;
        let old = std::mem::replace(&mut record.data, data.to_vec());
        effects.undo.push(Undo::Set {
            path: path.clone(),
            data: old,
            version: record.version,
            changed: record.changed,
            changed_by: record.changed_by,
        });
        record.version = record.version.wrapping_add(1);
        record.changed = now;
        record.changed_by = change;
        let stat = record.stat();
        self.size_bytes = self.size_bytes + data.len() - freed;
        effects.events.push(TreeEvent::Changed(path.clone()));
        effects.changed.insert(path.clone());
        Ok(stat)
    }

    pub(super) fn delete(
        &mut self,
        path: &TreePath,
        expected: Option<i32>,
        effects: &mut Effects,
    ) -> Result<(), TreeError> {
        let parent = path.parent().ok_or(TreeError::Root("deleted"))?;
        let record = self.record(path)?;
        record.check_version(path, expected)?;
        if !record.children.is_empty() {
            return Err(TreeError::NotEmpty(path.clone()));
        }
        let change = self.last_change;
        let above = self.record_mut(&parent)?;
        let children_changed_by = std::mem::replace(&mut above.children_changed_by, change);
        above.children.remove(path.name());
        if let Some(record) = self.nodes.remove(path) {
            self.size_bytes -= record.data.len();
            if let Some(session) = record.owner {
                self.forget_ephemeral(session, path);
            }
            effects.undo.push(Undo::Delete {
                path: path.clone(),
                record,
                children_changed_by,
            });
        }
        effects.events.push(TreeEvent::Deleted(path.clone()));
        effects.events.push(TreeEvent::Children(parent.clone()));
        effects.changed.extend([path.clone(), parent]);
        Ok(())
    }

    pub(super) fn forget_ephemeral(&mut self, session: SessionId, path: &TreePath) {
        if let Some(paths) = self.ephemerals.get_mut(&session.0) {
            paths.remove(path);
            if paths.is_empty() {
                self.ephemerals.remove(&session.0);
            }
        }
    }

    /// Deletes the ephemeral nodes of a session that ended.
    pub(super) fn end_session(&mut self, session: SessionId) -> Effects {
        let mut effects = Effects::default();
        let paths = self.ephemerals.get(&session.0).cloned().unwrap_or_default();
        if !paths.is_empty() {
            self.last_change += 1;
        }
        for path in paths {
            // An ephemeral node has no children, so nothing keeps it.
            let _ = self.delete(&path, None, &mut effects);
        }
        effects
    }

    fn check_room(&self, n_nodes: usize, n_bytes: usize) -> Result<(), TreeError> {
        if self.nodes.len() + n_nodes > self.limits.nodes {
            return Err(TreeError::Full(format!("{} nodes", self.limits.nodes)));
        }
        if self.size_bytes + n_bytes > self.limits.bytes {
            return Err(TreeError::Full(format!("{} bytes", self.limits.bytes)));
        }
        Ok(())
    }

    fn record(&self, path: &TreePath) -> Result<&NodeRecord, TreeError> {
        let record = self.nodes.get(path);
        record.ok_or_else(|| TreeError::NoNode(path.clone()))
    }

    fn record_mut(&mut self, path: &TreePath) -> Result<&mut NodeRecord, TreeError> {
        let record = self.nodes.get_mut(path);
        record.ok_or_else(|| TreeError::NoNode(path.clone()))
    }

    pub(super) fn get(&self, path: &TreePath) -> Result<Node, TreeError> {
        let record = self.record(path)?;
        Ok(Node {
            data: record.data.clone(),
            stat: record.stat(),
            forged: None,
        })
    }

    pub(super) fn stat(&self, path: &TreePath) -> Option<Stat> {
        self.nodes.get(path).map(NodeRecord::stat)
    }

    pub(super) fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError> {
        Ok(self.record(path)?.children.iter().cloned().collect())
    }

    /// The current rows of these nodes. Ephemeral nodes have none.
    pub(super) fn batch(&self, paths: &BTreeSet<TreePath>) -> TreeBatch {
        let mut batch = TreeBatch::default();
        for path in paths {
            match self.nodes.get(path) {
                Some(record) if record.owner.is_some() => {}
                Some(record) => batch.put.push(record.row(path)),
                None => batch.delete.push(path.clone()),
            }
        }
        batch
    }
}

fn owner_of(lifetime: Lifetime, session: SessionId) -> Option<SessionId> {
    match lifetime {
        Lifetime::Persistent => None,
        Lifetime::Ephemeral => Some(session),
    }
}

impl NodeRecord {
    fn new(data: Vec<u8>, change: i64, now: Timestamp, owner: Option<SessionId>) -> Self {
        Self {
            data,
            version: 0,
            created: now,
            changed: now,
            created_by: change,
            changed_by: change,
            children_changed_by: change,
            next_sequence: 0,
            owner,
            children: BTreeSet::new(),
        }
    }

    fn from_row(row: TreeRow) -> Self {
        Self {
            data: row.data,
            version: row.version,
            created: row.created,
            changed: row.changed,
            created_by: row.created_by,
            changed_by: row.changed_by,
            children_changed_by: row.children_changed_by,
            next_sequence: row.next_sequence,
            owner: None,
            children: BTreeSet::new(),
        }
    }

    fn row(&self, path: &TreePath) -> TreeRow {
        TreeRow {
            path: path.clone(),
            data: self.data.clone(),
            version: self.version,
            created: self.created,
            changed: self.changed,
            created_by: self.created_by,
            changed_by: self.changed_by,
            children_changed_by: self.children_changed_by,
            next_sequence: self.next_sequence,
        }
    }

    fn check_version(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError> {
        if expected.is_some_and(|expected| expected != self.version) {
            return Err(TreeError::BadVersion(path.clone()));
        }
        Ok(())
    }

    fn stat(&self) -> Stat {
        Stat {
            created_by: self.created_by,
            created: self.created,
            changed: self.changed,
            version: self.version,
            n_children: u32::try_from(self.children.len()).unwrap_or(u32::MAX),
            next_sequence: self.next_sequence,
            size_bytes: u32::try_from(self.data.len()).unwrap_or(u32::MAX),
            owner: self.owner.map(|session| session.0),
        }
    }
}
