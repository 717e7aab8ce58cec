//! Costs: the accounts equal the cloud's own bill, to the unit, and each use is what happened.

use std::sync::Arc;

use cloud::BilledMachine;
use domain::cost::CHARGED_EVERY_MS;
use domain::id::{PoolId, WorkerKey};
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::DAY_MS;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{Batches, Costs};
use testing::sizes_around;

use crate::database::on_both;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, Running, fleet_test, machine, pool};
use crate::queue_samples::task_id;
use crate::samples::{static_pool, static_worker};
use crate::world::World;

/// More runs than the machines of a test have.
const MANY: u32 = 1_000;

/// A launch config with this price.
fn priced(name: &str, price: f64) -> Value {
    let mut machine = machine(name);
    machine["price"] = json!(price);
    machine
}

pub(crate) async fn charge(fleet: &World) -> Value {
    fleet.events().await;
    fleet.read_outcomes().await;
    Costs(Arc::clone(&fleet.app.engine))
        .activate()
        .await
        .unwrap()
}

pub(crate) async fn report(fleet: &World, query: &str) -> Value {
    fleet
        .get(&format!("fleetwright:/cost{query}"))
        .await
        .expect(200)
}

/// The sum of a bill.
fn sum(bill: &[BilledMachine]) -> i64 {
    bill.iter().filter_map(|machine| machine.micros).sum()
}

/// Millionths by use: useful, booting, idle, failed, leaving, lost.
fn uses(line: &Value) -> Vec<i64> {
    let kinds = ["useful", "booting", "idle", "failed", "leaving", "lost"];
    let uses: Vec<i64> = kinds
        .iter()
        .map(|kind| line["uses"][*kind]["costMicros"].as_i64().unwrap())
        .collect();
    assert_eq!(
        uses.iter().sum::<i64>(),
        line["costMicros"].as_i64().unwrap()
    );
    uses
}

/// One machine that boots for two minutes, works for five and idles for three.
async fn one_worked(fleet: &Fleet) -> Running {
    fleet
        .make_pool(POOL, pool("one", 0, 1, &[priced("a", 6.0)]))
        .await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let key = fleet.workers_in(POOL, "requested").await.remove(0);
    fleet.pass_ms(2 * MINUTE_MS);
    let worker = fleet.register(&key).await;
    let claim = fleet.claim_with(&worker).await;
    fleet.pass_ms(5 * MINUTE_MS);
    fleet.complete(&claim).await;
    fleet.pass_ms(3 * MINUTE_MS);
    worker
}

fleet_test!(each_use_is_charged_and_the_sum_is_the_bill, |fleet| {
    fleet.one.fake.keep_bill();
    let worker = one_worked(fleet).await;
    // The machine runs: its total is exact, and its last minute idle.
    charge(fleet).await;
    let running = report(fleet, "").await;
    assert_eq!(running["total"]["costMicros"], sum(&fleet.one.fake.bill()));
    assert_eq!(
        uses(&running["total"]),
        [500_000, 200_000, 300_000, 0, 0, 0]
    );
    // It takes a minute to end.
    fleet.one.fake.set_stop_ms(MINUTE_MS);
    fleet.remove(&worker.key).await;
    fleet.end().await;
    // No scan looks for half an hour.
    fleet.pass_ms(30 * MINUTE_MS);
    fleet.scan().await;
    assert_eq!(charge(fleet).await, json!({"machines_charged": 1}));
    let after = report(fleet, "").await;
    let bill = fleet.one.fake.bill();
    assert_eq!(bill.len(), 1);
    assert_eq!(bill[0].micros, Some(1_100_000));
    assert_eq!(after["total"]["costMicros"], sum(&bill));
    assert_eq!(
        uses(&after["lines"][0]),
        [500_000, 200_000, 300_000, 0, 100_000, 0]
    );
    assert_eq!(after["lines"][0]["workerPoolId"], POOL);
    // Charging again changes nothing.
    assert_eq!(charge(fleet).await, Value::Null);
    for by in ["kind", "launch-config", "provider", "owner", "day"] {
        let other = report(fleet, &format!("?by={by}")).await;
        assert_eq!(other["total"], after["total"], "{by}");
        let lines = other["lines"].as_array().unwrap().iter();
        let all: i64 = lines.map(|line| line["costMicros"].as_i64().unwrap()).sum();
        assert_eq!(all, 1_100_000, "{by}");
    }
});

fleet_test!(
    a_price_that_moves_changes_machines_that_are_launched_later,
    |fleet| {
        fleet.one.fake.keep_bill();
        fleet
            .make_pool(POOL, pool("one", 0, 2, &[priced("a", 0.07)]))
            .await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.one.fake.set_price(&"a".parse().unwrap(), 0.130_001);
        fleet.pass_ms(7 * MINUTE_MS);
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.pass_ms(13 * MINUTE_MS);
        let bill = fleet.one.fake.bill();
        let mut micros: Vec<_> = bill.iter().filter_map(|machine| machine.micros).collect();
        micros.sort_unstable();
        // 20 minutes at the old price, 13 at the new one.
        assert_eq!(micros, [23_333, 28_166]);
        let now = report(fleet, "").await;
        assert_eq!(now["total"]["costMicros"], sum(&bill));
        for key in fleet.workers_in(POOL, "requested").await {
            fleet.kill(&key);
        }
        fleet.pass_ms(2 * MINUTE_MS);
        fleet.scan().await;
        charge(fleet).await;
        let after = report(fleet, "").await;
        assert_eq!(after["total"]["costMicros"], 23_333 + 28_166);
        // They never asked for work.
        assert_eq!(uses(&after["total"]), [0, 0, 0, 23_333 + 28_166, 0, 0]);
    }
);

fleet_test!(
    a_machine_without_a_price_counts_as_time_and_is_named,
    |fleet| {
        fleet
            .make_pool(POOL, pool("one", 0, 1, &[machine("a")]))
            .await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.pass_ms(6 * MINUTE_MS);
        let now = report(fleet, "").await;
        assert_eq!(now["total"]["costMicros"], 0);
        assert_eq!(now["total"]["unpricedMs"], 6 * MINUTE_MS);
        assert_eq!(now["lines"][0]["machineMs"], 6 * MINUTE_MS);
    }
);

fleet_test!(a_run_that_is_lost_with_its_machine_is_lost_money, |fleet| {
    fleet.one.fake.keep_bill();
    fleet
        .make_pool(POOL, pool("one", 0, 1, &[priced("a", 0.6)]))
        .await;
    let (worker, _) = fleet.busy(POOL, 1).await.remove(0);
    fleet.pass_ms(4 * MINUTE_MS);
    fleet.kill(&worker.key);
    fleet.pass_ms(3 * MINUTE_MS);
    fleet.scan().await;
    charge(fleet).await;
    let after = report(fleet, "").await;
    assert_eq!(uses(&after["total"]), [0, 0, 0, 0, 0, 40_000]);
    assert_eq!(after["total"]["costMicros"], sum(&fleet.one.fake.bill()));
});

fleet_test!(an_owner_sees_what_is_theirs, |fleet| {
    one_worked(fleet).await;
    let id: PoolId = POOL.parse().unwrap();
    let stored = fleet
        .read(move |tx| store::pools::get(tx, &id))
        .await
        .unwrap();
    let owner = stored.definition.owner;
    let scope = format!("fleetwright:read-cost:owner:{owner}");
    let who = fleet.client("an-owner", &[&scope]).await;
    let path = format!("fleetwright:/cost/owner/{}", owner.replace('@', "%40"));
    let own = fleet.get(&path).by(&who).await.expect(200);
    assert_eq!(own["total"]["costMicros"], 1_000_000);
    fleet.get("fleetwright:/cost").by(&who).await.expect(403);
    // An owner without costs, and those who do not exist.
    fleet
        .make_pool("pp/idle", pool("two", 0, 1, &[machine("a")]))
        .await;
    fleet
        .get("fleetwright:/cost/pool/pp%2Fidle")
        .await
        .expect(200);
    fleet
        .get("fleetwright:/cost/provider/two")
        .await
        .expect(200);
    for (path, who) in [
        (
            "owner/other%40example.com",
            "other@example.com owns no pool",
        ),
        ("pool/no%2Fsuch", "Pool no/such does not exist"),
        ("provider/nowhere", "Provider nowhere does not exist"),
    ] {
        let path = format!("fleetwright:/cost/{path}");
        let missing = fleet.get(&path).await.expect(404);
        let message = missing["message"].as_str().unwrap();
        assert!(message.starts_with(who), "{message}");
    }
});

on_both!(machines_are_charged_in_batches, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let mut first = 0;
    for (path, size, most) in [("BATCH", 2_usize, 1_000_usize), ("MAX_BATCHES", 2, 3)] {
        for count in match path {
            "BATCH" => sizes_around("server::background::costs::BATCH", size),
            _ => sizes_around("server::background::costs::MAX_BATCHES", most),
        } {
            let n_machines = if path == "BATCH" { count } else { count * size };
            // Those of before are not due together with the new ones.
            world.database.raw("DELETE FROM meters");
            for number in first..first + n_machines {
                let path = format!("/workers/pp%2Fee/g/w{number}");
                world.put(&path, static_worker()).await.expect(200);
            }
            first += n_machines;
            world.clock.advance_ms(CHARGED_EVERY_MS);
            let batches = Batches {
                size: u32::try_from(size).unwrap(),
                most,
            };
            let mut charged = 0;
            while charged < n_machines {
                let task = Costs(Arc::clone(&world.app.engine));
                let done = task.in_batches(batches, MANY).await.unwrap();
                let n_charged = done["machines_charged"].as_u64().unwrap();
                assert!(n_charged > 0 && n_charged <= (size * most) as u64);
                charged += usize::try_from(n_charged).unwrap();
            }
            assert_eq!(charged, n_machines);
        }
    }
});

on_both!(
    all_machines_are_charged_in_one_activation_whatever_the_number_of_their_runs,
    |world| {
        world
            .put("/worker-pool/pp%2Fee", static_pool())
            .await
            .expect(200);
        let limit = 4_u32;
        let counts = sizes_around("server::background::costs::MAX_RUNS", 4);
        // Each machine has another number of runs, of a second each.
        for (number, count) in (0_u32..).zip(&counts) {
            let path = format!("/workers/pp%2Fee/g/w{number}");
            world.put(&path, static_worker()).await.expect(200);
            let key = WorkerKey::parse("pp/ee".parse().unwrap(), "g", &format!("w{number}"));
            let (key, start, count) = (key.unwrap(), world.now(), *count);
            world
                .write(move |tx| {
                    let runs = (0..count).map(|run| RunOutcome {
                        worker: key.clone(),
                        task_id: task_id(u32::try_from(run).unwrap()).parse().unwrap(),
                        run_id: number,
                        reason: EndReason::Completed,
                        started: Some(start.plus_millis(run as i64 * 1_000)),
                        resolved: start.plus_millis(run as i64 * 1_000 + 1_000),
                    });
                    store::workers::note_first_claim(tx, &key, start)?;
                    store::run_outcomes::note(tx, &runs.collect::<Vec<_>>()).map(drop)
                })
                .await;
        }
        world.clock.advance_ms(CHARGED_EVERY_MS + MINUTE_MS);
        let costs = Costs(Arc::clone(&world.app.engine));
        let batches = Batches { size: 3, most: 100 };
        let done = costs.in_batches(batches, limit).await.unwrap();
        let parts = counts.iter().map(|count| count.div_ceil(4).max(1));
        assert_eq!(done["machines_charged"], parts.sum::<usize>());
        assert_eq!(costs.in_batches(batches, limit).await.unwrap(), Value::Null);
        let report = report(world, "?by=kind").await;
        let useful = &report["total"]["uses"]["useful"]["machineMs"];
        assert_eq!(*useful, counts.iter().sum::<usize>() * 1_000);
        let left = world.app.engine.store.count_rows().await.unwrap();
        assert_eq!(left["metered_runs"], 0);
    }
);

on_both!(
    hours_become_days_although_no_machine_can_be_charged,
    |world| {
        let began = world.now().as_millis() / DAY_MS * DAY_MS - 10 * DAY_MS;
        let amounts = "0, 0, 0, 0, 0, 0, 7, 0, 0, 0, 0, 0";
        world.database.raw(&format!(
            "INSERT INTO costs VALUES ({began}, 1, 1, {amounts}); \
             ALTER TABLE meters RENAME TO away_meters"
        ));
        world.errors_expected.set(true);
        let costs = Costs(Arc::clone(&world.app.engine));
        let batches = Batches { size: 3, most: 5 };
        costs.in_batches(batches, MANY).await.unwrap_err();
        let oldest = world.read(store::cost_accounts::oldest_hour).await;
        assert_eq!(oldest, None);
        world
            .database
            .raw("ALTER TABLE away_meters RENAME TO meters");
    }
);
