//! Refreshes of prices: each provider by itself, and only for launch configs that plans need.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cloud::{Call, CloudError};
use domain::id::PoolId;
use serde_json::json;
use server::background::driver::BackgroundTask;
use server::background::{FileReload, Refresh};
use tokio::sync::Semaphore;

use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, fleet_test, machine, pool};

impl Fleet {
    fn refreshes(&self) -> BTreeMap<String, Refresh> {
        let all = Refresh::each(&self.app.engine).into_iter();
        all.map(|one| (one.provider_id().to_string(), one))
            .collect()
    }
}

fn fail_next(fleet: &Fleet) {
    let error = CloudError::Throttled("later".to_owned());
    fleet.one.fake.fail_next(Call::Refresh, error);
}

fn pools(ids: &[&str]) -> BTreeSet<PoolId> {
    ids.iter().map(|id| id.parse().unwrap()).collect()
}

fleet_on_sqlite_first!(
    a_provider_that_does_not_answer_delays_no_prices_of_others,
    |fleet| {
        let wakeups = &fleet.app.engine.wakeups;
        let permits = Arc::new(Semaphore::new(0));
        *fleet.one.refresh_permits.lock().unwrap() = Some(Arc::clone(&permits));
        for (provider, pool) in [("one", "pp/a"), ("one", "pp/b"), ("two", "pp/b")] {
            let (provider, pool) = (provider.parse().unwrap(), pool.parse().unwrap());
            wakeups.refresh_for(&provider, &pool);
        }
        let mut refreshes = fleet.refreshes();
        let mut one = refreshes.remove("one").unwrap();
        let one = tokio::spawn(async move { one.activate().await.unwrap() });
        let two = refreshes.get_mut("two").unwrap();
        two.activate().await.unwrap();
        assert_eq!(wakeups.take_pools(), pools(&["pp/b"]));
        assert!(!one.is_finished());
        permits.add_permits(1);
        one.await.unwrap();
        assert_eq!(wakeups.take_pools(), pools(&["pp/a", "pp/b"]));
    }
);

fleet_on_sqlite_first!(
    a_refresh_that_fails_wakes_its_pools_and_is_counted,
    |fleet| {
        let wakeups = &fleet.app.engine.wakeups;
        fail_next(fleet);
        let mut one = fleet.refreshes().remove("one").unwrap();
        wakeups.refresh_for(one.provider_id(), &POOL.parse().unwrap());
        assert_eq!(one.activate().await.unwrap(), json!({"failed": 1}));
        assert_eq!(wakeups.take_pools(), pools(&[POOL]));
        // It is fresh enough: the pool is woken, and the cloud is not asked.
        fail_next(fleet);
        wakeups.refresh_for(one.provider_id(), &POOL.parse().unwrap());
        assert_eq!(one.activate().await.unwrap(), json!(null));
        assert_eq!(wakeups.take_pools(), pools(&[POOL]));
        fleet.pass_ms(5 * 60_000);
        assert_eq!(one.activate().await.unwrap(), json!({"failed": 1}));
    }
);

fleet_on_sqlite_first!(files_are_read_again_for_all_providers, |fleet| {
    let mut reload = FileReload(Arc::clone(&fleet.app.engine));
    assert_eq!(reload.activate().await.unwrap(), json!(null));
});

fleet_test!(
    a_look_at_launch_configs_asks_once_for_each_active_one,
    |fleet| {
        let all = ["a", "b", "c"].map(machine);
        fleet.make_pool(POOL, pool("one", 0, 9, &all)).await;
        fleet.change_pool(POOL, pool("one", 0, 9, &all[..2])).await;
        for path in [
            "/launch-configs/pp%2Fee",
            "/launch-configs/pp%2Fee?includeArchived=true",
            "/launch-config/pp%2Fee/a",
            "/launch-config/pp%2Fee/c",
            "/launch-config-health",
        ] {
            fleet.one.take_bids();
            fleet.get(path).await.expect(200);
            assert_eq!(fleet.one.take_bids(), 2, "{path}");
        }
    }
);
