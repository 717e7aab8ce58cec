//! What the fake cloud presents to rules is what its settings or its script say, and fits the launch configs that it takes.

use super::*;
use crate::place::MAX_PLACES;

fn settings(text: Value) -> Result<FakeSettings, String> {
    serde_json::from_value(text).map_err(|problem| problem.to_string())
}

fn place(pairs: &[(&str, &str)]) -> Place {
    let owned = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
    pairs.iter().map(owned).collect()
}

/// What a fake cloud presents in these tests.
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
    let clouded = PlacesUnknown("the sky is clouded".to_owned());
    cloud.set_places(Err(clouded.clone()));
    assert_eq!(cloud.places(), Err(clouded));
}

#[test]
fn settings_with_places_that_rules_cannot_ask_about_are_refused() {
    let many: Vec<_> = (0..=MAX_PLACES)
        .map(|n| json!({"rack": n.to_string()}))
        .collect();
    for (places, wanted) in [
        (json!([{"region": ""}]), "places[0].region: must have"),
        (
            json!([{}, {"workerType": "x"}]),
            "places[1]: \"workerType\"",
        ),
        (json!([{"a": "x"}, {"a": "x"}]), "places[1]: says the same"),
        (json!(many), "places: 2001 are more than 2000"),
        (json!([{"region": 1}]), "expected a string"),
        (json!({"region": "x"}), "expected a sequence"),
    ] {
        let problem = settings(json!({ "places": places })).unwrap_err();
        assert!(problem.contains(wanted), "{problem}");
    }
}

/// Launch configs as real fleets have them, but for where they are.
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
fn what_places_say_has_room_in_each_kind_of_launch_config() {
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
            testing::put(&mut launch_config, pointer, "moon");
        }
        let mut config = json!({"minCapacity": 0, "maxCapacity": 1,
            "launchConfigs": [launch_config.clone()]});
        world.cloud.validate(&mut config).unwrap();
        // And the machines are where the place said.
        let group = world.cloud.group(&world.launch_config(launch_config));
        assert_eq!(group.unwrap().as_str(), "moon", "{accepts:?}");
    }
}
