//! Answers that no server gives on demand, told by the proxy alone: long lists, strange words, silence.

use std::time::Duration;

use serde_json::json;

use super::proxy::{Proxy, Trouble};
use crate::aws::answers::{DescribeRegions, Done};
use crate::aws::error::Ec2Error;
use crate::aws::parameters::Parameters;
use crate::aws::{AwsConfig, AwsProvider};
use crate::provider_tests::{ROOT_URL, TestClock, context_at, worker};
use crate::{CloudError, Machines as _, Provider as _, Sighting};
use domain::worker::{Worker, WorkerState};

/// A provider of one region behind which there is nothing but the proxy.
async fn alone() -> (AwsProvider, Proxy) {
    let proxy = Proxy::start("").await;
    let config: AwsConfig = serde_json::from_value(json!({
        "access_key_id": "AKID", "secret_access_key": "hush",
        "endpoint": proxy.url, "regions": ["us-west-2"],
    }))
    .unwrap();
    let provider = AwsProvider::new(&config, context_at("aws", &TestClock::new()));
    let regions = "<DescribeRegionsResponse><regionInfo><item><regionName>us-west-2</regionName>\
                   </item></regionInfo></DescribeRegionsResponse>";
    answer(&proxy, "DescribeRegions", regions);
    provider.setup().await.unwrap();
    (provider, proxy)
}

fn answer(proxy: &Proxy, action: &'static str, body: &str) {
    let body = body.to_owned();
    proxy.next(action, Trouble::Answer { status: 200, body });
}

fn instance(id: &str, state: &str, owner: &str) -> String {
    format!(
        "<item><instanceId>{id}</instanceId><instanceState><name>{state}</name></instanceState>\
         <stateReason><code>Server.X</code><message>because</message></stateReason><tagSet>\
         <item><key>fleetwright:deployment</key><value>{owner}</value></item>\
         <item><key>fleetwright:provider</key><value>aws</value></item></tagSet></item>"
    )
}

fn page(instances: &[String], next: &str) -> String {
    format!(
        "<DescribeInstancesResponse><reservationSet><item><ownerId>1</ownerId><instancesSet>{}\
         </instancesSet></item></reservationSet><nextToken>{next}</nextToken>\
         </DescribeInstancesResponse>",
        instances.concat()
    )
}

fn row(id: &str) -> Worker {
    let mut worker = worker(WorkerState::Running);
    worker.key.group = "us-west-2".parse().unwrap();
    worker.key.id = id.parse().unwrap();
    worker
}

#[tokio::test]
async fn each_state_of_a_machine_has_its_meaning() {
    let (provider, proxy) = alone().await;
    let states = [
        ("pending", Some(Sighting::Alive)),
        ("running", Some(Sighting::Alive)),
        ("shutting-down", Some(Sighting::Going)),
        ("stopping", Some(Sighting::Going)),
        ("stopped", Some(Sighting::Going)),
        (
            "terminated",
            Some(Sighting::Gone(Some("Server.X: because".to_owned()))),
        ),
        ("hibernating-in-space", None),
    ];
    for (state, expected) in states {
        answer(
            &proxy,
            "DescribeInstances",
            &page(&[instance("i-1", state, "x")], ""),
        );
        let seen = provider.look(&[row("i-1")]).await.unwrap();
        let seen = seen.into_iter().next().map(|(_, sighting)| sighting);
        assert_eq!(seen, expected, "{state}");
    }
    // It was stopped, but it is not ours.
    assert!(proxy.calls("TerminateInstances").is_empty());
}

#[tokio::test]
async fn a_list_is_read_to_its_last_page() {
    let (provider, proxy) = alone().await;
    let pages = [("i-1", "two"), ("i-2", "three"), ("i-3", "")];
    for (id, next) in pages {
        let one = instance(id, "running", ROOT_URL);
        answer(&proxy, "DescribeInstances", &page(&[one], next));
    }
    let owned = provider.owned().await.unwrap().machines;
    let ids: Vec<_> = owned.iter().map(|it| it.machine.id.as_str()).collect();
    assert_eq!(ids, ["i-1", "i-2", "i-3"]);
    assert!(owned.iter().all(|it| it.token.is_none()), "no tag names it");
    let calls = proxy.calls("DescribeInstances");
    let tokens: Vec<_> = calls.iter().map(|call| call.get("NextToken")).collect();
    assert_eq!(
        tokens,
        [None, Some(&"two".to_owned()), Some(&"three".to_owned())]
    );
    assert_eq!(calls[0]["MaxResults"], "1000");
}

#[tokio::test]
async fn a_list_without_an_end_is_given_up() {
    let (provider, proxy) = alone().await;
    for _ in 0..1_000 {
        answer(&proxy, "DescribeInstances", &page(&[], "more"));
    }
    let refused = provider.owned().await.unwrap_err().to_string();
    assert!(
        refused.contains("did not end within 1000 pages"),
        "{refused}"
    );
    assert_eq!(proxy.calls("DescribeInstances").len(), 1_000);
}

#[tokio::test]
async fn a_filter_that_found_too_much_does_not_make_it_ours() {
    let (provider, proxy) = alone().await;
    let theirs = instance("i-1", "running", "https://elsewhere.example.com");
    answer(&proxy, "DescribeInstances", &page(&[theirs], ""));
    assert_eq!(provider.owned().await.unwrap().machines, []);
}

#[tokio::test]
async fn a_machine_that_cannot_be_seen_is_ended_all_the_same() {
    let (provider, proxy) = alone().await;
    let unknown = || Trouble::Refuse {
        status: 400,
        code: "InvalidInstanceID.NotFound",
    };
    proxy.next("DescribeInstances", unknown());
    answer(
        &proxy,
        "TerminateInstances",
        "<TerminateInstancesResponse/>",
    );
    provider.end(&row("i-1")).await.unwrap();
    assert_eq!(proxy.calls("TerminateInstances")[0]["InstanceId.1"], "i-1");
    proxy.next("DescribeInstances", unknown());
    proxy.next("TerminateInstances", unknown());
    provider.end(&row("i-1")).await.unwrap();
}

fn ids(numbers: std::ops::Range<usize>) -> Vec<String> {
    numbers.map(|number| format!("i-{number:04}")).collect()
}

fn rows(ids: &[String]) -> Vec<Worker> {
    ids.iter().map(|id| row(id)).collect()
}

/// What tells EC2 that a machine is ours.
fn ours(id: &str) -> String {
    instance(id, "running", ROOT_URL)
}

#[tokio::test]
async fn many_machines_of_a_region_are_ended_by_two_calls() {
    let (provider, proxy) = alone().await;
    assert_eq!(provider.end_batch(), 100);
    for (number, count) in [1, 99, 100].into_iter().enumerate() {
        let ids = ids(0..count);
        let found: Vec<String> = ids.iter().map(|id| ours(id)).collect();
        answer(&proxy, "DescribeInstances", &page(&found, ""));
        answer(&proxy, "TerminateInstances", "<a/>");
        let results = provider.end_many(&rows(&ids)).await;
        assert_eq!(results, vec![Ok(()); count]);
        assert_eq!(proxy.calls("DescribeInstances").len(), number + 1);
        let ends = proxy.calls("TerminateInstances");
        assert_eq!(ends.len(), number + 1);
        let last = format!("InstanceId.{count}");
        assert_eq!(ends[number].get(&last), ids.last());
    }
    assert_eq!(provider.end_many(&[]).await, []);
}

#[tokio::test]
async fn a_machine_that_ec2_refuses_to_end_keeps_no_other_from_its_end() {
    let (provider, proxy) = alone().await;
    let ids = ids(0..4);
    let found: Vec<String> = ids.iter().map(|id| ours(id)).collect();
    answer(&proxy, "DescribeInstances", &page(&found, ""));
    let protected = || Trouble::Refuse {
        status: 400,
        code: "OperationNotPermitted",
    };
    // All four, the first two, the last two, the third, the fourth.
    proxy.next("TerminateInstances", protected());
    answer(&proxy, "TerminateInstances", "<a/>");
    proxy.next("TerminateInstances", protected());
    answer(&proxy, "TerminateInstances", "<a/>");
    proxy.next("TerminateInstances", protected());
    let results = provider.end_many(&rows(&ids)).await;
    let ended: Vec<bool> = results.iter().map(Result::is_ok).collect();
    assert_eq!(ended, [true, true, true, false]);
    assert!(matches!(results[3], Err(CloudError::Refused(_))));
    let calls = proxy.calls("TerminateInstances");
    let sizes: Vec<usize> = calls
        .iter()
        .map(|call| {
            call.keys()
                .filter(|key| key.starts_with("InstanceId."))
                .count()
        })
        .collect();
    assert_eq!(sizes, [4, 2, 2, 1, 1]);
}

#[tokio::test]
async fn an_end_that_is_throttled_is_not_cut_into_more_calls() {
    let (provider, proxy) = alone().await;
    let ids = ids(0..4);
    let found: Vec<String> = ids.iter().map(|id| ours(id)).collect();
    answer(&proxy, "DescribeInstances", &page(&found, ""));
    proxy.next(
        "TerminateInstances",
        Trouble::Refuse {
            status: 503,
            code: "RequestLimitExceeded",
        },
    );
    let results = provider.end_many(&rows(&ids)).await;
    let is_throttled = |result| matches!(result, Err(CloudError::Throttled(_)));
    assert!(results.into_iter().all(is_throttled));
    assert_eq!(proxy.calls("TerminateInstances").len(), 1);
}

#[tokio::test]
async fn silence_is_a_lost_answer_once_the_time_is_up() {
    let (provider, proxy) = alone().await;
    proxy.next("RunInstances", Trouble::Stall);
    let limit = Duration::from_millis(50);
    let parameters = Parameters::default();
    let silent: Result<Done, _> = provider
        .ec2
        .call_within(limit, "us-west-2", "RunInstances", &parameters)
        .await;
    assert!(matches!(silent, Err(Ec2Error::Lost(_))), "{silent:?}");
}

#[tokio::test]
async fn a_wrong_key_in_the_file_is_looked_at_again_after_it_was_refused() {
    let proxy = Proxy::start("").await;
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), "wrong").unwrap();
    let config: AwsConfig = serde_json::from_value(json!({
        "access_key_id": "AKID", "secret_access_key_file": file.path(), "endpoint": proxy.url,
    }))
    .unwrap();
    let provider = AwsProvider::new(&config, context_at("aws", &TestClock::new()));
    let ask = async || {
        let nothing = Parameters::default();
        let answer: Result<DescribeRegions, _> = provider
            .ec2
            .call("us-east-1", "DescribeRegions", &nothing)
            .await;
        CloudError::from(answer.unwrap_err())
    };
    let signature = |call: usize| proxy.authorization("DescribeRegions", call);
    for (code, refused) in [
        ("UnauthorizedOperation", true),
        ("SignatureDoesNotMatch", true),
        ("InternalError", false),
    ] {
        proxy.next("DescribeRegions", Trouble::Refuse { status: 400, code });
        let credentials = matches!(ask().await, CloudError::Credentials(_));
        assert_eq!(credentials, refused, "{code}");
        std::fs::write(file.path(), "right").unwrap();
    }
    // Not being allowed to is no reason to look for another key; a bad signature is.
    assert_eq!(signature(0), signature(1));
    assert_ne!(signature(1), signature(2));
}
