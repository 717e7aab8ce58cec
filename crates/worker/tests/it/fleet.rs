//! A simulated server: it answers the calls of a worker, checks real signatures, and can inject
//! failures.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use access::Secret;
use access::authenticate::{Client, Policy, check_payload, verify};
use access::certificate::{Issuer, issue};
use access::hawk::{self, RequestLine};
use access::scope::ScopeSet;
use domain::time::{Clock as _, Timestamp};
use rand::SeedableRng as _;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use tokio::sync::watch;

use crate::http::{Answer, RequestHandler, TestRequest, TestServer, serve};
use crate::world::SystemClock;

pub(crate) const POOL: &str = "demo/linux";
pub(crate) const PROVIDER: &str = "local";
pub(crate) const GROUP: &str = "host";
pub(crate) const PROOF: &str = "the-token-of-this-worker";
const ISSUER: &str = "static/fleet";
const ISSUER_TOKEN: &str = "fleetfleetfleetfleetfleetfleetfleetfleetfle0";

/// How long claimWork waits for work. The real server waits for 20 s.
const POLL: Duration = Duration::from_millis(500);

pub(crate) struct Fleet {
    listening: TestServer,
    shared: Arc<Shared>,
}

struct Shared {
    state: Mutex<State>,
    changes: watch::Sender<()>,
}

pub(crate) struct State {
    rng: StdRng,
    pub(crate) calls: Vec<String>,
    pub(crate) bodies: Vec<Value>,
    faults: Vec<Fault>,
    pub(crate) worker_config: Value,
    pub(crate) advice: Value,
    /// The state of the worker's launch config.
    pub(crate) launch_config: Value,
    pub(crate) registered_for: Duration,
    pub(crate) claimed_for: Duration,
    /// The secret that renews the registration.
    secrets: Vec<String>,
    pub(crate) n_registered: usize,
    pub(crate) is_removed: bool,
    /// Errors that workers reported.
    pub(crate) errors: Vec<String>,
    pending: VecDeque<String>,
    runs: BTreeMap<String, Run>,
    pub(crate) artifacts: BTreeMap<String, (Value, Vec<u8>)>,
}

#[derive(Default)]
pub(crate) struct Run {
    payload: Value,
    pub(crate) is_claimed: bool,
    pub(crate) outcome: Option<String>,
    pub(crate) n_reclaims: usize,
    pub(crate) log: Vec<u8>,
    pub(crate) is_log_finished: bool,
    pub(crate) n_log_pieces: usize,
}

/// A failure of the next calls whose line contains the text.
struct Fault {
    part: &'static str,
    failure: InjectedFailure,
    n_left: usize,
}

#[derive(Clone, Copy)]
pub(crate) enum InjectedFailure {
    Status(u16),
    /// The call is executed, but the response is lost.
    LostAnswer,
    /// The call is executed, and the response is delayed.
    LateAnswer(Duration),
}

impl Run {
    pub(crate) fn is_resolved(&self) -> bool {
        self.outcome.is_some()
    }

    pub(crate) fn log_text(&self) -> String {
        String::from_utf8_lossy(&self.log).into_owned()
    }
}

impl State {
    pub(crate) fn run(&self, task: &str) -> &Run {
        &self.runs[task]
    }

    pub(crate) fn run_mut(&mut self, task: &str) -> &mut Run {
        self.runs.get_mut(task).unwrap()
    }

    pub(crate) fn n_calls(&self, part: &str) -> usize {
        self.calls.iter().filter(|call| call.contains(part)).count()
    }

    pub(crate) fn to_text(&self) -> String {
        let runs: Vec<_> = self
            .runs
            .iter()
            .map(|(task, run)| format!("{task}: {:?} {}", run.outcome, run.log_text()))
            .collect();
        format!("{:#?} {:#?}", self.calls, runs)
    }

    fn credentials(&mut self, name: &str, scopes: Vec<String>, seconds: i64) -> Value {
        let now = SystemClock.now();
        let issuer = Issuer {
            client_id: ISSUER,
            access_token: &Secret::new(ISSUER_TOKEN),
        };
        let until = now.plus_seconds(seconds).as_millis();
        let start = now.as_millis();
        let made = issue(&issuer, Some(name), scopes, start, until, &mut self.rng);
        json!({
            "clientId": made.client_id,
            "accessToken": made.access_token.expose(),
            "certificate": made.certificate_text(),
        })
    }

    fn registration(&mut self) -> Value {
        let secret = access::slugid::secret(&mut self.rng);
        // The previous secret stays valid for a while, in case this response is lost.
        self.secrets.push(secret.clone());
        let n_old = self.secrets.len().saturating_sub(2);
        self.secrets.drain(..n_old);
        let scopes = ["queue:*", "worker-manager:*"].map(str::to_owned).to_vec();
        let credentials = self.credentials("worker/local/w1", scopes, 3_600);
        json!({
            "expires": after(self.registered_for),
            "credentials": credentials,
            "secret": secret,
            "workerConfig": self.worker_config,
        })
    }

    fn lease(&mut self, task: &str) -> Value {
        let scopes = ["reclaim-task", "resolve-task", "create-artifact"]
            .map(|verb| format!("queue:{verb}:{task}/0"));
        let name = format!("task-client/{task}");
        let seconds = i64::try_from(self.claimed_for.as_secs()).unwrap();
        json!({
            "takenUntil": after(self.claimed_for),
            "credentials": self.credentials(&name, scopes.to_vec(), seconds),
        })
    }

    fn claim(&mut self) -> Option<Value> {
        let task = self.pending.pop_front()?;
        let mut claim = self.lease(&task);
        let run = self.run_mut(&task);
        run.is_claimed = true;
        claim["status"] = json!({"taskId": task});
        claim["runId"] = json!(0);
        claim["task"] = json!({
            "taskGroupId": task,
            "payload": run.payload,
            "expires": after(Duration::from_secs(86_400)),
        });
        Some(claim)
    }

    fn fault(&mut self, line: &str) -> Option<InjectedFailure> {
        let fault = self
            .faults
            .iter_mut()
            .find(|fault| fault.n_left > 0 && line.contains(fault.part))?;
        fault.n_left -= 1;
        Some(fault.failure)
    }

    fn append(&mut self, task: &str, offset: usize, finished: bool, body: &[u8]) -> (u16, Value) {
        let run = self.run_mut(task);
        if run.outcome.as_deref() == Some("completed") {
            return refusal(409, "the run is over");
        }
        if offset > run.log.len() {
            return refusal(409, "the log has a gap");
        }
        let is_known = run.log.len() - offset;
        run.log.extend(body.get(is_known..).unwrap_or_default());
        run.n_log_pieces += 1;
        run.is_log_finished |= finished;
        let reply = json!({"length": run.log.len(), "finished": finished, "truncated": false,
            "running": !run.is_resolved()});
        (200, reply)
    }

    fn resolve(&mut self, task: &str, outcome: &str) -> (u16, Value) {
        let run = self.run_mut(task);
        if run.is_resolved() && run.outcome.as_deref() != Some(outcome) {
            return refusal(409, "the run was resolved otherwise");
        }
        run.outcome = Some(outcome.to_owned());
        (200, json!({"status": {}}))
    }
}

impl Fleet {
    pub(crate) async fn start() -> Self {
        let state = State {
            // Tests run in parallel, and no two tasks of a machine may have the same id.
            rng: StdRng::try_from_rng(&mut rand::rngs::SysRng).unwrap(),
            calls: Vec::new(),
            bodies: Vec::new(),
            faults: Vec::new(),
            worker_config: json!({}),
            advice: json!({"terminate": false, "reason": "none"}),
            launch_config: json!({"state": "active", "reason": "the config is in force"}),
            registered_for: Duration::from_secs(3_600),
            claimed_for: Duration::from_secs(1_200),
            secrets: Vec::new(),
            n_registered: 0,
            is_removed: false,
            errors: Vec::new(),
            pending: VecDeque::new(),
            runs: BTreeMap::new(),
            artifacts: BTreeMap::new(),
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changes: watch::Sender::new(()),
        });
        Self {
            listening: serve(Arc::clone(&shared)).await,
            shared,
        }
    }

    pub(crate) fn url(&self) -> String {
        self.listening.url.clone()
    }

    pub(crate) fn look<T>(&self, look: impl FnOnce(&State) -> T) -> T {
        look(&self.shared.state.lock().unwrap())
    }

    pub(crate) fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let changed = change(&mut self.shared.state.lock().unwrap());
        self.shared.changes.send_replace(());
        changed
    }

    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.shared.changes.subscribe()
    }

    /// Injects a failure into the next calls of a kind.
    pub(crate) fn inject(&self, n_calls: usize, part: &'static str, failure: InjectedFailure) {
        self.change(|state| {
            state.faults.push(Fault {
                part,
                failure,
                n_left: n_calls,
            });
        });
    }

    pub(crate) fn add_task(&self, payload: Value) -> String {
        self.change(|state| {
            let task = access::slugid::nice(&mut state.rng);
            let run = Run {
                payload,
                ..Run::default()
            };
            state.runs.insert(task.clone(), run);
            state.pending.push_back(task.clone());
            task
        })
    }
}

impl RequestHandler for Shared {
    async fn answer(self: Arc<Self>, asked: TestRequest) -> Answer {
        let line = format!("{} {}", asked.method, asked.resource);
        let failure = {
            let mut state = self.state.lock().unwrap();
            state.calls.push(line.clone());
            let body = serde_json::from_slice(&asked.body).unwrap_or(Value::Null);
            state.bodies.push(body);
            state.fault(&line)
        };
        let (status, reply) = match failure {
            Some(InjectedFailure::Status(status)) => refusal(status, "injected failure"),
            Some(InjectedFailure::LostAnswer | InjectedFailure::LateAnswer(_)) | None => {
                self.execute(&asked).await
            }
        };
        self.changes.send_replace(());
        match failure {
            Some(InjectedFailure::LostAnswer) => None,
            Some(InjectedFailure::LateAnswer(late)) => {
                let nothing = std::future::pending::<()>();
                let _late = tokio::time::timeout(late, nothing).await;
                Some((status, reply.to_string()))
            }
            Some(InjectedFailure::Status(_)) | None => Some((status, reply.to_string())),
        }
    }
}

impl Shared {
    async fn execute(&self, asked: &TestRequest) -> (u16, Value) {
        let (path, query) = asked
            .resource
            .split_once('?')
            .unwrap_or((&asked.resource, ""));
        let segments: Vec<_> = path.split('/').skip(2).collect();
        let body: Value = serde_json::from_slice(&asked.body).unwrap_or(Value::Null);
        let line = (asked.method.as_str(), segments.as_slice());
        match line {
            ("POST", ["worker-manager", "v1", "worker", "register"]) => {
                return self.register(&body);
            }
            ("PUT", ["store", "v1", name]) => {
                let mut state = self.state.lock().unwrap();
                state.artifacts.get_mut(*name).unwrap().1 = asked.body.to_vec();
                return (200, json!({}));
            }
            _ => {}
        }
        let scopes = match self.authenticate(asked) {
            Ok(scopes) => scopes,
            Err(problem) => return refusal(401, &problem),
        };
        if let ("POST", ["queue", "v1", "claim-work", "demo%2Flinux"]) = line {
            assert!(body["tasks"].as_u64().is_some_and(|n| n > 0), "{body}");
            return self.claim_work(body["tasks"].as_u64().unwrap()).await;
        }
        self.of_worker(line, query, asked, body, &scopes)
    }

    fn of_worker(
        &self,
        line: (&str, &[&str]),
        query: &str,
        asked: &TestRequest,
        body: Value,
        scopes: &ScopeSet,
    ) -> (u16, Value) {
        let mut state = self.state.lock().unwrap();
        match line {
            ("POST", ["worker-manager", "v1", "worker", "reregister"]) => {
                let secret = body["secret"].as_str().unwrap().to_owned();
                if state.secrets.contains(&secret) {
                    (200, state.registration())
                } else {
                    refusal(400, "Could not generate credentials for this secret")
                }
            }
            ("GET", ["worker-manager", "v1", "workers", .., "should-terminate"]) => {
                (200, state.advice.clone())
            }
            ("GET", ["worker-manager", "v1", "workers", .., "launch-config"]) => {
                (200, state.launch_config.clone())
            }
            ("POST", ["worker-manager", "v1", "worker-pool-errors", _]) => {
                let text = body["description"].as_str().unwrap();
                state.errors.push(text.to_owned());
                (200, body)
            }
            (
                "DELETE",
                [
                    "worker-manager",
                    "v1",
                    "workers",
                    "demo%2Flinux",
                    GROUP,
                    "w1",
                ],
            ) => {
                state.is_removed = true;
                (200, json!({}))
            }
            (
                _,
                [
                    "queue" | "fleetwright",
                    "v1",
                    "task",
                    task,
                    "runs",
                    "0",
                    rest @ ..,
                ],
            ) => {
                let scope = match rest {
                    ["reclaim"] => format!("queue:reclaim-task:{task}/0"),
                    ["log" | "artifacts", ..] => format!("queue:create-artifact:{task}/0"),
                    _ => format!("queue:resolve-task:{task}/0"),
                };
                assert!(scopes.satisfies(&scope), "{scope}");
                self.of_run(&mut state, task, rest, query, asked, body)
            }
            _ => refusal(404, "no such call"),
        }
    }

    fn of_run(
        &self,
        state: &mut State,
        task: &str,
        rest: &[&str],
        query: &str,
        asked: &TestRequest,
        body: Value,
    ) -> (u16, Value) {
        match rest {
            ["reclaim"] if state.run(task).is_resolved() => refusal(409, "the run is over"),
            ["reclaim"] => {
                state.run_mut(task).n_reclaims += 1;
                (200, state.lease(task))
            }
            ["completed" | "failed"] => state.resolve(task, rest[0]),
            ["exception"] => state.resolve(task, body["reason"].as_str().unwrap()),
            ["log"] => {
                let offset = query.trim_start_matches("offset=");
                let (offset, more) = offset.split_once('&').unwrap_or((offset, ""));
                let finished = more == "finished=true";
                state.append(task, offset.parse().unwrap(), finished, &asked.body)
            }
            ["artifacts", name] => {
                let url = format!(
                    "http://{}/api/store/v1/{name}",
                    asked.headers["host"].to_str().unwrap()
                );
                let kind = body["storageType"].clone();
                state
                    .artifacts
                    .insert((*name).to_owned(), (body, Vec::new()));
                (200, json!({"storageType": kind, "putUrl": url}))
            }
            _ => refusal(404, "no such call"),
        }
    }

    fn register(&self, body: &Value) -> (u16, Value) {
        let mut state = self.state.lock().unwrap();
        let proof = &body["workerIdentityProof"];
        if proof["token"] != PROOF && proof["document"].is_null() {
            return refusal(400, "the proof is wrong");
        }
        state.n_registered += 1;
        (200, state.registration())
    }

    async fn claim_work(&self, n_tasks: u64) -> (u16, Value) {
        let mut changes = self.changes.subscribe();
        let claims = async {
            loop {
                let claims: Vec<_> = {
                    let mut state = self.state.lock().unwrap();
                    (0..n_tasks).map_while(|_| state.claim()).collect()
                };
                if !claims.is_empty() {
                    return claims;
                }
                changes.changed().await.unwrap();
            }
        };
        // Time: how long the fake server holds a call open.
        let claims = tokio::time::timeout(POLL, claims).await.unwrap_or_default();
        (200, json!({"tasks": claims}))
    }

    /// The scopes of the sender, if the signature is valid.
    fn authenticate(&self, asked: &TestRequest) -> Result<Arc<ScopeSet>, String> {
        let header = |name: &str| asked.headers.get(name).map(|it| it.to_str().unwrap());
        let (host, port) = header("host").unwrap().split_once(':').unwrap();
        let line = RequestLine {
            method: &asked.method,
            resource: &asked.resource,
            host,
            port: port.parse().unwrap(),
        };
        let presented =
            hawk::read(&line, header("authorization")).map_err(|problem| problem.message)?;
        let client = Client {
            client_id: ISSUER.to_owned(),
            access_token: Secret::new(ISSUER_TOKEN),
            scopes: vec!["*".to_owned()],
            expires_ms: i64::MAX,
            disabled: false,
        };
        let expand = |scopes: &[String]| Ok(Arc::new(ScopeSet::new(scopes.to_vec())));
        let now = SystemClock.now().as_millis();
        let policy = Policy {
            accept_mac_over_path_only: false,
        };
        let sender = verify(&presented, &line, Some(&client), &expand, now, &policy)
            .map_err(|problem| problem.message)?;
        let content_type = header("content-type").unwrap_or_default();
        let read = match content_type {
            "application/json" => &asked.body[..],
            _ => b"",
        };
        check_payload(sender.payload_hash.as_deref(), content_type, read)
            .map_err(|problem| problem.message)?;
        Ok(sender.scopes)
    }
}

fn refusal(status: u16, message: &str) -> (u16, Value) {
    (status, json!({"message": message}))
}

fn after(length: Duration) -> String {
    let now: Timestamp = SystemClock.now();
    now.plus_millis(i64::try_from(length.as_millis()).unwrap())
        .to_string()
}
