//! Launch configs with their states and the numbers behind their weights (RFC 191).

use std::sync::Arc;

use access::scope::ScopeSet;
use domain::id::PoolId;
use domain::launch_failures::LaunchFailures;
use domain::overrides::Override;
use domain::plan::OfferWeight;
use domain::time::{DAY_MS, MINUTE_MS, Timestamp};
use engine::fleet::{
    self, HealthPage, LaunchConfigPage, LaunchConfigStatus, list_launch_config_health,
};
use engine::workers;
use serde_json::{Map, Value, json};

use super::wire::error_json;
use crate::api::{
    call::Call,
    error::ApiError,
    paging::MAX_PAGE_BYTES,
    reply::{Reply, without_nulls},
};

/// The health of launch configs is counted over this period at most.
const MAX_SINCE_MS: i64 = DAY_MS;
/// The period may be longer by this: a caller who asks for a day has computed its beginning
/// earlier, by its own clock, and asks for later pages with the same beginning.
const TOLERANCE_MS: i64 = MINUTE_MS;

/// How launch configs are shown to one caller.
struct View {
    now: Timestamp,
    since: Timestamp,
    scopes: Arc<ScopeSet>,
    has_configuration: bool,
    /// Whether it is known which workers asked for work.
    has_claims: bool,
}

impl View {
    fn of(call: &Call, since: Timestamp, has_configuration: bool) -> Self {
        Self {
            now: call.now,
            since,
            scopes: call.scopes(),
            has_configuration,
            has_claims: !call.app.engine.demand_source.is_outside(),
        }
    }

    /// Texts of errors are for callers that may list the errors of the pool.
    fn shows_errors(&self, pool_id: &PoolId) -> bool {
        let scope = format!("worker-manager:list-worker-pool-errors:{pool_id}");
        self.scopes.satisfies(&scope)
    }

    fn show(&self, status: &LaunchConfigStatus) -> Value {
        let config = &status.config;
        let shows_errors = self.shows_errors(&config.pool_id);
        let failures = status.failures.iter();
        let failures = failures.map(|failure| failure_json(failure, shows_errors));
        let error = status.last_error.as_ref().filter(|_| shows_errors);
        let place = Some(&status.place).filter(|place| !place.is_empty());
        let configuration = self.has_configuration.then_some(&config.configuration);
        without_nulls(json!({
            "workerPoolId": config.pool_id.as_str(),
            "launchConfigId": config.id.as_str(),
            "providerId": status.provider_id.as_str(),
            "region": status.region.as_ref().map(|region| region.as_str()),
            "place": place,
            "state": status.state.as_str(),
            "pause": status.pause.as_ref().map(pause_json),
            "configuration": configuration,
            "created": config.created.to_string(),
            "lastModified": config.last_modified.to_string(),
            "strategy": status.strategy.map(|strategy| strategy.as_str()),
            "weight": status.weight.as_ref().map(weight_json),
            "availability": status.weight.as_ref().map(|weight| availability(weight, status)),
            "workers": workers_json(status),
            "launches": self.launches(status),
            "failures": failures.collect::<Vec<_>>(),
            "lastError": error.map(error_json),
        }))
    }

    fn launches(&self, status: &LaunchConfigStatus) -> Value {
        let numbers = &status.numbers;
        let refused = numbers.refused.iter();
        let refused = refused.map(|(cause, count)| (cause.as_str().to_owned(), json!(count)));
        let known = |number: u64| self.has_claims.then_some(number);
        without_nulls(json!({
            "since": self.since.to_string(),
            "until": self.now.to_string(),
            "attempts": numbers.attempts,
            "made": numbers.made,
            "registered": numbers.registered,
            "claimed": known(numbers.claimed),
            "refused": refused.collect::<Map<_, _>>(),
            "neverRegistered": numbers.never_registered,
            "neverClaimed": known(numbers.never_claimed),
        }))
    }
}

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let wanted = LaunchConfigPage {
        include_archived: call.query("includeArchived") == Some("true"),
        after: page.after_id()?,
        limit: page.limit_and_one(),
        max_bytes: MAX_PAGE_BYTES,
    };
    let view = View::of(&call, fleet::usual_since(call.now), true);
    let engine = &call.app.engine;
    let read = fleet::list_launch_configs(engine, call.pool_id()?, wanted, call.now);
    let key = |status: &LaunchConfigStatus| (status.config.id.to_string(),);
    page.reply("launchConfigs", read.await?, key, |status| {
        view.show(status)
    })
}

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let (pool_id, id) = (call.pool_id()?, call.id("launchConfigId")?);
    let view = View::of(&call, fleet::usual_since(call.now), true);
    let read = fleet::get_launch_config(&call.app.engine, pool_id, id, call.now);
    Reply::json(&view.show(&read.await?))
}

pub(super) async fn health(call: Call) -> Result<Reply, ApiError> {
    let since = since(&call)?;
    let page = call.page::<(String, String)>()?;
    let after = page.after.as_ref();
    let after = after.map(|(pool, last)| Ok::<_, ApiError>((pool.parse()?, last.clone())));
    let wanted = HealthPage {
        since,
        after: after.transpose()?,
        limit: page.limit,
    };
    let view = View::of(&call, since, false);
    let read = list_launch_config_health(&call.app.engine, wanted, call.now);
    let (items, next) = read.await?;
    let token = next.map(|(pool, last)| page.token(&(pool.to_string(), last)));
    Reply::list("launchConfigs", items.iter().map(|it| view.show(it)), token)
}

/// For a worker: whether its launch config is active.
pub(super) async fn of_worker(call: Call) -> Result<Reply, ApiError> {
    let asked = workers::ask_launch_config(&call.app.engine, call.worker_key()?, call.now);
    let answer = asked.await?;
    Reply::json(&without_nulls(json!({
        "state": answer.state.as_str(),
        "reason": answer.reason,
        "launchConfigId": answer.launch_config_id.as_ref().map(|id| id.as_str()),
        "nextLaunchConfigId": answer.next_id.as_ref().map(|id| id.as_str()),
        "until": answer.until.map(|until| until.to_string()),
    })))
}

fn since(call: &Call) -> Result<Timestamp, ApiError> {
    let Some(text) = call.query("since") else {
        return Ok(fleet::usual_since(call.now));
    };
    let bad = |why: String| ApiError::input(format!("since: {why}"));
    let since = text.parse::<Timestamp>();
    let since = since.map_err(|wrong| bad(wrong.to_string()))?;
    let (first, last) = (call.now.plus_millis(-MAX_SINCE_MS), call.now);
    let accepted = first.plus_millis(-TOLERANCE_MS)..=last;
    if accepted.contains(&since) {
        return Ok(since);
    }
    Err(bad(format!(
        "launches are counted over a day at most, so it must be between {first} and {last}, not \
         {since}"
    )))
}

fn pause_json(pause: &Override) -> Value {
    json!({
        "overrideId": pause.id.as_str(),
        "until": pause.until.to_string(),
        "reason": pause.reason,
        "owner": pause.owner.as_str(),
    })
}

fn weight_json(weight: &OfferWeight) -> Value {
    without_nulls(json!({
        "initial": weight.initial,
        "balance": weight.balance,
        "health": weight.health,
        "weight": weight.weight(),
        "chance": weight.chance,
    }))
}

fn availability(weight: &OfferWeight, status: &LaunchConfigStatus) -> Value {
    let since = status.failures.iter().filter_map(|failure| failure.since);
    let since = since.min().filter(|_| weight.usability.is_failing());
    without_nulls(json!({
        "status": weight.usability.as_str(),
        "reason": weight.reason,
        "since": since.map(|at| at.to_string()),
        "nextTry": weight.usability.next_try().map(|at| at.to_string()),
        "nextPauseSeconds": weight.next_pause_ms.map(|length| length / 1_000),
    }))
}

fn workers_json(status: &LaunchConfigStatus) -> Value {
    let workers = &status.workers;
    json!({
        "requested": workers.requested.count,
        "running": workers.running.count,
        "stopping": workers.stopping.count,
        "capacity": status.capacity,
    })
}

fn failure_json(failure: &LaunchFailures, shows_errors: bool) -> Value {
    let example = Some(failure.example.as_str()).filter(|example| !example.is_empty());
    let example = example.filter(|_| shows_errors);
    json!({
        "cause": failure.cause.as_str(),
        "machines": failure.machines,
        "first": failure.first.to_string(),
        "last": failure.last.to_string(),
        "example": example.unwrap_or_else(|| failure.cause.text()),
    })
}
