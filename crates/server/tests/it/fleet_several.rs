//! Pools that take their workers from several providers at once.

use cloud::{Call, CloudError, LaunchOutcome};
use domain::id::ProviderId;
use domain::launch::{Cause, LaunchState};
use domain::plan::LOST_ANSWER_MS;
use domain::pool::{Pool, PoolDefinition};
use serde_json::{Value, json};

use crate::database::{Database, assert_snapshot};
use crate::fleet_two_processes::{both_at_once, second};
use crate::fleet_world::{
    Fleet, MAX_MACHINES, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, pool,
};
use crate::samples::static_worker;

impl Fleet {
    /// A pool with these launch configs, each from a provider of its own. (No request makes such a
    /// pool: worker configurations do.)
    pub(crate) async fn spread(&self, min: u32, max: u32, configs: &[(Value, &str)]) {
        let machines: Vec<Value> = configs.iter().map(|(config, _)| config.clone()).collect();
        self.make_pool(POOL, pool("one", min, max, &machines)).await;
        let places: Vec<_> = configs.iter().map(|(_, provider)| *provider).collect();
        self.move_to(&places).await;
    }

    /// The launch configs come from these providers from now on, in their order; the pool leaves
    /// all others.
    pub(crate) async fn move_to(&self, providers: &[&str]) {
        let mut ids: Vec<ProviderId> = Vec::new();
        for id in providers.iter().map(|id| id.parse().unwrap()) {
            if !ids.contains(&id) {
                ids.push(id);
            }
        }
        let places: Vec<String> = providers.iter().map(|&id| id.to_owned()).collect();
        let now = self.now();
        self.write(move |tx| {
            let mut pool = store::pools::get(tx, &POOL.parse().unwrap())?.unwrap();
            let definition = PoolDefinition {
                provider_id: ids[0].clone(),
                further_provider_ids: ids[1..].to_vec(),
                ..pool.definition.clone()
            };
            pool.redefine(definition, now);
            store::pools::update(tx, &pool)?;
            let configs = store::launch_configs::active_between(tx, &pool.id, &pool.id)?;
            for (mut config, provider) in configs.into_iter().zip(&places) {
                config.configuration["workerManager"]["providerId"] = json!(provider);
                store::launch_configs::update(tx, &config)?;
            }
            Ok(())
        })
        .await;
    }

    /// How many workers of the pool that have not stopped each cloud has: of `one`, `two` and
    /// `three`.
    async fn by_cloud(&self) -> [usize; 3] {
        let workers = self.workers(POOL).await;
        ["one", "two", "three"].map(|id| {
            let of_cloud = |worker: &&domain::worker::Worker| {
                worker.provider_id.as_str() == id
                    && worker.state != domain::worker::WorkerState::Stopped
            };
            workers.iter().filter(of_cloud).count()
        })
    }

    async fn present_text(&self) -> String {
        let explained = self.explain_pool(POOL).await;
        explained["now"]["text"].as_str().unwrap().to_owned()
    }

    async fn the_pool(&self) -> Pool {
        self.stored_pool(POOL).await.unwrap()
    }
}

pub(crate) fn two_places() -> [(Value, &'static str); 2] {
    [(machine("a"), "one"), (machine("b"), "two")]
}

fleet_on_sqlite_first!(a_pool_has_machines_of_all_its_providers_at_once, |fleet| {
    fleet.spread(0, 9, &two_places()).await;
    fleet.tasks(POOL, 4).await;
    fleet.round().await;
    let [one, two, _] = fleet.by_cloud().await;
    assert!(one > 0 && two > 0 && one + two == 4, "{one} and {two}");
    assert_eq!(fleet.one.fake.machines().len(), one);
    for launch in fleet.launches(POOL).await {
        let expected = if launch.launch_config_id.as_str() == "a" {
            "one"
        } else {
            "two"
        };
        assert_eq!(launch.provider_id.as_str(), expected);
    }
    for worker in fleet.register_all(POOL).await {
        let claim = fleet.claim_with(&worker).await;
        fleet.complete(&claim).await;
    }
    fleet.scan().await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "4 running");
});

fleet_on_sqlite_first!(launches_that_one_provider_refuses_go_to_another, |fleet| {
    fleet.spread(0, 9, &two_places()).await;
    fleet
        .one
        .fake
        .decide_with(|_| LaunchOutcome::Refused(Cause::Throttled));
    fleet.tasks(POOL, 3).await;
    fleet.round().await;
    fleet.round().await;
    assert_eq!(fleet.by_cloud().await, [0, 3, 0]);
    fleet.one.fake.behave();
    fleet.tasks(POOL, 2).await;
    fleet.round().await;
    assert_eq!(
        fleet.by_cloud().await,
        [0, 3, 0],
        "it is left alone for a while"
    );
    fleet.pass_ms(MINUTE_MS);
    fleet.round().await;
    assert_eq!(fleet.by_cloud().await, [1, 3, 0], "one machine as a try");
    fleet.provision().await;
    assert_eq!(fleet.by_cloud().await, [2, 3, 0]);
});

fleet_on_sqlite_first!(a_missing_provider_removes_only_its_own_offers, |fleet| {
    let places = [
        (machine("a"), "nosuch"),
        (machine("b"), "three"),
        (machine("c"), "static"),
    ];
    fleet.spread(0, 9, &places).await;
    fleet.tasks(POOL, 2).await;
    assert_snapshot!(fleet.present_text().await, @r"
    the pool wants 2 more units, 2 in all
    launch 2 x b from three (1 unit each)
    because 2 more units are needed: 2 tasks wait; maximum 9
    because nosuch a: skipped, the provider nosuch is not configured or out of service
    because static c: skipped, a provider of kind static launches nothing
    because three fake (b): 2 machines
    ");
    fleet.round().await;
    assert_eq!(fleet.by_cloud().await, [0, 0, 2]);
});

fleet_on_sqlite_first!(launches_above_one_providers_limit_go_to_others, |fleet| {
    let mut small = machine("a");
    small["workerManager"]["maxCapacity"] = json!(2);
    let places = [
        (small, "one"),
        (machine("b"), "two"),
        (machine("c"), "three"),
    ];
    fleet.spread(20, 30, &places).await;
    fleet.round().await;
    let [one, two, three] = fleet.by_cloud().await;
    assert_eq!((one + two + three, one <= 2), (20, true));
    assert!(two as u64 <= MAX_MACHINES, "{two}");
    let gone: Vec<_> = fleet.three.fake.machines();
    fleet
        .three
        .fake
        .decide_with(|_| LaunchOutcome::Refused(Cause::Quota));
    for machine in gone {
        fleet.kill(&machine.key);
    }
    for _ in 0..3 {
        fleet.pass_ms(MINUTE_MS);
        fleet.scan().await;
        fleet.round().await;
    }
    assert_eq!(fleet.by_cloud().await, [2, 3, 0]);
    let text = fleet.present_text().await;
    assert!(
        text.contains("two fake (b): skipped, the provider two accepts no more machines now"),
        "{text}"
    );
});

fleet_on_sqlite_first!(
    workers_of_a_provider_that_is_left_go_and_the_others_stay,
    |fleet| {
        fleet.spread(0, 9, &two_places()).await;
        let running = fleet.busy(POOL, 4).await;
        let before = fleet.by_cloud().await;
        fleet.move_to(&["one", "one"]).await;
        assert_eq!(
            fleet.the_pool().await.previous_provider_ids,
            ["two".parse().unwrap()]
        );
        fleet.round().await;
        for (worker, claim) in &running {
            let row = fleet.worker(&worker.key).await.unwrap();
            let expected = match row.provider_id.as_str() {
                "two" => "go: provider left by the pool",
                _ => "stay: none",
            };
            assert_eq!(fleet.advice(worker).await, expected);
            fleet.complete(claim).await;
            if expected.starts_with("go") {
                fleet.leave(worker).await;
            }
        }
        fleet.end().await;
        fleet.scan().await;
        fleet.keep_house().await;
        assert!(fleet.the_pool().await.previous_provider_ids.is_empty());
        assert_eq!(fleet.by_cloud().await, [before[0], 0, 0]);
    }
);

fleet_test!(workers_of_a_former_provider_are_no_supply, |fleet| {
    fleet.spread(4, 9, &two_places()).await;
    fleet.round().await;
    let [one, two, _] = fleet.by_cloud().await;
    fleet.move_to(&["one", "three"]).await;
    fleet.round().await;
    let [still, coming, instead] = fleet.by_cloud().await;
    assert_eq!(
        (still + instead, coming),
        (one + two, two),
        "as many as were lost"
    );
});

fleet_on_sqlite_first!(
    a_machine_of_a_lost_answer_is_adopted_where_it_was_launched,
    |fleet| {
        let mut off = machine("a");
        off["workerManager"]["initialWeight"] = json!(0);
        fleet
            .spread(0, 9, &[(off, "one"), (machine("b"), "two")])
            .await;
        fleet.tasks(POOL, 1).await;
        fleet.two.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.round().await;
        assert_eq!(fleet.by_cloud().await, [0, 0, 0]);
        fleet.round().await;
        assert_eq!(
            fleet.two.fake.n_calls(Call::Launch),
            1,
            "it is counted as still to come"
        );
        let scanned = fleet.scan().await;
        assert_eq!(scanned["adopted"], 1);
        assert_eq!(fleet.by_cloud().await, [0, 1, 0]);
        let [launch] = fleet.launches(POOL).await.try_into().unwrap();
        assert_eq!((launch.provider_id.as_str(), launch.made), ("two", 1));
        fleet.register_all(POOL).await;
        assert_eq!(fleet.states(POOL).await, "1 running");
        assert_eq!(fleet.one.fake.n_calls(Call::Launch), 0);
    }
);

fleet_on_sqlite_first!(
    work_moves_to_another_cloud_when_the_answer_of_one_is_lost,
    |fleet| {
        fleet.spread(0, 9, &two_places()).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::CallLost]);
        fleet.two.fake.next_launches([LaunchOutcome::CallLost]);
        fleet.round().await;
        fleet.pass_ms(LOST_ANSWER_MS);
        fleet.round().await;
        assert_eq!(fleet.launches(POOL).await.len(), 1, "a scan may find it");
        fleet.pass_ms(1);
        fleet.round().await;
        let launches = fleet.launches(POOL).await;
        let mut asked: Vec<_> = launches.iter().map(|it| it.provider_id.as_str()).collect();
        asked.sort_unstable();
        assert_eq!(asked, ["one", "two"]);
    }
);

fleet_on_sqlite_first!(
    a_cloud_that_cannot_be_listed_holds_up_only_its_own_launches,
    |fleet| {
        fleet.spread(0, 9, &two_places()).await;
        fleet.tasks(POOL, 2).await;
        fleet.one.fake.next_launches([LaunchOutcome::CallLost]);
        fleet.two.fake.next_launches([LaunchOutcome::CallLost]);
        fleet.round().await;
        fleet.pass_ms(10 * MINUTE_MS);
        let broken = || CloudError::Unavailable("on fire".to_owned());
        fleet.one.fake.fail_next(Call::Owned, broken());
        fleet.scan().await;
        let launches = fleet.launches(POOL).await;
        let [a, b] = ["one", "two"].map(|id| {
            let launch = launches
                .iter()
                .find(|launch| launch.provider_id.as_str() == id);
            launch.unwrap().state.clone()
        });
        assert!(matches!(a, LaunchState::Unknown { .. }), "{a:?}");
        assert!(
            matches!(
                b,
                LaunchState::Refused {
                    cause: Cause::Lost,
                    ..
                }
            ),
            "{b:?}"
        );
    }
);

fleet_on_sqlite_first!(
    a_worker_is_declared_at_the_provider_that_takes_such,
    |fleet| {
        fleet
            .spread(0, 9, &[(machine("a"), "one"), (machine("b"), "static")])
            .await;
        let path = "/workers/pp%2Fee/g/w";
        let made = fleet.put(path, static_worker()).await.expect(200);
        assert_eq!(made["providerId"], "static");
        let mut longer = static_worker();
        longer["capacity"] = json!(3);
        let changed = fleet.post(path, longer).await.expect(200);
        assert_eq!(
            (&changed["providerId"], &changed["capacity"]),
            (&json!("static"), &json!(3))
        );
        let problem = json!({"kind": "k", "title": "t", "description": "d", "extra": {},
        "workerGroup": "g", "workerId": "w"});
        fleet.events().await;
        fleet
            .post("/worker-pool-errors/pp%2Fee", problem)
            .await
            .expect(200);
        assert!(fleet.told().await.contains(r#""providerId":"static""#));
        fleet.round().await;
        let row = fleet
            .worker(&crate::samples::key("pp/ee", "g", "w"))
            .await
            .unwrap();
        assert!(row.terms.advice.is_none(), "people end it, too");
    }
);

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_that_decide_at_once_keep_the_maximum_over_all_providers() {
    let Some(database) = Database::postgres() else {
        return;
    };
    let fleet = Fleet::open(database).await;
    let other = second(&fleet).await;
    let places = [
        (machine("a"), "one"),
        (machine("b"), "two"),
        (machine("c"), "three"),
    ];
    fleet.spread(7, 7, &places).await;
    both_at_once(&fleet, &other).await;
    assert_eq!(fleet.by_cloud().await.iter().sum::<usize>(), 7);
    assert_eq!(fleet.machines().len(), 7);
    assert!(fleet.two.fake.n_machines() <= MAX_MACHINES);
    other.engine.store.close().await;
}
