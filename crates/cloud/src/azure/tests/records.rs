//! Log records in Taskcluster's form.

use domain::worker::WorkerState;
use serde_json::json;

use super::site::{OnAzure, single, templated};
use crate::Machines as _;
use crate::tests::records::WrittenRecords;
use crate::tests::values::edit;

#[tokio::test]
async fn a_throttled_call_is_recorded_with_what_azure_says_about_it() {
    let azure = OnAzure::start().await;
    let (records, _keeping) = WrittenRecords::keep();
    azure.fake.fault(&json!({
        "method": "PUT", "path": "networkInterfaces", "status": 429,
        "headers": {"Retry-After": "17", "x-ms-ratelimit-remaining-subscription-writes": "0",
            "x-ms-ratelimit-remaining-resource": "Microsoft.Compute/PutVM3Min;1"},
        "body": {"error": {"code": "TooManyRequests", "message": "slow down"}},
    }));
    azure.launch(single(&json!({}))).await.unwrap_err();
    let expected = json!({
        "providerId": "azure", "operationType": "write", "retryAfterSeconds": 17,
        "remainingReads": null, "remainingWrites": 0, "remainingDeletes": null,
        "remainingResource": "Microsoft.Compute/PutVM3Min;1",
    });
    assert_eq!(records.take("azure-throttled"), [expected]);
}

#[tokio::test]
async fn a_group_that_is_made_is_recorded_once_with_the_pool_that_wants_it() {
    let azure = OnAzure::start().await;
    let (records, _keeping) = WrittenRecords::keep();
    let content = templated(&json!({"armDeploymentResourceGroup": "own"}));
    azure.launch_many(content, 2).await.unwrap();
    let expected = json!({
        "workerPoolId": "proj/ci", "resourceGroupName": "own", "location": "westus",
    });
    assert_eq!(records.take("azure-resource-group-ensure"), [expected]);
}

#[tokio::test]
async fn an_end_is_fast_if_azure_removes_the_parts_with_their_machine() {
    let (records, _keeping) = WrittenRecords::keep();
    for (content, mode) in [
        (single(&json!({})), "fast"),
        (templated(&json!({})), "slow"),
    ] {
        let azure = OnAzure::start().await;
        let worker = azure.launch(content).await.unwrap().remove(0);
        azure.fake.advance();
        azure.provider.end(&worker).await.unwrap();
        let launch_config = worker.launch_config_id.as_ref();
        let expected = json!({
            "workerPoolId": "proj/ci", "providerId": "azure", "workerId": worker.key.id.as_str(),
            "launchConfigId": launch_config.map(|id| id.as_str()), "mode": mode,
        });
        assert_eq!(records.take("azure-teardown-mode"), [expected]);
        // Nothing is ended twice.
        azure.provider.end(&worker).await.unwrap();
        assert!(records.take("azure-teardown-mode").is_empty());
    }
}

#[tokio::test]
async fn a_machine_that_has_registered_and_is_not_known_any_more_is_recorded() {
    let azure = OnAzure::start().await;
    let mut worker = azure.launch(single(&json!({}))).await.unwrap().remove(0);
    azure.fake.advance();
    azure.end_completely(&worker).await;
    let (records, _keeping) = WrittenRecords::keep();
    for (state, count) in [(WorkerState::Requested, 0), (WorkerState::Running, 1)] {
        edit(&mut worker, |it| it.state = state);
        azure.seen(&worker).await;
        let written = records.take("azure-instance-view-repeated-404");
        assert_eq!(written.len(), count, "{state:?}");
        for record in written {
            assert_eq!(record["vmName"], worker.key.id.as_str());
            assert_eq!(record["workerGroup"], "westus");
        }
    }
}
