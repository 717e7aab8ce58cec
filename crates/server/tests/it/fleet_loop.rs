//! The loop from a pending task to a worker, and back to zero workers.

use serde_json::json;

use crate::fleet_world::{
    IDLE_MS, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool, pool,
};

fleet_test!(
    a_task_brings_a_worker_which_goes_when_it_is_no_longer_needed,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.provision().await;
        fleet.news().await;

        let task = fleet.tasks(POOL, 1).await;
        assert_eq!(fleet.provision().await, json!({"pools": 1, "launches": 1}));
        let [machine] = fleet.machines().try_into().unwrap();
        assert_eq!(fleet.states(POOL).await, "1 requested");

        let worker = fleet.register(&machine.key).await;
        let claim = fleet.claim_with(&worker).await;
        fleet.provision().await;
        assert_eq!(fleet.advice(&worker).await, "stay: none");
        fleet.complete(&claim).await;
        assert_eq!(fleet.runs(task).await, ["completed"]);

        fleet.round().await;
        assert_eq!(fleet.advice(&worker).await, "stay: none");
        fleet.pass_ms(IDLE_MS);
        assert_eq!(fleet.round().await, json!({"pools": 1, "advised": 1}));
        assert_eq!(fleet.advice(&worker).await, "go: over capacity");

        fleet.leave(&worker).await;
        assert_eq!(fleet.states(POOL).await, "1 stopping");
        fleet.end().await;
        assert_eq!(fleet.scan().await, json!({"stopped": 1}));
        assert_eq!(fleet.states(POOL).await, "1 stopped");
        assert_eq!(fleet.machines(), []);
        let shown = fleet.get("/worker-pool/pp%2Fee").await.expect(200);
        assert_eq!(shown["currentCapacity"], 0);
        let told = [
            "task-defined 1",
            "task-pending 1/0",
            "worker-requested",
            "worker-running",
            "task-running 1/0",
            "task-completed 1/0",
            "task-group-resolved",
            "worker-removed",
            "worker-stopped",
        ];
        assert_eq!(fleet.news().await, told);

        fleet.round().await;
        assert_eq!(fleet.plans(POOL).await.len(), 2);
    }
);

fleet_on_sqlite_first!(a_row_of_a_worker_says_which_launch_made_it, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.provision().await;
    let [launch] = fleet.launches(POOL).await.try_into().unwrap();
    let [worker] = fleet.workers(POOL).await.try_into().unwrap();
    assert_eq!(
        worker.terms.launch_token.as_deref(),
        Some(launch.token.as_str())
    );
    assert_eq!(
        worker.launch_config_id,
        Some(launch.launch_config_id.clone())
    );
    assert_eq!((launch.machines, launch.made), (1, 1));
    let plan = &fleet.plans(POOL).await[0];
    assert_eq!(launch.plan, plan.number);
});

fleet_test!(a_task_rings_the_bell_of_its_own_pool_only, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet
        .make_pool("pp/other", pool("one", 1, 4, &[machine("a")]))
        .await;
    fleet.app.engine.wakeups.take_pools();
    fleet.tasks(POOL, 1).await;
    fleet.provision().await;
    assert_eq!(fleet.states(POOL).await, "1 requested");
    assert_eq!(fleet.states("pp/other").await, "");
});

fleet_test!(
    a_pool_whose_bell_was_lost_is_looked_at_by_the_round,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.app.engine.wakeups.take_pools();
        fleet.provision().await;
        assert_eq!(fleet.states(POOL).await, "");
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
    }
);

fleet_on_sqlite_first!(started_machines_are_not_launched_again, |fleet| {
    fleet.make_pool(POOL, plain_pool(10)).await;
    fleet.tasks(POOL, 2).await;
    for _ in 0..3 {
        fleet.round().await;
        fleet.pass_ms(MINUTE_MS);
    }
    assert_eq!(fleet.states(POOL).await, "2 requested");
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "3 requested");
});

fleet_on_sqlite_first!(
    an_idle_worker_gets_the_next_task_and_none_is_launched,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(10)).await;
        let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 running");
        fleet.claim_with(&worker).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 running");
    }
);

fleet_on_sqlite_first!(a_busy_worker_is_no_help_for_the_next_task, |fleet| {
    fleet.make_pool(POOL, plain_pool(10)).await;
    fleet.busy(POOL, 2).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "1 requested, 2 running");
});

fleet_on_sqlite_first!(a_machine_for_two_tasks_is_launched_once_for_both, |fleet| {
    let mut double = machine("double");
    double["workerManager"]["capacityPerInstance"] = json!(2);
    fleet.make_pool(POOL, pool("one", 0, 10, &[double])).await;
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "1 requested");
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "2 requested");
});

fleet_on_sqlite_first!(a_task_that_was_cancelled_costs_nothing, |fleet| {
    fleet.make_pool(POOL, plain_pool(10)).await;
    let task = fleet.tasks(POOL, 1).await;
    fleet.about_task(task, "cancel").await.expect(200);
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "");
    assert_eq!(fleet.plans(POOL).await, []);
});

fleet_on_sqlite_first!(a_blocked_task_launches_no_worker, |fleet| {
    fleet.make_pool(POOL, plain_pool(10)).await;
    fleet.tasks(POOL, 1).await;
    let first = crate::queue_samples::task_id(1);
    fleet.created(2, json!({"dependencies": [first]})).await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "1 requested");
    let [worker] = fleet.register_all(POOL).await.try_into().ok().unwrap();
    let claim = fleet.claim_with(&worker).await;
    fleet.complete(&claim).await;
    fleet.claim_with(&worker).await;
});
