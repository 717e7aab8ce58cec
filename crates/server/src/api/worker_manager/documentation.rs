//! Documentation: uploads and downloads, as tarballs and pages.
//!
//! A worker type's reply has its own documentation, followed by that of its configuration.

mod reading;
mod subject;

use documentation::MAX_UPLOAD_BYTES;
use domain::audit::{AuditEntry, EntityType};
use domain::documentation::{Record, Subject};
use domain::time::Timestamp;
use engine::configurations::{delete_documentation, put_documentation};
use serde::Serialize;

pub(super) use self::reading::{PAGE, TARBALL, get, page};

use self::subject::subject;
use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::wire::WireTime;

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
    created: WireTime,
    last_modified: WireTime,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct RecordsReply {
    documentation: Vec<RecordReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

pub(super) async fn put(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let mut body = call.raw_body(MAX_UPLOAD_BYTES as u64)?;
    let upload = body.whole().await?;
    let audit = audit(&call, &subject, "documentation-updated");
    let record = put_documentation(&call.app.engine, subject, upload, audit).await?;
    Reply::json(&RecordReply::from(record))
}

/// May be repeated.
pub(super) async fn delete(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let audit = audit(&call, &subject, "documentation-deleted");
    delete_documentation(&call.app.engine, subject, audit).await?;
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

fn audit(call: &Call, subject: &Subject, action: &str) -> AuditEntry {
    let entity = match subject {
        Subject::Configuration(_) => EntityType::WorkerConfiguration,
        Subject::WorkerType(_) => EntityType::WorkerPool,
    };
    call.audit(entity, subject.id(), action)
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
            created: WireTime(record.created),
            last_modified: WireTime(record.last_modified),
        }
    }
}

/// The date in the format of HTTP.
fn http_date(moment: Timestamp) -> String {
    let millis = u64::try_from(moment.as_millis()).unwrap_or_default();
    let moment = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    httpdate::fmt_http_date(moment)
}
