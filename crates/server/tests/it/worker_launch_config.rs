//! `workerLaunchConfig`: workers of every kind ask whether their launch config is active.

use cloud::LaunchOutcome;
use contract::Schemas;
use http::Method;
use serde_json::{Value, json};

use crate::ask::{Answer, Who};
use crate::database::on_sqlite_first;
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, Running, fleet_on_sqlite_first, fleet_test, machine, pool, worker_path,
};
use crate::samples::{STATIC_SECRET, static_pool, static_worker};

impl Fleet {
    async fn ask_state(&self, worker: &Running) -> Value {
        let path = format!("{}/launch-config", worker_path(&worker.key));
        let answer = self.get(&path).by(&worker.who).await;
        checked(&answer)
    }
}

/// An answer is as its schema says.
fn checked(answer: &Answer) -> Value {
    assert_eq!(answer.status, 200, "{}", answer.text);
    let schema = "worker-manager/v1/worker-launch-config-response.json";
    Schemas::new().check(schema, &answer.body()).unwrap();
    answer.body()
}

fleet_on_sqlite_first!(a_launched_worker_asks_with_its_own_credentials, |fleet| {
    let both = ["a", "b"].map(machine);
    fleet.make_pool(POOL, pool("one", 0, 9, &both[..1])).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let worker = fleet.register_all(POOL).await.remove(0);
    assert_eq!(
        fleet.ask_state(&worker).await,
        json!({"state": "active", "reason": "the launch config a is active",
            "launchConfigId": "a"})
    );
    let until = fleet.now().plus_millis(10 * MINUTE_MS).to_string();
    let body = json!({"reason": "prices are up", "until": until});
    fleet
        .post("/launch-config/pp%2Fee/a/pause", body)
        .await
        .expect(200);
    let paused = fleet.ask_state(&worker).await;
    let reason = format!(
        "the launch config a is paused until {until} by static/root (override pause.pp.ee.a): \
         prices are up"
    );
    assert_eq!(
        paused,
        json!({"state": "paused", "reason": reason, "launchConfigId": "a", "until": until})
    );
    fleet.change_pool(POOL, pool("one", 0, 9, &both[1..])).await;
    let archived = fleet.ask_state(&worker).await;
    assert_eq!(
        archived,
        json!({"state": "archived", "reason": "the launch config a is archived",
            "launchConfigId": "a"})
    );
    // It is deleted with its last worker, and not before.
    fleet.keep_house().await;
    assert_eq!(fleet.get("/launch-config/pp%2Fee/a").await.status, 200);
    fleet.leave(&worker).await;
    fleet.scan().await;
    fleet.keep_house().await;
    assert_eq!(fleet.get("/launch-config/pp%2Fee/a").await.status, 200);
    fleet.pass_ms(8 * 24 * 60 * MINUTE_MS);
    fleet.keep_house().await;
    assert_eq!(fleet.get("/launch-config/pp%2Fee/a").await.status, 404);
    let path = format!("{}/launch-config", worker_path(&worker.key));
    fleet
        .get(&path)
        .await
        .refused(404, "ResourceNotFound", "Worker not found");
});

fleet_test!(
    a_launch_config_stays_while_a_launch_may_still_make_a_machine,
    |fleet| {
        let both = ["a", "b"].map(machine);
        fleet.make_pool(POOL, pool("one", 0, 9, &both[..1])).await;
        fleet.tasks(POOL, 1).await;
        fleet.one.fake.next_launches([LaunchOutcome::AnswerLost]);
        fleet.round().await;
        assert_eq!(fleet.launches(POOL).await[0].state.as_str(), "unknown");
        fleet.change_pool(POOL, pool("one", 0, 9, &both[1..])).await;
        fleet.keep_house().await;
        assert_eq!(fleet.get("/launch-config/pp%2Fee/a").await.status, 200);
        // The scan finds the machine, and its worker names the launch config.
        fleet.scan().await;
        fleet.keep_house().await;
        assert_eq!(fleet.get("/launch-config/pp%2Fee/a").await.status, 200);
    }
);

on_sqlite_first!(a_declared_worker_asks_too, |world| {
    let (pool, worker) = ("/worker-pool/pp%2Fee", "/workers/pp%2Fee/g/w");
    world.put(pool, static_pool()).await.expect(200);
    world.put(worker, static_worker()).await.expect(200);
    let proof = json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
        "workerId": "w", "workerIdentityProof": {"staticSecret": STATIC_SECRET}});
    let registered = world.post("/worker/register", proof).anonymously();
    let who = Who::registered(&registered.await.expect(200));
    let ask = async || -> Answer { world.get(&format!("{worker}/launch-config")).by(&who).await };
    // A hash of what it got.
    let id = "lc-07397d1e8be6e8fcd6be";
    assert_eq!(
        checked(&ask().await),
        json!({"state": "active", "reason": "the launch config lc-07397d1e8be6e8fcd6be is active",
            "launchConfigId": id})
    );
    // Not about other workers.
    let other = world
        .get("/workers/pp%2Fee/g/other/launch-config")
        .by(&who)
        .await;
    assert_eq!(other.status, 403);
    // It goes on while its pool is paused, and knows until when.
    let until = world.now().plus_millis(MINUTE_MS).to_string();
    let pause = json!({"workerPoolId": "pp/ee", "pause": true, "reason": "r", "until": until});
    world.put("/override/freeze", pause).await.expect(200);
    let paused = checked(&ask().await);
    assert_eq!(
        (&paused["state"], &paused["until"]),
        (&json!("paused"), &json!(until))
    );
    world.clock.advance_ms(2 * MINUTE_MS);
    assert_eq!(checked(&ask().await)["state"], "active");
    world.ask(Method::DELETE, pool).await.expect(200);
    assert_eq!(
        checked(&ask().await),
        json!({"state": "archived", "reason": "pp/ee has left the provider static",
            "launchConfigId": id})
    );
    let restored = world.post(pool, static_pool()).await;
    restored.expect(200);
    assert_eq!(checked(&ask().await)["state"], "active");
});
