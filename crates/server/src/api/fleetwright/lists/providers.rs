//! The state of each provider, with its workers, prices, failures and call budgets.

use std::collections::BTreeMap;

use cloud::{CallBudget, Machines};
use domain::id::{ProviderId, WorkerGroup};
use domain::time::{HOUR_MS, Timestamp};
use domain::worker::WorkerState;
use serde_json::{Value, json};
use store::StoreError;
use store::provider_counts::{FailureCount, PlaceCount};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

pub(super) async fn list(call: Call) -> Result<Reply, ApiError> {
    let since = call.now.plus_millis(-HOUR_MS);
    let read = call.scan("provider_counts", move |tx| {
        let workers = store::provider_counts::workers(tx)?;
        let failures = store::provider_counts::failures(tx, since)?;
        Ok::<_, StoreError>((workers, failures))
    });
    let (workers, failures) = read.await?;
    let providers = call.app.engine.providers.listed();
    let providers = providers.map(|(id, kind)| {
        let workers = workers.iter().filter(|it| it.provider_id == *id);
        let failures = failures.iter().filter(|it| it.provider_id == *id);
        let (workers, failures) = (workers.collect::<Vec<_>>(), failures.collect::<Vec<_>>());
        provider_json(&call, id, kind, &workers, &failures)
    });
    Reply::list("providers", providers, None)
}

fn provider_json(
    call: &Call,
    id: &ProviderId,
    kind: &str,
    workers: &[&PlaceCount],
    failures: &[&FailureCount],
) -> Value {
    let providers = &call.app.engine.providers;
    let problem = providers.setup_error(id);
    let state = match problem {
        None => "in-service",
        Some(_) => "out-of-service",
    };
    let next_try = problem.as_ref().and_then(|_| providers.next_set_up());
    let machines = providers.machines(id);
    let in_use: u64 = workers.iter().map(|it| it.workers).sum();
    let max_machines = machines.and_then(Machines::max_machines);
    let budgets = machines.map(Machines::call_budgets).unwrap_or_default();
    let failed: u64 = failures.iter().map(|it| it.machines).sum();
    let failures = failures.iter().map(|it| {
        json!({
            "cause": it.cause.as_str(), "machines": it.machines, "last": it.last.to_string(),
        })
    });
    without_nulls(json!({
        "providerId": id.as_str(),
        "providerType": kind,
        "state": state,
        "problem": problem,
        "nextTry": next_try.map(|at| at.to_string()),
        "warning": machines.and_then(Machines::warning),
        "machines": in_use,
        "maxMachines": max_machines,
        "workers": states_json(workers),
        "places": places_json(workers),
        "failed": failed,
        "failures": failures.collect::<Vec<_>>(),
        "callBudgets": budgets.iter().map(|it| budget_json(it, call.now)).collect::<Vec<_>>(),
    }))
}

fn states_json(workers: &[&PlaceCount]) -> Value {
    let count = |state: WorkerState| -> u64 {
        let of_state = workers.iter().filter(|it| it.state == state);
        of_state.map(|it| it.workers).sum()
    };
    json!({
        "requested": count(WorkerState::Requested),
        "running": count(WorkerState::Running),
        "stopping": count(WorkerState::Stopping),
    })
}

/// The places with workers, and the prices of their machines.
fn places_json(workers: &[&PlaceCount]) -> Vec<Value> {
    let mut places: BTreeMap<&WorkerGroup, Vec<&PlaceCount>> = BTreeMap::new();
    for count in workers {
        places.entry(&count.place).or_default().push(count);
    }
    let places = places.into_iter().map(|(place, counts)| {
        let sum = |of: fn(&PlaceCount) -> u64| counts.iter().map(|it| of(it)).sum::<u64>();
        let lowest = counts.iter().filter_map(|it| it.lowest).reduce(f64::min);
        let highest = counts.iter().filter_map(|it| it.highest).reduce(f64::max);
        let hourly: f64 = counts.iter().map(|it| it.sum).sum();
        let priced = sum(|it| it.priced);
        without_nulls(json!({
            "place": place.as_str(),
            "machines": sum(|it| it.workers),
            "capacity": sum(|it| it.capacity),
            "lowestPrice": lowest,
            "highestPrice": highest,
            "hourly": (priced > 0).then_some(hourly),
            "withoutPrice": sum(|it| it.workers) - priced,
        }))
    });
    places.collect()
}

fn budget_json(budget: &CallBudget, now: Timestamp) -> Value {
    let until = budget.throttled_ms.map(|millis| now.plus_millis(millis));
    without_nulls(json!({
        "region": budget.region.to_string(),
        "call": budget.call,
        "perSecond": budget.per_second,
        "fullPerSecond": budget.full_per_second,
        "used": budget.used,
        "throttledUntil": until.map(|at| at.to_string()),
    }))
}
