//! Log records in the form of Taskcluster's services, for `log.format = "taskcluster"`.

use domain::audit::{AuditEntry, EntityType};
use domain::event::{EventBody, WorkerChange};
use domain::id::ProviderId;
use domain::time::{SECOND_MS, Timestamp};
use domain::worker::Worker;
use serde_json::{Value, json};

/// Other formats of the log leave the records of this target out.
pub const TARGET: &str = "taskcluster";

/// The level of a record, as syslog counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Severity {
    Warning = 4,
    Notice = 5,
    Info = 6,
}

/// A record that is written after the commit of its change.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    pub kind: &'static str,
    /// The version of the fields of this kind.
    pub version: u8,
    pub severity: Severity,
    pub fields: Value,
}

impl Record {
    pub fn write(&self) {
        let (kind, version, severity) = (self.kind, self.version, self.severity as u8);
        let fields = &self.fields;
        tracing::info!(
            target: TARGET,
            { record.kind = kind, record.version = version, record.severity = severity,
                record.fields = %fields },
            "{kind}"
        );
    }

    /// The record of an event, if Taskcluster has one.
    pub(crate) fn of_event(body: &EventBody, now: Timestamp) -> Option<Self> {
        match body {
            EventBody::Worker { change, worker } => Some(Self::of_worker(change, worker, now)),
            EventBody::PoolError { report, .. } => Some(Self {
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

    pub(crate) fn of_audit(entry: &AuditEntry) -> Self {
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
        Self {
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
    pub(crate) fn paused(provider_id: &ProviderId, queue: &str, n_waiting: u64, ms: i64) -> Self {
        Self {
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
    pub(crate) fn resumed(provider_id: &ProviderId, queue: &str) -> Self {
        Self {
            kind: "cloud-api-resumed",
            version: 1,
            severity: Severity::Notice,
            fields: json!({"providerId": provider_id.as_str(), "queueName": queue}),
        }
    }

    fn of_worker(change: &WorkerChange, worker: &Worker, now: Timestamp) -> Self {
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
        Self {
            kind,
            version,
            severity,
            fields,
        }
    }
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
