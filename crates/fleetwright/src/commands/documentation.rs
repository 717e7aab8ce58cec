//! Documentation of worker configurations and worker types: checked, uploaded, downloaded, shown, removed.

mod folder;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use documentation::{MAX_UPLOAD_BYTES, Tree};
use files::unreadable;
use serde_json::{Value, json};

use super::{Consent, Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Check a folder or a tarball without sending it
    Check(Checked),
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Upload documentation: a folder, or a tarball
    Upload {
        #[command(flatten)]
        of: Of,
        /// A folder, or a file .tar or .tar.gz
        #[arg(value_name = "PATH")]
        path: PathBuf,
    },
    /// Download documentation into a folder, or as a tarball
    Download {
        #[command(flatten)]
        of: Of,
        /// A folder that is not there yet, or is empty; or a file whose name ends in .tar.gz or .tgz
        #[arg(value_name = "PATH")]
        path: PathBuf,
        #[command(flatten)]
        own: Own,
    },
    /// Show documentation as text
    Show {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        own: Own,
    },
    /// Remove documentation
    Remove {
        #[command(flatten)]
        of: Of,
        #[command(flatten)]
        consent: Consent,
    },
}

#[derive(Args, Debug)]
pub(crate) struct Checked {
    /// A folder, or a file .tar or .tar.gz
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// What is documented.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Of {
    /// Of this worker configuration
    #[arg(long, value_name = "ID", value_parser = name::configuration)]
    configuration: Option<String>,
    /// Of this worker type, such as build-opt, or proj-x/ci for a pool of another name
    #[arg(long, value_name = "NAME", value_parser = name::worker_type)]
    worker_type: Option<String>,
}

/// How much of a worker type's documentation is wanted.
#[derive(Args, Debug)]
pub(crate) struct Own {
    /// Without what documents the worker type's configuration
    #[arg(long, conflicts_with = "configuration")]
    own: bool,
}

const LIST: &[Column] = &[
    Column::text("CONFIGURATION", "workerConfigurationId"),
    Column::text("WORKER POOL", "workerPoolId"),
    Column::prose("TITLE", "title"),
    Column::text("FILES", "files"),
    Column::text("BYTES", "bytes"),
    Column::age("CHANGED", "lastModified"),
];

const LOOK: &str = "fleetwright documentation list";

/// What needs no server.
pub(crate) fn check(arguments: &Checked, json: bool) -> Result<(), Failure> {
    let tree = read(&arguments.path)?;
    if json {
        output::json(&summary(&tree));
    } else {
        output::out(&format!(
            "{} is in order: {}",
            arguments.path.display(),
            gist(&tree)
        ));
    }
    Ok(())
}

pub(crate) async fn run(verb: Verb, session: &Session) -> Result<(), Failure> {
    match verb {
        Verb::Check(arguments) => check(&arguments, session.json),
        Verb::List { limit } => {
            let call = Call::get(WORKER_MANAGER, &["documentation"]).to("list documentation");
            session.list(&call, "documentation", LIST, &limit).await
        }
        Verb::Upload { of, path } => upload(&of, &path, session).await,
        Verb::Download { of, path, own } => {
            let tarball = download(&of, &own, session).await?;
            save(&tarball, &path, session)
        }
        Verb::Show { of, own } => {
            let tree = unpacked(&download(&of, &own, session).await?)?;
            let text = harmless(&documentation::text(&tree));
            match session.json {
                true => output::json(&json!({ "title": tree.title(), "text": text })),
                false => output::out(&text),
            }
            Ok(())
        }
        Verb::Remove { of, consent } => {
            let what = of.to_string();
            output::confirm(&format!("remove the documentation of {what}"), consent.yes)?;
            let call = Call::delete(WORKER_MANAGER, &of.segments());
            let call = call.to(format!("remove the documentation of {what}"));
            let reply = session.client.call(&call).await?;
            session.done(&reply, &format!("removed the documentation of {what}"));
            Ok(())
        }
    }
}

async fn upload(of: &Of, path: &Path, session: &Session) -> Result<(), Failure> {
    let tree = read(path)?;
    let call = Call::upload(WORKER_MANAGER, &of.segments(), tree.pack())
        .to(format!("upload the documentation of {of}"))
        .look_with(match of.configuration {
            Some(_) => "fleetwright configuration list",
            None => "fleetwright pool list",
        });
    let reply = session.client.call(&call).await?;
    session.done(
        &reply,
        &format!("uploaded the documentation of {of}: {}", gist(&tree)),
    );
    Ok(())
}

async fn download(of: &Of, own: &Own, session: &Session) -> Result<Vec<u8>, Failure> {
    let call = Call::get(WORKER_MANAGER, &of.segments())
        .query("joined", own.own.then_some(false))
        .to(format!("download the documentation of {of}"))
        .look_with(LOOK);
    session.client.bytes(&call).await
}

fn save(tarball: &[u8], path: &Path, session: &Session) -> Result<(), Failure> {
    let tree = unpacked(tarball)?;
    let name = path.to_string_lossy();
    if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
        fs::write(path, tarball).with_context(|| format!("cannot write {name}"))?;
    } else {
        folder::write(&tree, path)?;
    }
    session.done(&summary(&tree), &format!("wrote {name}: {}", gist(&tree)));
    Ok(())
}

/// What is at the path, checked as the server would.
fn read(path: &Path) -> Result<Tree, Failure> {
    let shown = path.display();
    let unreadable = |problem| unreadable(path, &problem);
    let metadata = fs::metadata(path).map_err(unreadable)?;
    if metadata.is_dir() {
        return folder::read(path);
    }
    let mut upload = Vec::new();
    let file = fs::File::open(path).map_err(unreadable)?;
    file.take(MAX_UPLOAD_BYTES as u64 + 1)
        .read_to_end(&mut upload)
        .map_err(unreadable)?;
    Tree::accept(&upload).map_err(|refusal| Failure::failed(format!("{shown}: {refusal}")))
}

/// The server is not trusted to send what it should.
fn unpacked(tarball: &[u8]) -> Result<Tree, Failure> {
    Tree::unpack(tarball)
        .map_err(|refusal| Failure::failed(format!("the reply is no documentation: {refusal}")))
}

fn gist(tree: &Tree) -> String {
    let kib = tree.n_bytes().div_ceil(1024);
    let s = if tree.n_files() == 1 { "" } else { "s" };
    format!("{} file{s}, {kib} KiB", tree.n_files())
}

fn summary(tree: &Tree) -> Value {
    let files: Vec<Value> = tree
        .files()
        .map(|(path, content)| json!({"path": path, "bytes": content.len()}))
        .collect();
    json!({ "title": tree.title(), "bytes": tree.n_bytes(), "files": files })
}

/// Nothing that a terminal would take for an order.
fn harmless(text: &str) -> String {
    let plain = |character: char| match character {
        '\n' | '\t' => character,
        other if other.is_control() => '\u{fffd}',
        other => other,
    };
    text.replace("\r\n", "\n").chars().map(plain).collect()
}

impl Of {
    fn segments(&self) -> [&str; 3] {
        match (&self.configuration, &self.worker_type) {
            (Some(id), _) => ["worker-configuration", id, "documentation"],
            (None, name) => {
                let name = name.as_deref().unwrap_or_default();
                ["worker-type", name, "documentation"]
            }
        }
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (&self.configuration, &self.worker_type) {
            (Some(id), _) => write!(f, "worker configuration {id}"),
            (None, name) => write!(f, "worker type {}", name.as_deref().unwrap_or_default()),
        }
    }
}
