//! Documentation of worker configurations and worker types: uploaded as tarballs, had again as such and as pages.
//!
//! A worker type's reply has what documents the worker type, and behind it what documents its configuration.

mod reading;
mod subject;

use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use bytes::Bytes;
use domain::audit::EntityType;
use domain::documentation::{MAX_UPLOAD_BYTES, Record, Refusal, Subject, Tree};
use domain::time::Timestamp;
use engine::turns::Turns;
use serde::Serialize;
use sha2::{Digest, Sha256};

pub(super) use self::reading::{PAGE, TARBALL, get, page};

use self::subject::subject;
use super::super::call::Call;
use super::super::error::{ApiError, Code};
use super::super::reply::Reply;
use super::wire::When;

/// So many trees are taken apart or put together at once: each takes memory and all of a core.
static TURNS: LazyLock<Turns> = LazyLock::new(|| Turns::new(2));

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordReply {
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_configuration_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    worker_pool_id: Option<String>,
    title: String,
    files: u32,
    bytes: u64,
    packed_bytes: u64,
    digest: String,
    created: When,
    last_modified: When,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordsReply {
    documentation: Vec<RecordReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

/// What was uploaded, as it will be kept.
struct Packed {
    title: String,
    tarball: Vec<u8>,
    unpacked_bytes: u64,
    n_files: u32,
}

pub(super) async fn put(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let mut body = call.raw_body(MAX_UPLOAD_BYTES as u64)?;
    let upload = body.whole().await?;
    let packed = TURNS.run(move || packed(&upload)).await??;
    let record = Record {
        title: packed.title,
        digest: URL_SAFE_NO_PAD.encode(Sha256::digest(&packed.tarball)),
        packed_bytes: packed.tarball.len() as u64,
        unpacked_bytes: packed.unpacked_bytes,
        n_files: packed.n_files,
        created: call.now,
        last_modified: call.now,
        subject,
    };
    let audit = audit(&call, &record.subject, "documentation-updated");
    let tarball = Bytes::from(packed.tarball);
    let written = call.change("documentation_put", move |change| {
        let tx = &mut *change.tx;
        if !store::documentation::subject_exists(tx, &record.subject)? {
            return Err(nothing_to_document(&record.subject));
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
    Reply::json(&RecordReply::from(written.await?))
}

/// May be repeated.
pub(super) async fn delete(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let audit = audit(&call, &subject, "documentation-deleted");
    let written = call.change("documentation_delete", move |change| {
        if store::documentation::delete(change.tx, &subject)? {
            store::audit::insert(change.tx, &audit)?;
        }
        Ok::<_, ApiError>(())
    });
    written.await?;
    Ok(Reply::Empty)
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String, String)>()?;
    let (after, limit) = (page.after.clone(), page.limit_and_one());
    let read = call.app.engine.store.scan("documentation_list", move |tx| {
        let after = after
            .as_ref()
            .map(|(kind, id)| (kind.as_str(), id.as_str()));
        store::documentation::list(tx, after, limit)
    });
    let mut records = read.await?;
    let last = |record: &Record| {
        let subject = &record.subject;
        (subject.kind().to_owned(), subject.id().to_owned())
    };
    let continuation_token = page.cut(&mut records, last);
    Reply::json(&RecordsReply {
        documentation: records.into_iter().map(Into::into).collect(),
        continuation_token,
    })
}

fn packed(upload: &[u8]) -> Result<Packed, ApiError> {
    let tree = Tree::accept(upload)?;
    Ok(Packed {
        title: tree.title(),
        unpacked_bytes: tree.n_bytes() as u64,
        n_files: u32::try_from(tree.n_files()).unwrap_or(u32::MAX),
        tarball: tree.pack(),
    })
}

fn audit(call: &Call, subject: &Subject, action: &str) -> domain::audit::AuditEntry {
    let entity = match subject {
        Subject::Configuration(_) => EntityType::WorkerConfiguration,
        Subject::WorkerType(_) => EntityType::WorkerPool,
    };
    call.audit(entity, subject.id(), action)
}

fn nothing_to_document(subject: &Subject) -> ApiError {
    let what = match subject {
        Subject::Configuration(_) => "Worker configuration",
        Subject::WorkerType(_) => "Worker pool",
    };
    ApiError::not_found(format!("{what} does not exist"))
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let code = if refusal == Refusal::TooLarge {
            Code::InputTooLarge
        } else {
            Code::InputError
        };
        Self::new(code, refusal.to_string())
    }
}

impl From<Record> for RecordReply {
    fn from(record: Record) -> Self {
        let id = record.subject.id().to_owned();
        let (configuration, pool) = match record.subject {
            Subject::Configuration(_) => (Some(id), None),
            Subject::WorkerType(_) => (None, Some(id)),
        };
        Self {
            worker_configuration_id: configuration,
            worker_pool_id: pool,
            title: record.title,
            files: record.n_files,
            bytes: record.unpacked_bytes,
            packed_bytes: record.packed_bytes,
            digest: record.digest,
            created: When(record.created),
            last_modified: When(record.last_modified),
        }
    }
}

/// As HTTP writes it.
fn http_date(moment: Timestamp) -> String {
    let millis = u64::try_from(moment.as_millis()).unwrap_or_default();
    let moment = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    httpdate::fmt_http_date(moment)
}
