//! Outcomes of a launch: machines, a refusal with its cause, a late answer, or no answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::{Call, LaunchOutcome};
use domain::id::PoolId;
use domain::launch::{Cause, Launch, LaunchState, StoredLaunch};
use domain::launch_config::LaunchConfig;
use domain::plan::START_UP_MS;
use serde_json::{Value, json};
use server::app::App;

use crate::fleet_two_processes::second;
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, REGISTRATION_MS, fleet_on_sqlite_first, fleet_test, machine,
    plain_pool, pool,
};

/// By then a launch without an answer is concluded, and a pause after a failure is over.
const LONG_MS: i64 = 10 * MINUTE_MS;

impl Fleet {
    pub(crate) async fn launch(&self) -> Launch {
        let [launch] = self.launches(POOL).await.try_into().unwrap();
        launch
    }

    fn n_launch_calls(&self) -> u64 {
        self.one.fake.n_calls(Call::Launch)
    }

    /// Waits until a cloud has received this many launches.
    async fn until_asked(&self, count: u64) {
        const LIMIT: usize = 50_000_000;
        for _ in 0..LIMIT {
            if self.n_launch_calls() == count {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("{} launches were asked for", self.n_launch_calls());
    }

    /// A process decides on a launch, and dies before it asks for it.
    async fn decide_and_die(&self) {
        self.make_pool(POOL, plain_pool(4)).await;
        self.tasks(POOL, 1).await;
        let (id, now): (PoolId, _) = (POOL.parse().unwrap(), self.now());
        let horizon = self.app.engine.horizon(now);
        let defaults = self.app.engine.strategies;
        let facts = self.read(move |tx| {
            let pool = store::pools::get(tx, &id)?.unwrap();
            let demand = BTreeMap::from([(id.clone(), store::demand::of(tx, &id, now)?)]);
            engine::fleet::read_facts(tx, vec![pool], &demand, &horizon, defaults)
        });
        let facts = facts.await.remove(0);
        let decided = engine::fleet::decide(&self.app.engine, facts)
            .await
            .unwrap();
        assert_eq!(decided.unwrap().launches.len(), 1);
    }

    /// A process carries out the only launch as if it had just decided on it.
    async fn carry_out_again(&self, app: &Arc<App>) {
        let (launch, definition) = (self.launch().await, self.stored_pool(POOL).await.unwrap());
        let (pool_id, config_id) = (launch.pool_id.clone(), launch.launch_config_id.clone());
        let config = self.read(move |tx| store::launch_configs::get(tx, &pool_id, &config_id));
        let config: LaunchConfig = config.await.unwrap();
        engine::fleet::start_launches(
            &app.engine,
            &definition,
            vec![engine::fleet::PlannedLaunch {
                launch,
                launch_config: Arc::new(config),
                bid_data: Arc::default(),
            }],
        );
        app.engine.launch_tracker.finish().await;
    }

    /// The evidence for and against the first launch config of a pool.
    async fn health(&self, pool: &str) -> Value {
        self.explain_pool(pool).await["now"]["snapshot"]["snapshot"]["offers"][0]["health"].take()
    }
}

fleet_test!(
    a_machine_of_a_lost_answer_is_adopted_by_its_token,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.round().await;
        assert!(matches!(
            fleet.launch().await.state,
            LaunchState::Unknown { .. }
        ));
        assert_eq!(fleet.states(POOL).await, "");
        // Until then people see it where they look for causes.
        let errors = fleet.get("/worker-pool-errors/pp%2Fee").await.expect(200);
        let error = &errors["workerPoolErrors"][0];
        assert_eq!(error["title"], "Instance Creation Outcome Unknown");
        assert_eq!(error["extra"]["code"], "unknown");
        let problem = fleet.explain_pool(POOL).await["problems"][0].take();
        let problem = problem.as_str().unwrap();
        assert!(problem.contains("the outcome of launch"), "{problem}");

        let scanned = fleet.scan().await;
        assert_eq!(scanned["adopted"], 1);
        assert_eq!(fleet.states(POOL).await, "1 requested");
        fleet.pass_ms(LONG_MS);
        fleet.scan().await;
        fleet.round().await;
        let launch = fleet.launch().await;
        assert_eq!((&launch.state, launch.made), (&LaunchState::Accepted, 1));
        assert_eq!(fleet.explain_pool(POOL).await["problems"], json!([]));
        assert_eq!((fleet.n_launch_calls(), fleet.machines().len()), (1, 1));
        fleet.register_all(POOL).await;
        assert_eq!(fleet.states(POOL).await, "1 running");
    }
);

fleet_test!(
    a_launch_of_which_nothing_appears_is_lost_and_tried_anew,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::CallLost]);
        fleet.round().await;
        fleet.round().await;
        assert_eq!(fleet.n_launch_calls(), 1);

        fleet.pass_ms(LONG_MS);
        let scanned = fleet.scan().await;
        assert_eq!(scanned["settled"], 1);
        let lost = fleet.launch().await;
        let LaunchState::Refused { cause, .. } = &lost.state else {
            panic!("{lost:?}");
        };
        assert_eq!(*cause, Cause::Lost);
        let report = ("creation-error".to_owned(), "lost".to_owned());
        let unknown = ("creation-error".to_owned(), "unknown".to_owned());
        assert_eq!(fleet.errors(POOL).await, [report, unknown]);

        fleet.pass_ms(LONG_MS);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
        assert_eq!(fleet.n_launch_calls(), 2);
        assert_eq!(fleet.one.fake.n_launch_calls(&lost.token), 1);
    }
);

fleet_test!(
    a_machine_that_appears_after_its_launch_was_given_up_goes,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.one.fake.set_lag_ms(LONG_MS);
        fleet.round().await;
        fleet.pass_ms(LONG_MS - MINUTE_MS);
        fleet.scan().await;
        assert!(matches!(
            fleet.launch().await.state,
            LaunchState::Refused { .. }
        ));

        fleet.one.fake.set_lag_ms(0);
        fleet.scan().await;
        let [worker] = fleet.workers_in(POOL, "stopping").await.try_into().unwrap();
        let reason = fleet.end_reason(&worker).await;
        assert_eq!(reason, "appeared after its launch was given up");
        fleet.end().await;
        assert_eq!(fleet.machines(), []);
    }
);

fleet_on_sqlite_first!(
    while_an_answer_is_on_its_way_nothing_more_is_asked_for,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.set_answer_delay_ms(2 * MINUTE_MS);
        crate::fleet_world::round(&fleet.app).await;
        fleet.until_asked(1).await;
        for _ in 0..3 {
            crate::fleet_world::round(&fleet.app).await;
        }
        assert_eq!(fleet.launches(POOL).await.len(), 1);
        assert_eq!(fleet.states(POOL).await, "");

        fleet.pass_ms(2 * MINUTE_MS);
        fleet.app.engine.launch_tracker.finish().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
        assert_eq!(fleet.launch().await.state, LaunchState::Accepted);
    }
);

fleet_test!(an_answer_that_comes_after_the_scan_adds_nothing, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.one.fake.set_answer_delay_ms(2 * MINUTE_MS);
    crate::fleet_world::round(&fleet.app).await;
    fleet.until_asked(1).await;
    assert_eq!(fleet.scan().await["adopted"], 1);
    let [key] = fleet
        .workers_in(POOL, "requested")
        .await
        .try_into()
        .unwrap();
    fleet.register(&key).await;
    fleet.news().await;

    fleet.pass_ms(2 * MINUTE_MS);
    fleet.app.engine.launch_tracker.finish().await;
    assert_eq!(fleet.states(POOL).await, "1 running");
    assert_eq!(fleet.news().await, Vec::<String>::new());
    let launch = fleet.launch().await;
    assert_eq!((&launch.state, launch.made), (&LaunchState::Accepted, 1));
});

fleet_on_sqlite_first!(an_overdue_launch_does_not_count_as_supply, |fleet| {
    fleet.make_pool(POOL, plain_pool(2)).await;
    fleet.tasks(POOL, 1).await;
    let lost = [LaunchOutcome::CallLost, LaunchOutcome::CallLost];
    fleet.one.fake.next_launches(lost);
    fleet.round().await;
    fleet.pass_ms(START_UP_MS + 1);
    fleet.round().await;
    assert_eq!(fleet.n_launch_calls(), 2);
    // Unknown machines may exist: the maximum is reached.
    fleet.pass_ms(START_UP_MS + 1);
    fleet.round().await;
    assert_eq!(fleet.n_launch_calls(), 2);
});

fleet_on_sqlite_first!(a_former_provider_without_answers_delays_no_task, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.one.fake.next_launches([LaunchOutcome::CallLost]);
    fleet.round().await;
    fleet
        .change_pool(POOL, pool("two", 0, 4, &[machine("a")]))
        .await;
    fleet.round().await;
    assert_eq!(fleet.two.fake.n_machines(), 1);
    assert_eq!(fleet.states(POOL).await, "1 requested");
});

fleet_test!(
    a_launch_that_is_carried_out_twice_makes_one_machine,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        let token = fleet.launch().await.token.clone();
        fleet.carry_out_again(&fleet.app).await;
        assert_eq!(fleet.one.fake.n_launch_calls(&token), 1);
        assert_eq!(fleet.machines().len(), 1);
        assert_eq!(fleet.states(POOL).await, "1 requested");
        let told = fleet.news().await;
        let requested = told.iter().filter(|news| *news == "worker-requested");
        assert_eq!(requested.count(), 1);
    }
);

fleet_test!(
    a_launch_under_way_is_not_withdrawn_by_a_process_that_comes_later,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.set_answer_delay_ms(LONG_MS);
        crate::fleet_world::round(&fleet.app).await;
        fleet.until_asked(1).await;
        fleet.pass_ms(LONG_MS - MINUTE_MS);
        fleet.carry_out_again(&second(fleet).await).await;
        assert_eq!(fleet.launch().await.state, LaunchState::Open);
        assert_eq!(fleet.n_launch_calls(), 1);

        fleet.pass_ms(MINUTE_MS);
        fleet.app.engine.launch_tracker.finish().await;
        assert_eq!(fleet.launch().await.state, LaunchState::Accepted);
        assert_eq!(fleet.states(POOL).await, "1 requested");
    }
);

fleet_test!(a_launch_that_was_withdrawn_is_never_asked_for, |fleet| {
    fleet.decide_and_die().await;
    fleet.pass_ms(LONG_MS);
    assert_eq!(fleet.scan().await, json!({"settled": 1}));
    fleet.carry_out_again(&fleet.app).await;
    assert_eq!((fleet.n_launch_calls(), fleet.machines().len()), (0, 0));
});

fleet_test!(
    a_launch_is_carried_out_for_a_minute_after_it_was_decided,
    |fleet| {
        fleet.decide_and_die().await;
        fleet.pass_ms(MINUTE_MS + 1);
        fleet.carry_out_again(&fleet.app).await;
        let launch = fleet.launch().await;
        assert_eq!(launch.state.as_str(), "withdrawn");
        assert_eq!((fleet.n_launch_calls(), launch.asked), (0, None));

        fleet.round().await;
        assert_eq!(fleet.n_launch_calls(), 1);
        assert_eq!(fleet.states(POOL).await, "1 requested");
    }
);

fleet_on_sqlite_first!(
    a_launch_that_was_never_requested_is_withdrawn_without_an_error,
    |fleet| {
        fleet.decide_and_die().await;
        fleet.pass_ms(MINUTE_MS + MINUTE_MS / 2);
        assert_eq!(fleet.scan().await, json!(null));
        fleet.pass_ms(1);
        assert_eq!(fleet.scan().await, json!({"settled": 1}));
        assert_eq!(fleet.launch().await.state.as_str(), "withdrawn");
        assert_eq!(fleet.errors(POOL).await, []);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
    }
);

fleet_on_sqlite_first!(
    a_machine_whose_launch_is_over_is_ended_by_the_next_scan,
    |fleet| {
        let withdrawn = || LaunchState::Withdrawn {
            problem: "held up".to_owned(),
        };
        for (number, over) in [LaunchState::Accepted, withdrawn()].into_iter().enumerate() {
            let pool = format!("pp/over{number}");
            fleet.make_pool(&pool, plain_pool(4)).await;
            fleet.tasks(&pool, 1).await;
            fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
            fleet.round().await;
            let [launch] = fleet.launches(&pool).await.try_into().unwrap();
            let launch = Launch::from_stored(StoredLaunch {
                state: over,
                ..launch.into_stored()
            });
            fleet
                .write(move |tx| store::launches::update(tx, &launch).map(drop))
                .await;
            fleet.scan().await;
            let [worker] = fleet
                .workers_in(&pool, "stopping")
                .await
                .try_into()
                .unwrap();
            let reason = fleet.end_reason(&worker).await;
            assert_eq!(reason, "appeared after its launch was given up");
            fleet.end().await;
            assert_eq!(fleet.machines(), []);
        }
    }
);

fleet_on_sqlite_first!(
    a_refusal_is_reported_and_published_and_counts_if_the_config_caused_it,
    |fleet| {
        let causes = Cause::ALL.into_iter().filter(|cause| *cause != Cause::Lost);
        for cause in causes {
            let pool = format!("pp/{cause}");
            fleet.make_pool(&pool, plain_pool(4)).await;
            fleet.tasks(&pool, 1).await;
            fleet.news().await;
            fleet
                .one
                .fake
                .next_launches([LaunchOutcome::Refused(cause)]);
            fleet.provision().await;
            assert_eq!(fleet.states(&pool).await, "");
            let report = ("creation-error".to_owned(), cause.to_string());
            assert_eq!(fleet.errors(&pool).await, [report]);
            assert_eq!(fleet.news().await, ["worker-pool-error"]);
            let failed = u64::from(cause.is_ill_health());
            assert_eq!(fleet.health(&pool).await["failed"], failed, "{cause}");
        }
    }
);

fleet_on_sqlite_first!(
    a_cloud_that_asks_to_slow_down_is_left_alone_for_longer_each_time,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet
            .one
            .fake
            .next_launches([Cause::Throttled; 3].map(LaunchOutcome::Refused));
        let mut calls = Vec::new();
        for _ in 0..8 {
            fleet.round().await;
            calls.push(fleet.n_launch_calls());
            fleet.pass_ms(10_000);
        }
        // After 10 s, after 20 s more, after 40 s more; that one is accepted.
        assert_eq!(calls, [1, 2, 2, 3, 3, 3, 3, 4]);
        assert_eq!(fleet.states(POOL).await, "1 requested");
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "2 requested");
    }
);

fleet_on_sqlite_first!(
    missing_capacity_of_one_launch_config_comes_from_another,
    |fleet| {
        let mut first = machine("first");
        first["workerManager"]["initialWeight"] = json!(1);
        let mut second = machine("second");
        second["workerManager"]["initialWeight"] = json!(1e-9);
        fleet
            .make_pool(POOL, pool("one", 0, 4, &[first, second]))
            .await;
        fleet.tasks(POOL, 1).await;
        fleet
            .one
            .fake
            .next_launches([LaunchOutcome::Refused(Cause::Capacity)]);
        fleet.round().await;
        fleet.round().await;
        let launches = fleet.launches(POOL).await;
        let asked: Vec<&str> = launches
            .iter()
            .map(|launch| launch.launch_config_id.as_str())
            .collect();
        assert_eq!(asked, ["first", "second"]);
        assert_eq!(fleet.states(POOL).await, "1 requested");
    }
);

fleet_on_sqlite_first!(
    a_partial_launch_is_accepted_and_the_rest_requested_after_a_pause,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(10)).await;
        fleet.tasks(POOL, 5).await;
        fleet.one.fake.next_launches([LaunchOutcome::Partial(2)]);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "2 requested");
        fleet.pass_ms(9_999);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "2 requested");
        fleet.pass_ms(1);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "3 requested");
        fleet.provision().await;
        assert_eq!(fleet.states(POOL).await, "5 requested");
        let made: Vec<(u32, u32)> = fleet
            .launches(POOL)
            .await
            .iter()
            .map(|launch| (launch.machines, launch.made))
            .collect();
        assert_eq!(made, [(5, 2), (1, 1), (2, 2)]);
    }
);

fleet_on_sqlite_first!(a_cloud_that_says_it_has_none_is_not_asked, |fleet| {
    fleet.make_pool(POOL, plain_pool(10)).await;
    fleet.tasks(POOL, 1).await;
    fleet.one.fake.set_stock("a", 0);
    fleet.round().await;
    assert_eq!(
        (fleet.n_launch_calls(), fleet.launches(POOL).await.len()),
        (0, 0)
    );
    fleet.one.fake.set_stock("a", 1);
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "1 requested");
});

fleet_on_sqlite_first!(
    a_launch_config_whose_machines_do_not_come_up_gets_one_at_a_time,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(10)).await;
        fleet.tasks(POOL, 3).await;
        fleet.one.fake.next_launches([LaunchOutcome::NeverUp]);
        fleet.round().await;
        fleet.listen_ms(REGISTRATION_MS + MINUTE_MS);
        fleet.scan().await;
        fleet.end().await;
        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "3 stopped");
        assert_eq!(fleet.health(POOL).await["neverRegistered"], 3);

        fleet.pass_ms(LONG_MS);
        fleet.round().await;
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested, 3 stopped");
        fleet.register_all(POOL).await;
        fleet.round().await;
        assert_eq!(
            fleet.states(POOL).await,
            "2 requested, 1 running, 3 stopped"
        );
    }
);

fleet_on_sqlite_first!(a_failure_of_one_pool_says_nothing_about_another, |fleet| {
    for pool in [POOL, "pp/other"] {
        fleet.make_pool(pool, plain_pool(4)).await;
        fleet.tasks(pool, 1).await;
    }
    fleet
        .one
        .fake
        .decide_with(|order| match order.pool.id.as_str() {
            POOL => LaunchOutcome::Refused(Cause::Configuration),
            _ => LaunchOutcome::Made,
        });
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "");
    assert_eq!(fleet.states("pp/other").await, "1 requested");
    assert_eq!(fleet.errors("pp/other").await, []);
});

fleet_test!(
    a_list_that_is_older_than_a_launch_says_nothing_about_it,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.register_all(POOL).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        let (app, clock) = (Arc::clone(&fleet.app), Arc::clone(&fleet.clock));
        fleet.one.during_the_next_look(async move {
            crate::fleet_world::round(&app).await;
            app.engine.launch_tracker.finish().await;
            clock.advance_ms(LONG_MS);
        });
        fleet.scan().await;
        let launches = fleet.launches(POOL).await;
        let unknown = launches.iter().filter(|launch| launch.state.is_pending());
        assert_eq!((launches.len(), unknown.count()), (2, 1));

        fleet.scan().await;
        assert_eq!(fleet.states(POOL).await, "1 requested, 1 running");
        let unknown = ("creation-error".to_owned(), "unknown".to_owned());
        assert_eq!(fleet.errors(POOL).await, [unknown]);
    }
);

fleet_on_sqlite_first!(
    a_launch_that_does_not_get_its_turn_is_nobodys_error,
    |fleet| {
        const AT_ONCE: u64 = 16;
        let pools: Vec<String> = (0..=AT_ONCE)
            .map(|number| format!("pp/p{number}"))
            .collect();
        for pool in &pools {
            fleet.make_pool(pool, plain_pool(1)).await;
            fleet.tasks(pool, 1).await;
        }
        fleet.one.fake.set_answer_delay_ms(2 * MINUTE_MS);
        crate::fleet_world::round(&fleet.app).await;
        fleet.until_asked(AT_ONCE).await;
        fleet.pass_ms(2 * MINUTE_MS);
        fleet.app.engine.launch_tracker.finish().await;
        assert_eq!(fleet.n_launch_calls(), AT_ONCE);
        let mut withdrawn = Vec::new();
        for pool in &pools {
            let launches = fleet.launches(pool).await;
            let is_withdrawn = matches!(launches[0].state, LaunchState::Withdrawn { .. });
            withdrawn.extend(is_withdrawn.then_some(pool));
        }
        let [pool] = withdrawn.try_into().unwrap();
        assert_eq!(fleet.errors(pool).await, []);

        fleet.one.fake.set_answer_delay_ms(0);
        fleet.provision().await;
        assert_eq!(fleet.states(pool).await, "1 requested");
    }
);

fleet_on_sqlite_first!(
    the_report_of_a_refusal_does_not_show_the_launch_config,
    |fleet| {
        let mut secretive = machine("a");
        secretive["workerConfig"]["password"] = json!("hunter2");
        fleet.make_pool(POOL, pool("one", 0, 4, &[secretive])).await;
        fleet.tasks(POOL, 1).await;
        fleet
            .one
            .fake
            .next_launches([LaunchOutcome::Refused(Cause::Quota)]);
        fleet.round().await;
        let reply = fleet.get("/worker-pool-errors/pp%2Fee").await;
        let reply = reply.expect(200);
        assert_eq!(reply["workerPoolErrors"][0]["launchConfigId"], "a");
        assert!(!reply.to_string().contains("hunter2"), "{reply}");
    }
);
