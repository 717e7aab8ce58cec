//! Workers that stop by themselves, between two tasks, because they are not needed any more.

use std::sync::Arc;

use cloud::{LaunchOutcome, Provider};
use domain::id::{PoolId, ProviderId};
use domain::launch::{Cause, LaunchState};
use domain::time::{DAY_MS, HOUR_MS, Timestamp};
use domain::worker::{Advice, Worker, WorkerState};
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::listener::Server;
use server::background::Housekeeping;
use server::background::driver::BackgroundTask;
use server::start::start_with;
use testing::sizes_around;

use crate::fleet_world::{
    Fleet, IDLE_MS, MINUTE_MS, POOL, Running, fleet_on_sqlite_first, fleet_test, machine,
    plain_pool, pool, worker_path,
};
use crate::queue_crowds::{SWEEP_AT_THE_LATEST, let_server_begin};
use crate::queue_samples::stop_time;
use crate::samples::{static_pool, static_worker, worker};
use crate::world::MAX_TRIPS;

const GO: &str = "go: over capacity";
const STAY: &str = "stay: none";
const ARCHIVED: &str = "go: launch config archived";

impl Fleet {
    /// A worker with a task, whose pool has moved to the other cloud.
    async fn busy_in_a_cloud_that_is_left(&self) -> (Running, Value) {
        self.make_pool(POOL, plain_pool(4)).await;
        let busy = self.busy(POOL, 1).await.remove(0);
        self.change_pool(POOL, pool("two", 0, 4, &[machine("a")]))
            .await;
        busy
    }

    async fn advices(&self, workers: &[Running]) -> Vec<String> {
        let mut advices = Vec::new();
        for worker in workers {
            advices.push(self.advice(worker).await);
        }
        advices
    }
}

fleet_on_sqlite_first!(surplus_workers_stop_only_after_the_idle_time, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let idle = fleet.idle(POOL, 2).await;
    fleet.pass_ms(IDLE_MS - 1);
    fleet.round().await;
    assert_eq!(fleet.advices(&idle).await, [STAY, STAY]);
    fleet.pass_ms(1);
    fleet.round().await;
    assert_eq!(fleet.advices(&idle).await, [GO, GO]);
});

fleet_test!(the_longest_idle_goes_first, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 1, 4, &[machine("a")]))
        .await;
    let [(first, claim), (second, last_claim)] = fleet.busy(POOL, 2).await.try_into().ok().unwrap();
    fleet.complete(&last_claim).await;
    fleet.pass_ms(1_000);
    fleet.complete(&claim).await;
    fleet.pass_ms(IDLE_MS);
    fleet.round().await;
    assert_eq!(fleet.advice(&second).await, GO);
    assert_eq!(fleet.advice(&first).await, STAY);
});

fleet_on_sqlite_first!(a_busy_worker_is_never_too_many, |fleet| {
    fleet.make_pool(POOL, plain_pool(2)).await;
    let busy = fleet.busy(POOL, 2).await;
    fleet.change_pool(POOL, plain_pool(1)).await;
    fleet.pass_ms(10 * IDLE_MS);
    fleet.round().await;
    fleet.scan().await;
    for (worker, _) in &busy {
        assert_eq!(fleet.advice(worker).await, STAY);
    }
    assert_eq!(fleet.states(POOL).await, "2 running");

    fleet.complete(&busy[0].1).await;
    fleet.pass_ms(IDLE_MS);
    fleet.round().await;
    assert_eq!(fleet.advice(&busy[0].0).await, GO);
    assert_eq!(fleet.advice(&busy[1].0).await, STAY);
});

fleet_on_sqlite_first!(workers_of_the_minimum_do_not_stop, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 1, 4, &[machine("a")]))
        .await;
    let idle = fleet.idle(POOL, 2).await;
    fleet.pass_ms(10 * IDLE_MS);
    fleet.round().await;
    let mut advices = fleet.advices(&idle).await;
    advices.sort();
    assert_eq!(advices, [GO, STAY]);
});

fleet_on_sqlite_first!(advice_to_stop_is_withdrawn_when_work_comes, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
    fleet.pass_ms(IDLE_MS);
    fleet.round().await;
    assert_eq!(fleet.advice(&worker).await, GO);
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.advice(&worker).await, "stay: needed");
    assert_eq!(fleet.states(POOL).await, "1 running");
});

fleet_on_sqlite_first!(
    a_stopping_worker_is_no_supply_beyond_its_capacity,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
        fleet.pass_ms(IDLE_MS);
        fleet.round().await;
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        assert_eq!(fleet.advice(&worker).await, "stay: needed");
        assert_eq!(fleet.states(POOL).await, "1 requested, 1 running");
    }
);

fleet_on_sqlite_first!(
    workers_of_a_provider_that_the_pool_has_left_finish_and_go,
    |fleet| {
        let (worker, claim) = fleet.busy_in_a_cloud_that_is_left().await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.two.fake.n_machines(), 1);
        assert_eq!(fleet.advice(&worker).await, "go: provider left by the pool");
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "1 requested, 1 running");

        fleet.complete(&claim).await;
        fleet.keep_house().await;
        let one = "one".parse().unwrap();
        assert_eq!(
            fleet.stored_pool(POOL).await.unwrap().previous_provider_ids,
            [one]
        );
        fleet.leave(&worker).await;
        fleet.scan().await;
        fleet.keep_house().await;
        assert_eq!(
            fleet.stored_pool(POOL).await.unwrap().previous_provider_ids,
            []
        );
        assert_eq!(fleet.one.fake.n_machines(), 0);
    }
);

fleet_test!(
    a_deleted_pool_exists_until_its_workers_have_stopped,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let [(worker, claim)] = fleet.busy(POOL, 1).await.try_into().ok().unwrap();
        fleet.delete_pool(POOL).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 running");
        assert_eq!(fleet.advice(&worker).await, ARCHIVED);
        fleet.complete(&claim).await;
        fleet.keep_house().await;
        fleet.get("/worker-pool/pp%2Fee").await.expect(200);

        fleet.leave(&worker).await;
        fleet.scan().await;
        fleet.keep_house().await;
        fleet.get("/worker-pool/pp%2Fee").await.expect(404);
    }
);

fleet_test!(
    a_machine_whose_answer_was_lost_goes_with_its_deleted_pool,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.round().await;
        fleet.delete_pool(POOL).await;
        fleet.keep_house().await;
        assert!(fleet.stored_pool(POOL).await.is_some());
        fleet.scan().await;
        let [worker] = fleet.register_all(POOL).await.try_into().ok().unwrap();
        fleet.round().await;
        assert_eq!(fleet.advice(&worker).await, ARCHIVED);
    }
);

fleet_on_sqlite_first!(
    a_pool_of_the_null_provider_launches_nothing_whatever_waits,
    |fleet| {
        fleet
            .make_pool(POOL, pool("null-provider", 2, 4, &[machine("a")]))
            .await;
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        assert_eq!(fleet.launches(POOL).await, []);
        assert_eq!(fleet.machines(), []);
    }
);

fleet_on_sqlite_first!(
    workers_of_an_archived_launch_config_go_between_two_tasks,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(8)).await;
        let busy = fleet.busy(POOL, 2).await;
        fleet.complete(&busy[0].1).await;
        fleet
            .change_pool(POOL, pool("one", 0, 8, &[machine("b")]))
            .await;
        fleet.round().await;
        for (worker, _) in &busy {
            assert_eq!(fleet.advice(worker).await, ARCHIVED);
        }
        // A busy worker is not ended: it asks when it has finished.
        fleet.scan().await;
        fleet.end().await;
        assert_eq!(fleet.states(POOL).await, "2 running");
        fleet.complete(&busy[1].1).await;

        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        let launches = fleet.launches(POOL).await;
        assert_eq!(launches.last().unwrap().launch_config_id.as_str(), "b");
        assert_eq!(fleet.states(POOL).await, "1 requested, 2 running");
    }
);

fleet_on_sqlite_first!(
    a_quarantined_worker_is_replaced_and_counts_again_when_released,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
        fleet.quarantine(&worker.key, 2 * HOUR_MS).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested, 1 running");
        assert_eq!(fleet.advice(&worker).await, STAY);

        let other = fleet.register_all(POOL).await.remove(0);
        let claim = fleet.claim_with(&other).await;
        fleet.quarantine(&worker.key, -MINUTE_MS).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "2 running");
        fleet.claim_with(&worker).await;
        fleet.complete(&claim).await;
    }
);

fleet_on_sqlite_first!(a_quarantined_worker_is_kept_for_a_day, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
    fleet.quarantine(&worker.key, 100 * DAY_MS).await;
    fleet.pass_ms(HOUR_MS);
    fleet.round().await;
    assert_eq!(fleet.advice(&worker).await, STAY);
    fleet.pass_ms(DAY_MS);
    fleet.round().await;
    let advice = fleet
        .worker(&worker.key)
        .await
        .unwrap()
        .into_stored()
        .terms
        .advice
        .unwrap();
    assert_eq!(advice.reason, "quarantined for too long");
    assert!(advice.terminate);
});

fleet_test!(a_removed_worker_loses_its_task_and_its_machine, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let [(worker, _)] = fleet.busy(POOL, 1).await.try_into().ok().unwrap();
    fleet.remove(&worker.key).await;
    assert_eq!(fleet.states(POOL).await, "1 stopping");
    assert_eq!(fleet.runs(1).await, ["exception", "pending"]);
    fleet.end().await;
    assert_eq!(fleet.machines(), []);
    fleet.provision().await;
    assert_eq!(fleet.states(POOL).await, "1 requested, 1 stopping");
});

fleet_on_sqlite_first!(
    a_worker_that_stops_without_advice_is_not_called_surplus,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let [worker] = fleet.idle(POOL, 1).await.try_into().ok().unwrap();
        fleet.leave(&worker).await;
        assert_eq!(fleet.end_reason(&worker.key).await, "it stopped by itself");
        fleet.scan().await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 stopped");
    }
);

fleet_on_sqlite_first!(
    a_pool_that_returns_to_a_provider_keeps_its_workers_there,
    |fleet| {
        let (worker, claim) = fleet.busy_in_a_cloud_that_is_left().await;
        fleet.round().await;
        fleet.change_pool(POOL, plain_pool(4)).await;
        fleet.round().await;
        assert_eq!(fleet.advice(&worker).await, "stay: needed");
        fleet.complete(&claim).await;
    }
);

fleet_on_sqlite_first!(a_worker_gets_its_advice_when_it_asks, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let (worker, claim) = fleet.busy(POOL, 1).await.remove(0);
    fleet.complete(&claim).await;
    assert_eq!(fleet.advice(&worker).await, "stay: none");
    fleet.remove(&worker.key).await;
    let reason = fleet.end_reason(&worker.key).await;
    assert_eq!(fleet.advice(&worker).await, format!("go: {reason}"));
});

fleet_test!(
    launches_of_a_provider_that_is_configured_no_longer_are_given_up_and_pools_leave_it,
    |fleet| {
        const GONE: &str = "pp/gone";
        let pools = [POOL, GONE];
        for pool in pools {
            fleet.make_pool(pool, plain_pool(4)).await;
            fleet.tasks(pool, 1).await;
            fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
            fleet.round().await;
        }
        fleet
            .change_pool(POOL, pool("two", 0, 4, &[machine("a")]))
            .await;
        fleet.delete_pool(GONE).await;
        let others: Vec<(ProviderId, Arc<dyn Provider>)> = fleet.providers();
        let others = others.into_iter().filter(|(id, _)| id.as_str() != "one");
        let (config, clock) = (fleet.app.config.clone(), Arc::clone(&fleet.clock));
        let random = Random::new(StdRng::seed_from_u64(3));
        let app = Box::pin(start_with(config, clock, random, others.collect())).await;
        let mut keeping = Housekeeping::new(app.unwrap());
        fleet.pass_ms(6 * HOUR_MS);
        keeping.activate().await.unwrap();
        for pool in pools {
            let [launch] = fleet.launches(pool).await.try_into().unwrap();
            assert!(launch.state.is_pending(), "{:?}", launch.state);
        }
        fleet.pass_ms(1);
        keeping.activate().await.unwrap();
        for pool in pools {
            let [launch] = fleet.launches(pool).await.try_into().unwrap();
            let is_lost = |state| {
                matches!(
                    state,
                    LaunchState::Refused {
                        cause: Cause::Lost,
                        ..
                    }
                )
            };
            assert!(is_lost(launch.state.clone()), "{:?}", launch.state);
        }
        let left = fleet.stored_pool(POOL).await.unwrap();
        assert_eq!(left.previous_provider_ids, []);
        assert!(fleet.stored_pool(GONE).await.is_none());
    }
);

fleet_on_sqlite_first!(
    a_launched_machine_is_not_declared_anew_once_its_pool_is_static,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.change_pool(POOL, static_pool()).await;
        let before = fleet.workers(POOL).await;
        let update = fleet.post(&worker_path(&before[0].key), static_worker());
        let text = "not supported for this provider";
        update.await.refused(400, "InputError", text);
        assert_eq!(fleet.workers(POOL).await, before);
    }
);

fleet_test!(
    a_worker_that_waits_hears_at_once_that_it_should_stop,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let idle = fleet.idle(POOL, 2).await;
        // Without the advice nothing would ever answer it: no timer fires.
        let _stopped = stop_time();
        let waiting = tokio::spawn(fleet.asking(&idle[0]).send());
        fleet.until_waiting(1).await;
        fleet.pass_ms(IDLE_MS);
        fleet.round().await;
        assert_eq!(waiting.await.unwrap().expect(200), json!({"tasks": []}));
        assert_eq!(fleet.advices(&idle).await, [GO, GO]);
    }
);

fleet_test!(
    a_worker_that_waits_at_another_process_hears_it_too,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let idle = fleet.idle(POOL, 1).await;
        let random = Random::new(StdRng::seed_from_u64(8));
        let (config, clock) = (fleet.app.config.clone(), Arc::clone(&fleet.clock) as _);
        let other = start_with(config, clock, random, fleet.providers())
            .await
            .unwrap();
        let server = Arc::new(Server::new(Arc::clone(&other)));
        let _stopped = stop_time();
        let waiting = tokio::spawn(fleet.asking(&idle[0]).at(&server).send());
        let queue = POOL.parse().unwrap();
        while other.engine.queue.dispatcher.n_waiting(&queue) < 1 {
            tokio::task::yield_now().await;
        }
        fleet.pass_ms(IDLE_MS);
        fleet.round().await;
        assert_eq!(fleet.advices(&idle).await, [GO]);
        tokio::time::advance(SWEEP_AT_THE_LATEST).await;
        for number in 0..MAX_TRIPS {
            if waiting.is_finished() {
                break;
            }
            let_server_begin(fleet, number).await;
        }
        assert!(waiting.is_finished(), "the sweep answers it");
        assert_eq!(waiting.await.unwrap().expect(200), json!({"tasks": []}));
    }
);

fleet_test!(
    a_sweep_finds_the_last_ones_that_were_asked_to_stop,
    |fleet| {
        let limit = 100;
        let (queue, now) = (POOL.parse::<PoolId>().unwrap(), fleet.now());
        let mut known = 0;
        for size in sizes_around("engine::queue::claim_dispatcher::DISMISSED_AT_ONCE", limit) {
            for number in known..size {
                let asked_at = now.plus_millis(number as i64);
                fleet.insert(asked_to_stop(number, asked_at)).await;
            }
            known = known.max(size);
            let (queues, most) = ([queue.clone()], u32::try_from(limit).unwrap());
            let found = fleet.read(move |tx| {
                store::claimants::asked_to_stop(tx, &queues, now.plus_millis(1), most)
            });
            let numbers: Vec<String> = found.await.iter().map(|key| key.id.to_string()).collect();
            // The first was asked too long ago.
            let expected: Vec<String> = (1..size)
                .rev()
                .take(limit)
                .map(|it| format!("w{it}"))
                .collect();
            assert_eq!(numbers, expected);
        }
    }
);

fn asked_to_stop(number: usize, at: Timestamp) -> Worker {
    let mut stored = worker(POOL, "g", &format!("w{number}")).into_stored();
    stored.state = WorkerState::Running;
    stored.terms.advice = Some(Advice {
        terminate: true,
        reason: "r".to_owned(),
        decided_at: at.as_millis(),
    });
    Worker::from_stored(stored)
}
