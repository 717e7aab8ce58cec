//! Machines of a Taskcluster's worker manager become workers, and end as ours do.

use cloud::CloudError;
use domain::id::WorkerKey;
use domain::time::HOUR_MS;
use serde_json::{Value, json};
use testing::sizes_around;

use crate::authorization::{Case, case_with};
use crate::fleet_world::{
    Fleet, INACTIVITY_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool, pool,
};
use crate::samples::key;

const TAKE_OVER: &str = "/provider/one/take-over";
const GROUP: &str = "fake";

pub(crate) fn cases() -> Vec<Case> {
    vec![case_with(
        "takeOver",
        TAKE_OVER,
        json!({"workers": []}),
        &["worker-manager:take-over:one"],
    )]
}

fn named(key: &WorkerKey, state: &str) -> Value {
    json!({"workerPoolId": key.pool_id.as_str(), "workerGroup": key.group.as_str(),
        "workerId": key.id.as_str(), "launchConfigId": "a", "capacity": 1, "state": state,
        "created": "2026-09-21T00:00:00.000Z"})
}

/// `i-0 taken-over`
fn results(reply: &Value) -> Vec<String> {
    let word = |it: &Value, key: &str| it[key].as_str().unwrap().to_owned();
    let workers = reply["workers"].as_array().unwrap().iter();
    let results = workers.map(|it| format!("{} {}", word(it, "workerId"), word(it, "result")));
    results.collect()
}

impl Fleet {
    /// A machine that the Taskcluster made.
    fn theirs(&self, id: &str) -> WorkerKey {
        let key = key(POOL, GROUP, id);
        self.one.fake.add_foreign(key.clone());
        key
    }

    async fn take_over(&self, workers: &[Value], is_dry_run: bool) -> Value {
        let body = json!({"workers": workers, "dryRun": is_dry_run});
        self.post(TAKE_OVER, body).await.expect(200)
    }
}

fleet_test!(they_count_at_once_and_end_as_ours_do, |fleet| {
    fleet.make_pool(POOL, plain_pool(8)).await;
    let states = ["running", "running", "requested", "stopping"];
    let keys: Vec<WorkerKey> = (0..4).map(|it| fleet.theirs(&format!("i-{it}"))).collect();
    let workers: Vec<Value> = keys
        .iter()
        .zip(states)
        .map(|(key, it)| named(key, it))
        .collect();
    let would = fleet.take_over(&workers, true).await;
    assert_eq!(fleet.states(POOL).await, "", "a dry run writes nothing");
    let reply = fleet.take_over(&workers, false).await;
    assert_eq!(would, reply);
    let all = ["i-0", "i-1", "i-2", "i-3"].map(|id| format!("{id} taken-over"));
    assert_eq!(results(&reply), all);
    assert_eq!(reply["unnamed"], json!([]));
    assert_eq!(
        fleet.states(POOL).await,
        "1 requested, 2 running, 1 stopping"
    );
    let again = fleet.take_over(&workers, false).await;
    assert_eq!(
        results(&again),
        all.map(|it| it.replace("taken-over", "known"))
    );

    let mut later = workers.clone();
    later[2]["state"] = json!("running");
    fleet.take_over(&later, true).await;
    assert_eq!(fleet.workers_in(POOL, "requested").await, keys[2..3]);

    // Three machines for three tasks: nothing is launched for them. The fourth waits.
    fleet.tasks(POOL, 3).await;
    fleet.round().await;
    assert_eq!(fleet.launches(POOL).await.len(), 0);
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(fleet.launches(POOL).await.len(), 1);

    // A machine that has not registered there does so here, by its cloud's proof.
    fleet.register(&keys[2]).await;
    fleet.remove(&keys[0]).await;
    fleet.end().await;
    fleet.scan().await;
    let left = fleet.machines().into_iter().filter(|it| it.token.is_none());
    let mut left: Vec<_> = left.filter(|it| !it.is_going).map(|it| it.key).collect();
    left.sort();
    assert_eq!(
        left,
        keys[1..3],
        "the removed one and the stopping one ended"
    );
    // Those that never ask this queue for work get the usual time, from now on.
    assert_eq!(fleet.workers_in(POOL, "running").await, keys[1..3]);
    fleet.listen_ms(INACTIVITY_MS + 1);
    fleet.scan().await;
    let reason = fleet.end_reason(&keys[1]).await;
    assert!(reason.starts_with("worker never claimed work"), "{reason}");
});

fleet_on_sqlite_first!(
    a_machine_that_is_not_theirs_or_has_no_place_here_is_left,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.make_pool("pp/other", plain_pool(4)).await;
        fleet
            .make_pool("pp/elsewhere", pool("three", 0, 1, &[machine("a")]))
            .await;
        let unnamed = fleet.theirs("unnamed");
        let other_pool = fleet.theirs("other-pool");
        for (pool, id) in [("pp/none", "no-pool"), ("pp/elsewhere", "elsewhere")] {
            fleet.one.fake.add_foreign(key(pool, GROUP, id));
        }
        // A machine of ours is not one of theirs.
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        let ours = fleet.workers_in(POOL, "requested").await.remove(0);
        let reply = fleet
            .take_over(
                &[
                    named(&key(POOL, GROUP, "gone"), "running"),
                    named(&key("pp/other", GROUP, other_pool.id.as_str()), "running"),
                    named(&key("pp/none", GROUP, "no-pool"), "running"),
                    named(&key("pp/elsewhere", GROUP, "elsewhere"), "running"),
                    named(&ours, "running"),
                ],
                false,
            )
            .await;
        let mut expected = vec![
            "gone not-found".to_owned(),
            "other-pool refused".to_owned(),
            "no-pool no-pool".to_owned(),
            "elsewhere refused".to_owned(),
        ];
        expected.push(format!("{} not-found", ours.id));
        assert_eq!(results(&reply), expected);
        assert_eq!(
            [
                &reply["workers"][1]["reason"],
                &reply["workers"][3]["reason"]
            ],
            [
                "the tags of its machine name pool pp/ee",
                "its pool does not name this provider"
            ]
        );
        assert_eq!(
            reply["unnamed"],
            json!([{"workerPoolId": POOL, "workerGroup": GROUP, "workerId": unnamed.id.as_str()}])
        );
        assert_eq!(fleet.states(POOL).await, "1 requested");
        assert_eq!(fleet.states("pp/other").await, "");
    }
);

fleet_on_sqlite_first!(
    a_region_that_cannot_be_listed_is_named_and_the_others_go_on,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let here = fleet.theirs("here");
        let there = key(POOL, "there", "far");
        fleet.one.fake.add_foreign(there.clone());
        let down = || Some(CloudError::Unavailable("down".to_owned()));
        fleet.one.fake.set_unlisted(&there.group, down());
        let workers = [named(&here, "running"), named(&there, "running")];
        let reply = fleet.take_over(&workers, false).await;
        assert_eq!(results(&reply), ["here taken-over", "far refused"]);
        assert_eq!(
            reply["workers"][1]["reason"],
            "the machines of there cannot be listed: the cloud is unavailable: down"
        );
        assert_eq!(
            reply["unlisted"],
            json!([{"region": "there", "reason": "the cloud is unavailable: down"}])
        );
        fleet.one.fake.set_unlisted(&here.group, down());
        let body = json!({"workers": workers});
        fleet.post(TAKE_OVER, body).await.expect(503);
        fleet.one.fake.set_unlisted(&here.group, None);
        fleet.one.fake.set_unlisted(&there.group, None);
        let reply = fleet.take_over(&workers, false).await;
        assert_eq!(results(&reply), ["here known", "far taken-over"]);
    }
);

fleet_on_sqlite_first!(
    the_first_renewal_shows_a_secret_that_only_the_other_side_knows,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let theirs = fleet.theirs("i-0");
        fleet.take_over(&[named(&theirs, "running")], false).await;
        let scope = format!("worker-manager:reregister-worker:{POOL}/{GROUP}/i-0");
        let itself = fleet.client("worker/one/i-0", &[&scope]).await;
        let other = format!("worker-manager:reregister-worker:{POOL}/{GROUP}/i-1");
        let other = fleet.client("worker/one/i-1", &[&other]).await;
        let renewal = |secret: &str| {
            let body = json!({"workerPoolId": POOL, "workerGroup": GROUP, "workerId": "i-0",
            "secret": secret});
            fleet.post("/worker/reregister", body)
        };
        let known_there = "k".repeat(44);
        renewal(&known_there).by(&other).await.expect(403);
        let reply = renewal(&known_there).by(&itself).await.expect(200);
        let ours = reply["secret"].as_str().unwrap();
        renewal("x").by(&itself).await.expect(400);
        renewal(ours).by(&itself).await.expect(200);
        let stored = fleet.worker(&theirs).await.unwrap();
        assert!(stored.terms.taken_over);
        let expected = fleet.now().plus_millis(4 * HOUR_MS).as_millis();
        assert_eq!(stored.terms.terminate_after, Some(expected));
    }
);

fleet_on_sqlite_first!(
    one_that_registers_there_after_it_was_taken_over_runs_after_the_next_call,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let theirs = fleet.theirs("i-0");
        fleet.take_over(&[named(&theirs, "requested")], false).await;
        let reply = fleet.take_over(&[named(&theirs, "running")], false).await;
        assert_eq!(results(&reply), ["i-0 known"]);
        assert_eq!(fleet.states(POOL).await, "1 running");
        // A worker that runs here does not go back.
        fleet.take_over(&[named(&theirs, "requested")], false).await;
        assert_eq!(fleet.states(POOL).await, "1 running");
    }
);

fleet_on_sqlite_first!(
    a_launch_config_that_its_pool_no_longer_has_becomes_archived,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let (old, new) = (fleet.theirs("old"), fleet.theirs("new"));
        let mut worker = named(&old, "requested");
        worker["launchConfigId"] = json!("lc-old");
        let config = |id: &str, name: &str| {
            json!({"workerPoolId": POOL, "launchConfigId": id,
            "configuration": {"workerConfig": {"name": name}}})
        };
        let body = json!({"workers": [worker, named(&new, "requested")],
        "launchConfigs": [config("lc-old", "as it was"), config("a", "not written")]});
        fleet.post(TAKE_OVER, body).await.expect(200);
        let path = "/worker-pool/pp%2Fee/launch-configs?includeArchived=true";
        let listed = fleet.get(path).await.expect(200);
        let of = |it: &Value| (it["launchConfigId"].clone(), it["isArchived"].clone());
        let listed = listed["workerPoolLaunchConfigs"].as_array().unwrap().iter();
        let listed: Vec<_> = listed.map(of).collect();
        assert_eq!(
            listed,
            [(json!("a"), json!(false)), (json!("lc-old"), json!(true))]
        );
        let reply = fleet.registration(&old).await.expect(200);
        assert_eq!(reply["workerConfig"]["name"], "as it was");
        let reply = fleet.registration(&new).await.expect(200);
        assert_eq!(reply["workerConfig"]["name"], "a");
    }
);

fleet_on_sqlite_first!(
    requests_that_name_one_twice_or_too_many_are_refused,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let theirs = fleet.theirs("i-0");
        let twice = [named(&theirs, "running"), named(&theirs, "requested")];
        let refused = fleet.post(TAKE_OVER, json!({"workers": twice})).await;
        let refused = refused.expect(400)["message"].to_string();
        let text = "worker pp/ee/fake/i-0 is named twice";
        assert!(refused.contains(text), "{refused}");
        for (path, status) in [
            ("/provider/unknown/take-over", 404),
            ("/provider/static/take-over", 400),
        ] {
            fleet
                .post(path, json!({"workers": []}))
                .await
                .expect(status);
        }
        for size in sizes_around("engine::workers::take_over::MAX_INHERITED", 5_000) {
            let keys = (0..size).map(|number| key(POOL, GROUP, &format!("n-{number}")));
            let workers: Vec<Value> = keys.map(|key| named(&key, "running")).collect();
            let reply = fleet
                .post(TAKE_OVER, json!({"workers": workers, "dryRun": true}))
                .await;
            // Ten times as many do not fit into the body of a request.
            reply.expect(match size {
                0..=5_000 => 200,
                5_001 => 400,
                _ => 413,
            });
        }
        assert_eq!(fleet.states(POOL).await, "");
    }
);

fleet_on_sqlite_first!(
    any_number_is_taken_over_in_the_order_of_the_request,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        for (round, size) in sizes_around("engine::workers::take_over::MAX_INSERTED", 100)
            .into_iter()
            .enumerate()
        {
            let keys = (0..size)
                .rev()
                .map(|number| fleet.theirs(&format!("r{round}-{number}")));
            let workers: Vec<Value> = keys.map(|key| named(&key, "running")).collect();
            let reply = fleet.take_over(&workers, false).await;
            let expected = (0..size)
                .rev()
                .map(|number| format!("r{round}-{number} taken-over"));
            assert_eq!(results(&reply), expected.collect::<Vec<_>>());
            assert_eq!(
                reply["unnamed"],
                json!([]),
                "those of earlier rounds have rows"
            );
        }
    }
);

fleet_on_sqlite_first!(any_number_of_regions_is_listed, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    for (round, size) in sizes_around("engine::workers::take_over::MAX_LISTS", 4)
        .into_iter()
        .enumerate()
    {
        let made = |number: usize| {
            let key = key(
                POOL,
                &format!("r{round}-{number}"),
                &format!("m{round}-{number}"),
            );
            fleet.one.fake.add_foreign(key.clone());
            named(&key, "running")
        };
        let workers: Vec<Value> = (0..size).map(made).collect();
        let reply = fleet.take_over(&workers, false).await;
        let expected = (0..size).map(|number| format!("m{round}-{number} taken-over"));
        assert_eq!(results(&reply), expected.collect::<Vec<_>>());
    }
});
