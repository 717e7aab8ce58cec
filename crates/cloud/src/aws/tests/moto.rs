//! The provider against moto, which simulates EC2, through a proxy that injects failures.
//!
//! Runs when TEST_EC2_URL is the address of such a server, as set by `scripts/with-moto`.

use std::sync::Arc;

use access::Secret;
use async_trait::async_trait;
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::{KeyPair as _, RSA_PKCS1_SHA256};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::id::{LaunchToken, ProviderId};
use domain::launch::Cause;
use domain::launch_config::LaunchConfig;
use domain::pool::Pool;
use domain::time::{Clock, Timestamp};
use domain::worker::Worker;
use serde_json::{Value, json};

use super::proxy::{InjectedFailure, Proxy};
use crate::aws::{AwsConfig, AwsProvider};
use crate::tests::suite::{self, Fixture};
use crate::tests::values::{TestClock, context_at};
use crate::{LaunchError, LaunchOrder, LaunchedMachine, Machines as _, Proof, Provider, Sighting};

pub(super) const FIRST_TOKEN: &str = "AAAAAAAAQQCAAAAAAAAAAQ";
pub(super) const SECOND_TOKEN: &str = "BBBBBBBBQQCBBBBBBBBBBQ";
pub(super) const THIRD_TOKEN: &str = "CCCCCCCCQQCCCCCCCCCCCQ";

/// A provider on moto whose machines no other test sees.
pub(super) struct OnMoto {
    pub(super) provider: AwsProvider,
    /// A provider of another deployment, in the same account.
    pub(super) stranger: AwsProvider,
    pub(super) proxy: Proxy,
    pub(super) clock: Arc<TestClock>,
    pub(super) signer: KeyPair,
    pub(super) root_url: String,
}

impl OnMoto {
    /// `None`, with a printed note, without such a server.
    pub(super) async fn start(name: &str) -> Option<Self> {
        let Ok(target) = std::env::var("TEST_EC2_URL") else {
            eprintln!("skipped: TEST_EC2_URL is not set (scripts/with-moto sets it)");
            return None;
        };
        let proxy = Proxy::start(&target).await;
        let clock = TestClock::new();
        let signer = KeyPair::generate(KeySize::Rsa2048).unwrap();
        // Processes and reruns share the server.
        let root_url = format!("http://{name}-{}.example.com", std::process::id());
        let provider = provider(&root_url, &proxy.url, &signer, &clock);
        let stranger = provider_of_another_deployment(&root_url, &proxy.url, &signer, &clock);
        for one in [&provider, &stranger] {
            one.setup().await.unwrap();
        }
        Some(Self {
            provider,
            stranger,
            proxy,
            clock,
            signer,
            root_url,
        })
    }

    pub(super) async fn launch(
        &self,
        token: &str,
        machines: u32,
    ) -> Result<Vec<Worker>, LaunchError> {
        self.launch_by(&self.provider, token, machines, simple())
            .await
    }

    pub(super) async fn launch_by(
        &self,
        provider: &AwsProvider,
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
            bid_data: &serde_json::Map::new(),
            pool_data: &Value::Null,
            root_url: &self.root_url,
            now: self.now(),
        };
        let launched = provider.launch(&order).await?;
        let row = |one: LaunchedMachine| suite::row(self, &pool, &config, one);
        Ok(launched.into_iter().map(row).collect())
    }

    pub(super) fn pool(&self, configuration: &Value) -> (Pool, LaunchConfig) {
        let pool = suite::pool(self, json!({}));
        let configuration = configuration.as_object().unwrap().clone();
        let config = suite::launch_config(&pool, 0, configuration);
        (pool, config)
    }

    /// Ids of the machines with our tags, and their launches.
    pub(super) async fn owned(&self) -> Vec<(String, Option<LaunchToken>)> {
        let owned = self.provider.owned().await.unwrap().machines;
        let pair = |it: crate::OwnedMachine| (it.machine.id.to_string(), it.token);
        owned.into_iter().map(pair).collect()
    }

    pub(super) async fn seen(&self, workers: &[Worker]) -> Vec<Sighting> {
        let seen = self.provider.look(workers).await.unwrap();
        let of = |worker: &Worker| {
            let one = seen.iter().find(|(key, _)| *key == worker.key);
            one.unwrap().1.clone()
        };
        workers.iter().map(of).collect()
    }

    pub(super) fn refuse(&self, action: &'static str, status: u16, code: &'static str) {
        self.proxy
            .next(action, InjectedFailure::Refuse { status, code });
    }
}

pub(super) fn provider(
    url: &str,
    endpoint: &str,
    signer: &KeyPair,
    clock: &Arc<TestClock>,
) -> AwsProvider {
    let key = signer.public_key().as_der().unwrap();
    let config: AwsConfig = serde_json::from_value(json!({
        "access_key_id": "AKID",
        "secret_access_key": "hush",
        "endpoint": endpoint,
        "regions": ["us-east-1", "us-east-2", "us-west-1", "us-west-2"],
        "identity_keys": [{"key": STANDARD.encode(key.as_ref())}],
    }))
    .unwrap();
    let mut context = context_at("aws", clock);
    context.root_url = url.to_owned();
    AwsProvider::new(&config, context)
}

fn provider_of_another_deployment(
    url: &str,
    endpoint: &str,
    signer: &KeyPair,
    clock: &Arc<TestClock>,
) -> AwsProvider {
    provider(&format!("{url}.elsewhere"), endpoint, signer, clock)
}

pub(super) fn simple() -> Value {
    json!({
        "region": "us-west-2",
        "launchConfig": {
            "ImageId": "ami-03cf127a",
            "InstanceType": "m5.large",
            "Placement": {"AvailabilityZone": "us-west-2a"},
            "InstanceMarketOptions": {"MarketType": "spot"},
        },
    })
}

#[async_trait]
impl Fixture for OnMoto {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn id(&self) -> ProviderId {
        "aws".parse().unwrap()
    }

    fn root_url(&self) -> String {
        self.root_url.clone()
    }

    fn now(&self) -> Timestamp {
        self.clock.now()
    }

    fn config(&self) -> Value {
        json!({"minCapacity": 0, "maxCapacity": 5, "launchConfigs": [simple()]})
    }

    fn default_pointer(&self) -> Option<&'static str> {
        None
    }

    fn wrong_config(&self) -> (Value, &'static str) {
        let mut config = self.config();
        config["launchConfigs"][0]["region"] = json!("xx-nowhere-1");
        (config, "/launchConfigs/0/region")
    }

    fn unlaunchable(&self) -> Option<(Value, Cause)> {
        let mut configuration = simple();
        configuration["additionalUserData"] = json!({"padding": "x".repeat(20_000)});
        Some((configuration, Cause::Configuration))
    }

    fn proof(&self, worker: &Worker) -> Proof {
        let row = &worker.provider_data;
        let document = json!({
            "privateIp": row["privateIp"], "accountId": row["owner"],
            "availabilityZone": row["availabilityZone"], "architecture": row["architecture"],
            "imageId": row["imageId"], "instanceId": worker.key.id.as_str(),
            "instanceType": row["instanceType"], "region": worker.key.group.as_str(),
        })
        .to_string();
        let mut signature = vec![0; self.signer.public_modulus_len()];
        let random = SystemRandom::new();
        self.signer
            .sign(
                &RSA_PKCS1_SHA256,
                &random,
                document.as_bytes(),
                &mut signature,
            )
            .unwrap();
        Proof::SignedDocument {
            document: json!(document),
            signature: Secret::new(STANDARD.encode(signature)),
        }
    }

    async fn foreigner(&self) -> Option<Worker> {
        let token = "FFFFFFFFQQCFFFFFFFFFFQ";
        let theirs = self.launch_by(&self.stranger, token, 1, simple()).await;
        theirs.unwrap().pop()
    }

    async fn foreigner_lives(&self, worker: &Worker) -> bool {
        let seen = self.stranger.look(std::slice::from_ref(worker)).await;
        seen.unwrap()[0].1 == Sighting::Alive
    }

    fn unknown_id(&self) -> &'static str {
        "i-0123456789abcdef0"
    }

    /// Nothing to wait for: moto acts at once.
    async fn settle(&self) {}
}
