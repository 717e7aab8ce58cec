//! Exports and imports trees.

use std::io::Read as _;
use std::path::Path;

use backplane::tree::{
    ExportedNode, ImportError, ImportOptions, ImportSummary, TreeExport, TreePath,
    convert_nodepool, import as import_nodes,
};
use serde_json::json;

use super::place::{Access, Place, failure};
use crate::failure::{Exit, Failure};
use crate::{machine, output};

/// Largest document to import.
const MAX_DOCUMENT_BYTES: u64 = 1 << 30;

#[derive(Clone, Copy)]
pub(super) struct Wishes {
    pub(super) overwrite: bool,
    pub(super) dry_run: bool,
    pub(super) as_is: bool,
}

pub(super) async fn export(place: &Place, file: Option<&Path>, json: bool) -> Result<(), Failure> {
    let opened = place.open(Access::Read).await?;
    let export = TreeExport::read(&opened.tree, &opened.root, machine::now()).await;
    let (export, forged) = export.map_err(failure)?;
    for (path, problem) in forged {
        output::note(&format!("left out node {path}: {problem}"));
    }
    let text = serde_json::to_string_pretty(&export);
    let mut text = text.map_err(|error| Failure::failed(error.to_string()))?;
    text.push('\n');
    match file {
        None => output::out_raw(text.as_bytes()),
        Some(file) => {
            let unwritable =
                |error| Failure::failed(format!("cannot write {}: {error}", file.display()));
            write_file(file, &text).map_err(unwritable)?;
        }
    }
    if let Some(file) = file.filter(|_| json) {
        let (n_nodes, file) = (export.nodes.len(), file.display().to_string());
        output::json(&json!({"file": file, "nodes": n_nodes, "leftOut": export.n_ephemeral}));
    } else {
        let nodes = output::counted(export.nodes.len(), "node");
        let left_out = output::counted(export.n_ephemeral, "ephemeral node");
        output::note(&format!("exported {nodes}, left out {left_out}"));
    }
    opened.close().await
}

/// A failure leaves no half file under this name.
fn write_file(file: &Path, text: &str) -> std::io::Result<()> {
    let mut part = file.as_os_str().to_owned();
    part.push(".part");
    std::fs::write(&part, text)?;
    std::fs::rename(&part, file)
}

pub(super) async fn import(
    place: &Place,
    file: &Path,
    wishes: Wishes,
    json: bool,
) -> Result<(), Failure> {
    let export = read(file)?;
    let (nodes, left_out) = prepare(export, wishes.as_is)?;
    let opened = place.open(Access::Write).await?;
    let options = ImportOptions {
        overwrites: wishes.overwrite,
        is_dry: wishes.dry_run,
    };
    if opened.zookeeper.is_some() && !opened.is_sealed {
        output::note(
            "the nodes carry no seal, so servers and builders of Fleetwright will not act on them: \
             name the server's --config, or --keys",
        );
    }
    let imported = import_nodes(&opened.tree, &nodes, options).await;
    let closed = opened.close().await;
    let summary = imported.map_err(import_failure)?;
    report(&summary, &left_out, wishes.dry_run, json);
    closed
}

fn read(file: &Path) -> Result<TreeExport, Failure> {
    let reader: std::io::Result<Box<dyn std::io::Read>> = if file.as_os_str() == "-" {
        Ok(Box::new(std::io::stdin()))
    } else {
        std::fs::File::open(file).map(|file| Box::new(file) as Box<_>)
    };
    let name = file.display();
    let mut text = Vec::new();
    let read = reader.and_then(|reader| reader.take(MAX_DOCUMENT_BYTES + 1).read_to_end(&mut text));
    read.map_err(|error| Failure::usage(format!("cannot read {name}: {error}")))?;
    if text.len() as u64 > MAX_DOCUMENT_BYTES {
        return Err(Failure::usage(format!(
            "{name} may have at most {MAX_DOCUMENT_BYTES} bytes"
        )));
    }
    let export = TreeExport::parse(&text);
    export.map_err(|problem| Failure::usage(format!("{name} is no export of a tree: {problem}")))
}

/// The nodes to import, and what is left out.
type Prepared = (Vec<ExportedNode>, Vec<(String, usize)>);

fn prepare(export: TreeExport, as_is: bool) -> Result<Prepared, Failure> {
    if as_is {
        return Ok((export.nodes, Vec::new()));
    }
    let converted = convert_nodepool(&export.nodes);
    let converted = converted.map_err(|error| Failure::failed(error.to_string()))?;
    match converted {
        Some(import) => {
            output::note("these are the images of a Nodepool: they get the layout of Fleetwright");
            Ok((import.nodes, import.left_out.into_iter().collect()))
        }
        None => Ok((export.nodes, Vec::new())),
    }
}

fn import_failure(error: ImportError) -> Failure {
    let text = error.to_string();
    match error {
        ImportError::Conflicts { .. } => Failure::new(Exit::Conflict, text)
            .with_hint("nothing was written; --overwrite replaces their data"),
        ImportError::Invalid { .. } => Failure::failed(text),
        ImportError::Tree(error) => {
            let failed = failure(error);
            failed.with_hint("run the command again: it goes on where it stopped")
        }
    }
}

fn report(summary: &ImportSummary, left_out: &[(String, usize)], dry_run: bool, json: bool) {
    if json {
        let not_raised: Vec<&str> = summary.not_raised.iter().map(TreePath::as_str).collect();
        let left_out: serde_json::Map<_, _> = left_out
            .iter()
            .map(|(name, count)| (name.clone(), json!(count)))
            .collect();
        output::json(&json!({
            "dryRun": dry_run,
            "created": summary.n_created,
            "overwritten": summary.n_overwritten,
            "unchanged": summary.n_unchanged,
            "countersRaised": summary.n_raised,
            "countersNotRaised": not_raised,
            "leftOut": left_out,
        }));
        return;
    }
    let verb = if dry_run { "would create" } else { "created" };
    output::out(&format!(
        "{verb} {}, overwritten {}, unchanged {}, counters raised {}",
        output::counted(summary.n_created, "node"),
        summary.n_overwritten,
        summary.n_unchanged,
        summary.n_raised,
    ));
    for (name, count) in left_out {
        output::note(&format!(
            "left out: {} below {name}",
            output::counted(*count, "node")
        ));
    }
    for path in &summary.not_raised {
        output::note(&format!(
            "the counter of {path} is too far behind, and was left alone"
        ));
    }
}
