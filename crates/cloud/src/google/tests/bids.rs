//! Bids for launch configs, and the checks of pool configs.

use domain::plan::Bid;
use serde_json::{Value, json};

use super::fake::simple;
use super::scripted::alone_with;
use crate::google::GoogleProvider;
use crate::tests::suite;
use crate::tests::values;
use crate::{Machines as _, Provider as _};

async fn priced() -> GoogleProvider {
    let prices = json!({"n2-standard-4": 0.2, "us-central1/n2-standard-8": 0.4});
    let extra = json!({"prices": prices, "spot_prices": {"n2-standard-4": 0.05}});
    alone_with(extra).await.0
}

fn bids(provider: &GoogleProvider, extra: Value) -> Result<Vec<Bid>, String> {
    let mut configuration = simple();
    for (key, value) in extra.as_object().unwrap() {
        configuration[key] = value.clone();
    }
    let worker = values::worker(domain::worker::WorkerState::Requested);
    let pool = values::pool(&worker, &json!({}));
    let content = configuration.as_object().unwrap().clone();
    let config = suite::launch_config(&pool, 0, content);
    provider.bids(&config, None, values::now())
}

#[tokio::test]
async fn each_machine_type_has_a_bid_with_its_price() {
    let provider = priced().await;
    let one = bids(&provider, json!({})).unwrap();
    assert_eq!(one[0].place, "us-central1-a n2-standard-4 spot");
    assert_eq!((one[0].price, one[0].capacity_each), (Some(0.05), None));
    let types = json!([{"machineType": "n2-standard-4"},
        {"machineType": "n2-standard-8", "capacityPerInstance": 2},
        {"machineType": "c4-standard-8"}]);
    let standard = json!({"machineTypes": types, "scheduling": {}});
    let several = bids(&provider, standard).unwrap();
    let facts: Vec<_> = several
        .iter()
        .map(|bid| {
            (
                bid.price,
                bid.capacity_each,
                bid.data["machineType"].as_str(),
            )
        })
        .collect();
    assert_eq!(
        facts,
        [
            (Some(0.2), None, Some("n2-standard-4")),
            (Some(0.4), Some(2), Some("n2-standard-8")),
            (None, None, Some("c4-standard-8")),
        ]
    );
    let elsewhere = bids(&provider, json!({"zone": "us-east1-b"})).unwrap_err();
    assert_eq!(elsewhere, "this provider does not use zone us-east1-b");
}

#[tokio::test]
async fn a_pool_config_names_zones_of_its_regions_that_the_provider_uses() {
    let provider = priced().await;
    for (key, value, pointer, message) in [
        (
            "region",
            json!("us-east1"),
            "zone",
            "must be a zone of region \"us-east1\"",
        ),
        (
            "zone",
            json!("us-central1-b"),
            "zone",
            "must be a zone that provider google uses",
        ),
        (
            "machineTypes",
            json!([]),
            "machineTypes",
            "must list from 1 to 40",
        ),
        (
            "machineTypes",
            json!("e2"),
            "machineTypes",
            "must list from 1 to 40",
        ),
    ] {
        let mut launch_config = simple();
        launch_config[key] = value;
        let mut config = json!({"minCapacity": 0, "maxCapacity": 1,
            "launchConfigs": [launch_config]});
        let invalid = provider.validate(&mut config).unwrap_err();
        let problem = &invalid.problems[0];
        assert_eq!(problem.pointer, format!("/launchConfigs/0/{pointer}"));
        assert!(problem.message.starts_with(message), "{}", problem.message);
    }
}
