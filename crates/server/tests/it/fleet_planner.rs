//! The planner as a background task: delays, failures, reads and wake-ups.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use access::Secret;
use bytes::Bytes;
use domain::id::PoolId;
use futures_util::FutureExt;
use http::{Request, Response};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use server::app::App;
use server::background::driver::BackgroundTask;
use server::background::{EventPublisher, PageLimits, Provision, ProvisionRounds};
use server::config::OutsideQueue;
use testing::sizes_around;
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;

use crate::database::Database;
use crate::fleet_two_processes::{both_at_once, second};
use crate::fleet_world::{Fleet, POOL, fleet_test, machine, plain_pool, pool};
use crate::world::World;

const SECOND_MS: i64 = 1_000;
/// Something that should happen within moments.
const PATIENCE: Duration = Duration::from_secs(120);

fn name(number: usize) -> String {
    format!("pp/pool-{number:04}")
}

fn planner(app: &Arc<App>) -> Provision {
    Provision::new(Arc::clone(&app.engine))
}

fleet_test!(pools_that_ring_within_a_moment_are_all_planned, |fleet| {
    for number in 0..40 {
        fleet.make_pool(&name(number), plain_pool(4)).await;
    }
    // Close to each other, and far from each other.
    let close: Vec<String> = (0..20).map(name).collect();
    let far: Vec<String> = [1, 20, 39].map(name).into();
    for (expected, names) in [(1, close), (2, far)] {
        fleet.app.engine.wakeups.take_pools();
        for name in &names {
            fleet.tasks(name, 1).await;
        }
        fleet.provision().await;
        for (number, name) in names.iter().enumerate() {
            let expected = if number == 0 && expected == 2 { 2 } else { 1 };
            assert_eq!(fleet.workers(name).await.len(), expected, "{name}");
        }
    }
});

fleet_test!(bids_are_asked_for_once_and_written_once, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    // The third round has a task more, but the pool has as many workers as it may have.
    for (n_tasks, n_asked, n_written) in [(0, 0, 0), (1, 1, 1), (1, 0, 0)] {
        fleet.tasks(POOL, n_tasks).await;
        fleet.one.take_bids();
        let (_, counts) = fleet.counted(fleet.round()).await;
        let counted = (fleet.one.take_bids(), counts.transactions("plan_commit"));
        assert_eq!(counted, (n_asked, n_written), "{n_tasks} tasks");
        fleet.pass_ms(SECOND_MS);
    }
});

fleet_test!(
    every_pool_of_a_crowd_that_rings_at_once_is_decided_on,
    |fleet| {
        // The number of pools that are decided on at the same time.
        const LIMIT: usize = 16;
        let mut planned = vec![0; 10 * LIMIT];
        for number in 0..planned.len() {
            fleet.make_pool(&name(number), plain_pool(10)).await;
        }
        fleet.provision().await;
        for count in sizes_around("server::background::provision::decisions::AT_ONCE", LIMIT) {
            for (number, planned) in planned.iter_mut().enumerate().take(count) {
                fleet.tasks(&name(number), 1).await;
                *planned += 1;
            }
            // A pool that a cloud's answer woke during the last activation may be decided on again
            // only now.
            fleet.pass_ms(SECOND_MS);
            fleet.provision().await;
            // The wake-ups by the clouds' answers give nothing to do.
            assert_eq!(fleet.provision().await, json!(null));
            assert_eq!(
                fleet.machines().len(),
                planned.iter().sum::<usize>(),
                "{count} pools"
            );
        }
    }
);

fleet_test!(
    a_pool_that_is_deleted_after_it_rang_is_passed_over,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.make_pool("pp/other", plain_pool(4)).await;
        fleet.tasks("pp/other", 1).await;
        fleet.delete_pool(POOL).await;
        fleet.app.engine.wakeups.wake_pool(&POOL.parse().unwrap());
        fleet.provision().await;
        assert_eq!(fleet.states("pp/other").await, "1 requested");
    }
);

fleet_test!(
    a_decision_that_fails_is_a_failure_of_the_task_and_delays_no_other,
    |fleet| {
        fleet.errors_expected.set(true);
        for name in ["pp/broken", "pp/well"] {
            fleet.make_pool(name, plain_pool(4)).await;
            fleet.tasks(name, 1).await;
        }
        fleet.database.raw(
        "UPDATE launch_configs SET configuration = 'nonsense' WHERE worker_pool_id = 'pp/broken'",
    );
        let failed = ProvisionRounds(Arc::clone(&fleet.app.engine))
            .activate()
            .await
            .unwrap_err()
            .to_string();
        assert!(
            failed.starts_with("cannot decide on pp/broken: "),
            "{failed}"
        );
        fleet.app.engine.launch_tracker.finish().await;
        assert_eq!(fleet.states("pp/well").await, "1 requested");

        // Woken again and again, it is tried after 1, 2, 4, 8 … seconds.
        let mut planner = planner(&fleet.app);
        let mut tried = Vec::new();
        for second in 0..40 {
            fleet
                .app
                .engine
                .wakeups
                .wake_pool(&"pp/broken".parse().unwrap());
            if planner.activate().await.is_err() {
                tried.push(second);
            }
            fleet.pass_ms(SECOND_MS);
        }
        assert_eq!(tried, [0, 1, 3, 7, 15, 31]);
    }
);

fleet_test!(rounds_see_all_pools_whatever_a_page_holds, |fleet| {
    // This many pools, each with two launch configs.
    let limit = 4;
    let mut made = 0;
    for count in [0, 1, limit - 1, limit, limit + 1, 10 * limit] {
        for number in made..count {
            let machines = [machine("a"), machine("b")];
            fleet
                .make_pool(&name(number), pool("one", 0, 50, &machines))
                .await;
        }
        made = made.max(count);
        for number in 0..count {
            fleet.tasks(&name(number), 1).await;
        }
        for launch_configs in [1, 2, 3, 8, 9, 1_000] {
            let pools = u32::try_from(limit).unwrap();
            let limits = PageLimits {
                pools,
                launch_configs,
                queues: pools,
            };
            let rounds = ProvisionRounds(Arc::clone(&fleet.app.engine));
            let done = rounds.with_pages(limits).await.unwrap();
            fleet.app.engine.launch_tracker.finish().await;
            let expected = match (launch_configs, count) {
                (1, 1..) => json!({"pools": count, "launches": count}),
                _ => json!(null),
            };
            assert_eq!(done, expected, "{count} pools, {limits:?}");
        }
    }
});

fleet_test!(
    declared_workers_need_no_plan_and_their_tasks_ring_for_nothing,
    |fleet| {
        fleet.make_pool(POOL, crate::samples::static_pool()).await;
        fleet.tasks(POOL, 3).await;
        fleet.provision().await;
        fleet.round().await;
        assert_eq!(fleet.plans(POOL).await, []);
    }
);

async fn other_process(fleet: &Fleet) -> Arc<App> {
    let other = second(fleet).await;
    EventPublisher(Arc::clone(&other)).activate().await.unwrap();
    other.engine.wakeups.take_pools();
    other
}

/// The reaction of another process to the events of this one.
async fn hear(other: &Arc<App>) {
    EventPublisher(Arc::clone(other)).activate().await.unwrap();
}

#[tokio::test]
async fn a_change_in_one_process_wakes_the_planner_of_another() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let fleet = &Fleet::open(database).await;
    let other = other_process(fleet).await;
    let pool_id: PoolId = POOL.parse().unwrap();
    fleet.make_pool(POOL, plain_pool(4)).await;
    hear(&other).await;
    assert!(
        other.engine.wakeups.take_pools().contains(&pool_id),
        "the pool is new"
    );

    fleet.tasks(POOL, 1).await;
    hear(&other).await;
    planner(&other).activate().await.unwrap();
    other.engine.launch_tracker.finish().await;
    assert_eq!(fleet.states(POOL).await, "1 requested");

    let [worker] = fleet.register_all(POOL).await.try_into().ok().unwrap();
    other.engine.wakeups.take_pools();
    hear(&other).await;
    assert!(
        other.engine.wakeups.take_pools().contains(&pool_id),
        "a worker registered"
    );

    let ending = other.engine.wakeups.ending(&"one".parse().unwrap());
    while ending.notified().now_or_never().is_some() {}
    fleet.remove(&worker.key).await;
    hear(&other).await;
    assert!(
        ending.notified().now_or_never().is_some(),
        "a worker is to be ended"
    );
    assert!(other.engine.wakeups.take_pools().contains(&pool_id));

    // A change that affects no pool's need causes no wake-up.
    let claimed = fleet.make_pool("pp/quiet", plain_pool(4));
    claimed.await;
    hear(&other).await;
    other.engine.wakeups.take_pools();
    hear(&other).await;
    assert!(other.engine.wakeups.take_pools().is_empty());
    other.engine.store.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_crowd_of_pools_on_a_provider_with_a_limit_is_decided_on_by_two_processes() {
    const POOLS: usize = 100;
    let Some(database) = Database::postgres() else {
        return;
    };
    let fleet = Fleet::open(database).await;
    let other = second(&fleet).await;
    for number in 0..POOLS {
        fleet
            .make_pool(&name(number), pool("two", 0, 10, &[machine("a")]))
            .await;
        fleet.tasks(&name(number), 1).await;
    }
    // A decision that is dropped would make its round fail.
    both_at_once(&fleet, &other).await;
    assert_eq!(
        fleet.two.fake.n_machines(),
        crate::fleet_world::MAX_MACHINES
    );
    other.engine.store.close().await;
}

#[tokio::test]
async fn a_first_wake_is_answered_at_once() {
    let fleet = Fleet::open(Database::sqlite()).await;
    fleet.make_pool(POOL, plain_pool(4)).await;
    let mut planner = planner(&fleet.app);
    planner.activate().await.unwrap();
    assert_eq!(planner.idle_for(), None);
    fleet.pass_ms(SECOND_MS);
    fleet.tasks(POOL, 1).await;
    assert_eq!(planner.idle_for(), Some(Duration::ZERO));
    planner.activate().await.unwrap();
    fleet.app.engine.launch_tracker.finish().await;
    assert_eq!(fleet.states(POOL).await, "1 requested");
    // Woken by the answer, it waits for its interval.
    planner.activate().await.unwrap();
    assert_eq!(planner.idle_for(), Some(Duration::from_secs(1)));
}

/// A queue of another deployment: a task waits in each of its task queues, but the counts of one
/// queue are never answered.
async fn outside_queue(silent: &'static str) -> (SocketAddr, Arc<Notify>, JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let asked_in_vain = Arc::new(Notify::new());
    let asked = Arc::clone(&asked_in_vain);
    let answer = move |request: Request<Incoming>| {
        let asked = Arc::clone(&asked);
        async move {
            let body = request.into_body().collect().await.unwrap().to_bytes();
            let body: Value = serde_json::from_slice(&body).unwrap();
            let ids = body["taskQueueIds"].as_array().unwrap().clone();
            if ids.iter().any(|id| id == silent) {
                asked.notify_one();
                std::future::pending::<()>().await;
            }
            let count = |id| json!({"taskQueueId": id, "pendingTasks": 1, "claimedTasks": 0});
            let counts: Vec<Value> = ids.into_iter().map(count).collect();
            let reply = json!({"taskQueueCounts": counts}).to_string();
            let reply = Response::builder()
                .header("content-type", "application/json")
                .body(Full::new(Bytes::from(reply)));
            Ok::<_, Infallible>(reply.unwrap())
        }
    };
    let serving = tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let service = service_fn(answer.clone());
            let connection = hyper::server::conn::http1::Builder::new();
            tokio::spawn(connection.serve_connection(TokioIo::new(stream), service));
        }
    });
    (address, asked_in_vain, serving)
}

/// A server that plans for that queue, with a pool for each of these ids.
async fn planning_for(address: SocketAddr, pools: &[&str]) -> World {
    let world = World::open(Database::sqlite(), |config| {
        config.queue.taskcluster = Some(OutsideQueue {
            root_url: format!("http://{address}"),
            client_id: "fleet".to_owned(),
            access_token: Some(Secret::new(
                "a-secret-of-44-characters-as-they-are-made-x".to_owned(),
            )),
            access_token_file: None,
            pulse: None,
        });
    })
    .await;
    for id in pools {
        let path = format!("/worker-pool/{}", id.replace('/', "%2F"));
        let definition = crate::samples::aws_pool(&[crate::samples::launch_config(None, "i")]);
        world.put(&path, definition).await.expect(200);
    }
    world.app.engine.wakeups.take_pools();
    world
}

/// Waits until a launch of this pool was answered.
async fn has_machine(world: &World, pool: &str) {
    let pool: PoolId = pool.parse().unwrap();
    let has_machine = async {
        loop {
            let id = pool.clone();
            let launches = world
                .read(move |tx| store::launches::list(tx, &id, 9))
                .await;
            if launches.iter().any(|launch| launch.made == 1) {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(PATIENCE, has_machine).await.unwrap();
}

#[tokio::test]
async fn a_pool_whose_queue_does_not_answer_delays_no_other() {
    let (address, asked_in_vain, serving) = outside_queue("pp/slow").await;
    let world = planning_for(address, &["pp/quick", "pp/slow"]).await;
    let app = Arc::clone(&world.app);
    app.engine.wakeups.wake_pool(&"pp/slow".parse().unwrap());
    let mut planner = planner(&app);
    let planning = tokio::spawn(async move { planner.activate().await });
    asked_in_vain.notified().await;
    // The planner waits for an answer. A pool that is woken now is decided on nevertheless.
    app.engine.wakeups.wake_pool(&"pp/quick".parse().unwrap());
    has_machine(&world, "pp/quick").await;
    assert!(!planning.is_finished());
    planning.abort();
    serving.abort();
}

#[tokio::test]
async fn a_round_decides_while_it_reads_the_next_page() {
    let (address, asked_in_vain, serving) = outside_queue("pp/slow").await;
    let world = planning_for(address, &["pp/quick", "pp/slow"]).await;
    let rounds = ProvisionRounds(Arc::clone(&world.app.engine));
    let round = tokio::spawn(async move { rounds.with_pages(ONE_BY_ONE).await });
    asked_in_vain.notified().await;
    has_machine(&world, "pp/quick").await;
    assert!(!round.is_finished());
    round.abort();
    serving.abort();
}

const ONE_BY_ONE: PageLimits = PageLimits {
    pools: 1,
    launch_configs: 1,
    queues: 10,
};

fleet_test!(
    a_round_whose_next_page_cannot_be_read_finishes_its_decisions,
    |fleet| {
        fleet.errors_expected.set(true);
        for name in ["pp/first", "pp/second"] {
            fleet.make_pool(name, plain_pool(4)).await;
            fleet.tasks(name, 1).await;
        }
        fleet
            .database
            .raw("UPDATE worker_pools SET config = 'nonsense' WHERE worker_pool_id = 'pp/second'");
        let rounds = ProvisionRounds(Arc::clone(&fleet.app.engine));
        assert!(rounds.with_pages(ONE_BY_ONE).await.is_err());
        fleet.app.engine.launch_tracker.finish().await;
        assert_eq!(fleet.states("pp/first").await, "1 requested");
    }
);
