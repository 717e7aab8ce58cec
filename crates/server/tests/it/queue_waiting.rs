//! Workers wait for work, are woken when a task is pending, and get each task once.

use std::collections::BTreeSet;
use std::sync::Arc;

use engine::change::Change;
use engine::queue::release_worker_claims;
use engine::random::Random;
use http::Method;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::background::EventPublisher;
use server::background::driver::BackgroundTask as _;
use server::start::start_with;
use tokio_util::sync::CancellationToken;

use crate::ask::{Answer, Ask};
use crate::database::on_both;
use crate::queue_crowds::{SWEEP_AT_THE_LATEST, let_server_begin};
use crate::queue_samples::{HOUR_MS, numbered, stop_time, stored_task, task_id};
use crate::samples::key;
use crate::world::{MAX_TRIPS, World};

fn ids(claims: &Value) -> Vec<String> {
    let claims = claims["tasks"].as_array().unwrap().iter();
    claims
        .map(|claim| claim["status"]["taskId"].as_str().unwrap().to_owned())
        .collect()
}

/// Asks for work in a task of its own.
fn waiting(world: &World, worker: &str, tasks: u32) -> tokio::task::JoinHandle<Answer> {
    tokio::spawn(world.asking_for_work(worker, tasks).send())
}

on_both!(a_worker_that_waits_is_woken_by_a_new_task, |world| {
    let _stopped = stop_time();
    let worker = waiting(world, "w", 4);
    world.until_waiting(1).await;
    // Without a wake-up nothing would ever happen: no timer fires.
    world.created(1, json!({})).await;
    assert_eq!(ids(&worker.await.unwrap().expect(200)), [task_id(1)]);
});

on_both!(
    a_worker_that_waits_is_woken_by_everything_that_makes_a_task_pending,
    |world| {
        let _stopped = stop_time();
        let claim = world.running(1, "v").await;
        world
            .created(2, json!({"dependencies": [task_id(1)]}))
            .await;
        let other = world.created(3, json!({"dependencies": [task_id(3)]}));
        other.await;
        for (what, number) in [("lost", 1), ("scheduled", 3), ("released", 2)] {
            let worker = waiting(world, "w", 1);
            world.until_waiting(1).await;
            match what {
                "lost" => {
                    let body = json!({"reason": "worker-shutdown"});
                    world.report(&claim, "exception", body).await.expect(200);
                }
                "scheduled" => {
                    world.about_task(3, "schedule").await.expect(200);
                }
                _ => {
                    let path = format!("queue:/task/{}/runs/1/completed", task_id(1));
                    world.ask(Method::POST, &path).await.expect(200);
                }
            }
            assert_eq!(
                ids(&worker.await.unwrap().expect(200)),
                [task_id(number)],
                "{what}"
            );
        }
    }
);

on_both!(
    a_worker_without_work_is_answered_after_twenty_seconds,
    |world| {
        let stopped = stop_time();
        let began = tokio::time::Instant::now();
        let worker = waiting(world, "w", 1);
        world.until_waiting(1).await;
        drop(stopped);
        assert_eq!(worker.await.unwrap().expect(200), json!({"tasks": []}));
        assert_eq!(began.elapsed().as_secs(), 20);
        // It has been seen all the same.
        let path = "queue:/provisioners/pp/worker-types/ee/workers/g/w";
        let seen = world.get(path).await.expect(200);
        assert_eq!(seen["firstClaim"], "2026-09-21T14:13:20.000Z");
        assert_eq!(seen["recentTasks"], json!([]));
    }
);

on_both!(a_quarantined_worker_waits_and_gets_nothing, |world| {
    world.created(1, json!({})).await;
    world.claim("w", 1).await;
    let path = "queue:/provisioners/pp/worker-types/ee/workers/g/w";
    let body = json!({"quarantineUntil": world.now().plus_millis(HOUR_MS).to_string()});
    world.put(path, body).await.expect(200);
    world.created(2, json!({})).await;
    tokio::time::pause();
    let began = tokio::time::Instant::now();
    assert!(world.claim("w", 1).await.is_empty());
    assert!(began.elapsed().as_secs() >= 20);
    tokio::time::resume();
    // It does not delay others.
    assert_eq!(world.claim("v", 1).await.len(), 1);
});

on_both!(
    a_worker_that_waits_is_woken_when_its_quarantine_ends,
    |world| {
        world.running(1, "w").await;
        let path = "queue:/provisioners/pp/worker-types/ee/workers/g/w";
        let until =
            |millis| json!({"quarantineUntil": world.now().plus_millis(millis).to_string()});
        world.put(path, until(HOUR_MS)).await.expect(200);
        world.created(2, json!({})).await;
        let _stopped = stop_time();
        let worker = waiting(world, "w", 1);
        world.until_waiting(1).await;
        world.put(path, until(-1)).await.expect(200);
        assert_eq!(ids(&worker.await.unwrap().expect(200)), [task_id(2)]);
    }
);

on_both!(
    a_waiting_worker_is_woken_by_the_event_of_a_lost_run,
    |world| {
        world.running(1, "gone").await;
        let _stopped = stop_time();
        let worker = waiting(world, "w", 1);
        world.until_waiting(1).await;
        let (random, now) = (Arc::clone(&world.app.engine.random), world.now());
        // In a change of another process, whose wake-ups do not reach this one.
        let lost = world.write(move |tx| {
            release_worker_claims(
                &mut Change::new(tx, now, &random),
                &key("pp/ee", "g", "gone"),
            )
        });
        assert_eq!(lost.await, 1);
        EventPublisher(Arc::clone(&world.app))
            .activate()
            .await
            .unwrap();
        assert_eq!(ids(&worker.await.unwrap().expect(200)), [task_id(1)]);
    }
);

on_both!(tasks_of_another_process_are_found_quickly, |world| {
    let stopped = stop_time();
    let worker = waiting(world, "w", 1);
    world.until_waiting(1).await;
    // Directly in the store, so no waiting worker is woken.
    let task = stored_task(world).schedule(world.now()).unwrap().task;
    assert!(
        world
            .write(move |tx| store::tasks::insert(tx, &task, task.definition.created))
            .await
    );
    // Before the twenty seconds of its call are over.
    tokio::time::advance(SWEEP_AT_THE_LATEST).await;
    for number in 0..MAX_TRIPS {
        if worker.is_finished() {
            break;
        }
        let_server_begin(world, number).await;
    }
    assert_eq!(ids(&worker.await.unwrap().expect(200)), [task_id(0)]);
    drop(stopped);
});

on_both!(work_is_dealt_among_those_who_wait_in_rounds, |world| {
    let stopped = stop_time();
    let workers: Vec<_> = ["a", "b", "c"].map(|name| waiting(world, name, 2)).into();
    world.until_waiting(3).await;
    let task = stored_task(world).schedule(world.now()).unwrap().task;
    // Four at once, for three workers that would take two each.
    world
        .write(move |tx| {
            for number in 1..=4 {
                let task = numbered(&task, number);
                assert!(store::tasks::insert(tx, &task, task.definition.created)?);
            }
            Ok(())
        })
        .await;
    stopped.resume();
    let mut shares = Vec::new();
    for worker in workers {
        shares.push(ids(&worker.await.unwrap().expect(200)).len());
    }
    shares.sort_unstable();
    assert_eq!(shares, [1, 1, 2]);
});

on_both!(a_worker_that_stops_waiting_claims_no_task, |world| {
    let _stopped = stop_time();
    let gone = waiting(world, "gone", 1);
    world.until_waiting(1).await;
    gone.abort();
    assert!(gone.await.unwrap_err().is_cancelled());
    let worker = waiting(world, "w", 1);
    world.until_waiting(1).await;
    world.created(1, json!({})).await;
    assert_eq!(ids(&worker.await.unwrap().expect(200)), [task_id(1)]);
});

on_both!(parallel a_server_that_stops_lets_its_workers_go, |world| {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (server, stop) = (Arc::new(Server::new(Arc::clone(&world.app))), CancellationToken::new());
    let serving = tokio::spawn(Arc::clone(&server).serve(listener, stop.clone()));
    let mut ask = world.asking_for_work("w", 1);
    ask.host = "127.0.0.1".to_owned();
    ask.port = address.port();
    let signature = ask.signature(&world.root());
    let body = json!({"workerGroup": "g", "workerId": "w", "tasks": 1}).to_string();
    let request = reqwest::Client::new()
        .post(format!("http://{address}/api/queue/v1/claim-work/pp%2Fee"))
        .header("authorization", signature)
        .header("content-type", "application/json")
        .body(body);
    let answer = tokio::spawn(request.send());
    world.until_waiting(1).await;
    stop.cancel();
    let answer = answer.await.unwrap().unwrap();
    assert_eq!(answer.status().as_u16(), 200);
    assert_eq!(answer.json::<Value>().await.unwrap(), json!({"tasks": []}));
    serving.await.unwrap();
});

on_both!(parallel a_client_that_goes_away_is_noticed, |world| {
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (server, stop) = (Arc::new(Server::new(Arc::clone(&world.app))), CancellationToken::new());
    let serving = tokio::spawn(Arc::clone(&server).serve(listener, stop.clone()));
    let mut ask = world.asking_for_work("w", 1);
    ask.host = "127.0.0.1".to_owned();
    ask.port = address.port();
    let signature = ask.signature(&world.root());
    let body = json!({"workerGroup": "g", "workerId": "w", "tasks": 1}).to_string();
    let request = format!(
        "POST /api/queue/v1/claim-work/pp%2Fee HTTP/1.1\r\nhost: {address}\r\n\
         authorization: {signature}\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let stream = tokio::net::TcpStream::connect(address).await.unwrap();
    stream.writable().await.unwrap();
    assert_eq!(stream.try_write(request.as_bytes()).unwrap(), request.len());
    world.until_waiting(1).await;
    drop(stream);
    world.until_waiting(0).await;
    stop.cancel();
    serving.await.unwrap();
});

/// Claims until nothing has come for a while; says what it got.
async fn claim_all(ask: impl Fn() -> Ask, total: usize, got: Arc<std::sync::Mutex<Vec<String>>>) {
    loop {
        if got.lock().unwrap().len() >= total {
            return;
        }
        let reply = ask().await.expect(200);
        got.lock().unwrap().extend(ids(&reply));
    }
}

on_both!(parallel of_many_claimers_on_two_servers_each_task_has_one, |world| {
    const TASKS: u32 = 150;
    const CLAIMERS: u32 = 16;
    let random = Random::new(StdRng::seed_from_u64(8));
    let config = world.app.config.clone();
    let second = start_with(config, Arc::clone(&world.clock) as _, random, Vec::new()).await.unwrap();
    let servers = [Arc::clone(&world.server), Arc::new(Server::new(Arc::clone(&second)))];
    let got = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut claimers = Vec::new();
    for number in 0..CLAIMERS {
        let server = Arc::clone(&servers[number as usize % 2]);
        let (root, now, got) = (world.root(), world.now(), Arc::clone(&got));
        let body = json!({"workerGroup": "g", "workerId": format!("w{number}"), "tasks": 3});
        let ask = move || {
            let path = "queue:/claim-work/pp%2Fee";
            Ask::new(Arc::clone(&server), Method::POST, path, now).by(&root).json(&body)
        };
        claimers.push(tokio::spawn(claim_all(ask, TASKS as usize, got)));
    }
    for number in 1..=TASKS {
        world.created(number, json!({})).await;
    }
    // Those who still wait when all is claimed need not wait to the end.
    const LIMIT: usize = 50_000_000;
    for _ in 0..LIMIT {
        if got.lock().unwrap().len() >= TASKS as usize {
            break;
        }
        tokio::task::yield_now().await;
    }
    claimers.iter().for_each(tokio::task::JoinHandle::abort);
    let got = got.lock().unwrap().clone();
    let each: BTreeSet<&String> = got.iter().collect();
    assert_eq!((got.len(), each.len()), (TASKS as usize, TASKS as usize));
    let counts = world.get("queue:/task-queues/pp%2Fee/counts").await.expect(200);
    assert_eq!((&counts["pendingTasks"], &counts["claimedTasks"]), (&json!(0), &json!(TASKS)));
    second.engine.store.close().await;
});
