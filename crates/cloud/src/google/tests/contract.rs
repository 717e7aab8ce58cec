//! The provider keeps the contract of all providers.

use access::Secret;
use async_trait::async_trait;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::rsa::KeyPair;
use aws_lc_rs::signature::RSA_PKCS1_SHA256;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use domain::id::ProviderId;
use domain::launch::Cause;
use domain::time::{Clock as _, Timestamp};
use domain::worker::Worker;
use serde_json::{Value, json};

use super::fake::{OnFake, simple};
use crate::tests::suite::{self, Fixture};
use crate::{Machines as _, Proof, Provider, Sighting};

#[tokio::test]
async fn the_provider_keeps_the_contract_of_all_providers() {
    suite::contract(&OnFake::start().await).await;
}

#[async_trait]
impl Fixture for OnFake {
    fn provider(&self) -> &dyn Provider {
        &self.provider
    }

    fn id(&self) -> ProviderId {
        "google".parse().unwrap()
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
        config["launchConfigs"][0]["zone"] = json!("us-central1-z");
        (config, "/launchConfigs/0/zone")
    }

    fn unlaunchable(&self) -> Option<(Value, Cause)> {
        let mut configuration = simple();
        configuration["machineType"] = json!("zones/us-central1-a/machineTypes/z9-nothing");
        Some((configuration, Cause::Configuration))
    }

    fn proof(&self, worker: &Worker) -> Proof {
        let now = self.clock.now().as_millis() / 1_000;
        let row = &worker.provider_data;
        let claims = json!({
            "iss": "https://accounts.google.com", "aud": self.root_url, "sub": "1234567890",
            "iat": now, "exp": now + 3_600,
            "google": {"compute_engine": {"project_id": "project-1",
                "instance_id": worker.key.id.as_str(), "instance_name": row["name"],
                "zone": row["zone"]}},
        });
        let (id, key) = &self.signing_key;
        let header = json!({"alg": "RS256", "kid": id});
        let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
        let signed = format!("{}.{}", part(&header), part(&claims));
        let lines = key.lines().filter(|line| !line.starts_with('-'));
        let der = STANDARD.decode(lines.collect::<String>()).unwrap();
        let key = KeyPair::from_pkcs8(&der).unwrap();
        let mut signature = vec![0; key.public_modulus_len()];
        let random = SystemRandom::new();
        key.sign(
            &RSA_PKCS1_SHA256,
            &random,
            signed.as_bytes(),
            &mut signature,
        )
        .unwrap();
        let signature = URL_SAFE_NO_PAD.encode(signature);
        Proof::Token(Secret::new(format!("{signed}.{signature}")))
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
        "1234567890123456789"
    }

    /// Operations go on, and lists are no longer fresh.
    async fn settle(&self) {
        self.google.act("settle", &json!({})).await;
        self.clock.advance_ms(6_000);
    }
}
