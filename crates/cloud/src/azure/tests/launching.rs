//! Launches in both forms, also repeated and refused ones.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use domain::launch::Cause;
use serde_json::{Value, json};

use super::site::{OnAzure, SUBNET, TOKEN, single, templated};
use crate::azure::making::MAX_AT_ONCE;
use crate::tests::values::now;
use crate::{LaunchError, Machines as _, Provider as _, Sighting};

const GROUP: &str = "/subscriptions/s-1/resourceGroups/ci/providers";

#[tokio::test]
async fn address_interface_and_machine_are_made_one_after_the_other() {
    let azure = OnAzure::start().await;
    let content = single(
        &json!({"workerManager": {"publicIp": true}, "priority": "Spot",
        "zones": ["1"], "billingProfile": {"maxPrice": 2.0}}),
    );
    let workers = azure.launch(content).await.unwrap();
    let id = workers[0].key.id.as_str();
    assert_eq!(workers[0].key.group.as_str(), "westus");
    let suffix = &id[3..27];
    let puts: Vec<_> = azure.fake.requests();
    let puts: Vec<_> = puts.iter().filter(|it| it.starts_with("PUT")).collect();
    assert_eq!(
        puts,
        [
            &format!("PUT {GROUP}/Microsoft.Network/publicIPAddresses/pip-{suffix}"),
            &format!("PUT {GROUP}/Microsoft.Network/networkInterfaces/nic-{suffix}"),
            &format!("PUT {GROUP}/Microsoft.Compute/virtualMachines/{id}"),
        ]
    );
    let nic = format!("nic-{suffix}");
    let nic = azure
        .fake
        .resource("Microsoft.Network/networkInterfaces", "ci", &nic);
    let configuration = &nic["properties"]["ipConfigurations"][0]["properties"];
    assert_eq!(configuration["subnet"]["id"], SUBNET);
    assert_eq!(nic["tags"]["fleetwright-machine"], id);
    let vm = azure
        .fake
        .resource("Microsoft.Compute/virtualMachines", "ci", id);
    let properties = &vm["properties"];
    assert_eq!(vm["zones"], json!(["1"]));
    assert_eq!(vm["tags"]["team"], "x");
    assert_eq!(vm["tags"]["fleetwright-launch"], TOKEN);
    assert_eq!(properties["priority"], "Spot");
    assert_eq!(properties["evictionPolicy"], "Delete");
    assert_eq!(properties["billingProfile"]["maxPrice"], 0.5);
    assert!(properties.get("workerConfig").is_none() && vm.get("workerConfig").is_none());
    let storage = &properties["storageProfile"];
    assert_eq!(storage["osDisk"]["name"], format!("disk-{suffix}-os"));
    assert_eq!(storage["dataDisks"][0]["name"], format!("disk-{suffix}-0"));
    let profile = &properties["osProfile"];
    assert_eq!(profile["computerName"].as_str().unwrap().len(), 15);
    assert_eq!(profile["adminPassword"].as_str().unwrap().len(), 72);
    let data = STANDARD
        .decode(profile["customData"].as_str().unwrap())
        .unwrap();
    let data: Value = serde_json::from_slice(&data).unwrap();
    let expected = json!({"workerPoolId": "proj/ci", "providerId": "azure",
        "workerGroup": "westus", "rootUrl": "http://fleet.example.com", "workerConfig": {}});
    assert_eq!(data, expected);
    let row = workers[0].provider_data.to_string();
    let password = profile["adminPassword"].as_str().unwrap();
    assert!(!row.contains(password), "the password is stored");
}

#[tokio::test]
async fn a_launch_that_was_repeated_makes_nothing_twice() {
    for content in [single(&json!({})), templated(&json!({}))] {
        let azure = OnAzure::start().await;
        let first = azure.launch_many(content.clone(), 2).await.unwrap();
        azure.fake.advance();
        let before = azure.fake.resources();
        let again = azure.launch_many(content, 2).await.unwrap();
        let keys = |workers: &[domain::worker::Worker]| {
            workers.iter().map(|it| it.key.clone()).collect::<Vec<_>>()
        };
        assert_eq!(keys(&first), keys(&again));
        azure.fake.advance();
        assert_eq!(azure.fake.resources(), before);
    }
}

#[tokio::test]
async fn a_machine_that_is_refused_leaves_nothing_and_has_its_cause() {
    let azure = OnAzure::start().await;
    let content = single(
        &json!({"hardwareProfile": {"vmSize": "Standard_Unavailable"},
        "workerManager": {"publicIp": true}}),
    );
    let refused = azure.launch_many(content, 2).await.unwrap_err();
    let LaunchError::Refused { cause, error } = refused else {
        panic!("it is refused: {refused:?}");
    };
    assert_eq!(cause, Cause::Capacity);
    assert!(error.contains("SkuNotAvailable"), "{error}");
    azure.fake.advance();
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}

#[tokio::test]
async fn all_machines_of_a_launch_are_made() {
    for count in ::testing::sizes_around("cloud::azure::making::MAX_AT_ONCE", MAX_AT_ONCE) {
        let count = u32::try_from(count.min(20)).unwrap();
        if count == 0 {
            continue;
        }
        let azure = OnAzure::start().await;
        let made = azure.launch_many(single(&json!({})), count).await.unwrap();
        assert_eq!(made.len(), usize::try_from(count).unwrap());
        azure.fake.advance();
        let vms = azure.fake.resources();
        let vms = vms.iter().filter(|it| it.starts_with("virtualmachines/"));
        assert_eq!(vms.count(), made.len());
    }
}

#[tokio::test]
async fn a_template_gets_our_parameters_and_its_group_is_made_once() {
    let azure = OnAzure::start().await;
    let content = templated(&json!({"armDeploymentResourceGroup": "own", "tags": {"team": "x"}}));
    let workers = azure.launch_many(content.clone(), 2).await.unwrap();
    azure.launch(content).await.unwrap();
    let requests = azure.fake.requests();
    let groups: Vec<_> = requests
        .iter()
        .filter(|it| it.ends_with("/resourcegroups/own"))
        .collect();
    let path = "/subscriptions/s-1/resourcegroups/own";
    assert_eq!(groups, [&format!("GET {path}"), &format!("PUT {path}")]);
    assert_eq!(
        azure.seen(&workers[0]).await,
        Sighting::Alive,
        "it is being deployed"
    );
    azure.fake.advance();
    let id = workers[0].key.id.as_str();
    let vm = azure
        .fake
        .resource("Microsoft.Compute/virtualMachines", "own", id);
    assert_eq!(vm["tags"]["fleetwright-machine"], id);
    assert_eq!(vm["tags"]["team"], "x");
    let profile = &vm["properties"]["osProfile"];
    assert_eq!(profile["adminUsername"].as_str().unwrap().len(), 20);
    assert!(profile["customData"].is_string());
    assert_eq!(azure.seen(&workers[0]).await, Sighting::Alive);
    azure.end_completely(&workers[0]).await;
    azure.end_completely(&workers[1]).await;
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}

#[tokio::test]
async fn a_template_that_does_not_take_our_parameters_is_refused() {
    let azure = OnAzure::start().await;
    let mut content = templated(&json!({}));
    content["armDeployment"]["templateLink"] = Value::Null;
    content["armDeployment"]["template"] = json!({"resources": []});
    let refused = azure.launch(content).await.unwrap_err();
    let LaunchError::Refused { cause, error } = refused else {
        panic!("it is refused: {refused:?}");
    };
    assert_eq!(cause, Cause::Configuration);
    assert!(error.contains("InvalidTemplate"), "{error}");
}

#[tokio::test]
async fn a_pool_that_names_another_location_is_refused() {
    let azure = OnAzure::start().await;
    let config = |content: Value| {
        json!({"minCapacity": 0, "maxCapacity": 1,
        "launchConfigs": [content]})
    };
    let refused = |content: Value| {
        let refused = azure.provider.validate(&mut config(content)).unwrap_err();
        refused
            .problems
            .into_iter()
            .map(|it| it.pointer)
            .collect::<Vec<_>>()
    };
    azure
        .provider
        .validate(&mut config(single(&json!({}))))
        .unwrap();
    azure
        .provider
        .validate(&mut config(templated(&json!({}))))
        .unwrap();
    assert_eq!(
        refused(single(&json!({"location": "mars", "subnetId": "x"}))),
        ["/launchConfigs/0/location", "/launchConfigs/0/subnetId"]
    );
    let mut elsewhere = templated(&json!({"armDeploymentResourceGroup": "a/b"}));
    elsewhere["armDeployment"]["parameters"]["location"]["value"] = json!("mars");
    assert_eq!(
        refused(elsewhere),
        [
            "/launchConfigs/0/armDeployment/parameters/location/value",
            "/launchConfigs/0/armDeploymentResourceGroup"
        ]
    );
    let unserved = azure.launch(single(&json!({"location": "mars"}))).await;
    let Err(LaunchError::Refused { cause, .. }) = unserved else {
        panic!("it is refused: {unserved:?}");
    };
    assert_eq!(cause, Cause::Configuration);
}

#[tokio::test]
async fn places_are_the_locations() {
    let azure = OnAzure::start().await;
    let places = azure.provider.places().unwrap();
    let regions: Vec<_> = places.iter().map(|it| it["region"].as_str()).collect();
    assert_eq!(regions, ["westus", "eastus"]);
    assert_eq!(azure.provider.regions().len(), 2);
}

#[tokio::test]
async fn a_spot_machine_without_a_price_costs_at_most_its_limit() {
    let azure = OnAzure::start().await;
    let bid = |content: Value| {
        let config = super::site::config(&super::site::pool(), &content);
        azure.provider.first_bid(&config, now()).unwrap()
    };
    let listed = bid(single(&json!({})));
    assert_eq!(listed.price, Some(0.1));
    assert_eq!(listed.place, "westus Standard_F2 on-demand");
    let limit = |price: f64| json!({"priority": "Spot", "billingProfile": {"maxPrice": price}});
    let spot = bid(single(&limit(0.07)));
    assert_eq!(spot.price, Some(0.07));
    assert_eq!(spot.place, "westus Standard_F2 spot");
    assert_eq!(bid(single(&limit(-1.0))).price, None);
    let template = bid(templated(&json!({})));
    assert_eq!(template.place, "westus of the template's size on-demand");
}
