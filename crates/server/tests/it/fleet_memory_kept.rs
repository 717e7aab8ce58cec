//! The learner knows paused and archived launch configs, and no pools without plans.

use cloud::LaunchOutcome;
use domain::launch::Cause;
use domain::market::OfferingNews;
use engine::fleet::{self, LearnLimits};
use serde_json::{Value, json};
use store::{offering_news, pool_memories};

use crate::fleet_learned::{learning_pool, offering};
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test};

const SECOND_MS: i64 = 1_000;
const SCAN_MS: i64 = 20 * SECOND_MS;

impl Fleet {
    async fn pause_region(&self, region: &str) {
        let until = self.now().plus_millis(60 * MINUTE_MS).to_string();
        let pause = json!({"region": region, "pause": true, "reason": "prices", "until": until});
        let path = format!("/override/of-{region}");
        self.put(&path, pause).await.expect(200);
    }

    /// Machines of the region registered three times after ten seconds.
    async fn add_quick_boots(&self, region: &'static str) {
        let now = self.now();
        self.write(move |tx| {
            for _ in 0..3 {
                let news = OfferingNews::Registered { after_ms: 10_000 };
                offering_news::insert(tx, &offering(region), &"one".parse().unwrap(), news, now)?;
            }
            Ok(())
        })
        .await;
    }

    async fn hours(&self) -> Vec<String> {
        let mut news = self.offering_news().await;
        news.retain(|one| one.contains(" ran "));
        news
    }

    async fn quotas(&self) -> Vec<domain::market::OfferingId> {
        let read = self.read(|tx| pool_memories::of(tx, &[POOL.parse().unwrap()]));
        read.await.remove(0).quotas.into_keys().collect()
    }
}

fleet_on_sqlite_first!(
    workers_of_paused_and_archived_launch_configs_have_their_hours,
    |fleet| {
        fleet
            .make_pool(POOL, learning_pool(100, &["east", "west"]))
            .await;
        fleet.pause_region("west").await;
        fleet.busy(POOL, 3).await;
        fleet.learn().await;
        let after_30_s = async || {
            fleet.pass_ms(30 * SECOND_MS);
            fleet.learn().await;
            fleet.hours().await
        };
        assert_eq!(after_30_s().await, ["east ran 0.0250"]);
        fleet.pause_region("east").await;
        assert_eq!(after_30_s().await, ["east ran 0.0250"]);
        fleet.change_pool(POOL, learning_pool(100, &["west"])).await;
        assert_eq!(after_30_s().await, ["east ran 0.0250"]);
    }
);

fleet_on_sqlite_first!(
    a_machine_of_a_paused_launch_config_is_given_up_as_others_are,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        fleet.add_quick_boots("east").await;
        fleet.learn().await;
        fleet.one.fake.next_launches([LaunchOutcome::NeverUp]);
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.pause_region("east").await;
        fleet.listen_ms(240 * SECOND_MS);
        assert_eq!(fleet.learn().await["given_up"], Value::Null);
        fleet.listen_ms(16 * SECOND_MS);
        assert_eq!(fleet.learn().await["given_up"], 1);
    }
);

fleet_on_sqlite_first!(
    a_used_up_quota_stays_one_while_its_launch_config_is_paused,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        let quota = LaunchOutcome::Refused(Cause::Quota);
        fleet.one.fake.next_launches([quota]);
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.learn().await;
        assert_eq!(fleet.quotas().await, [offering("east")]);
        fleet.pause_region("east").await;
        fleet.pass_ms(30 * SECOND_MS);
        fleet.learn().await;
        assert_eq!(fleet.quotas().await, [offering("east")]);
    }
);

fleet_on_sqlite_first!(
    machines_that_may_still_start_hide_no_late_ones_of_others,
    |fleet| {
        // Nothing is known about the east: its machines have 450 s, those of the west 240 s.
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        fleet.add_quick_boots("west").await;
        fleet.learn().await;
        fleet.one.fake.decide_with(|_| LaunchOutcome::NeverUp);
        fleet.tasks(POOL, 4).await;
        fleet.round().await;
        let in_pool = async || fleet.workers_in(POOL, "requested").await.len();
        let n_slow = in_pool().await;
        fleet.pause_region("east").await;
        fleet
            .change_pool(POOL, learning_pool(100, &["east", "west"]))
            .await;
        fleet.pass_ms(SECOND_MS);
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        let n_quick = in_pool().await - n_slow;
        assert!(n_slow >= 1 && n_quick >= 1, "{n_slow} {n_quick}");
        fleet.listen_ms(260 * SECOND_MS);
        let limits = LearnLimits {
            give_ups: 1,
            ..LearnLimits::default()
        };
        let learned = fleet::learn(&fleet.app.engine, &limits, SCAN_MS).await;
        assert_eq!(learned.unwrap().given_up, 1);
        let stopping = fleet.workers_in(POOL, "stopping").await;
        assert_eq!(stopping[0].group.as_str(), "west");
    }
);

fleet_test!(
    the_memory_of_a_pool_that_cannot_be_planned_is_deleted,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
        fleet.tasks(POOL, 1).await;
        fleet.learn().await;
        let states = async || {
            let read = fleet.read(|tx| pool_memories::list_states(tx, None, 9));
            read.await.len()
        };
        assert_eq!(states().await, 1);
        // As another version of the program may write it.
        fleet
            .write(|tx| {
                let mut pool = store::pools::get(tx, &POOL.parse().unwrap())?.unwrap();
                let config = &mut pool.definition.config;
                config.insert("maxCapacity".to_owned(), json!("many"));
                store::pools::update(tx, &pool)
            })
            .await;
        fleet.pass_ms(30 * SECOND_MS);
        fleet.learn().await;
        assert_eq!(states().await, 0);
    }
);

fleet_test!(
    the_launch_configs_of_pools_that_are_sampled_together_are_read_together,
    |fleet| {
        let limits = LearnLimits {
            samples: 2,
            ..LearnLimits::default()
        };
        for (n_pools, n_reads) in [(1, 1), (2, 1), (3, 2), (5, 3)] {
            for number in 0..n_pools {
                let id = format!("pp/n-{number}");
                let definition = learning_pool(10, &["east"]);
                let path = format!("/worker-pool/pp%2Fn-{number}");
                fleet.put(&path, definition).await.expect(200);
                fleet.tasks(&id, 1).await;
            }
            fleet.pass_ms(30 * SECOND_MS);
            let learn = fleet::learn(&fleet.app.engine, &limits, SCAN_MS);
            let (learned, counts) = fleet.counted(learn).await;
            assert_eq!(learned.unwrap().pools, n_pools);
            assert_eq!(counts.statements("launch_config_active_of"), n_reads);
            assert_eq!(counts.statements("launch_config_active_between"), 0);
        }
    }
);
