//! Real documents, each of which fits its schema.

use contract::Schemas;
use serde_json::{Value, json};
use std::{fs, path::Path};

fn assert_fits(name: &str, mut document: Value) {
    assert_eq!(
        Schemas::new().validate(name, &mut document),
        Ok(()),
        "{document:#}"
    );
}

fn config(launch_config: Value) -> Value {
    json!({
        "minCapacity": 0, "maxCapacity": 20, "scalingRatio": 0.5, "lifecycle": {"registrationTimeout": 1800},
        "launchConfigs": [launch_config]
    })
}

fn aws() -> Value {
    config(json!({
        "region": "us-west-2",
        "launchConfig": {
            "ImageId": "ami-0123456789abcdef0",
            "InstanceType": "c6a.2xlarge",
            "InstanceMarketOptions": {"MarketType": "spot"},
            "Placement": {"AvailabilityZone": "us-west-2a"}
        },
        "additionalUserData": {"colour": "blue"},
        "workerConfig": {"genericWorker": {"config": {"numberOfTasksToRun": 1}}},
        "workerManager": {"capacityPerInstance": 1, "initialWeight": 0.7, "maxCapacity": 5}
    }))
}

fn azure(rest: Value) -> Value {
    let mut launch_config = json!({
        "workerConfig": {}, "tags": {"owner": "x"}, "workerManager": {"publicIp": false, "launchConfigId": "west_1"}
    });
    for (key, value) in rest.as_object().unwrap() {
        launch_config[key] = value.clone();
    }
    config(launch_config)
}

#[test]
fn a_pool_in_a_response() {
    let time = "2026-03-04T05:06:07.089Z";
    assert_fits(
        "worker-manager/v1/worker-pool-full.json",
        json!({
            "workerPoolId": "proj-demo/linux", "providerId": "aws", "description": "For *tests*.", "created": time,
            "lastModified": time, "config": aws(), "owner": "ci@example.com", "emailOnError": true,
            "currentCapacity": 3, "requestedCount": 1, "runningCount": 2, "stoppingCount": 0, "stoppedCount": 4,
            "requestedCapacity": 1, "runningCapacity": 2, "stoppingCapacity": 0, "stoppedCapacity": 4
        }),
    );
}

#[test]
fn a_pool_on_aws() {
    assert_fits("worker-manager/v1/config-aws.json", aws());
}

#[test]
fn a_pool_on_google() {
    let launch_config = json!({
        "region": "us-east1", "zone": "us-east1-b", "machineType": "zones/us-east1-b/machineTypes/n2-standard-4",
        "disks": [{"type": "PERSISTENT", "boot": true, "autoDelete": true,
                   "initializeParams": {"sourceImage": "projects/p/global/images/i", "diskSizeGb": 50}}],
        "networkInterfaces": [{"accessConfigs": [{"type": "ONE_TO_ONE_NAT"}]}],
        "scheduling": {"onHostMaintenance": "terminate", "provisioningModel": "SPOT"},
        "workerConfig": {}, "workerManager": {"capacityPerInstance": 2}, "minCpuPlatform": "Intel Cascade Lake"
    });
    assert_fits(
        "worker-manager/v1/config-google.json",
        config(launch_config),
    );
}

#[test]
fn a_pool_on_azure_part_by_part() {
    assert_fits(
        "worker-manager/v1/config-azure.json",
        azure(json!({
            "location": "westus", "subnetId": "/subscriptions/s/subnets/n", "hardwareProfile": {"vmSize": "Standard_F8s_v2"},
            "storageProfile": {
                "imageReference": {"id": "/subscriptions/s/images/i"},
                "osDisk": {"createOption": "FromImage", "diskSizeGB": 64},
                "dataDisks": [{"lun": 0, "createOption": "Empty"}, {"lun": 0, "createOption": "Empty"}]
            },
            "priority": "Spot", "evictionPolicy": "Delete", "billingProfile": {"maxPrice": -1}
        })),
    );
}

#[test]
fn a_pool_on_azure_by_template() {
    let id = "/subscriptions/s/resourceGroups/g/providers/Microsoft.Resources/templateSpecs/t/versions/1.0";
    assert_fits(
        "worker-manager/v1/config-azure.json",
        azure(json!({
            "armDeploymentResourceGroup": "rg",
            "armDeployment": {
                "mode": "Incremental",
                "templateLink": {"id": id},
                "parameters": {
                    "location": {"value": "westus"},
                    "password": {"reference": {"keyVault": {"id": "/subscriptions/s/vault"}, "secretName": "p"}}
                }
            }
        })),
    );
}

#[test]
fn a_pool_on_azure_by_two_templates_is_refused() {
    let mut document = azure(json!({
        "armDeployment": {
            "mode": "Incremental", "template": {}, "templateLink": {"uri": "https://x"}, "parameters": {"location": {"value": "a"}}
        }
    }));
    let refused = Schemas::new()
        .validate("worker-manager/v1/config-azure.json", &mut document)
        .unwrap_err();
    let pointers: Vec<&str> = refused
        .problems
        .iter()
        .map(|problem| problem.pointer.as_str())
        .collect();
    assert!(
        pointers.contains(&"/launchConfigs/0/armDeployment"),
        "{refused}"
    );
}

#[test]
fn pools_of_static_machines_and_of_the_null_provider() {
    assert_fits(
        "worker-manager/v1/config-static.json",
        json!({"workerConfig": {"a": 1}, "lifecycle": {"reregistrationTimeout": 60}}),
    );
    assert_fits(
        "worker-manager/v1/config-null.json",
        json!({"anything": []}),
    );
}

#[test]
fn a_registration_with_each_kind_of_proof() {
    let secret = "s".repeat(44);
    for proof in [
        json!({"token": "t"}),
        json!({"staticSecret": secret}),
        json!({"document": "d", "signature": "s"}),
        json!({"document": "d"}),
    ] {
        assert_fits(
            "worker-manager/v1/register-worker-request.json",
            json!({
                "workerPoolId": "a/b", "providerId": "p", "workerGroup": "g", "workerId": "w",
                "workerIdentityProof": proof, "systemBootTime": "2026-03-04T05:06:07Z"
            }),
        );
    }
}

#[test]
fn the_pools_of_a_real_deployment() {
    let path =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/community-fleet.json");
    let Ok(text) = fs::read_to_string(&path) else {
        println!("skipped: {} does not exist", path.display());
        return;
    };
    let fleet: Value = serde_json::from_str(&text).unwrap();
    let mut n_pools = 0;
    for resource in fleet
        .as_object()
        .unwrap()
        .values()
        .filter_map(Value::as_array)
        .flatten()
    {
        if resource["kind"] != "WorkerPool" {
            continue;
        }
        let provider = resource["providerId"].as_str().unwrap();
        let kind = provider.rsplit('-').next().unwrap();
        assert_fits(
            &format!("worker-manager/v1/config-{kind}.json"),
            resource["config"].clone(),
        );
        n_pools += 1;
    }
    assert!(n_pools > 0, "the file has no pools");
}
