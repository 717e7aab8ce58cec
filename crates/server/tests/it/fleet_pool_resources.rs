//! Resources that a provider keeps for pools: made before the first launch, released after the last
//! machine.

use std::sync::Arc;

use cloud::{Call, CloudError};
use serde_json::{Value, json};
use server::background::PoolResources;
use server::background::driver::BackgroundTask as _;
use server::run::terminate_providers;
use testing::sizes_around;

use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_test, plain_pool};

/// Of one read of unused resources.
const PAGE: usize = 50;

impl Fleet {
    async fn release(&self) -> Value {
        let mut releasing = PoolResources(Arc::clone(&self.app.engine));
        releasing.activate().await.unwrap()
    }

    fn groups(&self) -> Vec<String> {
        let groups = self.one.fake.groups().into_iter();
        groups.map(|pool| pool.to_string()).collect()
    }

    async fn has_pool(&self) -> bool {
        self.keep_house().await;
        self.stored_pool(POOL).await.is_some()
    }
}

fn outage() -> CloudError {
    CloudError::Unavailable("the network service is down".to_owned())
}

fleet_test!(
    resources_are_made_once_before_the_first_launch_and_released_after_the_last_machine,
    |fleet| {
        fleet.one.fake.need_groups();
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.round().await;
        assert!(fleet.groups().is_empty(), "nothing is launched yet");
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        assert_eq!(fleet.groups(), [POOL]);
        assert_eq!(fleet.machines().len(), 3);
        assert_eq!(fleet.one.fake.n_calls(Call::PreparePool), 1);
        // Not while the pool has the provider, and not while a machine is left.
        assert_eq!(fleet.release().await, Value::Null);
        fleet.delete_pool(POOL).await;
        assert_eq!(fleet.release().await, Value::Null);
        for key in fleet.workers_in(POOL, "requested").await {
            fleet.remove(&key).await;
        }
        assert_eq!(fleet.release().await, Value::Null);
        fleet.end().await;
        fleet.scan().await;
        // The pool is shown until its resources are removed.
        assert!(fleet.has_pool().await);
        assert_eq!(
            fleet.release().await,
            json!({"pools_released": 1, "failed": 0})
        );
        assert!(fleet.groups().is_empty());
        assert_eq!(fleet.release().await, Value::Null);
        assert!(!fleet.has_pool().await);
    }
);

fleet_test!(
    a_failure_refuses_the_launch_is_reported_and_tried_again,
    |fleet| {
        fleet.one.fake.need_groups();
        fleet.one.fake.fail_next(Call::PreparePool, outage());
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert!(fleet.machines().is_empty());
        let reports = fleet.get("/worker-pool-errors/pp%2Fee").await.expect(200);
        let report = &reports["workerPoolErrors"][0];
        assert_eq!(
            (&report["kind"], &report["description"]),
            (
                &json!("creation-error"),
                &json!(
                    "one could not make the resources of pp/ee: the cloud is unavailable: the \
                network service is down. The server tries again"
                )
            )
        );
        // The provider is not asked again at once.
        fleet.pass_ms(30_000);
        fleet.round().await;
        assert_eq!(fleet.one.fake.n_calls(Call::PreparePool), 1);
        fleet.pass_ms(10 * MINUTE_MS);
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 1);
        assert_eq!(fleet.groups(), [POOL]);
    }
);

fleet_test!(a_lost_answer_leaves_no_resource_behind, |fleet| {
    fleet.one.fake.need_groups();
    fleet.one.fake.lose_group_answer();
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    // It was made, and the process may stop here.
    assert_eq!(fleet.groups(), [POOL]);
    fleet.delete_pool(POOL).await;
    assert_eq!(
        fleet.release().await,
        json!({"pools_released": 1, "failed": 0})
    );
    assert!(fleet.groups().is_empty());
    assert!(!fleet.has_pool().await);
});

fleet_test!(
    a_pool_that_comes_back_waits_for_the_end_of_a_release,
    |fleet| {
        fleet.one.fake.need_groups();
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.delete_pool(POOL).await;
        for key in fleet.workers_in(POOL, "requested").await {
            fleet.remove(&key).await;
        }
        fleet.end().await;
        fleet.scan().await;
        fleet.one.fake.fail_next(Call::ReleasePool, outage());
        assert_eq!(
            fleet.release().await,
            json!({"pools_released": 0, "failed": 1})
        );
        let errors = fleet.errors(POOL).await;
        assert_eq!(
            errors[0],
            ("release-error".to_owned(), "release".to_owned())
        );
        fleet.change_pool(POOL, plain_pool(4)).await;
        fleet.round().await;
        assert!(fleet.machines().is_empty(), "its group is being removed");
        // After a pause it is removed, and then made anew.
        assert_eq!(fleet.release().await, Value::Null);
        fleet.pass_ms(10 * MINUTE_MS);
        assert_eq!(
            fleet.release().await,
            json!({"pools_released": 1, "failed": 0})
        );
        fleet.round().await;
        assert_eq!(fleet.machines().len(), 1);
        assert_eq!(fleet.one.fake.n_calls(Call::PreparePool), 2);
    }
);

fleet_test!(two_processes_make_one_set_of_resources, |fleet| {
    fleet.one.fake.need_groups();
    fleet.make_pool(POOL, plain_pool(4)).await;
    let pool = fleet.stored_pool(POOL).await.unwrap();
    let one = "one".parse().unwrap();
    let prepare = || engine::fleet::prepare_pool(&fleet.app.engine, &pool, &one);
    let (first, second) = tokio::join!(prepare(), prepare());
    let (first, second) = (first.unwrap().unwrap(), second.unwrap().unwrap());
    assert_eq!(first, json!({"group": 1}));
    assert_eq!(first, second);
    assert_eq!(fleet.one.fake.n_calls(Call::PreparePool), 1);
});

fleet_test!(many_pools_are_released_in_pages, |fleet| {
    fleet.one.fake.need_groups();
    for size in sizes_around("engine::fleet::pool_resources::PAGE", PAGE) {
        let ids: Vec<String> = (0..size).map(|number| format!("pp/e{number}")).collect();
        for id in &ids {
            let mut pool = fleet.stored_pool(POOL).await;
            if pool.is_none() {
                fleet.make_pool(POOL, plain_pool(4)).await;
                pool = fleet.stored_pool(POOL).await;
            }
            // A pool that does not exist any more.
            let mut pool = pool.unwrap();
            pool.id = id.parse().unwrap();
            let one = "one".parse().unwrap();
            let prepared = engine::fleet::prepare_pool(&fleet.app.engine, &pool, &one).await;
            assert!(prepared.unwrap().is_ok());
        }
        let done = fleet.release().await;
        match size {
            0 => assert_eq!(done, Value::Null),
            _ => assert_eq!(done, json!({"pools_released": size, "failed": 0})),
        }
        assert!(fleet.groups().is_empty());
    }
});

fleet_test!(providers_are_told_once_that_a_process_stops, |fleet| {
    fleet.two.fake.fail_next(Call::Terminate, outage());
    terminate_providers(&fleet.app).await;
    for cloud in [&fleet.one, &fleet.two, &fleet.three] {
        assert_eq!(cloud.fake.n_calls(Call::Terminate), 1);
    }
    let logged = fleet.log.lines("did not end in an orderly way");
    assert!(logged[0].contains("provider two"), "{logged:?}");
});
