//! The machines and runs of a canary are found whatever else its pools hold, with few statements.

use domain::id::{LaunchConfigId, PoolId};
use domain::image::{CanaryEvidence, ImageDefinition};
use domain::image_reference::canary_mark;
use domain::run_outcome::RunOutcome;
use domain::task::EndReason;
use domain::time::SECOND_MS;
use domain::worker::{StoredWorker, Terms, Worker, WorkerState};
use engine::images::{advance, refresh_pools};
use serde_json::json;

use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_test, pool};
use crate::image_samples::{definition, referring};
use crate::queue_samples::task_id;
use crate::samples::worker;

/// More than any page of other lists.
const OTHERS: u32 = 6_000;

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
        refresh_pools(&self.app.engine).await.unwrap();
        definition
    }

    async fn evidence(&self, definition: &ImageDefinition) -> CanaryEvidence {
        let facts = self.facts(definition, &[1, 2]).await;
        let rollout = advance(&self.app.engine, facts, self.now()).await.unwrap();
        rollout.canary.unwrap().evidence.unwrap()
    }

    /// The launch config of the canary, and the one beside it.
    async fn groups(&self, id: &str) -> [LaunchConfigId; 2] {
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
    let [canary, control] = fleet.groups(POOL).await;
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
    a_look_at_a_canary_costs_as_many_statements_in_ten_pools_as_in_one,
    |fleet| {
        let pools: Vec<String> = (0..10).map(|number| format!("pp/of-{number}")).collect();
        let names: Vec<&str> = pools.iter().map(String::as_str).collect();
        let definition = fleet.canary_in(&names).await;
        let mut costs = Vec::new();
        for (n_pools, first) in [(1, 2_000), (10, 20_000)] {
            for (number, id) in (0..).zip(&names[..n_pools]) {
                let [canary, _] = fleet.groups(id).await;
                let machine = first + 100 * number;
                fleet.add_machines(id, canary.as_str(), machine, 1).await;
            }
            fleet.evidence(&definition).await;
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
