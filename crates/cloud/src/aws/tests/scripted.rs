//! Responses that no server gives on demand, sent by the proxy: long lists, unknown words, silence.

use std::time::Duration;

use ::testing::sizes_around;
use serde_json::json;

use super::proxy::{InjectedFailure, Proxy};
use crate::aws::error::Ec2Error;
use crate::aws::machines::{END_BATCH, LOOK_BATCH, MAX_PAGES, PAGE};
use crate::aws::parameters::Parameters;
use crate::aws::responses::{DescribeInstances, DescribeRegions, EmptyResponse};
use crate::aws::{AwsConfig, AwsProvider};
use crate::tests::values::{ROOT_URL, TestClock, context_at, edit, worker};
use crate::{CloudError, MachineEnd, Machines as _, Provider as _, Sighting};
use domain::worker::{Worker, WorkerState};

/// A provider with one region and only the proxy behind it.
pub(super) async fn alone() -> (AwsProvider, Proxy) {
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

pub(super) fn answer(proxy: &Proxy, action: &'static str, body: &str) {
    let body = body.to_owned();
    proxy.next(action, InjectedFailure::Answer { status: 200, body });
}

pub(super) fn instance(id: &str, state: &str, owner: &str) -> String {
    format!(
        "<item><instanceId>{id}</instanceId><instanceState><name>{state}</name></instanceState>\
         <stateReason><code>Server.X</code><message>because</message></stateReason><tagSet>\
         <item><key>fleetwright:deployment</key><value>{owner}</value></item>\
         <item><key>fleetwright:provider</key><value>aws</value></item></tagSet></item>"
    )
}

pub(super) fn page(instances: &[String], next: &str) -> String {
    format!(
        "<DescribeInstancesResponse><reservationSet><item><ownerId>1</ownerId><instancesSet>{}\
         </instancesSet></item></reservationSet><nextToken>{next}</nextToken>\
         </DescribeInstancesResponse>",
        instances.concat()
    )
}

pub(super) fn row(id: &str) -> Worker {
    let mut worker = worker(WorkerState::Running);
    edit(&mut worker, |it| {
        it.key.group = "us-west-2".parse().unwrap();
        it.key.id = id.parse().unwrap();
    });
    worker
}

#[tokio::test]
async fn each_state_of_a_machine_has_its_meaning() {
    let (provider, proxy) = alone().await;
    let states = [
        ("pending", Some(Sighting::Alive)),
        ("running", Some(Sighting::Alive)),
        ("shutting-down", Some(Sighting::Ending)),
        ("stopping", Some(Sighting::Ending)),
        ("stopped", Some(Sighting::Ending)),
        (
            "terminated",
            Some(Sighting::Ended(MachineEnd::because(Some(
                "Server.X: because".to_owned(),
            )))),
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
    // It was stopped but is not ours, so it was not ended.
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
async fn our_machines_are_listed_in_the_largest_pages_and_none_is_left_out() {
    let page_size = usize::try_from(PAGE).unwrap();
    for count in sizes_around("cloud::aws::machines::PAGE", page_size) {
        let (provider, proxy) = alone().await;
        let found: Vec<String> = ids(0..count).iter().map(|id| ours(id)).collect();
        let n_pages = count.div_ceil(page_size).max(1);
        for number in 0..n_pages {
            let some = found.iter().skip(number * page_size).take(page_size);
            let next = if number + 1 < n_pages { "more" } else { "" };
            let some: Vec<String> = some.cloned().collect();
            answer(&proxy, "DescribeInstances", &page(&some, next));
        }
        let owned = provider.owned().await.unwrap().machines;
        let listed: Vec<_> = owned.iter().map(|it| it.machine.id.to_string()).collect();
        assert_eq!(listed, ids(0..count));
        let calls = proxy.calls("DescribeInstances");
        assert_eq!(calls.len(), n_pages);
        assert!(calls.iter().all(|call| call["MaxResults"] == "1000"));
    }
}

#[tokio::test]
async fn the_number_of_pages_of_a_list_has_a_limit() {
    const LIMIT: usize = 20;
    for n_pages in sizes_around("cloud::aws::machines::MAX_PAGES", LIMIT) {
        let (provider, proxy) = alone().await;
        let ids = ids(0..n_pages.max(1));
        for id in &ids {
            let next = if Some(id) == ids.last() { "" } else { "more" };
            answer(&proxy, "DescribeInstances", &page(&[ours(id)], next));
        }
        let question = Parameters::default();
        let read = provider.pages_at_most::<DescribeInstances>(LIMIT, "us-west-2", question);
        match read.await {
            Ok(found) => {
                assert!(n_pages <= LIMIT, "{n_pages} are too many");
                let instances = found.iter().flat_map(|it| &it.instances_set.items);
                let found: Vec<_> = instances.map(|it| it.instance_id.clone()).collect();
                assert_eq!(found, ids);
            }
            Err(error) => {
                assert!(n_pages > LIMIT, "{n_pages} are not too many");
                let wanted = "the list of DescribeInstances has more than 20 pages";
                assert!(error.to_string().contains(wanted), "{error}");
            }
        }
        let n_calls = proxy.calls("DescribeInstances").len();
        assert_eq!(n_calls, n_pages.clamp(1, LIMIT));
    }
}

#[tokio::test]
async fn a_look_gives_up_on_an_endless_list() {
    let (provider, proxy) = alone().await;
    // Where EC2 does not know some machines, a filter is used and its response is read page by
    // page.
    let unknown = InjectedFailure::Refuse {
        status: 400,
        code: "InvalidInstanceID.NotFound",
    };
    proxy.next("DescribeInstances", unknown);
    for _ in 0..MAX_PAGES {
        answer(&proxy, "DescribeInstances", &page(&[], "more"));
    }
    let error = provider.look(&[row("i-1"), row("i-2")]).await;
    let error = error.unwrap_err().to_string();
    let wanted = "the list of DescribeInstances has more than 1000 pages";
    assert!(error.contains(wanted), "{error}");
    assert_eq!(proxy.calls("DescribeInstances").len(), 1 + MAX_PAGES);
}

#[tokio::test]
async fn a_machine_of_another_deployment_that_a_filter_lists_is_not_ours() {
    let (provider, proxy) = alone().await;
    let theirs = instance("i-1", "running", "https://elsewhere.example.com");
    answer(&proxy, "DescribeInstances", &page(&[theirs], ""));
    assert_eq!(provider.owned().await.unwrap().machines, []);
}

#[tokio::test]
async fn a_machine_that_cannot_be_seen_is_ended_all_the_same() {
    let (provider, proxy) = alone().await;
    let unknown = || InjectedFailure::Refuse {
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
    numbers.map(|number| format!("i-{number:05}")).collect()
}

fn rows(ids: &[String]) -> Vec<Worker> {
    ids.iter().map(|id| row(id)).collect()
}

/// The tags of our machines.
fn ours(id: &str) -> String {
    instance(id, "running", ROOT_URL)
}

/// How many machines each call of an action names, and all their ids.
fn named(proxy: &Proxy, action: &str) -> (Vec<usize>, Vec<String>) {
    let (mut sizes, mut ids) = (Vec::new(), Vec::new());
    for call in proxy.calls(action) {
        let before = ids.len();
        let named = call.into_iter();
        let named = named.filter(|(name, _)| name.starts_with("InstanceId."));
        ids.extend(named.map(|(_, id)| id));
        sizes.push(ids.len() - before);
    }
    ids.sort();
    sizes.sort_unstable();
    (sizes, ids)
}

/// The sizes of the batches of `count` items: the first may be smaller, the others are full.
fn batches(count: usize, batch: usize) -> Vec<usize> {
    let rest = Some(count % batch).filter(|rest| *rest > 0);
    let full = std::iter::repeat_n(batch, count / batch);
    rest.into_iter().chain(full).collect()
}

#[tokio::test]
async fn many_machines_of_a_region_are_ended_by_two_calls_for_each_batch() {
    for count in sizes_around("cloud::aws::machines::END_BATCH", END_BATCH) {
        let (provider, proxy) = alone().await;
        assert_eq!(provider.end_batch(), END_BATCH);
        let ids = ids(0..count);
        for _ in 0..count.div_ceil(END_BATCH) {
            answer(&proxy, "DescribeInstances", &page(&[], ""));
            answer(&proxy, "TerminateInstances", "<a/>");
        }
        let results = provider.end_many(&rows(&ids)).await;
        assert_eq!(results, vec![Ok(()); count]);
        for action in ["DescribeInstances", "TerminateInstances"] {
            let expected = (batches(count, END_BATCH), ids.clone());
            assert_eq!(named(&proxy, action), expected, "{action}");
        }
    }
}

#[tokio::test]
async fn many_machines_of_a_region_are_looked_at_by_one_call_for_each_batch() {
    for count in sizes_around("cloud::aws::machines::LOOK_BATCH", LOOK_BATCH) {
        let (provider, proxy) = alone().await;
        assert_eq!(provider.look_batch(), LOOK_BATCH);
        let ids = ids(0..count);
        for _ in 0..count.div_ceil(LOOK_BATCH) {
            answer(&proxy, "DescribeInstances", &page(&[], ""));
        }
        let rows = rows(&ids);
        let mut seen = provider.look(&rows).await.unwrap();
        seen.sort_by(|(one, _), (other, _)| one.cmp(other));
        let expected = rows
            .into_iter()
            .map(|it| (it.into_stored().key, Sighting::NotFound));
        assert_eq!(seen, expected.collect::<Vec<_>>());
        let expected = (batches(count, LOOK_BATCH), ids);
        assert_eq!(named(&proxy, "DescribeInstances"), expected);
    }
}

#[tokio::test]
async fn a_machine_that_ec2_refuses_to_end_does_not_keep_others_from_ending() {
    let (provider, proxy) = alone().await;
    let ids = ids(0..4);
    let found: Vec<String> = ids.iter().map(|id| ours(id)).collect();
    answer(&proxy, "DescribeInstances", &page(&found, ""));
    let protected = || InjectedFailure::Refuse {
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
async fn a_throttled_end_is_not_split_into_more_calls() {
    let (provider, proxy) = alone().await;
    let ids = ids(0..4);
    let found: Vec<String> = ids.iter().map(|id| ours(id)).collect();
    answer(&proxy, "DescribeInstances", &page(&found, ""));
    proxy.next(
        "TerminateInstances",
        InjectedFailure::Refuse {
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
async fn a_time_out_is_a_lost_response() {
    let (provider, proxy) = alone().await;
    proxy.next("RunInstances", InjectedFailure::Stall);
    let limit = Duration::from_millis(50);
    let parameters = Parameters::default();
    let silent: Result<EmptyResponse, _> = provider
        .ec2
        .call_within(limit, "us-west-2", "RunInstances", &parameters)
        .await;
    assert!(matches!(silent, Err(Ec2Error::Lost(_))), "{silent:?}");
}

#[tokio::test]
async fn a_key_file_is_read_again_after_its_key_was_refused() {
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
        proxy.next(
            "DescribeRegions",
            InjectedFailure::Refuse { status: 400, code },
        );
        let credentials = matches!(ask().await, CloudError::Credentials(_));
        assert_eq!(credentials, refused, "{code}");
        std::fs::write(file.path(), "right").unwrap();
    }
    // A missing permission is no reason to read the key file again; a bad signature is.
    assert_eq!(signature(0), signature(1));
    assert_ne!(signature(1), signature(2));
}
