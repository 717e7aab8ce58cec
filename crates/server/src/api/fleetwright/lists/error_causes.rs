//! The errors of all pools, grouped by their cause.

use domain::error_report::ErrorReport;
use domain::id::PoolId;
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use serde_json::{Value, json};
use store::StoreError;
use store::error_causes::{
    CauseCount, CauseDetails, CauseFilter, CauseOrder, CausePlace, CausePlaces,
};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// Causes of a page at most: each has an example, which may be large.
const MAX_CAUSES: u32 = 100;
/// Hours of the trend, this one included.
const HOURS: u8 = 24;

/// The number by which the list is ordered, the cause, and the time of the list: its beginning and
/// its end.
type Cursor = (i64, String, i64, i64);

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let now = call.now;
    let asked: Option<PoolId> = call.query_id("workerPoolId")?;
    let is_most = call.query("order") == Some("most");
    let mut page = call.page::<Cursor>()?;
    page.limit = page.limit.min(MAX_CAUSES);
    let after = page.after.take();
    let (since, until) = match &after {
        Some((_, _, since, until)) => [since, until].map(|at| Timestamp::from_millis(*at)).into(),
        None => (since(&call)?, now),
    };
    let order = order(is_most, after);
    let limit = page.limit_and_one();
    let trend_since = now
        .start_of(HOUR_MS)
        .plus_millis(-(i64::from(HOURS) - 1) * HOUR_MS);
    let scopes = call.scopes();
    let may_read =
        move |id: &str| scopes.satisfies(&format!("worker-manager:list-worker-pool-errors:{id}"));
    let read = call.scan("error_causes", move |tx| {
        let pools = match &asked {
            Some(id) => Some(vec![id.clone()]),
            None if may_read("*") => None,
            None => Some(store::error_causes::pools_with_errors(tx, since)?),
        };
        let pools = pools.map(|mut pools| {
            pools.retain(|id| may_read(id.as_str()));
            pools
        });
        let filter = CauseFilter {
            since,
            until,
            pools,
        };
        let mut causes = store::error_causes::list(tx, &filter, &order, limit)?;
        let has_more = causes.len() == limit as usize;
        causes.truncate(limit as usize - 1);
        let details = store::error_causes::details(tx, &filter, &causes, trend_since)?;
        Ok::<_, StoreError>((causes, has_more, details))
    });
    let (causes, has_more, mut details) = read.await?;
    let last = causes.last().filter(|_| has_more);
    let token = last.map(|last| page.token(&cursor(is_most, last, (since, until))));
    let causes = causes
        .iter()
        .map(|cause| cause_json(cause, &mut details, trend_since));
    Reply::list("causes", causes, token)
}

fn since(call: &Call) -> Result<Timestamp, ApiError> {
    match call.query("since") {
        None => Ok(call.now.plus_millis(-DAY_MS)),
        Some(text) => text
            .parse()
            .map_err(|bad| ApiError::input(format!("since: {bad}"))),
    }
}

fn order(is_most: bool, after: Option<Cursor>) -> CauseOrder {
    if is_most {
        let after =
            after.map(|(errors, cause, ..)| (u64::try_from(errors).unwrap_or_default(), cause));
        return CauseOrder::Most(after);
    }
    CauseOrder::Newest(after.map(|(at, cause, ..)| (Timestamp::from_millis(at), cause)))
}

fn cursor(is_most: bool, last: &CauseCount, (since, until): (Timestamp, Timestamp)) -> Cursor {
    let number = match is_most {
        true => i64::try_from(last.errors).unwrap_or(i64::MAX),
        false => last.last.as_millis(),
    };
    let time = (since.as_millis(), until.as_millis());
    (number, last.cause.clone(), time.0, time.1)
}

fn cause_json(count: &CauseCount, details: &mut CauseDetails, trend_since: Timestamp) -> Value {
    let of_cause = details.trend.remove(&count.cause).unwrap_or_default();
    let mut trend = vec![0_u64; usize::from(HOURS)];
    for (start, errors) in of_cause {
        let hour = usize::try_from(start.millis_since(trend_since) / HOUR_MS).ok();
        if let Some(hour) = hour.and_then(|hour| trend.get_mut(hour)) {
            *hour += errors;
        }
    }
    let pools = details.pools.remove(&count.cause).unwrap_or_default();
    let configs = details.launch_configs.remove(&count.cause);
    let configs = configs.unwrap_or_default();
    let mut entry = json!({
        "cause": count.cause,
        "errors": count.errors,
        "first": count.first.to_string(),
        "last": count.last.to_string(),
        "trendSince": trend_since.to_string(),
        "trend": trend,
        "workerPools": places_json(&pools),
        "nWorkerPools": pools.all,
        "launchConfigs": places_json(&configs),
        "nLaunchConfigs": configs.all,
    });
    if let Some(example) = details.examples.remove(&count.cause) {
        entry["title"] = json!(example.title);
        entry["kind"] = json!(example.kind);
        entry["code"] = json!(example.code());
        entry["example"] = example_json(&example);
    }
    entry
}

fn places_json(places: &CausePlaces) -> Vec<Value> {
    let places = places.named.iter().map(|place: &CausePlace| {
        without_nulls(json!({
            "workerPoolId": place.pool_id.as_str(),
            "launchConfigId": place.launch_config_id.as_ref().map(|id| id.as_str()),
            "errors": place.errors,
        }))
    });
    places.collect()
}

fn example_json(report: &ErrorReport) -> Value {
    without_nulls(json!({
        "workerPoolId": report.pool_id.as_str(),
        "launchConfigId": report.launch_config_id.as_ref().map(|id| id.as_str()),
        "errorId": report.error_id.as_str(),
        "reported": report.reported.to_string(),
        "description": report.description,
        "extra": report.extra,
    }))
}
