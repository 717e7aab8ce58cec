//! Exports: a subtree as one JSON document.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::Tree;
use super::error::TreeError;
use super::node::{Lifetime, Node};
use super::path::TreePath;
use super::walk::{MAX_WALKED, walk};

/// The version of the document.
const VERSION: u32 = 1;

/// A subtree. Ephemeral nodes are left out: they end with their sessions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct TreeExport {
    pub version: u32,
    /// The node to which the paths are relative.
    pub root: TreePath,
    pub exported: Timestamp,
    pub n_ephemeral: usize,
    /// By path, so parents are before their children.
    pub nodes: Vec<ExportedNode>,
}

/// A persistent node. Its data is either text or base64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ExportedNode {
    pub path: TreePath,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub base64: Option<String>,
    pub version: i32,
    pub created: Timestamp,
    pub changed: Timestamp,
    pub next_sequence: u32,
}

impl TreeExport {
    /// Reads everything that this session sees. `root` only names it. Nodes that are not to be
    /// trusted are left out, and returned beside the export with the reason.
    pub async fn read(
        tree: &Arc<dyn Tree>,
        root: &TreePath,
        now: Timestamp,
    ) -> Result<(Self, Vec<(TreePath, String)>), TreeError> {
        let nodes = walk(tree, &TreePath::root(), MAX_WALKED).await?;
        let is_ephemeral = |node: &Node| node.stat.lifetime() == Lifetime::Ephemeral;
        let n_ephemeral = nodes.iter().filter(|(_, node)| is_ephemeral(node)).count();
        let mut export = Self {
            version: VERSION,
            root: root.clone(),
            exported: now,
            n_ephemeral,
            nodes: Vec::new(),
        };
        let mut forged = Vec::new();
        for (path, node) in nodes {
            // A node without data that has children is only their parent.
            let is_parent = node.stat.size_bytes == 0 && node.stat.n_children > 0;
            match &node.forged {
                _ if is_ephemeral(&node) => {}
                Some(problem) if !is_parent => forged.push((path, problem.clone())),
                Some(_) | None => export.nodes.push(ExportedNode::new(path, node)),
            }
        }
        Ok((export, forged))
    }

    /// Reads a document, and checks what its types do not say.
    pub fn parse(text: &[u8]) -> Result<Self, String> {
        let export: Self = serde_json::from_slice(text).map_err(|error| error.to_string())?;
        if export.version != VERSION {
            let version = export.version;
            return Err(format!(
                "it has version {version}, and only {VERSION} is known"
            ));
        }
        for node in &export.nodes {
            node.data()
                .map_err(|problem| format!("node {}: {problem}", node.path))?;
        }
        let mut paths: Vec<&TreePath> = export.nodes.iter().map(|node| &node.path).collect();
        paths.sort();
        if let Some(twice) = paths.windows(2).find(|pair| pair[0] == pair[1]) {
            return Err(format!("node {} occurs twice", twice[0]));
        }
        Ok(export)
    }
}

impl ExportedNode {
    pub fn new(path: TreePath, node: Node) -> Self {
        let (text, base64) = match String::from_utf8(node.data) {
            Ok(text) => (Some(text), None),
            Err(error) => (None, Some(STANDARD.encode(error.as_bytes()))),
        };
        Self {
            path,
            text,
            base64,
            version: node.stat.version,
            created: node.stat.created,
            changed: node.stat.changed,
            next_sequence: node.stat.next_sequence,
        }
    }

    pub fn data(&self) -> Result<Vec<u8>, String> {
        match (&self.text, &self.base64) {
            (Some(text), None) => Ok(text.as_bytes().to_vec()),
            (None, Some(base64)) => {
                let data = STANDARD.decode(base64);
                data.map_err(|error| format!("its base64 is invalid: {error}"))
            }
            (None, None) | (Some(_), Some(_)) => Err("it needs either text or base64".to_owned()),
        }
    }
}
