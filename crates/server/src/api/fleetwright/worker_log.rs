//! The log of a worker: what its process or its machine wrote.

use bytes::Bytes;
use cloud::{LogEnd, MAX_WORKER_LOG_BYTES};
use engine::artifacts::LOG_CONTENT_TYPE;
use engine::workers;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};

use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(super) async fn read(call: Call) -> Result<Reply, ApiError> {
    let log = workers::read_worker_log(&call.app.engine, call.worker_key()?).await?;
    let headers =
        HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(LOG_CONTENT_TYPE))]);
    Ok(Reply::whole(headers, content(log)))
}

/// Begins with a line that says so, if the log is cut.
fn content(log: LogEnd) -> Bytes {
    if !log.is_cut {
        return log.bytes.into();
    }
    let size_kib = MAX_WORKER_LOG_BYTES / 1024;
    let line = format!("[The beginning is left out: these are the last {size_kib} KiB.]\n");
    [line.as_bytes(), &log.bytes].concat().into()
}
