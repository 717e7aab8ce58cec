//! Documentation: uploads and downloads, as tarballs and pages.
//!
//! A worker type's reply has its own documentation, followed by that of its configuration.

mod reading;

use documentation::MAX_UPLOAD_BYTES;
use domain::audit::{AuditEntry, EntityType};
use domain::documentation::{Record, Subject};
use domain::time::Timestamp;
use engine::configurations::{delete_documentation, put_documentation};
use serde_json::{Value, json};

pub(super) use self::reading::{PAGE, TARBALL, get, page};

use super::configurations::worker_type;
use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(super) async fn put(mut call: Call) -> Result<Reply, ApiError> {
    let subject = subject(&mut call).await?;
    let mut body = call.raw_body(MAX_UPLOAD_BYTES as u64)?;
    let upload = body.whole().await?;
    let audit = audit(&call, &subject, "documentation-updated");
    let record = put_documentation(&call.app.engine, subject, upload, audit).await?;
    Reply::json(&record_json(&record))
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
    let read = call.scan("documentation_list", move |tx| {
        let after = after
            .as_ref()
            .map(|(kind, id)| (kind.as_str(), id.as_str()));
        store::documentation::list(tx, after, limit)
    });
    let key = |Record { subject, .. }: &Record| {
        let (kind, id) = (subject.kind(), subject.id());
        (kind.to_owned(), id.to_owned())
    };
    page.reply("documentation", read.await?, key, record_json)
}

/// The subject of a request: a configuration, or a worker type by either of its names.
async fn subject(call: &mut Call) -> Result<Subject, ApiError> {
    if call.parameter("workerTypeId").is_empty() {
        return Ok(Subject::Configuration(call.id("workerConfigurationId")?));
    }
    let worker_type = worker_type(call).await?;
    Ok(Subject::WorkerType(worker_type.pool_id().clone()))
}

fn audit(call: &Call, subject: &Subject, action: &str) -> AuditEntry {
    let entity = match subject {
        Subject::Configuration(_) => EntityType::WorkerConfiguration,
        Subject::WorkerType(_) => EntityType::WorkerPool,
    };
    call.audit(entity, subject.id(), action)
}

fn record_json(record: &Record) -> Value {
    let subject = match record.subject {
        Subject::Configuration(_) => "workerConfigurationId",
        Subject::WorkerType(_) => "workerPoolId",
    };
    json!({
        subject: record.subject.id(),
        "title": record.title,
        "files": record.n_files,
        "bytes": record.unpacked_bytes,
        "packedBytes": record.packed_bytes,
        "digest": record.digest,
        "created": record.created.to_string(),
        "lastModified": record.last_modified.to_string(),
    })
}

/// The date in the format of HTTP.
fn http_date(moment: Timestamp) -> String {
    let millis = u64::try_from(moment.as_millis()).unwrap_or_default();
    let moment = std::time::UNIX_EPOCH + std::time::Duration::from_millis(millis);
    httpdate::fmt_http_date(moment)
}
