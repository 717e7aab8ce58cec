//! Workers: lists, shows, declares, changes and removes them.

use domain::audit::EntityType;
use domain::id::{PoolId, WorkerGroup, WorkerId};
use domain::time::Timestamp;
use domain::worker::Worker;
use engine::workers::{self, Declaration, WorkerError};
use serde_json::json;
use store::listed_workers::{ListedWorker, WorkerCursor, WorkerFilter};

use super::wire::{WorkerBody, WorkerReply};
use crate::api::{call::Call, error::ApiError, reply::Reply};

const NO_SUCH_POOL: &str = "Worker Pool does not exist";

/// The order of lists: newest first, then by group and id.
type Cursor = (i64, String, String);

pub(super) async fn list_pool(call: Call) -> Result<Reply, ApiError> {
    let pool_id = call.pool_id()?;
    let filter = WorkerFilter {
        group: None,
        // Workers that only the queue knows have no row here.
        state: match call.query("state") {
            None => None,
            Some("standalone") => return empty_after_check(call, pool_id).await,
            Some(state) => Some(
                state
                    .parse()
                    .map_err(|bad| ApiError::input(format!("{bad}")))?,
            ),
        },
        launch_config_id: call.query_id("launchConfigId")?,
    };
    list(call, pool_id, filter, true).await
}

pub(super) async fn list_group(call: Call) -> Result<Reply, ApiError> {
    let pool_id = call.pool_id()?;
    let filter = WorkerFilter {
        group: Some(call.id("workerGroup")?),
        ..WorkerFilter::default()
    };
    list(call, pool_id, filter, false).await
}

async fn list(
    call: Call,
    pool_id: PoolId,
    filter: WorkerFilter,
    pool_must_exist: bool,
) -> Result<Reply, ApiError> {
    let page = call.page::<Cursor>()?;
    let after = page.after.as_ref().map(cursor).transpose()?;
    let limit = page.limit_and_one();
    let read_id = pool_id.clone();
    let read = call.scan("worker_list", move |tx| {
        if pool_must_exist {
            tx.ask(|tx| store::pools::get(tx, &read_id));
        }
        let listed = store::listed_workers::list(tx, &read_id, &filter, after.as_ref(), limit)?;
        if pool_must_exist && store::pools::get(tx, &read_id)?.is_none() {
            return Err(WorkerError::NotFound(NO_SUCH_POOL.to_owned()));
        }
        Ok(listed)
    });
    let key = |worker: &ListedWorker| {
        let (group, id) = (worker.group.to_string(), worker.id.to_string());
        (worker.created.as_millis(), group, id)
    };
    let mut workers = read.await?;
    let token = page.cut(&mut workers, key);
    let replies = workers.iter();
    let replies = replies.map(|worker| WorkerReply::listed(&pool_id, worker));
    Reply::list("workers", replies, token)
}

async fn empty_after_check(call: Call, pool_id: PoolId) -> Result<Reply, ApiError> {
    let read = call.read("pool_get", move |tx| store::pools::get(tx, &pool_id));
    match read.await? {
        Some(_) => Reply::json(&json!({"workers": []})),
        None => Err(ApiError::not_found(NO_SUCH_POOL)),
    }
}

fn cursor((created, group, id): &Cursor) -> Result<WorkerCursor, ApiError> {
    let created = Timestamp::from_millis(*created);
    let (group, id) = (group.parse::<WorkerGroup>()?, id.parse::<WorkerId>()?);
    Ok(WorkerCursor { created, group, id })
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    Reply::json(&WorkerReply::from(&load(&call).await?))
}

pub(super) async fn should_terminate(call: Call) -> Result<Reply, ApiError> {
    let worker = load(&call).await?;
    let (terminate, reason) = worker.should_terminate().unwrap_or((false, "none"));
    Reply::json(&json!({"terminate": terminate, "reason": reason}))
}

async fn load(call: &Call) -> Result<Worker, ApiError> {
    let key = call.worker_key()?;
    let read = call.read("worker_get", move |tx| store::workers::get(tx, &key));
    read.await?.ok_or_else(worker_not_found)
}

pub(super) async fn create(call: Call) -> Result<Reply, ApiError> {
    let (key, body) = (call.worker_key()?, call.body::<WorkerBody>()?);
    let audit = call.audit(EntityType::Worker, &key.to_string(), "created");
    let made = workers::declare(&call.app.engine, key, declaration(body)?, audit);
    Reply::json(&WorkerReply::from(&made.await?))
}

pub(super) async fn update(call: Call) -> Result<Reply, ApiError> {
    let (key, body) = (call.worker_key()?, call.body::<WorkerBody>()?);
    let audit = call.audit(EntityType::Worker, &key.to_string(), "updated");
    let changed = workers::update_declaration(&call.app.engine, key, declaration(body)?, audit);
    Reply::json(&WorkerReply::from(&changed.await?))
}

pub(super) async fn remove(call: Call) -> Result<Reply, ApiError> {
    let worker = load(&call).await?;
    let audit = call.audit(EntityType::Worker, &worker.key.to_string(), "removed");
    workers::remove(&call.app.engine, worker, audit).await?;
    Reply::done()
}

fn declaration(body: WorkerBody) -> Result<Declaration, ApiError> {
    let expires = body.expires.parse();
    let expires = expires.map_err(|bad| ApiError::input(format!("expires: {bad}")))?;
    let capacity = body.capacity.map(u32::try_from).transpose();
    let too_large = |_| ApiError::input(format!("capacity must be at most {}", u32::MAX));
    Ok(Declaration {
        expires,
        capacity: capacity.map_err(too_large)?,
        launch_config_id: body.launch_config_id.map(|id| id.parse()).transpose()?,
        provider_info: body.provider_info,
    })
}

pub(super) fn worker_not_found() -> ApiError {
    ApiError::not_found("Worker not found")
}
