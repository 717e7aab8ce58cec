//! Demand from the queue of another deployment: here a second server, on a loopback socket.
//!
//! The database of the one that asks has no part in this, so these tests run on SQLite only.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use domain::demand::Demand;
use domain::id::PoolId;
use rand::SeedableRng;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{BrokerPublisher, EventPublisher, PendingTaskListener};
use server::config::OutsideQueue;
use testing::sizes_around;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ask::Who;
use crate::broker::{address, amqp, publish_to, unique};
use crate::database::Database;
use crate::samples::worker;
use crate::world::World;

const PATIENCE: Duration = Duration::from_secs(120);

/// A server with a queue, and a server that uses this queue.
struct Two {
    // Dropped first: its log is the one that is captured.
    fleet: World,
    queue: World,
    stop: CancellationToken,
    serving: JoinHandle<()>,
}

async fn asking(address: SocketAddr, who: &Who, broker: Option<&str>) -> World {
    let outside = OutsideQueue {
        root_url: format!("http://{address}/"),
        client_id: who.client_id.clone(),
        access_token: Some(who.token.clone()),
        access_token_file: None,
        pulse: broker.map(amqp),
    };
    World::open(Database::sqlite(), |config| {
        config.queue.taskcluster = Some(outside);
    })
    .await
}

impl Two {
    async fn start(scopes: &[&str], broker: Option<&str>) -> Self {
        let queue = World::open(Database::sqlite(), |config| {
            if let Some(url) = broker {
                publish_to(config, url);
            }
        })
        .await;
        let who = queue.client("fleet", scopes).await;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let stop = CancellationToken::new();
        let serving = tokio::spawn(Arc::clone(&queue.server).serve(listener, stop.clone()));
        Self {
            fleet: asking(address, &who, broker).await,
            queue,
            stop,
            serving,
        }
    }

    async fn stop_queue(&mut self) {
        self.stop.cancel();
        (&mut self.serving).await.unwrap();
    }

    async fn demand(&self, names: &[&str]) -> Result<BTreeMap<String, (u64, u64)>, String> {
        let pools: Vec<PoolId> = names.iter().map(|name| name.parse().unwrap()).collect();
        let app = &self.fleet.app;
        let known = app.engine.demand_source.read(&pools).await?;
        let plain =
            |(pool, demand): (PoolId, Demand)| (pool.to_string(), (demand.pending, demand.claimed));
        Ok(known.into_iter().map(plain).collect())
    }

    async fn task(&self, queue: &str) {
        let now = self.queue.now();
        let task = json!({"taskQueueId": queue, "created": now.to_string(),
            "deadline": now.plus_seconds(3_600).to_string(), "payload": {},
            "metadata": {"name": "n", "description": "d", "owner": "a@b.c", "source": "https://x.y/"}});
        let id = self.queue.app.engine.random.slugid();
        self.queue
            .put(&format!("queue:/task/{id}"), task)
            .await
            .expect(200);
    }

    /// Lets this worker claim a task.
    async fn claim(&self, queue: &str, worker: &str) {
        let path = format!("queue:/claim-work/{}", queue.replace('/', "%2F"));
        let body = json!({"tasks": 1, "workerGroup": "g", "workerId": worker});
        let claimed = self.queue.post(&path, body).await.expect(200);
        assert_eq!(
            claimed["tasks"].as_array().map(Vec::len),
            Some(1),
            "{claimed}"
        );
    }
}

const ALL: &[&str] = &[
    "queue:pending-count:*",
    "queue:claimed-count:*",
    "queue:claimed-list:*",
    "queue:list-workers:*",
    "queue:get-worker:*",
];

fn answer(rows: &[(&str, (u64, u64))]) -> BTreeMap<String, (u64, u64)> {
    rows.iter()
        .map(|(name, counts)| ((*name).to_owned(), *counts))
        .collect()
}

#[tokio::test]
async fn pending_and_running_tasks_of_the_other_queue_are_known() {
    let two = Two::start(ALL, None).await;
    for queue in ["pp/a", "pp/a", "pp/a", "pp/b"] {
        two.task(queue).await;
    }
    two.claim("pp/a", "w1").await;
    let expected = answer(&[("pp/a", (2, 1)), ("pp/b", (1, 0)), ("pp/none", (0, 0))]);
    assert_eq!(two.demand(&["pp/none", "pp/a", "pp/b"]).await, Ok(expected));

    let busy = two
        .fleet
        .app
        .engine
        .demand_source
        .busy_workers(&"pp/a".parse().unwrap())
        .await
        .unwrap();
    let busy: Vec<String> = busy
        .iter()
        .map(|((group, id), claimed)| format!("{group}/{id} {claimed}"))
        .collect();
    assert_eq!(busy, ["g/w1 1"]);
}

#[tokio::test]
async fn workers_of_the_other_queue_are_known() {
    let two = Two::start(ALL, None).await;
    two.task("pp/a").await;
    two.claim("pp/a", "w1").await;
    let workers = [
        worker("pp/a", "g", "w1"),
        worker("pp/a", "g", "w2"),
        worker("pp/b", "g", "w1"),
    ];
    let app = &two.fleet.app;
    let known = app
        .engine
        .demand_source
        .worker_activity(&workers, app.engine.clock.now())
        .await
        .unwrap();
    assert_eq!(known.len(), 1);
    let seen = &known[&workers[0].key];
    assert_eq!(seen.first_claim, two.queue.now());
    assert!(!seen.is_quarantined(two.queue.now()));
}

const LISTED: &str = "/provisioners/pp/worker-types/a/workers";

impl Two {
    async fn listed(&self, query: &str) -> Value {
        self.fleet
            .get(&format!("{LISTED}{query}"))
            .await
            .expect(200)
    }
}

fn names(listed: &Value) -> Vec<&str> {
    let workers = listed["workers"].as_array().unwrap().iter();
    workers
        .map(|worker| worker["workerId"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn workers_are_shown_with_the_data_of_that_queue_and_ours() {
    let two = Two::start(ALL, None).await;
    for id in ["w1", "w2", "w3"] {
        two.task("pp/a").await;
        two.claim("pp/a", id).await;
    }
    two.fleet.insert(worker("pp/a", "g", "w1")).await;
    two.fleet.insert(worker("pp/a", "g", "never-claimed")).await;
    let until = two.queue.now().plus_seconds(3_600).to_string();
    two.queue
        .put(
            "queue:/provisioners/pp/worker-types/a/workers/g/w3",
            json!({ "quarantineUntil": until, "quarantineInfo": "broken" }),
        )
        .await
        .expect(200);

    let all = two.listed("").await;
    assert_eq!(names(&all), ["w1", "w2", "w3"]);
    let of = |number: usize, key: &str| all["workers"][number][key].clone();
    assert_eq!(
        (of(0, "state"), of(0, "providerId")),
        (json!("requested"), json!("google"))
    );
    assert_eq!(
        (of(1, "state"), of(1, "providerId")),
        (json!("standalone"), json!("none"))
    );
    assert_eq!(of(0, "latestTask")["runId"], 0);
    assert_eq!(of(2, "quarantineUntil"), until);
    assert_eq!(names(&two.listed("?workerState=requested").await), ["w1"]);
    assert!(names(&two.listed("?workerState=running").await).is_empty());
    assert_eq!(names(&two.listed("?quarantined=true").await), ["w3"]);

    let ours = two.fleet.get(&format!("{LISTED}/g/w1")).await.expect(200);
    assert_eq!(
        (&ours["state"], &ours["capacity"]),
        (&json!("requested"), &json!(1))
    );
    assert_eq!(ours["recentTasks"].as_array().unwrap().len(), 1);
    let theirs = two.fleet.get(&format!("{LISTED}/g/w3")).await.expect(200);
    assert_eq!(theirs["state"], "standalone");
    assert_eq!(theirs["quarantineDetails"][0]["quarantineInfo"], "broken");
    let none = two.fleet.get(&format!("{LISTED}/g/never-claimed")).await;
    none.refused_with(404, "ResourceNotFound", "`never-claimed`");
}

#[tokio::test]
async fn pages_of_that_queue_are_pages_here() {
    let two = Two::start(ALL, None).await;
    let limit = 2;
    let mut n_seen = 0;
    for wanted in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
        for number in n_seen..wanted {
            two.task("pp/a").await;
            two.claim("pp/a", &format!("w{number:02}")).await;
        }
        n_seen = wanted;
        for (filter, expected) in [("", wanted), ("&workerState=running", 0)] {
            let (mut seen, mut token) = (0, String::new());
            loop {
                let page = two.listed(&format!("?limit={limit}{filter}{token}")).await;
                assert!(names(&page).len() <= limit);
                seen += names(&page).len();
                match page["continuationToken"].as_str() {
                    Some(next) => token = format!("&continuationToken={next}"),
                    None => break,
                }
            }
            assert_eq!(seen, expected, "{wanted} {filter}");
        }
    }
}

#[tokio::test]
async fn a_bounded_number_of_pages_of_that_queue_is_read_for_one_of_ours() {
    const LIMIT: usize = 10;
    let two = Two::start(ALL, None).await;
    let mut n_seen = 0;
    for count in sizes_around(
        "server::api::worker_manager::list_workers::outside::MAX_PAGES",
        LIMIT,
    ) {
        for number in n_seen..count {
            two.task("pp/a").await;
            two.claim("pp/a", &format!("w{number:03}")).await;
        }
        n_seen = count;
        // One worker a page, and the filter leaves none of them.
        let (mut left, mut token) = (count.max(1), String::new());
        loop {
            two.queue.app.engine.store.take_counts();
            let page = two
                .listed(&format!("?limit=1&workerState=running{token}"))
                .await;
            assert!(names(&page).is_empty());
            let n_read = two
                .queue
                .app
                .engine
                .store
                .take_counts()
                .transactions("queue_worker_list");
            assert_eq!(n_read, left.min(LIMIT) as u64, "{left} of {count}");
            left -= left.min(LIMIT);
            match page["continuationToken"].as_str() {
                Some(next) => token = format!("&continuationToken={next}"),
                None => break,
            }
        }
        assert_eq!(left, 0, "of {count}");
    }
}

#[tokio::test]
async fn a_queue_that_does_not_answer_is_no_empty_list_of_workers() {
    let mut two = Two::start(ALL, None).await;
    two.stop_queue().await;
    for path in [LISTED.to_owned(), format!("{LISTED}/g/w1")] {
        let refused = two.fleet.get(&path).await;
        refused.refused_with(503, "QueueUnavailable", "did not respond");
    }
}

#[tokio::test]
async fn a_queue_that_does_not_answer_is_a_problem_and_no_minute_without_work() {
    let mut two = Two::start(ALL, None).await;
    let pool = crate::samples::null_pool();
    let created = two.fleet.put("/worker-pool/pp%2Fa", pool);
    created.await.expect(200);
    two.task("pp/a").await;
    let last = async |fleet: &World| {
        let read = fleet.get("fleetwright:/series/pool/pp%2Fa").await;
        let points = read.expect(200)["points"].as_array().unwrap().clone();
        points.last().unwrap()["waiting"].clone()
    };
    let problems = async |fleet: &World| {
        let status = fleet.get("fleetwright:/status").await.expect(200);
        let problems = status["problems"].as_array().unwrap().iter();
        let kinds = problems.map(|it| it["kind"].as_str().unwrap().to_owned());
        kinds.filter(|it| it == "queue-silent").count()
    };
    assert_eq!(crate::series::record(&two.fleet.app).await, 2);
    assert_eq!(problems(&two.fleet).await, 0);
    assert_eq!(last(&two.fleet).await, 1);
    two.stop_queue().await;
    two.fleet.clock.advance_ms(60_000);
    assert_eq!(crate::series::record(&two.fleet.app).await, 0);
    assert_eq!(last(&two.fleet).await, 1);
    assert_eq!(problems(&two.fleet).await, 1);
}

#[tokio::test]
async fn a_pool_whose_queue_we_may_not_see_is_unknown_and_hides_no_other() {
    let some = &["queue:pending-count:pp/a", "queue:claimed-count:pp/a"];
    let two = Two::start(some, None).await;
    two.task("pp/a").await;
    let known = two.demand(&["pp/a", "pp/b"]).await;
    assert_eq!(known, Ok(answer(&[("pp/a", (1, 0))])));
    let told = two.fleet.log.lines("the demand of 1 pools is unknown");
    assert!(told[0].contains("queue:pending-count:pp/b"), "{told:?}");

    let problem = two.demand(&["pp/b"]).await.unwrap_err();
    assert!(problem.starts_with("the demand is unknown: "), "{problem}");
    let workers = [worker("pp/a", "g", "w1")];
    let app = &two.fleet.app;
    assert_eq!(
        app.engine
            .demand_source
            .worker_activity(&workers, app.engine.clock.now())
            .await,
        None
    );
    assert!(
        app.engine
            .demand_source
            .busy_workers(&"pp/a".parse().unwrap())
            .await
            .is_err()
    );
}

#[tokio::test]
async fn a_missing_queue_is_an_error_and_not_an_empty_one() {
    let mut two = Two::start(ALL, None).await;
    two.task("pp/a").await;
    two.stop_queue().await;
    let problem = two.demand(&["pp/a"]).await.unwrap_err();
    assert!(problem.contains("did not respond"), "{problem}");
    two.fleet
        .get("fleetwright:/explain/pool/pp%2Fa")
        .await
        .refused_with(503, "QueueUnavailable", "See whether it is up");
}

#[tokio::test]
async fn the_queue_is_not_served_where_another_one_counts() {
    let two = Two::start(ALL, None).await;
    two.fleet.get("queue:/ping").anonymously().await.expect(404);
    two.queue.get("queue:/ping").anonymously().await.expect(200);
}

#[tokio::test]
async fn a_server_whose_queue_is_unreachable_does_not_start() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let mut config = world.app.config.clone();
    config.queue.taskcluster = Some(OutsideQueue {
        root_url: "http://127.0.0.1:1".to_owned(),
        client_id: "x".to_owned(),
        access_token: Some(Secret::new("short")),
        access_token_file: None,
        pulse: None,
    });
    let clock = Arc::clone(&world.clock) as _;
    let random = engine::random::Random::new(rand::rngs::StdRng::seed_from_u64(1));
    let refused = server::start::start_with(config, clock, random, Vec::new()).await;
    let problem = std::error::Error::source(&refused.err().unwrap())
        .unwrap()
        .to_string();
    assert!(problem.starts_with("queue.taskcluster"), "{problem}");
}

#[tokio::test]
async fn a_pending_task_there_wakes_the_planner_here() {
    let Some(url) = address() else { return };
    let two = Two::start(ALL, Some(&url)).await;
    let queue = &two.queue.app;
    let mut publisher =
        BrokerPublisher::new(Arc::clone(queue), queue.events.broker.clone().unwrap());
    publisher.activate().await.unwrap();
    let fleet = &two.fleet.app;
    let mut hints = PendingTaskListener::new(
        Arc::clone(fleet),
        fleet.engine.demand_source.pulse().unwrap(),
    );
    assert_eq!(hints.activate().await.unwrap(), Value::Null);
    let pool = unique("pp/p");
    two.task(&pool).await;
    EventPublisher(Arc::clone(queue)).activate().await.unwrap();
    publisher.activate().await.unwrap();
    let heard = async {
        loop {
            fleet.engine.wakeups.provision.notified().await;
            if fleet
                .engine
                .wakeups
                .take_pools()
                .iter()
                .any(|id| id.as_str() == pool)
            {
                return;
            }
        }
    };
    tokio::time::timeout(PATIENCE, heard).await.unwrap();
    assert_eq!(two.demand(&[&pool]).await, Ok(answer(&[(&pool, (1, 0))])));
}

#[tokio::test]
async fn an_unreachable_broker_is_reported_once_and_retried() {
    let queue = World::open(Database::sqlite(), |_| {}).await;
    let who = queue.root();
    let fleet = asking(
        ([127, 0, 0, 1], 1).into(),
        &who,
        Some("amqp://127.0.0.1:1/%2f"),
    )
    .await;
    let mut hints = PendingTaskListener::new(
        Arc::clone(&fleet.app),
        fleet.app.engine.demand_source.pulse().unwrap(),
    );
    for _ in 0..4 {
        assert_eq!(hints.activate().await.unwrap(), Value::Null);
        fleet.clock.advance_ms(40_000);
    }
    assert_eq!(
        fleet.log.lines("cannot listen to the queue's broker").len(),
        1
    );
}
