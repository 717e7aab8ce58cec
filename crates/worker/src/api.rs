//! The calls that a worker makes, with their bodies and replies as types.

use api_client::{FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use bytes::Bytes;
use domain::id::TaskId;
use domain::time::Timestamp;
use reqwest::Method;
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Map, Value, json};

use crate::client::{Call, CallError};
use crate::credentials::{Credentials, CredentialsBody};
use crate::identity::{Identity, Proof};
use crate::state::RegistrationState;

/// A run of a task that is ours for now.
#[derive(Debug)]
pub(crate) struct Claim {
    pub(crate) run: Run,
    pub(crate) group: String,
    pub(crate) payload: Value,
    /// Until when the task itself is kept.
    pub(crate) expires: Option<Timestamp>,
    pub(crate) lease: Lease,
}

/// One try at one task.
#[derive(Clone, Debug)]
pub(crate) struct Run {
    pub(crate) task: TaskId,
    pub(crate) number: u32,
}

/// Until when a run is ours, and with which credentials we speak for it.
#[derive(Clone, Debug)]
pub(crate) struct Lease {
    pub(crate) taken_until: Timestamp,
    pub(crate) credentials: Credentials,
}

/// How a run ended, as the queue is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    Completed,
    Failed,
    Exception(Reason),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reason {
    /// The worker ends before the task does: the queue tries again.
    WorkerShutdown,
    /// The task does not say what to do in a way that we understand.
    MalformedPayload,
    /// This machine lacks what it takes.
    InternalError,
}

/// Whether the fleet needs this worker.
#[derive(Debug, Deserialize)]
pub(crate) struct Advice {
    pub(crate) terminate: bool,
    pub(crate) reason: String,
}

/// How much of a log the server has.
#[derive(Debug, Deserialize)]
pub(crate) struct LogLength {
    pub(crate) length: u64,
    #[serde(default)]
    pub(crate) truncated: bool,
    /// Whether the run still runs, if the server tells.
    #[serde(default)]
    pub(crate) running: Option<bool>,
}

/// Where to send an artifact.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Upload {
    /// Absent for an artifact that only tells of an error.
    #[serde(default)]
    pub(crate) put_url: Option<String>,
}

/// What a registration brings.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Registration {
    credentials: CredentialsBody,
    expires: String,
    secret: access::Secret,
    /// Only the first registration tells it.
    #[serde(default)]
    worker_config: Map<String, Value>,
}

#[derive(Deserialize)]
pub(crate) struct Claims {
    tasks: Vec<ClaimBody>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ClaimBody {
    status: StatusBody,
    run_id: u32,
    task: TaskBody,
    taken_until: String,
    credentials: CredentialsBody,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct StatusBody {
    task_id: String,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TaskBody {
    task_group_id: String,
    payload: Value,
    #[serde(default)]
    expires: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseBody {
    taken_until: String,
    credentials: CredentialsBody,
}

/// A reply of which only the status matters.
pub(crate) type Done = IgnoredAny;

pub(crate) fn register(identity: &Identity, boot_time: Option<Timestamp>) -> Call {
    let proof = match &identity.proof {
        Proof::Token(token) => json!({"token": token.expose()}),
        Proof::StaticSecret(secret) => json!({"staticSecret": secret.expose()}),
        Proof::Document {
            document,
            signature,
        } => json!({"document": document, "signature": signature}),
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
    let segments = ["worker", "register"];
    Call::new("registerWorker", Method::POST, WORKER_MANAGER, &segments).json(&body)
}

pub(crate) fn reregister(identity: &Identity, secret: &access::Secret) -> Call {
    let body = json!({
        "workerPoolId": identity.pool.as_str(),
        "workerGroup": identity.group.as_str(),
        "workerId": identity.id.as_str(),
        "secret": secret.expose(),
    });
    let segments = ["worker", "reregister"];
    Call::new("reregisterWorker", Method::POST, WORKER_MANAGER, &segments).json(&body)
}

pub(crate) fn should_terminate(identity: &Identity) -> Call {
    let mut segments = worker_segments(identity).to_vec();
    segments.push("should-terminate");
    Call::new(
        "shouldWorkerTerminate",
        Method::GET,
        WORKER_MANAGER,
        &segments,
    )
}

pub(crate) fn remove_worker(identity: &Identity) -> Call {
    let segments = worker_segments(identity);
    Call::new("removeWorker", Method::DELETE, WORKER_MANAGER, &segments)
}

/// Tells those who look after the pool that something is wrong.
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
    Call::new("reportWorkerError", Method::POST, WORKER_MANAGER, &segments).json(&body)
}

/// Waits at the server until there is work.
pub(crate) fn claim_work(identity: &Identity, n_tasks: u32) -> Call {
    let body = json!({
        "tasks": n_tasks,
        "workerGroup": identity.group.as_str(),
        "workerId": identity.id.as_str(),
    });
    let segments = ["claim-work", identity.pool.as_str()];
    Call::new("claimWork", Method::POST, QUEUE, &segments)
        .json(&body)
        .long()
}

pub(crate) fn reclaim(run: &Run) -> Call {
    run.call("reclaimTask", Method::POST, QUEUE, &["reclaim"])
}

pub(crate) fn report(run: &Run, outcome: Outcome) -> Call {
    let call = |name, verb| run.call(name, Method::POST, QUEUE, &[verb]);
    match outcome {
        Outcome::Completed => call("reportCompleted", "completed"),
        Outcome::Failed => call("reportFailed", "failed"),
        Outcome::Exception(reason) => {
            call("reportException", "exception").json(&json!({"reason": reason.name()}))
        }
    }
}

/// Sends the bytes of a log that come after the first `offset`.
pub(crate) fn append_log(run: &Run, offset: u64, bytes: Bytes, finished: bool) -> Call {
    run.call("appendLog", Method::PUT, FLEETWRIGHT, &["log"])
        .query("offset", Some(offset))
        .query("finished", finished.then_some(true))
        .raw(bytes)
}

pub(crate) fn create_artifact(run: &Run, name: &str, body: &Value) -> Call {
    run.call("createArtifact", Method::POST, QUEUE, &["artifacts", name])
        .json(body)
}

impl Run {
    fn call(&self, name: &'static str, method: Method, service: &str, rest: &[&str]) -> Call {
        let number = self.number.to_string();
        let mut segments = vec!["task", self.task.as_str(), "runs", &number];
        segments.extend(rest);
        Call::new(name, method, service, &segments)
    }
}

impl std::fmt::Display for Run {
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

impl Registration {
    /// The standing that it gives; what it does not tell stays as it was.
    pub(crate) fn standing(
        self,
        call: &'static str,
        before: Option<&RegistrationState>,
    ) -> Result<RegistrationState, CallError> {
        let credentials = read_credentials(call, self.credentials)?;
        Ok(RegistrationState {
            credentials,
            expires: moment(call, &self.expires)?,
            secret: self.secret,
            worker_config: before.map_or(self.worker_config, |before| before.worker_config.clone()),
        })
    }
}

impl Claims {
    /// Takes the claims apart. What we cannot read is left to expire, since we cannot even report it.
    pub(crate) fn read(self) -> Vec<Claim> {
        let read = |body: ClaimBody| {
            let task_id = body.status.task_id.clone();
            read_claim(body)
                .inspect_err(|problem| {
                    tracing::error!(task.id = %task_id, "a claim cannot be used: {problem}");
                })
                .ok()
        };
        self.tasks.into_iter().filter_map(read).collect()
    }
}

impl LeaseBody {
    pub(crate) fn read(self) -> Result<Lease, CallError> {
        let call = "reclaimTask";
        Ok(Lease {
            taken_until: moment(call, &self.taken_until)?,
            credentials: read_credentials(call, self.credentials)?,
        })
    }
}

fn read_claim(body: ClaimBody) -> Result<Claim, CallError> {
    let call = "claimWork";
    Ok(Claim {
        run: Run {
            task: body.status.task_id.parse().map_err(bad(call))?,
            number: body.run_id,
        },
        group: body.task.task_group_id,
        payload: body.task.payload,
        expires: body
            .task
            .expires
            .map(|text| moment(call, &text))
            .transpose()?,
        lease: Lease {
            taken_until: moment(call, &body.taken_until)?,
            credentials: read_credentials(call, body.credentials)?,
        },
    })
}

fn read_credentials(call: &'static str, body: CredentialsBody) -> Result<Credentials, CallError> {
    body.try_into().map_err(bad(call))
}

fn moment(call: &'static str, text: &str) -> Result<Timestamp, CallError> {
    text.parse().map_err(bad(call))
}

fn bad<E: std::fmt::Display>(call: &'static str) -> impl Fn(E) -> CallError {
    move |problem| CallError::BadReply {
        call,
        reason: problem.to_string(),
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
