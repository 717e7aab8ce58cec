//! Workers of pools, worker types, configurations, launch configs and providers: listed, counted,
//! ended.

use std::collections::BTreeMap;

use domain::id::WorkerKey;
use domain::worker::{StoredWorker, Worker, WorkerState};
use serde_json::{Value, json};
use testing::sizes_around;

use crate::authorization::{Case, case, case_with};
use crate::configurations::made;
use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::fleet_world::{POOL, fleet_on_sqlite_first, plain_pool};
use crate::samples::{key, static_pool, static_worker, worker};
use crate::world::World;

const OPT: &str = "worker-manager/build-opt";
const DBG: &str = "worker-manager/build-dbg";

pub(crate) fn cases() -> Vec<Case> {
    let list: &[&str] = &["worker-manager:list-workers:pp/ee"];
    let read: &[&str] = &["worker-manager:get-worker-configuration:build"];
    let all: &[&str] = &["worker-manager:list-workers:*"];
    let body = json!({"reason": "r", "createdBefore": "2026-09-21T14:13:20.000Z"});
    let end = |path, scopes| case_with("endSelectedWorkers", path, body.clone(), scopes);
    vec![
        case(
            "listSelectedWorkers",
            "/selected-workers?workerPoolId=pp%2Fee",
            list,
        ),
        case(
            "listSelectedWorkers",
            "/selected-workers?workerConfigurationId=build",
            read,
        ),
        case(
            "listSelectedWorkers",
            "/selected-workers?providerId=static",
            all,
        ),
        case(
            "countSelectedWorkers",
            "/selected-workers/counts?workerType=pp%2Fee",
            list,
        ),
        end(
            "/selected-workers/end?workerPoolId=pp%2Fee",
            &["worker-manager:remove-worker:pp/ee/*"],
        ),
        end(
            "/selected-workers/end?workerPoolId=pp%2Fee&launchConfigId=lc",
            &["worker-manager:remove-worker:pp/ee/*"],
        ),
        end(
            "/selected-workers/end?workerConfigurationId=build",
            &["worker-manager:manage-worker-configuration:build"],
        ),
        end(
            "/selected-workers/end?providerId=static&region=g",
            &[
                "worker-manager:provider:static",
                "worker-manager:remove-worker:*",
            ],
        ),
        case_with(
            "setOverride",
            "/override/o.configuration",
            json!({"workerConfigurationId": "build", "pause": true, "reason": "r",
                "until": "2026-10-01T00:00:00Z"}),
            &[
                "worker-manager:manage-override:o.configuration",
                "worker-manager:manage-worker-configuration:build",
            ],
        ),
        case(
            "workerTypeState",
            "/worker-state/worker-type/pp%2Fee",
            &["worker-manager:get-worker-state:pp/ee"],
        ),
    ]
}

fn running(pool: &str, group: &str, id: &str, config: Option<&str>) -> Worker {
    Worker::from_stored(StoredWorker {
        state: WorkerState::Running,
        launch_config_id: config.map(|id| id.parse().unwrap()),
        ..worker(pool, group, id).into_stored()
    })
}

/// Pool and worker of each item.
fn names(reply: &Value) -> Vec<String> {
    let workers = reply["workers"].as_array().unwrap().iter();
    let word = |worker: &Value, key: &str| worker[key].as_str().unwrap().to_owned();
    let names = workers.map(|it| format!("{} {}", word(it, "workerPoolId"), word(it, "workerId")));
    names.collect()
}

impl World {
    async fn selected(&self, query: &str) -> Vec<String> {
        names(
            &self
                .get(&format!("/selected-workers?{query}"))
                .await
                .expect(200),
        )
    }

    /// Ends all pages of a selection, and returns the number of calls and the replies' workers.
    async fn end_selected(&self, query: &str, more: &str, body: &Value) -> (usize, Vec<String>) {
        let (mut n_calls, mut ended, mut token) = (0, Vec::new(), String::new());
        loop {
            let path = format!("/selected-workers/end?{query}{more}{token}");
            let reply = self.post(&path, body.clone()).await.expect(200);
            assert_eq!(reply["skipped"], json!([]));
            n_calls += 1;
            ended.extend(names(&reply));
            let Some(next) = reply["continuationToken"].as_str() else {
                return (n_calls, ended);
            };
            token = format!("&continuationToken={next}");
        }
    }

    fn order(&self) -> Value {
        json!({"reason": "bad image", "createdBefore": self.now().to_string()})
    }
}

/// Workers in the pools of the configuration `build`, and elsewhere.
async fn populate(world: &World) {
    made(world).await;
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let stopped = Worker::from_stored(StoredWorker {
        state: WorkerState::Stopped,
        ..worker(OPT, "g1", "gone").into_stored()
    });
    let workers = [
        running(OPT, "g1", "o1", Some("lc-1")),
        running(OPT, "g2", "o2", Some("lc-2")),
        worker(DBG, "g1", "d1"),
        running("pp/ee", "g1", "e1", Some("lc-1")),
        stopped,
    ];
    for worker in workers {
        world.insert(worker).await;
    }
}

on_both!(
    each_selection_lists_its_workers_and_no_others,
    |config| { crate::configurations::zones(config) },
    |world| {
        populate(world).await;
        let (o1, o2, d1, e1) = (
            format!("{OPT} o1"),
            format!("{OPT} o2"),
            format!("{DBG} d1"),
            "pp/ee e1".to_owned(),
        );
        let expected = BTreeMap::from([
            ("workerPoolId=pp%2Fee", vec![&e1]),
            ("workerType=pp%2Fee", vec![&e1]),
            ("workerType=build-opt", vec![&o1, &o2]),
            ("workerConfigurationId=build", vec![&d1, &o1, &o2]),
            ("providerId=google", vec![&e1, &d1, &o1, &o2]),
            ("providerId=google&region=g1", vec![&e1, &d1, &o1]),
            ("providerId=static", vec![]),
        ]);
        for (query, workers) in expected {
            let found = world.selected(query).await;
            assert_eq!(found.iter().collect::<Vec<_>>(), workers, "{query}");
            // In pages of one, too.
            let (mut paged, mut token) = (Vec::new(), String::new());
            loop {
                let path = format!("/selected-workers?{query}&limit=1{token}");
                let page = world.get(&path).await.expect(200);
                paged.extend(names(&page));
                let Some(next) = page["continuationToken"].as_str() else {
                    break;
                };
                token = format!("&continuationToken={next}");
            }
            assert_eq!(paged, found, "{query}");
        }
        let counts = world
            .get("/selected-workers/counts?workerConfigurationId=build")
            .await
            .expect(200);
        let count = |index: usize, key: &str| counts["workerPoolsStats"][index][key].clone();
        assert_eq!(count(0, "workerPoolId"), DBG);
        assert_eq!(
            [count(0, "requestedCount"), count(0, "runningCount")],
            [1, 0]
        );
        assert_eq!([count(1, "runningCount"), count(1, "stoppedCount")], [2, 0]);
        assert_eq!(counts["createdBefore"], world.now().to_string());
    }
);

on_sqlite_first!(
    a_selection_names_one_thing_that_exists,
    |config| { crate::configurations::zones(config) },
    |world| {
        made(world).await;
        for query in [
            "",
            "region=g1",
            "launchConfigId=lc",
            "workerPoolId=a%2Fb&workerType=c",
            "workerPoolId=a%2Fb&providerId=google",
            "workerConfigurationId=build&launchConfigId=lc",
        ] {
            let path = format!("/selected-workers?{query}");
            let refused = world.get(&path).await.expect(400);
            assert_eq!(refused["code"], "InputError", "{query}");
        }
        for (query, text) in [
            ("workerPoolId=a%2Fb", "Worker pool does not exist"),
            ("workerType=nosuch", "Worker pool does not exist"),
            (
                "workerType=build-opt&launchConfigId=lc",
                "Launch config lc does not exist in worker pool worker-manager/build-opt",
            ),
            (
                "workerConfigurationId=x",
                "Worker configuration does not exist",
            ),
            ("providerId=nosuch", "Provider nosuch does not exist"),
        ] {
            let path = format!("/selected-workers?{query}");
            world
                .get(&path)
                .await
                .refused(404, "ResourceNotFound", text);
            let path = format!("/selected-workers/end?{query}");
            let answer = world.post(&path, world.order()).await;
            answer.refused(404, "ResourceNotFound", text);
        }
    }
);

on_both!(
    the_end_of_a_configuration_is_told_for_each_worker,
    |config| { crate::configurations::zones(config) },
    |world| {
        populate(world).await;
        world.events().await;
        let query = "workerConfigurationId=build";
        let (n_calls, ended) = world.end_selected(query, "", &world.order()).await;
        assert_eq!((n_calls, ended.len()), (1, 3));
        assert_snapshot!(world.told().await, @r#"
    worker-removed primary.google.worker-manager.build-dbg.g1.d1._._ {"capacity":1,"providerId":"google","reason":"ended by static/root: bad image","timestamp":"2026-09-21T14:13:20.000Z","workerGroup":"g1","workerId":"d1","workerPoolId":"worker-manager/build-dbg"}
    worker-removed primary.google.worker-manager.build-opt.g1.o1.lc-1._ {"capacity":1,"launchConfigId":"lc-1","providerId":"google","reason":"ended by static/root: bad image","timestamp":"2026-09-21T14:13:20.000Z","workerGroup":"g1","workerId":"o1","workerPoolId":"worker-manager/build-opt"}
    worker-removed primary.google.worker-manager.build-opt.g2.o2.lc-2._ {"capacity":1,"launchConfigId":"lc-2","providerId":"google","reason":"ended by static/root: bad image","timestamp":"2026-09-21T14:13:20.000Z","workerGroup":"g2","workerId":"o2","workerPoolId":"worker-manager/build-opt"}
    "#);
        let state = |id: WorkerKey| async move { world.worker(&id).await.unwrap().state };
        assert_eq!(state(key(OPT, "g1", "o1")).await, WorkerState::Stopping);
        assert_eq!(state(key("pp/ee", "g1", "e1")).await, WorkerState::Running);
        let history = "auth:/audit/worker/worker-manager%2Fbuild-opt%2Fg1%2Fo1";
        let history = world.get(history).await.expect(200);
        assert_eq!(history["auditHistory"][0]["actionType"], "removed");
        // The same again ends nothing and tells nothing.
        let (_, ended) = world.end_selected(query, "", &world.order()).await;
        assert!(ended.is_empty() && world.told().await.is_empty());
    }
);

on_sqlite_first!(
    workers_that_were_made_after_the_preview_stay,
    |config| { crate::configurations::zones(config) },
    |world| {
        populate(world).await;
        let counts = world
            .get("/selected-workers/counts?workerType=build-opt")
            .await
            .expect(200);
        world.clock.advance_ms(1_000);
        let later = running(OPT, "g1", "later", None);
        let later = Worker::from_stored(StoredWorker {
            created: world.now(),
            ..later.into_stored()
        });
        world.insert(later).await;
        let body = json!({"reason": "r", "createdBefore": counts["createdBefore"]});
        let (_, ended) = world.end_selected("workerType=build-opt", "", &body).await;
        assert_eq!(ended, [format!("{OPT} o1"), format!("{OPT} o2")]);
        let path = "/selected-workers/end?workerType=build-opt";
        let ahead = json!({"reason": "r", "createdBefore": "2099-01-01T00:00:00.000Z"});
        world.post(path, ahead).await.expect(400);
        let silent = json!({"reason": " ", "createdBefore": counts["createdBefore"]});
        world.post(path, silent).await.expect(400);
    }
);

on_sqlite_first!(
    a_declared_worker_stops_at_once_and_others_are_skipped,
    |world| {
        world
            .put("/worker-pool/pp%2Fee", static_pool())
            .await
            .expect(200);
        world
            .put("/workers/pp%2Fee/g/host", static_worker())
            .await
            .expect(200);
        let stray = Worker::from_stored(StoredWorker {
            provider_id: "nosuch".parse().unwrap(),
            ..running("pp/ee", "g", "stray", None).into_stored()
        });
        world.insert(stray).await;
        let path = "/selected-workers/end?workerPoolId=pp%2Fee";
        let reply = world.post(path, world.order()).await.expect(200);
        assert_eq!(reply["workers"][0]["state"], "stopped");
        assert_eq!(names(&reply), ["pp/ee host"]);
        assert_eq!(reply["skipped"][0]["workerId"], "stray");
        assert_eq!(
            reply["skipped"][0]["reason"],
            "Provider nosuch does not exist"
        );
    }
);

on_both!(one_call_ends_a_bounded_number_of_workers, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let sizes = sizes_around("engine::workers::selected_workers::MAX_ENDED", 100);
    for (round, count) in sizes.into_iter().enumerate() {
        let workers: Vec<Worker> = (0..count)
            .map(|number| running("pp/ee", "g", &format!("r{round}-{number:04}"), None))
            .collect();
        world
            .write(move |tx| {
                for worker in &workers {
                    store::workers::insert(tx, worker)?;
                }
                Ok(())
            })
            .await;
        let (n_calls, ended) = world
            .end_selected("workerPoolId=pp%2Fee", "", &world.order())
            .await;
        assert_eq!(ended.len(), count);
        // Workers of earlier rounds are stopping, and are passed too.
        world
            .write(|tx| {
                let stopping =
                    store::workers::list_stopping(tx, &"google".parse().unwrap(), None, 10_000)?;
                for worker in stopping {
                    let at = worker.last_modified;
                    store::workers::update(tx, &worker.mark_stopped("over", at))?;
                }
                Ok(())
            })
            .await;
        assert_eq!(n_calls, count.div_ceil(100).max(1), "{count} workers");
    }
});

on_both!(the_pools_of_a_selection_are_read_in_pages, |world| {
    let sizes = sizes_around("engine::workers::selected_workers::POOLS_PAGE", 100);
    for (round, count) in sizes.into_iter().enumerate() {
        let region = format!("r{round}");
        let workers: Vec<Worker> = (0..count)
            .map(|number| running(&format!("pp/p{number}"), &region, "w", None))
            .collect();
        world
            .write(move |tx| {
                for worker in &workers {
                    store::workers::insert(tx, worker)?;
                }
                Ok(())
            })
            .await;
        let query = format!("providerId=google&region={region}");
        let path = format!("/selected-workers/counts?{query}");
        let counts = world.get(&path).await.expect(200);
        let pools = counts["workerPoolsStats"].as_array().unwrap();
        assert_eq!(pools.len(), count);
        assert_eq!(world.selected(&query).await.len(), count);
    }
});

fleet_on_sqlite_first!(
    a_drained_worker_finishes_its_task_and_no_plan_keeps_it,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(9)).await;
        let busy = fleet.busy(POOL, 1).await;
        let (worker, claim) = &busy[0];
        let body = json!({"reason": "bad image", "createdBefore": fleet.now().to_string(),
        "drain": true});
        let path = "/selected-workers/end?workerPoolId=pp%2Fee";
        let reply = fleet.post(path, body.clone()).await.expect(200);
        assert_eq!(reply["workers"][0]["state"], "running");
        fleet.pass_ms(1_000);
        let advice = fleet.advice(worker).await;
        assert!(
            advice.contains("ended by static/root: bad image"),
            "{advice}"
        );
        // Tasks wait, and a plan is made: the advice stays, and another machine is launched.
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        assert_eq!(fleet.advice(worker).await, advice);
        assert_eq!(fleet.states(POOL).await, "2 requested, 1 running");
        fleet.complete(claim).await;
        fleet.round().await;
        assert_eq!(fleet.advice(worker).await, advice);
        // A repeat changes nothing, and the new machines were made after the preview.
        let again = fleet.post(path, body).await.expect(200);
        assert_eq!(again["workers"], json!([]));
    }
);

on_sqlite_first!(
    a_worker_type_may_be_ended_by_who_manages_it,
    |config| { crate::configurations::zones(config) },
    |world| {
        populate(world).await;
        let path = "/selected-workers/end?workerType=build-opt";
        for scope in [
            "worker-manager:manage-worker-type:build-opt",
            "worker-manager:remove-worker:worker-manager/build-opt/*",
        ] {
            let client = world.root().temporary(None, &[scope], world.now());
            let ended = world.post(path, world.order()).by(&client).await;
            ended.expect(200);
        }
        // A pool that no configuration has is no worker type to manage.
        let scope = "worker-manager:manage-worker-type:pp/ee";
        let client = world.root().temporary(None, &[scope], world.now());
        let path = "/selected-workers/end?workerPoolId=pp%2Fee";
        let refused = world.post(path, world.order()).by(&client).await;
        refused.expect(403);
    }
);
