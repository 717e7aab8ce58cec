//! Parts that belong to no machine any more.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::site::{OnAzure, SUBNET, TOKEN, put, single, templated};
use crate::azure::names::MachineNames;
use crate::tests::values::{ROOT_URL, now};
use crate::{Machines as _, Region};

const INTERFACES: &str = "Microsoft.Network/networkInterfaces";
const HOUR_MS: i64 = 60 * 60_000;

impl OnAzure {
    /// Removes leftovers of the western location, and returns them as `kind name`.
    async fn clean(&self) -> Vec<String> {
        let west = Region::Group("westus".parse().unwrap());
        let removed = self.provider.remove_leftovers(&west).await.unwrap();
        self.fake.advance();
        let mut texts: Vec<String> = removed
            .into_iter()
            .map(|it| format!("{} {}", it.kind, it.name))
            .collect();
        texts.sort();
        texts
    }

    /// From now on, what is made is from now.
    fn date_resources(&self) {
        let created = json!({"created": now().to_string()});
        self.fake.steer("settings", &created);
    }
}

#[tokio::test]
async fn the_parts_of_a_half_made_machine_are_removed_after_an_hour() {
    let azure = OnAzure::start().await;
    azure.date_resources();
    let lost = json!({"method": "PUT", "path": "virtualMachines", "drop": "before"});
    azure.fake.fault(&lost);
    let content = single(&json!({"workerManager": {"publicIp": true}}));
    azure.launch(content.clone()).await.unwrap_err();
    assert_eq!(azure.owned().await, [], "parts are no machines");
    azure.clock.advance_ms(HOUR_MS - 1);
    assert!(
        azure.clean().await.is_empty(),
        "a launch may be making its machine"
    );
    azure.clock.advance_ms(1);
    let names = MachineNames::of_launch(&TOKEN.parse().unwrap(), 0);
    // The address ends with the interface.
    assert_eq!(
        azure.clean().await,
        [format!("interface {}", names.interface())]
    );
    assert_eq!(azure.fake.resources(), ["versions/1"]);
    // Nothing is in the way of a launch that is repeated, and cut still earlier.
    let lost = json!({"method": "PUT", "path": "networkInterfaces", "drop": "before"});
    azure.fake.fault(&lost);
    azure.launch(content).await.unwrap_err();
    assert_eq!(
        azure.clean().await,
        [format!("address {}", names.address())]
    );
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}

#[tokio::test]
async fn parts_of_machines_that_exist_and_parts_of_others_stay() {
    let azure = OnAzure::start().await;
    azure.date_resources();
    azure.launch(single(&json!({}))).await.unwrap();
    let make = |name: &str, tags: Value| {
        let configuration = json!({"name": "c", "properties": {"subnet": {"id": SUBNET}}});
        let body = json!({"location": "westus", "tags": tags,
            "properties": {"ipConfigurations": [configuration]}});
        put(&azure.fake, INTERFACES, name, body);
    };
    let ours = json!({"fleetwright-deployment": ROOT_URL, "provider-id": "azure",
        "fleetwright-machine": "vm-lost"});
    let with = |key: &str, value: Value| {
        let mut tags = ours.clone();
        tags[key] = value;
        tags
    };
    make("left", ours.clone());
    make(
        "other-deployment",
        with("fleetwright-deployment", json!("https://other")),
    );
    make("other-provider", with("provider-id", json!("azure2")));
    make("kept", with("fleetwright-keep", json!("")));
    make(
        "no-machine",
        json!({"fleetwright-deployment": ROOT_URL, "provider-id": "azure"}),
    );
    make("untagged", json!({}));
    azure.clock.advance_ms(2 * HOUR_MS);
    let before: BTreeSet<String> = azure.fake.resources().into_iter().collect();
    assert_eq!(azure.clean().await, ["interface left"]);
    let after: BTreeSet<String> = azure.fake.resources().into_iter().collect();
    let removed: Vec<&String> = before.difference(&after).collect();
    assert_eq!(removed, ["networkinterfaces/left"]);
    // In another location nothing is listed.
    let east = Region::Group("eastus".parse().unwrap());
    assert_eq!(azure.provider.remove_leftovers(&east).await, Ok(Vec::new()));
    let everything = azure.provider.remove_leftovers(&Region::Everything).await;
    assert_eq!(everything, Ok(Vec::new()));
}

#[tokio::test]
async fn the_record_of_an_ended_deployment_is_removed_unless_it_is_kept() {
    let names = MachineNames::of_launch(&TOKEN.parse().unwrap(), 0);
    for (keeps, expected) in [(false, 1), (true, 0)] {
        let azure = OnAzure::start().await;
        azure.date_resources();
        let content = templated(&json!({"workerManager": {"keepDeployment": keeps}}));
        let worker = azure.launch(content).await.unwrap().remove(0);
        azure.clock.advance_ms(2 * HOUR_MS);
        assert!(azure.clean().await.is_empty(), "it goes on");
        azure.fake.advance();
        assert!(azure.clean().await.is_empty(), "its machine exists");
        // Others delete the machine, and nothing of it is known here any more.
        let order = json!({"name": worker.key.id.as_str(), "evict": true});
        azure.fake.steer("machine", &order);
        let removed = azure.clean().await;
        let records = removed.iter().filter(|it| it.starts_with("deployment "));
        assert_eq!(records.count(), expected, "{removed:?}");
        let card = format!("interface card-{}", names.vm());
        assert!(removed.contains(&card), "{removed:?}");
    }
}
