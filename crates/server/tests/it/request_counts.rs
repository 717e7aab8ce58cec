//! Statements of each hot request on both databases, and how often PostgreSQL is waited for: a slip
//! shows without a clock.

use serde_json::{Value, json};

use crate::database::on_both;
use crate::fleet_world::{POOL, fleet_test, machine, pool};
use crate::queue_samples::{new_task, task_id};
use crate::samples::{STATIC_SECRET, aws_pool, launch_config, static_pool, static_worker};
use crate::world::World;

/// Statements on SQLite, on PostgreSQL, and round trips to it.
const EXPECTED: &[(&str, [u64; 3])] = &[
    ("createWorkerPool", [12, 12, 4]),
    ("workerPool", [3, 3, 1]),
    ("workerPool, again", [0, 0, 0]),
    ("createWorker", [7, 8, 2]),
    ("worker", [1, 1, 1]),
    ("registerWorker", [4, 4, 4]),
    ("listWorkersForWorkerPool", [2, 2, 1]),
    ("createTask", [9, 10, 2]),
    ("status", [1, 1, 1]),
    ("claimWork", [11, 11, 4]),
    ("reclaimTask", [2, 2, 2]),
    ("reportCompleted", [10, 11, 4]),
];

/// The statements and trips of each request.
struct Efforts<'a> {
    world: &'a World,
    seen: Vec<(&'static str, (u64, u64))>,
}

impl Efforts<'_> {
    /// Sends the request twice, since the first prepares statements, and counts the second one.
    async fn note(&mut self, name: &'static str, send: impl AsyncFn(usize) -> Value) {
        send(0).await;
        let (_, counts) = self.world.counted(send(1)).await;
        let effort = (counts.all_statements(), counts.trips());
        self.seen.push((name, effort));
    }
}

async fn note_pools(efforts: &mut Efforts<'_>) {
    let world = efforts.world;
    let configs = [launch_config(None, "one"), launch_config(None, "two")];
    let pool = |number| format!("/worker-pool/pp%2Fnew-{number}");
    let create = async |number| {
        let created = world.put(&pool(number), aws_pool(&configs));
        created.await.expect(200)
    };
    efforts.note("createWorkerPool", create).await;
    let show = async |number| world.get(&pool(number)).await.expect(200);
    efforts.note("workerPool", show).await;
    efforts.note("workerPool, again", show).await;
}

async fn note_workers(efforts: &mut Efforts<'_>) {
    let world = efforts.world;
    let worker = |number| format!("/workers/pp%2Fee/g/w{number}");
    let create = async |number| {
        let created = world.put(&worker(number), static_worker());
        created.await.expect(200)
    };
    efforts.note("createWorker", create).await;
    let show = async |number| world.get(&worker(number)).await.expect(200);
    efforts.note("worker", show).await;
    let register = async |number| {
        let claim = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
            "workerId": format!("w{number}"),
            "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
        world.post("/worker/register", claim).await.expect(200)
    };
    efforts.note("registerWorker", register).await;
    let list = async |_| world.get("/workers/pp%2Fee").await.expect(200);
    efforts.note("listWorkersForWorkerPool", list).await;
}

async fn note_tasks(efforts: &mut Efforts<'_>) {
    let world = efforts.world;
    let task = |number: usize| u32::try_from(number).unwrap() + 1;
    let create = async |number| {
        let body = new_task(world, json!({"taskQueueId": "pp/ee"}));
        let path = format!("queue:/task/{}", task_id(task(number)));
        world.put(&path, body).await.expect(200)
    };
    efforts.note("createTask", create).await;
    let status = async |number| world.status(task(number)).await;
    efforts.note("status", status).await;
    let claim = async |number| {
        let body = json!({"workerGroup": "g", "workerId": format!("w{number}"), "tasks": 1});
        let claimed = world.post("queue:/claim-work/pp%2Fee", body);
        claimed.await.expect(200)
    };
    efforts.note("claimWork", claim).await;
    let reclaim = async |number| {
        let reclaimed = world.about_task(task(number), "runs/0/reclaim");
        reclaimed.await.expect(200)
    };
    efforts.note("reclaimTask", reclaim).await;
    let report = async |number| {
        let reported = world.about_task(task(number), "runs/0/completed");
        reported.await.expect(200)
    };
    efforts.note("reportCompleted", report).await;
}

on_both!(a_request_costs_so_many_statements_and_trips, |world| {
    let pool = world.put("/worker-pool/pp%2Fee", static_pool());
    pool.await.expect(200);
    let seen = Vec::new();
    let mut efforts = Efforts { world, seen };
    note_pools(&mut efforts).await;
    note_workers(&mut efforts).await;
    note_tasks(&mut efforts).await;
    let is_postgres = world.app.engine.store.engine() == store::Engine::Postgres;
    let expected: Vec<_> = EXPECTED
        .iter()
        .map(|(name, [sqlite, postgres, trips])| match is_postgres {
            true => (*name, (*postgres, *trips)),
            false => (*name, (*sqlite, 0)),
        })
        .collect();
    assert_eq!(efforts.seen, expected);
});

// With PostgreSQL, a plan takes its turn, reads and commits in a few trips: other plans wait for
// its locks in the meantime.
fleet_test!(a_plan_and_its_launch_cost_so_many_trips, |fleet| {
    let config = pool("one", 0, 10, &[machine("a"), machine("b")]);
    for name in ["pp/first", "pp/ee"] {
        fleet.make_pool(name, config.clone()).await;
        fleet.tasks(name, 2).await;
        let (_, counts) = fleet.counted(fleet.provision()).await;
        let transactions = [
            "provision_launch_configs",
            "plan_commit",
            "launch_begin",
            "launch_settle",
        ];
        for transaction in transactions {
            assert!(counts.transactions(transaction) > 0, "{transaction}");
        }
        let n_read = ["provision_facts", "provision_page"].map(|name| counts.transactions(name));
        assert!(n_read.iter().any(|n| *n > 0), "{n_read:?}");
        // The first one prepares statements.
        if name == POOL && counts.trips() > 0 {
            assert_eq!((counts.all_transactions(), counts.trips()), (8, 18));
        }
    }
});
