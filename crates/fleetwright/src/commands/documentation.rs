//! Commands on the documentation of worker configurations and worker types.

mod folder;

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use documentation::{MAX_UPLOAD_BYTES, Tree};
use files::unreadable;
use serde_json::{Value, json};

use super::{Confirmed, Limit, Session, name};
use crate::client::{Call, WORKER_MANAGER};
use crate::failure::Failure;
use crate::output::{self, Column};

#[derive(Subcommand, Debug)]
pub(crate) enum Verb {
    /// Check a folder or a tarball without uploading it
    Check(Checked),
    List {
        #[command(flatten)]
        limit: Limit,
    },
    /// Upload documentation from a folder or a tarball
    Upload {
        #[command(flatten)]
        of: Of,
        /// Folder, or file .tar or .tar.gz
        #[arg(value_name = "PATH")]
        path: PathBuf,
    },
    /// Download documentation into a folder or a tarball
    Download {
        #[command(flatten)]
        of: Of,
        /// New or empty folder, or file .tar.gz or .tgz
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
    Remove(Confirmed<Of>),
}

#[derive(Args, Debug)]
pub(crate) struct Checked {
    /// Folder, or file .tar or .tar.gz
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

/// The documented item.
#[derive(Args, Debug)]
#[group(required = true, multiple = false)]
pub(crate) struct Of {
    /// Worker configuration id
    #[arg(long = "rules", alias = "configuration", value_name = "ID", value_parser = name::configuration)]
    configuration: Option<String>,
    /// Worker type, such as build-opt, or its pool id
    #[arg(long, value_name = "NAME", value_parser = name::worker_type)]
    worker_type: Option<String>,
}

/// The part of a worker type's documentation.
#[derive(Args, Debug)]
pub(crate) struct Own {
    /// Omit the documentation of the worker type's worker configuration
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

const LIST_COMMAND: &str = "fleetwright documentation list";

pub(crate) fn check(arguments: &Checked, json: bool) -> Result<(), Failure> {
    let tree = read(&arguments.path)?;
    if json {
        output::json(&summary(&tree));
    } else {
        output::out(&format!(
            "{} is valid: {}",
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
            if session.json {
                output::json(&json!({ "title": tree.title(), "text": text }))
            } else {
                output::out(&text)
            }
            Ok(())
        }
        Verb::Remove(Confirmed { name: of, consent }) => {
            let call = Call::delete(WORKER_MANAGER, &of.segments())
                .to(format!("remove the documentation of {of}"));
            consent.confirm(&call)?;
            session
                .order(&call, &format!("removed the documentation of {of}"))
                .await
        }
    }
}

async fn upload(of: &Of, path: &Path, session: &Session) -> Result<(), Failure> {
    let tree = read(path)?;
    let call = Call::upload(WORKER_MANAGER, &of.segments(), tree.pack())
        .to(format!("upload the documentation of {of}"))
        .list_command(match of.configuration {
            Some(_) => "fleetwright rules list",
            None => "fleetwright pool list",
        });
    let text = format!("uploaded the documentation of {of}: {}", gist(&tree));
    session.order(&call, &text).await
}

async fn download(of: &Of, own: &Own, session: &Session) -> Result<Vec<u8>, Failure> {
    let call = Call::get(WORKER_MANAGER, &of.segments())
        .query("joined", own.own.then_some(false))
        .to(format!("download the documentation of {of}"))
        .list_command(LIST_COMMAND);
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

/// Reads the path with the checks of the server.
fn read(path: &Path) -> Result<Tree, Failure> {
    let shown = path.display();
    let unreadable = |error| unreadable(path, &error);
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

/// Checks a tarball from the server, which is not trusted.
fn unpacked(tarball: &[u8]) -> Result<Tree, Failure> {
    Tree::unpack(tarball).map_err(|refusal| {
        Failure::failed(format!("the reply is not valid documentation: {refusal}"))
    })
}

fn gist(tree: &Tree) -> String {
    let kib = tree.n_bytes().div_ceil(1024);
    format!("{}, {kib} KiB", output::counted(tree.n_files(), "file"))
}

fn summary(tree: &Tree) -> Value {
    let files: Vec<Value> = tree
        .files()
        .map(|(path, content)| json!({"path": path, "bytes": content.len()}))
        .collect();
    json!({ "title": tree.title(), "bytes": tree.n_bytes(), "files": files })
}

/// The text without control characters.
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
        match &self.configuration {
            Some(id) => ["worker-configuration", id, "documentation"],
            None => ["worker-type", self.worker_type_name(), "documentation"],
        }
    }

    fn worker_type_name(&self) -> &str {
        self.worker_type.as_deref().unwrap_or_default()
    }
}

impl std::fmt::Display for Of {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.configuration {
            Some(id) => write!(f, "worker configuration {id}"),
            None => write!(f, "worker type {}", self.worker_type_name()),
        }
    }
}
