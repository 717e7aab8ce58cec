//! Pauses after refusals: how often, and when, a cloud without machines is asked.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use cloud::{Call, LaunchOutcome};
use domain::launch::{Cause, LaunchState};
use domain::plan::FIRST_CLAIM_MS;
use domain::time::HOUR_MS;
use domain::worker::{Advice, StoredWorker};
use serde_json::json;
use server::background::Provision;
use server::background::driver::BackgroundTask;

use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool, pool,
};

const SECOND_MS: i64 = 1_000;
const FIVE_MINUTES_S: i64 = 300;

/// The planner as it runs: one task that remembers what it did.
struct Planner<'a> {
    fleet: &'a Fleet,
    task: Provision,
}

impl<'a> Planner<'a> {
    fn new(fleet: &'a Fleet) -> Self {
        let task = Provision::new(Arc::clone(&fleet.app.engine));
        Self { fleet, task }
    }

    async fn look(&mut self) {
        self.task.activate().await.unwrap();
        self.fleet.app.engine.launch_tracker.finish().await;
    }

    /// Goes on for this long, second by second, with a round each ten seconds.
    async fn run(&mut self, seconds: i64) {
        for second in 0..seconds {
            if second % 10 == 0 {
                self.fleet.round().await;
            }
            self.look().await;
            self.fleet.pass_ms(SECOND_MS);
        }
    }
}

/// When machines of each launch config were requested, in seconds.
type Calls = Arc<Mutex<BTreeMap<String, Vec<i64>>>>;

/// From now on the cloud refuses all launches of these pools, and the requests are recorded.
fn refuse(
    fleet: &Fleet,
    cause: Cause,
    is_refused: impl Fn(&str) -> bool + Send + 'static,
) -> Calls {
    // Later than any launch that was accepted: the clock of a test stands still by itself.
    fleet.pass_ms(SECOND_MS);
    let calls = Calls::default();
    let (noted, start) = (Arc::clone(&calls), fleet.now());
    fleet.one.fake.decide_with(move |order| {
        let name = format!("{}/{}", order.pool.id, order.launch_config.id);
        let seconds = order.now.millis_since(start) / SECOND_MS;
        noted.lock().unwrap().entry(name).or_default().push(seconds);
        if is_refused(order.pool.id.as_str()) {
            LaunchOutcome::Refused(cause)
        } else {
            LaunchOutcome::Made
        }
    });
    calls
}

fleet_on_sqlite_first!(
    a_cloud_that_is_out_of_stock_after_it_worked_is_asked_less_and_less,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(100)).await;
        fleet.busy(POOL, 1).await;
        let calls = refuse(fleet, Cause::Capacity, |_| true);
        fleet.tasks(POOL, 5).await;
        Planner::new(fleet).run(FIVE_MINUTES_S).await;
        let calls = calls.lock().unwrap().clone();
        let seconds: Vec<i64> = calls.into_values().flatten().collect();
        assert_eq!(seconds, [0, 10, 30, 70, 150]);
        // The first asked for all, the others for a machine to see whether there is any.
        let launches = fleet.launches(POOL).await;
        let machines: Vec<u32> = launches.iter().map(|launch| launch.machines).collect();
        assert_eq!(machines, [1, 5, 1, 1, 1, 1]);
        assert_eq!(fleet.errors(POOL).await.len(), 5);

        // When there is stock again, the next try finds it, and the missing machines are launched
        // at once.
        fleet.one.fake.behave();
        Planner::new(fleet).run(20).await;
        assert_eq!(fleet.states(POOL).await, "5 requested, 1 running");
    }
);

fleet_on_sqlite_first!(
    a_pool_is_looked_at_when_the_pause_ends_and_not_before,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(100)).await;
        fleet.busy(POOL, 1).await;
        let calls = refuse(fleet, Cause::Quota, |_| true);
        fleet.tasks(POOL, 5).await;
        // Without any round: only by what the planner knows itself.
        let mut planner = Planner::new(fleet);
        for _ in 0..FIVE_MINUTES_S {
            planner.look().await;
            let next = planner.task.idle_for().expect("a pause ends");
            assert!(next.as_secs() <= 480, "{next:?}");
            fleet.pass_ms(SECOND_MS);
        }
        let calls: Vec<i64> = calls
            .lock()
            .unwrap()
            .clone()
            .into_values()
            .flatten()
            .collect();
        assert_eq!(calls, [0, 10, 30, 70, 150]);
    }
);

fleet_test!(a_clock_that_is_set_back_lengthens_no_pause, |fleet| {
    fleet.make_pool(POOL, plain_pool(100)).await;
    fleet.busy(POOL, 1).await;
    let calls = refuse(fleet, Cause::Capacity, |_| true);
    fleet.tasks(POOL, 5).await;
    Planner::new(fleet).run(100).await;
    assert_eq!(calls.lock().unwrap().values().flatten().count(), 4);
    calls.lock().unwrap().clear();
    fleet.pass_ms(-2 * HOUR_MS);
    let set = 100 - 2 * 60 * 60;
    Planner::new(fleet).run(FIVE_MINUTES_S).await;
    let calls = calls.lock().unwrap().clone();
    let since: Vec<i64> = calls.into_values().flatten().map(|at| at - set).collect();
    assert_eq!(since, [0, 10, 30, 70, 150]);
});

fleet_on_sqlite_first!(every_launch_config_has_a_pause_of_its_own, |fleet| {
    let machines: Vec<_> = ["a", "b", "c", "d"].map(machine).into();
    fleet.make_pool(POOL, pool("one", 0, 100, &machines)).await;
    fleet.busy(POOL, 8).await;
    let calls = refuse(fleet, Cause::Capacity, |_| true);
    fleet.tasks(POOL, 40).await;
    Planner::new(fleet).run(FIVE_MINUTES_S).await;
    let calls = calls.lock().unwrap();
    assert_eq!(calls.len(), 4, "{calls:?}");
    for (name, seconds) in &*calls {
        assert!((5..=6).contains(&seconds.len()), "{name}: {seconds:?}");
    }
});

fleet_test!(
    pools_that_are_refused_do_not_starve_those_that_are_not,
    |fleet| {
        const POOLS: usize = 100;
        let names: Vec<String> = (0..POOLS)
            .map(|number| format!("pp/sick-{number:03}"))
            .collect();
        for name in &names {
            fleet.make_pool(name, plain_pool(10)).await;
            fleet.tasks(name, 1).await;
        }
        fleet.make_pool("pp/well", plain_pool(100)).await;
        let calls = refuse(fleet, Cause::Throttled, |pool| pool != "pp/well");
        let mut planner = Planner::new(fleet);
        for round in 1..=16 {
            fleet.round().await;
            fleet.tasks("pp/well", 1).await;
            planner.look().await;
            assert_eq!(fleet.workers("pp/well").await.len(), round);
            fleet.pass_ms(10 * SECOND_MS);
        }
        let calls = calls.lock().unwrap();
        assert_eq!(calls.len(), POOLS + 1);
        for name in names {
            let seconds = &calls[&format!("{name}/a")];
            assert_eq!(*seconds, [0, 10, 30, 70, 150], "{name}");
        }
    }
);

fleet_on_sqlite_first!(
    a_launch_of_which_only_a_part_is_made_is_a_sign_of_shortage,
    |fleet| {
        let machines: Vec<_> = ["a", "b"].map(machine).into();
        fleet.make_pool(POOL, pool("one", 0, 200, &machines)).await;
        fleet.tasks(POOL, 50).await;
        let asked: Calls = Calls::default();
        let noted = Arc::clone(&asked);
        fleet.one.fake.decide_with(move |order| {
            let mut asked = noted.lock().unwrap();
            let of_config = asked.entry(order.launch_config.id.to_string()).or_default();
            of_config.push(order.machines.into());
            match order.launch_config.id.as_str() {
                "a" => LaunchOutcome::Partial(3),
                _ => LaunchOutcome::Made,
            }
        });
        fleet.round().await;
        assert_eq!(asked.lock().unwrap()["a"].len(), 1);
        // The missing machines come from the other one at once, and for now nothing more is
        // requested of the first.
        fleet.provision().await;
        assert_eq!(fleet.workers(POOL).await.len(), 50);
        assert_eq!(asked.lock().unwrap()["a"].len(), 1);
        let launches = fleet.launches(POOL).await;
        let partial = launches.iter().find(|launch| launch.made == 3).unwrap();
        assert_eq!(partial.state, LaunchState::Accepted);
        let explained = fleet.explain_pool(POOL).await;
        let offer = &explained["now"]["snapshot"]["snapshot"]["offers"][0];
        assert_eq!(offer["tries"]["refusals"]["cause"], json!("capacity"));
        assert_eq!(offer["health"]["short"], json!(partial.machines - 3));
    }
);

fleet_test!(a_burst_of_refused_machines_is_one_refusal, |fleet| {
    fleet.make_pool(POOL, plain_pool(1_000)).await;
    let calls = refuse(fleet, Cause::Capacity, |_| true);
    fleet.tasks(POOL, 200).await;
    Planner::new(fleet).run(31).await;
    let calls: Vec<i64> = calls
        .lock()
        .unwrap()
        .clone()
        .into_values()
        .flatten()
        .collect();
    assert_eq!(
        calls,
        [0, 0, 0, 0, 10, 30],
        "four launches of fifty, then one machine each"
    );
});

fleet_on_sqlite_first!(
    machines_that_do_not_come_up_count_when_they_should_have_and_when_they_are_given_up,
    |fleet| {
        // As by default: half an hour to start up, two hours until a machine is given up.
        let mut slow = plain_pool(100);
        slow["config"]["lifecycle"]["registrationTimeout"] = json!(7_200);
        slow["config"]["lifecycle"]["queueInactivityTimeout"] = json!(7_200);
        fleet.make_pool(POOL, slow).await;
        fleet.tasks(POOL, 4).await;
        fleet.round().await;
        let keys = fleet.workers_in(POOL, "requested").await;
        fleet.register(&keys[0]).await;
        fleet.register(&keys[1]).await;
        let mut shares = Vec::new();
        for _ in 0..20 {
            fleet.scan().await;
            let explained = fleet.explain_pool(POOL).await;
            let health = &explained["now"]["snapshot"]["snapshot"]["offers"][0]["health"];
            let number = |name: &str| health[name].as_u64().unwrap();
            shares.push((
                number("overdue"),
                number("neverRegistered"),
                number("attempted"),
            ));
            fleet.listen_ms(10 * MINUTE_MS);
        }
        let young = [(0, 0, 4); 4];
        let overdue = [(2, 0, 4); 9];
        let given_up = [(0, 2, 4); 7];
        assert_eq!(shares[..4], young);
        assert_eq!(shares[4..13], overdue);
        assert_eq!(shares[13..], given_up);
    }
);

fleet_on_sqlite_first!(a_launch_that_was_turned_away_is_no_attempt, |fleet| {
    fleet.make_pool(POOL, plain_pool(100)).await;
    fleet.tasks(POOL, 5).await;
    fleet
        .one
        .fake
        .next_launches([LaunchOutcome::Refused(Cause::Throttled)]);
    fleet.round().await;
    let explained = fleet.explain_pool(POOL).await;
    let offer = &explained["now"]["snapshot"]["snapshot"]["offers"][0];
    assert_eq!(offer["health"]["attempted"], json!(0));
    assert_eq!(offer["tries"]["refusals"]["inARow"], json!(1));
});

fleet_on_sqlite_first!(
    a_busy_queue_is_planned_for_once_a_second_and_a_quiet_one_at_once,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(100)).await;
        let mut planner = Planner::new(fleet);
        planner.look().await;
        fleet.pass_ms(MINUTE_MS);
        let mut n_plans = Vec::new();
        for _ in 0..30 {
            fleet.tasks(POOL, 1).await;
            planner.look().await;
            n_plans.push(fleet.plans(POOL).await.len());
            fleet.pass_ms(100);
        }
        assert_eq!(n_plans[0], 1, "the first task is planned for at once");
        assert_eq!(*n_plans.last().unwrap(), 3, "{n_plans:?}");
        fleet.pass_ms(SECOND_MS);
        planner.look().await;
        assert_eq!(fleet.workers(POOL).await.len(), 30);
        assert_eq!(fleet.one.fake.n_calls(Call::Launch), 4);
    }
);

fleet_on_sqlite_first!(
    a_registration_long_after_a_refusal_does_not_end_its_pause,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(100)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        let calls = refuse(fleet, Cause::Capacity, |_| true);
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.register_all(POOL).await;
        fleet.pass_ms(9 * SECOND_MS);
        fleet.provision().await;
        assert_eq!(calls.lock().unwrap()["pp/ee/a"], [0]);
    }
);

fleet_on_sqlite_first!(
    workers_that_never_ask_for_work_count_against_their_launch_config,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(100)).await;
        fleet.tasks(POOL, 4).await;
        fleet.round().await;
        let workers = fleet.register_all(POOL).await;
        let silent = async || {
            let explained = fleet.explain_pool(POOL).await;
            let health = &explained["now"]["snapshot"]["snapshot"]["offers"][0]["health"];
            health["silent"].as_u64().unwrap()
        };
        fleet.pass_ms(FIRST_CLAIM_MS);
        assert_eq!(silent().await, 0);
        fleet.pass_ms(1);
        assert_eq!(silent().await, 4);
        fleet.claim_with(&workers[0]).await;
        assert_eq!(silent().await, 3);
        // Its end does not delete it from the record, unless it was asked to stop.
        fleet.remove(&workers[1].key).await;
        assert_eq!(silent().await, 3);
        let advised = |worker: &mut StoredWorker| {
            worker.terms.advice = Some(Advice {
                terminate: true,
                reason: "over capacity".to_owned(),
                decided_at: 0,
            });
        };
        fleet.edit(&workers[2].key, advised).await;
        fleet.leave(&workers[2]).await;
        assert_eq!(silent().await, 2);
    }
);
