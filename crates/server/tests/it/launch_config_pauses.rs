//! `pauseLaunchConfig` and `resumeLaunchConfig`, with their events on a broker.

use std::sync::Arc;

use domain::event::Rfc191;
use http::Method;
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{BrokerPublisher, EventPublisher, Overrides};

use crate::broker::{Deliveries, Reader, address, publish_to, unique};
use crate::database::Database;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, machine, pool};

const PAUSE: &str = "/launch-config/pp%2Fee/a/pause";
const RESUME: &str = "/launch-config/pp%2Fee/a/resume";

impl Fleet {
    fn ten_minutes(&self) -> Value {
        let until = self.now().plus_millis(10 * MINUTE_MS);
        json!({"reason": "broken image", "until": until.to_string()})
    }

    /// Records the ends of overrides, and publishes all events.
    async fn publish(&self, publisher: &mut BrokerPublisher) {
        let engine = Arc::clone(&self.app.engine);
        Overrides(engine).activate().await.unwrap();
        let stream = &mut EventPublisher(Arc::clone(&self.app));
        stream.activate().await.unwrap();
        publisher.activate().await.unwrap();
    }
}

/// The next message about a pool: exchange, routing key, and the payload without its pool.
async fn next(deliveries: &mut Deliveries, pool: &str) -> (String, String, Value) {
    let delivery = deliveries.next_about(pool).await;
    let mut payload: Value = serde_json::from_slice(&delivery.data).unwrap();
    payload.as_object_mut().unwrap().remove("workerPoolId");
    let exchange = delivery.exchange.to_string();
    (exchange, delivery.routing_key.to_string(), payload)
}

#[tokio::test]
async fn a_launch_config_that_is_paused_for_ten_minutes_launches_nothing_resumes_by_itself_and_both_are_on_the_broker()
 {
    let Some(url) = address() else { return };
    for database in std::iter::once(Database::sqlite()).chain(Database::postgres()) {
        let fleet = Fleet::open_with(database, |config| publish_to(config, &url)).await;
        let broker = fleet.app.events.broker.clone().unwrap();
        let mut publisher = BrokerPublisher::new(Arc::clone(&fleet.app), broker);
        fleet.publish(&mut publisher).await;
        let names = ["launch-config-paused", "launch-config-resumed"];
        let topics = names.map(|name| format!("exchange/taskcluster-worker-manager/v1/{name}"));
        let further = Rfc191::ALL
            .iter()
            .filter(|event| names.contains(&event.also));
        let further = further.map(Rfc191::topic).collect();
        let all = [topics.to_vec(), further].concat();
        let queue = unique("queue/fleetwright/pauses");
        let reader = Reader::bind(&url, &queue, &all, "#").await;
        let mut deliveries = reader.listen().await;

        let name = unique("pp/p");
        let path = name.replace('/', "%2F");
        fleet
            .make_pool(&name, pool("one", 0, 9, &[machine("a")]))
            .await;
        fleet.tasks(&name, 2).await;
        let pause = format!("/launch-config/{path}/a/pause");
        fleet.post(&pause, fleet.ten_minutes()).await.expect(200);
        let until = fleet.now().plus_millis(10 * MINUTE_MS).to_string();
        for _ in 0..10 {
            fleet.round().await;
            fleet.publish(&mut publisher).await;
            assert_eq!(fleet.states(&name).await, "", "nothing launches there");
            fleet.pass_ms(MINUTE_MS);
        }
        // It resumes by itself.
        fleet.round().await;
        assert_eq!(fleet.states(&name).await, "2 requested");
        fleet.publish(&mut publisher).await;

        let (left, right) = name.split_once('/').unwrap();
        let id = format!("pause.{left}.{right}.a");
        let payload = json!({"launchConfigId": "a", "overrideId": id, "owner": "static/root",
            "providerId": "one", "reason": "broken image", "until": until});
        for (prefix, name_) in [
            ("taskcluster-worker-manager", "launch-config-paused"),
            ("fleetwright", "launch-configuration-paused"),
            ("taskcluster-worker-manager", "launch-config-resumed"),
            ("fleetwright", "launch-configuration-resumed"),
        ] {
            let (exchange, key, found) = next(&mut deliveries, &name).await;
            assert_eq!(exchange, format!("exchange/{prefix}/v1/{name_}"));
            assert_eq!(key, format!("primary.one.{left}.{right}._._.a._"));
            assert_eq!(found, payload);
        }
    }
}

fleet_on_sqlite_first!(
    a_pause_that_is_invalid_is_refused_with_the_reason,
    |fleet| {
        fleet
            .make_pool(POOL, pool("one", 0, 9, &["a", "b"].map(machine)))
            .await;
        let good = fleet.ten_minutes();
        let with = |name: &str, value: Value| {
            let mut body = good.clone();
            body[name] = value;
            body
        };
        let long = "x".repeat(1_001);
        for (body, part) in [
            (json!({}), "reason"),
            (json!({"reason": "r"}), "until"),
            (with("reason", json!("")), "reason"),
            (with("reason", json!("  ")), "has a reason"),
            (with("reason", json!(long)), "reason"),
            (with("reason", json!(3)), "reason"),
            (with("until", json!("soon")), "until"),
            (
                with("until", json!("2026-09-21T14:13:20Z")),
                "must be after now",
            ),
            (
                with("until", json!("2026-12-21T00:00:00Z")),
                "within 90 days",
            ),
            (with("providerId", json!("one")), "providerId"),
        ] {
            let answer = fleet.post(PAUSE, body.clone()).await;
            assert_eq!(answer.status, 400, "{body}: {}", answer.text);
            assert!(answer.text.contains(part), "{body}: {}", answer.text);
        }
        for (path, status, text) in [
            (
                "/launch-config/pp%2Fnone/a/pause",
                404,
                "Worker pool does not exist",
            ),
            (
                "/launch-config/pp%2Fee/none/pause",
                404,
                "Launch config none does not exist in worker pool pp/ee",
            ),
        ] {
            let answer = fleet.post(path, good.clone()).await;
            answer.refused(status, "ResourceNotFound", text);
        }
        assert_eq!(fleet.ask(Method::POST, RESUME).await.status, 404);
        // An archived launch config launches nothing anyway.
        fleet
            .change_pool(POOL, pool("one", 0, 9, &[machine("b")]))
            .await;
        let text =
            "Launch config a is archived: nothing is launched from it, so it needs no override";
        let archived = fleet.post(PAUSE, good).await;
        archived.refused(409, "RequestConflict", text);
    }
);

fleet_on_sqlite_first!(
    a_pause_can_be_changed_and_ends_early_or_by_itself,
    |fleet| {
        fleet
            .make_pool(POOL, pool("one", 0, 9, &[machine("a")]))
            .await;
        fleet.tasks(POOL, 1).await;
        let state = async || {
            let shown = fleet.get("/launch-config/pp%2Fee/a").await.expect(200);
            let until = shown["pause"]["until"].as_str().unwrap_or("-").to_owned();
            format!("{} {until}", shown["state"].as_str().unwrap())
        };
        fleet.post(PAUSE, fleet.ten_minutes()).await.expect(200);
        assert_eq!(state().await, "paused 2026-09-21T14:23:20.000Z");
        fleet.pass_ms(MINUTE_MS);
        fleet.post(PAUSE, fleet.ten_minutes()).await.expect(200);
        assert_eq!(state().await, "paused 2026-09-21T14:24:20.000Z");
        fleet.ask(Method::POST, RESUME).await.expect(200);
        assert_eq!(state().await, "active -");
        fleet.round().await;
        assert_eq!(fleet.states(POOL).await, "1 requested");
        // After its end there is nothing to resume, recorded or not.
        fleet.post(PAUSE, fleet.ten_minutes()).await.expect(200);
        fleet.pass_ms(10 * MINUTE_MS);
        assert_eq!(state().await, "active -");
        assert_eq!(fleet.ask(Method::POST, RESUME).await.status, 404);
        // Resuming ends no other pause.
        let body = json!({"workerPoolId": POOL, "pause": true, "reason": "r",
        "until": fleet.now().plus_millis(MINUTE_MS).to_string()});
        fleet.put("/override/freeze", body).await.expect(200);
        fleet.post(PAUSE, fleet.ten_minutes()).await.expect(200);
        fleet.ask(Method::POST, RESUME).await.expect(200);
        assert!(state().await.starts_with("paused"), "by the other override");
    }
);
