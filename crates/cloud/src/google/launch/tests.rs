//! Tests of the calls that launches make.

use ::testing::sizes_around;
use domain::Version;
use domain::pool::{Pool, PoolDefinition};

use super::*;
use crate::tests::values::now;

const TOKEN: &str = "AbCdEfGhQgGAAAA_AAAA-A";

fn configuration(extra: Value) -> Value {
    let mut configuration = json!({
        "region": "us-central1", "zone": "us-central1-a",
        "machineType": "zones/us-central1-a/machineTypes/n2-standard-4",
        "disks": [{"type": "PERSISTENT", "boot": true,
            "initializeParams": {"sourceImage": "global/images/i", "labels": {"a": "b"}}}],
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "scheduling": {"onHostMaintenance": "terminate", "automaticRestart": true},
        "workerConfig": {"genericWorker": {"config": {"x": 1}}},
        "workerManager": {"launchConfigId": "lc-1"}, "capacityPerInstance": 2,
    });
    for (key, value) in extra.as_object().unwrap() {
        configuration[key] = value.clone();
    }
    configuration
}

fn calls(
    configuration: Value,
    machines: u32,
    bid_data: Value,
) -> Result<Vec<InsertCall>, LaunchError> {
    let definition = PoolDefinition {
        provider_id: "google".parse().unwrap(),
        further_provider_ids: Vec::new(),
        description: "Builds.".to_owned(),
        config: Map::new(),
        owner: "Ops@example.com".to_owned(),
        email_on_error: false,
    };
    let pool = Pool::new("proj_a/ci".parse().unwrap(), definition, now());
    let launch_config = LaunchConfig {
        pool_id: pool.id.clone(),
        id: "lc-1".parse().unwrap(),
        archived: false,
        position: 0,
        configuration: configuration.as_object().unwrap().clone(),
        created: now(),
        last_modified: now(),
        version: Version::FIRST,
    };
    let order = LaunchOrder {
        token: &TOKEN.parse().unwrap(),
        pool: &pool,
        launch_config: &launch_config,
        machines,
        capacity_each: 1,
        max_price: None,
        price: None,
        bid_data: bid_data.as_object().unwrap(),
        pool_data: &Value::Null,
        root_url: "https://fleet.example.com",
        now: now(),
    };
    let maker = Maker {
        provider_id: &"google".parse().unwrap(),
        root_url: "https://fleet.example.com",
        worker_email: "w@p.iam.gserviceaccount.com",
    };
    build_calls(&order, &maker)
}

fn one(extra: Value) -> InsertCall {
    let mut all = calls(configuration(extra), 1, json!({})).unwrap();
    assert_eq!(all.len(), 1);
    all.remove(0)
}

#[test]
fn the_machine_is_that_of_taskcluster_with_our_labels() {
    let call = one(json!({}));
    assert_eq!(call.name, "proj-a-ci-abcdefghqggaaaa-aaaa-a");
    assert_eq!((call.zone.as_str(), call.spot), ("us-central1-a", false));
    let instance = call.instance;
    let mut keys: Vec<_> = instance.as_object().unwrap().keys().collect();
    keys.sort();
    assert_eq!(
        keys,
        [
            "description",
            "disks",
            "labels",
            "machineType",
            "metadata",
            "name",
            "networkInterfaces",
            "scheduling",
            "serviceAccounts"
        ]
    );
    assert_eq!(instance["description"], "Builds.");
    assert_eq!(instance["scheduling"]["automaticRestart"], false);
    assert_eq!(instance["scheduling"]["onHostMaintenance"], "terminate");
    let account = json!([{"email": "w@p.iam.gserviceaccount.com", "scopes": [SCOPE]}]);
    assert_eq!(instance["serviceAccounts"], account);
    let labels = &instance["labels"];
    assert_eq!(labels["worker-pool-id"], "proj_a-ci");
    assert_eq!(labels["created-by"], "taskcluster-wm-google");
    let disk = &instance["disks"][0];
    assert_eq!(disk["autoDelete"], true);
    assert_eq!(disk["initializeParams"]["labels"]["a"], "b");
    let launch = &labels["fleetwright-launch"];
    assert_eq!(
        disk["initializeParams"]["labels"]["fleetwright-launch"],
        *launch
    );
}

#[test]
fn the_metadata_is_the_document_that_worker_runner_reads() {
    let given = json!({"metadata": {"items": [{"key": "taskcluster", "value": "x"},
        {"key": "other", "value": "y"}]}});
    let items = &one(given).instance["metadata"]["items"];
    assert_eq!(items[0], json!({"key": "other", "value": "y"}));
    assert_eq!(items[1]["key"], "taskcluster");
    let document: Value = serde_json::from_str(items[1]["value"].as_str().unwrap()).unwrap();
    assert_eq!(
        document,
        json!({"workerPoolId": "proj_a/ci", "providerId": "google",
            "workerGroup": "us-central1-a", "rootUrl": "https://fleet.example.com",
            "workerConfig": {"genericWorker": {"config": {"x": 1}}}})
    );
    assert_eq!(items.as_array().unwrap().len(), 2);
}

#[test]
fn metadata_that_is_too_long_is_refused() {
    let long = json!({"workerConfig": {"p": "x".repeat(MAX_METADATA_BYTES)}});
    let error = calls(configuration(long), 1, json!({})).unwrap_err();
    assert!(error.to_string().starts_with("the metadata is too long"));
}

#[test]
fn disks_end_with_their_machine_unless_asked_otherwise() {
    let disks = json!({"disks": [
        {"boot": true, "autoDelete": false, "initializeParams": {}, "labels": {"c": "d"}},
        {"autoDelete": false, "initializeParams": {}},
        {"initializeParams": {}},
        {"source": "zones/z/disks/kept", "labels": {"e": "f"}},
        {"type": "SCRATCH"},
    ]});
    let call = one(disks);
    let disks = &call.instance["disks"];
    let deleted: Vec<_> = (0..5).map(|at| disks[at]["autoDelete"].clone()).collect();
    let none = Value::Null;
    assert_eq!(
        deleted,
        [json!(true), json!(false), json!(true), none.clone(), none]
    );
    let kept = |at: usize| &disks[at]["initializeParams"]["labels"]["fleetwright-keep"];
    assert_eq!(
        [0, 1, 2].map(kept),
        [&Value::Null, &json!("true"), &Value::Null]
    );
    assert_eq!(disks[0]["initializeParams"]["labels"]["c"], "d");
    assert_eq!(disks[3], json!({"source": "zones/z/disks/kept"}));
}

#[test]
fn each_machine_of_an_order_has_its_name_and_its_request_id() {
    for size in sizes_around("cloud::google::launch::MAX_MACHINES", MAX_MACHINES as usize) {
        let n = u32::try_from(size).unwrap();
        let all = calls(configuration(json!({})), n, json!({})).unwrap();
        assert_eq!(all.len(), size.clamp(1, MAX_MACHINES as usize));
        let names: std::collections::BTreeSet<_> = all.iter().map(|call| &call.name).collect();
        assert_eq!(names.len(), all.len());
        let ids: std::collections::BTreeSet<_> = all.iter().map(|it| &it.request_id).collect();
        assert_eq!(ids.len(), all.len());
        assert!(names.iter().all(|name| name.len() <= 63));
        assert!(ids.iter().all(|id| id.len() == 36 && &id[14..15] == "4"));
    }
    let again = calls(configuration(json!({})), 3, json!({})).unwrap();
    assert_eq!(
        again,
        calls(configuration(json!({})), 3, json!({})).unwrap()
    );
    assert!(again[2].name.ends_with("-a2"));
}

#[test]
fn names_begin_with_a_letter_and_fit() {
    let name = |pool: &str| name(&pool.parse().unwrap(), &TOKEN.parse().unwrap(), 63);
    assert!(name("9Proj_x/ci").starts_with("wproj-x-ci-"));
    let long = format!("{}/{}", "P".repeat(38), "c".repeat(38));
    assert_eq!(name(&long).len(), 63);
}

#[test]
fn of_several_types_the_type_of_the_bid_is_launched() {
    let types = json!({"machineTypes": [{"machineType": "e2-medium"},
        {"machineType": "n2-standard-8", "capacityPerInstance": 4}]});
    let with = |data: Value| calls(configuration(types.clone()), 1, data);
    let call = with(json!({"machineType": "n2-standard-8"}))
        .unwrap()
        .remove(0);
    let address = "zones/us-central1-a/machineTypes/n2-standard-8";
    assert_eq!(call.instance["machineType"], address);
    assert!(call.instance.get("machineTypes").is_none());
    for data in [json!({}), json!({"machineType": "n2-standard-4"})] {
        assert!(with(data).is_err());
    }
}

#[test]
fn spot_machines_are_known_by_their_scheduling() {
    for (scheduling, spot) in [
        (json!({}), false),
        (json!({"provisioningModel": "STANDARD"}), false),
        (json!({"provisioningModel": "SPOT"}), true),
        (json!({"preemptible": true}), true),
    ] {
        assert_eq!(one(json!({"scheduling": scheduling})).spot, spot);
    }
}
