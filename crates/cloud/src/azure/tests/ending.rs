//! All that belongs to a machine is removed, however far it came.

use domain::worker::{Worker, WorkerState};
use serde_json::json;

use super::site::{OnAzure, put, single, templated};
use crate::azure::names::MachineNames;
use crate::tests::values::edit;
use crate::{CloudError, Machines as _, Sighting};

#[tokio::test]
async fn a_machine_ends_with_all_its_parts() {
    let azure = OnAzure::start().await;
    let content = single(&json!({"workerManager": {"publicIp": true}}));
    let made = azure.launch(content).await.unwrap();
    azure.fake.advance();
    assert_eq!(
        azure.fake.resources().len(),
        6,
        "{:?}",
        azure.fake.resources()
    );
    azure.end_completely(&made[0]).await;
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}

#[tokio::test]
async fn parts_that_do_not_end_with_their_machine_are_removed_one_after_the_other() {
    let azure = OnAzure::start().await;
    let detached = json!({"createOption": "FromImage", "deleteOption": "Detach"});
    let content = single(&json!({"workerManager": {"publicIp": true},
        "storageProfile": {"osDisk": detached, "dataDisks": [detached]}}));
    let made = azure.launch(content).await.unwrap();
    azure.fake.advance();
    azure.provider.end(&made[0]).await.unwrap();
    assert_eq!(azure.seen(&made[0]).await, Sighting::Ending);
    azure.fake.advance();
    let left = azure.fake.resources();
    assert_eq!(left.len(), 3, "two disks are left: {left:?}");
    // The row may be stopping or running: what is left must go.
    assert_eq!(azure.seen(&made[0]).await, Sighting::Ending);
    azure.end_completely(&made[0]).await;
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}

#[tokio::test]
async fn a_template_leaves_nothing_but_a_record_that_is_kept_on_request() {
    let azure = OnAzure::start().await;
    let made = azure.launch(templated(&json!({}))).await.unwrap();
    azure.fake.advance();
    azure.end_completely(&made[0]).await;
    assert_eq!(azure.fake.resources(), ["versions/1"]);
    let content = templated(&json!({"workerManager": {"keepDeployment": true}}));
    let kept = azure.launch(content).await.unwrap();
    azure.fake.advance();
    azure.end_completely(&kept[0]).await;
    let left = azure.fake.resources();
    assert_eq!(left.len(), 2, "{left:?}");
    assert!(left[0].starts_with("deployments/deploy-"), "{left:?}");
}

#[tokio::test]
async fn a_deployment_that_runs_is_cancelled_before_its_machine_is_there() {
    let azure = OnAzure::start().await;
    let made = azure.launch(templated(&json!({}))).await.unwrap();
    let mut stopping = made[0].clone();
    edit(&mut stopping, |it| it.state = WorkerState::Stopping);
    assert_eq!(azure.seen(&stopping).await, Sighting::Ending);
    azure.end_completely(&stopping).await;
    assert_eq!(azure.fake.resources(), ["versions/1"]);
    let requests = azure.fake.requests();
    assert!(
        requests.iter().any(|it| it.ends_with("/cancel")),
        "{requests:?}"
    );
}

#[tokio::test]
async fn a_machine_of_others_stays() {
    let azure = OnAzure::start().await;
    let made = azure.launch(single(&json!({}))).await.unwrap();
    let body = json!({"location": "westus", "tags": {"fleetwright-deployment": "http://other"}});
    put(
        &azure.fake,
        "Microsoft.Compute/virtualMachines",
        "theirs",
        body,
    );
    let mut theirs: Worker = made[0].clone();
    edit(&mut theirs, |it| it.key.id = "theirs".parse().unwrap());
    let refused = azure.provider.end(&theirs).await.unwrap_err();
    assert!(matches!(refused, CloudError::Refused(_)), "{refused}");
    // A part with a name of ours that belongs to another machine stays, too.
    let names = MachineNames::of_worker(made[0].key.id.as_str()).unwrap();
    let body = json!({"location": "westus", "tags": {"fleetwright-machine": "vm-other"}});
    put(
        &azure.fake,
        "Microsoft.Compute/disks",
        &names.data_disk(7),
        body,
    );
    azure.fake.advance();
    azure.end_completely(&made[0]).await;
    let left = azure.fake.resources();
    assert!(
        left.contains(&"virtualmachines/theirs".to_owned()),
        "{left:?}"
    );
    assert!(
        left.contains(&format!("disks/{}", names.data_disk(7))),
        "{left:?}"
    );
}
