//! Documentation of worker configurations and worker types: packed, kept, found, shown as a page.

use std::io;
use std::sync::{Arc, LazyLock};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use documentation::{Refusal, Tree};
use domain::audit::AuditEntry;
use domain::documentation::{Record, Subject};
use domain::time::Timestamp;
use sha2::{Digest, Sha256};
use store::{StoreError, Tx};

use crate::Engine;
use crate::turns::Turns;

/// At most this many trees are taken apart or put together at once: each takes memory and a core.
static TURNS: LazyLock<Turns> = LazyLock::new(|| Turns::new(2));

/// Why documentation is not kept, or cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum DocumentationError {
    #[error("{} does not exist", match .0 {
        Subject::Configuration(_) => "Worker configuration",
        Subject::WorkerType(_) => "Worker pool",
    })]
    NoSubject(Subject),
    #[error("There is no documentation of {0}")]
    None(Subject),
    /// What was uploaded is not documentation that can be shown.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// Work beside other work came to no end, or what we packed ourselves cannot be read.
    #[error(transparent)]
    Work(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The tarballs that a reply is made of.
#[derive(Default)]
pub struct Tarballs {
    worker_type: Option<Vec<u8>>,
    configuration: Option<Vec<u8>>,
}

/// Keeps an upload as the documentation of its subject, in place of what was kept before.
pub async fn put_documentation(
    engine: &Arc<Engine>,
    subject: Subject,
    upload: Bytes,
    audit: AuditEntry,
) -> Result<Record, DocumentationError> {
    let now = audit.created;
    let (record, tarball) = TURNS.run(move || packed(subject, &upload, now)).await??;
    let written = engine.change("documentation_put", now, move |change| {
        let tx = &mut *change.tx;
        if !store::documentation::subject_exists(tx, &record.subject)? {
            return Err(DocumentationError::NoSubject(record.subject.clone()));
        }
        let mut record = record.clone();
        if let Some(known) = store::documentation::get_record(tx, &record.subject)? {
            // The same again is a repeat of a request whose answer was lost.
            if known.digest == record.digest {
                return Ok(known);
            }
            record.created = known.created;
        }
        store::documentation::put(tx, &record, &tarball)?;
        store::audit::insert(tx, &audit)?;
        Ok(record)
    });
    written.await
}

fn packed(subject: Subject, upload: &[u8], now: Timestamp) -> Result<(Record, Vec<u8>), Refusal> {
    let tree = Tree::accept(upload)?;
    let tarball = tree.pack();
    let record = Record {
        title: tree.title(),
        digest: URL_SAFE_NO_PAD.encode(Sha256::digest(&tarball)),
        packed_bytes: tarball.len() as u64,
        unpacked_bytes: tree.n_bytes() as u64,
        n_files: u32::try_from(tree.n_files()).unwrap_or(u32::MAX),
        created: now,
        last_modified: now,
        subject,
    };
    Ok((record, tarball))
}

/// May be repeated.
pub async fn delete_documentation(
    engine: &Arc<Engine>,
    subject: Subject,
    audit: AuditEntry,
) -> Result<(), StoreError> {
    let written = engine.change("documentation_delete", audit.created, move |change| {
        if store::documentation::delete(change.tx, &subject)? {
            store::audit::insert(change.tx, &audit)?;
        }
        Ok(())
    });
    written.await
}

/// The documentation of a subject, and behind a worker type's that of its configuration unless
/// `only_own`. `None`: the caller has what is made of these records, so no tarball is read.
pub async fn find_documentation(
    engine: &Engine,
    subject: Subject,
    only_own: bool,
    is_known: impl FnOnce(&[Record]) -> bool + Send + 'static,
) -> Result<(Vec<Record>, Option<Tarballs>), DocumentationError> {
    let read = engine.store.read("documentation_find", move |tx| {
        let records = records(tx, &subject, only_own)?;
        if records.is_empty() {
            return Err(DocumentationError::None(subject));
        }
        if is_known(&records) {
            return Ok((records, None));
        }
        let mut tarballs = Tarballs::default();
        for record in &records {
            let found = store::documentation::get(tx, &record.subject)?;
            let found = found.map(|(_, tarball)| tarball);
            match &record.subject {
                Subject::WorkerType(_) => tarballs.worker_type = found,
                Subject::Configuration(_) => tarballs.configuration = found,
            }
        }
        Ok((records, Some(tarballs)))
    });
    read.await
}

fn records(tx: &mut Tx<'_>, subject: &Subject, only_own: bool) -> Result<Vec<Record>, StoreError> {
    let mut records = Vec::from_iter(store::documentation::get_record(tx, subject)?);
    if let Subject::WorkerType(id) = subject
        && !only_own
        && let Some(configuration) = store::documentation::configuration_of(tx, id)?
    {
        let subject = Subject::Configuration(configuration);
        records.extend(store::documentation::get_record(tx, &subject)?);
    }
    Ok(records)
}

impl Tarballs {
    /// All of it as one tarball.
    pub async fn into_one(self) -> Result<Vec<u8>, DocumentationError> {
        match (self.worker_type, self.configuration) {
            (Some(tarball), None) | (None, Some(tarball)) => Ok(tarball),
            (worker_type, configuration) => {
                let both = Self {
                    worker_type,
                    configuration,
                };
                Ok(TURNS.run(move || both.joined()).await??)
            }
        }
    }

    /// All of it as a page of HTML.
    pub async fn into_page(self, name: String) -> Result<String, DocumentationError> {
        let page = TURNS.run(move || {
            let (worker_type, configuration) = self.trees()?;
            documentation::page(&name, worker_type.as_ref(), configuration.as_ref())
                .map_err(|refusal| not_readable(&refusal))
        });
        Ok(page.await??)
    }

    fn joined(&self) -> io::Result<Vec<u8>> {
        let (worker_type, configuration) = self.trees()?;
        let joined = documentation::join(worker_type, configuration);
        Ok(joined.map(|tree| tree.pack()).unwrap_or_default())
    }

    fn trees(&self) -> io::Result<(Option<Tree>, Option<Tree>)> {
        let tree = |tarball: &Option<Vec<u8>>| {
            let tree = tarball.as_deref().map(Tree::unpack);
            tree.transpose().map_err(|refusal| not_readable(&refusal))
        };
        Ok((tree(&self.worker_type)?, tree(&self.configuration)?))
    }
}

/// What we packed ourselves cannot be read: that is nothing the caller can help.
fn not_readable(refusal: &Refusal) -> io::Error {
    io::Error::other(format!("stored documentation is not readable: {refusal}"))
}
