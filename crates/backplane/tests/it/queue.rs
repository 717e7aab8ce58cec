//! Demand from a Taskcluster queue: in batches, one by one where needed, and with separate errors.

use std::sync::Arc;

use access::Secret;
use backplane::{DemandError, MAX_BATCH, QueueAccess, TaskclusterQueue};
use domain::demand::Demand;
use domain::id::PoolId;
use domain::time::{Clock, Timestamp};
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use testing::sizes_around;

use crate::scripted::{Script, ScriptedServer};

struct FixedClock;

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_millis(1_790_000_000_000)
    }
}

fn queue_at(root_url: &str) -> TaskclusterQueue {
    TaskclusterQueue::new(QueueAccess {
        root_url: root_url.to_owned(),
        client_id: "static/fleet".to_owned(),
        access_token: Secret::new("t".repeat(44)),
        clock: Arc::new(FixedClock),
        random: Box::new(StdRng::seed_from_u64(1)),
    })
    .unwrap()
}

async fn scripted(
    script: impl Fn(&str, &str) -> (u16, String) + Send + Sync + 'static,
) -> (ScriptedServer, TaskclusterQueue) {
    let server = ScriptedServer::start(script).await;
    let queue = queue_at(&server.root_url);
    (server, queue)
}

fn pools(names: &[&str]) -> Vec<PoolId> {
    names.iter().map(|name| name.parse().unwrap()).collect()
}

fn counts(queue: &str, pending: u64, claimed: u64) -> Value {
    let (provisioner, worker_type) = queue.split_once('/').unwrap();
    json!({"provisionerId": provisioner, "workerType": worker_type, "taskQueueId": queue,
        "pendingTasks": pending, "claimedTasks": claimed})
}

fn refusal(code: &str) -> String {
    let message = format!("{code}: no\n\n---\n\n* method: x");
    json!({"code": code, "message": message}).to_string()
}

/// The counts of a single queue: the last letter of its name is the number of tasks.
fn single(line: &str) -> String {
    let name = line.split("/task-queues/").nth(1).unwrap();
    let name = name.split("/counts").next().unwrap().replace("%2F", "/");
    let last = u64::from(*name.as_bytes().last().unwrap() - b'a');
    counts(&name, last, 10 + last).to_string()
}

/// The counts of a batch: the number in a queue's name is the number of tasks.
fn batch(body: &str) -> String {
    let asked: Value = serde_json::from_str(body).unwrap();
    let asked = asked["taskQueueIds"].as_array().unwrap();
    assert!(asked.len() <= MAX_BATCH, "the service refuses more");
    let waiting = |name: &str| name.trim_start_matches("p/q").parse().unwrap_or(3);
    let counts: Vec<Value> = asked
        .iter()
        .filter_map(Value::as_str)
        // In another order than requested, as the service may do.
        .rev()
        .map(|name| counts(name, waiting(name), 4))
        .collect();
    json!({"taskQueueCounts": counts}).to_string()
}

fn demand(pending: u64, claimed: u64) -> Demand {
    Demand { pending, claimed }
}

#[tokio::test]
async fn many_queues_are_asked_about_in_batches() {
    for count in sizes_around("backplane::taskcluster_queue::MAX_BATCH", MAX_BATCH) {
        let (server, queue) = scripted(|_, body| (200, batch(body))).await;
        let pools: Vec<PoolId> = (0..count)
            .map(|number| format!("p/q{number}").parse().unwrap())
            .collect();
        let answers = queue.demand(&pools).await.into_iter();
        let answers: Vec<Demand> = answers.map(Result::unwrap).collect();
        // Each has the answer about itself.
        let own = |number: usize| demand(u64::try_from(number).unwrap(), 4);
        assert_eq!(answers, (0..count).map(own).collect::<Vec<_>>());
        let line = "POST /api/queue/v1/task-queues/counts HTTP/1.1";
        assert_eq!(server.lines(), vec![line; count.div_ceil(MAX_BATCH)]);
        for head in server.heads() {
            let head = head.to_lowercase();
            assert!(
                head.contains("authorization: hawk id=\"static/fleet\", ts=\"1790000000\""),
                "{head}"
            );
            assert!(head.contains("hash="), "the body is signed as well");
        }
    }
}

#[tokio::test]
async fn a_deployment_without_the_batch_is_asked_queue_by_queue() {
    let (server, queue) = scripted(|line, _| {
        if line.starts_with("POST") {
            (404, r#"{"error":"Not found"}"#.to_owned())
        } else {
            (200, single(line))
        }
    })
    .await;
    let pools = pools(&["p/a", "p/c", "p/b"]);
    for _ in 0..2 {
        let answers = queue.demand(&pools).await;
        let answers: Vec<Demand> = answers.into_iter().map(Result::unwrap).collect();
        assert_eq!(answers, [demand(0, 10), demand(2, 12), demand(1, 11)]);
    }
    let lines = server.lines();
    let n_batches = lines.iter().filter(|line| line.starts_with("POST")).count();
    assert_eq!((n_batches, lines.len()), (1, 7), "the batch is tried once");
    assert!(
        lines[1].starts_with("GET /api/queue/v1/task-queues/p%2F"),
        "{lines:?}"
    );
}

#[tokio::test]
async fn a_queue_that_we_may_not_see_hides_no_other() {
    let (_, queue) = scripted(|line, _| {
        if line.starts_with("POST") || line.contains("%2Fb/") {
            (403, refusal("InsufficientScopes"))
        } else {
            (200, single(line))
        }
    })
    .await;
    let answers = queue.demand(&pools(&["p/a", "p/b", "p/c"])).await;
    assert_eq!(*answers[0].as_ref().unwrap(), demand(0, 10));
    assert_eq!(*answers[2].as_ref().unwrap(), demand(2, 12));
    let problem = answers[1].as_ref().unwrap_err().to_string();
    assert!(
        problem.ends_with("refused with 403: InsufficientScopes: no"),
        "{problem}"
    );
}

#[tokio::test]
async fn one_batch_that_fails_spoils_no_other() {
    let (_, queue) = scripted(|_, body| {
        if body.contains("p/bad") {
            (500, "oh".to_owned())
        } else {
            (200, batch(body))
        }
    })
    .await;
    let mut pools: Vec<PoolId> = (0..1_000)
        .map(|number| format!("p/q{number}").parse().unwrap())
        .collect();
    pools.push("p/bad".parse().unwrap());
    let answers = queue.demand(&pools).await;
    assert!(answers[..1_000].iter().all(Result::is_ok));
    let problem = answers[1_000].as_ref().unwrap_err();
    assert!(
        matches!(**problem, DemandError::Refused { status: 500, .. }),
        "{problem:?}"
    );
}

#[tokio::test]
async fn a_queue_missing_from_the_response_is_an_error_and_not_zero() {
    let (_, queue) = scripted(|_, _| (200, json!({"taskQueueCounts": []}).to_string())).await;
    let answers = queue.demand(&pools(&["p/a"])).await;
    let problem = answers[0].as_ref().unwrap_err();
    assert!(
        matches!(**problem, DemandError::NotMentioned(_)),
        "{problem:?}"
    );
}

#[tokio::test]
async fn invalid_responses_are_errors() {
    let scripts: [Script; 5] = [
        |_, _| (200, String::new()),
        |_, _| (200, "<html>".to_owned()),
        |_, _| (200, "[]".to_owned()),
        |_, _| (200, "{}".to_owned()),
        |_, _| {
            (
                200,
                r#"{"taskQueueCounts": [{"pendingTasks": -1}]}"#.to_owned(),
            )
        },
    ];
    for script in scripts {
        let (_, queue) = scripted(script).await;
        let answers = queue.demand(&pools(&["p/a"])).await;
        let problem = answers[0].as_ref().unwrap_err();
        assert!(
            matches!(**problem, DemandError::NoAnswer { .. }),
            "{problem:?}"
        );
        assert!(problem.to_string().contains("check its root URL"));
    }
}

#[tokio::test]
async fn an_unreachable_queue_is_an_error_for_each_pool() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let root_url = format!("http://{}/", listener.local_addr().unwrap());
    drop(listener);
    let answers = queue_at(&root_url).demand(&pools(&["p/a", "p/b"])).await;
    for answer in answers {
        let problem = answer.unwrap_err();
        assert!(
            matches!(*problem, DemandError::Unreachable { .. }),
            "{problem:?}"
        );
    }
}

#[tokio::test]
async fn busy_workers_are_read_page_by_page() {
    let (server, queue) = scripted(|line, _| {
        let claimed = |id: &str| {
            json!({"taskId": "T", "runId": 0, "workerGroup": "g",
            "workerId": id, "claimed": "2026-09-21T14:13:20.000Z", "task": {}})
        };
        let page = if line.contains("continuationToken=a%2Bb") {
            json!({"tasks": [claimed("w2"), claimed("no id at all")]})
        } else {
            json!({"tasks": [claimed("w1"), claimed("w1")], "continuationToken": "a+b"})
        };
        (200, page.to_string())
    })
    .await;
    let busy = queue.busy(&"p/q".parse().unwrap()).await.unwrap();
    let ids: Vec<&str> = busy.keys().map(|(_, id)| id.as_str()).collect();
    assert_eq!(ids, ["w1", "w2"]);
    let first = "GET /api/queue/v1/task-queues/p%2Fq/claimed?limit=1000 HTTP/1.1";
    assert_eq!(server.lines()[0], first);
}

/// A list of entries in pages of at most `most`, or of the requested size if it is smaller.
fn claimed(line: &str, count: usize, most: usize) -> String {
    let number = |key: &str| -> Option<usize> {
        let rest = line.split(key).nth(1)?;
        let digits = rest.split(|end: char| !end.is_ascii_digit()).next()?;
        Some(digits.parse().unwrap())
    };
    let start = number("continuationToken=").unwrap_or(0);
    let end = count.min(start + most.min(number("limit=").unwrap()));
    let entry = |number: usize| json!({"workerGroup": "g", "workerId": format!("w{number}")});
    let tasks: Vec<Value> = (start..end).map(entry).collect();
    let mut page = json!({"tasks": tasks});
    if end < count {
        page["continuationToken"] = json!(end.to_string());
    }
    page.to_string()
}

#[tokio::test]
async fn a_list_is_read_in_the_largest_pages_and_is_complete() {
    const PAGE: usize = 1_000;
    for count in sizes_around("backplane::taskcluster_queue::PAGE", PAGE) {
        let page = move |line: &str, _: &str| (200, claimed(line, count, usize::MAX));
        let (server, queue) = scripted(page).await;
        let busy = queue.busy(&"p/q".parse().unwrap()).await.unwrap();
        assert_eq!(busy.len(), count);
        assert_eq!(server.lines().len(), count.div_ceil(PAGE).max(1));
    }
}

#[tokio::test]
async fn the_number_of_pages_of_a_list_is_limited() {
    const MAX_PAGES: usize = 100;
    for count in sizes_around("backplane::taskcluster_queue::MAX_PAGES", MAX_PAGES) {
        let page = move |line: &str, _: &str| (200, claimed(line, count, 1));
        let (server, queue) = scripted(page).await;
        match queue.busy(&"p/q".parse().unwrap()).await {
            Ok(busy) => {
                assert!(count <= MAX_PAGES, "{count} are too many");
                assert_eq!(busy.len(), count);
            }
            Err(problem) => {
                assert!(count > MAX_PAGES, "{count} are not too many");
                let url = &server.root_url;
                let list = format!("{url}/api/queue/v1/task-queues/p%2Fq/claimed");
                let expected = format!("the list at {list} has more than 100 pages");
                assert_eq!(problem.to_string(), expected);
            }
        }
        assert_eq!(server.lines().len(), count.clamp(1, MAX_PAGES));
    }
}

#[tokio::test]
async fn the_queues_data_of_workers_is_read() {
    let (_, queue) = scripted(|line, _| {
        assert!(
            line.contains("/provisioners/p/worker%2Dtypes/")
                || line.contains("/provisioners/p/worker-types/q/workers?"),
            "{line}"
        );
        let workers = json!({"workers": [
            {"workerGroup": "g", "workerId": "w1", "firstClaim": "2026-09-21T14:13:20.000Z",
             "lastDateActive": "2026-09-21T15:13:20.000Z",
             "quarantineUntil": "2027-09-21T15:13:20.000Z",
             "latestTask": {"taskId": "T", "runId": 0}},
            {"workerGroup": "g", "workerId": "w2", "firstClaim": "2026-09-21T14:13:20.000Z"},
        ]});
        (200, workers.to_string())
    })
    .await;
    let workers = queue.workers(&"p/q".parse().unwrap()).await.unwrap();
    assert_eq!(workers.len(), 2);
    assert_eq!(workers[0].first_claim, FixedClock.now());
    assert_eq!(
        workers[0].last_date_active,
        Some(FixedClock.now().plus_seconds(3_600))
    );
    assert!(workers[0].quarantine_until.is_some());
    assert_eq!(workers[1].last_date_active, None);
}
