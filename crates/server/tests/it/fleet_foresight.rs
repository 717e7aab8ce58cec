//! Pools that look ahead: tasks whose dependencies run get workers before they wait.

use domain::id::PoolId;
use domain::market::{ObservedTime, OfferingNews, PoolRecord};
use serde_json::{Value, json};
use store::{offering_news, pool_memories};

use crate::fleet_learned::{learning_pool, offering};
use crate::fleet_world::{Fleet, POOL, fleet_test};
use crate::queue_samples::task_id;

const TESTS: &str = "pp/tests";
const BOOT_MS: i64 = 120_000;
const BUILD_MS: i64 = 60_000;

fn foreseeing(is_on: bool) -> Value {
    let mut definition = learning_pool(100, &["east"]);
    definition["config"]["foresight"] = json!(is_on);
    definition
}

impl Fleet {
    /// Machines boot for two minutes, and builds take one.
    async fn know_times(&self) {
        let now = self.now();
        self.write(move |tx| {
            for _ in 0..40 {
                let news = OfferingNews::Registered { after_ms: BOOT_MS };
                offering_news::insert(tx, &offering("east"), &"one".parse().unwrap(), news, now)?;
            }
            let time = ObservedTime::new(now);
            let pool: PoolId = POOL.parse().unwrap();
            let mut record = PoolRecord::new(pool, 0, &time);
            for _ in 0..40 {
                record.memory.add_task(BUILD_MS);
            }
            pool_memories::write(tx, &record, &time)
        })
        .await;
        self.learn().await;
    }

    /// A build runs, and this many tests need its end.
    async fn build_before(&self, n_tests: u32) -> Value {
        let (_, claim) = self.busy(POOL, 1).await.remove(0);
        let build = claim["status"]["taskId"].as_str().unwrap().to_owned();
        let deadline = self.now().plus_millis(3_600_000).to_string();
        for number in 0..n_tests {
            let task = json!({
                "taskQueueId": TESTS, "dependencies": [build], "deadline": deadline,
            });
            let made = self.created(100 + number, task).await;
            assert_eq!(made["taskId"], task_id(100 + number));
            assert_eq!(made["state"], "unscheduled");
        }
        claim
    }
}

fleet_test!(
    tasks_whose_build_is_about_to_end_get_machines_before_they_wait,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        fleet.make_pool(TESTS, foreseeing(true)).await;
        fleet.know_times().await;
        let build = fleet.build_before(5).await;
        fleet.round().await;
        let n_machines = fleet.workers(TESTS).await.len();
        assert!((4..=5).contains(&n_machines), "{n_machines}");
        let explained = fleet.explain_pool(TESTS).await;
        let text = explained["plans"][0]["text"].as_str().unwrap();
        assert!(text.contains("announced"), "{text}");

        fleet.pass_ms(BUILD_MS);
        fleet.complete(&build).await;
        fleet.round().await;
        assert_eq!(fleet.workers(TESTS).await.len(), 5, "each has one machine");
    }
);

fleet_test!(
    tasks_that_do_not_wait_need_nothing_in_pools_that_do_not_look_ahead,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        fleet.make_pool(TESTS, foreseeing(false)).await;
        fleet.know_times().await;
        fleet.build_before(5).await;
        fleet.round().await;
        assert_eq!(fleet.workers(TESTS).await.len(), 0);
    }
);
