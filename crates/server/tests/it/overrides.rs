//! Overrides hold until their end: in every decision, across restarts, and when the clock is set.

use domain::overrides::Override;
use engine::fleet;
use serde_json::{Value, json};
use server::background::Overrides;
use server::background::driver::BackgroundTask;

use crate::database::assert_snapshot;
use crate::fleet_two_processes::second;
use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, plain_pool, pool, round,
};

const END_MS: i64 = 10 * MINUTE_MS;

impl Fleet {
    /// This holds for ten minutes.
    async fn overridden(&self, id: &str, what: Value) {
        let mut body = what;
        body["reason"] = json!("prices are up");
        body["until"] = json!(self.now().plus_millis(END_MS).to_string());
        self.put(&format!("/override/{id}"), body).await.expect(200);
    }

    async fn paused(&self, id: &str, target: &str, name: &str) {
        let what = json!({target: name, "pause": true});
        self.overridden(id, what).await;
    }

    async fn end_overrides(&self) -> Value {
        let mut task = Overrides(std::sync::Arc::clone(&self.app.engine));
        task.activate().await.unwrap()
    }

    async fn stored_override(&self, id: &str) -> Option<Override> {
        let id = id.parse().unwrap();
        self.read(move |tx| store::overrides::get(tx, &id)).await
    }

    async fn plan_now(&self) -> String {
        let explained = self.explain_pool(POOL).await;
        explained["now"]["text"].as_str().unwrap().to_owned()
    }

    async fn tasks_wait(&self, count: u32) {
        self.make_pool(POOL, plain_pool(9)).await;
        self.tasks(POOL, count).await;
    }
}

fleet_on_sqlite_first!(
    a_paused_pool_launches_nothing_until_the_end_and_says_so,
    |fleet| {
        fleet.tasks_wait(2).await;
        fleet.paused("freeze", "workerPoolId", POOL).await;
        assert_snapshot!(fleet.plan_now().await, @r"
    the pool wants 2 more units, 2 in all
    because the pool is paused until 2026-09-21T14:23:20.000Z by static/root (override freeze): prices are up
    because 2 more units are needed: 2 tasks wait; maximum 9
    because a: skipped, paused until 2026-09-21T14:23:20.000Z by static/root (override freeze): prices are up
    because still missing 2 units: no launch config can give more now
    ");
        fleet.round().await;
        fleet.pass_ms(END_MS - 1);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "");
        // Its end has not been recorded yet.
        fleet.pass_ms(1);
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "2 requested");
    }
);

fleet_on_sqlite_first!(each_kind_of_target_is_paused_and_nothing_else, |fleet| {
    let mut east = machine("east");
    east["region"] = json!("us-east-1");
    let configs = [machine("a"), east];
    fleet.make_pool(POOL, pool("one", 0, 9, &configs)).await;
    fleet.make_pool("pp/two", pool("two", 0, 9, &configs)).await;
    let (a, east) = ("a: skipped, paused", "east: skipped, paused");
    for (target, name, paused) in [
        ("workerPoolId", POOL, [true, true, false, false]),
        ("workerPoolId", "pp/two", [false, false, true, true]),
        ("providerId", "one", [true, true, false, false]),
        ("region", "us-east-1", [false, true, false, true]),
        ("region", "us-west-1", [false; 4]),
    ] {
        fleet.tasks(POOL, 1).await;
        fleet.tasks("pp/two", 1).await;
        fleet.paused("freeze", target, name).await;
        let mut found = Vec::new();
        for pool in [POOL, "pp/two"] {
            let text = fleet.explain_pool(pool).await["now"]["text"].to_string();
            let refused = [text.contains(a), text.contains(east)];
            let is_told = text.contains(" is paused ");
            assert_eq!(is_told, refused.contains(&true), "{target} {name} {pool}");
            found.extend(refused);
        }
        assert_eq!(found, paused, "{target} {name}");
        fleet.delete("/override/freeze").await.expect(200);
    }
    let what = json!({"workerPoolId": POOL, "launchConfigId": "a", "pause": true});
    fleet.overridden("freeze", what).await;
    fleet.round().await;
    let launches = fleet.launches(POOL).await;
    assert!(!launches.is_empty());
    assert!(
        launches
            .iter()
            .all(|launch| launch.launch_config_id.as_str() == "east")
    );
});

fleet_on_sqlite_first!(a_boost_is_kept_without_work_and_ends_by_itself, |fleet| {
    fleet.make_pool(POOL, plain_pool(9)).await;
    fleet
        .overridden("rush", json!({"workerPoolId": POOL, "minCapacity": 3}))
        .await;
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "3 requested");
    let text = fleet.plan_now().await;
    let line = "minCapacity 3 instead of 0 until 2026-09-21T14:23:20.000Z by static/root (override rush): prices are up";
    assert!(text.contains(line), "{text}");
    let workers = fleet.register_all(POOL).await;
    fleet.pass_ms(END_MS);
    fleet.round().await;
    for worker in &workers {
        assert_eq!(fleet.advice(worker).await, "go: over capacity");
    }
    assert!(!fleet.plan_now().await.contains("rush"));
});

fleet_on_sqlite_first!(a_cap_holds_and_lets_go_of_who_is_too_many, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 4, 9, &[machine("a")]))
        .await;
    fleet.round().await;
    let workers = fleet.register_all(POOL).await;
    fleet.pass_ms(2 * MINUTE_MS);
    fleet
        .overridden("save", json!({"workerPoolId": POOL, "maxCapacity": 1}))
        .await;
    fleet.tasks(POOL, 9).await;
    fleet.round().await;
    assert_eq!(
        fleet.states(POOL).await,
        "4 running",
        "they may take what waits"
    );
    let mut claims = Vec::new();
    for worker in &workers {
        claims.push(fleet.claim_with(worker).await);
    }
    fleet.round().await;
    assert_eq!(fleet.states(POOL).await, "4 running", "no fifth");
    let text = fleet.plan_now().await;
    assert!(text.contains("maxCapacity 1 instead of 9 until"), "{text}");
    assert_eq!(claims.len(), 4);
});

fleet_test!(
    no_override_outlives_its_end_across_a_restart_and_a_clock_step,
    |fleet| {
        fleet.tasks_wait(1).await;
        fleet.paused("freeze", "providerId", "one").await;
        let other = second(fleet).await;
        round(&other).await;
        other.engine.launch_tracker.finish().await;
        assert_eq!(fleet.states(POOL).await, "", "the next process heeds it");
        // The clock jumps far beyond its end, and back again before it.
        fleet.pass_ms(50 * END_MS);
        assert_eq!(fleet.end_overrides().await, json!({"ended": 1}));
        fleet.pass_ms(-50 * END_MS);
        assert!(
            fleet
                .stored_override("freeze")
                .await
                .unwrap()
                .ended
                .is_some()
        );
        let third = second(fleet).await;
        round(&third).await;
        third.engine.launch_tracker.finish().await;
        assert_eq!(
            fleet.states(POOL).await,
            "1 requested",
            "what has ended stays ended"
        );
        other.engine.store.close().await;
        third.engine.store.close().await;
    }
);

fleet_test!(a_pause_that_comes_while_it_is_decided_is_heeded, |fleet| {
    fleet.tasks_wait(1).await;
    let id = POOL.parse().unwrap();
    let now = fleet.now();
    let horizon = fleet.app.engine.horizon(now);
    let defaults = fleet.app.engine.strategies;
    let facts = fleet.read(move |tx| {
        let pool = store::pools::get(tx, &id)?.unwrap();
        let demand = [(id.clone(), store::demand::of(tx, &id, now)?)].into();
        fleet::read_facts(tx, vec![pool], &demand, &horizon, defaults)
    });
    let [facts] = facts.await.try_into().ok().unwrap();
    fleet.paused("freeze", "region", "none").await;
    assert!(
        fleet::decide(&fleet.app.engine, facts)
            .await
            .unwrap()
            .is_none()
    );
    fleet.round().await;
    assert_eq!(
        fleet.states(POOL).await,
        "1 requested",
        "it is about another region"
    );
});

fleet_test!(
    a_pause_is_published_when_it_begins_changes_and_ends,
    |fleet| {
        fleet.tasks_wait(0).await;
        fleet.news().await;
        let body = |minutes: i64| {
            let until = fleet.now().plus_millis(minutes * MINUTE_MS).to_string();
            json!({"workerPoolId": POOL, "launchConfigId": "a", "pause": true, "reason": "r", "until": until})
        };
        let path = "/override/freeze";
        fleet.put(path, body(5)).await.expect(200);
        assert_snapshot!(fleet.told().await, @r#"launch-config-paused primary.one.pp.ee._._.a._ {"launchConfigId":"a","overrideId":"freeze","owner":"static/root","providerId":"one","reason":"r","until":"2026-09-21T14:18:20.000Z","workerPoolId":"pp/ee"}"#);
        fleet.put(path, body(5)).await.expect(200);
        assert_eq!(fleet.news().await, Vec::<String>::new(), "the same again");
        fleet.put(path, body(6)).await.expect(200);
        assert_eq!(fleet.news().await, ["launch-config-paused"]);
        assert_eq!(fleet.end_overrides().await, Value::Null);
        fleet.pass_ms(6 * MINUTE_MS);
        assert_eq!(fleet.end_overrides().await, json!({"ended": 1}));
        assert_eq!(fleet.end_overrides().await, Value::Null);
        assert_eq!(fleet.news().await, ["launch-config-resumed"]);
        fleet.put(path, body(5)).await.expect(200);
        fleet.delete(path).await.expect(200);
        assert_eq!(
            fleet.news().await,
            ["launch-config-paused", "launch-config-resumed"]
        );
        fleet
            .overridden("limit", json!({"workerPoolId": POOL, "maxCapacity": 1}))
            .await;
        fleet.delete("/override/limit").await.expect(200);
        assert_eq!(
            fleet.news().await,
            Vec::<String>::new(),
            "limits are no pause"
        );
    }
);

fleet_test!(one_that_has_ended_makes_room_for_its_name, |fleet| {
    fleet.tasks_wait(0).await;
    fleet.paused("freeze", "workerPoolId", POOL).await;
    fleet.pass_ms(END_MS);
    fleet.news().await;
    // Its end has not been recorded yet.
    fleet.paused("freeze", "providerId", "two").await;
    assert_eq!(
        fleet.news().await,
        ["launch-config-resumed", "launch-config-paused"]
    );
    fleet.pass_ms(END_MS);
    fleet.end_overrides().await;
    fleet.keep_house().await;
    assert!(fleet.stored_override("freeze").await.is_some());
    fleet.pass_ms(31 * 24 * 60 * MINUTE_MS);
    fleet.keep_house().await;
    assert_eq!(fleet.stored_override("freeze").await, None);
});
