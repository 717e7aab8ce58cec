//! The strategy `balanced` in the server: long tasks, and regions that are full. And pools that
//! move to another provider.

use cloud::LaunchOutcome;
use domain::launch::Cause;
use domain::market::{ObservedTime, OfferingNews, PoolRecord};
use serde_json::json;
use store::{offering_news, pool_memories};

use crate::fleet_learned::{learning_pool, offering};
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, fleet_test, machine, pool};

const SECOND_MS: i64 = 1_000;

impl Fleet {
    /// Tasks of the pool take a second, and boots in the east three minutes.
    async fn know_short_tasks(&self, pool: &'static str) {
        let now = self.now();
        self.write(move |tx| {
            let time = ObservedTime::new(now);
            let mut record = PoolRecord::new(pool.parse().unwrap(), 0, &time);
            for _ in 0..30 {
                record.memory.add_task(SECOND_MS);
                let news = OfferingNews::Registered {
                    after_ms: 180 * SECOND_MS,
                };
                offering_news::insert(tx, &offering("east"), &"one".parse().unwrap(), news, now)?;
            }
            pool_memories::write(tx, &record, &time)
        })
        .await;
    }
}

fleet_test!(a_long_task_hides_no_tasks_behind_it, |fleet| {
    let mut definition = learning_pool(100, &["east"]);
    definition["config"]["scalingRatio"] = json!(1.0);
    fleet.make_pool(POOL, definition).await;
    fleet.know_short_tasks(POOL).await;
    fleet.busy(POOL, 1).await;
    fleet.tasks(POOL, 5).await;
    fleet.round().await;
    // If its task is as short as the others, the worker will take them all.
    assert_eq!(fleet.states(POOL).await, "1 running");
    fleet.pass_ms(4 * SECOND_MS);
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "5 requested, 1 running");
});

fleet_test!(
    what_a_launch_config_was_refused_at_a_provider_that_the_pool_left_pauses_nothing,
    |fleet| {
        let of = |provider| pool(provider, 0, 9, &[machine("a")]);
        fleet.make_pool(POOL, of("one")).await;
        let refused = LaunchOutcome::Refused(Cause::Configuration);
        fleet.one.fake.decide_with(move |_| refused.clone());
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.change_pool(POOL, of("three")).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
    }
);

fleet_on_sqlite_first!(
    a_pool_goes_to_other_regions_while_it_gives_way_in_a_full_one,
    |fleet| {
        for id in ["pp/rich", "pp/poor"] {
            fleet.make_pool(id, learning_pool(100, &["east"])).await;
        }
        let rich = fleet.busy("pp/rich", 4).await;
        let definition = learning_pool(100, &["east", "west"]);
        fleet.change_pool("pp/rich", definition).await;
        fleet.one.fake.refuse_launches_of("east", Cause::Quota);
        fleet.tasks("pp/poor", 4).await;
        fleet.pass_ms(30 * SECOND_MS);
        fleet.round().await;
        fleet.learn().await;
        fleet.tasks("pp/rich", 3).await;
        fleet.pass_ms(SECOND_MS);
        fleet.round().await;
        let explained = fleet.explain_text("pp/rich").await;
        let workers = fleet.workers("pp/rich").await;
        let there = |region: &str| {
            let there = workers.iter();
            there
                .filter(|worker| worker.key.group.as_str() == region)
                .count()
        };
        assert_eq!((there("east"), there("west")), (4, 3), "{explained}");
        let mut n_asked = 0;
        for (worker, _) in &rich {
            let advice = fleet.advice(worker).await;
            n_asked += usize::from(advice.starts_with("go: over the fair share"));
        }
        // Of the four machines in the east each pool gets two, and one does not matter.
        assert_eq!(n_asked, 1, "{explained}");
    }
);
