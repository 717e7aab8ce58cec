//! A tree whose nodes carry seals: others may be able to write to it, and are not believed.
//!
//! A seal is a tag that only a holder of the deployment's keys can make. It is bound to the path
//! and the version of its node, so that no data can be moved to another node, or be put back after
//! it was replaced. Others who write to the tree can delete nodes, and no more. A node that was
//! deleted and created again may have the data of an earlier one of the same path and version.
//!
//! Contenders for locks carry no seal: their names are given by the tree, and nothing that they say
//! is acted on. Nodes without data that are only the parents of others need none.

use std::sync::Arc;

use access::seal::{Keyring, OpenError};
use async_trait::async_trait;
use tokio::sync::watch::Receiver;

use super::Tree;
use super::error::TreeError;
use super::lock_directory::{is_contender, is_lock};
use super::node::{
    Lifetime, Node, Op, OpResult, SEQUENCE_DIGITS, Stat, sequence_of, unnumbered_path,
};
use super::path::TreePath;
use super::session::SessionState;
use super::watch::{NodeWatch, SubtreeWatch};

const PURPOSE: &str = "a node of the tree";
/// Precedes the tag, which ends with the line; the data of the node follow.
const MARK: &[u8] = b"sealed ";
/// Stands for a number that is not known yet; no path has this character.
const NUMBER: &str = "\0";
/// Attempts to write a node whose version the caller does not know.
const ATTEMPTS: usize = 10;

/// Seals what is written to a tree, and checks what is read from it.
#[derive(Debug)]
pub struct SealedTree {
    tree: Arc<dyn Tree>,
    keyring: Arc<Keyring>,
}

impl SealedTree {
    pub fn new(tree: Arc<dyn Tree>, keyring: Arc<Keyring>) -> Self {
        Self { tree, keyring }
    }

    /// Writes again what a key sealed that is not the first one. Returns how many nodes.
    pub async fn seal_again(&self, root: &TreePath) -> Result<usize, TreeError> {
        let mut n_sealed = 0;
        for (path, node) in super::walk(&self.tree, root, super::MAX_WALKED).await? {
            let is_current = split(&node.data).is_none_or(|(tag, _)| self.keyring.is_current(tag));
            if is_current || is_contender(&path) {
                continue;
            }
            let version = node.stat.version;
            let opened = self.open(&path, node);
            if opened.forged.is_some() {
                continue;
            }
            match self.set(&path, &opened.data, Some(version)).await {
                Ok(_) => n_sealed += 1,
                // Another process wrote it meanwhile, with the first key.
                Err(TreeError::BadVersion(_) | TreeError::NoNode(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(n_sealed)
    }

    fn seal(&self, place: &str, version: i32, data: &[u8]) -> Vec<u8> {
        let tag = self.keyring.tag(PURPOSE, &message(place, version, data));
        [MARK, tag.as_bytes(), b"\n", data].concat()
    }

    fn open(&self, path: &TreePath, mut node: Node) -> Node {
        if is_contender(path) {
            return node;
        }
        match self.check(path, &node) {
            Ok(data) => node.data = data,
            Err(problem) => {
                node.data = Vec::new();
                node.forged = Some(problem);
            }
        }
        node
    }

    /// The data without its seal.
    fn check(&self, path: &TreePath, node: &Node) -> Result<Vec<u8>, String> {
        let Some((tag, data)) = split(&node.data) else {
            return Err(
                "it has no seal: no process with the keys of this deployment wrote it".to_owned(),
            );
        };
        let version = node.stat.version;
        let mut checked = self.check_tag(tag, path.as_str(), version, data);
        if checked == Err(OpenError::Refused) && version == 0 {
            checked = self.check_tag(tag, &unnumbered(path), version, data);
        }
        match checked {
            Ok(()) => Ok(data.to_vec()),
            Err(OpenError::NotSealed) => Err("its seal is damaged".to_owned()),
            Err(OpenError::UnknownKey(key)) => Err(format!(
                "it was sealed with key {key}, which is not configured here"
            )),
            Err(OpenError::Refused) => {
                Err("its seal is not of this data in this place: somebody changed it".to_owned())
            }
        }
    }

    fn check_tag(
        &self,
        tag: &str,
        place: &str,
        version: i32,
        data: &[u8],
    ) -> Result<(), OpenError> {
        let message = message(place, version, data);
        self.keyring.check_tag(PURPOSE, tag, &message)
    }

    /// The data of a new node whose number is not known yet.
    fn seal_unnumbered(&self, parent: &TreePath, prefix: &str, data: &[u8]) -> Vec<u8> {
        let place = unnumbered_path(parent, prefix) + NUMBER;
        self.seal(&place, 0, data)
    }

    fn sealed_op(&self, op: &Op) -> Result<Op, TreeError> {
        Ok(match op {
            Op::Create {
                path,
                data,
                lifetime,
            } if !is_contender(path) => Op::Create {
                path: path.clone(),
                data: self.seal(path.as_str(), 0, data),
                lifetime: *lifetime,
            },
            Op::CreateSequential {
                parent,
                prefix,
                data,
                lifetime,
            } if !is_lock(parent) => Op::CreateSequential {
                parent: parent.clone(),
                prefix: prefix.clone(),
                data: self.seal_unnumbered(parent, prefix, data),
                lifetime: *lifetime,
            },
            // It only counts changes.
            Op::Set {
                data,
                expected: None,
                ..
            } if data.is_empty() => op.clone(),
            Op::Set {
                path,
                data,
                expected: Some(version),
            } => Op::Set {
                path: path.clone(),
                data: self.seal(path.as_str(), version.wrapping_add(1), data),
                expected: Some(*version),
            },
            Op::Set {
                path,
                expected: None,
                ..
            } => {
                return Err(TreeError::Unexpected(format!(
                    "node {path} is written in a transaction without its version, to which its seal \
                     is bound"
                )));
            }
            // Contenders.
            Op::Create { .. }
            | Op::CreateSequential { .. }
            | Op::Delete { .. }
            | Op::Check { .. } => op.clone(),
        })
    }
}

fn message(place: &str, version: i32, data: &[u8]) -> Vec<u8> {
    [format!("{place}\n{version}\n").as_bytes(), data].concat()
}

/// The place to which the seal of a sequential node is bound until its data is replaced: the tree
/// gives the number when the node is written.
fn unnumbered(path: &TreePath) -> String {
    let text = path.as_str();
    let prefix = match sequence_of(path.name()) {
        Some(_) => text.get(..text.len() - SEQUENCE_DIGITS).unwrap_or(text),
        None => text,
    };
    format!("{prefix}{NUMBER}")
}

/// The tag and the data.
fn split(sealed: &[u8]) -> Option<(&str, &[u8])> {
    let rest = sealed.strip_prefix(MARK)?;
    let end = rest.iter().position(|byte| *byte == b'\n')?;
    let tag = std::str::from_utf8(rest.get(..end)?).ok()?;
    Some((tag, rest.get(end + 1..)?))
}

#[async_trait]
impl Tree for SealedTree {
    async fn create(
        &self,
        path: &TreePath,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<Stat, TreeError> {
        if is_contender(path) {
            return self.tree.create(path, data, lifetime).await;
        }
        let sealed = self.seal(path.as_str(), 0, data);
        self.tree.create(path, &sealed, lifetime).await
    }

    async fn create_sequential(
        &self,
        parent: &TreePath,
        prefix: &str,
        data: &[u8],
        lifetime: Lifetime,
    ) -> Result<(TreePath, Stat), TreeError> {
        let sealed = match is_lock(parent) {
            true => data.to_vec(),
            false => self.seal_unnumbered(parent, prefix, data),
        };
        self.tree
            .create_sequential(parent, prefix, &sealed, lifetime)
            .await
    }

    async fn get(&self, path: &TreePath) -> Result<Node, TreeError> {
        Ok(self.open(path, self.tree.get(path).await?))
    }

    async fn set(
        &self,
        path: &TreePath,
        data: &[u8],
        expected: Option<i32>,
    ) -> Result<Stat, TreeError> {
        if let Some(version) = expected {
            let sealed = self.seal(path.as_str(), version.wrapping_add(1), data);
            return self.tree.set(path, &sealed, expected).await;
        }
        for _ in 0..ATTEMPTS {
            let stat = self.tree.exists(path).await?;
            let stat = stat.ok_or_else(|| TreeError::NoNode(path.clone()))?;
            let sealed = self.seal(path.as_str(), stat.version.wrapping_add(1), data);
            match self.tree.set(path, &sealed, Some(stat.version)).await {
                Err(TreeError::BadVersion(_)) => {}
                set => return set,
            }
        }
        Err(TreeError::BadVersion(path.clone()))
    }

    async fn delete(&self, path: &TreePath, expected: Option<i32>) -> Result<(), TreeError> {
        self.tree.delete(path, expected).await
    }

    async fn exists(&self, path: &TreePath) -> Result<Option<Stat>, TreeError> {
        self.tree.exists(path).await
    }

    async fn children(&self, path: &TreePath) -> Result<Vec<String>, TreeError> {
        self.tree.children(path).await
    }

    async fn multi(&self, ops: &[Op]) -> Result<Vec<OpResult>, TreeError> {
        let sealed = ops.iter().map(|op| self.sealed_op(op));
        let sealed: Vec<Op> = sealed.collect::<Result<_, _>>()?;
        self.tree.multi(&sealed).await
    }

    async fn watch_node(&self, path: &TreePath) -> Result<(Option<Stat>, NodeWatch), TreeError> {
        self.tree.watch_node(path).await
    }

    async fn watch_children(&self, path: &TreePath) -> Result<(Vec<String>, NodeWatch), TreeError> {
        self.tree.watch_children(path).await
    }

    async fn watch_subtree(&self, path: &TreePath) -> Result<SubtreeWatch, TreeError> {
        self.tree.watch_subtree(path).await
    }

    fn session(&self) -> Receiver<SessionState> {
        self.tree.session()
    }
}
