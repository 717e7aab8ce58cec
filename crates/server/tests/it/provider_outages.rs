//! A provider that stays out of service is an error of the pools that need it.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use engine::fleet::{OutageLimits, report_outage};
use serde_json::{Value, json};
use server::background::ProviderSetup;
use server::background::driver::BackgroundTask as _;

use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, plain_pool};

const DAY_MS: i64 = 86_400_000;

/// The pool names a provider that could not be named now.
async fn move_to_shaky(fleet: &Fleet, pool: &str) {
    let mut pool = fleet.stored_pool(pool).await.unwrap();
    pool.definition.provider_id = "shaky".parse().unwrap();
    let store = &fleet.app.engine.store;
    let moved = store.write("test", move |tx| store::pools::update(tx, &pool));
    moved.await.unwrap();
}

fn kinds(errors: &[(String, String)]) -> Vec<&str> {
    errors.iter().map(|(kind, _)| kind.as_str()).collect()
}

fleet_on_sqlite_first!(an_outage_that_goes_on_is_reported_once_a_day, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    fleet.make_pool("pp/other", plain_pool(1)).await;
    move_to_shaky(fleet, POOL).await;
    let mut task = ProviderSetup::new(Arc::clone(&fleet.app.engine));
    // The first failure may pass.
    assert_eq!(task.activate().await.unwrap(), Value::Null);
    assert_eq!(task.activate().await.unwrap(), json!({"reported": 1}));
    for _ in 0..3 {
        fleet.clock.advance_ms(60_000);
        assert_eq!(task.activate().await.unwrap(), Value::Null);
    }
    assert_eq!(kinds(&fleet.errors(POOL).await), ["provider-error"]);
    assert!(fleet.errors("pp/other").await.is_empty());
    // A pool that needs the provider later hears of it, too, and no pool twice.
    move_to_shaky(fleet, "pp/other").await;
    fleet.clock.advance_ms(3_600_000);
    assert_eq!(task.activate().await.unwrap(), json!({"reported": 1}));
    let mut restarted = ProviderSetup::new(Arc::clone(&fleet.app.engine));
    restarted.activate().await.unwrap();
    assert_eq!(restarted.activate().await.unwrap(), Value::Null);
    fleet.clock.advance_ms(DAY_MS);
    assert_eq!(task.activate().await.unwrap(), json!({"reported": 2}));
    fleet.shaky.works.store(true, Ordering::Release);
    fleet.clock.advance_ms(DAY_MS);
    let done = task.activate().await.unwrap();
    assert_eq!(done, json!({"in_service": ["shaky"]}));
});

fleet_on_sqlite_first!(an_outage_reaches_the_pools_of_all_pages, |fleet| {
    let id = "one".parse().unwrap();
    for pools in [0, 1, 2, 3, 4, 7] {
        for number in 0..pools {
            let pool = format!("pp/of-{pools}-{number}");
            fleet.make_pool(&pool, plain_pool(1)).await;
        }
        let limits = OutageLimits { page: 2, pages: 20 };
        let reported = report_outage(&fleet.app.engine, &id, "no key", limits).await;
        assert_eq!(reported.unwrap(), pools);
    }
    // Three pages have six of the 17 pools.
    fleet.clock.advance_ms(DAY_MS);
    let few = OutageLimits { page: 2, pages: 3 };
    let reported = report_outage(&fleet.app.engine, &id, "no key", few).await;
    assert_eq!(reported.unwrap(), 6);
});
