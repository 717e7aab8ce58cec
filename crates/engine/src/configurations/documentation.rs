//! Documentation of worker configurations and worker types: packed, stored, found and rendered.

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
use crate::work_limiter::WorkLimiter;

/// At most this many trees are packed or unpacked at once: each takes memory and a core.
static LIMITER: LazyLock<WorkLimiter> = LazyLock::new(|| WorkLimiter::new(2));

#[derive(Debug, thiserror::Error)]
pub enum DocumentationError {
    #[error("{} does not exist", match .0 {
        Subject::Configuration(_) => "Worker configuration",
        Subject::WorkerType(_) => "Worker pool",
    })]
    NoSubject(Subject),
    #[error("No documentation exists for {0}")]
    None(Subject),
    /// The upload is no valid documentation.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A blocking job failed, or a stored tarball cannot be read.
    #[error(transparent)]
    Work(#[from] io::Error),
    #[error(transparent)]
    Store(#[from] StoreError),
}

#[derive(Default)]
pub struct Tarballs {
    worker_type: Option<Vec<u8>>,
    configuration: Option<Vec<u8>>,
}

/// Stores an upload as the documentation of its subject, replacing the previous one.
pub async fn put_documentation(
    engine: &Arc<Engine>,
    subject: Subject,
    upload: Bytes,
    audit: AuditEntry,
) -> Result<Record, DocumentationError> {
    let now = audit.created;
    let (record, tarball) = LIMITER
        .run(move || pack_upload(subject, &upload, now))
        .await??;
    let written = engine.change_alone("documentation_put", now, move |change| {
        let tx = &mut *change.tx;
        if !store::documentation::subject_exists(tx, &record.subject)? {
            return Err(DocumentationError::NoSubject(record.subject.clone()));
        }
        let mut record = record.clone();
        if let Some(known) = store::documentation::get_record(tx, &record.subject)? {
            // The same upload again is a repeated request.
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

fn pack_upload(
    subject: Subject,
    upload: &[u8],
    now: Timestamp,
) -> Result<(Record, Vec<u8>), Refusal> {
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
) -> store::Result<()> {
    let written = engine.change_alone("documentation_delete", audit.created, move |change| {
        if store::documentation::delete(change.tx, &subject)? {
            store::audit::insert(change.tx, &audit)?;
        }
        Ok(())
    });
    written.await
}

/// The documentation of a subject; for a worker type also that of its configuration, unless
/// `only_own`. `None`: the caller knows these records, so no tarball is read.
pub async fn find_documentation(
    engine: &Engine,
    subject: Subject,
    only_own: bool,
    is_known: impl FnOnce(&[Record]) -> bool + Send + 'static,
) -> Result<(Vec<Record>, Option<Tarballs>), DocumentationError> {
    let read = engine.store.read("documentation_find", move |tx| {
        let records = read_records(tx, &subject, only_own)?;
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

fn read_records(tx: &mut Tx<'_>, subject: &Subject, only_own: bool) -> store::Result<Vec<Record>> {
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
    pub async fn into_one(self) -> Result<Vec<u8>, DocumentationError> {
        match (self.worker_type, self.configuration) {
            (Some(tarball), None) | (None, Some(tarball)) => Ok(tarball),
            (worker_type, configuration) => {
                let both = Self {
                    worker_type,
                    configuration,
                };
                Ok(LIMITER.run(move || both.join()).await??)
            }
        }
    }

    /// Renders the documentation as a page of HTML.
    pub async fn into_page(self, name: String) -> Result<String, DocumentationError> {
        let page = LIMITER.run(move || {
            let (worker_type, configuration) = self.unpack()?;
            documentation::page(&name, worker_type.as_ref(), configuration.as_ref())
                .map_err(|refusal| unreadable(&refusal))
        });
        Ok(page.await??)
    }

    fn join(&self) -> io::Result<Vec<u8>> {
        let (worker_type, configuration) = self.unpack()?;
        let joined = documentation::join(worker_type, configuration);
        Ok(joined.map(|tree| tree.pack()).unwrap_or_default())
    }

    fn unpack(&self) -> io::Result<(Option<Tree>, Option<Tree>)> {
        let tree = |tarball: &Option<Vec<u8>>| {
            let tree = tarball.as_deref().map(Tree::unpack);
            tree.transpose().map_err(|refusal| unreadable(&refusal))
        };
        Ok((tree(&self.worker_type)?, tree(&self.configuration)?))
    }
}

/// A stored tarball cannot be read: an error of the server, not of the caller.
fn unreadable(refusal: &Refusal) -> io::Error {
    io::Error::other(format!("stored documentation is not readable: {refusal}"))
}
