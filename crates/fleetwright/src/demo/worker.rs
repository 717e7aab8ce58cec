//! A worker of the demo: it registers, claims tasks, writes their logs, and stops when asked.

use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use api_client::{Call, CallError, Credentials, FLEETWRIGHT, QUEUE, WORKER_MANAGER};
use domain::id::{ProviderId, WorkerKey};
use domain::time::{Clock as _, DAY_MS};
use engine::clock::SystemClock;
use rand::RngExt as _;
use reqwest::Method;
use serde_json::{Value, json};

use super::api::{credentials_of, text};
use super::site::Site;
use crate::machine;

const RETRY: Duration = Duration::from_secs(2);
/// The number of failures in a row after which a worker stops trying to register or work.
const MAX_FAILURES: u32 = 20;
/// A server holds a claim for 20 s when there is no work.
const CLAIM_LIMIT: Duration = Duration::from_secs(45);
/// A task of other people runs this long.
const USUAL_SECONDS: u64 = 3;
/// The least number of steps of a log, and the longest time between two steps.
const LEAST_STEPS: u64 = 4;
const LONGEST_STEP_SECONDS: u64 = 5;

pub(super) enum Proof {
    /// Of the metadata service of this cloud.
    Token(ProviderId, Secret),
    /// Of a host.
    Secret(Secret),
}

pub(super) struct Worker {
    site: Arc<Site>,
    key: WorkerKey,
    proof: Proof,
}

/// A claimed run, and the credentials for calls about it.
struct Claim {
    task: String,
    run: String,
    credentials: Credentials,
    payload: Value,
}

impl Worker {
    pub(super) fn new(site: &Arc<Site>, key: WorkerKey, proof: Proof) -> Self {
        Self {
            site: Arc::clone(site),
            key,
            proof,
        }
    }

    /// Works until its machine ends, or it is asked to stop.
    pub(super) async fn run(self) {
        let mut n_failures = 0;
        let mut credentials = None;
        while self.exists() && n_failures < MAX_FAILURES {
            let done = match &credentials {
                None => self.register().await.map(|registered| {
                    credentials = Some(registered);
                    true
                }),
                Some(credentials) => self.work(credentials).await,
            };
            match done {
                Ok(true) => n_failures = 0,
                Ok(false) => return,
                Err(error) => {
                    tracing::debug!("worker {} of the demo: {error}", self.key);
                    n_failures += 1;
                    machine::pause(RETRY).await;
                }
            }
        }
    }

    fn exists(&self) -> bool {
        self.site.is_host(&self.key) || self.site.cloud_of(&self.key).is_some()
    }

    async fn register(&self) -> Result<Credentials, CallError> {
        let (provider, proof) = match &self.proof {
            Proof::Token(provider, token) => (provider.as_str(), json!({"token": token.expose()})),
            Proof::Secret(secret) => ("datacentre", json!({"staticSecret": secret.expose()})),
        };
        let body = json!({
            "workerPoolId": self.key.pool_id.as_str(),
            "providerId": provider,
            "workerGroup": self.key.group.as_str(),
            "workerId": self.key.id.as_str(),
            "workerIdentityProof": proof,
        });
        let call = Call::post(WORKER_MANAGER, &["worker", "register"], &body);
        let reply = self.site.api.call(&call, None).await?;
        // Without them it would register again at once, for ever.
        credentials_of(&reply).ok_or_else(|| CallError::BadReply("no credentials".to_owned()))
    }

    /// Takes the next task, if one comes. Returns `false` if the worker stops.
    async fn work(&self, by: &Credentials) -> Result<bool, CallError> {
        let api = &self.site.api;
        let own = [
            "workers",
            self.key.pool_id.as_str(),
            self.key.group.as_str(),
        ];
        let own = [&own[..], &[self.key.id.as_str()]].concat();
        let ask = Call::get(WORKER_MANAGER, &[&own[..], &["should-terminate"]].concat());
        let advice = api.call(&ask, Some(by)).await?;
        if advice["terminate"] == true && !self.site.is_host(&self.key) {
            let leave = Call::new(Method::DELETE, WORKER_MANAGER, &own);
            api.call(&leave, Some(by)).await?;
            return Ok(false);
        }
        let body = json!({"tasks": 1, "workerGroup": self.key.group.as_str(),
            "workerId": self.key.id.as_str()});
        let claim = Call::post(QUEUE, &["claim-work", self.key.pool_id.as_str()], &body);
        let reply = api.call(&claim.limit(CLAIM_LIMIT), Some(by)).await?;
        self.site.quarantine_first(&self.key).await;
        let claims = reply["tasks"].as_array().into_iter().flatten();
        let claims: Vec<Claim> = claims.filter_map(Claim::read).collect();
        if claims.is_empty() {
            machine::pause(RETRY).await;
        }
        for claim in claims {
            self.execute(&claim, by).await?;
        }
        Ok(true)
    }

    /// Runs a task: the log grows step by step, and the outcome is that of the payload.
    async fn execute(&self, claim: &Claim, by: &Credentials) -> Result<(), CallError> {
        let demo = &claim.payload["demo"];
        let seconds = demo["seconds"].as_u64().unwrap_or(USUAL_SECONDS);
        let n_steps = LEAST_STEPS.max(seconds / LONGEST_STEP_SECONDS);
        let mut log = format!(
            "[fleetwright] worker {}\n[fleetwright] command: {}\n",
            self.key.id, claim.payload["command"]
        );
        let mut sent = 0;
        for step in 1..=n_steps {
            sent = self.append(claim, &log, sent, false).await?;
            machine::pause(Duration::from_millis(seconds * 1_000 / n_steps)).await;
            if !self.exists() {
                return Ok(());
            }
            log.push_str(&format!("step {step} of {n_steps}: ok\n"));
        }
        let outcome = demo["outcome"].as_str().unwrap_or("completed");
        if outcome == "broken" {
            self.report_error(&mut log, by).await?;
        }
        log.push_str(&format!("[fleetwright] {outcome} after {seconds} s\n"));
        self.append(claim, &log, sent, true).await?;
        self.upload(claim, outcome).await?;
        let report = match outcome {
            "failed" => claim.post(&["failed"]),
            "broken" => claim
                .post(&["exception"])
                .json(&json!({"reason": "internal-error"})),
            _ => claim.post(&["completed"]),
        };
        self.call(claim, &report).await.map(drop)
    }

    /// Sends what is new in the log. Returns how much of it the server has.
    async fn append(
        &self,
        claim: &Claim,
        log: &str,
        sent: usize,
        is_last: bool,
    ) -> Result<usize, CallError> {
        let path = ["task", &claim.task, "runs", &claim.run, "log"];
        let rest = log.get(sent..).unwrap_or_default().to_owned();
        let call = Call::new(Method::PUT, FLEETWRIGHT, &path)
            .query("offset", Some(sent))
            .query("finished", is_last.then_some(true))
            .raw(rest);
        self.call(claim, &call).await?;
        Ok(log.len())
    }

    /// Leaves a report as an artifact.
    async fn upload(&self, claim: &Claim, outcome: &str) -> Result<(), CallError> {
        let expires = SystemClock.now().plus_millis(DAY_MS).to_string();
        let body =
            json!({"storageType": "s3", "contentType": "application/json", "expires": expires});
        let call = claim.post(&["artifacts", "public/report.json"]).json(&body);
        let reply = self.call(claim, &call).await?;
        let report = json!({"outcome": outcome, "worker": self.key.id.as_str()});
        let put = self
            .site
            .api
            .put(text(&reply, "putUrl"), report.to_string());
        put.await.map_err(CallError::NoAnswer)
    }

    /// Tells the owner of the pool that a task broke this worker.
    async fn report_error(&self, log: &mut String, by: &Credentials) -> Result<(), CallError> {
        let errors = &self.site.scene.worker_errors;
        let drawn = machine::random_source().random_range(0..errors.len().max(1));
        let Some(error) = errors.get(drawn) else {
            return Ok(());
        };
        log.push_str(&format!("[fleetwright] error: {}\n", error.text));
        let body = json!({
            "kind": "worker-error",
            "title": error.title,
            "description": error.text,
            "extra": {"code": error.code},
            "workerGroup": self.key.group.as_str(),
            "workerId": self.key.id.as_str(),
        });
        let path = ["worker-pool-errors", self.key.pool_id.as_str()];
        let call = Call::post(WORKER_MANAGER, &path, &body);
        self.site.api.call(&call, Some(by)).await.map(drop)
    }

    async fn call(&self, claim: &Claim, call: &Call) -> Result<Value, CallError> {
        self.site.api.call(call, Some(&claim.credentials)).await
    }
}

impl Claim {
    fn read(body: &Value) -> Option<Self> {
        Some(Self {
            task: text(&body["status"], "taskId").to_owned(),
            run: body["runId"].as_u64()?.to_string(),
            credentials: credentials_of(body)?,
            payload: body["task"]["payload"].clone(),
        })
    }

    fn post(&self, rest: &[&str]) -> Call {
        let path = ["task", self.task.as_str(), "runs", self.run.as_str()];
        Call::new(Method::POST, QUEUE, &[&path[..], rest].concat())
    }
}
