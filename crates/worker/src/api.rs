//! The calls that a worker makes, with their bodies and replies as types.

use std::fmt::Display;
use std::time::Duration;

use api_client::{Call as ApiCall, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use bytes::Bytes;
use domain::id::TaskId;
use domain::time::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::client::Call;
use crate::credentials::Credentials;
use crate::identity::{Identity, Proof};
use crate::text::{parsed, parsed_if_any};

/// The server holds a claim for 20 s when there is no work.
const CLAIM_LIMIT: Duration = Duration::from_secs(45);

/// A claimed run of a task.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) run: Run,
    pub(crate) group: String,
    pub(crate) payload: Value,
    /// When the task itself expires.
    pub(crate) expires: Option<Timestamp>,
    pub(crate) lease: Lease,
}

/// A run of a task.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) task: TaskId,
    pub(crate) number: u32,
}

/// The end of a claim, and the credentials for calls about its run; the reply to its renewal.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Lease {
    #[serde(deserialize_with = "parsed")]
    pub(crate) taken_until: Timestamp,
    pub(crate) credentials: Credentials,
}

/// The outcome of a run, as it is reported to the queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Failed,
    Exception(Reason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The worker stops before the task has ended: the queue retries the run.
    WorkerShutdown,
    /// The payload is not valid for this worker.
    MalformedPayload,
    /// This machine cannot run the task.
    InternalError,
}

/// Whether the fleet needs this worker.
#[derive(Debug, Deserialize)]
pub(crate) struct Advice {
    pub(crate) terminate: bool,
    pub(crate) reason: String,
}

/// The state of a worker's launch config.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LaunchConfigState {
    pub(crate) state: String,
    pub(crate) reason: String,
    /// The launch config that the worker gets when it registers again.
    #[serde(default)]
    pub(crate) next_launch_config_id: Option<String>,
}

/// The length of a log on the server.
#[derive(Debug, Deserialize)]
pub(crate) struct LogLength {
    pub(crate) length: u64,
    #[serde(default)]
    pub(crate) truncated: bool,
    /// Whether the run is still running, if the server reports it.
    #[serde(default)]
    pub(crate) running: Option<bool>,
}

/// Where to send an artifact.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upload {
    /// Absent for an artifact that only reports an error.
    #[serde(default)]
    pub(crate) put_url: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Claims {
    tasks: Vec<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimBody {
    status: StatusBody,
    run_id: u32,
    task: TaskBody,
    #[serde(deserialize_with = "parsed")]
    taken_until: Timestamp,
    credentials: Credentials,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody {
    #[serde(deserialize_with = "parsed")]
    task_id: TaskId,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskBody {
    task_group_id: String,
    payload: Value,
    #[serde(default, deserialize_with = "parsed_if_any")]
    expires: Option<Timestamp>,
}

/// A reply of which only the status is used.
pub(crate) type Done = IgnoredAny;

pub(crate) fn register(identity: &Identity, boot_time: Option<Timestamp>) -> Call {
    let proof = match &identity.proof {
        Proof::Token(token) => json!({"token": token.expose()}),
        Proof::StaticSecret(secret) => json!({"staticSecret": secret.expose()}),
        Proof::Document {
            document,
            signature,
        } => json!({"document": document, "signature": signature}),
        Proof::AttestedDocument(document) => json!({"document": document}),
        // Such a worker is registered already.
        Proof::Relay(_) => json!({}),
    };
    let mut body = json!({
        "workerPoolId": identity.pool.as_str(),
        "providerId": identity.provider_id.as_str(),
        "workerGroup": identity.group.as_str(),
        "workerId": identity.id.as_str(),
        "workerIdentityProof": proof,
    });
    if let Some(moment) = boot_time {
        body["systemBootTime"] = json!(moment.to_string());
    }
    let call = ApiCall::post(WORKER_MANAGER, &["worker", "register"], &body);
    Call::new("registerWorker", call)
}

pub(crate) fn reregister(identity: &Identity, secret: &access::Secret) -> Call {
    let body = json!({
        "workerPoolId": identity.pool.as_str(),
        "workerGroup": identity.group.as_str(),
        "workerId": identity.id.as_str(),
        "secret": secret.expose(),
    });
    let call = ApiCall::post(WORKER_MANAGER, &["worker", "reregister"], &body);
    Call::new("reregisterWorker", call)
}

pub(crate) fn should_terminate(identity: &Identity) -> Call {
    let mut segments = worker_segments(identity).to_vec();
    segments.push("should-terminate");
    let call = ApiCall::get(WORKER_MANAGER, &segments);
    Call::new("shouldWorkerTerminate", call)
}

pub(crate) fn launch_config(identity: &Identity) -> Call {
    let mut segments = worker_segments(identity).to_vec();
    segments.push("launch-config");
    let call = ApiCall::get(WORKER_MANAGER, &segments);
    Call::new("workerLaunchConfig", call)
}

pub(crate) fn remove_worker(identity: &Identity) -> Call {
    let segments = worker_segments(identity);
    let call = ApiCall::new(Method::DELETE, WORKER_MANAGER, &segments);
    Call::new("removeWorker", call)
}

/// Reports an error to the owner of the pool.
pub(crate) fn report_error(identity: &Identity, title: &str, description: &str) -> Call {
    let body = json!({
        "kind": "worker-error",
        "title": title,
        "description": description,
        "extra": {},
        "workerGroup": identity.group.as_str(),
        "workerId": identity.id.as_str(),
    });
    let segments = ["worker-pool-errors", identity.pool.as_str()];
    let call = ApiCall::post(WORKER_MANAGER, &segments, &body);
    Call::new("reportWorkerError", call)
}

/// The server holds the call open until work is available.
pub(crate) fn claim_work(identity: &Identity, n_tasks: u32) -> Call {
    let body = json!({
        "tasks": n_tasks,
        "workerGroup": identity.group.as_str(),
        "workerId": identity.id.as_str(),
    });
    let segments = ["claim-work", identity.pool.as_str()];
    let call = ApiCall::post(QUEUE, &segments, &body).limit(CLAIM_LIMIT);
    Call::new("claimWork", call)
}

pub(crate) fn reclaim(run: &Run) -> Call {
    Call::new("reclaimTask", run.post("reclaim"))
}

pub(crate) fn report(run: &Run, outcome: Outcome) -> Call {
    match outcome {
        Outcome::Completed => Call::new("reportCompleted", run.post("completed")),
        Outcome::Failed => Call::new("reportFailed", run.post("failed")),
        Outcome::Exception(reason) => {
            let body = json!({"reason": reason.name()});
            Call::new("reportException", run.post("exception").json(&body))
        }
    }
}

/// Sends the bytes of a log that come after the first `offset`.
pub(crate) fn append_log(run: &Run, offset: u64, bytes: Bytes, finished: bool) -> Call {
    let call = run.call(Method::PUT, FLEETWRIGHT, &["log"]);
    let call = call
        .query("offset", Some(offset))
        .query("finished", finished.then_some(true));
    Call::new("appendLog", call.raw(bytes))
}

pub(crate) fn create_artifact(run: &Run, name: &str, body: &Value) -> Call {
    let call = run.call(Method::POST, QUEUE, &["artifacts", name]);
    Call::new("createArtifact", call.json(body))
}

impl LaunchConfigState {
    pub(crate) fn is_archived(&self) -> bool {
        self.state == "archived"
    }
}

impl Run {
    fn post(&self, verb: &str) -> ApiCall {
        self.call(Method::POST, QUEUE, &[verb])
    }

    fn call(&self, method: Method, service: &str, rest: &[&str]) -> ApiCall {
        let number = self.number.to_string();
        let mut segments = vec!["task", self.task.as_str(), "runs", &number];
        segments.extend(rest);
        ApiCall::new(method, service, &segments)
    }
}

impl Display for Run {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "task {} run {}", self.task, self.number)
    }
}

impl Outcome {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Exception(reason) => reason.name(),
        }
    }
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::WorkerShutdown => "worker-shutdown",
            Self::MalformedPayload => "malformed-payload",
            Self::InternalError => "internal-error",
        }
    }
}

impl Claims {
    /// Parses the claims. An invalid claim is left to expire, as it cannot even be reported.
    pub(crate) fn read(self) -> Vec<Claim> {
        let read = |body: Value| {
            let task_id = body["status"]["taskId"].as_str().unwrap_or_default();
            let task_id = task_id.to_owned();
            serde_json::from_value(body)
                .inspect_err(|problem| {
                    tracing::error!(task.id = %task_id, "a claim is not valid: {problem}");
                })
                .map(|body: ClaimBody| Claim {
                    run: Run {
                        task: body.status.task_id,
                        number: body.run_id,
                    },
                    group: body.task.task_group_id,
                    payload: body.task.payload,
                    expires: body.task.expires,
                    lease: Lease {
                        taken_until: body.taken_until,
                        credentials: body.credentials,
                    },
                })
                .ok()
        };
        self.tasks.into_iter().filter_map(read).collect()
    }
}

fn worker_segments(identity: &Identity) -> [&str; 4] {
    [
        "workers",
        identity.pool.as_str(),
        identity.group.as_str(),
        identity.id.as_str(),
    ]
}
