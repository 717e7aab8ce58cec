//! Purge requests: the caches that the workers of a pool must delete before their next task.
//!
//! Workers ask for these requests; nothing is sent to them. A request is kept for a day.

use domain::id::PoolId;
use domain::time::Timestamp;
use engine::cache_purges::{self, MAX_CACHES};
use serde::Deserialize;
use serde_json::{Value, json};
use store::cache_purges::CachePurge;

use super::call::Call;
use super::endpoint::Verb::{Get, Post};
use super::endpoint::{ANYTHING, Endpoint, NewEndpoint, PAGING, Service, Verb, query};
use super::error::{ApiError, Code};
use super::reply::Reply;

/// Maximum length of a cache name, in bytes.
const MAX_NAME_BYTES: usize = 1_024;

const CATEGORY: &str = "Purge-Cache Service";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct PurgeBody {
    cache_name: String,
}

const fn on(name: &'static str, method: Verb, route: &'static str) -> NewEndpoint {
    NewEndpoint::new(Service::PurgeCache, name, method, route)
}

pub const ENDPOINTS: &[Endpoint] = &[
    on("purgeCache", Post, "/purge-cache/<workerPoolId>")
        .runs(|call| Box::pin(purge(call)))
        .wildcard("workerPoolId")
        .input("purge-cache-request.json")
        .scope("purge-cache:<workerPoolId>:<cacheName>")
        .about(CATEGORY, "Purge a cache")
        .describe(
            "Makes the workers of a pool delete their caches of this name that were made before \
             now. The request is kept for a day. The same request again applies to all caches made \
             before then.",
        ),
    on("allPurgeRequests", Get, "/purge-cache/list")
        .runs(|call| Box::pin(list_all(call)))
        .query(PAGING)
        .output("all-purge-cache-request-list.json")
        .scope("purge-cache:all-purge-requests")
        .about(CATEGORY, "List the purge requests of all pools")
        .describe(
            "All requests that have not expired, by pool and cache. For people; workers list the \
             requests of their own pool.",
        ),
    on("purgeRequests", Get, "/purge-cache/<workerPoolId>")
        .runs(|call| Box::pin(list(call)))
        .wildcard("workerPoolId")
        .query(&[query("since", ANYTHING)])
        .output("purge-cache-request-list.json")
        .scope("purge-cache:purge-requests::<workerPoolId>")
        .about(CATEGORY, "List the purge requests of a pool")
        .describe(
            "The caches that workers of this pool must delete. With `since`, only requests from \
             then on.",
        ),
];

async fn purge(mut call: Call) -> Result<Reply, ApiError> {
    let body: PurgeBody = call.body()?;
    let params = call.url_params().text("cacheName", &body.cache_name);
    call.authorize(params).await?;
    check_name(&body.cache_name)?;
    let pool_id = call.pool_id()?;
    cache_purges::request(&call.app.engine, call.now, pool_id, body.cache_name).await?;
    Ok(Reply::Empty)
}

fn check_name(name: &str) -> Result<(), ApiError> {
    if name.is_empty() || name.len() > MAX_NAME_BYTES {
        return Err(ApiError::input(format!(
            "cacheName must have 1 to {MAX_NAME_BYTES} bytes"
        )));
    }
    Ok(())
}

async fn list_all(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String, String)>()?;
    let after = match &page.after {
        None => None,
        Some((pool_id, name)) => Some((pool_id.parse::<PoolId>()?, name.clone())),
    };
    let (now, limit) = (call.now, page.limit_and_one());
    let read = call.scan("cache_purge_list", move |tx| {
        let after = after
            .as_ref()
            .map(|(pool_id, name)| (pool_id, name.as_str()));
        store::cache_purges::list(tx, after, now, limit)
    });
    let key = |purge: &CachePurge| (purge.pool_id.to_string(), purge.cache_name.clone());
    page.reply("requests", read.await?, key, shown)
}

async fn list(call: Call) -> Result<Reply, ApiError> {
    let (pool_id, since, now) = (call.pool_id()?, since(&call)?, call.now);
    let read = call.read("cache_purge_list_of_pool", move |tx| {
        store::cache_purges::list_of_pool(tx, &pool_id, now, since, MAX_CACHES)
    });
    let purges: Value = read.await?.iter().map(shown).collect();
    Reply::json(&json!({ "requests": purges }))
}

/// An empty value counts as none.
fn since(call: &Call) -> Result<Timestamp, ApiError> {
    let given = call.query("since").filter(|text| !text.is_empty());
    let since = given.map_or(Ok(Timestamp::from_millis(0)), str::parse);
    since.map_err(|bad| {
        let text = format!("Query-string parameter: since: {bad}");
        ApiError::new(Code::InvalidRequestArguments, text)
    })
}

fn shown(purge: &CachePurge) -> Value {
    let (provisioner_id, worker_type) = purge.pool_id.parts();
    json!({
        "provisionerId": provisioner_id,
        "workerType": worker_type,
        "cacheName": purge.cache_name,
        "before": purge.before.to_string(),
    })
}
