//! Which workers count: those that ask for work, and not those that only run.

use crate::fleet_world::{MINUTE_MS, POOL, fleet_test, plain_pool};

/// How many machines of the pool's launches asked for work at least once.
async fn first_claims(fleet: &crate::fleet_world::Fleet) -> u64 {
    let pool: domain::id::PoolId = POOL.parse().unwrap();
    let since = domain::time::Timestamp::from_millis(0);
    let records = fleet
        .read(move |tx| store::launch_health_between(tx, since, &pool, &pool))
        .await;
    records.iter().map(|(_, _, record)| record.claimed).sum()
}

fleet_test!(
    a_launch_knows_how_many_of_its_machines_asked_for_work,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        let [first, second] = fleet.register_all(POOL).await.try_into().ok().unwrap();
        assert_eq!(first_claims(fleet).await, 0);
        let claim = fleet.claim_with(&first).await;
        assert_eq!(first_claims(fleet).await, 1);
        fleet.complete(&claim).await;
        // Further claims are no first ones, whenever they are made.
        for pass_ms in [0, 2 * MINUTE_MS] {
            fleet.pass_ms(pass_ms);
            fleet.tasks(POOL, 1).await;
            let claim = fleet.claim_with(&first).await;
            fleet.complete(&claim).await;
            assert_eq!(first_claims(fleet).await, 1);
        }
        fleet.claim_with(&second).await;
        assert_eq!(first_claims(fleet).await, 2);
    }
);
