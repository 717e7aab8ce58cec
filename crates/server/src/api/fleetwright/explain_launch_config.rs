//! Explains a launch config: whether it is used, and how long its machines take to start.

use std::collections::BTreeMap;

use domain::id::WorkerGroup;
use domain::phases::{Phase, PhaseTimes, RegionPhases, by_region};
use domain::time::DAY_MS;
use engine::fleet::{self, LaunchConfigStatus};
use serde_json::{Value, json};

use crate::api::{
    call::Call,
    error::ApiError,
    reply::{Reply, without_nulls},
};

/// Only this many of the newest machines are measured.
const MACHINES: u32 = 1_000;

pub(super) async fn show(call: Call) -> Result<Reply, ApiError> {
    let (pool_id, id, now) = (call.pool_id()?, call.id("launchConfigId")?, call.now);
    let status = fleet::get_launch_config(&call.app.engine, pool_id, id, now).await?;
    let config = status.config.clone();
    let since = now.plus_millis(-DAY_MS);
    let read = call.read("explain_launch_config", move |tx| {
        store::machine_moments::list(tx, &config.pool_id, &config.id, since, MACHINES)
    });
    let machines = read.await?;
    let mut reply = status_json(&status);
    reply["time"] = json!(now.to_string());
    reply["since"] = json!(since.to_string());
    reply["machines"] = json!(machines.len());
    reply["regions"] = regions_json(&by_region(&machines));
    Reply::json(&reply)
}

fn status_json(status: &LaunchConfigStatus) -> Value {
    let weight = status.weight.as_ref();
    let pause = status.pause.as_ref();
    let reason = pause.map(|pause| format!("paused {}", pause.detail()));
    let reason = reason.or_else(|| weight?.reason.clone());
    let next_try = weight.and_then(|weight| weight.usability.next_try());
    let place = Some(&status.place).filter(|place| !place.is_empty());
    without_nulls(json!({
        "workerPoolId": status.config.pool_id.as_str(),
        "launchConfigId": status.config.id.as_str(),
        "providerId": status.provider_id.as_str(),
        "place": place,
        "state": status.state.as_str(),
        "availability": weight.map(|weight| weight.usability.as_str()),
        "reason": reason,
        "nextTry": next_try.map(|at| at.to_string()),
    }))
}

fn regions_json(regions: &BTreeMap<WorkerGroup, RegionPhases>) -> Value {
    let regions = regions.iter().map(|(region, phases)| {
        let phases = phases
            .iter()
            .map(|(phase, times)| phase_json(*phase, *times));
        json!({"region": region.as_str(), "phases": phases.collect::<Vec<_>>()})
    });
    regions.collect()
}

/// The step with which a phase begins.
pub(super) fn begins_with(phase: Phase) -> &'static str {
    match phase {
        Phase::Requested => "decided",
        Phase::Accepted => Phase::Requested.as_str(),
        Phase::Registered => Phase::Accepted.as_str(),
        Phase::FirstClaim => Phase::Registered.as_str(),
    }
}

fn phase_json(phase: Phase, times: PhaseTimes) -> Value {
    json!({
        "from": begins_with(phase),
        "phase": phase.as_str(),
        "machines": times.machines,
        "medianMs": times.median_ms,
        "p95Ms": times.p95_ms,
    })
}
