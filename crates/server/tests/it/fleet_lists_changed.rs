//! Workers that a person marked in a list: ended, drained and quarantined together.

use domain::queue_worker::QueueWorker;
use domain::time::DAY_MS;
use domain::worker::{StoredWorker, Worker, WorkerState};
use serde_json::{Value, json};
use testing::sizes_around;

use crate::database::{on_both, on_sqlite_first};
use crate::fleet_lists::running;
use crate::samples::{key, static_pool, static_worker};
use crate::world::World;

const END: &str = "fleetwright:/workers/end";
const QUARANTINE: &str = "fleetwright:/workers/quarantine";
/// The server takes this many workers in one request.
const MOST: usize = 500;

fn name(pool: &str, group: &str, id: &str) -> Value {
    json!({"workerPoolId": pool, "workerGroup": group, "workerId": id})
}

/// Worker and result of each line.
fn results(reply: &Value) -> Vec<String> {
    let rows = reply["workers"].as_array().unwrap().iter();
    let word = |row: &Value, key: &str| row[key].as_str().unwrap().to_owned();
    let rows = rows.map(|row| format!("{} {}", word(row, "workerId"), word(row, "result")));
    rows.collect()
}

async fn last_change(world: &World, worker: &str) -> Value {
    let path = format!("fleetwright:/audit?entityType=worker&entityId={worker}&limit=1");
    world.get(&path).await.expect(200)["entries"][0].take()
}

async fn populate(world: &World) {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world
        .put("/workers/pp%2Fee/g/host", static_worker())
        .await
        .expect(200);
    let workers = [
        running("pp/ee", "g", "w1", 0),
        running("pp/ff", "g", "w2", 0),
        StoredWorker {
            state: WorkerState::Requested,
            ..running("pp/ff", "g", "w3", 0)
        },
        StoredWorker {
            provider_id: "nosuch".parse().unwrap(),
            ..running("pp/ee", "g", "stray", 0)
        },
    ];
    for worker in workers {
        world.insert(Worker::from_stored(worker)).await;
    }
}

on_both!(each_worker_of_a_chosen_list_has_its_own_result, |world| {
    populate(world).await;
    let workers = json!([
        name("pp/ee", "g", "w1"),
        name("pp/ff", "g", "w2"),
        name("pp/ff", "g", "w3"),
        name("pp/ee", "g", "host"),
        name("pp/ee", "g", "stray"),
        name("pp/ee", "g", "nosuch"),
        // Twice is once.
        name("pp/ee", "g", "w1"),
    ]);
    let body = json!({"workers": workers, "reason": "bad rack", "drain": true});
    let reply = world.post(END, body.clone()).await.expect(200);
    let expected = [
        "host draining",
        "nosuch not-found",
        "stray draining",
        "w1 draining",
        "w2 draining",
        // It has no task that it could finish.
        "w3 ended",
    ];
    assert_eq!(results(&reply), expected);
    let change = last_change(world, "pp/ee/g/w1").await;
    assert_eq!(change["actionType"], "drained");
    assert_eq!(change["detail"]["reason"], "bad rack");
    assert_eq!(change["clientId"], "static/root");
    assert!(change["sourceIp"].is_string() && change["requestId"].is_string());
    let again = world.post(END, body.clone()).await.expect(200);
    let again = results(&again).into_iter();
    let n_already = again.filter(|line| line.ends_with(" already")).count();
    assert_eq!(n_already, 5);

    let mut body = body;
    body["drain"] = json!(false);
    let reply = world.post(END, body).await.expect(200);
    let expected = [
        "host ended",
        "nosuch not-found",
        "stray refused",
        "w1 ended",
        "w2 ended",
        "w3 already",
    ];
    assert_eq!(results(&reply), expected);
    assert_eq!(
        reply["workers"][2]["problem"],
        "Provider nosuch does not exist"
    );
    let w1 = world.worker(&key("pp/ee", "g", "w1")).await.unwrap();
    assert_eq!(w1.state, WorkerState::Stopping);
});

on_sqlite_first!(
    workers_that_the_caller_may_not_change_stay_as_they_are,
    |world| {
        populate(world).await;
        let workers = json!([name("pp/ee", "g", "w1"), name("pp/ff", "g", "w2")]);
        let scopes = [
            "fleetwright:end-workers",
            "fleetwright:quarantine-workers",
            "worker-manager:remove-worker:pp/ee/*",
            "queue:quarantine-worker:pp/ff/g/w2",
        ];
        let who = world.root().temporary(None, &scopes, world.now());
        let body = json!({"workers": workers, "reason": "r"});
        let reply = world.post(END, body.clone()).by(&who).await.expect(200);
        assert_eq!(results(&reply), ["w1 ended", "w2 forbidden"]);
        let w2 = world.worker(&key("pp/ff", "g", "w2")).await.unwrap();
        assert_eq!(w2.state, WorkerState::Running);
        let mut body = body;
        body["quarantineUntil"] = json!("2027-01-01T00:00:00.000Z");
        let reply = world.post(QUARANTINE, body).by(&who).await.expect(200);
        assert_eq!(results(&reply), ["w2 not-found", "w1 forbidden"]);
    }
);

on_sqlite_first!(
    a_change_of_chosen_workers_has_a_reason_and_a_bound,
    |world| {
        let body = |count: usize, reason: &str| {
            let workers = (0..count).map(|number| name("pp/ee", "g", &format!("w{number}")));
            json!({"workers": workers.collect::<Vec<_>>(), "reason": reason})
        };
        let blank = world.post(END, body(1, " ")).await;
        blank.refused_with(400, "InputError", "reason");
        for count in sizes_around("workers of one request", MOST) {
            let status = match (1..=MOST).contains(&count) {
                true => 200,
                false => 400,
            };
            assert_eq!(world.post(END, body(count, "r")).await.status, status);
            let mut quarantine = body(count, "r");
            quarantine["quarantineUntil"] = json!("2027-01-01T00:00:00.000Z");
            assert_eq!(world.post(QUARANTINE, quarantine).await.status, status);
        }
    }
);

on_both!(one_transaction_ends_a_bounded_number_of_workers, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let sizes = sizes_around("engine::workers::selected_workers::MAX_ENDED", 100);
    for count in sizes.into_iter().filter(|count| (1..=MOST).contains(count)) {
        let id = |number: usize| format!("r{count}-{number:04}");
        let workers = (0..count).map(|number| running("pp/ee", "g", &id(number), 0));
        let workers: Vec<Worker> = workers.map(Worker::from_stored).collect();
        world
            .write(move |tx| {
                for worker in &workers {
                    store::workers::insert(tx, worker)?;
                }
                Ok(())
            })
            .await;
        let names: Vec<Value> = (0..count)
            .map(|number| name("pp/ee", "g", &id(number)))
            .collect();
        let body = json!({"workers": names, "reason": "r"});
        let (reply, counts) = world
            .counted(async { world.post(END, body).await.expect(200) })
            .await;
        let ended = results(&reply).into_iter();
        assert_eq!(ended.filter(|line| line.ends_with(" ended")).count(), count);
        let n_batches = u64::try_from(count.div_ceil(100)).unwrap();
        assert_eq!(counts.statements("worker_get_some"), n_batches);
    }
});

on_both!(
    chosen_workers_are_quarantined_in_batches_and_released,
    |world| {
        let until = world.now().plus_millis(DAY_MS);
        let sizes = sizes_around("engine::queue::queue_workers::BATCH", 100);
        for count in sizes.into_iter().filter(|count| (1..=MOST).contains(count)) {
            let id = |number: usize| format!("r{count}-{number:04}");
            let now = world.now();
            // The queue does not know the last of them.
            let known = (0..count - 1).map(|number| {
                QueueWorker::new(key("pp/ee", "g", &id(number)), now, now.plus_millis(DAY_MS))
            });
            let known: Vec<QueueWorker> = known.collect();
            world
                .write(move |tx| {
                    for worker in &known {
                        store::queue_workers::upsert(tx, worker)?;
                    }
                    Ok(())
                })
                .await;
            let names: Vec<Value> = (0..count)
                .map(|number| name("pp/ee", "g", &id(number)))
                .collect();
            let body = |until: String| json!({"workers": names, "reason": "noisy disk", "quarantineUntil": until});
            let quarantine = world.post(QUARANTINE, body(until.to_string()));
            let (reply, counts) = world.counted(async { quarantine.await.expect(200) }).await;
            let n_batches = u64::try_from(count.div_ceil(100)).unwrap();
            assert_eq!(counts.statements("claimant_list"), n_batches);
            let lines = results(&reply);
            let quarantined = lines.iter().filter(|line| line.ends_with(" quarantined"));
            assert_eq!(quarantined.count(), count - 1);
            assert!(lines.last().unwrap().ends_with(" not-found"));
            if count > 1 {
                let first = key("pp/ee", "g", &id(0));
                let stored = world
                    .read(move |tx| store::queue_workers::get(tx, &first))
                    .await
                    .unwrap();
                assert_eq!(stored.quarantine_until, Some(until));
                assert_eq!(stored.quarantine_details[0].quarantine_info, "noisy disk");
                let change = last_change(world, &format!("pp/ee/g/{}", id(0))).await;
                assert_eq!(change["actionType"], "quarantined");
                let past = world.now().plus_millis(-1).to_string();
                let reply = world.post(QUARANTINE, body(past)).await.expect(200);
                assert!(results(&reply)[0].ends_with(" released"));
            }
        }
    }
);
