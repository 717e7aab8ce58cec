//! A database as it is after a year: no transaction makes the database look at more rows than on a
//! smaller database, unless a list says why. The number of statements does not show this: a
//! statement that searches an index by too few columns passes over most of a table.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::json;
use server::background::driver::BackgroundTask;
use server::background::{
    ArtifactCleanup, Budgets, Costs, EventPublisher, Housekeeping, ImageMeasure, ImageMirror,
    ImageRollouts, Learner, MachineTermination, Measure, Outcomes, Overrides, ProviderSetup,
    Provision, ProvisionRounds, QueueClaims, QueueDeadlines, QueueHousekeeping, QueueReleases,
    Refresh, Scan, WaitAccounts,
};
use store::year_old::{self, YearOld};

use crate::database::Database;
use crate::fleet_clouds::TestCloud;
use crate::fleet_world::MINUTE_MS;
use crate::queue_samples::{new_task, task_id};
use crate::world::{KEEPING, World};

/// Two databases, by what their size is divided by: one has four times as many rows.
const DIVISORS: [u32; 2] = [100, 25];
/// Less work than this does not matter: steps of SQLite, or rows that PostgreSQL has found.
const LITTLE: u64 = 5_000;

/// As long as PostgreSQL analyzes a table by itself, it passes over rows that were just changed,
/// for the analysis could still see them.
const ANALYZE_NOTHING: &str = "DO $$
    DECLARE name text;
    BEGIN
        FOR name IN SELECT tablename FROM pg_tables WHERE schemaname = current_schema() LOOP
            EXECUTE format('ALTER TABLE %I SET (autovacuum_enabled = off)', name);
        END LOOP;
    END $$";

/// Transactions whose work may grow, and why.
const ALLOWED: &[(&str, &[&str])] = &[
    (
        "a background task surveys all of something, on a thread of its own",
        &[
            "budget_sum",
            "learn_demand",
            "measure_pools",
            "measure_totals",
            "provision_demand",
            "provision_round",
            "recorded_run_look",
            "recorded_worker_look",
            "run_outcome_look",
            "scan_queue_workers",
            "waits_look",
        ],
    ),
    (
        "it lists the launches under way, and a larger database launches for more pools",
        &["launch_list_pending"],
    ),
    (
        "it counts the workers of the pool, from an index",
        &["provision_facts"],
    ),
    (
        "after the start, it reads all pools together",
        &["provision_page"],
    ),
    (
        "its batch has room for all rows of the smaller database",
        &[
            "launch_config_expire",
            "run_outcome_trim",
            "scan_note_checked",
            "turn_expire",
        ],
    ),
    (
        "PostgreSQL reads all of a table for a batch, as long as the table is small",
        &["outbox_expire", "recorded_run_expire", "run_count_expire"],
    ),
];

async fn open(database: Database, divisor: u32) -> World {
    let world = World::open_with(
        database,
        |_| {},
        |config, clock| {
            let cloud = TestCloud::new("cloud", None, config, clock);
            vec![("cloud".parse().unwrap(), cloud as _)]
        },
    )
    .await;
    let year = YearOld {
        now: world.now(),
        divisor,
        seed: 7,
    };
    year_old::fill(&world.app.engine.store, year).await.unwrap();
    world.app.engine.store.count_work();
    world
}

async fn activate(mut task: impl BackgroundTask) {
    task.activate().await.unwrap();
}

/// All that a server does by itself.
async fn work(world: &World) {
    let own = || Arc::clone(&world.app);
    let engine = || Arc::clone(&world.app.engine);
    activate(ProviderSetup::new(engine())).await;
    for refresh in Refresh::each(&engine()) {
        activate(refresh).await;
    }
    activate(ImageMirror::new(own())).await;
    activate(ImageMeasure::new(own())).await;
    activate(ImageRollouts::new(own())).await;
    activate(Provision::new(engine())).await;
    activate(ProvisionRounds(engine())).await;
    world.app.engine.launch_tracker.finish().await;
    activate(Overrides(engine())).await;
    activate(Budgets(engine())).await;
    activate(Learner::new(engine(), MINUTE_MS)).await;
    for scan in Scan::each(&engine()) {
        activate(scan).await;
    }
    for ending in MachineTermination::each(&engine()) {
        activate(ending).await;
    }
    activate(QueueClaims(engine())).await;
    activate(QueueDeadlines(engine())).await;
    activate(QueueReleases(engine())).await;
    activate(EventPublisher(own())).await;
    activate(Outcomes(own())).await;
    activate(WaitAccounts::new(own())).await;
    activate(Costs(engine())).await;
    activate(Measure(own())).await;
    let queue = QueueHousekeeping::new(engine());
    queue.in_batches(KEEPING).await.unwrap();
    let house = Housekeeping::new(own());
    house.in_batches(KEEPING).await.unwrap();
    activate(ArtifactCleanup::new(engine())).await;
}

/// Requests of clients.
async fn ask(world: &World, number: u32) {
    let body = new_task(world, json!({"taskQueueId": "year/pool-0"}));
    let path = format!("queue:/task/{}", task_id(number));
    world.put(&path, body).await.expect(200);
    let worker = json!({"workerGroup": "g", "workerId": "w", "tasks": 4});
    let path = "queue:/claim-work/year%2Fpool-0";
    let claimed = world.post(path, worker).await.expect(200);
    for claim in claimed["tasks"].as_array().unwrap() {
        let task = claim["status"]["taskId"].as_str().unwrap();
        for what in ["reclaim", "completed"] {
            let path = format!("queue:/task/{task}/runs/{}/{what}", claim["runId"]);
            world.post(&path, json!({})).await.expect(200);
        }
    }
}

/// The most work of a transaction with each name.
async fn measure(world: &World) -> BTreeMap<&'static str, u64> {
    let store = &world.app.engine.store;
    let mut most = BTreeMap::new();
    store.take_counts();
    for (number, minutes) in [(1, 0), (2, 1), (3, 6), (4, 60)] {
        world.clock.advance_ms(minutes * MINUTE_MS);
        ask(world, number).await;
        work(world).await;
        for (name, work) in store.take_counts().work() {
            let most = most.entry(name).or_default();
            *most = work.max(*most);
        }
    }
    most
}

async fn check(databases: [Database; 2]) {
    let [small, large] = databases;
    let [small_divisor, large_divisor] = DIVISORS;
    let small = measure(&open(small, small_divisor).await).await;
    let large = measure(&open(large, large_divisor).await).await;
    assert!(large.len() > 50, "{large:?}");
    let allowed: Vec<&str> = ALLOWED
        .iter()
        .flat_map(|(_, names)| *names)
        .copied()
        .collect();
    let is_known = |name: &&&str| !large.contains_key(**name);
    let unknown: Vec<_> = allowed.iter().filter(is_known).collect();
    assert!(unknown.is_empty(), "no transactions: {unknown:?}");
    assert!(large["plan_commit"] > LITTLE, "{large:?}");
    let mut grown = String::new();
    for (name, work) in &large {
        let before = small.get(name).copied().unwrap_or(0);
        if *work > LITTLE && *work > 2 * before && !allowed.contains(name) {
            grown += &format!("{name}: {before}, and {work} with four times as many rows\n");
        }
    }
    assert!(
        grown.is_empty(),
        "these take longer on a larger database; search an index by all columns, look outside of \
         the transaction that writes, or add a reason to ALLOWED:\n{grown}"
    );
}

// Smaller databases fit into the batches of background tasks, so their work would grow.
mod the_work_of_a_transaction_does_not_grow_with_the_database {
    use super::{Database, check};

    #[tokio::test]
    async fn sqlite() {
        check([Database::sqlite(), Database::sqlite()]).await;
    }

    mod long {
        use super::super::{ANALYZE_NOTHING, Database, check};

        #[tokio::test]
        async fn postgres() {
            if let (Some(small), Some(large)) = (Database::postgres(), Database::postgres()) {
                for database in [&small, &large] {
                    database.raw(ANALYZE_NOTHING);
                }
                check([small, large]).await;
            }
        }
    }
}
