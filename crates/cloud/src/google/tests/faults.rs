//! Failures of Google, and what the provider makes of them.

use std::time::Duration;

use domain::launch::Cause;
use serde_json::json;

use super::fake::{FIRST_TOKEN, OnFake, simple};
use crate::tests::suite::Fixture as _;
use crate::{CloudError, LaunchError, MachineEnd, Machines as _, Region, Sighting, with_notes};

fn ended(why: &str) -> Option<Sighting> {
    let end = MachineEnd::because(Some(why.to_owned()));
    Some(Sighting::Ended(end))
}

#[tokio::test]
async fn a_launch_whose_answer_was_lost_is_found_by_its_token() {
    let fake = OnFake::start().await;
    let google = &fake.google;
    google
        .fail("instances.insert", json!({"drop": "after"}))
        .await;
    let lost = fake.launch(1).await.unwrap_err();
    assert!(matches!(lost, LaunchError::Unknown(_)), "{lost}");
    let owned = fake.owned().await;
    assert_eq!(owned.len(), 1);
    assert_eq!(owned[0].token, FIRST_TOKEN.parse().ok());
    assert_eq!(owned[0].pool_id, "test/pool".parse().ok());
    let again = fake.launch(1).await.unwrap();
    assert_eq!(again[0].key.id, owned[0].machine.id);
    // Also after Google has forgotten the request id.
    google.act("forget-requests", &json!({})).await;
    let again = fake.launch(1).await.unwrap();
    assert_eq!(again[0].key.id, owned[0].machine.id);
    assert_eq!(fake.owned().await.len(), 1);
}

#[tokio::test]
async fn a_call_that_google_never_got_made_nothing_and_can_be_made_again() {
    let fake = OnFake::start().await;
    let fault = json!({"drop": "before"});
    fake.google.fail("instances.insert", fault).await;
    assert!(matches!(
        fake.launch(1).await.unwrap_err(),
        LaunchError::Unknown(_)
    ));
    assert!(fake.owned().await.is_empty());
    assert_eq!(fake.launch(1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn refused_launches_have_their_cause() {
    let fake = OnFake::start().await;
    for (status, reason, expected) in [
        (403, "quotaExceeded", Cause::Quota),
        (403, "rateLimitExceeded", Cause::Throttled),
        (403, "forbidden", Cause::Credentials),
        (400, "invalid", Cause::Configuration),
        (503, "ZONE_RESOURCE_POOL_EXHAUSTED", Cause::Capacity),
    ] {
        let fault = json!({"status": status, "reason": reason});
        fake.google.fail("instances.insert", fault).await;
        match fake.launch(1).await.unwrap_err() {
            LaunchError::Refused { cause, error } => {
                assert_eq!(cause, expected, "{error}");
                assert!(error.contains(reason), "{error}");
            }
            LaunchError::Unknown(error) => panic!("{reason}: {error}"),
        }
    }
    let fault = json!({"status": 503, "reason": "backendError"});
    fake.google.fail("instances.insert", fault).await;
    assert!(matches!(
        fake.launch(1).await.unwrap_err(),
        LaunchError::Unknown(_)
    ));
}

#[tokio::test]
async fn some_machines_are_better_than_none() {
    let fake = OnFake::start().await;
    let fault = json!({"status": 403, "reason": "quotaExceeded", "times": 2});
    fake.google.fail("instances.insert", fault).await;
    assert_eq!(fake.launch(5).await.unwrap().len(), 3);
    assert_eq!(fake.owned().await.len(), 3);
}

#[tokio::test]
async fn an_operation_that_fails_later_ends_the_machine_with_its_cause() {
    let fake = OnFake::start().await;
    for (token, code, cause) in [
        (
            FIRST_TOKEN,
            "ZONE_RESOURCE_POOL_EXHAUSTED",
            Some(Cause::Capacity),
        ),
        (
            "BBBBBBBBQQCBBBBBBBBBBQ",
            "QUOTA_EXCEEDED",
            Some(Cause::Quota),
        ),
        ("CCCCCCCCQQCCCCCCCCCCCQ", "SOMETHING_NEW", None),
    ] {
        let fault = json!({"operation": code, "message": "none left"});
        fake.google.fail("instances.insert", fault).await;
        let launched = fake.launch_by(&fake.provider, token, 1, simple());
        let worker = launched.await.unwrap().remove(0);
        assert_eq!(fake.seen(&worker).await, None, "the operation runs");
        fake.settle().await;
        let end = MachineEnd::not_made(format!("{code}: none left"), cause);
        let expected = Some(Sighting::Ended(end));
        assert_eq!(fake.seen(&worker).await, expected);
        // An ended operation is asked about once.
        let n_asked = fake.google.n_calls("zoneOperations.get").await;
        assert_eq!(fake.seen(&worker).await, expected);
        assert_eq!(fake.google.n_calls("zoneOperations.get").await, n_asked);
        assert_eq!(fake.provider.end(&worker).await, Ok(()));
    }
}

#[tokio::test]
async fn a_throttled_call_asks_for_the_pause_that_google_wants() {
    let fake = OnFake::start().await;
    for (status, reason, expected) in [
        (403, "rateLimitExceeded", Some(30)),
        (429, "RATE_LIMIT_EXCEEDED", Some(30)),
        (503, "backendError", Some(30)),
        (403, "quotaExceeded", None),
    ] {
        let fault = json!({"status": status, "reason": reason, "retryAfter": 30});
        fake.google.fail("instances.insert", fault).await;
        let (launched, notes) = with_notes(fake.launch(1)).await;
        launched.unwrap_err();
        assert_eq!(notes.pause, expected.map(Duration::from_secs), "{reason}");
    }
    assert_eq!(with_notes(fake.launch(1)).await.1.pause, None);
}

#[tokio::test]
async fn an_operation_that_never_ends_says_nothing_about_its_machine() {
    let fake = OnFake::start().await;
    fake.google
        .fail("instances.insert", json!({"hang": true}))
        .await;
    let worker = fake.launch(1).await.unwrap().remove(0);
    for _ in 0..3 {
        fake.settle().await;
        assert_eq!(fake.seen(&worker).await, None);
    }
    assert_eq!(fake.provider.end(&worker).await, Ok(()));
}

#[tokio::test]
async fn a_machine_whose_end_never_ends_is_ending() {
    let fake = OnFake::start().await;
    let worker = fake.launch(1).await.unwrap().remove(0);
    fake.settle().await;
    fake.google
        .fail("instances.delete", json!({"hang": true, "times": 9}))
        .await;
    for _ in 0..3 {
        assert_eq!(fake.provider.end(&worker).await, Ok(()));
        fake.settle().await;
        assert_eq!(fake.seen(&worker).await, Some(Sighting::Ending));
    }
}

#[tokio::test]
async fn a_machine_that_was_preempted_is_seen_as_such() {
    let fake = OnFake::start().await;
    let deleted = fake.launch(1).await.unwrap().remove(0);
    let mut configuration = simple();
    configuration["scheduling"] = json!({"provisioningModel": "SPOT"});
    let token = "BBBBBBBBQQCBBBBBBBBBBQ";
    let stopped = fake.launch_by(&fake.provider, token, 1, configuration);
    let stopped = stopped.await.unwrap().remove(0);
    fake.settle().await;
    fake.settle().await;
    for worker in [&deleted, &stopped] {
        assert_eq!(fake.seen(worker).await, Some(Sighting::Alive));
        let path = format!("preempt/{}", worker.key.id);
        fake.google.act(&path, &json!({})).await;
        assert_eq!(fake.seen(worker).await, ended("Google has preempted it"));
    }
    // The stopped one costs money, so it was deleted.
    assert_eq!(fake.google.n_calls("instances.delete").await, 1);
    fake.settle().await;
    fake.settle().await;
    assert_eq!(fake.seen(&stopped).await, ended("Google has preempted it"));
    assert!(fake.owned().await.is_empty());
}

#[tokio::test]
async fn a_machine_that_was_stopped_is_deleted_and_one_of_others_is_not() {
    let fake = OnFake::start().await;
    let own = fake.launch(1).await.unwrap().remove(0);
    let theirs = fake.foreigner().await.unwrap();
    for worker in [&own, &theirs] {
        let path = format!("status/{}/TERMINATED", worker.key.id);
        fake.google.act(&path, &json!({})).await;
        assert_eq!(fake.seen(worker).await, ended("TERMINATED"));
    }
    assert_eq!(fake.google.n_calls("instances.delete").await, 1);
}

#[tokio::test]
async fn a_region_with_an_unreachable_zone_is_missing_and_the_others_are_listed() {
    let fake = OnFake::start().await;
    fake.launch(1).await.unwrap();
    let fault = json!({"unreachable": "europe-west1-b"});
    fake.google.fail("instances.aggregatedList", fault).await;
    let listing = fake.provider.owned().await.unwrap();
    assert_eq!(listing.machines.len(), 1);
    let missing: Vec<_> = listing.missing.keys().map(ToString::to_string).collect();
    assert_eq!(missing, ["europe-west1"]);
    assert_eq!(fake.google.n_calls("instances.aggregatedList").await, 1);
    fake.settle().await;
    assert!(fake.provider.owned().await.unwrap().missing.is_empty());
    let zone = "europe-west1-b".parse().unwrap();
    let region = fake.provider.region_of(&zone);
    assert_eq!(region, Region::Group("europe-west1".parse().unwrap()));
}

#[tokio::test]
async fn errors_of_other_calls_are_sorted_by_what_to_do_next() {
    let fake = OnFake::start().await;
    let worker = fake.launch(1).await.unwrap().remove(0);
    let workers = std::slice::from_ref(&worker);
    for (status, reason) in [
        (403, "rateLimitExceeded"),
        (503, "backendError"),
        (403, "forbidden"),
        (400, "invalid"),
    ] {
        let fault = json!({"status": status, "reason": reason, "times": 2});
        fake.google.fail("instances.get", fault).await;
        let look = fake.provider.look(workers).await.unwrap_err();
        let end = fake.provider.end(&worker).await.unwrap_err();
        for error in [look, end] {
            let is_right = match reason {
                "rateLimitExceeded" => matches!(error, CloudError::Throttled(_)),
                "backendError" => matches!(error, CloudError::Unavailable(_)),
                "forbidden" => matches!(error, CloudError::Credentials(_)),
                _ => matches!(error, CloudError::Refused(_)),
            };
            assert!(is_right, "{reason}: {error}");
        }
    }
    assert_eq!(fake.seen(&worker).await, Some(Sighting::Alive));
}
