//! Selections of workers, such as those of a configuration: listed, counted, ended.

mod table;

use access::scope::Params;
use domain::audit::EntityType;
use domain::configuration::WorkerType;
use domain::counts::Counts;
use domain::id::{PoolId, WorkerKey};
use domain::time::Timestamp;
use domain::worker::Worker;
use domain::worker_selection::WorkerSelection;
use engine::workers::{self, EndOrder, Ending, MAX_ENDED, WorkerError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::wire::{StatsReply, WorkerReply};
use crate::api::{call::Call, error::ApiError, reply::Reply};

pub(in crate::api) use table::ENDPOINTS as SELECTED_WORKERS;

/// The order of lists: pool, group and id.
type Cursor = (String, String, String);

/// The body of endSelectedWorkers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndBody {
    reason: String,
    created_before: String,
    #[serde(default)]
    drain: bool,
}

pub(super) async fn list(mut call: Call) -> Result<Reply, ApiError> {
    let selection = authorize(&mut call).await?;
    let page = call.page::<Cursor>()?;
    let after = page.after.as_ref().map(cursor).transpose()?;
    let (limit, until) = (page.limit_and_one(), call.now);
    let engine = call.app.engine.clone();
    let read = call.scan("selected_worker_list", move |tx| {
        workers::check_selection(&engine, tx, &selection)?;
        let listed = workers::select_workers(tx, &selection, until, after.as_ref(), limit);
        Ok::<_, WorkerError>(listed?)
    });
    let mut listed = read.await?;
    let token = page.cut(&mut listed, |worker| key_texts(&worker.key));
    Reply::list("workers", listed.iter().map(WorkerReply::from), token)
}

pub(super) async fn count(mut call: Call) -> Result<Reply, ApiError> {
    let selection = authorize(&mut call).await?;
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let until = moment(call.query("createdBefore"))?.unwrap_or(call.now);
    let engine = call.app.engine.clone();
    let read = call.scan("selected_worker_count", move |tx| {
        workers::check_selection(&engine, tx, &selection)?;
        let counts = workers::count_workers(tx, &selection, until, after.as_ref(), limit);
        Ok::<_, WorkerError>(counts?)
    });
    let mut counts = read.await?;
    let token = page.cut(&mut counts, |(id, _)| (id.to_string(),));
    let show = |(id, counts): &(PoolId, Counts)| json!(StatsReply::new(id, None, counts));
    let reply = json!({
        "workerPoolsStats": counts.iter().map(show).collect::<Vec<_>>(),
        "createdBefore": until.to_string(),
    });
    Reply::page(reply, token)
}

pub(super) async fn end(mut call: Call) -> Result<Reply, ApiError> {
    let selection = authorize(&mut call).await?;
    let body = call.body::<EndBody>()?;
    if body.reason.trim().is_empty() {
        let text = "the end of workers has a reason: give `reason`, for those who wonder later";
        return Err(ApiError::input(text));
    }
    let until = moment(Some(&body.created_before))?.unwrap_or(call.now);
    if until > call.now {
        let text = format!("createdBefore must not be after now ({})", call.now);
        return Err(ApiError::input(text));
    }
    let page = call.page::<Cursor>()?;
    let after = page.after.as_ref().map(cursor).transpose()?;
    let order = EndOrder {
        selection,
        until,
        ending: Ending {
            reason: body.reason,
            drains: body.drain,
        },
    };
    let limit = page.limit.min(MAX_ENDED);
    let audit = call.audit(EntityType::Worker, "", "removed");
    let ended = workers::end_workers(&call.app.engine, order, after, limit, audit).await?;
    let token = ended.next.map(|key| page.token(&key_texts(&key)));
    let skipped = ended.skipped.iter().map(|(key, reason)| {
        let mut entry = key_json(key);
        entry["reason"] = json!(reason);
        entry
    });
    let reply = json!({
        "workers": ended.ended.iter().map(ended_json).collect::<Vec<_>>(),
        "skipped": skipped.collect::<Vec<_>>(),
    });
    Reply::page(reply, token)
}

fn ended_json(worker: &Worker) -> Value {
    let mut entry = key_json(&worker.key);
    entry["state"] = json!(worker.state.as_str());
    entry
}

fn key_json(key: &WorkerKey) -> Value {
    json!({
        "workerPoolId": key.pool_id.as_str(),
        "workerGroup": key.group.as_str(),
        "workerId": key.id.as_str(),
    })
}

fn key_texts(key: &WorkerKey) -> Cursor {
    let (pool_id, group) = (key.pool_id.to_string(), key.group.to_string());
    (pool_id, group, key.id.to_string())
}

fn cursor((pool_id, group, id): &Cursor) -> Result<WorkerKey, ApiError> {
    Ok(WorkerKey {
        pool_id: pool_id.parse()?,
        group: group.parse()?,
        id: id.parse()?,
    })
}

fn moment(text: Option<&str>) -> Result<Option<Timestamp>, ApiError> {
    let parsed = text.map(str::parse).transpose();
    parsed.map_err(|bad| ApiError::input(format!("createdBefore: {bad}")))
}

/// The selection in the query, for which the caller has the scopes.
async fn authorize(call: &mut Call) -> Result<WorkerSelection, ApiError> {
    let selection = selection(call)?;
    let params = selection_params(call, &selection).await?;
    call.authorize(params).await?;
    Ok(selection)
}

fn selection(call: &Call) -> Result<WorkerSelection, ApiError> {
    let worker_type = call.query_id::<WorkerType>("workerType")?;
    let named = (
        call.query_id("workerPoolId")?,
        worker_type.map(|name| name.pool_id().clone()),
        call.query_id("launchConfigId")?,
        call.query_id("workerConfigurationId")?,
        call.query_id("providerId")?,
        call.query_id("region")?,
    );
    Ok(match named {
        (Some(id), None, None, None, None, None) | (None, Some(id), None, None, None, None) => {
            WorkerSelection::Pool(id)
        }
        (Some(pool_id), None, Some(id), None, None, None)
        | (None, Some(pool_id), Some(id), None, None, None) => {
            WorkerSelection::LaunchConfig(pool_id, id)
        }
        (None, None, None, Some(id), None, None) => WorkerSelection::Configuration(id),
        (None, None, None, None, Some(id), region) => WorkerSelection::Provider(id, region),
        _ => {
            let text = "Select workers by one of `workerPoolId` or `workerType` (each with \
                        `launchConfigId` for one launch config), `workerConfigurationId` or \
                        `providerId` (with `region` for one region)";
            return Err(ApiError::input(text));
        }
    })
}

async fn selection_params(call: &Call, selection: &WorkerSelection) -> Result<Params, ApiError> {
    let flags = |is_pool, is_configuration| {
        Params::new()
            .flag("ofWorkerPool", is_pool)
            .flag("ofConfiguration", is_configuration)
    };
    Ok(match selection {
        WorkerSelection::Pool(id) | WorkerSelection::LaunchConfig(id, _) => {
            pool_params(call, flags(true, false), id).await?
        }
        WorkerSelection::Configuration(id) => {
            flags(false, true).text("workerConfigurationId", id.as_str())
        }
        WorkerSelection::Provider(id, _) => flags(false, false).text("providerId", id.as_str()),
    })
}

/// Adds the pool, and the name of its worker type if a worker configuration has it.
pub(super) async fn pool_params(
    call: &Call,
    params: Params,
    pool_id: &PoolId,
) -> Result<Params, ApiError> {
    let id = pool_id.clone();
    let read = call.read("worker_type_get", move |tx| {
        store::worker_types::get(tx, &id)
    });
    let is_worker_type = read.await?.is_some();
    let worker_type = WorkerType::from(pool_id.clone());
    Ok(params
        .text("workerPoolId", pool_id.as_str())
        .flag("ofWorkerType", is_worker_type)
        .text("workerType", worker_type.name()))
}
