//! Replies about a pool that are read once for all requests of a second.

use crate::api::{call::Call, error::ApiError, reply::Reply};
use crate::pool_replies::Shown;

/// The reply from memory, or else the one that `read` makes. `read` begins only then.
pub(super) async fn kept_or_read(
    call: &Call,
    shown: Shown,
    read: impl Future<Output = Result<Reply, ApiError>>,
) -> Result<Reply, ApiError> {
    let (replies, key) = (&call.app.pool_replies, (call.pool_id()?, shown));
    let stamp = call.app.engine.store.pool_stamp(key.0.as_str());
    if let Some(kept) = replies.get(&key, stamp, call.now) {
        return Ok(Reply::Json(kept));
    }
    let reply = read.await?;
    if let Reply::Json(bytes) = &reply {
        replies.keep(key, stamp, call.now, bytes.clone());
    }
    Ok(reply)
}
