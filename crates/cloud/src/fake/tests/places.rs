//! The places of the fake cloud come from its settings or its script and fit its launch configs.

use super::*;
use crate::place::MAX_PLACES;

fn settings(text: Value) -> Result<FakeSettings, String> {
    serde_json::from_value(text).map_err(|error| error.to_string())
}

fn place(pairs: &[(&str, &str)]) -> Place {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// Settings of a fake cloud with places.
fn lunar() -> Value {
    json!([{"region": "moon", "zone": "near"}, {"region": "moon", "zone": "far"}])
}

#[tokio::test]
async fn with_places_it_keeps_the_contract() {
    contract(&World::with(settings(json!({"places": lunar()})).unwrap())).await;
}

#[test]
fn places_are_those_of_the_settings_until_a_script_says_otherwise() {
    assert_eq!(World::new().cloud.places(), Ok(vec![]));
    let cloud = World::with(settings(json!({"places": lunar()})).unwrap()).cloud;
    let near = place(&[("region", "moon"), ("zone", "near")]);
    let far = place(&[("region", "moon"), ("zone", "far")]);
    assert_eq!(cloud.places(), Ok(vec![near.clone(), far]));
    cloud.set_places(Ok(vec![near.clone()]));
    assert_eq!(cloud.places(), Ok(vec![near]));
    let clouded = PlacesUnknown("the region is unreachable".to_owned());
    cloud.set_places(Err(clouded.clone()));
    assert_eq!(cloud.places(), Err(clouded));
}

#[test]
fn settings_with_invalid_places_are_refused() {
    let many: Vec<_> = (0..=MAX_PLACES)
        .map(|n| json!({"rack": n.to_string()}))
        .collect();
    for (places, wanted) in [
        (json!([{"region": ""}]), "places[0].region: must have"),
        (
            json!([{}, {"workerType": "x"}]),
            "places[1]: \"workerType\"",
        ),
        (json!([{"a": "x"}, {"a": "x"}]), "places[1]: is the same"),
        (json!(many), "places: 2001 exceed the limit of 2000"),
        (json!([{"region": 1}]), "expected a string"),
        (json!({"region": "x"}), "expected a sequence"),
    ] {
        let error = settings(json!({ "places": places })).unwrap_err();
        assert!(error.contains(wanted), "{error}");
    }
}

/// Launch configs like those of real fleets, without a place.
fn placeless(accepts: AcceptedConfig) -> Value {
    match accepts {
        AcceptedConfig::Aws => json!({"launchConfig": {"ImageId": "ami-1"}}),
        AcceptedConfig::Azure => json!({"workerConfig": {}, "subnetId": "/subnets/x",
            "hardwareProfile": {"vmSize": "small"}, "storageProfile": {"osDisk": {}}}),
        AcceptedConfig::Fake => json!({"workerConfig": {}}),
        AcceptedConfig::Google => json!({"workerConfig": {}, "machineType": "n2", "disks": [],
            "networkInterfaces": [], "scheduling": {}}),
    }
}

#[test]
fn the_values_of_places_fit_each_kind_of_launch_config() {
    for (accepts, filled) in [
        (AcceptedConfig::Aws, vec!["availabilityZone", "region"]),
        (AcceptedConfig::Azure, vec!["region"]),
        (AcceptedConfig::Fake, vec!["region", "zone"]),
        (AcceptedConfig::Google, vec!["region", "zone"]),
    ] {
        let world = World::with(FakeSettings {
            accepts,
            ..FakeSettings::default()
        });
        let fills = world.cloud.fills();
        assert_eq!(fills.keys().collect::<Vec<_>>(), filled);
        let mut launch_config = placeless(accepts);
        for pointer in fills.values() {
            suite::put(&mut launch_config, pointer, "moon");
        }
        let mut config = json!({"minCapacity": 0, "maxCapacity": 1,
            "launchConfigs": [launch_config.clone()]});
        world.cloud.validate(&mut config).unwrap();
        // The machines are in the place.
        let group = world.cloud.group(&world.launch_config(launch_config));
        assert_eq!(group.unwrap().as_str(), "moon", "{accepts:?}");
    }
}
