//! Many waiting workers: their cost while no task is pending, and fairness when tasks come.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use domain::id::WorkerKey;
use domain::queue_worker::QueueWorker;
use http::Method;
use serde_json::{Value, json};
use server::api::listener::Server;
use store::Counts;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::ask::Answer;
use crate::database::{on_both, on_both_in_long};
use crate::queue_samples::{HOUR_MS, numbered, stop_time, stored_task, task_id};
use crate::samples::key;
use crate::world::{MAX_TRIPS, World};

/// Workers that are served in one transaction.
const BATCH: usize = 64;
/// The time from one sweep to the next, with the maximum jitter.
pub(crate) const SWEEP_AT_THE_LATEST: Duration = Duration::from_millis(1_500);
/// After this many trips, time passes more slowly, so that no worker waits for too long.
const QUICK_TRIPS: u64 = 500;
const SLOWER: u64 = 50;
/// Few enough that no worker stops waiting in the time that they take.
const N_IDLE_SWEEPS: u32 = 3;

fn ids(claims: &Value) -> Vec<String> {
    let claims = claims["tasks"].as_array().unwrap().iter();
    claims
        .map(|claim| claim["status"]["taskId"].as_str().unwrap().to_owned())
        .collect()
}

fn waiting(world: &World, worker: &str) -> JoinHandle<Answer> {
    tokio::spawn(world.asking_for_work(worker, 1).send())
}

/// Stores tasks without waking anybody.
async fn stored(world: &World, count: u32) {
    let task = stored_task(world).schedule(world.now()).unwrap().task;
    let write = world.write(move |tx| {
        for number in 1..=count {
            let task = numbered(&task, number);
            assert!(store::tasks::insert(tx, &task, task.definition.created)?);
        }
        Ok(())
    });
    write.await;
}

/// Lets the time of one sweep pass, and counts what happens until all `count` workers wait again.
async fn one_sweep(world: &World, count: usize) -> Counts {
    let mut counts = world.app.engine.store.take_counts();
    tokio::time::advance(SWEEP_AT_THE_LATEST).await;
    for number in 0.. {
        if counts.statements("task_queues_with_work") > 0 {
            break;
        }
        assert!(number < MAX_TRIPS, "no sweep of {count} in {number} trips");
        let_server_begin(world, number).await;
        counts += world.app.engine.store.take_counts();
    }
    world.until_waiting(count).await;
    counts += world.app.engine.store.take_counts();
    counts
}

/// A trip to the database gives a trip of the server the time to begin.
pub(crate) async fn let_server_begin(world: &World, number: u64) {
    world.trip().await;
    // Time that passed before the server chose the moment of its sweep did not count.
    if number < QUICK_TRIPS || number.is_multiple_of(SLOWER) {
        tokio::time::advance(Duration::from_millis(5)).await;
    }
}

async fn crowd(world: &World, count: usize) {
    let stopped = stop_time();
    world.app.engine.store.take_counts();
    let workers: Vec<_> = (0..count)
        .map(|number| waiting(world, &format!("w{number}")))
        .collect();
    world.until_waiting(count).await;
    let looks = world
        .app
        .engine
        .store
        .take_counts()
        .transactions("claim_look");
    let enough = u64::try_from(count.div_ceil(BATCH) + 1).unwrap();
    assert!(looks <= enough, "{looks} looks at {count} that asked");
    if count == 0 {
        return;
    }
    // The first sweep serves workers that have not been looked at yet; it is over when the second
    // one begins.
    for _ in 0..2 {
        one_sweep(world, count).await;
    }
    for _ in 0..N_IDLE_SWEEPS {
        let idle = one_sweep(world, count).await;
        assert_eq!(idle.transactions("claim_look"), 0, "{count} wait: {idle:?}");
        assert_eq!(idle.transactions("claim_work"), 0, "{count} wait: {idle:?}");
        assert_eq!(idle.statements("task_queues_with_work"), 1, "{idle:?}");
    }
    stored(world, u32::try_from(count).unwrap()).await;
    world.app.engine.store.take_counts();
    tokio::time::advance(SWEEP_AT_THE_LATEST).await;
    for number in 0..MAX_TRIPS {
        if workers.iter().all(JoinHandle::is_finished) {
            break;
        }
        let_server_begin(world, number).await;
    }
    let mut got = BTreeSet::new();
    for worker in workers {
        let ids = ids(&worker.await.unwrap().expect(200));
        assert_eq!(ids.len(), 1, "each has one of {count}");
        got.extend(ids);
    }
    assert_eq!(got.len(), count);
    let work = world
        .app
        .engine
        .store
        .take_counts()
        .transactions("claim_work");
    assert!(work <= enough, "{work} transactions for {count} claims");
    drop(stopped);
}

macro_rules! crowd_of {
    ($name:ident, $count:literal) => {
        crowd_of!(on_both, $name, $count);
    };
    ($lane:ident, $name:ident, $count:literal) => {
        $lane!($name, |world| {
            crowd(world, $count).await;
        });
    };
}

crowd_of!(nobody_waits, 0);
crowd_of!(one_waits, 1);
crowd_of!(one_less_than_a_batch_waits, 63);
crowd_of!(a_batch_waits, 64);
crowd_of!(one_more_than_a_batch_waits, 65);
crowd_of!(ten_batches_wait, 640);
crowd_of!(on_both_in_long, a_thousand_wait, 1_000);
crowd_of!(on_both_in_long, five_thousand_wait, 5_000);

on_both!(
    workers_that_may_not_claim_a_task_do_not_block_the_next_ones,
    |world| {
        let stopped = stop_time();
        let until = world.now().plus_millis(HOUR_MS);
        let quarantined: Vec<String> = (0..2 * BATCH).map(|number| format!("q{number}")).collect();
        let (names, now) = (quarantined.clone(), world.now());
        let write = world.write(move |tx| {
            for name in &names {
                let mut worker = QueueWorker::new(key("pp/ee", "g", name), now, until);
                worker.quarantine(until, "c", None, now);
                store::queue_workers::upsert(tx, &worker)?;
            }
            Ok(())
        });
        write.await;
        let kept_away: Vec<_> = quarantined
            .iter()
            .map(|name| waiting(world, name))
            .collect();
        world.until_waiting(kept_away.len()).await;
        let healthy = waiting(world, "healthy");
        world.until_waiting(kept_away.len() + 1).await;
        world.created(1, json!({})).await;
        assert_eq!(ids(&healthy.await.unwrap().expect(200)), [task_id(1)]);
        // The tasks that only they could claim are not changed.
        world.created(2, json!({})).await;
        world.until_waiting(kept_away.len()).await;
        world.app.engine.store.take_counts();
        for _ in 0..N_IDLE_SWEEPS {
            tokio::time::advance(SWEEP_AT_THE_LATEST).await;
            world.trip().await;
        }
        world.until_waiting(kept_away.len()).await;
        let idle = world.app.engine.store.take_counts();
        assert_eq!(idle.transactions("claim_look"), 0, "{idle:?}");
        stopped.resume();
        assert_eq!(world.claim("late", 1).await.len(), 1);
        kept_away.iter().for_each(JoinHandle::abort);
    }
);

/// Blocks the recording of this worker's claims until the sender is dropped.
async fn hold_up(
    world: &World,
    worker: WorkerKey,
) -> (std::sync::mpsc::Sender<()>, JoinHandle<()>) {
    let (go_on, held) = std::sync::mpsc::channel::<()>();
    let (begun, has_begun) = tokio::sync::oneshot::channel();
    let (store, now) = (world.app.engine.store.clone(), world.now());
    let mut once = Some((begun, held));
    let holding = tokio::spawn(async move {
        let write = store.write("hold_up", move |tx| {
            store::queue_workers::upsert(tx, &QueueWorker::new(worker.clone(), now, now))?;
            if let Some((begun, held)) = once.take() {
                begun.send(()).unwrap();
                assert!(held.recv().is_err());
            }
            Ok::<_, store::StoreError>(())
        });
        write.await.unwrap();
    });
    has_begun.await.unwrap();
    (go_on, holding)
}

on_both!(parallel a_worker_that_is_let_go_while_it_is_served_is_answered_at_once, |world| {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (server, stop) = (Arc::new(Server::new(Arc::clone(&world.app))), CancellationToken::new());
    let serving = tokio::spawn(Arc::clone(&server).serve(listener, stop.clone()));
    let mut ask = world.asking_for_work("w", 1);
    ask.host = "127.0.0.1".to_owned();
    ask.port = address.port();
    let signature = ask.signature(&world.root());
    let (go_on, holding) = hold_up(world, key("pp/ee", "g", "w")).await;
    world.app.engine.store.take_counts();
    let request = reqwest::Client::new()
        .request(Method::POST, format!("http://{address}/api/queue/v1/claim-work/pp%2Fee"))
        .header("authorization", signature)
        .header("content-type", "application/json")
        .body(json!({"workerGroup": "g", "workerId": "w", "tasks": 1}).to_string());
    let answer = tokio::spawn(request.send());
    // It was taken out of the line to be served, and the result is not known yet.
    let mut looks = 0;
    while looks == 0 {
        looks += world.app.engine.store.take_counts().transactions("claim_look");
        tokio::task::yield_now().await;
    }
    stop.cancel();
    drop(go_on);
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.json::<Value>().await.unwrap(), json!({"tasks": []}));
    serving.await.unwrap();
    holding.await.unwrap();
    assert_eq!(world.app.engine.queue.dispatcher.n_waiting(&"pp/ee".parse().unwrap()), 0);
});
