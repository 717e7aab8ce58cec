//! Conclusions of a scan: which workers have stopped, which must stop, and which are left unchanged
//! because of concurrent changes.

use cloud::{Call, CloudError};
use domain::time::{DAY_MS, HOUR_MS};
use domain::worker::{StoredWorker, WorkerState};
use serde_json::{Value, json};

use crate::ask::Who;
use crate::fleet_world::{
    Fleet, INACTIVITY_MS, MINUTE_MS, POOL, REGISTRATION_MS, REREGISTRATION_MS, Running,
    fleet_on_sqlite_first, fleet_test, plain_pool,
};

const UNAVAILABLE: fn() -> CloudError = || CloudError::Unavailable("down".to_owned());

impl Fleet {
    /// A worker that was requested and has not registered yet.
    async fn requested(&self) -> domain::id::WorkerKey {
        self.make_pool(POOL, plain_pool(4)).await;
        self.tasks(POOL, 1).await;
        self.round().await;
        self.workers_in(POOL, "requested").await.remove(0)
    }

    async fn one_busy(&self) -> (Running, Value) {
        self.make_pool(POOL, plain_pool(4)).await;
        self.busy(POOL, 1).await.remove(0)
    }

    async fn one_idle(&self) -> Running {
        let (worker, claim) = self.one_busy().await;
        self.complete(&claim).await;
        worker
    }

    fn n_end_calls(&self) -> u64 {
        self.one.fake.n_calls(Call::End)
    }
}

fleet_on_sqlite_first!(a_worker_that_does_not_register_in_time_is_ended, |fleet| {
    let key = fleet.requested().await;
    fleet.listen_ms(REGISTRATION_MS);
    assert_eq!(fleet.scan().await, json!(null));
    fleet.pass_ms(1);
    assert_eq!(fleet.scan().await, json!({"ended": 1}));
    assert_eq!(fleet.end_reason(&key).await, "never registered within 900s");
    fleet.end().await;
    assert_eq!(fleet.scan().await, json!({"stopped": 1}));
    assert_eq!(fleet.states(POOL).await, "1 stopped");
});

fleet_on_sqlite_first!(
    a_worker_that_does_not_register_again_in_time_is_ended_even_if_it_works,
    |fleet| {
        let (worker, _) = fleet.one_busy().await;
        // It keeps asking for work, so it is not silent.
        for _ in 0..REREGISTRATION_MS / INACTIVITY_MS {
            fleet.listen_ms(INACTIVITY_MS);
            fleet.tasks(POOL, 1).await;
            fleet.claim_with(&worker).await;
            fleet.scan().await;
        }
        assert_eq!(fleet.states(POOL).await, "1 running");
        fleet.pass_ms(1);
        assert_eq!(fleet.scan().await, json!({"ended": 1}));
        assert_eq!(
            fleet.end_reason(&worker.key).await,
            "terminateAfter time exceeded"
        );
        assert_eq!(fleet.runs(1).await, ["exception", "pending"]);
    }
);

fleet_on_sqlite_first!(a_worker_that_registers_again_keeps_running, |fleet| {
    let key = fleet.requested().await;
    let reply = fleet.registration(&key).await.expect(200);
    fleet.pass_ms(REREGISTRATION_MS - MINUTE_MS);
    let again = fleet.registration_again(&key, &reply).await.expect(200);
    let who = Who::registered(&again);
    fleet.tasks(POOL, 1).await;
    fleet.claim_with(&Running { key, who }).await;
    fleet.pass_ms(2 * MINUTE_MS);
    assert_eq!(fleet.scan().await, json!(null));
});

fleet_on_sqlite_first!(a_worker_that_never_asks_for_work_is_ended, |fleet| {
    let key = fleet.requested().await;
    fleet.register(&key).await;
    fleet.listen_ms(INACTIVITY_MS);
    assert_eq!(fleet.scan().await, json!(null));
    fleet.pass_ms(1);
    assert_eq!(fleet.scan().await, json!({"ended": 1}));
    let reason = fleet.end_reason(&key).await;
    assert!(reason.starts_with("worker never claimed work"), "{reason}");
});

fleet_on_sqlite_first!(a_silent_worker_is_ended, |fleet| {
    let worker = fleet.one_idle().await;
    fleet.listen_ms(INACTIVITY_MS + 1);
    assert_eq!(fleet.scan().await, json!({"ended": 1}));
    let reason = fleet.end_reason(&worker.key).await;
    assert!(reason.starts_with("worker inactive"), "{reason}");
});

fleet_on_sqlite_first!(
    after_the_clock_was_set_forward_whoever_is_heard_again_stays,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(9)).await;
        let idle = fleet.idle(POOL, 2).await;
        // As after an outage: nothing was heard for longer than any worker may be silent.
        fleet.pass_ms(2 * INACTIVITY_MS);
        assert_eq!(fleet.scan().await, json!(null));
        fleet.listen_ms(10 * MINUTE_MS);
        fleet.tasks(POOL, 1).await;
        fleet.claim_with(&idle[0]).await;
        fleet.listen_ms(INACTIVITY_MS - 10 * MINUTE_MS);
        assert_eq!(fleet.scan().await, json!(null));
        fleet.listen_ms(1);
        assert_eq!(fleet.scan().await, json!({"ended": 1}));
        assert_eq!(fleet.states(POOL).await, "1 running, 1 stopping");
        let reason = fleet.end_reason(&idle[1].key).await;
        assert!(reason.starts_with("worker inactive"), "{reason}");
    }
);

fleet_on_sqlite_first!(a_quarantined_worker_may_be_silent, |fleet| {
    let worker = fleet.one_idle().await;
    fleet.quarantine(&worker.key, 3 * HOUR_MS).await;
    fleet.pass_ms(2 * INACTIVITY_MS);
    assert_eq!(fleet.scan().await, json!(null));
});

fleet_test!(
    the_task_of_a_machine_that_died_is_tried_again_elsewhere,
    |fleet| {
        let (worker, _) = fleet.one_busy().await;
        fleet.kill(&worker.key);
        assert_eq!(fleet.scan().await, json!({"stopped": 1}));
        let reason = fleet.end_reason(&worker.key).await;
        assert_eq!(reason, "its machine ended: it died by itself");
        assert_eq!(fleet.runs(1).await, ["exception", "pending"]);
        fleet.provision().await;
        assert_eq!(fleet.states(POOL).await, "1 requested, 1 stopped");
    }
);

fleet_on_sqlite_first!(
    a_fresh_machine_that_is_not_seen_yet_may_still_come,
    |fleet| {
        let key = fleet.requested().await;
        fleet.one.fake.set_lag_ms(2 * MINUTE_MS);
        fleet.pass_ms(MINUTE_MS);
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
        fleet.register(&key).await;
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "1 running");
    }
);

fleet_on_sqlite_first!(
    a_cloud_that_cannot_be_asked_has_not_lost_anything,
    |fleet| {
        fleet.one_idle().await;
        fleet.one.fake.fail_next(Call::Look, UNAVAILABLE());
        fleet.one.fake.fail_next(Call::Owned, UNAVAILABLE());
        assert_eq!(fleet.scan().await, json!({"problems": 2}));
        assert_eq!(fleet.states(POOL).await, "1 running");
    }
);

fleet_on_sqlite_first!(
    the_end_of_a_slow_machine_is_requested_again_after_a_minute,
    |fleet| {
        let key = fleet.requested().await;
        fleet.one.fake.set_stop_ms(HOUR_MS);
        fleet.remove(&key).await;
        let mut calls = Vec::new();
        for _ in 0..3 {
            fleet.end().await;
            fleet.end().await;
            calls.push(fleet.n_end_calls());
            fleet.pass_ms(MINUTE_MS);
            fleet.scan().await;
        }
        assert_eq!(calls, [1, 2, 3]);
        assert_eq!(fleet.states(POOL).await, "1 stopping");
        fleet.pass_ms(HOUR_MS);
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "1 stopped");
    }
);

fleet_on_sqlite_first!(
    an_end_that_failed_is_tried_again_after_three_seconds,
    |fleet| {
        let key = fleet.requested().await;
        fleet.remove(&key).await;
        fleet.one.fake.fail_next(Call::End, UNAVAILABLE());
        assert_eq!(fleet.end().await, json!(null));
        assert_eq!(fleet.machines().len(), 1);
        fleet.pass_ms(2_999);
        assert_eq!(fleet.end().await, json!(null));
        fleet.pass_ms(1);
        assert_eq!(fleet.end().await, json!({"told": 1}));
        assert_eq!(fleet.machines(), []);
    }
);

fleet_on_sqlite_first!(a_machine_whose_row_is_stopped_is_ended, |fleet| {
    let key = fleet.requested().await;
    fleet
        .edit(&key, |worker| worker.state = WorkerState::Stopped)
        .await;
    assert_eq!(fleet.scan().await, json!({"ended": 1}));
    assert_eq!(fleet.machines(), []);
});

fleet_test!(the_row_of_a_living_worker_does_not_expire, |fleet| {
    let worker = fleet.one_idle().await;
    let endless = |worker: &mut StoredWorker| {
        worker.terms.terminate_after = None;
        worker.terms.queue_inactivity_timeout = Some(100 * DAY_MS);
    };
    fleet.edit(&worker.key, endless).await;
    let wakeups = &fleet.app.engine.wakeups;
    for _ in 0..10 {
        fleet.pass_ms(DAY_MS);
        wakeups.take_pools();
        fleet.scan().await;
        assert!(wakeups.take_pools().is_empty(), "the pool has what it had");
        fleet.keep_house().await;
    }
    let row = fleet.worker(&worker.key).await.unwrap();
    assert!(row.expires > fleet.now().plus_millis(6 * DAY_MS));
});

fleet_test!(
    b05_who_registers_while_it_is_looked_at_is_not_ended_for_being_late,
    |fleet| {
        let key = fleet.requested().await;
        fleet.listen_ms(REGISTRATION_MS + 1);
        let registration = fleet.registration(&key).send();
        fleet.one.during_the_next_look(async move {
            Box::pin(registration).await.expect(200);
        });
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "1 running");
        assert_eq!(fleet.scan().await, json!(null));
    }
);

fleet_test!(a_worker_that_claims_during_a_scan_is_not_silent, |fleet| {
    let worker = fleet.one_idle().await;
    fleet.tasks(POOL, 1).await;
    fleet.pass_ms(INACTIVITY_MS + 1);
    let claim = fleet.asking(&worker).send();
    fleet.one.during_the_next_look(async move {
        Box::pin(claim).await.expect(200);
    });
    fleet.scan().await;
    assert_eq!(fleet.states(POOL).await, "1 running");
    assert_eq!(fleet.runs(2).await, ["running"]);
});

fleet_test!(
    a_worker_that_registers_again_during_a_scan_is_not_ended,
    |fleet| {
        let key = fleet.requested().await;
        let reply = fleet.registration(&key).await.expect(200);
        let patient = |worker: &mut StoredWorker| {
            worker.terms.queue_inactivity_timeout = Some(DAY_MS);
        };
        fleet.edit(&key, patient).await;
        // Its time ends between the look and the judgement.
        fleet.listen_ms(REREGISTRATION_MS);
        let ask = fleet.registration_again(&key, &reply);
        let (clock, again) = (std::sync::Arc::clone(&fleet.clock), ask.send());
        fleet.one.during_the_next_look(async move {
            Box::pin(again).await.expect(200);
            clock.advance_ms(1);
        });
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "1 running");
    }
);

fleet_test!(
    a_worker_that_is_stopped_during_a_scan_is_stopped_once,
    |fleet| {
        let worker = fleet.one_idle().await;
        fleet.pass_ms(INACTIVITY_MS + 1);
        fleet.news().await;
        let path = format!("/workers/pp%2Fee/{}/{}", worker.key.group, worker.key.id);
        let removal = fleet.delete(&path).send();
        fleet.one.during_the_next_look(async move {
            Box::pin(removal).await.expect(200);
        });
        fleet.scan().await;
        assert_eq!(fleet.news().await, ["worker-removed"]);
        assert_eq!(fleet.states(POOL).await, "1 stopping");
    }
);
