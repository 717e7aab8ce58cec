//! A provider on a fake Azure of its own.

use std::sync::Arc;

use domain::Version;
use domain::id::LaunchToken;
use domain::launch_config::LaunchConfig;
use domain::pool::{Pool, PoolDefinition};
use domain::worker::{NewWorker, Terms, Worker};
use serde_json::{Map, Value, json};

use super::fake::FakeAzure;
use crate::azure::{AzureConfig, AzureProvider};
use crate::tests::values::{TestClock, context_at, now};
use crate::{
    LaunchError, LaunchOrder, LaunchedMachine, Machines as _, OwnedMachine, Provider as _,
    ProviderContext, Sighting,
};

pub(super) const TOKEN: &str = "AAAAAAAAQQCAAAAAAAAAAQ";
pub(super) const SUBNET: &str = "/subscriptions/s-1/resourceGroups/ci/providers/\
                                 Microsoft.Network/virtualNetworks/net/subnets/machines";
/// One for a template of machines, as a template spec.
pub(super) const SPEC: &str = "/subscriptions/s-1/resourceGroups/ci/providers/\
                               Microsoft.Resources/templateSpecs/machine/versions/1";

pub(super) struct OnAzure {
    pub(super) fake: FakeAzure,
    pub(super) provider: AzureProvider,
    pub(super) clock: Arc<TestClock>,
}

impl OnAzure {
    pub(super) async fn start() -> Self {
        Self::with(json!({"client_secret": "hush"})).await
    }

    pub(super) async fn with(settings: Value) -> Self {
        let fake = FakeAzure::start();
        fake.steer("group", &json!({"name": "ci", "location": "westus"}));
        let net = json!({"location": "westus", "properties": {"subnets": [{"name": "machines"}]}});
        put(&fake, "Microsoft.Network/virtualNetworks", "net", net);
        let spec = json!({"properties": {"mainTemplate": template()}});
        put(
            &fake,
            "Microsoft.Resources/templateSpecs",
            "machine/versions/1",
            spec,
        );
        let clock = TestClock::new();
        let provider = provider(&fake, settings, context_at("azure", &clock));
        provider.setup().await.unwrap();
        fake.requests();
        Self {
            fake,
            provider,
            clock,
        }
    }

    pub(super) async fn launch(&self, content: Value) -> Result<Vec<Worker>, LaunchError> {
        self.launch_many(content, 1).await
    }

    pub(super) async fn launch_many(
        &self,
        content: Value,
        machines: u32,
    ) -> Result<Vec<Worker>, LaunchError> {
        self.launch_with(content, machines, &Value::Null).await
    }

    /// One machine of a pool whose resources have this data.
    pub(super) async fn launch_in(
        &self,
        content: Value,
        pool_data: &Value,
    ) -> Result<Vec<Worker>, LaunchError> {
        self.launch_with(content, 1, pool_data).await
    }

    async fn launch_with(
        &self,
        content: Value,
        machines: u32,
        pool_data: &Value,
    ) -> Result<Vec<Worker>, LaunchError> {
        let pool = pool();
        let config = config(&pool, &content);
        let token: LaunchToken = TOKEN.parse().unwrap();
        let order = LaunchOrder {
            token: &token,
            pool: &pool,
            launch_config: &config,
            machines,
            capacity_each: 1,
            max_price: Some(0.5),
            price: None,
            bid_data: &Map::new(),
            pool_data,
            root_url: "http://fleet.example.com",
            now: now(),
        };
        let launched = self.provider.launch(&order).await?;
        Ok(launched.into_iter().map(|it| row(&pool, it)).collect())
    }

    pub(super) async fn seen(&self, worker: &Worker) -> Sighting {
        let seen = self.provider.look(std::slice::from_ref(worker)).await;
        seen.unwrap().remove(0).1
    }

    pub(super) async fn owned(&self) -> Vec<OwnedMachine> {
        self.provider.owned().await.unwrap().machines
    }

    /// Ends the machine step by step until nothing is left.
    pub(super) async fn end_completely(&self, worker: &Worker) {
        for _ in 0..20 {
            self.provider.end(worker).await.unwrap();
            if self.seen(worker).await == Sighting::NotFound {
                return;
            }
            self.fake.advance();
        }
        panic!("there is still {:?}", self.fake.resources());
    }
}

pub(super) fn provider(
    fake: &FakeAzure,
    settings: Value,
    context: ProviderContext,
) -> AzureProvider {
    let mut section = json!({
        "tenant": "t-1", "client_id": "c-1", "subscription": "s-1",
        "resource_group": "ci", "locations": ["westus", "eastus"],
        "endpoint": fake.url, "login_endpoint": fake.url, "metadata_endpoint": fake.url,
        "prices": {"Standard_F2": 0.1},
        "image_storage": {"account": "account1", "container": "images",
            "endpoint": format!("{}/storage-1", fake.url)},
    });
    for (key, value) in settings.as_object().unwrap() {
        if value.is_null() {
            section.as_object_mut().unwrap().remove(key);
        } else {
            section[key] = value.clone();
        }
    }
    let config: AzureConfig = serde_json::from_value(section).unwrap();
    AzureProvider::new(&config, context)
}

pub(super) fn put(fake: &FakeAzure, kind: &str, name: &str, body: Value) {
    let order = json!({"type": kind, "group": "ci", "name": name, "body": body});
    fake.steer("put", &order);
}

/// A launch config for a machine with its parts.
pub(super) fn single(change: &Value) -> Value {
    let mut content = json!({
        "location": "westus", "subnetId": SUBNET, "workerConfig": {"a": 1},
        "tags": {"team": "x"},
        "hardwareProfile": {"vmSize": "Standard_F2"},
        "storageProfile": {"imageReference": {"id": "/images/1"},
            "osDisk": {"createOption": "FromImage"},
            "dataDisks": [{"lun": 0, "createOption": "Empty"}]},
    });
    for (key, value) in change.as_object().unwrap() {
        content[key] = value.clone();
    }
    content
}

/// A launch config for a template.
pub(super) fn templated(change: &Value) -> Value {
    let mut content = json!({
        "workerConfig": {},
        "armDeployment": {
            "mode": "Incremental", "templateLink": {"id": SPEC},
            "parameters": {"location": {"value": "westus"}, "subnet": {"value": SUBNET}},
        },
    });
    for (key, value) in change.as_object().unwrap() {
        content[key] = value.clone();
    }
    content
}

/// Makes an interface, and a machine that keeps it at its end.
pub(super) fn template() -> Value {
    let text = json!({"type": "string"});
    json!({
        "parameters": {
            "location": text, "subnet": text, "vmName": text, "computerName": text,
            "adminUsername": text, "adminPassword": {"type": "securestring"},
            "customData": text, "tags": {"type": "object"},
        },
        "variables": {"nic": "[concat('card-', parameters('vmName'))]"},
        "resources": [
            {"type": "Microsoft.Network/networkInterfaces", "apiVersion": "2024-05-01",
             "name": "[variables('nic')]", "location": "[parameters('location')]",
             "tags": "[parameters('tags')]",
             "properties": {"ipConfigurations": [{"name": "one", "properties": {
                 "subnet": {"id": "[parameters('subnet')]"}}}]}},
            {"type": "Microsoft.Compute/virtualMachines", "apiVersion": "2024-07-01",
             "name": "[parameters('vmName')]", "location": "[parameters('location')]",
             "tags": "[parameters('tags')]",
             "properties": {
                 "osProfile": {"computerName": "[parameters('computerName')]",
                    "adminUsername": "[parameters('adminUsername')]",
                    "adminPassword": "[parameters('adminPassword')]",
                    "customData": "[parameters('customData')]"},
                 "storageProfile": {"osDisk": {"createOption": "FromImage",
                    "name": "[format('{0}-disk', parameters('vmName'))]",
                    "deleteOption": "Delete"}},
                 "networkProfile": {"networkInterfaces": [{"id":
                    "[resourceId('Microsoft.Network/networkInterfaces', variables('nic'))]"}]},
             }},
        ],
    })
}

pub(super) fn pool() -> Pool {
    let definition = PoolDefinition {
        provider_id: "azure".parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: String::new(),
        config: Map::new(),
        owner: "ops@example.com".to_owned(),
        email_on_error: false,
    };
    Pool::new("proj/ci".parse().unwrap(), definition, now())
}

pub(super) fn config(pool: &Pool, content: &Value) -> LaunchConfig {
    LaunchConfig {
        pool_id: pool.id.clone(),
        id: "lc-1".parse().unwrap(),
        archived: false,
        position: 0,
        configuration: content.as_object().unwrap().clone(),
        created: now(),
        last_modified: now(),
        version: Version::FIRST,
    }
}

pub(super) fn row(pool: &Pool, launched: LaunchedMachine) -> Worker {
    let new = NewWorker {
        key: launched.key(pool.id.clone()),
        provider_id: "azure".parse().unwrap(),
        launch_config_id: Some("lc-1".parse().unwrap()),
        capacity: 1,
        price: None,
        expires: now().plus_millis(Worker::DEFAULT_LIFE_MS),
        terms: Terms::default(),
        provider_data: launched.provider_data,
    };
    new.request(now())
}
