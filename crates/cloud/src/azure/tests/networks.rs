//! Networks of pools.

use domain::pool::Pool;
use serde_json::{Value, json};

use super::site::{OnAzure, pool, single};
use crate::{CloudError, LaunchError, Provider as _, Sighting};

const NETWORK: &str = "Microsoft.Network/virtualNetworks";

fn own(location: &str) -> Value {
    single(&json!({"subnetId": "pool", "location": location}))
}

fn pool_of(launch_configs: &[Value]) -> Pool {
    let mut pool = pool();
    let configs = json!(launch_configs);
    pool.definition
        .config
        .insert("launchConfigs".to_owned(), configs);
    pool
}

impl OnAzure {
    /// The names of the networks, without that of the tests.
    fn networks(&self) -> Vec<String> {
        let ids = self.fake.steer("resources", &json!({}));
        let ids = ids
            .as_array()
            .unwrap()
            .iter()
            .map(|id| id.as_str().unwrap());
        let names = ids.filter_map(|id| id.rsplit_once("/virtualnetworks/"));
        let names = names.map(|(_, name)| name.to_owned());
        names.filter(|name| name != "net").collect()
    }
}

#[tokio::test]
async fn a_pool_gets_a_network_in_each_location_and_loses_them_at_its_end() {
    let azure = OnAzure::start().await;
    let maker = azure.provider.pool_resources().unwrap();
    let pool = pool_of(&[
        own("West US"),
        own("westus"),
        own("eastus"),
        single(&json!({})),
    ]);
    let data = maker.prepare_pool(&pool, &Value::Null).await.unwrap();
    assert_eq!(data, json!({"locations": ["eastus", "westus"]}));
    let made = azure.networks();
    assert_eq!(made.len(), 2);
    assert!(
        made[0].ends_with("-eastus") && made[1].ends_with("-westus"),
        "{made:?}"
    );
    // Another process does the same.
    assert_eq!(maker.prepare_pool(&pool, &data).await, Ok(data.clone()));
    assert_eq!(azure.networks(), made);

    let worker = azure
        .launch_in(own("westus"), &data)
        .await
        .unwrap()
        .remove(0);
    let nic = worker.key.id.as_str().replace("vm-", "nic-")[..28].to_owned();
    let nic = azure
        .fake
        .resource("Microsoft.Network/networkInterfaces", "ci", &nic);
    let subnet = &nic["properties"]["ipConfigurations"][0]["properties"]["subnet"]["id"];
    let subnet = subnet.as_str().unwrap();
    assert!(
        subnet.ends_with(&format!("{}/subnets/machines", made[1])),
        "{subnet}"
    );

    let used = maker.release_pool(&pool.id, &data).await.unwrap_err();
    assert!(matches!(used, CloudError::Unavailable(_)), "{used}");
    azure.fake.advance();
    azure.end_completely(&worker).await;
    assert_eq!(azure.seen(&worker).await, Sighting::NotFound);
    for _ in 0..2 {
        assert_eq!(maker.release_pool(&pool.id, &Value::Null).await, Ok(()));
        assert_eq!(azure.networks(), Vec::<String>::new());
    }
}

#[tokio::test]
async fn a_launch_in_a_new_location_makes_its_network_and_pools_without_one_get_none() {
    let azure = OnAzure::start().await;
    let maker = azure.provider.pool_resources().unwrap();
    let pool = pool_of(&[single(&json!({}))]);
    let data = maker.prepare_pool(&pool, &Value::Null).await.unwrap();
    assert_eq!(data, json!({"locations": []}));
    assert_eq!(azure.networks(), Vec::<String>::new());
    azure.launch_in(own("eastus"), &data).await.unwrap();
    assert_eq!(azure.networks().len(), 1);
}

#[tokio::test]
async fn a_network_of_others_is_neither_used_nor_removed() {
    let azure = OnAzure::start().await;
    let maker = azure.provider.pool_resources().unwrap();
    let pool = pool_of(&[own("westus")]);
    maker.prepare_pool(&pool, &Value::Null).await.unwrap();
    let [name] = azure.networks().try_into().unwrap();
    let body = json!({"location": "westus", "tags": {"worker-pool-id": "proj/ci"},
        "properties": {"subnets": [{"name": "machines"}]}});
    super::site::put(&azure.fake, NETWORK, &name, body);
    let refused = maker.prepare_pool(&pool, &Value::Null).await.unwrap_err();
    assert!(
        refused.to_string().contains("does not have our tags"),
        "{refused}"
    );
    let refused = azure
        .launch_in(own("westus"), &Value::Null)
        .await
        .unwrap_err();
    assert!(matches!(refused, LaunchError::Refused { .. }), "{refused}");
    assert_eq!(maker.release_pool(&pool.id, &Value::Null).await, Ok(()));
    assert_eq!(azure.networks(), [name]);
}
