//! The persistent nodes of the embedded tree.

use domain::time::Timestamp;

use crate::engine::{Part, Result, Table, Tx, from_row, part, statements};

static TABLE: Table = Table::unlisted("tree_nodes", 1);

statements! { TABLE;
    SIZES "tree_node_sizes" =
        "SELECT CAST(LENGTH(data) AS BIGINT) FROM tree_nodes WHERE path > $1 \
         ORDER BY path LIMIT $2";
    LIST "tree_node_list" =
        "SELECT path, data, is_base64, version, created, changed, created_by, changed_by, \
         children_changed_by, next_sequence FROM tree_nodes WHERE path > $1 \
         ORDER BY path LIMIT $2";
    PUT "tree_node_put" =
        "INSERT INTO tree_nodes (path, data, is_base64, version, created, changed, created_by, \
         changed_by, children_changed_by, next_sequence) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10) ON CONFLICT (path) DO UPDATE \
         SET data = excluded.data, is_base64 = excluded.is_base64, version = excluded.version, \
         created = excluded.created, changed = excluded.changed, \
         created_by = excluded.created_by, changed_by = excluded.changed_by, \
         children_changed_by = excluded.children_changed_by, \
         next_sequence = excluded.next_sequence";
    DELETE "tree_node_delete" = "DELETE FROM tree_nodes WHERE path = $1";
}

/// A node as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeNode {
    pub path: String,
    /// Text, or base64.
    pub data: String,
    pub is_base64: bool,
    pub version: i64,
    pub created: Timestamp,
    pub changed: Timestamp,
    pub created_by: i64,
    pub changed_by: i64,
    pub children_changed_by: i64,
    pub next_sequence: i64,
}

/// The nodes behind a path, by path.
pub fn list(tx: &mut Tx<'_>, after: &str, limit: u32) -> Result<Part<TreeNode>> {
    part::read(tx, &SIZES, &LIST, after, limit)
}

/// Creates the node, or replaces it.
pub fn put(tx: &mut Tx<'_>, node: &TreeNode) -> Result<()> {
    let data = (node.data.as_str(), node.is_base64, node.version);
    let changes = (
        node.created_by,
        node.changed_by,
        node.children_changed_by,
        node.next_sequence,
    );
    let values = (
        node.path.as_str(),
        data,
        node.created,
        node.changed,
        changes,
    );
    tx.run(&PUT, values)
}

pub fn delete(tx: &mut Tx<'_>, path: &str) -> Result<()> {
    tx.run(&DELETE, path)
}

from_row! { TreeNode {
    path, data, is_base64, version, created, changed, created_by, changed_by, children_changed_by,
    next_sequence
} }
