//! The contract of all providers, for both forms of launch configs.

use async_trait::async_trait;
use domain::id::ProviderId;
use domain::launch::Cause;
use domain::time::{Clock as _, Timestamp};
use domain::worker::Worker;
use serde_json::{Value, json};

use super::site::{OnAzure, put, single, templated};
use crate::azure::names::MachineNames;
use crate::tests::suite::{self, Fixture};
use crate::tests::values::{ROOT_URL, edit};
use crate::{Proof, Provider};

struct Contract {
    azure: OnAzure,
    content: Value,
    unlaunchable: (Value, Cause),
}

impl Contract {
    async fn start(content: Value, unlaunchable: (Value, Cause)) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let roots = folder.path().join("roots.pem");
        // Any certificate will do until the authority of the fake is known.
        let azure = OnAzure::start().await;
        let authority = azure.fake.steer("authority", &json!({}));
        // Signers below the issuer find it here without a download.
        let both = [&authority["root"], &authority["issuer"]];
        let both: String = both.iter().map(|it| it.as_str().unwrap()).collect();
        std::fs::write(&roots, both).unwrap();
        let mut azure = azure;
        azure.provider.roots_file = Some(roots);
        azure.provider.setup().await.unwrap();
        azure.provider.roots_file = None;
        Self {
            azure,
            content,
            unlaunchable,
        }
    }
}

#[async_trait]
impl Fixture for Contract {
    fn provider(&self) -> &dyn Provider {
        &self.azure.provider
    }

    fn id(&self) -> ProviderId {
        "azure".parse().unwrap()
    }

    fn root_url(&self) -> String {
        ROOT_URL.to_owned()
    }

    fn now(&self) -> Timestamp {
        self.azure.clock.now()
    }

    fn config(&self) -> Value {
        json!({"minCapacity": 0, "maxCapacity": 9, "launchConfigs": [self.content]})
    }

    fn default_pointer(&self) -> Option<&'static str> {
        None
    }

    fn wrong_config(&self) -> (Value, &'static str) {
        let mut config = self.config();
        config["maxCapacity"] = json!("many");
        (config, "/maxCapacity")
    }

    fn unlaunchable(&self) -> Option<(Value, Cause)> {
        Some(self.unlaunchable.clone())
    }

    fn proof(&self, worker: &Worker) -> Proof {
        self.azure.fake.advance();
        let kind = "Microsoft.Compute/virtualMachines";
        let vm = self.azure.fake.resource(kind, "ci", worker.key.id.as_str());
        let order = json!({"vm_id": vm["properties"]["vmId"]});
        let mut made = self.azure.fake.steer("document", &order);
        Proof::Document(made["document"].take())
    }

    async fn foreigner(&self) -> Option<Worker> {
        let made = self.azure.launch(single(&json!({}))).await.unwrap();
        self.azure.fake.advance();
        self.azure.end_completely(&made[0]).await;
        let other = MachineNames::of_launch(&"ZZZZZZZZQQCZZZZZZZZZZQ".parse().unwrap(), 0);
        let tags = json!({"fleetwright-deployment": "http://other.example.com",
            "provider-id": "azure", "fleetwright-launch": "ZZZZZZZZQQCZZZZZZZZZZQ"});
        let body = json!({"location": "westus", "tags": tags});
        let kind = "Microsoft.Compute/virtualMachines";
        put(&self.azure.fake, kind, &other.vm(), body);
        let mut worker = made[0].clone();
        edit(&mut worker, |it| it.key.id = other.worker_id().unwrap());
        Some(worker)
    }

    async fn foreigner_lives(&self, worker: &Worker) -> bool {
        let kind = "Microsoft.Compute/virtualMachines";
        let vm = self.azure.fake.resource(kind, "ci", worker.key.id.as_str());
        !vm.is_null()
    }

    async fn settle(&self) {
        self.azure.fake.advance();
    }
}

#[tokio::test]
async fn a_contract_of_machines_with_their_parts() {
    let unavailable = single(&json!({"hardwareProfile": {"vmSize": "Standard_Unavailable"}}));
    let refused = (unavailable, Cause::Capacity);
    suite::contract(&Contract::start(single(&json!({})), refused).await).await;
}

#[tokio::test]
async fn a_contract_of_templates() {
    let mut wrong = templated(&json!({}));
    wrong["armDeployment"]["parameters"]["unknown"] = json!({"value": 1});
    let refused = (wrong, Cause::Configuration);
    suite::contract(&Contract::start(templated(&json!({})), refused).await).await;
}

#[tokio::test]
async fn the_record_of_a_deployment_is_removed_when_its_worker_registers() {
    let wrong = (json!({}), Cause::Configuration);
    let contract = Contract::start(templated(&json!({})), wrong).await;
    let made = contract.azure.launch(templated(&json!({}))).await.unwrap();
    let proof = contract.proof(&made[0]);
    let case = crate::tests::values::Case {
        worker: made[0].clone(),
        proof,
        config: json!({}),
    };
    case.verify(&contract.azure.provider).await.unwrap();
    contract.azure.fake.advance();
    let left = contract.azure.fake.resources();
    assert!(
        !left.iter().any(|it| it.starts_with("deployments/")),
        "{left:?}"
    );
    assert!(
        left.iter().any(|it| it.starts_with("virtualmachines/")),
        "{left:?}"
    );
}
