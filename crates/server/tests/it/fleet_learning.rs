//! The learner: each row of news counts once, pools are sampled, late machines are given up, and
//! memory of what no longer exists is deleted.

use std::sync::Arc;

use cloud::LaunchOutcome;
use domain::id::PoolId;
use domain::launch::Cause;
use domain::market::{OfferingMemory, OfferingNews, PoolRecord, Trouble};
use engine::fleet::{self, LearnLimits};
use serde_json::json;
use store::{offering_memories, offering_news, pool_memories};
use testing::sizes_around;

use crate::fleet_learned::{in_region, learning_pool, offering};
use crate::fleet_two_processes::second;
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, plain_pool, pool,
};

const SECOND_MS: i64 = 1_000;
const SCAN_MS: i64 = 20 * SECOND_MS;

impl Fleet {
    async fn memory(&self, region: &'static str) -> Option<OfferingMemory> {
        let found = self.read(move |tx| offering_memories::of(tx, &[offering(region)]));
        found.await.pop().map(|record| record.memory())
    }

    async fn record(&self, pool: &str) -> Option<PoolRecord> {
        let id: PoolId = pool.parse().unwrap();
        self.read(move |tx| pool_memories::of(tx, &[id]))
            .await
            .pop()
    }

    /// Adds this many boots that took ten seconds.
    async fn add_boots(&self, region: &'static str, count: usize) {
        let now = self.now();
        self.write(move |tx| {
            for _ in 0..count {
                let news = OfferingNews::Registered { after_ms: 10_000 };
                offering_news::insert(tx, &offering(region), &"one".parse().unwrap(), news, now)?;
            }
            Ok(())
        })
        .await;
    }
}

/// The memory after this many boots at once.
fn after_boots(region: &str, count: usize, fleet: &Fleet) -> OfferingMemory {
    let mut memory = OfferingMemory::new(&offering(region));
    for _ in 0..count {
        memory.observe(OfferingNews::Registered { after_ms: 10_000 }, fleet.now());
    }
    memory
}

fleet_test!(each_row_of_news_counts_once, |fleet| {
    fleet.add_boots("east", 7).await;
    let limits = LearnLimits {
        news: 2,
        batches: 2,
        ..LearnLimits::default()
    };
    let engine = &fleet.app.engine;
    // A bounded number at a time; what is left is for the next activation.
    for n_expected in [4, 3, 0] {
        let done = fleet::learn(engine, &limits, SCAN_MS).await.unwrap();
        assert_eq!((done.news, done.dropped), (n_expected, 0));
    }
    assert_eq!(
        fleet.memory("east").await,
        Some(after_boots("east", 7, fleet))
    );
    assert_eq!(fleet.offering_news().await, [""; 0]);
});

fleet_test!(news_of_another_version_are_dropped, |fleet| {
    fleet.add_boots("east", 1).await;
    fleet
        .write(|tx| {
            let row = offering_news::oldest(tx, 1)?.remove(0);
            // Not a number: stored as null, which nobody can read back.
            let news = OfferingNews::Ran { hours: f64::NAN };
            offering_news::insert(tx, &row.offering, &row.provider_id, news, row.observed)
        })
        .await;
    let done = fleet.learn().await;
    assert_eq!((&done["news"], &done["dropped"]), (&json!(1), &json!(1)));
    assert!(
        fleet
            .log
            .text()
            .contains("1 news of offerings were dropped")
    );
    assert_eq!(
        fleet.memory("east").await,
        Some(after_boots("east", 1, fleet))
    );
});

#[tokio::test]
async fn two_processes_learn_each_row_once_and_one_of_them_samples() {
    let Some(database) = crate::database::Database::postgres() else {
        return;
    };
    let fleet = Fleet::open(database).await;
    let other = second(&fleet).await;
    fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
    fleet.tasks(POOL, 1).await;
    fleet.add_boots("east", 200).await;
    let limits = LearnLimits {
        news: 10,
        ..LearnLimits::default()
    };
    let run = |engine: Arc<engine::Engine>| {
        tokio::spawn(async move { fleet::learn(&engine, &limits, SCAN_MS).await.unwrap() })
    };
    let (ours, theirs) = (
        run(Arc::clone(&fleet.app.engine)),
        run(Arc::clone(&other.engine)),
    );
    let (ours, theirs) = (ours.await.unwrap(), theirs.await.unwrap());
    assert_eq!(ours.news + theirs.news, 200);
    assert_eq!(ours.pools + theirs.pools, 1);
    assert_eq!(
        fleet.memory("east").await,
        Some(after_boots("east", 200, &fleet))
    );
}

fleet_on_sqlite_first!(a_pool_that_learns_is_sampled_until_it_is_at_rest, |fleet| {
    fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
    fleet.make_pool("pp/plain", plain_pool(100)).await;
    fleet.tasks("pp/plain", 1).await;
    let sampled = |done: serde_json::Value| done["pools"].as_u64().unwrap_or(0);
    assert_eq!(
        sampled(fleet.learn().await),
        0,
        "nothing is there to sample"
    );
    fleet.pass_ms(30 * SECOND_MS);
    let busy = fleet.busy(POOL, 3).await;
    fleet.tasks(POOL, 2).await;
    assert_eq!(sampled(fleet.learn().await), 1);
    assert_eq!(
        sampled(fleet.learn().await),
        0,
        "the round was a short while ago"
    );
    let record = fleet.record(POOL).await.unwrap();
    assert_eq!((record.level, record.held), (5, 3));

    // Three tasks end; the two that waited are still there.
    fleet.pass_ms(30 * SECOND_MS);
    for (_, claim) in &busy {
        fleet.complete(claim).await;
    }
    fleet.events().await;
    fleet.read_outcomes().await;
    assert_eq!(sampled(fleet.learn().await), 1);
    let record = fleet.record(POOL).await.unwrap();
    assert_eq!((record.level, record.unexplained), (2, 0));
    assert_eq!(record.memory.task_ms(), 30_000.0);
    assert!(
        fleet
            .offering_news()
            .await
            .iter()
            .any(|news| news == "east ran 0.0250"),
        "{:?}",
        fleet.offering_news().await
    );
    assert_eq!(
        fleet
            .read(|tx| store::pool_news::of(tx, &[POOL.parse().unwrap()], 9))
            .await,
        []
    );

    // All is over: it is sampled once more, and then no longer.
    let id: PoolId = POOL.parse().unwrap();
    for (worker, _) in &busy {
        let claim = fleet.asking(worker).await.expect(200);
        if let Some(claim) = claim["tasks"].get(0) {
            fleet.complete(claim).await;
        }
        fleet.leave(worker).await;
    }
    fleet.scan().await;
    fleet.end().await;
    fleet.scan().await;
    for expected in [1, 0] {
        fleet.pass_ms(30 * SECOND_MS);
        assert_eq!(sampled(fleet.learn().await), expected);
    }
    let states = fleet
        .read(|tx| pool_memories::list_states(tx, None, 9))
        .await;
    assert_eq!(states, [(id, true)]);
});

fleet_test!(memory_of_pools_that_no_longer_learn_is_deleted, |fleet| {
    for number in 0..5 {
        let id = format!("pp/n-{number}");
        fleet.make_pool(&id, learning_pool(10, &["east"])).await;
        fleet.tasks(&id, 1).await;
    }
    let limits = LearnLimits {
        pools: 2,
        samples: 1,
        ..LearnLimits::default()
    };
    let learned = fleet::learn(&fleet.app.engine, &limits, SCAN_MS).await;
    assert_eq!(learned.unwrap().pools, 5);
    fleet
        .change_pool("pp/n-1", pool("one", 0, 10, &[in_region("east")]))
        .await;
    for number in [2, 3, 4] {
        let id: PoolId = format!("pp/n-{number}").parse().unwrap();
        fleet.write(move |tx| store::pools::delete(tx, &id)).await;
    }
    fleet.pass_ms(30 * SECOND_MS);
    let learned = fleet::learn(&fleet.app.engine, &limits, SCAN_MS).await;
    assert_eq!(learned.unwrap().pools, 1);
    let states = fleet
        .read(|tx| pool_memories::list_states(tx, None, 9))
        .await;
    assert_eq!(states, [("pp/n-0".parse().unwrap(), false)]);
});

fleet_test!(
    memory_of_offerings_without_news_is_deleted_after_a_while,
    |fleet| {
        fleet.add_boots("east", 1).await;
        fleet.learn().await;
        fleet.add_boots("west", 1).await;
        let day_ms = 24 * 60 * MINUTE_MS;
        fleet.pass_ms(2 * day_ms);
        fleet.keep_house().await;
        // The second row is not in the memory.
        assert_eq!(fleet.offering_news().await, [""; 0]);
        assert!(fleet.memory("east").await.is_some());
        fleet.pass_ms(30 * day_ms);
        fleet.keep_house().await;
        assert_eq!(fleet.memory("east").await, None);
    }
);

fleet_on_sqlite_first!(a_machine_that_takes_too_long_is_given_up, |fleet| {
    fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
    fleet.add_boots("east", 3).await;
    fleet.learn().await;
    fleet.one.fake.next_launches([LaunchOutcome::NeverUp]);
    fleet.tasks(POOL, 3).await;
    fleet.round().await;
    let limits = LearnLimits {
        give_ups: 2,
        stops: 1,
        ..LearnLimits::default()
    };
    let engine = &fleet.app.engine;
    let mut given_up = Vec::new();
    for seconds in [239, 17, 16] {
        fleet.listen_ms(seconds * SECOND_MS);
        given_up.push(
            fleet::learn(engine, &limits, SCAN_MS)
                .await
                .unwrap()
                .given_up,
        );
    }
    // At most two in a round.
    assert_eq!(given_up, [0, 2, 1]);
    let stopping = fleet.workers_in(POOL, "stopping").await;
    assert_eq!(
        fleet.end_reason(&stopping[0]).await,
        "did not register within 240 s; machines of this offering take 10 s"
    );
    fleet.pass_ms(30 * SECOND_MS);
    fleet.learn().await;
    let memory = fleet.memory("east").await.unwrap();
    assert_eq!(memory.breaker.trouble, Some(Trouble::Registration));
    assert_eq!(memory.window, Some(1));
});

fleet_on_sqlite_first!(a_step_of_the_clock_gives_up_no_machine, |fleet| {
    fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
    fleet.add_boots("east", 3).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    fleet.learn().await;
    for step in [600, -100_000, 100_000] {
        fleet.pass_ms(step * SECOND_MS);
        let done = fleet.learn().await;
        assert_eq!(done["given_up"].as_u64().unwrap_or(0), 0, "{step}");
    }
    assert_eq!(fleet.states(POOL).await, "1 requested");
    assert_eq!(fleet.record(POOL).await.unwrap().level, 1);
});

fleet_on_sqlite_first!(
    machines_that_survive_end_the_doubt_about_an_offering,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(1_000, &["east"])).await;
        let limit = 10;
        for size in sizes_around("engine::fleet::learn::news::MAX_SURVIVORS", limit) {
            let now = fleet.now();
            fleet
                .write(move |tx| {
                    let news = OfferingNews::Failed {
                        trouble: Trouble::Vanished,
                    };
                    offering_news::insert(tx, &offering("east"), &"one".parse().unwrap(), news, now)
                })
                .await;
            fleet.learn().await;
            // Launched by hand, as trials come one by one.
            let made = u32::try_from(size).unwrap();
            fleet.launch_machines(made).await;
            fleet.pass_ms(100 * SECOND_MS);
            fleet.learn().await;
            let survived =
                |news: Vec<String>| news.iter().filter(|one| one.ends_with("survived")).count();
            assert_eq!(
                survived(fleet.offering_news().await),
                0,
                "two scans could not see them yet"
            );
            fleet.pass_ms(60 * SECOND_MS);
            fleet.learn().await;
            assert_eq!(survived(fleet.offering_news().await), size.min(limit));
            fleet.pass_ms(60 * SECOND_MS);
            fleet.learn().await;
            assert_eq!(survived(fleet.offering_news().await), 0, "each counts once");
            let state = fleet
                .memory("east")
                .await
                .unwrap()
                .breaker
                .failures_in_a_row;
            assert_eq!(state == 0, size > 0);
        }
    }
);

fleet_on_sqlite_first!(
    machines_that_were_launched_before_a_failure_do_not_end_the_doubt,
    |fleet| {
        fleet.make_pool(POOL, learning_pool(1_000, &["east"])).await;
        let vanished = OfferingNews::Failed {
            trouble: Trouble::Vanished,
        };
        for news in [OfferingNews::Accepted, vanished] {
            let now = fleet.now();
            fleet
                .write(move |tx| {
                    offering_news::insert(tx, &offering("east"), &"one".parse().unwrap(), news, now)
                })
                .await;
            fleet.learn().await;
            fleet.launch_machines(3).await;
            fleet.pass_ms(300 * SECOND_MS);
        }
        fleet.learn().await;
        // The three of the launch after the failure.
        let news = fleet.offering_news().await;
        assert_eq!(
            news.iter().filter(|one| one.ends_with("survived")).count(),
            3
        );
    }
);

impl Fleet {
    /// An accepted launch in the east with this many machines that have not registered.
    async fn launch_machines(&self, machines: u32) {
        if machines == 0 {
            return;
        }
        let now = self.now().plus_millis(SECOND_MS);
        self.pass_ms(SECOND_MS);
        self.change(move |change| {
            let new = domain::launch::NewLaunch {
                token: change.new_id(),
                pool_id: POOL.parse().unwrap(),
                provider_id: "one".parse().unwrap(),
                launch_config_id: "east".parse().unwrap(),
                offering: Some(offering("east")),
                machines,
                capacity_each: 1,
                max_price: None,
                price: None,
                plan: 1,
            };
            let made = domain::launch::LaunchAnswer::Made(machines);
            let launch = new.decide(now).settle(made, now).unwrap();
            store::launches::insert(change.tx, &launch)
        })
        .await;
    }
}

fleet_on_sqlite_first!(
    a_pool_above_its_share_of_a_quota_gives_way_to_others,
    |fleet| {
        for id in ["pp/rich", "pp/poor"] {
            fleet.make_pool(id, learning_pool(100, &["east"])).await;
        }
        let rich = fleet.busy("pp/rich", 4).await;
        fleet
            .one
            .fake
            .decide_with(|_| LaunchOutcome::Refused(Cause::Quota));
        fleet.tasks("pp/poor", 4).await;
        fleet.pass_ms(30 * SECOND_MS);
        fleet.round().await;
        // A pool that has all it needs is not decided on until somebody else wants its quota.
        assert_eq!(fleet.plans("pp/rich").await.len(), 1);
        fleet.learn().await;
        fleet.round().await;
        let plans = fleet.plans("pp/rich").await;
        assert_eq!(plans.len(), 2, "{plans:?}");
        let mut asked = 0;
        for (worker, _) in &rich {
            asked += usize::from(
                fleet
                    .advice(worker)
                    .await
                    .starts_with("go: over the fair share"),
            );
        }
        assert!(asked >= 1, "{}", fleet.explain_text("pp/rich").await);
        let shown = fleet.explain_pool("pp/rich").await;
        assert_eq!(shown["now"]["learned"]["rivals"], json!(1));
    }
);

fleet_test!(a_plan_reads_a_bounded_number_of_rivals, |fleet| {
    fleet.make_pool(POOL, learning_pool(100, &["east"])).await;
    let now = fleet.now();
    fleet
        .write(move |tx| {
            let news = OfferingNews::Failed {
                trouble: Trouble::Quota,
            };
            offering_news::insert(tx, &offering("east"), &"one".parse().unwrap(), news, now)
        })
        .await;
    let limit = 200;
    let mut n_written = 0;
    for size in sizes_around("engine::fleet::market_facts::MAX_RIVALS", limit) {
        fleet
            .write(move |tx| {
                let time = domain::market::ObservedTime::new(now);
                for number in n_written..size {
                    let id = format!("pp/rival-{number:05}").parse().unwrap();
                    let mut record = PoolRecord::new(id, 5, &time);
                    record.quotas = [(offering("east"), 0)].into();
                    pool_memories::write(tx, &record, &time)?;
                }
                Ok(())
            })
            .await;
        n_written = size;
        let shown = fleet.explain_pool(POOL).await;
        assert_eq!(shown["now"]["learned"]["rivals"], json!(size.min(limit)));
    }
});
