//! The examples of RFC 191, from the API to a cloud and back.
//!
//! `domain/tests/it/rfc_191.rs` has them as plain numbers.

use domain::launch::Cause;
use serde_json::{Value, json};

use crate::fleet_world::{
    Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, fleet_test, machine, pool,
};

const HOUR_MS: i64 = 60 * MINUTE_MS;

impl Fleet {
    async fn launch_config(&self, id: &str) -> Value {
        let path = format!("/launch-config/pp%2Fee/{id}");
        self.get(&path).await.expect(200)
    }

    /// The number of the launch config's weight, rounded.
    async fn number(&self, id: &str, name: &str) -> f64 {
        let number = self.launch_config(id).await["weight"][name].as_f64();
        (number.unwrap() * 100.0).round() / 100.0
    }

    async fn chances(&self, ids: &[&str]) -> Vec<f64> {
        let mut chances = Vec::new();
        for id in ids {
            chances.push(self.number(id, "chance").await);
        }
        chances
    }

    /// This many tasks come, and the workers for them are launched from this launch config alone.
    async fn launched(&self, id: &str, count: u32) {
        let others = ["a", "b", "c"].into_iter().filter(|other| *other != id);
        let until = self.now().plus_millis(MINUTE_MS).to_string();
        for other in others.clone() {
            let body = json!({"reason": "one at a time", "until": until});
            let path = format!("/launch-config/pp%2Fee/{other}/pause");
            self.post(&path, body).await.expect(200);
        }
        self.tasks(POOL, count).await;
        self.round().await;
        for other in others {
            let path = format!("/launch-config/pp%2Fee/{other}/resume");
            self.ask(http::Method::POST, &path).await.expect(200);
        }
    }

    async fn three_launch_configs(&self) {
        let machines = ["a", "b", "c"].map(machine);
        self.make_pool(POOL, pool("one", 0, 1_000, &machines)).await;
    }
}

fleet_test!(scenario_1_no_failures, |fleet| {
    fleet.three_launch_configs().await;
    let two = ["a", "b"].map(machine);
    fleet.change_pool(POOL, pool("one", 0, 1_000, &two)).await;
    // No workers yet.
    assert_eq!(fleet.number("a", "weight").await, 1.0);
    assert_eq!(fleet.chances(&["a", "b"]).await, [0.5, 0.5]);
    let three = ["a", "b", "c"].map(machine);
    fleet.change_pool(POOL, pool("one", 0, 1_000, &three)).await;
    fleet.launched("a", 10).await;
    fleet.register_all(POOL).await;
    fleet.launched("b", 5).await;
    fleet.register_all(POOL).await;
    fleet.change_pool(POOL, pool("one", 0, 1_000, &two)).await;
    let running = async |id: &str| fleet.launch_config(id).await["workers"]["running"].clone();
    assert_eq!(
        (running("a").await, running("b").await),
        (json!(10), json!(5))
    );
    assert_eq!(fleet.chances(&["a", "b"]).await, [0.33, 0.67]);
    assert_eq!(fleet.number("a", "balance").await, 0.33);
    assert_eq!(fleet.number("b", "weight").await, 0.67);
});

fleet_on_sqlite_first!(scenario_2_failures_in_some_regions, |fleet| {
    fleet.three_launch_configs().await;
    fleet.launched("a", 2).await;
    fleet.register_all(POOL).await;
    // Region A is over its quota: one launch of eight machines is refused.
    fleet.one.fake.refuse_launches_of("a", Cause::Quota);
    fleet.pass_ms(1_000);
    fleet.launched("a", 8).await;
    let shown = fleet.launch_config("a").await;
    assert_eq!(shown["launches"]["attempts"], 10);
    assert_eq!(shown["launches"]["refused"], json!({"quota": 8}));
    // 1 − failed / total.
    assert_eq!(fleet.number("a", "health").await, 0.2);
    assert_eq!(fleet.number("b", "health").await, 1.0);
    assert_eq!(shown["availability"]["status"], "shut-off");
    assert_eq!(shown["availability"]["nextTry"], "2026-09-21T14:13:31.000Z");
    assert_eq!(fleet.number("a", "chance").await, 0.0);
    let failure = &shown["failures"][0];
    assert_eq!(
        (&failure["cause"], &failure["machines"]),
        (&json!("quota"), &json!(8))
    );
    assert_eq!(shown["lastError"]["extra"]["code"], "quota");

    // When the pause is over, one machine tries it.
    fleet.one.fake.behave();
    fleet.pass_ms(10_000);
    let due = fleet.launch_config("a").await;
    assert_eq!(due["availability"]["status"], "due");
    fleet.round().await;
    assert_eq!(fleet.number("a", "health").await, 0.27, "1 - 8/11");
    // Only for a specific time period: the last hour.
    fleet.register_all(POOL).await;
    fleet.pass_ms(HOUR_MS + 1);
    assert_eq!(fleet.number("a", "health").await, 1.0);
    let later = fleet.launch_config("a").await;
    assert_eq!(later["availability"], json!({"status": "usable"}));
    assert_eq!(later["launches"]["refused"], json!({}));
});

fleet_on_sqlite_first!(scenario_3_new_launch_configs, |fleet| {
    fleet.three_launch_configs().await;
    // 1. No workers created yet: all are alike.
    assert_eq!(fleet.chances(&["a", "b", "c"]).await, [0.33; 3]);
    // 2. Workers created, none registered: they may still be starting.
    fleet.launched("a", 3).await;
    assert_eq!(fleet.number("a", "health").await, 1.0);
    let shown = fleet.launch_config("a").await;
    assert_eq!(shown["workers"]["requested"], 3);
    // 3. Workers created, none registered, errors exist: no more of them.
    fleet.one.fake.refuse_launches_of("a", Cause::Capacity);
    fleet.pass_ms(1_000);
    fleet.launched("a", 5).await;
    assert_eq!(fleet.number("a", "health").await, 0.0);
    assert_eq!(fleet.number("a", "weight").await, 0.0);
    assert_eq!(fleet.chances(&["a", "b", "c"]).await, [0.0, 0.5, 0.5]);
    // It allows to resume after the errors of the last hour.
    for key in fleet.workers_in(POOL, "requested").await {
        fleet.register(&key).await;
    }
    fleet.pass_ms(HOUR_MS + 1);
    assert_eq!(fleet.number("a", "health").await, 1.0);
});

fleet_on_sqlite_first!(
    scenario_3_2_workers_that_do_not_register_for_30_minutes,
    |fleet| {
        fleet.three_launch_configs().await;
        fleet.launched("a", 3).await;
        fleet.pass_ms(30 * MINUTE_MS);
        assert_eq!(fleet.number("a", "health").await, 1.0);
        fleet.pass_ms(1);
        assert_eq!(fleet.number("a", "health").await, 0.0);
        let shown = fleet.launch_config("a").await;
        assert_eq!(shown["launches"]["neverRegistered"], 3);
        assert_eq!(shown["failures"][0]["cause"], "never-registered");
        assert_eq!(
            shown["failures"][0]["example"],
            "a machine did not register"
        );
    }
);
