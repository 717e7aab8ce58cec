//! Errors of pools: reported, listed and counted.

use domain::error_report::{ErrorReport, ErrorStats};
use domain::id::{ErrorId, PoolId, WorkerKey};
use domain::time::Timestamp;
use engine::pools::PoolError;
use engine::workers::{self, WorkerReport};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use store::worker_errors::ErrorFilter;

use super::pools::no_such_pool;
use super::wire::error_json;
use crate::api::{call::Call, error::ApiError, reply::Reply};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ReportBody {
    kind: String,
    title: String,
    description: String,
    extra: Map<String, Value>,
    worker_group: String,
    worker_id: String,
}

pub(super) async fn report(mut call: Call) -> Result<Reply, ApiError> {
    let (pool_id, body) = (call.pool_id()?, call.body::<ReportBody>()?);
    let params = call
        .url_params()
        .text("workerGroup", &body.worker_group)
        .text("workerId", &body.worker_id);
    call.authorize(params).await?;
    let asked = WorkerReport {
        key: WorkerKey::parse(pool_id, &body.worker_group, &body.worker_id)?,
        kind: body.kind,
        title: body.title,
        description: body.description,
        extra: body.extra,
    };
    let report = workers::report_error(&call.app.engine, call.now, asked).await?;
    Reply::json(&error_json(&report))
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let pool_id = call.pool_id()?;
    let page = call.page::<(i64, String)>()?;
    let after = page
        .after
        .as_ref()
        .map(|(at, id)| Ok::<_, ApiError>((Timestamp::from_millis(*at), id.parse::<ErrorId>()?)))
        .transpose()?;
    let filter = ErrorFilter {
        launch_config_id: call.query_id("launchConfigId")?,
        error_id: match call.query("errorId").map(str::parse::<ErrorId>) {
            // An invalid error id finds no error.
            Some(Err(_)) => return Reply::json(&json!({"workerPoolErrors": []})),
            other => other.transpose()?,
        },
    };
    let limit = page.limit_and_one();
    let read = call.scan("error_list", move |tx| {
        let after = after.as_ref().map(|(at, id)| (*at, id));
        store::worker_errors::list(tx, &pool_id, &filter, after, limit)
    });
    let key = |it: &ErrorReport| (it.reported.as_millis(), it.error_id.to_string());
    page.reply("workerPoolErrors", read.await?, key, error_json)
}

pub(super) async fn stats(mut call: Call) -> Result<Reply, ApiError> {
    let named = call
        .query("workerPoolId")
        .filter(|id| !id.is_empty())
        .map(str::to_owned);
    let params = call
        .url_params()
        .text("workerPoolId", named.as_deref().unwrap_or("*"));
    call.authorize(params).await?;
    // An invalid pool id finds no pool.
    let pool_id = match named.as_deref().map(str::parse::<PoolId>) {
        None => None,
        Some(Ok(id)) => Some(id),
        Some(Err(_)) => return Err(no_such_pool()),
    };
    let now = call.now;
    let read = call.scan("error_stats", move |tx| {
        if let Some(id) = &pool_id {
            store::pools::get(tx, id)?.ok_or(PoolError::NoSuchPool)?;
        }
        Ok::<_, PoolError>(store::error_stats::count(tx, pool_id.as_ref(), now)?)
    });
    let stats: ErrorStats = read.await?;
    let totals = json!({
        "total": stats.total(),
        "daily": stats.daily,
        "hourly": stats.hourly,
        "title": stats.title,
        "code": stats.code,
        "workerPool": stats.worker_pool,
        "launchConfig": stats.launch_config,
    });
    Reply::json(&json!({"workerPoolId": named.unwrap_or_default(), "totals": totals}))
}
