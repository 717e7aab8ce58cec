//! A small service that speaks the provider protocol, for tests. It checks the sender and the form
//! of each request.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use access::Secret;
use access::authenticate::{self, Client, Policy, check_payload};
use access::hawk::{self, RequestLine};
use bytes::Bytes;
use contract::Schemas;
use domain::time::Clock;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::net::TcpListener;
use tokio::task::JoinHandle;

use crate::tests::values::TestClock;

pub(super) const SECRET: &str = "a-secret-of-more-than-22-characters";
const MAX_BODY_BYTES: usize = 1024 * 1024;

/// How the service responds.
#[derive(Clone, Debug)]
pub(super) enum Behaviour {
    Normal,
    /// Does what is asked and never responds.
    Silent,
    /// Does what is asked and closes the connection.
    HangsUp,
    /// Responds with this status and body to every request.
    Says(u16, String),
}

pub(super) struct TestService {
    pub(super) url: String,
    pub(super) state: Arc<ServiceState>,
    task: JoinHandle<()>,
}

pub(super) struct ServiceState {
    clock: Arc<TestClock>,
    pub(super) behaviour: Mutex<Behaviour>,
    pub(super) machines: Mutex<BTreeMap<String, TestMachine>>,
    pub(super) n_requests: Mutex<BTreeMap<String, usize>>,
    /// Names of rack rows: the places of this service.
    pub(super) rows: Mutex<Vec<String>>,
    /// Whether it says that it takes images.
    pub(super) takes_images: AtomicBool,
    port: u16,
}

pub(super) struct TestMachine {
    pub(super) token: Option<String>,
    pool: String,
    pub(super) exists: bool,
}

impl TestService {
    pub(super) async fn start(clock: &Arc<TestClock>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let state = Arc::new(ServiceState {
            clock: Arc::clone(clock),
            behaviour: Mutex::new(Behaviour::Normal),
            machines: Mutex::default(),
            n_requests: Mutex::default(),
            rows: Mutex::new(vec!["one".to_owned(), "two".to_owned()]),
            takes_images: AtomicBool::new(false),
            port,
        });
        let shared = Arc::clone(&state);
        let task = tokio::spawn(async move {
            while let Ok((connection, _)) = listener.accept().await {
                let state = Arc::clone(&shared);
                let service = service_fn(move |request| answer(Arc::clone(&state), request));
                tokio::spawn(async move {
                    let connection = TokioIo::new(connection);
                    let served = hyper::server::conn::http1::Builder::new();
                    // Fails when the service closes the connection on purpose.
                    let _ = served.serve_connection(connection, service).await;
                });
            }
        });
        Self {
            url: format!("http://127.0.0.1:{port}/fleet/"),
            state,
            task,
        }
    }

    pub(super) fn set_behaviour(&self, behaviour: Behaviour) {
        *self.state.behaviour.lock().unwrap() = behaviour;
    }

    pub(super) fn n_requests(&self, operation: &str) -> usize {
        let counts = self.state.n_requests.lock().unwrap();
        counts.get(operation).copied().unwrap_or_default()
    }

    pub(super) fn add_foreign(&self, id: &str) {
        let machine = TestMachine {
            token: None,
            pool: "a/b".to_owned(),
            exists: true,
        };
        self.state
            .machines
            .lock()
            .unwrap()
            .insert(id.to_owned(), machine);
    }
}

impl Drop for TestService {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Reply = Result<Response<Full<Bytes>>, std::io::Error>;

async fn answer(state: Arc<ServiceState>, request: Request<Incoming>) -> Reply {
    let (head, body) = request.into_parts();
    let body = Limited::new(body, MAX_BODY_BYTES)
        .collect()
        .await
        .unwrap()
        .to_bytes();
    let path = head.uri.path().to_owned();
    let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
    if let Err(error) = authenticated(&state, &path, header, &body) {
        return reply(401, &error);
    }
    let operation = path
        .strip_prefix("/fleet/v1/")
        .unwrap_or_default()
        .to_owned();
    let question: Value = serde_json::from_slice(&body).unwrap();
    let schema = format!("fleetwright/v1/provider-{operation}-request.json");
    if let Err(invalid) = Schemas::new().check(&schema, &question) {
        return reply(400, &invalid.to_string());
    }
    *state
        .n_requests
        .lock()
        .unwrap()
        .entry(operation.clone())
        .or_default() += 1;
    let behaviour = state.behaviour.lock().unwrap().clone();
    if let Behaviour::Says(status, text) = behaviour {
        return reply(status, &text);
    }
    let (status, answer) = state.serve(&operation, &question);
    match behaviour {
        Behaviour::Silent => {
            let never = std::future::pending::<Infallible>().await;
            match never {}
        }
        Behaviour::HangsUp => Err(std::io::Error::other("hangs up")),
        Behaviour::Normal | Behaviour::Says(..) => reply(status, &answer.to_string()),
    }
}

fn reply(status: u16, text: &str) -> Reply {
    let answer = Response::builder()
        .status(status)
        .header("location", "/elsewhere");
    Ok(answer
        .body(Full::new(Bytes::from(text.to_owned())))
        .unwrap())
}

fn authenticated<'a>(
    state: &ServiceState,
    path: &str,
    header: impl Fn(&str) -> Option<&'a str>,
    body: &[u8],
) -> Result<(), String> {
    let line = RequestLine {
        method: "POST",
        resource: path,
        host: "127.0.0.1",
        port: state.port,
    };
    let client = Client {
        client_id: "racks".to_owned(),
        access_token: Secret::new(SECRET),
        scopes: Vec::new(),
        expires_ms: i64::MAX,
        disabled: false,
    };
    let now_ms = state.clock.now().as_millis();
    let expand = |_: &[String]| Ok(Arc::default());
    let credentials = hawk::read(&line, header("authorization")).map_err(|it| it.to_string())?;
    if credentials.client_to_load() != Some("racks") {
        return Err("unknown client".to_owned());
    }
    let policy = Policy::default();
    let sender = authenticate::verify(&credentials, &line, Some(&client), &expand, now_ms, &policy);
    let sender = sender.map_err(|it| it.to_string())?;
    if sender.payload_hash.is_none() {
        return Err("the body is not signed".to_owned());
    }
    let content_type = header("content-type").unwrap_or_default();
    check_payload(sender.payload_hash.as_deref(), content_type, body).map_err(|it| it.to_string())
}

impl ServiceState {
    fn serve(&self, operation: &str, question: &Value) -> (u16, Value) {
        match operation {
            "setup" => (200, self.describe_itself()),
            "validate" => (200, validate(question)),
            "bids" => (200, bids(question)),
            "launch" => self.launch(question),
            "look" => (200, self.look(question)),
            "owned" => (200, self.owned(question)),
            "end" => (200, self.end(question)),
            "verify" => (200, verify(question)),
            _ => (404, json!({})),
        }
    }

    fn describe_itself(&self) -> Value {
        let row = |name: &String| json!({"site": "dc1", "row": name});
        let rows: Vec<Value> = self.rows.lock().unwrap().iter().map(row).collect();
        let mut description = json!({"lookBatch": 7, "maxMachines": 12, "places": rows,
            "fills": {"row": "/placement/row"}});
        if self.takes_images.load(Ordering::Relaxed) {
            description["images"] = json!({"formats": ["raw"]});
        }
        description
    }

    fn launch(&self, question: &Value) -> (u16, Value) {
        if question["launchConfig"]["size"] == "sold out" {
            return (409, json!({"cause": "capacity", "message": "sold out"}));
        }
        let token = question["token"].as_str().unwrap();
        let made: Vec<Value> = (0..question["machines"].as_u64().unwrap())
            .map(|number| {
                let id = format!("rack-{}-{number}", &token[..8]);
                self.machines
                    .lock()
                    .unwrap()
                    .entry(id.clone())
                    .or_insert_with(|| TestMachine {
                        token: Some(token.to_owned()),
                        pool: question["workerPoolId"].as_str().unwrap().to_owned(),
                        exists: true,
                    });
                json!({"workerGroup": "dc1", "workerId": id, "providerData": {"serial": number}})
            })
            .collect();
        (200, json!({"machines": made}))
    }

    fn look(&self, question: &Value) -> Value {
        let machines = self.machines.lock().unwrap();
        let workers = question["workers"].as_array().unwrap();
        let seen = workers.iter().map(|worker| {
            let known = machines.get(worker["workerId"].as_str().unwrap());
            let state = match known.filter(|it| it.pool == worker["workerPoolId"]) {
                None => "not-found",
                Some(machine) if machine.exists => "alive",
                Some(_) => "gone",
            };
            json!({"workerPoolId": worker["workerPoolId"], "workerGroup": worker["workerGroup"],
                "workerId": worker["workerId"], "state": state, "reason": "for some reason"})
        });
        json!({"sightings": seen.collect::<Vec<_>>()})
    }

    /// Pages of one machine.
    fn owned(&self, question: &Value) -> Value {
        let machines = self.machines.lock().unwrap();
        let after = question["continuation"].as_str().unwrap_or_default();
        let mut rest = machines
            .iter()
            .filter(|(id, it)| it.exists && it.token.is_some() && id.as_str() > after);
        let Some((id, machine)) = rest.next() else {
            return json!({"machines": []});
        };
        let listed = json!({"token": machine.token, "workerGroup": "dc1", "workerId": id});
        match rest.next() {
            Some(_) => json!({"machines": [listed], "continuation": id}),
            None => json!({"machines": [listed]}),
        }
    }

    fn end(&self, question: &Value) -> Value {
        let worker = &question["worker"];
        let mut machines = self.machines.lock().unwrap();
        let known = machines.get_mut(worker["workerId"].as_str().unwrap());
        if let Some(machine) =
            known.filter(|it| it.token.is_some() && it.pool == worker["workerPoolId"])
        {
            machine.exists = false;
        }
        json!({})
    }
}

/// Sizes are small and large; the default is small.
fn validate(question: &Value) -> Value {
    let mut config = question["config"].clone();
    let mut problems = Vec::new();
    let configs = config["launchConfigs"].as_array_mut().unwrap();
    for (index, launch_config) in configs.iter_mut().enumerate() {
        let size = launch_config
            .as_object_mut()
            .unwrap()
            .entry("size")
            .or_insert(json!("small"));
        if !matches!(size.as_str(), Some("small" | "large")) {
            let pointer = format!("/launchConfigs/{index}/size");
            problems.push(json!({"pointer": pointer, "message": "must be small or large"}));
        }
    }
    json!({"config": config, "problems": problems})
}

fn bids(question: &Value) -> Value {
    let wanted = question["launchConfigs"].as_array().unwrap();
    let bid = |wanted: &Value| match wanted["launchConfig"]["size"].as_str() {
        Some("sold out") => json!({"refusal": "sold out"}),
        Some("large") => json!({"price": 2.0, "utility": 3.0, "place": "row 7", "available": 4}),
        _ => json!({"price": 1.0}),
    };
    json!({"bids": wanted.iter().map(bid).collect::<Vec<_>>()})
}

/// A valid proof is the worker's name with a seal before it.
fn verify(question: &Value) -> Value {
    let wanted = format!(
        "sealed:{}",
        question["worker"]["workerId"].as_str().unwrap()
    );
    if question["proof"]["document"] == wanted {
        json!({"verified": true})
    } else {
        json!({"verified": false, "detail": "the seal is broken"})
    }
}
