//! Events on their way to a broker: all of them, in order, despite failures of the broker and of
//! the server.

use std::collections::{BTreeMap, BTreeSet};
use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::event::{EXCHANGES, Event, EventBody, Exchange, Rfc191};
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::app::App;
use server::background::driver::BackgroundTask;
use server::background::{
    BROKER_READER, Batches, BrokerPublisher, EventPublisher, Measure, leave_readers,
};
use server::start::start_with;
use store::StoreError;
use testing::sizes_around;
use tokio::time::timeout;

use crate::broker::{PrivateBroker, Reader, address, id_of, publish_to, unique, without_repeats};
use crate::database::Database;
use crate::samples::{aws_pool, launch_config};
use crate::world::{TestClock, World};

/// All is published within this time, or never.
const PATIENCE: Duration = Duration::from_secs(120);
const A_MOMENT: Duration = Duration::from_millis(20);
const BROKER_AWAY: &str = "cannot publish events to the broker, they wait";

async fn world(database: Database, url: &str) -> World {
    World::open(database, |config| publish_to(config, url)).await
}

/// Every available database.
fn databases() -> Vec<Database> {
    std::iter::once(Database::sqlite())
        .chain(Database::postgres())
        .collect()
}

async fn second_app(world: &World) -> Arc<App> {
    let random = Random::new(StdRng::seed_from_u64(99));
    let clock = Arc::clone(&world.clock) as _;
    start_with(world.app.config.clone(), clock, random, Vec::new())
        .await
        .unwrap()
}

fn publisher(app: &Arc<App>) -> BrokerPublisher {
    let broker = app.events.broker.clone().unwrap();
    BrokerPublisher::new(Arc::clone(app), broker)
}

async fn tell(app: &Arc<App>, publisher: &mut BrokerPublisher) -> Value {
    EventPublisher(Arc::clone(app)).activate().await.unwrap();
    publisher.activate().await.unwrap()
}

fn topics() -> Vec<String> {
    EXCHANGES.iter().map(Exchange::topic).collect()
}

fn rfc191_topics() -> Vec<String> {
    Rfc191::ALL.iter().map(Rfc191::topic).collect()
}

/// Writes events of these ids about a pool.
async fn write(app: &Arc<App>, pool: &str, ids: Vec<String>) {
    let (pool, now) = (pool.to_owned(), app.engine.clock.now());
    let written: Result<(), StoreError> = app
        .engine
        .change("test_events", now, move |change| {
            for id in &ids {
                let body = EventBody::PoolCreated {
                    pool_id: pool.parse().unwrap(),
                    provider_id: "static".parse().unwrap(),
                };
                let event = Event {
                    id: id.clone(),
                    created: now,
                    body,
                };
                store::outbox::push(change.tx, &event)?;
            }
            Ok(())
        })
        .await;
    written.unwrap();
}

#[tokio::test]
async fn events_reach_the_exchanges_of_the_contract_and_those_of_rfc_191() {
    let Some(url) = address() else { return };
    for database in databases() {
        let world = world(database, &url).await;
        let mut publisher = publisher(&world.app);
        // The exchanges are there before anything is published to them.
        tell(&world.app, &mut publisher).await;
        let all = [topics(), rfc191_topics()].concat();
        let reader = Reader::bind(&url, &unique("queue/fleetwright/all"), &all, "#").await;
        let mut deliveries = reader.listen().await;
        let pool = unique("pp/p");
        let path = format!("/worker-pool/{}", pool.replace('/', "%2F"));
        let body = aws_pool(&[launch_config(Some("one"), "1")]);
        world.put(&path, body).await.expect(200);
        world.delete(&path).await.expect(200);
        tell(&world.app, &mut publisher).await;
        let mut seen = Vec::new();
        for _ in 0..6 {
            let delivery = deliveries.next_about(&pool).await;
            let payload: Value = serde_json::from_slice(&delivery.data).unwrap();
            assert_eq!(payload["workerPoolId"], pool);
            seen.push((
                delivery.exchange.to_string(),
                id_of(&delivery),
                delivery.routing_key.to_string(),
            ));
        }
        let names: Vec<&str> = seen
            .iter()
            .map(|(exchange, ..)| exchange.as_str())
            .collect();
        let (theirs, ours) = (
            "exchange/taskcluster-worker-manager/v1",
            "exchange/fleetwright/v1",
        );
        assert_eq!(
            names,
            [
                format!("{theirs}/worker-pool-created"),
                format!("{theirs}/launch-config-created"),
                format!("{ours}/launch-configuration-created"),
                format!("{theirs}/worker-pool-updated"),
                format!("{theirs}/launch-config-archived"),
                format!("{ours}/launch-configuration-archived"),
            ]
        );
        assert_eq!(seen[1].1, seen[2].1, "one event, one id");
        let (left, right) = pool.split_once('/').unwrap();
        assert_eq!(seen[1].2, format!("primary.aws.{left}.{right}._._.one._"));
    }
}

/// How many events the broker has confirmed, of those that have a place.
async fn n_confirmed(world: &World) -> i64 {
    let reader = world.read(|tx| store::event_readers::get(tx, BROKER_READER));
    reader.await.unwrap().position
}

#[tokio::test]
async fn events_are_published_in_batches() {
    const LIMIT: usize = 5;
    let Some(url) = address() else { return };
    for database in databases() {
        let world = world(database, &url).await;
        let broker = world.app.events.broker.clone().unwrap();
        let batches = Batches {
            size: 5,
            most: 1_000,
        };
        let mut publisher = BrokerPublisher::in_batches(Arc::clone(&world.app), broker, batches);
        for count in sizes_around("server::background::publish::broker::BATCH", LIMIT) {
            write(&world.app, "pp/p", some_ids(&world, count)).await;
            EventPublisher(Arc::clone(&world.app))
                .activate()
                .await
                .unwrap();
            let (published, counts) = world.counted(publisher.activate()).await;
            published.unwrap();
            let n_reads = (count / LIMIT + 1) as u64;
            assert_eq!(counts.transactions("event_list_after"), n_reads);
            let n_batches = count.div_ceil(LIMIT) as u64;
            assert_eq!(counts.transactions("event_reader_move"), n_batches);
            assert_eq!(n_confirmed(&world).await, world.app.events.head());
        }
    }
}

fn some_ids(world: &World, count: usize) -> Vec<String> {
    (0..count)
        .map(|_| world.app.engine.random.slugid())
        .collect()
}

#[tokio::test]
async fn an_activation_publishes_a_bounded_number_of_events_and_the_next_the_rest() {
    const SIZE: i64 = 2;
    const MOST: usize = 3;
    let Some(url) = address() else { return };
    for database in databases() {
        let world = world(database, &url).await;
        let broker = world.app.events.broker.clone().unwrap();
        let batches = Batches {
            size: 2,
            most: MOST,
        };
        let mut publisher = BrokerPublisher::in_batches(Arc::clone(&world.app), broker, batches);
        for count in sizes_around("server::background::publish::broker::MAX_BATCHES", MOST) {
            write(&world.app, "pp/p", some_ids(&world, 2 * count)).await;
            EventPublisher(Arc::clone(&world.app))
                .activate()
                .await
                .unwrap();
            let mut left = SIZE * i64::try_from(count).unwrap();
            while left > 0 {
                publisher.activate().await.unwrap();
                left -= left.min(SIZE * i64::try_from(MOST).unwrap());
                assert_eq!(n_confirmed(&world).await + left, world.app.events.head());
            }
        }
    }
}

#[tokio::test]
async fn the_names_of_rfc_191_can_be_switched_off() {
    let Some(url) = address() else { return };
    let world = World::open(Database::sqlite(), |config| {
        publish_to(config, &url);
        config.events.rfc191 = false;
    })
    .await;
    let mut publisher = publisher(&world.app);
    // Somebody else may have made them.
    let other = self::world(Database::sqlite(), &url).await;
    tell(&other.app, &mut self::publisher(&other.app)).await;
    let all = [topics(), rfc191_topics()].concat();
    let reader = Reader::bind(&url, &unique("queue/fleetwright/all"), &all, "#").await;
    let pool = unique("pp/p");
    let path = format!("/worker-pool/{}", pool.replace('/', "%2F"));
    let body = aws_pool(&[launch_config(Some("one"), "1")]);
    world.put(&path, body).await.expect(200);
    tell(&world.app, &mut publisher).await;
    write(&world.app, "pp/last", vec![pool.clone()]).await;
    tell(&world.app, &mut publisher).await;
    let mut deliveries = reader.listen().await;
    for name in ["worker-pool-created", "launch-config-created"] {
        let delivery = deliveries.next_about(&pool).await;
        assert!(
            delivery.exchange.as_str().ends_with(name),
            "{}",
            delivery.exchange
        );
    }
}

#[tokio::test]
async fn routes_of_tasks_are_further_routing_keys() {
    let Some(url) = address() else { return };
    let world = world(Database::sqlite(), &url).await;
    let mut publisher = publisher(&world.app);
    tell(&world.app, &mut publisher).await;
    let route = unique("index.latest");
    let key = format!("route.{route}");
    let reader = Reader::bind(&url, &unique("queue/fleetwright/cc"), &topics(), &key).await;
    let now = world.now();
    let task = json!({"taskQueueId": "pp/ee", "created": now.to_string(),
        "deadline": now.plus_seconds(3_600).to_string(), "routes": [route], "payload": {},
        "metadata": {"name": "n", "description": "d", "owner": "a@b.c", "source": "https://x.y/"}});
    let task_id = "AAAAAAAAQACAAAAAAAAAAA";
    world
        .put(&format!("queue:/task/{task_id}"), task)
        .await
        .expect(200);
    tell(&world.app, &mut publisher).await;
    let mut deliveries = reader.listen().await;
    for name in ["task-defined", "task-pending"] {
        let delivery = deliveries.next().await;
        assert!(
            delivery.exchange.as_str().ends_with(name),
            "{}",
            delivery.exchange
        );
        assert!(
            delivery
                .routing_key
                .as_str()
                .starts_with(&format!("primary.{task_id}."))
        );
    }
}

#[tokio::test]
async fn one_process_publishes_at_a_time_and_another_takes_over() {
    let Some(url) = address() else { return };
    for database in databases() {
        let world = world(database, &url).await;
        let other = second_app(&world).await;
        let (mut first, mut second) = (publisher(&world.app), publisher(&other));
        tell(&world.app, &mut first).await;
        let reader = Reader::bind(&url, &unique("queue/fleetwright/all"), &topics(), "#").await;
        let name = unique("one");
        let id = |number: usize| format!("{name}-{number}");
        let published = async || {
            let ids = reader
                .drain()
                .await
                .into_iter()
                .map(|message| id_of(&message.delivery));
            ids.filter(|id| id.starts_with(&name)).collect::<Vec<_>>()
        };
        write(&world.app, "pp/ee", vec![id(1)]).await;
        tell(&other, &mut second).await;
        assert_eq!(
            published().await,
            Vec::<String>::new(),
            "that is the first one's task"
        );
        tell(&world.app, &mut first).await;
        assert_eq!(published().await, [id(1)]);

        // A process that ends properly is replaced at once.
        leave_readers(&world.app).await.unwrap();
        write(&world.app, "pp/ee", vec![id(2)]).await;
        tell(&other, &mut second).await;
        assert_eq!(published().await, [id(2)]);

        // A process that freezes is replaced when its lease ends, and does no harm when it
        // continues.
        world.clock.advance_ms(20_000);
        tell(&world.app, &mut first).await;
        write(&world.app, "pp/ee", vec![id(3)]).await;
        tell(&world.app, &mut first).await;
        tell(&other, &mut second).await;
        assert_eq!(published().await, [id(3)]);
    }
}

#[tokio::test]
async fn an_unreachable_broker_delays_nothing_and_is_reported_once() {
    let port = {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().port()
    };
    for database in databases() {
        let world = world(database, &format!("amqp://me:hunter2@127.0.0.1:{port}/%2f")).await;
        let mut publisher = publisher(&world.app);
        let head = world.app.events.head();
        for number in 0..3 {
            write(&world.app, "pp/ee", vec![format!("e{number}")]).await;
            assert_eq!(tell(&world.app, &mut publisher).await, Value::Null);
            world.clock.advance_ms(60_000);
        }
        assert_eq!(
            world.app.events.head(),
            head + 3,
            "those who listen here hear it"
        );
        assert_eq!(world.log.lines(BROKER_AWAY).len(), 1);
        assert!(!world.log.text().contains("hunter2"));
        // Events that wait for the broker outlive their retention time.
        world.clock.advance_ms(100 * 3_600_000);
        world.keep_house().await;
        let kept = world
            .read(move |tx| store::events::list_after(tx, head, 9))
            .await;
        assert_eq!(kept.items.len(), 3);
        Measure(Arc::clone(&world.app)).activate().await.unwrap();
        let metrics = world.get("root:/metrics").locally().await.text;
        assert!(metrics.contains("fleetwright_broker_up 0"), "{metrics}");
        assert!(
            metrics.contains("fleetwright_broker_waiting_events 3"),
            "{metrics}"
        );
        assert!(
            metrics.contains("fleetwright_broker_lag_seconds 360180"),
            "{metrics}"
        );
    }
}

/// Activates the tasks of a process when they are woken or a short time has passed, as its driver
/// would.
async fn drive(app: Arc<App>, clock: Arc<TestClock>, stop: Arc<AtomicBool>) {
    let mut publisher = publisher(&app);
    while !stop.load(Ordering::SeqCst) {
        tell(&app, &mut publisher).await;
        clock.advance_ms(100);
        // Time: the pace of a driver; no assertion counts on it.
        let _moment = timeout(A_MOMENT, app.engine.wakeups.publish.notified()).await;
    }
}

mod a_broker_that_is_killed_under_load_loses_nothing_and_keeps_the_order_of_each_pool {
    use super::killed_under_load as run;

    crate::database::on_databases!(
        both,
        tokio::test(flavor = "multi_thread", worker_threads = 4)
    );
}

/// Kills the broker while four writers write and two processes publish.
async fn killed_under_load(database: Database) {
    const N_POOLS: usize = 4;
    const N_EVENTS: usize = 1_000;
    let Some(broker) = PrivateBroker::start() else {
        return;
    };
    let world = world(database, &broker.url).await;
    let other = second_app(&world).await;
    tell(&world.app, &mut publisher(&world.app)).await;
    let queue = "queue/fleetwright/everything";
    Reader::bind(&broker.url, queue, &topics(), "#").await;

    let stop = Arc::new(AtomicBool::new(false));
    let processes = [Arc::clone(&world.app), other];
    let drivers =
        processes.map(|app| tokio::spawn(drive(app, Arc::clone(&world.clock), Arc::clone(&stop))));
    let writers: Vec<_> = (0..N_POOLS)
        .map(|pool| {
            let app = Arc::clone(&world.app);
            tokio::spawn(async move {
                for number in 0..N_EVENTS {
                    write(
                        &app,
                        &format!("pp/p{pool}"),
                        vec![format!("{pool}-{number}")],
                    )
                    .await;
                }
            })
        })
        .collect();
    broker.control("kill").await;
    broker.control("start").await;
    for writer in writers {
        writer.await.unwrap();
    }
    let all_published = async {
        loop {
            let reader = world.read(|tx| store::event_readers::get(tx, "amqp")).await;
            let head = world.read(store::events::head).await;
            let waiting = world.read(store::outbox::depth).await;
            if waiting == 0 && reader.unwrap().position == head {
                return;
            }
            // Time: between looks.
            let _moment = timeout(A_MOMENT, pending::<()>()).await;
        }
    };
    timeout(PATIENCE, all_published).await.unwrap();
    stop.store(true, Ordering::SeqCst);
    for driver in drivers {
        driver.await.unwrap();
    }
    let messages = Reader::of(&broker.url, queue).await.drain().await;
    let ids = messages.iter().map(|message| id_of(&message.delivery));
    check(without_repeats(ids), N_POOLS, N_EVENTS);
}

/// Every event once, and each pool's in its order.
fn check(ids: Vec<String>, n_pools: usize, n_events: usize) {
    let mut by_pool: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for id in ids {
        let (pool, number) = id.split_once('-').unwrap();
        by_pool
            .entry(pool.to_owned())
            .or_default()
            .push(number.parse().unwrap());
    }
    let pools: BTreeSet<String> = (0..n_pools).map(|pool| pool.to_string()).collect();
    assert_eq!(by_pool.keys().cloned().collect::<BTreeSet<_>>(), pools);
    for (pool, numbers) in by_pool {
        let expected: Vec<usize> = (0..n_events).collect();
        assert_eq!(numbers, expected, "pool {pool}");
    }
}

#[tokio::test]
async fn a_new_broker_gets_the_events_from_now_on() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    write(&world.app, "pp/ee", vec!["past".to_owned()]).await;
    EventPublisher(Arc::clone(&world.app))
        .activate()
        .await
        .unwrap();
    let mut config = world.app.config.clone();
    publish_to(&mut config, "amqp://127.0.0.1:1/%2f");
    let clock = Arc::clone(&world.clock) as _;
    let random = Random::new(StdRng::seed_from_u64(5));
    start_with(config, clock, random, Vec::new()).await.unwrap();
    let reader = world.read(|tx| store::event_readers::get(tx, "amqp")).await;
    assert_eq!(reader.unwrap().position, world.app.events.head());
}

#[tokio::test]
async fn the_doctor_reports_whether_the_broker_answers() {
    let Some(url) = address() else { return };
    let world = world(Database::sqlite(), &url).await;
    let findings = server::doctor::examine(&world.app.config).await;
    let what: Vec<String> = findings.into_iter().map(|finding| finding.what).collect();
    let good = "the broker of events.amqp answers".to_owned();
    assert!(what.contains(&good), "{what:?}");
    // The library that speaks to the broker logs as it likes.
    world.errors_expected.set(true);
    let mut config = world.app.config.clone();
    let wrong = url.replace("fleetwright:", "fleetwright:x");
    publish_to(&mut config, &wrong);
    let findings = server::doctor::examine(&config).await;
    let bad = findings.into_iter().find(|finding| {
        finding
            .what
            .starts_with("cannot use the broker of events.amqp")
    });
    assert!(bad.unwrap().advice.is_some());
}
