//! Log records in the form of Taskcluster's services, for `log.format = "taskcluster"`.

use cloud::{CloudRequests, RequestNumbers};
pub use cloud::{Record, Severity, TARGET};
use domain::audit::{AuditEntry, EntityType};
use domain::event::{EventBody, WorkerChange};
use domain::id::ProviderId;
use domain::plan::{Snapshot, weights};
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::Worker;
use serde_json::{Map, Value, json};

/// The record of an event, if Taskcluster has one.
pub(crate) fn of_event(body: &EventBody, now: Timestamp) -> Option<Record> {
    match body {
        EventBody::Worker { change, worker } => Some(of_worker(change, worker, now)),
        EventBody::PoolError { report, .. } => Some(Record {
            kind: "worker-error",
            version: 1,
            severity: Severity::Notice,
            fields: json!({
                "workerPoolId": report.pool_id.as_str(),
                "errorId": report.error_id.as_str(),
                "kind": report.kind,
                "title": report.title,
                "description": report.description,
            }),
        }),
        EventBody::PoolCreated { .. }
        | EventBody::PoolUpdated { .. }
        | EventBody::LaunchConfig { .. }
        | EventBody::Pause { .. }
        | EventBody::Task { .. }
        | EventBody::Artifact { .. }
        | EventBody::TaskGroup { .. }
        | EventBody::Client { .. }
        | EventBody::Role { .. }
        | EventBody::Image(_)
        | EventBody::Budget { .. } => None,
    }
}

pub(crate) fn of_audit(entry: &AuditEntry) -> Record {
    let service = match entry.entity_type {
        EntityType::Client | EntityType::Role => "auth",
        EntityType::Secret => "secrets",
        EntityType::Hook => "hooks",
        EntityType::WorkerPool
        | EntityType::Worker
        | EntityType::WorkerConfiguration
        | EntityType::Override
        | EntityType::Budget
        | EntityType::Provider => "worker-manager",
        EntityType::Image => "fleetwright",
    };
    Record {
        kind: "audit-event",
        version: 1,
        severity: Severity::Notice,
        fields: json!({
            "service": service,
            "entity": entry.entity_type.as_str(),
            "entityId": entry.entity_id,
            "clientId": entry.client_id,
            "action": entry.action,
        }),
    }
}

/// A cloud throttled a call, so no more are made for this time.
pub(crate) fn paused(provider_id: &ProviderId, queue: &str, n_waiting: u64, ms: i64) -> Record {
    Record {
        kind: "cloud-api-paused",
        version: 1,
        severity: Severity::Notice,
        fields: json!({
            "providerId": provider_id.as_str(),
            "queueName": queue,
            "reason": "rateLimit",
            "queueSize": n_waiting,
            "duration": ms,
        }),
    }
}

/// The first call after a pause had an answer.
pub(crate) fn resumed(provider_id: &ProviderId, queue: &str) -> Record {
    Record {
        kind: "cloud-api-resumed",
        version: 1,
        severity: Severity::Notice,
        fields: json!({"providerId": provider_id.as_str(), "queueName": queue}),
    }
}

fn of_worker(change: &WorkerChange, worker: &Worker, now: Timestamp) -> Record {
    let mut fields = json!({
        "workerPoolId": worker.key.pool_id.as_str(),
        "providerId": worker.provider_id.as_str(),
        "workerId": worker.key.id.as_str(),
    });
    let age = seconds(now.millis_since(worker.created));
    let (kind, version) = match change {
        WorkerChange::Requested => {
            fields["workerGroup"] = json!(worker.key.group.as_str());
            let end = worker.terms.terminate_after;
            let end = end.map(|at| Timestamp::from_millis(at).to_string());
            fields["terminateAfter"] = json!(end);
            ("worker-requested", 1)
        }
        WorkerChange::Running => {
            fields["registrationDuration"] = json!(age);
            ("worker-running", 2)
        }
        WorkerChange::Stopped => {
            add_ages(&mut fields, worker, now);
            ("worker-stopped", 2)
        }
        WorkerChange::Removed { reason } => {
            fields["reason"] = json!(reason);
            add_ages(&mut fields, worker, now);
            ("worker-removed", 2)
        }
    };
    let severity = Severity::Notice;
    Record {
        kind,
        version,
        severity,
        fields,
    }
}

/// The weights of the launch configs of a pool when it was planned.
pub(crate) fn of_weights(snapshot: &Snapshot) -> Record {
    let (mut weighed, mut remaining) = (Map::new(), Map::new());
    let offers = snapshot.offers.iter().filter(|offer| offer.bid_number == 0);
    for (offer, weight) in offers.zip(weights(snapshot)) {
        let id = offer.launch_config_id.to_string();
        weighed.insert(id.clone(), json!(weight.weight()));
        if let Some(most) = offer.max_capacity {
            remaining.insert(id, json!(most.saturating_sub(offer.live)));
        }
    }
    let fields = json!({
        "workerPoolId": snapshot.pool_id.as_str(),
        "weights": weighed,
        "remainingCapacity": remaining,
    });
    Record::first("launch-config-selector-debug", Severity::Debug, fields)
}

/// Requests to the cloud of a provider; `None`: there were none. No request is sent again.
pub(crate) fn of_requests(provider_id: &ProviderId, requests: &CloudRequests) -> Option<Record> {
    let RequestNumbers {
        total,
        success,
        by_status,
        min,
        max,
        average,
        median,
        p95,
        p99,
    } = requests.numbers()?;
    let fields = json!({
        "providerId": provider_id.as_str(),
        "total": total,
        "success": success,
        "failed": total.saturating_sub(success),
        "retries": 0,
        "byStatus": by_status,
        "min": min,
        "max": max,
        "avg": average,
        "median": median,
        "p95": p95,
        "p99": p99,
    });
    Some(Record::first("cloud-api-metrics", Severity::Notice, fields))
}

fn add_ages(fields: &mut Value, worker: &Worker, now: Timestamp) {
    let registered = worker.terms.registered_at;
    let running = registered.map(|at| seconds(now.as_millis().saturating_sub(at)));
    fields["workerAge"] = json!(seconds(now.millis_since(worker.created)));
    fields["runningDuration"] = json!(running);
}

fn seconds(millis: i64) -> i64 {
    millis.max(0) / SECOND_MS
}
