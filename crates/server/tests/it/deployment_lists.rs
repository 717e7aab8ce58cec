//! Providers with their state, and the processes of the deployment.

use std::sync::Arc;

use cloud::LaunchOutcome;
use domain::launch::Cause;
use domain::time::MINUTE_MS;
use domain::worker::{StoredWorker, Worker};
use serde_json::{Value, json};
use server::background::driver::BackgroundTask;
use server::background::{ProcessRecord, leave_readers};
use store::processes::ProcessRow;

use crate::database::on_both;
use crate::fleet_lists::running;
use crate::fleet_world::{POOL, fleet_test, plain_pool};
use crate::world::World;

const PROCESSES: &str = "fleetwright:/processes";
const PROVIDERS: &str = "fleetwright:/providers";

async fn announce(world: &World) {
    ProcessRecord(Arc::clone(&world.app))
        .activate()
        .await
        .unwrap();
}

async fn processes(world: &World) -> Vec<Value> {
    let listed = world.get(PROCESSES).await.expect(200);
    listed["processes"].as_array().unwrap().clone()
}

on_both!(
    a_process_is_listed_until_it_ends_or_is_silent_for_a_day,
    |world| {
        assert_eq!(processes(world).await, [Value::Null; 0]);
        announce(world).await;
        world.clock.advance_ms(MINUTE_MS);
        announce(world).await;
        let listed = processes(world).await;
        assert_eq!(listed.len(), 1);
        let this = &listed[0];
        assert_eq!(this["lastSeen"], world.now().to_string());
        assert_eq!(this["pid"], std::process::id());
        assert_eq!(this["silent"], false);
        assert_eq!(this["version"], env!("CARGO_PKG_VERSION"));
        let roles = [
            "api",
            "provisioner",
            "scanner",
            "publisher",
            "housekeeper",
            "builder",
        ];
        assert_eq!(this["roles"], json!(roles));
        world.clock.advance_ms(2 * MINUTE_MS);
        assert_eq!(processes(world).await[0]["silent"], true);
        world.clock.advance_ms(25 * 60 * MINUTE_MS);
        world.keep_house().await;
        assert_eq!(processes(world).await.len(), 0);
        announce(world).await;
        leave_readers(&world.app).await.unwrap();
        assert_eq!(processes(world).await.len(), 0);
    }
);

on_both!(
    processes_come_in_pages_with_the_leases_that_they_hold,
    |world| {
        announce(world).await;
        let now = world.now();
        let other = ProcessRow {
            process_id: "other".to_owned(),
            host: "elsewhere".to_owned(),
            pid: 7,
            roles: vec!["scanner".to_owned()],
            version: "0.0.9".to_owned(),
            started: now,
            last_seen: now,
            clock_ahead_ms: Some(-40),
        };
        let this = world.app.events.process.clone();
        world
            .write(move |tx| {
                store::processes::write(tx, &other)?;
                store::event_readers::open(tx, "broker")?;
                store::event_readers::take(tx, "broker", "other", now, MINUTE_MS)?;
                store::event_readers::take(tx, "outcomes", &this, now, MINUTE_MS)
            })
            .await;
        let (mut found, mut token) = (Vec::new(), String::new());
        loop {
            let page = world
                .get(&format!("{PROCESSES}?limit=1{token}"))
                .await
                .expect(200);
            found.extend(page["processes"].as_array().unwrap().clone());
            let Some(next) = page["continuationToken"].as_str() else {
                break;
            };
            token = format!("&continuationToken={next}");
        }
        assert_eq!(found.len(), 2);
        let other = found.iter().find(|it| it["processId"] == "other").unwrap();
        assert_eq!(
            *other,
            json!({
                "processId": "other", "host": "elsewhere", "pid": 7, "roles": ["scanner"],
                "version": "0.0.9", "started": now.to_string(), "lastSeen": now.to_string(),
                "silent": false, "clockAheadMs": -40,
                "leases": [{"name": "broker", "until": "2026-09-21T14:14:20.000Z"}],
            })
        );
        let this = found.iter().find(|it| it["processId"] != "other").unwrap();
        assert_eq!(this["leases"][0]["name"], "outcomes");
        // A lease that has ended is held by nobody.
        world.clock.advance_ms(MINUTE_MS);
        let all = processes(world).await;
        assert!(all.iter().all(|it| it["leases"] == json!([])));
    }
);

on_both!(
    a_provider_has_its_workers_by_state_and_place_with_their_prices,
    |world| {
        let at = |id: &str, group: &str, price: Option<f64>| {
            Worker::from_stored(StoredWorker {
                provider_id: "aws".parse().unwrap(),
                price,
                ..running("pp/ee", group, id, 0)
            })
        };
        for worker in [
            at("w1", "us-east-1", Some(0.25)),
            at("w2", "us-east-1", Some(0.5)),
            at("w3", "us-east-1", None),
            at("w4", "us-west-2", None),
        ] {
            world.insert(worker).await;
        }
        world.set_up_providers().await;
        let listed = world.get(PROVIDERS).await.expect(200);
        let mut rows = listed["providers"].as_array().unwrap().iter();
        let aws = rows.find(|row| row["providerId"] == "aws").unwrap();
        assert_eq!(aws["state"], "in-service");
        assert_eq!(
            aws["workers"],
            json!({"requested": 0, "running": 4, "stopping": 0})
        );
        assert_eq!(
            aws["places"],
            json!([
                {"place": "us-east-1", "machines": 3, "capacity": 3, "lowestPrice": 0.25,
                    "highestPrice": 0.5, "hourly": 0.75, "withoutPrice": 1},
                {"place": "us-west-2", "machines": 1, "capacity": 1, "withoutPrice": 1},
            ])
        );
    }
);

fleet_test!(
    a_provider_has_its_recent_failures_and_the_calls_that_it_may_make,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let refused = LaunchOutcome::Refused(Cause::Capacity);
        fleet.one.fake.decide_with(move |_| refused.clone());
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        let listed = fleet.get(PROVIDERS).await.expect(200);
        let one = |listed: &Value| {
            let mut rows = listed["providers"].as_array().unwrap().iter();
            rows.find(|row| row["providerId"] == "one").unwrap().clone()
        };
        let failing = one(&listed);
        assert_eq!(failing["failed"], 2);
        assert_eq!(failing["failures"][0]["cause"], "capacity");
        fleet.pass_ms(61 * MINUTE_MS);
        let listed = fleet.get(PROVIDERS).await.expect(200);
        assert_eq!(one(&listed)["failed"], 0);
    }
);
