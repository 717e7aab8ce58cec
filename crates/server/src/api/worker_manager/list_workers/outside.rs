//! Workers of another deployment's queue, together with our own rows.

use api_client::with_causes;
use backplane::{DemandError, TaskclusterQueue};
use domain::id::{PoolId, WorkerKey};
use domain::queue_worker::QueueWorker;
use engine::demand::to_queue_worker;
use serde_json::Value;
use store::StoreError;
use store::worker_metadata::{MetadataFilter, WorkerMetadata};

use super::summary;
use crate::api::{call::Call, error::ApiError, paging::Page, reply::Reply};

/// Maximum number of the queue's pages that are read for one of ours while the filters match
/// nothing.
const MAX_PAGES: usize = 10;

/// One of our pages is a filtered page of the queue, with the queue's token.
pub(super) async fn list(
    call: &Call,
    queue: &TaskclusterQueue,
    pool_id: &PoolId,
    filter: &MetadataFilter,
) -> Result<Reply, ApiError> {
    let limit = Page::<()>::parse(call.query("limit"), None)?.limit;
    let mut token = call.query("continuationToken").map(str::to_owned);
    let quarantined = filter.quarantined_at.is_some();
    let mut rows = Vec::new();
    for _ in 0..MAX_PAGES {
        let asked = queue.worker_page(pool_id, limit, token.as_deref(), quarantined);
        let page = asked.await.map_err(|problem| unavailable(&problem))?;
        let seen = page.workers.into_iter();
        let seen = seen.map(|activity| to_queue_worker(pool_id, activity, call.now));
        rows = joined(call, seen.collect()).await?;
        rows.retain(|row| passes(row, filter));
        token = page.token;
        if token.is_none() || !rows.is_empty() {
            break;
        }
    }
    let workers: Vec<Value> = rows.iter().map(summary).collect();
    Reply::list("workers", workers, token)
}

pub(super) async fn find(
    call: &Call,
    queue: &TaskclusterQueue,
    key: &WorkerKey,
) -> Result<Option<WorkerMetadata>, ApiError> {
    let found = queue.worker(key).await;
    let Some(activity) = found.map_err(|problem| unavailable(&problem))? else {
        return Ok(None);
    };
    let seen = to_queue_worker(&key.pool_id, activity, call.now);
    Ok(joined(call, vec![seen]).await?.pop())
}

/// Adds our row of each worker: one indexed read for each, in one transaction.
async fn joined(call: &Call, seen: Vec<QueueWorker>) -> Result<Vec<WorkerMetadata>, ApiError> {
    let read = call.scan("worker_metadata_join", move |tx| {
        let row = |queue: QueueWorker| {
            Ok::<_, StoreError>(WorkerMetadata {
                worker: store::workers::get(tx, &queue.key)?,
                queue,
            })
        };
        seen.into_iter().map(row).collect()
    });
    read.await
}

/// The same filter as in the statements of our own queue.
fn passes(row: &WorkerMetadata, filter: &MetadataFilter) -> bool {
    let worker = row.worker.as_ref();
    let has_state = |state| worker.is_some_and(|worker| worker.state == state);
    let has_config = |id| worker.is_some_and(|worker| worker.launch_config_id.as_ref() == Some(id));
    let is_quarantined = |at| row.queue.is_quarantined(at);
    filter.state.is_none_or(has_state)
        && filter.launch_config_id.as_ref().is_none_or(has_config)
        && filter.quarantined_at.is_none_or(is_quarantined)
}

fn unavailable(problem: &DemandError) -> ApiError {
    ApiError::queue_unavailable(&with_causes(problem))
}
