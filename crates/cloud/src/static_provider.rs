//! The `static` provider: hosts that people declare, each with a shared secret.

use std::sync::Arc;

use access::Secret;
use access::seal::Keyring;
use async_trait::async_trait;
use contract::{Invalid, Problem, Schemas};
use domain::id::WorkerKey;
use domain::launch_config::{HostConfigOrigin, LaunchConfig, implied_for_hosts, mark_for_hosts};
use domain::lifecycle;
use domain::plan::check_price;
use domain::worker::{Worker, WorkerState};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::provider::refuse_if_any;
use crate::{
    CostPerHour, DeclarationError, IdentityClaim, Proof, ProofRefused, Provider, Verification,
    VerifyError, WorkerDeclarer,
};

const SCHEMA: &str = "worker-manager/v1/config-static.json";
/// The key of a worker's provider data with the digest of its secret.
const DIGEST_KEY: &str = "staticSecretDigest";

pub struct StaticProvider {
    schemas: Schemas,
    keyring: Arc<Keyring>,
    cost: CostPerHour,
}

/// The section `[providers.<id>]` with `kind = "static"`.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct StaticSettings {
    /// Dollars per hour and host.
    pub cost_per_hour: CostPerHour,
}

impl StaticProvider {
    pub fn new(schemas: Schemas, keyring: Arc<Keyring>, settings: &StaticSettings) -> Self {
        Self {
            schemas,
            keyring,
            cost: settings.cost_per_hour,
        }
    }

    /// Binds a digest to its worker, so that it is useless in another worker's row.
    fn purpose(worker: &WorkerKey) -> String {
        format!("static-secret:{worker}")
    }

    fn knows(&self, worker: &Worker, candidate: &Secret) -> bool {
        let digest = worker.provider_data.get(DIGEST_KEY).and_then(Value::as_str);
        let purpose = Self::purpose(&worker.key);
        digest.is_some_and(|digest| self.keyring.digest_matches(&purpose, digest, candidate))
    }
}

#[async_trait]
impl Provider for StaticProvider {
    fn kind(&self) -> &'static str {
        "static"
    }

    fn validate(&self, config: &mut Value) -> Result<(), Invalid> {
        self.schemas.validate(SCHEMA, config)?;
        let Value::Object(config) = config else {
            return Ok(());
        };
        check_prices(config)?;
        if config.contains_key("workerConfig") && config.contains_key("launchConfigs") {
            let pointer = "/workerConfig".to_owned();
            let message =
                "must be absent beside launchConfigs: each of them has its own".to_owned();
            return refuse_if_any(SCHEMA, vec![Problem { pointer, message }]);
        }
        match config.get_mut("launchConfigs") {
            Some(Value::Array(listed)) => {
                for launch_config in listed.iter_mut().filter_map(Value::as_object_mut) {
                    mark_for_hosts(launch_config, HostConfigOrigin::LaunchConfigs);
                }
            }
            Some(_) | None => {
                let implied = Value::Object(implied_for_hosts(config));
                config.insert("launchConfigs".to_owned(), json!([implied]));
            }
        }
        Ok(())
    }

    /// A static worker may register repeatedly, since its secret does not change.
    async fn verify(&self, claim: &IdentityClaim<'_>) -> Result<Verification, VerifyError> {
        let refuse = |message, detail: &str| VerifyError::from(ProofRefused::new(message, detail));
        if claim.worker.state != WorkerState::Running {
            let detail = format!("the worker is {}", claim.worker.state);
            return Err(refuse("worker is not running", &detail));
        }
        match claim.proof {
            Proof::Relay => {}
            Proof::StaticSecret(candidate) if self.knows(claim.worker, candidate) => {}
            Proof::StaticSecret(_) => {
                let detail = "the secret differs from the declared one";
                return Err(refuse("bad staticSecret in workerIdentityProof", detail));
            }
            Proof::Token(_) | Proof::SignedDocument { .. } | Proof::Document(_) => {
                let message = "missing staticSecret in workerIdentityProof";
                return Err(refuse(message, "the proof is not a static secret"));
            }
        }
        let config = &claim.pool.definition.config;
        let content = claim.launch_config.map(LaunchConfig::host_content);
        Ok(Verification {
            lasts_ms: lifecycle::reregistration_timeout(config)
                .unwrap_or(lifecycle::DEFAULT_REREGISTRATION_MS),
            worker_config: content.unwrap_or(json!({})),
        })
    }

    fn declarer(&self) -> Option<&dyn WorkerDeclarer> {
        Some(self)
    }
}

/// The limit of prices is not in the schema: it is that of all prices.
fn check_prices(config: &Map<String, Value>) -> Result<(), Invalid> {
    let listed = config.get("launchConfigs").and_then(Value::as_array);
    let own = listed.into_iter().flatten().enumerate();
    let own = own.map(|(index, launch_config)| {
        let place = format!("/launchConfigs/{index}/workerManager/costPerHour");
        (place, launch_config["workerManager"].get("costPerHour"))
    });
    let of_pool = ("/costPerHour".to_owned(), config.get("costPerHour"));
    let problem = |(pointer, price): (String, Option<&Value>)| {
        let why = check_price(price?.as_f64()?).err()?;
        let message = format!("is {why}");
        Some(Problem { pointer, message })
    };
    let problems = std::iter::once(of_pool).chain(own).filter_map(problem);
    refuse_if_any(SCHEMA, problems.collect())
}

impl WorkerDeclarer for StaticProvider {
    fn describe(
        &self,
        worker: &WorkerKey,
        provider_info: Option<&Value>,
    ) -> Result<Value, DeclarationError> {
        let secret = provider_info
            .and_then(|info| info.get("staticSecret"))
            .and_then(Value::as_str)
            .ok_or_else(|| DeclarationError("no worker staticSecret provided".to_owned()))?;
        let digest = self
            .keyring
            .digest(&Self::purpose(worker), &Secret::new(secret));
        Ok(json!({ DIGEST_KEY: digest }))
    }

    fn price(&self) -> Option<f64> {
        self.cost.price()
    }
}

#[cfg(test)]
mod tests {
    use domain::worker::StoredWorker;

    use crate::tests::values::{Case, edit, keyring, schemas, worker};

    use super::*;

    const SECRET: &str = "ssssssssssssssssssssssssssssssssssssssssssss";

    fn provider() -> StaticProvider {
        StaticProvider::new(schemas(), keyring(), &StaticSettings::default())
    }

    fn declared() -> Worker {
        let mut worker = worker(WorkerState::Running);
        let info = json!({"staticSecret": SECRET});
        let described = provider().describe(&worker.key, Some(&info)).unwrap();
        edit(&mut worker, |it| it.provider_data = described);
        worker
    }

    fn secret(text: &str) -> Proof {
        Proof::StaticSecret(Secret::new(text))
    }

    #[tokio::test]
    async fn a_declared_worker_with_its_secret_is_verified_for_the_pools_time() {
        let config = json!({"workerConfig": {"a": 1}, "lifecycle": {"reregistrationTimeout": 60}});
        let case = Case {
            worker: declared(),
            proof: secret(SECRET),
            config,
        };
        let verified = case.verify(&provider()).await.unwrap();
        assert_eq!(verified.lasts_ms, 60_000);
        assert_eq!(verified.worker_config, json!({"a": 1}));
    }

    #[test]
    fn a_declared_worker_costs_what_the_operator_says_or_nothing() {
        let read = |section: Value| -> Result<StaticSettings, String> {
            serde_json::from_value(section).map_err(|error| error.to_string())
        };
        let price = |section: Value| {
            let settings = read(section).unwrap();
            StaticProvider::new(schemas(), keyring(), &settings).price()
        };
        assert_eq!(price(json!({})), Some(0.0));
        assert_eq!(price(json!({"cost_per_hour": 0.07})), Some(0.07));
        let refused = read(json!({"cost_per_hour": -1})).unwrap_err();
        assert_eq!(
            refused,
            "cost_per_hour is a price of $-1 an hour, which is negative"
        );
    }

    #[tokio::test]
    async fn a_pool_without_settings_gives_four_days_and_an_empty_config() {
        let case = Case {
            worker: declared(),
            proof: secret(SECRET),
            config: json!({}),
        };
        let verified = case.verify(&provider()).await.unwrap();
        assert_eq!(verified.lasts_ms, 96 * 3_600_000);
        assert_eq!(verified.worker_config, json!({}));
    }

    #[tokio::test]
    async fn each_refusal_has_its_own_message() {
        let stopped = Worker::from_stored(StoredWorker {
            state: WorkerState::Stopped,
            ..declared().into_stored()
        });
        let other_row = Worker::from_stored(StoredWorker {
            provider_data: json!({}),
            ..declared().into_stored()
        });
        for (worker, proof, text) in [
            (stopped, secret(SECRET), "worker is not running"),
            (
                declared(),
                Proof::Token(Secret::new("t")),
                "missing staticSecret in workerIdentityProof",
            ),
            (
                declared(),
                secret("wrong"),
                "bad staticSecret in workerIdentityProof",
            ),
            (
                other_row,
                secret(SECRET),
                "bad staticSecret in workerIdentityProof",
            ),
        ] {
            let case = Case {
                worker,
                proof,
                config: json!({}),
            };
            assert_eq!(case.verify(&provider()).await.unwrap_err().message, text);
        }
    }

    #[test]
    fn a_worker_without_a_secret_cannot_be_declared() {
        let refused = provider()
            .describe(&worker(WorkerState::Running).key, None)
            .unwrap_err();
        assert_eq!(refused.to_string(), "no worker staticSecret provided");
    }

    #[test]
    fn the_secret_itself_is_not_kept() {
        assert!(!declared().provider_data.to_string().contains(SECRET));
    }
}
