//! Pools of the strategy `balanced`: what happens to machines becomes news, and plans know it.

use cloud::LaunchOutcome;
use domain::id::PoolId;
use domain::launch::Cause;
use domain::market::{OfferingId, OfferingNews};
use domain::plan::Input;
use engine::fleet;
use serde_json::{Value, json};
use server::background::Learner;
use server::background::driver::BackgroundTask;
use std::sync::Arc;
use store::offering_news;
use testing::sizes_around;

use crate::fleet_world::{
    Fleet, IDLE_MS, MINUTE_MS, POOL, REGISTRATION_MS, fleet_on_sqlite_first, fleet_test, machine,
    plain_pool, pool,
};

const SECOND_MS: i64 = 1_000;
/// The time from one scan to the next.
const SCAN_MS: i64 = 20 * SECOND_MS;

/// A launch config in this region.
pub(crate) fn in_region(region: &str) -> Value {
    let mut config = machine(region);
    config["region"] = json!(region);
    config["price"] = json!(0.5);
    config
}

/// A pool of the first cloud that learns, with a launch config in each of these regions.
pub(crate) fn learning_pool(max: u32, regions: &[&str]) -> Value {
    let configs: Vec<Value> = regions.iter().map(|region| in_region(region)).collect();
    let mut definition = pool("one", 0, max, &configs);
    definition["config"]["strategy"] = json!("balanced");
    definition
}

pub(crate) fn offering(region: &str) -> OfferingId {
    OfferingId::new(&"one".parse().unwrap(), region)
}

fleet_test!(
    a_round_reads_as_often_for_any_number_of_pools_whose_machines_start,
    |fleet| {
        let mut seen = Vec::new();
        for number in 0..20 {
            let pool = format!("pp/p{number}");
            fleet.make_pool(&pool, learning_pool(100, &["east"])).await;
            fleet.tasks(&pool, 1).await;
            fleet.round().await;
            if [0, 1, 19].contains(&number) {
                let (_, counts) = fleet.counted(fleet.round()).await;
                seen.push(counts.all_statements());
            }
        }
        assert_eq!(seen[0], seen[1]);
        assert_eq!(seen[1], seen[2]);
        // Machines that start for long may be late, so these pools are decided on.
        fleet.pass_ms(100 * SECOND_MS);
        let (_, counts) = fleet.counted(fleet.round()).await;
        assert!(counts.all_statements() > seen[2] + 20);
    }
);

impl Fleet {
    /// Nothing is reported if nothing was done.
    pub(crate) async fn learn(&self) -> Value {
        let mut learner = Learner::new(Arc::clone(&self.app.engine), SCAN_MS);
        learner.activate().await.unwrap()
    }

    /// The news that nobody has learned from: `east asked`.
    pub(crate) async fn offering_news(&self) -> Vec<String> {
        let rows = self.read(|tx| offering_news::oldest(tx, 1_000)).await;
        let text = |row: offering_news::NewsRow| {
            let place = row.offering.as_str().split_once(' ').unwrap().1.to_owned();
            let news = match row.news.unwrap() {
                OfferingNews::Asked => "asked".to_owned(),
                OfferingNews::Accepted => "accepted".to_owned(),
                OfferingNews::Failed { trouble } => trouble.to_string(),
                OfferingNews::FailedLate { trouble } => format!("late {trouble}"),
                OfferingNews::Registered { after_ms } => format!("registered after {after_ms}"),
                OfferingNews::Survived => "survived".to_owned(),
                OfferingNews::Interrupted => "interrupted".to_owned(),
                OfferingNews::Ran { hours } => format!("ran {hours:.4}"),
            };
            format!("{place} {news}")
        };
        rows.into_iter().map(text).collect()
    }

    pub(crate) async fn explain_text(&self, pool: &str) -> String {
        let explained = self.explain_pool(pool).await;
        explained["now"]["text"].as_str().unwrap().to_owned()
    }

    /// How many workers that have not stopped are in this region.
    async fn in_region(&self, region: &str) -> usize {
        let workers = self.workers(POOL).await;
        let there = workers.iter().filter(|worker| {
            worker.key.group.as_str() == region
                && worker.state != domain::worker::WorkerState::Stopped
        });
        there.count()
    }
}

fleet_on_sqlite_first!(
    a_region_that_is_taken_away_is_left_within_a_tick_and_gets_its_share_back,
    |fleet| {
        fleet
            .make_pool(POOL, learning_pool(1_000, &["east", "west"]))
            .await;
        fleet.one.fake.refuse_launches_of("east", Cause::Capacity);
        fleet.tasks(POOL, 40).await;
        // The round asks both regions; the answer of the first wakes the pool again.
        fleet.round().await;
        assert!(fleet.in_region("west").await < 40);
        fleet.provision().await;
        assert_eq!(
            (fleet.in_region("east").await, fleet.in_region("west").await),
            (0, 40)
        );

        let text = fleet.explain_text(POOL).await;
        assert!(text.contains("learned: one east: "), "{text}");
        assert!(
            text.contains("not used after a failure (capacity), next try 2026-"),
            "{text}"
        );
        fleet.tasks(POOL, 1).await;
        let text = fleet.explain_text(POOL).await;
        assert!(
            text.contains("east") && text.contains("shut off: capacity, next try "),
            "{text}"
        );
        let shown = fleet.explain_pool(POOL).await;
        let east = shown["now"]["learned"]["offerings"][0].clone();
        let named = (&east["offering"], &east["breaker"], &east["trouble"]);
        assert_eq!(
            named,
            (&json!("one east"), &json!("open"), &json!("capacity"))
        );

        // It returns. Work goes on to arrive.
        fleet.one.fake.behave();
        let mut back = None;
        for step in 0..30 {
            fleet.pass_ms(10 * SECOND_MS);
            let before = (fleet.in_region("east").await, fleet.in_region("west").await);
            fleet.tasks(POOL, 10).await;
            fleet.round().await;
            fleet.provision().await;
            if step % 3 == 0 {
                fleet.learn().await;
            }
            let after = (fleet.in_region("east").await, fleet.in_region("west").await);
            let east = after.0 - before.0;
            if back.is_none() && east >= 3 && after.1 > before.1 {
                back = Some(step);
            }
        }
        let steps = back.expect("it gets its share again");
        assert!(steps < 30, "{steps}");
        let text = fleet.explain_text(POOL).await;
        assert!(!text.contains("breaker"), "{text}");
    }
);

fleet_test!(only_pools_that_learn_pay_for_memory, |fleet| {
    let memory = [
        "pool_memory_get_learned",
        "offering_memory_list",
        "offering_news_newest",
        "launch_starting",
    ];
    for (number, n_configs) in [1, 2, 40].into_iter().enumerate() {
        let names: Vec<String> = (0..n_configs).map(|region| format!("r-{region}")).collect();
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let definition = learning_pool(100, &names);
        let mut plain = definition.clone();
        plain["config"].as_object_mut().unwrap().remove("strategy");
        for (kind, definition) in [("plain", plain), ("learns", definition)] {
            let id = format!("pp/{kind}-{number}");
            fleet.make_pool(&id, definition).await;
            fleet.tasks(&id, 1).await;
            let (_, counts) = fleet.counted(fleet.explain_pool(&id)).await;
            let expected = u64::from(kind == "learns");
            for statement in memory {
                assert_eq!(counts.statements(statement), expected, "{id} {statement}");
            }
            assert_eq!(counts.statements("pool_memory_list_rivals"), 0);
            let (_, counts) = fleet.counted(fleet.round()).await;
            assert_eq!(counts.statements("offering_news_insert"), expected, "{id}");
            // Nothing waits in this pool from now on.
            fleet.delete_pool(&id).await;
        }
    }
});

fleet_test!(a_stored_plan_contains_what_was_learned, |fleet| {
    fleet
        .make_pool(POOL, learning_pool(100, &["east", "west"]))
        .await;
    fleet
        .one
        .fake
        .next_launches([LaunchOutcome::Refused(Cause::Quota)]);
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    fleet.provision().await;
    fleet.tasks(POOL, 5).await;
    fleet.round().await;
    let plans = fleet.plans(POOL).await;
    assert!(plans.len() >= 2);
    // Afterwards more is known; the plans stay what they were.
    for worker in fleet.register_all(POOL).await {
        let claim = fleet.claim_with(&worker).await;
        fleet.complete(&claim).await;
    }
    fleet.learn().await;
    for record in &plans {
        let (id, number): (PoolId, i64) = (POOL.parse().unwrap(), record.number);
        let replayed = fleet
            .read(move |tx| Ok(fleet::replay(tx, &id, number)))
            .await;
        assert_eq!(replayed.unwrap().unwrap().to_json(), record.plan);
    }
    let (id, number): (PoolId, i64) = (POOL.parse().unwrap(), plans[0].number);
    let packed = fleet
        .read(move |tx| store::plans::input(tx, &id, number))
        .await;
    let snapshot = Input::unpack(&packed.unwrap()).unwrap().snapshot;
    assert!(snapshot.learned.is_some());
    let troubles = snapshot
        .offers
        .iter()
        .map(|offer| offer.memory.unwrap().breaker.trouble);
    assert_eq!(troubles.flatten().count(), 1);
});

fleet_on_sqlite_first!(
    what_happens_to_machines_is_news_of_their_offering,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.pass_ms(7 * SECOND_MS);
        let [worker] = fleet.register_all(POOL).await.try_into().ok().unwrap();
        let registered = ["east accepted", "east registered after 7000"];
        assert_eq!(fleet.offering_news().await, registered);
        // A worker that registers again is no news.
        let claim = fleet.claim_with(&worker).await;
        assert!(claim["status"]["taskId"].is_string());
        // The provider takes it away while it has a task.
        fleet.kill(&worker.key);
        fleet.scan().await;
        assert_eq!(fleet.offering_news().await[2..], ["east interrupted"]);

        // A trial after a failure, of which a part is made.
        fleet
            .one
            .fake
            .next_launches([LaunchOutcome::Refused(Cause::Throttled)]);
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        assert_eq!(fleet.offering_news().await[3..], ["east throttled"]);
        fleet.pass_ms(MINUTE_MS);
        fleet
            .one
            .fake
            .next_launches([LaunchOutcome::Dying(SECOND_MS)]);
        fleet.round().await;
        assert_eq!(
            fleet.offering_news().await[4..],
            ["east asked", "east accepted"]
        );
        // Its machine disappears before it registers.
        fleet.pass_ms(2 * SECOND_MS);
        fleet.scan().await;
        assert_eq!(fleet.offering_news().await[6..], ["east vanished"]);

        // It never registers.
        fleet.pass_ms(2 * MINUTE_MS);
        fleet.one.fake.next_launches([LaunchOutcome::NeverUp]);
        fleet.round().await;
        fleet.listen_ms(REGISTRATION_MS + MINUTE_MS);
        fleet.scan().await;
        assert_eq!(
            fleet.offering_news().await[7..],
            ["east asked", "east accepted", "east registration"]
        );
    }
);

fleet_on_sqlite_first!(a_launch_of_which_a_part_is_made_lacks_capacity, |fleet| {
    fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
    fleet.one.fake.next_launches([LaunchOutcome::Partial(3)]);
    fleet.tasks(POOL, 5).await;
    fleet.round().await;
    assert_eq!(
        fleet.offering_news().await,
        ["east accepted", "east capacity"]
    );
});

fleet_on_sqlite_first!(
    a_launch_whose_answer_is_lost_is_news_at_once_and_once,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        fleet.one.fake.next_launches([LaunchOutcome::CallLost]);
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.offering_news().await, ["east lost"]);
        fleet.listen_ms(10 * MINUTE_MS);
        fleet.scan().await;
        assert_eq!(fleet.launch().await.state.as_str(), "refused");
        assert_eq!(fleet.offering_news().await, ["east lost"]);
    }
);

fleet_on_sqlite_first!(
    workers_that_leave_by_themselves_are_not_interrupted,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        let idle = fleet.idle(POOL, 2).await;
        let before = fleet.offering_news().await.len();
        // One announces that it stops; the other was idle for so long that it may have stopped.
        fleet.leave(&idle[0]).await;
        fleet.listen_ms(IDLE_MS + SECOND_MS);
        fleet.kill(&idle[1].key);
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "2 stopped");
        assert_eq!(fleet.offering_news().await.len(), before);
    }
);

fleet_on_sqlite_first!(pools_of_other_strategies_make_no_news, |fleet| {
    fleet.make_pool(POOL, plain_pool(100)).await;
    fleet
        .one
        .fake
        .next_launches([LaunchOutcome::Refused(Cause::Capacity)]);
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    fleet.pass_ms(MINUTE_MS);
    fleet.round().await;
    for worker in fleet.register_all(POOL).await {
        fleet.kill(&worker.key);
    }
    fleet.scan().await;
    assert_eq!(fleet.offering_news().await, [""; 0]);
    assert!(
        fleet
            .launches(POOL)
            .await
            .iter()
            .all(|launch| launch.offering.is_none())
    );
    let shown = fleet.explain_pool(POOL).await;
    assert_eq!(shown["now"]["learned"], Value::Null);
    assert_eq!(fleet.learn().await, Value::Null);
});

fleet_test!(a_plan_reads_the_newest_news_up_to_a_limit, |fleet| {
    fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
    let limit = 1_000;
    for size in sizes_around("engine::fleet::market_facts::MAX_NEWS", limit) {
        let now = fleet.now();
        fleet
            .write(move |tx| {
                let old = offering_news::oldest(tx, 100_000)?;
                offering_news::delete(tx, &old)?;
                for number in 0..size {
                    let (id, provider) = (offering("east"), "one".parse().unwrap());
                    // The last one shows whether the newest are read.
                    let after_ms = if number + 1 == size { 9_000_000 } else { 1_000 };
                    let news = OfferingNews::Registered { after_ms };
                    offering_news::insert(tx, &id, &provider, news, now)?;
                }
                Ok(())
            })
            .await;
        let (shown, counts) = fleet.counted(fleet.explain_pool(POOL)).await;
        assert_eq!(counts.rows("offering_news_newest"), size.min(limit) as u64);
        let boot = shown["now"]["learned"]["offerings"][0]["bootSeconds"]
            .as_f64()
            .unwrap();
        assert!(size == 0 || boot > 2.0, "{size} {boot}");
    }
});
