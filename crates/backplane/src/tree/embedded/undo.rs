//! Undoes operations on an embedded tree, in reverse order.

use super::state::{Effects, NodeRecord, TreeState, Undo};
use crate::tree::path::TreePath;

impl TreeState {
    pub(super) fn undo(&mut self, effects: Effects) {
        for undo in effects.undo.into_iter().rev() {
            self.undo_one(undo);
        }
    }

    fn undo_one(&mut self, undo: Undo) {
        match undo {
            Undo::Create {
                path,
                next_sequence,
                children_changed_by,
            } => {
                if let Some(record) = self.nodes.remove(&path) {
                    self.size_bytes -= record.data.len();
                    if let Some(session) = record.owner {
                        self.forget_ephemeral(session, &path);
                    }
                }
                if let Some(above) = self.parent_of(&path) {
                    above.children.remove(path.name());
                    above.next_sequence = next_sequence;
                    above.children_changed_by = children_changed_by;
                }
            }
            Undo::Set {
                path,
                data,
                version,
                changed,
                changed_by,
            } => {
                let size_bytes = data.len();
                if let Some(record) = self.nodes.get_mut(&path) {
                    let new = std::mem::replace(&mut record.data, data);
                    record.version = version;
                    record.changed = changed;
                    record.changed_by = changed_by;
                    self.size_bytes = self.size_bytes + size_bytes - new.len();
                }
            }
            Undo::Delete {
                path,
                record,
                children_changed_by,
            } => {
                if let Some(above) = self.parent_of(&path) {
                    above.children.insert(path.name().to_owned());
                    above.children_changed_by = children_changed_by;
                }
                self.size_bytes += record.data.len();
                if let Some(session) = record.owner {
                    let of_session = self.ephemerals.entry(session.0).or_default();
                    of_session.insert(path.clone());
                }
                self.nodes.insert(path, record);
            }
        }
    }

    fn parent_of(&mut self, path: &TreePath) -> Option<&mut NodeRecord> {
        self.nodes.get_mut(&path.parent()?)
    }
}
