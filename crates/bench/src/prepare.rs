//! What is there to be measured: pools, workers, and requests that are signed in advance.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::slugid;
use anyhow::Context as _;
use api_client::{Call, Credentials, Stamp, WORKER_MANAGER, authorization};
use http_body_util::Full;
use hyper::Request;
use hyper::body::Bytes;
use serde_json::{Value, json};

use super::child::Child;
use super::load::{self, Connection, Requests};
use super::scenario::Scenario;
use crate::machine;

/// How many workers the list has.
const WORKERS: usize = 1_000;
/// Signatures in advance: so many, then they go round. Servers do not remember nonces.
const SIGNATURES: usize = 1_000;
/// More than any machine creates in a round.
const MAX_CREATIONS: usize = 20_000;
const SETUP_LIMIT: Duration = Duration::from_secs(120);
const SECRET: &str = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQR";
const GROUP: &str = "bench";

/// The measured server's pools.
pub(crate) struct World {
    address: SocketAddr,
    credentials: Credentials,
    /// Tells this run's pools from those of others in the same database.
    run: String,
}

/// The only request of the bare server.
pub(crate) fn hello() -> Requests {
    let request = Request::get(super::bare::ROUTE)
        .header("host", "127.0.0.1")
        .body(Full::default())
        .expect("this request is well-formed");
    Requests {
        prepared: Arc::new([request]),
        once: false,
    }
}

impl World {
    /// Makes the pools and the workers.
    pub(crate) async fn make(server: &Child) -> anyhow::Result<Self> {
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
        };
        world.put_pool("read", "fake", two_launch_configs()).await?;
        world.put_pool("list", "static", json!({})).await?;
        world.put_pool("make", "static", json!({})).await?;
        let workers = world.creations("list", 0, WORKERS);
        let made = load::run(world.address, &workers, SETUP_LIMIT);
        made.await.context("cannot prepare the workers")?;
        Ok(world)
    }

    pub(crate) fn scenarios(&self) -> Vec<Scenario<'_>> {
        let mut created = 0;
        vec![
            Scenario::new("ping", || self.anybodys(&ping())),
            Scenario::new("workerPool", || self.reads()),
            Scenario::new("listWorkersForWorkerPool (1,000)", || {
                self.signed(&Call::get(WORKER_MANAGER, &["workers", &self.pool("list")]))
            }),
            Scenario::new("createWorker", move || {
                created += MAX_CREATIONS;
                self.creations("make", created, MAX_CREATIONS)
            }),
            Scenario::new("registerWorker (static)", || self.registrations()),
        ]
    }

    /// Reading a pool that has two launch configs.
    pub(crate) fn reads(&self) -> Requests {
        self.signed(&Call::get(
            WORKER_MANAGER,
            &["worker-pool", &self.pool("read")],
        ))
    }

    /// Registering each worker of the list.
    pub(crate) fn registrations(&self) -> Requests {
        let prepared = (0..WORKERS).map(|number| {
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
        Requests {
            prepared: prepared.collect(),
            once: false,
        }
    }

    fn creations(&self, pool: &str, first: usize, how_many: usize) -> Requests {
        let pool = self.pool(pool);
        let expires = machine::now().plus_seconds(24 * 60 * 60).to_string();
        let body = json!({"expires": expires, "providerInfo": {"staticSecret": SECRET}});
        let prepared = (first..first + how_many).map(|number| {
            let segments = ["workers", &pool, GROUP, &worker(number)];
            self.request(&Call::put(WORKER_MANAGER, &segments, &body), true)
        });
        Requests {
            prepared: prepared.collect(),
            once: true,
        }
    }

    fn signed(&self, call: &Call) -> Requests {
        Requests {
            prepared: (0..SIGNATURES).map(|_| self.request(call, true)).collect(),
            once: false,
        }
    }

    fn anybodys(&self, call: &Call) -> Requests {
        Requests {
            prepared: Arc::new([self.request(call, false)]),
            once: false,
        }
    }

    fn request(&self, call: &Call, sign: bool) -> Request<Full<Bytes>> {
        signed(call, self.address, sign.then_some(&self.credentials))
    }

    async fn put_pool(&self, name: &str, provider: &str, config: Value) -> anyhow::Result<()> {
        let body = json!({
            "providerId": provider,
            "description": "",
            "owner": "bench@example.com",
            "emailOnError": false,
            "config": config,
        });
        let call = Call::put(WORKER_MANAGER, &["worker-pool", &self.pool(name)], &body);
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

/// A call as a request, signed in the name of somebody, if there is one.
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
