//! Lists, prints and watches nodes.

use std::sync::Arc;

use backplane::tree::{ExportedNode, Lifetime, Node, Stat, Tree, TreeError, TreeEvent, TreePath};
use backplane::tree::{MAX_WALKED, walk};
use serde_json::{Value, json};

use super::place::{Access, Place, failure};
use crate::failure::Failure;
use crate::machine;
use crate::output::{self, Column};

const COLUMNS: &[Column] = &[
    Column::text("PATH", "path"),
    Column::text("KIND", "kind"),
    Column::number("VERSION", "version"),
    Column::number("BYTES", "sizeBytes"),
    Column::number("CHILDREN", "children"),
    Column::age("CHANGED", "changed"),
];

pub(super) async fn list(
    place: &Place,
    path: &TreePath,
    recursive: bool,
    limit: usize,
    json: bool,
) -> Result<(), Failure> {
    let opened = place.open(Access::Read).await?;
    let listed = if recursive {
        list_below(&opened.tree, path).await
    } else {
        list_children(&opened.tree, path, limit).await
    };
    let (mut nodes, n_all) = listed.map_err(failure)?;
    nodes.truncate(limit);
    let items: Vec<Value> = nodes.iter().map(|(path, stat)| item(path, stat)).collect();
    if json {
        output::json(&json!({"nodes": items, "total": n_all}));
    } else {
        let width = output::screen_width();
        output::out(&output::table(&items, COLUMNS, machine::now(), width));
        if n_all > nodes.len() {
            let more = n_all - nodes.len();
            output::note(&format!("{more} more; use --limit"));
        }
    }
    opened.close().await
}

type Listed = (Vec<(TreePath, Stat)>, usize);

async fn list_below(tree: &Arc<dyn Tree>, path: &TreePath) -> Result<Listed, TreeError> {
    let nodes = walk(tree, path, MAX_WALKED).await?;
    if nodes.is_empty() {
        return Err(TreeError::NoNode(path.clone()));
    }
    let below = nodes.into_iter().filter(|(found, _)| found != path);
    let below: Vec<_> = below.map(|(path, node)| (path, node.stat)).collect();
    let n_all = below.len();
    Ok((below, n_all))
}

async fn list_children(
    tree: &Arc<dyn Tree>,
    path: &TreePath,
    limit: usize,
) -> Result<Listed, TreeError> {
    let names = tree.children(path).await?;
    let n_all = names.len();
    let mut nodes = Vec::new();
    for name in names.into_iter().take(limit) {
        let child = path.join(&name)?;
        // A node that was deleted meanwhile is left out.
        if let Some(stat) = tree.exists(&child).await? {
            nodes.push((child, stat));
        }
    }
    Ok((nodes, n_all))
}

fn kind(lifetime: Lifetime) -> &'static str {
    match lifetime {
        Lifetime::Persistent => "persistent",
        Lifetime::Ephemeral => "ephemeral",
    }
}

fn item(path: &TreePath, stat: &Stat) -> Value {
    json!({
        "path": path.as_str(),
        "kind": kind(stat.lifetime()),
        "version": stat.version,
        "sizeBytes": stat.size_bytes,
        "children": stat.n_children,
        "nextSequence": stat.next_sequence,
        "created": stat.created.to_string(),
        "changed": stat.changed.to_string(),
    })
}

pub(super) async fn get(place: &Place, path: &TreePath, json: bool) -> Result<(), Failure> {
    let opened = place.open(Access::Read).await?;
    let node = opened.tree.get(path).await.map_err(failure)?;
    if json {
        output::json(&document(path, node));
    } else if let Some(problem) = node.forged {
        let _ = opened.close().await;
        return Err(Failure::failed(format!(
            "the data of node {path} is not to be trusted: {problem}"
        )));
    } else {
        let mut text = output::ForeignText::to_stdout();
        text.print(&node.data);
        text.end();
    }
    opened.close().await
}

fn document(path: &TreePath, node: Node) -> Value {
    let mut document = item(path, &node.stat);
    if let Some(problem) = &node.forged {
        document["forged"] = problem.as_str().into();
    }
    let exported = ExportedNode::new(path.clone(), node);
    match (exported.text, exported.base64) {
        (Some(text), _) => document["text"] = text.into(),
        (None, base64) => document["base64"] = base64.into(),
    }
    document
}

/// Runs until the process is stopped.
pub(super) async fn watch(place: &Place, path: &TreePath, json: bool) -> Result<(), Failure> {
    let opened = place.open(Access::Watch).await?;
    let mut watch = opened.tree.watch_subtree(path).await.map_err(failure)?;
    output::note(&format!("watching {path}; stop with Ctrl-C"));
    while let Some(event) = watch.next().await {
        let (what, path) = match event {
            TreeEvent::Created(path) => ("created", path),
            TreeEvent::Changed(path) => ("changed", path),
            TreeEvent::Deleted(path) => ("deleted", path),
            TreeEvent::Children(path) => ("children", path),
            TreeEvent::Resync => {
                output::note("the connection was lost: changes may be missing");
                ("resync", path.clone())
            }
        };
        let time = machine::now();
        if json {
            let event = json!({"time": time.to_string(), "event": what, "path": path.as_str()});
            output::out(&event.to_string());
        } else {
            output::out(&format!("{time} {what} {path}"));
        }
        output::check_written()?;
    }
    opened.close().await
}
