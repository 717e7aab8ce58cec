//! Calls that fail, hang or are answered to no one.

use std::time::Duration;

use domain::launch::Cause;
use serde_json::json;

use super::site::{OnAzure, TOKEN, provider, single, templated};
use crate::tests::values::{TestClock, context_at};
use crate::{
    CloudError, LaunchError, MachineMaker, Machines as _, Provider as _, Region, Sighting,
    list_machines, with_notes,
};

fn cause(result: Result<Vec<domain::worker::Worker>, LaunchError>) -> Option<Cause> {
    match result.unwrap_err() {
        LaunchError::Refused { cause, .. } => Some(cause),
        LaunchError::Unknown(_) => None,
    }
}

#[tokio::test]
async fn a_machine_whose_answer_was_lost_is_found_by_its_token() {
    let azure = OnAzure::start().await;
    azure
        .fake
        .fault(&json!({"method": "PUT", "path": "virtualMachines", "drop": "after"}));
    assert_eq!(cause(azure.launch(single(&json!({}))).await), None);
    let owned = azure.owned().await;
    let vm = owned.first().unwrap();
    assert_eq!(vm.token, TOKEN.parse().ok());
    assert_eq!(vm.pool_id, "proj/ci".parse().ok());
    let made = azure.launch(single(&json!({}))).await.unwrap();
    assert_eq!(made[0].key.id, vm.machine.id);
    assert_eq!(made[0].key.group, vm.machine.group);
}

#[tokio::test]
async fn throttled_calls_are_reported_as_such_and_not_repeated() {
    let azure = OnAzure::start().await;
    let throttled = |method: &str, path: &str| {
        json!({"method": method, "path": path, "status": 429, "headers": {"Retry-After": "17"},
            "body": {"error": {"code": "TooManyRequests", "message": "slow down"}}})
    };
    azure.fake.fault(&throttled("PUT", "networkInterfaces"));
    let (launched, notes) = with_notes(azure.launch(single(&json!({})))).await;
    assert_eq!(cause(launched), Some(Cause::Throttled));
    assert_eq!(notes.pause, Some(Duration::from_secs(17)));
    let made = azure.launch(single(&json!({}))).await.unwrap();
    azure.fake.requests();
    azure.fake.fault(&throttled("GET", "instanceView"));
    let looked = azure.provider.look(&made).await.unwrap_err();
    assert!(matches!(looked, CloudError::Throttled(_)), "{looked}");
    azure.fake.fault(&throttled("DELETE", "virtualMachines"));
    let ended = azure.provider.end(&made[0]).await.unwrap_err();
    assert!(matches!(ended, CloudError::Throttled(_)), "{ended}");
    let deletes = azure.fake.requests();
    let deletes = deletes.iter().filter(|it| it.starts_with("DELETE"));
    assert_eq!(deletes.count(), 1);
}

#[tokio::test]
async fn a_launch_that_leaves_few_calls_asks_for_a_pause_before_azure_throttles() {
    let azure = OnAzure::start().await;
    let left = |count: u32| {
        let remaining = json!({"PutVM3Min": count});
        azure
            .fake
            .steer("settings", &json!({"remaining": remaining}));
    };
    for (count, expected) in [(20, None), (3, Some(18)), (0, Some(60))] {
        left(count);
        let (launched, notes) = with_notes(azure.launch(single(&json!({})))).await;
        assert_eq!(
            notes.pause,
            expected.map(Duration::from_secs),
            "{count} are left"
        );
        assert_eq!(launched.is_ok(), count > 0);
    }
}

#[tokio::test]
async fn errors_of_azure_have_their_causes() {
    for (status, code, expected) in [
        (409, "SkuNotAvailable", Some(Cause::Capacity)),
        (409, "QuotaExceeded", Some(Cause::Quota)),
        (403, "AuthorizationFailed", Some(Cause::Credentials)),
        (400, "InvalidParameter", Some(Cause::Configuration)),
        (503, "ServiceUnavailable", Some(Cause::Unavailable)),
        (500, "InternalServerError", None),
    ] {
        let azure = OnAzure::start().await;
        let body = json!({"error": {"code": code, "message": "why"}});
        azure.fake.fault(
            &json!({"method": "PUT", "path": "virtualMachines", "status": status, "body": body}),
        );
        let launched = azure.launch(single(&json!({}))).await;
        assert_eq!(cause(launched), expected, "{code}");
    }
}

#[tokio::test]
async fn an_operation_that_never_ends_leaves_the_outcome_open() {
    let azure = OnAzure::start().await;
    let path = "networkInterfaces";
    azure
        .fake
        .fault(&json!({"method": "PUT", "path": path, "operation": {"never": true}}));
    assert_eq!(cause(azure.launch(single(&json!({}))).await), None);
}

#[tokio::test]
async fn an_operation_that_fails_is_a_refusal_with_its_cause() {
    let azure = OnAzure::start().await;
    let failure = json!({"code": "SubnetIsFull", "message": "no address is left"});
    azure
        .fake
        .fault(&json!({"method": "PUT", "path": "networkInterfaces",
        "operation": {"error": failure}}));
    let launched = azure.launch(single(&json!({}))).await;
    assert_eq!(cause(launched), Some(Cause::Capacity));
}

#[tokio::test]
async fn a_location_that_is_down_hides_no_other() {
    let azure = OnAzure::start().await;
    let made = azure.launch(single(&json!({}))).await.unwrap();
    azure
        .fake
        .fault(&json!({"method": "GET", "path": "eastus", "status": 503, "times": 9}));
    let listing = azure.provider.owned().await.unwrap();
    let missing: Vec<_> = listing.missing.keys().map(ToString::to_string).collect();
    assert_eq!(missing, ["eastus"]);
    assert!(
        listing
            .machines
            .iter()
            .any(|it| it.machine.id == made[0].key.id)
    );
    let down = Region::Group("eastus".parse().unwrap());
    list_machines(&azure.provider, &down, MachineMaker::Us)
        .await
        .unwrap_err();
}

#[tokio::test]
async fn a_subscription_that_cannot_be_seen_does_not_mean_that_machines_have_ended() {
    let azure = OnAzure::start().await;
    let made = azure.launch(single(&json!({}))).await.unwrap();
    let body = json!({"error": {"code": "SubscriptionNotFound", "message": "?"}});
    azure
        .fake
        .fault(&json!({"path": "instanceView", "status": 404, "body": body}));
    let looked = azure.provider.look(&made).await.unwrap_err();
    assert!(matches!(looked, CloudError::Credentials(_)), "{looked}");
}

#[tokio::test]
async fn a_secret_that_was_changed_is_read_from_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, "hush\n").unwrap();
    let azure = OnAzure::with(json!({"client_secret_file": path})).await;
    azure.fake.steer("revoke", &json!({"secrets": ["newer"]}));
    let west = Region::Group("westus".parse().unwrap());
    let refused = list_machines(&azure.provider, &west, MachineMaker::Us).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, CloudError::Credentials(_)), "{refused}");
    let refused = azure.launch(single(&json!({}))).await;
    assert_eq!(cause(refused), Some(Cause::Credentials), "nothing was sent");
    std::fs::write(&path, "newer\n").unwrap();
    azure.launch(single(&json!({}))).await.unwrap();
}

#[tokio::test]
async fn a_provider_without_its_group_is_not_set_up() {
    let azure = OnAzure::start().await;
    let clock = TestClock::new();
    let settings = json!({"client_secret": "hush", "resource_group": "nosuch"});
    let lost = provider(&azure.fake, settings, context_at("azure", &clock));
    let error = lost.setup().await.unwrap_err().to_string();
    assert!(
        error.contains("the resource group nosuch does not exist"),
        "{error}"
    );
    let settings = json!({"client_secret": "wrong"});
    let refused = provider(&azure.fake, settings, context_at("azure", &clock));
    let error = refused.setup().await.unwrap_err().to_string();
    assert!(error.contains("no credentials of Azure"), "{error}");
    assert!(!error.contains("wrong"), "the secret is printed: {error}");
    let settings = json!({"client_secret": "hush", "identity_roots_file": "/nosuch"});
    let rootless = provider(&azure.fake, settings, context_at("azure", &clock));
    let error = rootless.setup().await.unwrap_err().to_string();
    assert!(error.contains("identity_roots_file /nosuch"), "{error}");
}

#[tokio::test]
async fn a_group_that_was_removed_is_made_again() {
    let azure = OnAzure::start().await;
    let content = templated(&json!({"armDeploymentResourceGroup": "own"}));
    azure.launch(content.clone()).await.unwrap();
    let body = json!({"error": {"code": "ResourceGroupNotFound", "message": "?"}});
    let gone = json!({"method": "PUT", "path": "deployments", "status": 404, "body": body});
    azure.fake.fault(&gone);
    assert!(azure.launch_many(content.clone(), 2).await.is_ok());
    azure.fake.requests();
    azure.launch(content).await.unwrap();
    let requests = azure.fake.requests();
    let asked = |it: &&String| it.ends_with("/resourcegroups/own");
    assert_eq!(requests.iter().filter(asked).count(), 1);
}

#[tokio::test]
async fn a_deployment_whose_answer_was_lost_makes_its_machine_once() {
    let azure = OnAzure::start().await;
    azure
        .fake
        .fault(&json!({"method": "PUT", "path": "deployments", "drop": "after"}));
    assert_eq!(cause(azure.launch(templated(&json!({}))).await), None);
    azure.fake.advance();
    let [found] = azure.owned().await.try_into().unwrap();
    assert_eq!(found.token, TOKEN.parse().ok());
    let again = azure.launch(templated(&json!({}))).await.unwrap();
    assert_eq!(again[0].key.id, found.machine.id);
    azure.fake.advance();
    assert_eq!(azure.owned().await.len(), 1);
}

#[tokio::test]
async fn a_deployment_that_never_ends_is_cancelled_with_its_worker() {
    let azure = OnAzure::start().await;
    azure
        .fake
        .fault(&json!({"method": "PUT", "path": "deployments", "operation": {"never": true}}));
    let worker = azure.launch(templated(&json!({}))).await.unwrap().remove(0);
    for _ in 0..3 {
        azure.fake.advance();
        assert_eq!(azure.seen(&worker).await, Sighting::Alive);
    }
    azure.end_completely(&worker).await;
    assert_eq!(azure.fake.resources(), ["versions/1"]);
}
