//! Takes a tree over, protects it, and removes nodes from it.

use backplane::tree::{Lifetime, TreeError, TreePath, delete_subtree};
use images::{ImagePaths, adopt_tree};
use serde_json::json;

use super::place::{Access, OpenedTree, Place, failure};
use crate::failure::{Exit, Failure};
use crate::output;

/// Gives nodes that others may write to the access list of our own.
pub(super) async fn protect(place: &Place, json: bool) -> Result<(), Failure> {
    let opened = place.open(Access::Write).await?;
    let Some(zookeeper) = &opened.zookeeper else {
        return Err(only_zookeeper(
            "an embedded tree has no access lists: it is protected by those of its database",
        ));
    };
    let below = ImagePaths::root().map_err(|error| failure(error.into()))?;
    let protected = zookeeper.protect(&below).await.map_err(failure)?;
    if json {
        let paths: Vec<&str> = protected.iter().map(TreePath::as_str).collect();
        output::json(&json!({"protected": paths}));
    } else {
        for path in &protected {
            output::out(path.as_str());
        }
        let n_nodes = output::counted(protected.len(), "node");
        output::note(&format!("protected {n_nodes}"));
    }
    opened.close().await
}

/// Lets the database of the configuration have the tree.
pub(super) async fn adopt(place: &Place) -> Result<(), Failure> {
    let ours = place.database_identity().await?;
    let opened = place.open(Access::Write).await?;
    if opened.zookeeper.is_none() {
        return Err(only_zookeeper(
            "an embedded tree always belongs to the database that it is in",
        ));
    }
    if !opened.is_sealed {
        return Err(Failure::usage(
            "keys.file is missing: what is written needs a seal",
        ));
    }
    adopt_tree(&opened.tree, &ours).await.map_err(failure)?;
    output::note(&format!("the tree belongs to the database {ours} now"));
    opened.close().await
}

/// Removes a node, with everything below it if that is wanted.
pub(super) async fn remove(
    place: &Place,
    path: &TreePath,
    recursive: bool,
    json: bool,
) -> Result<(), Failure> {
    let opened = place.open(Access::Write).await?;
    let removed = remove_from(&opened, path, recursive).await;
    let closed = opened.close().await;
    let n_removed = removed?;
    if json {
        output::json(&json!({"removed": n_removed}));
    } else {
        let nodes = output::counted(n_removed, "node");
        output::note(&format!("removed {nodes}"));
    }
    closed
}

async fn remove_from(
    opened: &OpenedTree,
    path: &TreePath,
    recursive: bool,
) -> Result<usize, Failure> {
    let stat = opened.tree.exists(path).await.map_err(failure)?;
    let stat = stat.ok_or_else(|| failure(TreeError::NoNode(path.clone())))?;
    if stat.lifetime() == Lifetime::Ephemeral {
        let text = format!("{path} is of a running process, and ends with it");
        return Err(Failure::new(Exit::Conflict, text));
    }
    if stat.n_children > 0 && !recursive {
        let children = output::counted(stat.n_children as usize, "child");
        let text = format!("{path} has {children}");
        return Err(Failure::new(Exit::Conflict, text)
            .with_hint("--recursive removes everything below it, too"));
    }
    delete_subtree(&opened.tree, path).await.map_err(failure)
}

fn only_zookeeper(text: &str) -> Failure {
    Failure::usage(text)
}
