//! Prepares the API benchmark: pools, workers, and requests that are signed in advance.

use std::net::SocketAddr;
use std::time::Duration;

use access::slugid;
use anyhow::Context as _;
use api_client::{Call, Credentials, QUEUE, Stamp, WORKER_MANAGER, authorization};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::child::Child;
use super::load::{self, Connection, Length, Requests};
use super::scenario::Scenario;
use crate::machine;

/// In the pool whose workers register.
const WORKERS: usize = 1_000;
const FEW_WORKERS: usize = 100;
/// Signatures made in advance; after these, they are repeated. Servers do not remember nonces.
const SIGNATURES: usize = 1_000;
/// More creations than any machine makes.
const CREATIONS_PER_MS: usize = 30;
const SETUP_LIMIT: Duration = Duration::from_secs(120);
const SECRET: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR";
const GROUP: &str = "bench";

/// The measured server's pools.
pub(crate) struct World {
    address: SocketAddr,
    credentials: Credentials,
    /// Distinguishes this run's pools from other runs in the same database.
    run: String,
    round: Length,
    /// Creations that are prepared for each round.
    creations: usize,
}

pub(crate) fn hello() -> Requests {
    let request = Request::get(super::bare::ROUTE)
        .header("host", "127.0.0.1")
        .body(Full::default())
        .expect("this request is well-formed");
    Requests::repeated([request])
}

impl World {
    /// For rounds of this length.
    pub(crate) async fn make(server: &Child, round: Length) -> anyhow::Result<Self> {
        let run: String = slugid::nice(&mut machine::chance())
            .to_ascii_lowercase()
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .take(8)
            .collect();
        let world = Self {
            address: server.address,
            credentials: server.credentials.clone(),
            run,
            round,
            creations: match round {
                Length::For(length) => {
                    usize::try_from(length.as_millis()).map_or(1, |ms| ms * CREATIONS_PER_MS)
                }
                Length::Requests(most) => most,
            },
        };
        world.put_pool("read", "fake", two_launch_configs()).await?;
        for fixed in ["list", "few", "make", "tasks"] {
            world.put_pool(fixed, "static", json!({})).await?;
        }
        for (pool, how_many) in [("list", WORKERS), ("few", FEW_WORKERS)] {
            let workers = world.workers(pool, 0, round.at_most(how_many));
            let made = load::run(world.address, &workers, Length::For(SETUP_LIMIT));
            made.await.context("cannot prepare the workers")?;
        }
        Ok(world)
    }

    /// Those that leave many rows behind come last, so that the others do not read past them.
    pub(crate) fn scenarios(&self) -> Vec<Scenario<'_>> {
        let (mut n_workers, mut n_pools) = (0, 0);
        vec![
            Scenario::new("ping", || self.unsigned(&ping())),
            Scenario::new("workerPool", || self.reads()),
            Scenario::new("listWorkersForWorkerPool (100)", || self.lists("few")),
            Scenario::new("listWorkersForWorkerPool (1,000)", || self.lists("list")),
            Scenario::new("registerWorker", || self.registrations()),
            Scenario::new("createWorker", move || {
                n_workers += self.creations;
                self.workers("make", n_workers, self.creations)
            }),
            Scenario::new("createTask", || self.tasks()),
            Scenario::new("createWorkerPool", move || {
                n_pools += self.creations;
                self.pools(n_pools)
            }),
        ]
    }

    fn lists(&self, pool: &str) -> Requests {
        let pool = self.pool(pool);
        self.signed(&Call::get(WORKER_MANAGER, &["workers", &pool]))
    }

    /// Requests that read a pool with two launch configs.
    pub(crate) fn reads(&self) -> Requests {
        self.signed(&Call::get(
            WORKER_MANAGER,
            &["worker-pool", &self.pool("read")],
        ))
    }

    /// Requests that register each worker of the list.
    pub(crate) fn registrations(&self) -> Requests {
        let prepared = (0..self.round.at_most(WORKERS)).map(|number| {
            let body = json!({
                "workerPoolId": self.pool("list"),
                "providerId": "static",
                "workerGroup": GROUP,
                "workerId": worker(number),
                "workerIdentityProof": {"staticSecret": SECRET},
            });
            self.request(
                &Call::post(WORKER_MANAGER, &["worker", "register"], &body),
                false,
            )
        });
        Requests::repeated(prepared)
    }

    fn workers(&self, pool: &str, first: usize, how_many: usize) -> Requests {
        let pool = self.pool(pool);
        let expires = machine::now().plus_seconds(24 * 60 * 60).to_string();
        let body = json!({"expires": expires, "providerInfo": {"staticSecret": SECRET}});
        self.once((first..first + how_many).map(|number| {
            let segments = ["workers", &pool, GROUP, &worker(number)];
            Call::put(WORKER_MANAGER, &segments, &body)
        }))
    }

    /// Requests that create tasks of one queue.
    fn tasks(&self) -> Requests {
        let pool = self.pool("tasks");
        self.once((0..self.creations).map(|_| create_task(&pool, &["true"]).1))
    }

    /// Requests that create pools of the static provider.
    fn pools(&self, first: usize) -> Requests {
        self.once((first..first + self.creations).map(|number| {
            let pool = self.pool(&format!("new-{number}"));
            put_pool(&pool, "static", json!({}))
        }))
    }

    fn once(&self, calls: impl Iterator<Item = Call>) -> Requests {
        Requests {
            prepared: calls.map(|call| self.request(&call, true)).collect(),
            once: true,
        }
    }

    fn signed(&self, call: &Call) -> Requests {
        let signatures = 0..self.round.at_most(SIGNATURES);
        Requests::repeated(signatures.map(|_| self.request(call, true)))
    }

    fn unsigned(&self, call: &Call) -> Requests {
        Requests::repeated([self.request(call, false)])
    }

    fn request(&self, call: &Call, sign: bool) -> Request<Full<Bytes>> {
        signed(call, self.address, sign.then_some(&self.credentials))
    }

    async fn put_pool(&self, name: &str, provider: &str, config: Value) -> anyhow::Result<()> {
        let call = put_pool(&self.pool(name), provider, config);
        let mut connection = Connection::open(self.address)
            .await
            .context("cannot connect to the measured server")?;
        load::timed(&mut connection, self.request(&call, true))
            .await
            .context("cannot prepare a pool")?;
        Ok(())
    }

    fn pool(&self, name: &str) -> String {
        format!("bench/{name}-{}", self.run)
    }
}

/// A call as a request, signed if there are credentials.
pub(crate) fn signed(
    call: &Call,
    address: SocketAddr,
    credentials: Option<&Credentials>,
) -> Request<Full<Bytes>> {
    let url = format!("http://{address}{}", call.resource);
    let url = url.parse().expect("paths are escaped");
    let mut request = Request::builder()
        .method(&call.method)
        .uri(&call.resource)
        .header("host", address.to_string());
    if let Some(credentials) = credentials {
        let stamp = Stamp {
            seconds: machine::now().as_millis() / 1_000,
            nonce: slugid::nice(&mut machine::chance()),
        };
        let header = authorization(credentials, &call.method, &url, &call.body, &stamp);
        request = request.header("authorization", header);
    }
    let content = call.body.content();
    if let Some((content_type, _)) = &content {
        request = request.header("content-type", *content_type);
    }
    request
        .body(
            content
                .map(|(_, body)| Full::from(body))
                .unwrap_or_default(),
        )
        .expect("paths are escaped and headers are plain")
}

/// The call that creates a task with this command in a pool's queue, and the task's id.
pub(crate) fn create_task(pool: &str, command: &[&str]) -> (String, Call) {
    let now = machine::now();
    let id = slugid::nice(&mut machine::chance());
    let body = json!({
        "taskQueueId": pool,
        "created": now.to_string(),
        "deadline": now.plus_seconds(60 * 60).to_string(),
        "payload": {"command": command, "maxRunTime": 60},
        "metadata": {"name": "bench", "description": "", "owner": "bench@example.com",
            "source": "https://example.com"},
    });
    let call = Call::put(QUEUE, &["task", &id], &body);
    (id, call)
}

fn put_pool(pool: &str, provider: &str, config: Value) -> Call {
    let body = json!({
        "providerId": provider,
        "description": "",
        "owner": "bench@example.com",
        "emailOnError": false,
        "config": config,
    });
    Call::put(WORKER_MANAGER, &["worker-pool", pool], &body)
}

fn ping() -> Call {
    Call::get(WORKER_MANAGER, &["ping"])
}

fn worker(number: usize) -> String {
    format!("w{number}")
}

fn two_launch_configs() -> Value {
    let launch_config = |zone: &str| {
        json!({
            "region": "us-central1",
            "zone": zone,
            "machineType": format!("zones/{zone}/machineTypes/n2-standard-4"),
            "disks": [{"boot": true, "autoDelete": true}],
            "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
            "scheduling": {"onHostMaintenance": "terminate"},
            "workerConfig": {"genericWorker": {"config": {"idleTimeoutSecs": 600}}},
            "workerManager": {"capacityPerInstance": 1},
        })
    };
    json!({
        "minCapacity": 0,
        "maxCapacity": 10,
        "launchConfigs": [launch_config("us-central1-a"), launch_config("us-central1-b")],
    })
}
