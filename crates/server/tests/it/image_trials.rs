//! The machines and runs of a canary are found whatever else its pools hold, with few statements.

use domain::id::{LaunchConfigId, PoolId};
use domain::image::{CanaryEvidence, ImageDefinition, most_open_starts};
use domain::image_reference::canary_mark;
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::SECOND_MS;
use domain::worker::{StoredWorker, Terms, Worker, WorkerState};
use engine::images::{advance, refresh_pools};
use serde_json::json;

use crate::database::assert_snapshot;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_test, machine, pool};
use crate::image_samples::{definition, referring};
use crate::queue_samples::task_id;
use crate::samples::worker;

/// More than any page of other lists.
const OTHERS: u32 = 6_000;
/// As in the workflow: a canary is judged once in this time.
const JUDGEMENT_MS: i64 = 4_000;

impl Fleet {
    /// An image whose second build is on trial in these pools.
    async fn canary_in(&self, pools: &[&str]) -> ImageDefinition {
        let body = definition(&json!({"share": 0.5}));
        let put = self.put("fleetwright:/image/linux", body.clone());
        put.await.expect(200);
        for id in pools {
            self.make_pool(id, pool("one", 0, 10_000, &[referring()]))
                .await;
        }
        let definition = ImageDefinition::parse(&body).unwrap();
        for builds in [&[1][..], &[1, 2]] {
            let facts = self.facts(&definition, builds).await;
            advance(&self.app.engine, facts, self.now()).await.unwrap();
        }
        let round = refresh_pools(&self.app.engine, |_| false).await.unwrap();
        assert!(round.failed.is_empty(), "{:?}", round.failed);
        definition
    }

    async fn evidence(&self, definition: &ImageDefinition) -> CanaryEvidence {
        self.pass_ms(JUDGEMENT_MS);
        let facts = self.facts(definition, &[1, 2]).await;
        let rollout = advance(&self.app.engine, facts, self.now()).await.unwrap();
        rollout.canary.unwrap().evidence.unwrap()
    }

    /// The launch config of the canary, and the one beside it.
    async fn groups_of(&self, id: &str) -> [LaunchConfigId; 2] {
        let pool: PoolId = id.parse().unwrap();
        let read = self.read(move |tx| store::launch_configs::active_between(tx, &pool, &pool));
        let configs = read.await;
        let mark = |config: &domain::launch_config::LaunchConfig| {
            canary_mark(&config.configuration).map(|mark| [config.id.clone(), mark.of])
        };
        configs.iter().find_map(mark).unwrap()
    }

    /// Machines that run, each with a run that has ended.
    async fn add_machines(&self, pool: &str, config: &str, from: u32, count: u32) {
        let now = self.now();
        let pool = pool.to_owned();
        let config: LaunchConfigId = config.parse().unwrap();
        let machine = move |number: u32| {
            let worker = Worker::from_stored(StoredWorker {
                launch_config_id: Some(config.clone()),
                state: WorkerState::Running,
                created: now,
                terms: Terms {
                    registered_at: Some(now.as_millis() + SECOND_MS),
                    ..Terms::default()
                },
                ..worker(&pool, "g", &format!("m-{number}")).into_stored()
            });
            let run = RunOutcome {
                worker: worker.key.clone(),
                task_id: task_id(number).parse().unwrap(),
                run_id: 0,
                reason: EndReason::Completed,
                resolved: now.plus_millis(20 * SECOND_MS),
                started: Some(now.plus_millis(2 * SECOND_MS)),
            };
            (worker, run)
        };
        self.write(move |tx| {
            let mut runs = Vec::new();
            for number in from..from + count {
                let (worker, run) = machine(number);
                assert!(store::workers::insert(tx, &worker)?);
                store::workers::note_first_claim(tx, &worker.key, run.started.unwrap())?;
                runs.push(run);
            }
            store::run_outcomes::note(tx, &runs).map(drop)
        })
        .await;
    }
}

fleet_test!(a_canary_is_compared_whatever_else_its_pool_runs, |fleet| {
    let definition = fleet.canary_in(&[POOL]).await;
    fleet.add_machines(POOL, "other", 0, OTHERS).await;
    let [canary, control] = fleet.groups_of(POOL).await;
    fleet.add_machines(POOL, canary.as_str(), OTHERS, 3).await;
    fleet
        .add_machines(POOL, control.as_str(), OTHERS + 3, 4)
        .await;
    fleet.pass_ms(MINUTE_MS);
    // Machines are known after the first look, and their runs after the second.
    fleet.evidence(&definition).await;
    let evidence = fleet.evidence(&definition).await;
    let counted = [evidence.canary, evidence.control].map(|group| (group.good, group.runs));
    assert_eq!(counted, [(3, 3), (4, 4)]);
});

fleet_test!(
    no_more_machines_of_a_canary_start_than_decide_until_one_has_started_well,
    |fleet| {
        let pools = [POOL, "pp/other"];
        let definition = fleet.canary_in(&pools).await;
        let n_tasks = most_open_starts(0.5);
        let most = usize::try_from(n_tasks).unwrap();
        let mut canaries = Vec::new();
        for id in pools {
            canaries.push((id, fleet.groups_of(id).await[0].clone()));
        }
        let of_canary = async || {
            let mut keys = Vec::new();
            for (id, config) in &canaries {
                let workers = fleet.workers(id).await.into_iter();
                let own = workers.filter(|it| it.launch_config_id.as_ref() == Some(config));
                keys.extend(own.map(|it| it.key.clone()));
            }
            keys
        };
        let ask_for_machines = async || {
            for id in pools {
                fleet.tasks(id, n_tasks).await;
                fleet.round().await;
            }
        };
        // In each round there is work for as many as may start, of which half would be canaries.
        for _ in 0..4 {
            ask_for_machines().await;
            assert!(of_canary().await.len() <= most, "{:?}", of_canary().await);
        }
        let first = of_canary().await;
        assert_eq!(first.len(), most);
        // Those whose failure is known make room for as many others.
        let n_dead = 3;
        for key in first.iter().take(n_dead) {
            fleet.kill(key);
        }
        fleet.scan().await;
        fleet.end().await;
        fleet.scan().await;
        for _ in 0..4 {
            ask_for_machines().await;
        }
        assert_eq!(of_canary().await.len(), most + n_dead);
        // After its registration, a machine may still be unable to work.
        let key = first.last().unwrap();
        let running = fleet.register(key).await;
        ask_for_machines().await;
        assert_eq!(of_canary().await.len(), most + n_dead);
        fleet.claim_with(&running).await;
        let evidence = fleet.evidence(&definition).await;
        assert_eq!(evidence.canary.good, 1);
        for _ in 0..4 {
            ask_for_machines().await;
        }
        let all = of_canary().await.len();
        assert!(all > most + n_dead + 4, "{all}");
        // Without canaries, no plan asks for their machines.
        fleet
            .make_pool("pp/plain", pool("one", 0, 10, &[machine("plain")]))
            .await;
        fleet.tasks("pp/plain", 1).await;
        let (_, counts) = fleet.counted(fleet.provision()).await;
        assert_eq!(counts.statements("started_worker_count_open"), 0);
    }
);

fleet_test!(
    a_look_at_a_canary_costs_as_many_statements_in_ten_pools_as_in_one,
    |fleet| {
        let pools: Vec<String> = (0..10).map(|number| format!("pp/of-{number}")).collect();
        let names: Vec<&str> = pools.iter().map(String::as_str).collect();
        let definition = fleet.canary_in(&names).await;
        let mut costs = Vec::new();
        for (n_pools, first) in [(1, 2_000), (10, 20_000)] {
            for (number, id) in (0..).zip(&names[..n_pools]) {
                let [canary, _] = fleet.groups_of(id).await;
                let machine = first + 100 * number;
                fleet.add_machines(id, canary.as_str(), machine, 1).await;
            }
            fleet.evidence(&definition).await;
            fleet.pass_ms(JUDGEMENT_MS);
            let facts = fleet.facts(&definition, &[1, 2]).await;
            let looked = advance(&fleet.app.engine, facts, fleet.now());
            let (rollout, counts) = fleet.counted(looked).await;
            let evidence = rollout.unwrap().canary.unwrap().evidence.unwrap();
            costs.push((evidence.canary.started, counts.all_statements()));
        }
        let [(1, of_one), (11, of_ten)] = costs[..] else {
            panic!("{costs:?}");
        };
        assert!(of_ten <= of_one + 11, "{costs:?}: one for each new machine");
    }
);

fleet_test!(starts_beside_the_image_are_no_evidence, |fleet| {
    let definition = fleet.canary_in(&[POOL]).await;
    let [canary, control] = fleet.groups_of(POOL).await;
    for number in 0..80 {
        let (one, other) = (2 * number, 2 * number + 1);
        fleet.add_machines(POOL, canary.as_str(), one, 1).await;
        fleet.add_machines(POOL, control.as_str(), other, 1).await;
        fleet.pass_ms(1_000);
    }
    let note = |in_image: bool| {
        let note = format!(r#"{{"image":"disk-2","inImage":{in_image}}}"#);
        let sql = format!("UPDATE workers SET provider_data = '{note}'");
        fleet.database.raw(&sql);
    };
    note(false);
    fleet.pass_ms(MINUTE_MS);
    for _ in 0..3 {
        let evidence = fleet.evidence(&definition).await;
        let counted = [evidence.canary, evidence.control];
        let counted = counted.map(|group| (group.started, group.runs, group.beside_image));
        assert_eq!(counted, [(0, 0, 80), (0, 0, 80)]);
    }
    let rollout = fleet.roll_out(&definition, &[1, 2]).await;
    let run = rollout.canary.unwrap();
    assert_snapshot!(run.verdict, @"Undecided after 0 starts. About 52 more without a failure and it is promoted. 160 starts are left out (80 of the canary, 80 beside it): their workers did not run in the file system of the image.");
    // The same machines in their images promote the build.
    fleet.database.raw("DELETE FROM canary_trials");
    note(true);
    for _ in 0..2 {
        fleet.pass_ms(JUDGEMENT_MS);
        let rollout = fleet.roll_out(&definition, &[1, 2]).await;
        if rollout.canary.is_none() {
            assert_eq!(rollout.standing.promoted.map(|build| build.0), Some(2));
            return;
        }
    }
    panic!(
        "it is not promoted: {:?}",
        fleet.evidence(&definition).await
    );
});

fleet_test!(
    a_canary_is_judged_in_a_read_and_by_one_process_at_a_time,
    |fleet| {
        let definition = fleet.canary_in(&[POOL]).await;
        let [canary, _] = fleet.groups_of(POOL).await;
        fleet.add_machines(POOL, canary.as_str(), 0, 3).await;
        let look = async || {
            let facts = fleet.facts(&definition, &[1, 2]).await;
            let looked = advance(&fleet.app.engine, facts, fleet.now());
            let (rollout, counts) = fleet.counted(looked).await;
            let names = ["image_rollout_judge", "image_rollout"];
            (
                rollout.unwrap(),
                names.map(|name| counts.transactions(name)),
            )
        };
        // The trials and the verdict are one short write.
        assert_eq!(look().await.1, [1, 1]);
        for (ms, n_judged) in [(0, 0), (JUDGEMENT_MS - 1, 0), (1, 1)] {
            fleet.pass_ms(ms);
            let [judged, _] = look().await.1;
            assert_eq!(judged, n_judged, "{ms}");
        }
        // Without news nothing is written.
        fleet.pass_ms(JUDGEMENT_MS);
        assert_eq!(look().await.1, [1, 0]);
        // Two processes look at once: one judges.
        fleet.pass_ms(JUDGEMENT_MS);
        let facts = fleet.facts(&definition, &[1, 2]).await;
        let (engine, now) = (&fleet.app.engine, fleet.now());
        let both = async {
            tokio::join!(
                advance(engine, facts.clone(), now),
                advance(engine, facts.clone(), now)
            )
        };
        let ((one, other), counts) = fleet.counted(both).await;
        assert_eq!(one.unwrap(), other.unwrap());
        assert_eq!(counts.transactions("image_rollout_judge"), 1);
        // The clock of another process was hours ahead.
        let ahead = fleet.now().plus_millis(60 * MINUTE_MS).as_millis();
        fleet
            .database
            .raw(&format!("UPDATE image_rollouts SET judged = {ahead}"));
        assert_eq!(look().await.1, [1, 0]);
    }
);

fleet_test!(only_launch_configs_of_canaries_are_read_for_them, |fleet| {
    let definition = fleet.canary_in(&[POOL]).await;
    // Others, of which some have the word.
    let mut configs = vec![referring()];
    for number in 0..40 {
        let mut config = referring();
        config["image"] = json!(format!("disk-{number}"));
        config["workerConfig"]["canary"] = json!({"of": number});
        configs.push(config);
    }
    fleet
        .change_pool(POOL, pool("one", 0, 10_000, &configs))
        .await;
    fleet.pass_ms(JUDGEMENT_MS);
    let facts = fleet.facts(&definition, &[1, 2]).await;
    let looked = advance(&fleet.app.engine, facts, fleet.now());
    let (rollout, counts) = fleet.counted(looked).await;
    assert!(rollout.unwrap().canary.is_some());
    assert_eq!(counts.rows("launch_config_of_canaries"), 1);
});
