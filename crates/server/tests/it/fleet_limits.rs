//! Limits of a pool, of a launch config and of a provider; and limits of the stored history.

use cloud::LaunchOutcome;
use domain::time::DAY_MS;
use serde_json::json;

use crate::fleet_world::{
    IDLE_MS, MAX_MACHINES, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool,
    pool,
};

fleet_on_sqlite_first!(the_minimum_runs_without_work_and_is_replaced, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 2, 4, &[machine("a")]))
        .await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "2 requested");
    fleet.register_all(POOL).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "2 running");
    let lost = fleet.machines().remove(0).key;
    fleet.kill(&lost);
    fleet.scan().await;
    fleet.provision().await;
    assert_eq!(
        fleet.states(POOL).await,
        "1 requested, 1 running, 1 stopped"
    );
});

fleet_on_sqlite_first!(the_maximum_holds_however_much_waits, |fleet| {
    fleet.make_pool(POOL, plain_pool(3)).await;
    fleet.tasks(POOL, 10).await;
    for _ in 0..3 {
        fleet.round().await;
        fleet.register_all(POOL).await;
    }
    assert_eq!(fleet.states(POOL).await, "3 running");
    assert_eq!(fleet.machines().len(), 3);
});

fleet_on_sqlite_first!(a_stopping_worker_counts_until_it_has_stopped, |fleet| {
    fleet.make_pool(POOL, plain_pool(1)).await;
    let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
    fleet.one.fake.set_stop_ms(MINUTE_MS);
    fleet.remove(&worker.key).await;
    fleet.end().await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "1 stopping");
    fleet.pass_ms(MINUTE_MS);
    fleet.scan().await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "1 requested, 1 stopped");
});

fleet_on_sqlite_first!(a_launch_without_an_answer_takes_room, |fleet| {
    fleet.make_pool(POOL, plain_pool(2)).await;
    fleet.tasks(POOL, 2).await;
    fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
    fleet.round().await;
    fleet.tasks(POOL, 5).await;
    fleet.round().await;
    assert_eq!(fleet.machines().len(), 2);
});

fleet_on_sqlite_first!(a_launch_config_has_a_maximum_of_its_own, |fleet| {
    let mut small = machine("small");
    small["workerManager"]["maxCapacity"] = json!(1);
    fleet.make_pool(POOL, pool("one", 0, 9, &[small])).await;
    fleet.tasks(POOL, 5).await;
    fleet.round().await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "1 requested");
});

fleet_on_sqlite_first!(a_launch_config_of_weight_zero_is_switched_off, |fleet| {
    let mut off = machine("off");
    off["workerManager"]["initialWeight"] = json!(0);
    fleet.make_pool(POOL, pool("one", 0, 9, &[off])).await;
    fleet.tasks(POOL, 5).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "");
});

fleet_test!(two_pools_share_the_limit_of_their_provider, |fleet| {
    for pool_id in [POOL, "pp/other"] {
        fleet
            .make_pool(pool_id, pool("two", 0, 10, &[machine("a")]))
            .await;
        fleet.tasks(pool_id, 2).await;
    }
    fleet.round().await;
    fleet.round().await;
    assert_eq!(fleet.two.fake.n_machines(), MAX_MACHINES);
    assert_eq!(
        fleet.workers(POOL).await.len() + fleet.workers("pp/other").await.len(),
        3
    );

    let gone = fleet.machines().remove(0).key;
    fleet.register(&gone).await;
    fleet.remove(&gone).await;
    fleet.end().await;
    fleet.scan().await;
    fleet.round().await;
    assert_eq!(fleet.two.fake.n_machines(), MAX_MACHINES);
});

fleet_on_sqlite_first!(more_than_fifty_machines_are_asked_for_in_parts, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 120, 200, &[machine("a")]))
        .await;
    fleet.round().await;
    let mut asked: Vec<u32> = fleet
        .launches(POOL)
        .await
        .iter()
        .map(|launch| launch.machines)
        .collect();
    asked.sort_unstable();
    assert_eq!(asked, [20, 50, 50]);
    assert_eq!(fleet.plans(POOL).await.len(), 1);
    assert_eq!(fleet.machines().len(), 120);
    assert_eq!(fleet.states(POOL).await, "120 requested");
});

fleet_test!(a_look_that_changes_nothing_is_not_remembered, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    for _ in 0..3 {
        fleet.round().await;
        fleet.pass_ms(IDLE_MS);
    }
    assert_eq!(fleet.plans(POOL).await, []);
});

fleet_test!(
    old_plans_and_launches_are_forgotten_and_no_question_is_left_open,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.round().await;
        assert_eq!(fleet.launches(POOL).await.len(), 2);
        let days = i64::from(fleet.app.config.fleet.history_days);
        fleet.pass_ms(days * DAY_MS + 1);
        fleet.keep_house().await;
        assert_eq!(fleet.launches(POOL).await, []);
        assert_eq!(fleet.plans(POOL).await, []);
    }
);
