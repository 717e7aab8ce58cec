//! The nodes of the embedded tree in the store.

use async_trait::async_trait;
use backplane::tree::{StorageError, TreeBatch, TreeRow, TreeStorage};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::time::Timestamp;
use store::tree_nodes::{self, TreeNode};
use store::tree_owners;
use store::{Store, StoreError};

use super::owner_process::OwnerProcess;

/// Nodes of one read.
const PAGE: u32 = 1_000;

pub(super) struct StoredNodes {
    store: Store,
    /// `None`: only to read.
    epoch: Option<i64>,
}

enum WriteError {
    TakenOver(OwnerProcess),
    Store(StoreError),
}

impl From<StoreError> for WriteError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl StoredNodes {
    pub(super) fn of_owner(store: Store, epoch: i64) -> Self {
        let epoch = Some(epoch);
        Self { store, epoch }
    }

    pub(super) fn to_read(store: Store) -> Self {
        let epoch = None;
        Self { store, epoch }
    }
}

#[async_trait]
impl TreeStorage for StoredNodes {
    async fn load(&self) -> Result<Vec<TreeRow>, StorageError> {
        let failed = |error: StoreError| StorageError::Failed(error.to_string());
        // In one transaction: a page must not miss what another process moves meanwhile.
        let nodes = self.store.scan("tree_load", |tx| {
            let mut nodes: Vec<TreeNode> = Vec::new();
            loop {
                let after = nodes.last().map_or(String::new(), |node| node.path.clone());
                let page = tree_nodes::list(tx, &after, PAGE)?;
                let has_more = page.may_have_more(PAGE);
                nodes.extend(page.items);
                if !has_more {
                    return Ok(nodes);
                }
            }
        });
        nodes
            .await
            .map_err(failed)?
            .into_iter()
            .map(to_row)
            .collect()
    }

    async fn apply(&self, batch: TreeBatch) -> Result<(), StorageError> {
        let Some(epoch) = self.epoch else {
            let problem = "the tree was opened to read; stop the server to change it";
            return Err(StorageError::Failed(problem.to_owned()));
        };
        let put: Vec<TreeNode> = batch.put.into_iter().map(to_node).collect();
        let delete = batch.delete;
        let written = self.store.write_durably("tree_write", move |tx| {
            let owner = tree_owners::get(tx)?;
            if owner.as_ref().is_none_or(|owner| owner.epoch != epoch) {
                let text = owner.map_or(String::new(), |owner| owner.process);
                return Err(WriteError::TakenOver(OwnerProcess::from_json(&text)));
            }
            for path in &delete {
                tree_nodes::delete(tx, path.as_str())?;
            }
            for node in &put {
                tree_nodes::put(tx, node)?;
            }
            // Conflicts with a process that takes the tree at the same time.
            let renewed = owner.map_or(Timestamp::from_millis(0), |owner| owner.renewed);
            tree_owners::renew(tx, epoch, renewed)?;
            Ok(())
        });
        written.await.map_err(|error| match error {
            WriteError::TakenOver(process) => StorageError::TakenOver(process.to_string()),
            WriteError::Store(error) => StorageError::Failed(error.to_string()),
        })
    }
}

fn to_node(row: TreeRow) -> TreeNode {
    // A text with the character NUL is none for PostgreSQL.
    let text = String::from_utf8(row.data).map_err(|error| error.into_bytes());
    let (data, is_base64) = match text {
        Ok(text) if !text.contains('\0') => (text, false),
        Ok(text) => (STANDARD.encode(text), true),
        Err(bytes) => (STANDARD.encode(bytes), true),
    };
    TreeNode {
        path: row.path.to_string(),
        data,
        is_base64,
        version: i64::from(row.version),
        created: row.created,
        changed: row.changed,
        created_by: row.created_by,
        changed_by: row.changed_by,
        children_changed_by: row.children_changed_by,
        next_sequence: i64::from(row.next_sequence),
    }
}

fn to_row(node: TreeNode) -> Result<TreeRow, StorageError> {
    let corrupt = |problem: String| {
        StorageError::Failed(format!(
            "node {} of the tree is corrupt: {problem}",
            node.path
        ))
    };
    let data = if node.is_base64 {
        let data = STANDARD.decode(&node.data);
        data.map_err(|error| corrupt(error.to_string()))?
    } else {
        node.data.clone().into_bytes()
    };
    let path = node.path.parse();
    let number = |number: i64| i32::try_from(number).map_err(|error| corrupt(error.to_string()));
    let sequence = u32::try_from(node.next_sequence);
    Ok(TreeRow {
        path: path.map_err(|error: backplane::tree::BadTreePath| corrupt(error.to_string()))?,
        data,
        version: number(node.version)?,
        created: node.created,
        changed: node.changed,
        created_by: node.created_by,
        changed_by: node.changed_by,
        children_changed_by: node.children_changed_by,
        next_sequence: sequence.map_err(|error| corrupt(error.to_string()))?,
    })
}
