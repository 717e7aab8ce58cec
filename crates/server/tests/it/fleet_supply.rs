//! Supply counts workers that ask for work, not all running ones.

use serde_json::{Value, json};

use crate::ask::Who;
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, Running, fleet_on_sqlite_first, machine, plain_pool, pool,
};
use crate::samples::{STATIC_SECRET, key, static_worker};

/// Decides on all pools each minute, for this many minutes.
async fn minutes(fleet: &Fleet, count: u32) {
    for _ in 0..count {
        fleet.pass_ms(MINUTE_MS);
        fleet.round().await;
    }
}

/// The ids of workers that `explain pool` calls silent.
async fn silent(fleet: &Fleet) -> Vec<String> {
    let explained = fleet.explain_pool(POOL).await;
    let silent = explained["silent"].as_array().unwrap().iter();
    let ids = silent.map(|worker| worker["workerId"].as_str().unwrap().to_owned());
    ids.collect()
}

/// A host that somebody declares registers.
async fn declared(fleet: &Fleet, id: &str) -> Running {
    let claim = json!({"workerPoolId": POOL, "providerId": "static", "workerGroup": "g",
        "workerId": id, "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
    let reply = fleet.post("/worker/register", claim);
    Running {
        key: key(POOL, "g", id),
        who: Who::registered(&reply.anonymously().await.expect(200)),
    }
}

/// How many machines of the pool's launches asked for work at least once.
async fn first_claims(fleet: &Fleet) -> u64 {
    let pool: domain::id::PoolId = POOL.parse().unwrap();
    let long_ago = domain::time::Timestamp::from_millis(0);
    let window = store::launch_health::HealthWindow {
        since: long_ago,
        until: domain::time::Timestamp::from_millis(i64::MAX),
        launched_before: long_ago,
        registered_before: long_ago,
    };
    let records = fleet
        .read(move |tx| store::launch_health::between(tx, &window, &pool, &pool))
        .await;
    records.iter().map(|results| results.record.claimed).sum()
}

fleet_on_sqlite_first!(
    a_launch_knows_how_many_of_its_machines_asked_for_work,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        let [first, second] = fleet.register_all(POOL).await.try_into().ok().unwrap();
        assert_eq!(first_claims(fleet).await, 0);
        let claim = fleet.claim_with(&first).await;
        assert_eq!(first_claims(fleet).await, 1);
        fleet.complete(&claim).await;
        // Further claims are no first ones, whenever they are made.
        for pass_ms in [0, 2 * MINUTE_MS] {
            fleet.pass_ms(pass_ms);
            fleet.tasks(POOL, 1).await;
            let claim = fleet.claim_with(&first).await;
            fleet.complete(&claim).await;
            assert_eq!(first_claims(fleet).await, 1);
        }
        fleet.claim_with(&second).await;
        assert_eq!(first_claims(fleet).await, 2);
    }
);

fleet_on_sqlite_first!(
    a_worker_that_never_asks_is_replaced_after_minutes_and_ended,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        let [phantom] = fleet.register_all(POOL).await.try_into().ok().unwrap();
        minutes(fleet, 5).await;
        assert_eq!(fleet.states(POOL).await, "1 running");
        assert!(silent(fleet).await.is_empty());
        minutes(fleet, 1).await;
        assert_eq!(fleet.states(POOL).await, "1 requested, 1 running");
        assert_eq!(silent(fleet).await, [phantom.key.id.as_str()]);
        let explained = fleet.explain_worker(&phantom.key).await;
        assert_eq!(explained["presence"], "silent");
        let last = explained["story"].as_array().unwrap().last().unwrap();
        let text = "silent: it has never asked for work, so others are launched for waiting tasks";
        assert_eq!(last["text"], text);

        let [worker] = fleet.register_all(POOL).await.try_into().ok().unwrap();
        let claim = fleet.claim_with(&worker).await;
        let explained = fleet.explain_worker(&worker.key).await;
        assert_eq!(explained["presence"], "asking");
        fleet.complete(&claim).await;
        // One is enough, however long it takes.
        minutes(fleet, 24).await;
        fleet.scan().await;
        assert_eq!(fleet.launches(POOL).await.len(), 2);
        assert_eq!(fleet.end_reason(&phantom.key).await, "");
        minutes(fleet, 1).await;
        fleet.scan().await;
        let reason = fleet.end_reason(&phantom.key).await;
        assert!(reason.starts_with("worker never claimed work"), "{reason}");
    }
);

fleet_on_sqlite_first!(declared_hosts_that_do_not_ask_are_no_supply, |fleet| {
    fleet
        .spread(0, 9, &[(machine("a"), "one"), (machine("b"), "static")])
        .await;
    for id in ["w1", "w2", "w3"] {
        let path = format!("/workers/pp%2Fee/g/{id}");
        fleet.put(&path, static_worker()).await.expect(200);
    }
    let host = declared(fleet, "w1").await;
    fleet.tasks(POOL, 1).await;
    fleet.claim_with(&host).await;
    fleet.tasks(POOL, 2).await;
    minutes(fleet, 5).await;
    assert_eq!(fleet.states(POOL).await, "3 running");
    minutes(fleet, 1).await;
    assert_eq!(silent(fleet).await, ["w2", "w3"]);
    assert_eq!(fleet.states(POOL).await, "2 requested, 3 running");
    // Scans do not end declared hosts. A host that asks for work is supply again.
    declared(fleet, "w2").await;
    minutes(fleet, 40).await;
    fleet.scan().await;
    let running = fleet.workers_in(POOL, "running").await;
    assert_eq!(running.len(), 3);
});

fleet_on_sqlite_first!(no_worker_is_silent_after_a_gap_of_the_server, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    fleet.register_all(POOL).await;
    // The server was stopped, or the clock was set: all workers look silent until they ask again.
    for passed_ms in [10 * MINUTE_MS, -120 * MINUTE_MS, 120 * MINUTE_MS] {
        fleet.pass_ms(passed_ms);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 running");
    }
    minutes(fleet, 3).await;
    assert_eq!(fleet.states(POOL).await, "1 running");
    minutes(fleet, 1).await;
    assert_eq!(fleet.states(POOL).await, "1 requested, 1 running");
});

fleet_on_sqlite_first!(short_tasks_with_gaps_are_done_by_one_worker, |fleet| {
    // No setting limits how long a worker may be idle.
    let plain = json!({"workerConfig": {}, "workerManager": {"launchConfigId": "a"}});
    fleet.make_pool(POOL, pool("one", 0, 4, &[plain])).await;
    let mut worker: Option<Running> = None;
    for _ in 0..30 {
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        for running in fleet.register_all(POOL).await {
            worker = Some(running);
        }
        let running = worker.as_ref().unwrap();
        let claim = fleet.claim_with(running).await;
        fleet.complete(&claim).await;
        fleet.round().await;
        if fleet.advice(running).await.starts_with("go") {
            fleet.leave(running).await;
            worker = None;
        }
        fleet.pass_ms(20_000);
    }
    assert_eq!(fleet.launches(POOL).await.len(), 1);
    // It is asked to stop after a minute without work.
    fleet.pass_ms(MINUTE_MS);
    fleet.round().await;
    let advice = fleet.advice(worker.as_ref().unwrap()).await;
    assert_eq!(advice, "go: over capacity");
});

fleet_on_sqlite_first!(a_pool_that_can_launch_nothing_is_reported_once, |fleet| {
    let mut off = machine("off");
    off["workerManager"]["initialWeight"] = json!(0);
    fleet.make_pool(POOL, pool("one", 0, 4, &[off])).await;
    fleet.round().await;
    assert_eq!(fleet.errors(POOL).await, []);
    fleet.tasks(POOL, 1).await;
    let report = |count| {
        let one = (
            "provision-error".to_owned(),
            "no-usable-launch-config".to_owned(),
        );
        vec![one; count]
    };
    minutes(fleet, 1).await;
    assert_eq!(fleet.errors(POOL).await, report(1));
    fleet.tasks(POOL, 1).await;
    minutes(fleet, 59).await;
    assert_eq!(fleet.errors(POOL).await, report(1));
    minutes(fleet, 2).await;
    assert_eq!(fleet.errors(POOL).await, report(2));
    let errors = fleet.get("/worker-pool-errors/pp%2Fee").await.expect(200);
    let text = &errors["workerPoolErrors"][0]["description"];
    let expected: Value = json!(
        "tasks wait, and each launch config of the pool has the initialWeight 0. \
         Give one of them a weight, or add one."
    );
    assert_eq!(*text, expected);
});

fleet_on_sqlite_first!(
    machines_of_an_archived_launch_config_are_not_counted_on,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(9)).await;
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "2 requested");
        fleet
            .change_pool(POOL, pool("one", 0, 9, &[machine("b")]))
            .await;
        fleet.pass_ms(5_000);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "4 requested");
        fleet.pass_ms(5_000);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "4 requested");
    }
);
