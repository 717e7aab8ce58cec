//! Ends and quarantines workers that a person marked in a list.

use std::collections::BTreeSet;

use domain::audit::EntityType;
use domain::id::WorkerKey;
use domain::time::Timestamp;
use engine::queue;
use engine::workers::{self, Ending, WorkerResult};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

const FORBIDDEN: &str = "forbidden";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct EndBody {
    workers: Vec<Name>,
    reason: String,
    #[serde(default)]
    drain: bool,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct QuarantineBody {
    workers: Vec<Name>,
    reason: String,
    quarantine_until: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Name {
    worker_pool_id: String,
    worker_group: String,
    worker_id: String,
}

pub(super) async fn end(call: Call) -> Result<Reply, ApiError> {
    let body: EndBody = call.body()?;
    check_reason(&body.reason)?;
    let (allowed, forbidden) = split(&call, &body.workers, |key| {
        format!("worker-manager:remove-worker:{key}")
    })?;
    let ending = Ending {
        reason: body.reason,
        drains: body.drain,
    };
    let audit = call.audit(EntityType::Worker, "", "removed");
    let ended = workers::end_named_workers(&call.app.engine, &allowed, ending, audit).await?;
    let results = ended.into_iter().map(|(key, result)| {
        let (word, problem) = match result {
            WorkerResult::Ended => ("ended", None),
            WorkerResult::Draining => ("draining", None),
            WorkerResult::Already => ("already", None),
            WorkerResult::NotFound => ("not-found", None),
            WorkerResult::Refused(problem) => ("refused", Some(problem)),
        };
        result_json(&key, word, problem)
    });
    reply(results.chain(forbidden.iter().map(forbidden_json)))
}

pub(super) async fn quarantine(call: Call) -> Result<Reply, ApiError> {
    let body: QuarantineBody = call.body()?;
    check_reason(&body.reason)?;
    if call.app.engine.demand_source.is_outside() {
        let text = "Workers ask another deployment's queue for tasks: quarantine them there";
        return Err(ApiError::input(text));
    }
    let until: Timestamp = body
        .quarantine_until
        .parse()
        .map_err(|bad| ApiError::input(format!("`quarantineUntil` cannot be used: {bad}")))?;
    let (allowed, forbidden) = split(&call, &body.workers, |key| {
        format!("queue:quarantine-worker:{key}")
    })?;
    let audit = call.audit(EntityType::Worker, "", "quarantined");
    let (engine, reason) = (&call.app.engine, &body.reason);
    let known = queue::quarantine_workers(engine, &allowed, until, reason, &audit).await?;
    let done = match until >= call.now {
        true => "quarantined",
        false => "released",
    };
    let results = allowed.iter().map(|key| {
        let result = if known.contains(key) {
            done
        } else {
            "not-found"
        };
        result_json(key, result, None)
    });
    reply(results.chain(forbidden.iter().map(forbidden_json)))
}

fn check_reason(reason: &str) -> Result<(), ApiError> {
    if reason.trim().is_empty() {
        let text = "give `reason`: it stands in the audit log, for other people";
        return Err(ApiError::input(text));
    }
    Ok(())
}

/// The workers of the request, each once: those for which the caller has the scope, and the others.
fn split(
    call: &Call,
    names: &[Name],
    scope: impl Fn(&WorkerKey) -> String,
) -> Result<(Vec<WorkerKey>, Vec<WorkerKey>), ApiError> {
    let keys = names.iter().map(|name| {
        let pool_id = name.worker_pool_id.parse()?;
        Ok(WorkerKey::parse(
            pool_id,
            &name.worker_group,
            &name.worker_id,
        )?)
    });
    let keys = keys.collect::<Result<BTreeSet<WorkerKey>, ApiError>>()?;
    let scopes = call.scopes();
    let parts = keys.into_iter();
    Ok(parts.partition(|key| scopes.satisfies(&scope(key))))
}

fn forbidden_json(key: &WorkerKey) -> Value {
    result_json(key, FORBIDDEN, None)
}

fn result_json(key: &WorkerKey, result: &str, problem: Option<String>) -> Value {
    without_nulls(json!({
        "workerPoolId": key.pool_id.as_str(),
        "workerGroup": key.group.as_str(),
        "workerId": key.id.as_str(),
        "result": result,
        "problem": problem,
    }))
}

fn reply(results: impl Iterator<Item = Value>) -> Result<Reply, ApiError> {
    Reply::list("workers", results, None)
}
