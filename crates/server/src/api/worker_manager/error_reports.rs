//! What went wrong in a pool: reported, listed, counted.

use domain::error_report::{ErrorReport, ErrorStats, Tallies};
use domain::event::EventBody;
use domain::id::{ErrorId, PoolId, WorkerGroup, WorkerId, WorkerKey};
use domain::time::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use store::worker_errors::ErrorFilter;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::pools::no_such_pool;
use super::providers;
use super::wire::ErrorReply;
use super::workers::reporter;

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

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct ErrorsReply {
    worker_pool_errors: Vec<ErrorReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct TotalsReply {
    total: u64,
    daily: Tallies,
    hourly: Tallies,
    title: Tallies,
    code: Tallies,
    worker_pool: Tallies,
    launch_config: Tallies,
}

pub(super) async fn report(mut call: Call) -> Result<Reply, ApiError> {
    let (pool_id, body) = (call.pool_id()?, call.body::<ReportBody>()?);
    let params = call
        .url_params()
        .text("workerGroup", &body.worker_group)
        .text("workerId", &body.worker_id);
    call.authorize(params).await?;
    let key = WorkerKey {
        pool_id: pool_id.clone(),
        group: body.worker_group.parse::<WorkerGroup>()?,
        id: body.worker_id.parse::<WorkerId>()?,
    };
    let named = key.clone();
    let read = call.app.engine.store.read("error_report_load", move |tx| {
        let pool = store::pools::get(tx, &pool_id)?.ok_or_else(no_such_pool)?;
        let worker = store::workers::get(tx, &named)?;
        let own = worker.map(|worker| worker.provider_id);
        // The worker itself need not be there.
        let own = own.filter(|id| pool.has_provider(id));
        Ok::<_, ApiError>(own.unwrap_or(pool.definition.provider_id))
    });
    let provider_id = read.await?;
    let unknown = || ApiError::input("Invalid Provider");
    providers::get(&call.app, &provider_id, unknown)?;
    let mut extra = body.extra;
    extra.extend(reporter(&key.group, &key.id));
    let mut report = ErrorReport {
        pool_id: key.pool_id.clone(),
        error_id: call.app.engine.random.slugid().parse::<ErrorId>()?,
        reported: call.now,
        kind: body.kind,
        title: body.title,
        description: body.description,
        extra,
        launch_config_id: None,
    };
    let written = call.change("error_report", move |change| {
        let worker = store::workers::get(change.tx, &key)?;
        report.launch_config_id = worker.and_then(|worker| worker.launch_config_id);
        store::worker_errors::insert(change.tx, &report)?;
        let event = EventBody::PoolError {
            provider_id: provider_id.clone(),
            report: Box::new(report.clone()),
            worker: Some((key.group.to_string(), key.id.to_string())),
        };
        change.announce([event])?;
        Ok::<_, ApiError>(report.clone())
    });
    let report = written.await?;
    tracing::warn!(pool.id = %report.pool_id, error.id = %report.error_id, error.kind = %report.kind,
        "a worker of {} reported: {}", report.pool_id, report.title);
    Reply::json(&ErrorReply::from(&report))
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
            // What is no error's id finds no error.
            Some(Err(_)) => return reply(Vec::new(), None),
            other => other.transpose()?,
        },
    };
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("error_list", move |tx| {
        let after = after.as_ref().map(|(at, id)| (*at, id));
        store::worker_errors::list(tx, &pool_id, &filter, after, limit)
    });
    let mut reports = read.await?;
    let token = page.cut(&mut reports, |report| {
        (report.reported.as_millis(), report.error_id.to_string())
    });
    reply(reports, token)
}

fn reply(reports: Vec<ErrorReport>, token: Option<String>) -> Result<Reply, ApiError> {
    let worker_pool_errors = reports.iter().map(Into::into).collect();
    Reply::json(&ErrorsReply {
        worker_pool_errors,
        continuation_token: token,
    })
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
    // What is no pool's id is no pool.
    let pool_id = match named.as_deref().map(str::parse::<PoolId>) {
        None => None,
        Some(Ok(id)) => Some(id),
        Some(Err(_)) => return Err(no_such_pool()),
    };
    let now = call.now;
    let read = call.app.engine.store.scan("error_stats", move |tx| {
        if let Some(id) = &pool_id {
            store::pools::get(tx, id)?.ok_or_else(no_such_pool)?;
        }
        Ok::<_, ApiError>(store::error_stats::count(tx, pool_id.as_ref(), now)?)
    });
    let stats: ErrorStats = read.await?;
    let totals = TotalsReply {
        total: stats.total(),
        daily: stats.daily,
        hourly: stats.hourly,
        title: stats.title,
        code: stats.code,
        worker_pool: stats.worker_pool,
        launch_config: stats.launch_config,
    };
    Reply::json(&json!({"workerPoolId": named.unwrap_or_default(), "totals": totals}))
}
