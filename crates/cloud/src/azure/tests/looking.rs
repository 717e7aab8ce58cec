//! States of machines: evictions, failed starts, lists with pages.

use ::testing::sizes_around;
use domain::launch::Cause;
use domain::worker::WorkerState;
use serde_json::json;

use super::site::{OnAzure, single, templated};
use crate::azure::looking::MAX_SINGLE_LOOKS;
use crate::tests::values::edit;
use crate::{Machines as _, Sighting};

fn why(sighting: &Sighting) -> &str {
    let Sighting::Ended(end) = sighting else {
        panic!("it has ended: {sighting:?}");
    };
    end.why.as_deref().unwrap()
}

fn cause(sighting: &Sighting) -> Option<Cause> {
    let Sighting::Ended(end) = sighting else {
        panic!("it has ended: {sighting:?}");
    };
    end.cause
}

#[tokio::test]
async fn a_spot_machine_that_was_evicted_has_ended_and_is_removed() {
    let azure = OnAzure::start().await;
    let content = single(&json!({"priority": "Spot", "evictionPolicy": "Deallocate"}));
    let mut worker = azure.launch(content).await.unwrap().remove(0);
    azure.fake.advance();
    let id = worker.key.id.to_string();
    azure
        .fake
        .steer("machine", &json!({"name": id, "power": "deallocated"}));
    let seen = azure.seen(&worker).await;
    assert!(why(&seen).starts_with("evicted"), "{seen:?}");
    azure.fake.advance();
    assert_eq!(azure.fake.resources(), ["versions/1"]);
    edit(&mut worker, |it| it.state = WorkerState::Running);
    let seen = azure.seen(&worker).await;
    assert!(why(&seen).starts_with("evicted"), "{seen:?}");
}

#[tokio::test]
async fn a_machine_that_was_stopped_from_inside_has_ended() {
    let azure = OnAzure::start().await;
    let worker = azure.launch(single(&json!({}))).await.unwrap().remove(0);
    azure.fake.advance();
    let name = worker.key.id.to_string();
    azure
        .fake
        .steer("machine", &json!({"name": name, "power": "stopped"}));
    assert_eq!(
        why(&azure.seen(&worker).await),
        "Azure reports it as stopped"
    );
    azure.fake.advance();
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}

#[tokio::test]
async fn a_failed_start_ends_a_requested_machine_unless_it_is_ignored() {
    let failure = json!({"code": "OSProvisioningTimedOut", "message": "too slow"});
    for (ignored, ends) in [
        (json!([]), true),
        (json!(["OSProvisioningTimedOut"]), false),
    ] {
        let azure = OnAzure::start().await;
        let steering = json!({"ignoreFailedProvisioningStates": ignored});
        let content = single(&json!({ "workerManager": steering }));
        let worker = azure.launch(content).await.unwrap().remove(0);
        azure.fake.advance();
        let name = worker.key.id.to_string();
        let order = json!({"name": name, "failure": failure, "power": ""});
        azure.fake.steer("machine", &order);
        let seen = azure.seen(&worker).await;
        if ends {
            let expected = "its start failed with OSProvisioningTimedOut: too slow";
            assert_eq!(why(&seen), expected);
        } else {
            assert_eq!(seen, Sighting::Alive);
        }
    }
}

#[tokio::test]
async fn an_allocation_that_fails_later_is_seen_with_its_reason() {
    let azure = OnAzure::start().await;
    let failure = json!({"code": "AllocationFailed", "message": "no capacity"});
    azure
        .fake
        .fault(&json!({"method": "PUT", "path": "virtualMachines",
        "operation": {"error": failure}}));
    let worker = azure.launch(single(&json!({}))).await.unwrap().remove(0);
    azure.fake.advance();
    azure.fake.steer(
        "machine",
        &json!({"name": worker.key.id.to_string(), "power": ""}),
    );
    let seen = azure.seen(&worker).await;
    assert_eq!(
        why(&seen),
        "its start failed with AllocationFailed: no capacity"
    );
    assert_eq!(cause(&seen), Some(Cause::Capacity));
}

#[tokio::test]
async fn a_failed_deployment_is_told_once_and_what_it_made_is_removed() {
    let azure = OnAzure::start().await;
    let mut content = templated(&json!({}));
    let mut template = super::site::template();
    template["resources"][1]["properties"]["hardwareProfile"] =
        json!({"vmSize": "Standard_Unavailable"});
    let deployment = content["armDeployment"].as_object_mut().unwrap();
    deployment.remove("templateLink");
    deployment.insert("template".to_owned(), template);
    let mut worker = azure.launch(content).await.unwrap().remove(0);
    azure.fake.advance();
    let seen = azure.seen(&worker).await;
    assert!(why(&seen).contains("SkuNotAvailable"), "{seen:?}");
    assert_eq!(cause(&seen), Some(Cause::Capacity));
    // The row is stopped now; the scan lists what is left and ends it.
    edit(&mut worker, |it| it.state = WorkerState::Stopped);
    azure.end_completely(&worker).await;
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}

#[tokio::test]
async fn few_machines_are_looked_at_each_and_many_by_one_list() {
    for count in sizes_around("cloud::azure::looking::MAX_SINGLE_LOOKS", MAX_SINGLE_LOOKS) {
        if count == 0 {
            continue;
        }
        let azure = OnAzure::start().await;
        azure.fake.steer("settings", &json!({"page": 2}));
        let number = u32::try_from(count).unwrap();
        let workers = azure.launch_many(single(&json!({})), number).await.unwrap();
        azure.fake.advance();
        azure.fake.requests();
        let seen = azure.provider.look(&workers).await.unwrap();
        assert_eq!(seen.len(), count);
        assert!(seen.iter().all(|(_, it)| *it == Sighting::Alive));
        let requests = azure.fake.requests();
        let of_one = requests
            .iter()
            .filter(|it| it.ends_with("instanceView"))
            .count();
        let expected = if count <= MAX_SINGLE_LOOKS { count } else { 0 };
        assert_eq!(of_one, expected, "{count} machines: {requests:?}");
        let lists = requests.len() - of_one;
        let pages = if count <= MAX_SINGLE_LOOKS {
            0
        } else {
            count.div_ceil(2)
        };
        assert_eq!(lists, pages);
    }
}

#[tokio::test]
async fn machines_that_a_list_does_not_show_are_asked_about() {
    for count in [1, 20] {
        let azure = OnAzure::start().await;
        let number = u32::try_from(count).unwrap();
        let mut workers = azure.launch_many(single(&json!({})), number).await.unwrap();
        azure.fake.advance();
        for worker in &mut workers {
            azure.provider.end(worker).await.unwrap();
            edit(worker, |it| it.state = WorkerState::Stopping);
        }
        azure.fake.advance();
        let seen = azure.provider.look(&workers).await.unwrap();
        assert_eq!(seen.len(), count);
        assert!(seen.iter().all(|(_, it)| *it == Sighting::NotFound));
    }
}

#[tokio::test]
async fn a_list_is_read_to_its_last_page() {
    let azure = OnAzure::start().await;
    azure.fake.steer("settings", &json!({"page": 1}));
    let workers = azure.launch_many(single(&json!({})), 3).await.unwrap();
    azure.fake.advance();
    let owned = azure.owned().await;
    for worker in &workers {
        assert!(owned.iter().any(|it| it.machine.id == worker.key.id));
    }
    azure.provider.end(&workers[0]).await.unwrap();
    let owned = azure.owned().await;
    let ending = owned.iter().find(|it| it.machine.id == workers[0].key.id);
    assert_eq!(ending.unwrap().sighting, Some(Sighting::Ending));
}
