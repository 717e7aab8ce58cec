//! What people say about workers: that one must not work, or that there is one.

use access::scope::Params;
use domain::audit::EntityType;
use domain::queue_worker::QueueWorker;
use domain::time::Timestamp;
use serde::Deserialize;
use serde_json::{Value, json};
use store::StoreError;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::worker_views::{details, not_found, worker_key};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QuarantineBody {
    quarantine_until: String,
    #[serde(default)]
    quarantine_info: Option<String>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct DeclareBody {
    expires: String,
}

/// A quarantined worker gets no work; a moment in the past lets it work again.
pub(super) async fn quarantine(call: Call) -> Result<Reply, ApiError> {
    let key = worker_key(&call).map_err(|_| not_found(&call))?;
    let body: QuarantineBody = call.body()?;
    let until = moment("quarantineUntil", &body.quarantine_until)?;
    let mut audit = call.audit(EntityType::Worker, &key.to_string(), "quarantined");
    audit.detail = json!({"until": until.to_string(), "info": body.quarantine_info});
    let written = call.change("queue_worker_quarantine", move |change| {
        let Some(mut worker) = store::queue_workers::get(change.tx, &key)? else {
            return Ok::<_, StoreError>(None);
        };
        let info = body.quarantine_info.clone();
        worker.quarantine(until, &audit.client_id, info, change.now);
        store::queue_workers::upsert(change.tx, &worker)?;
        store::audit::insert(change.tx, &audit)?;
        // What it could have done, others must do now; or it waits for work itself, and may have some now.
        change.wake_queue(&key.pool_id);
        Ok(Some(worker))
    });
    let worker = written.await?.ok_or_else(|| not_found(&call))?;
    Reply::json(&details(&worker))
}

/// Makes a worker known that has not asked for work yet, or keeps one known for longer.
pub(super) async fn declare(mut call: Call) -> Result<Reply, ApiError> {
    let key = worker_key(&call)?;
    let body: DeclareBody = call.body()?;
    call.authorize(declared_properties(&call)).await?;
    let expires = moment("expires", &body.expires)?;
    let written = call.change("queue_worker_declare", move |change| {
        let (tx, now) = (&mut *change.tx, change.now);
        store::task_queues::note_used(tx, &key.pool_id, now, true)?;
        let known = store::queue_workers::get(tx, &key)?;
        let mut worker = known.unwrap_or_else(|| QueueWorker::new(key.clone(), now, expires));
        worker.expires = worker.expires.max(expires);
        store::queue_workers::upsert(tx, &worker)?;
        Ok::<_, StoreError>(worker)
    });
    Reply::json(&details(&written.await?))
}

/// Each property that is given needs a scope of its own.
fn declared_properties(call: &Call) -> Params {
    let given = call.body.as_object().into_iter().flatten();
    let names = given.map(|(name, _): (&String, &Value)| name.clone());
    call.url_params().list("properties", names.collect())
}

fn moment(name: &str, text: &str) -> Result<Timestamp, ApiError> {
    text.parse()
        .map_err(|bad| ApiError::input(format!("`{name}` cannot be used: {bad}")))
}
