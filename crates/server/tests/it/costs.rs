//! Costs: the accounts equal the cloud's own bill, to the unit, and each use is what happened.

use std::sync::Arc;

use cloud::BilledMachine;
use domain::id::PoolId;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{Batches, Costs};
use testing::sizes_around;

use crate::database::on_both;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, Running, fleet_test, machine, pool};
use crate::samples::{static_pool, static_worker};
use crate::world::World;

/// A launch config with this price.
fn priced(name: &str, price: f64) -> Value {
    let mut machine = machine(name);
    machine["price"] = json!(price);
    machine
}

async fn charge(fleet: &World) -> Value {
    fleet.events().await;
    fleet.read_outcomes().await;
    Costs(Arc::clone(&fleet.app.engine))
        .activate()
        .await
        .unwrap()
}

async fn report(fleet: &World, query: &str) -> Value {
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
    let pool: PoolId = POOL.parse().unwrap();
    let stored = fleet
        .read(move |tx| store::pools::get(tx, &pool))
        .await
        .unwrap();
    let owner = stored.definition.owner;
    let scope = format!("fleetwright:read-cost:owner:{owner}");
    let who = fleet.client("an-owner", &[&scope]).await;
    let path = format!("fleetwright:/cost/owner/{}", owner.replace('@', "%40"));
    let own = fleet.get(&path).by(&who).await.expect(200);
    assert_eq!(own["total"]["costMicros"], 1_000_000);
    fleet.get("fleetwright:/cost").by(&who).await.expect(403);
    let other = fleet
        .get("fleetwright:/cost/owner/other%40example.com")
        .await
        .expect(200);
    assert_eq!(other["total"]["costMicros"], 0);
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
            for number in first..first + n_machines {
                let path = format!("/workers/pp%2Fee/g/w{number}");
                world.put(&path, static_worker()).await.expect(200);
            }
            first += n_machines;
            let batches = Batches {
                size: u32::try_from(size).unwrap(),
                most,
            };
            let mut charged = 0;
            while charged < n_machines {
                let task = Costs(Arc::clone(&world.app.engine));
                let done = task.in_batches(batches).await.unwrap();
                let n_charged = done["machines_charged"].as_u64().unwrap();
                assert!(n_charged > 0 && n_charged <= (size * most) as u64);
                charged += usize::try_from(n_charged).unwrap();
            }
            assert_eq!(charged, n_machines);
        }
    }
});
