//! A provider on the fake of Google (`tests/peers/google.py`), which runs as a child process.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use domain::id::LaunchToken;
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::time::Clock as _;
use domain::worker::Worker;
use serde_json::{Map, Value, json};

use crate::google::{GoogleConfig, GoogleProvider};
use crate::tests::suite;
use crate::tests::values::{TestClock, context_at};
use crate::{LaunchError, LaunchOrder, Machines as _, OwnedMachine, Provider as _, Sighting};

pub(super) const FIRST_TOKEN: &str = "AAAAAAAAQQCAAAAAAAAAAQ";

/// The child process, which ends with this value.
pub(super) struct FakeGoogle {
    child: Child,
    pub(super) url: String,
    http: reqwest::Client,
}

impl FakeGoogle {
    pub(super) fn start() -> Self {
        let program = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/peers/google.py");
        let mut child = Command::new("python3")
            .arg("-B")
            .arg(program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut output = BufReader::new(child.stdout.take().unwrap());
        output.read_line(&mut line).unwrap();
        let url = line.trim().strip_prefix("ready at ").unwrap().to_owned();
        let http = reqwest::Client::new();
        Self { child, url, http }
    }

    /// Reads something of the fake itself.
    pub(super) async fn read(&self, path: &str) -> Value {
        let url = format!("{}/_fake/{path}", self.url);
        let answer = self.http.get(url).send().await.unwrap();
        answer.error_for_status().unwrap().json().await.unwrap()
    }

    /// Makes the fake do something.
    pub(super) async fn act(&self, path: &str, body: &Value) {
        let url = format!("{}/_fake/{path}", self.url);
        let answer = self.http.post(url).json(body).send().await.unwrap();
        answer.error_for_status().unwrap();
    }

    /// Lets the next call of this kind fail.
    pub(super) async fn fail(&self, call: &str, mut fault: Value) {
        fault["call"] = json!(call);
        self.act("faults", &json!([fault])).await;
    }

    /// How often this call was made.
    pub(super) async fn n_calls(&self, call: &str) -> usize {
        let calls = self.read("calls").await;
        let calls = calls.as_array().unwrap().iter();
        calls.filter(|it| it["call"] == call).count()
    }
}

impl Drop for FakeGoogle {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A provider that is set up.
pub(super) struct OnFake {
    pub(super) google: FakeGoogle,
    pub(super) provider: GoogleProvider,
    /// A provider of another deployment, in the same project.
    pub(super) stranger: GoogleProvider,
    pub(super) clock: Arc<TestClock>,
    pub(super) root_url: String,
    /// The key of identity tokens, and its id.
    pub(super) signing_key: (String, String),
}

impl OnFake {
    pub(super) async fn start() -> Self {
        let google = FakeGoogle::start();
        let account = google.read("account").await.to_string();
        let key = google.read("signing-key").await;
        let text = |name: &str| key[name].as_str().unwrap().to_owned();
        let (clock, root_url) = (TestClock::new(), "https://fleet.example.com".to_owned());
        let of = |root_url: &str| {
            let extra = json!({"credentials": account});
            provider(&google.url, root_url, &clock, extra)
        };
        let (provider, stranger) = (of(&root_url), of("https://elsewhere.example.com"));
        for one in [&provider, &stranger] {
            one.setup().await.unwrap();
        }
        Self {
            signing_key: (text("kid"), text("private_key")),
            google,
            provider,
            stranger,
            clock,
            root_url,
        }
    }

    pub(super) async fn launch(&self, machines: u32) -> Result<Vec<Worker>, LaunchError> {
        self.launch_by(&self.provider, FIRST_TOKEN, machines, simple())
            .await
    }

    pub(super) async fn launch_by(
        &self,
        provider: &GoogleProvider,
        token: &str,
        machines: u32,
        configuration: Value,
    ) -> Result<Vec<Worker>, LaunchError> {
        let (pool, config) = self.pool(&configuration);
        let token: LaunchToken = token.parse().unwrap();
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines,
            capacity_each: 1,
            max_price: None,
            price: None,
            bid_data: &Map::new(),
            pool_data: &Value::Null,
            root_url: &self.root_url,
            now: self.clock.now(),
        };
        let launched = provider.launch(&order).await?;
        let rows = launched.into_iter();
        Ok(rows
            .map(|one| suite::row(self, &pool, &config, one))
            .collect())
    }

    pub(super) fn pool(&self, configuration: &Value) -> (Pool, LaunchConfig) {
        let pool = suite::pool(self, json!({}));
        let configuration = configuration.as_object().unwrap().clone();
        let config = suite::launch_config(&pool, 0, configuration);
        (pool, config)
    }

    pub(super) async fn owned(&self) -> Vec<OwnedMachine> {
        self.provider.owned().await.unwrap().machines
    }

    /// The sighting of this worker; `None`: nothing is known.
    pub(super) async fn seen(&self, worker: &Worker) -> Option<Sighting> {
        let seen = self.provider.look(std::slice::from_ref(worker)).await;
        seen.unwrap().pop().map(|(_, sighting)| sighting)
    }
}

pub(super) fn provider(
    google_url: &str,
    root_url: &str,
    clock: &Arc<TestClock>,
    extra: Value,
) -> GoogleProvider {
    let mut section = json!({
        "project": "project-1", "worker_service_account": "1234567890",
        "endpoint": google_url, "iam_endpoint": google_url,
        "token_endpoint": format!("{google_url}/token"),
        "image_bucket": "images", "storage_endpoint": google_url,
        "certificates_url": format!("{google_url}/certs"),
        "metadata_endpoint": google_url,
    });
    for (key, value) in extra.as_object().unwrap() {
        section[key] = value.clone();
    }
    let config: GoogleConfig = serde_json::from_value(section).unwrap();
    let mut context = context_at("google", clock);
    context.root_url = root_url.to_owned();
    GoogleProvider::new(&config, context)
}

pub(super) fn simple() -> Value {
    json!({
        "region": "us-central1", "zone": "us-central1-a",
        "machineType": "zones/us-central1-a/machineTypes/n2-standard-4",
        "disks": [{"type": "PERSISTENT", "boot": true,
            "initializeParams": {"sourceImage": "global/images/i"}}],
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "scheduling": {"provisioningModel": "SPOT", "instanceTerminationAction": "DELETE"},
        "workerConfig": {"a": 1},
    })
}
