//! Bids: their prices are written with launches, and plans say what each launch config offered.

use std::sync::{Arc, Mutex};

use cloud::{ExecSettings, LaunchOutcome, ProviderConfig};
use domain::plan::Bid;
use serde_json::{Value, json};
use server::background::Refresh;
use server::background::driver::BackgroundTask;
use server::config::Config;

use crate::database::{assert_snapshot, on_sqlite_first};
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, machine, pool, round};
use crate::samples;

fn bid(price: f64) -> Bid {
    Bid {
        price: Some(price),
        ..Bid::plain("moon m5.large".to_owned())
    }
}

impl Fleet {
    fn script(&self, launch_config: &str, bid: Bid) {
        let id = launch_config.parse().unwrap();
        self.one.fake.set_bid(&id, Some(bid));
    }
}

/// The offers of an explanation, one line each.
pub(crate) fn offers(explained: &Value) -> String {
    let rows = explained["offers"].as_array().unwrap().iter();
    let text = |row: &Value| {
        let word = |key: &str| row[key].as_str().unwrap().to_owned();
        let price = |key: &str| {
            row[key]
                .as_f64()
                .map_or("-".to_owned(), |n| format!("{n:.3}"))
        };
        format!(
            "{} {} {} | {} | {} | {} | {} | {} | {}\n",
            word("providerId"),
            word("place"),
            word("launchConfigId"),
            price("price"),
            price("pricePerUsefulHour"),
            row["readyMs"],
            row["offered"],
            row["taken"],
            word("why")
        )
    };
    rows.map(text).collect()
}

fleet_on_sqlite_first!(
    the_price_of_the_bid_that_won_stays_with_launch_and_worker,
    |fleet| {
        fleet
            .make_pool(POOL, pool("one", 0, 9, &[machine("a")]))
            .await;
        fleet.script("a", bid(0.031));
        fleet.tasks(POOL, 1).await;
        fleet.round().await;
        fleet.script("a", bid(9.0));
        let launch = fleet.launches(POOL).await.remove(0);
        assert_eq!(launch.price, Some(0.031));
        let worker = fleet.workers(POOL).await.remove(0);
        assert_eq!(worker.price, Some(0.031));
        fleet.register_all(POOL).await;
        let path = format!(
            "fleetwright:/explain/worker/pp%2Fee/{}/{}",
            worker.key.group, worker.key.id
        );
        let explained = fleet.get(&path).await.expect(200);
        assert_eq!(explained["price"], 0.031);
        assert_eq!(explained["launch"]["price"], 0.031);
        let story = explained["story"].to_string();
        assert!(
            story.contains("for 1 machine by a at $0.031 an hour each"),
            "{story}"
        );
        // The next plan knows what the running worker costs.
        let explained = fleet.explain_pool(POOL).await;
        assert_eq!(explained["launches"][0]["price"], 0.031);
        let text = explained["plans"][0]["text"].as_str().unwrap();
        assert!(
            text.contains("launch 1 x a (1 unit each, $0.031 an hour each)"),
            "{text}"
        );
    }
);

fleet_on_sqlite_first!(a_launch_gives_the_data_of_its_bid_back, |fleet| {
    fleet
        .make_pool(POOL, pool("one", 0, 9, &[machine("a")]))
        .await;
    let data = json!({"ticket": [7, "seven"]});
    let scripted = Bid {
        data: data.as_object().unwrap().clone(),
        ..bid(0.5)
    };
    fleet.script("a", scripted);
    let orders = Arc::new(Mutex::new(Vec::new()));
    let seen = Arc::clone(&orders);
    fleet.one.fake.decide_with(move |order| {
        seen.lock()
            .unwrap()
            .push((order.price, json!(order.bid_data)));
        LaunchOutcome::Made
    });
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    assert_eq!(*orders.lock().unwrap(), [(Some(0.5), data)]);
});

fleet_on_sqlite_first!(
    a_plan_tells_what_each_launch_config_offered_and_why_it_was_taken_or_not,
    |fleet| {
        let machines = ["a", "b", "c", "d", "e"].map(machine);
        fleet.make_pool(POOL, pool("one", 0, 9, &machines)).await;
        let rich = Bid {
            utility: 2.0,
            reliability: Some(0.8),
            ready_ms: Some(74_000),
            available: Some(4),
            ..bid(0.04)
        };
        let expired = Bid {
            expires: Some(fleet.now()),
            ..bid(0.01)
        };
        let unreliable = Bid {
            reliability: Some(1.5),
            ..bid(0.02)
        };
        fleet.script("a", rich);
        fleet.script("b", bid(-1.0));
        fleet.script("c", bid(f64::NAN));
        fleet.script("d", expired);
        fleet.script("e", unreliable);
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        let explained = fleet.explain_pool(POOL).await;
        assert_snapshot!(offers(&explained["plans"][0]), @r"
        one moon m5.large a | 0.040 | 0.025 | 74000 | 4 | 3 | taken
        one  b | - | - | null | 0 | 0 | its bid has a price of $-1 an hour, which is negative
        one  c | - | - | null | 0 | 0 | its bid has a price of $NaN an hour, which is no number
        one  d | - | - | null | 0 | 0 | its bid expired at 2026-09-21T14:13:20.000Z
        one  e | - | - | null | 0 | 0 | its bid has the reliability 1.5, which must be above 0 and at most 1
        ");
        assert_snapshot!(offers(&explained["now"]), @r"
        one moon m5.large a | 0.040 | 0.025 | 74000 | 4 | 0 | not needed
        one  b | - | - | null | 0 | 0 | its bid has a price of $-1 an hour, which is negative
        one  c | - | - | null | 0 | 0 | its bid has a price of $NaN an hour, which is no number
        one  d | - | - | null | 0 | 0 | its bid expired at 2026-09-21T14:13:20.000Z
        one  e | - | - | null | 0 | 0 | its bid has the reliability 1.5, which must be above 0 and at most 1
        ");
        let json = &explained["plans"][0]["offers"][0];
        let keys: Vec<&String> = json.as_object().unwrap().keys().collect();
        assert_eq!(keys.len(), 10, "{keys:?}");
        // A plan can be selected; only that one has its offers.
        fleet.tasks(POOL, 1).await;
        fleet.pass_ms(2_000);
        fleet.round().await;
        let path = "fleetwright:/explain/pool/pp%2Fee";
        let newest = fleet.get(path).await.expect(200);
        let number = newest["plans"][0]["number"].as_i64().unwrap();
        let first = newest["plans"][1]["number"].as_i64().unwrap();
        assert_ne!(number, first);
        assert!(newest["plans"][1].get("offers").is_none());
        let selected = fleet.get(&format!("{path}?plan={first}")).await.expect(200);
        assert!(selected["plans"][0].get("offers").is_none());
        assert_eq!(
            selected["plans"][1]["offers"],
            explained["plans"][0]["offers"]
        );
        let missing = fleet.get(&format!("{path}?plan=99")).await.expect(404);
        let message = missing["message"].as_str().unwrap();
        assert!(
            message.contains("has no plan with this number"),
            "{message}"
        );
        fleet.get(&format!("{path}?plan=last")).await.expect(400);
    }
);

/// A program that bids by the case of each launch config, and makes machines.
const BIDDER: &str = r#"
question=$(cat)
case "$1" in
  setup|validate|end) echo '{}' ;;
  bids) echo '{"bids": [
    {"launchConfigId": "good", "price": 0.25, "reliability": 0.9, "readySeconds": 40, "place": "rack 7",
      "expires": "2099-01-01T00:00:00Z", "data": {"ticket": 7}},
    {"launchConfigId": "stale", "price": 0.01, "expires": "2020-01-01T00:00:00Z"},
    {"launchConfigId": "cheap", "price": -1},
    {"launchConfigId": "somebody-elses", "price": 1}]}' ;;
  launch) printf '%s' "$question" >launch.json
    echo '{"machines": [{"workerGroup": "racks", "workerId": "m1"}]}' ;;
  look|owned) echo '{"cause": "unavailable", "message": "not now"}'; exit 1 ;;
esac"#;

fn with_bidder(config: &mut Config) {
    let settings = ExecSettings {
        command: ["/bin/sh", "-c", BIDDER, "program"]
            .map(str::to_owned)
            .to_vec(),
        time_limit_seconds: 20,
        env: Default::default(),
    };
    let racks = ("racks".parse().unwrap(), ProviderConfig::Exec(settings));
    config.providers.0.push(racks);
}

on_sqlite_first!(
    a_bidder_outside_is_asked_before_the_first_launch_and_each_bad_bid_has_its_reason,
    |config| { super::with_bidder(config) },
    |world| {
        let named = |id: &str| json!({"workerConfig": {"name": id}, "workerManager": {"launchConfigId": id}});
        let configs = ["good", "stale", "cheap", "forgotten"].map(named);
        let config = json!({"minCapacity": 1, "maxCapacity": 1, "launchConfigs": configs});
        world
            .put("/worker-pool/pp%2Fee", samples::pool("racks", config))
            .await
            .expect(200);
        round(&world.app).await;
        let path = "fleetwright:/explain/pool/pp%2Fee";
        let explained = world.get(path).await.expect(200);
        assert_eq!(
            explained["plans"],
            json!([]),
            "nothing is launched without a bid"
        );
        assert_snapshot!(offers(&explained["now"]), @r"
        racks  good | - | - | null | 0 | 0 | its bid is not known yet, and racks is asked for it
        racks  stale | - | - | null | 0 | 0 | its bid is not known yet, and racks is asked for it
        racks  cheap | - | - | null | 0 | 0 | its bid is not known yet, and racks is asked for it
        racks  forgotten | - | - | null | 0 | 0 | its bid is not known yet, and racks is asked for it
        ");
        for mut refresh in Refresh::each(&world.app.engine) {
            refresh.activate().await.unwrap();
        }
        round(&world.app).await;
        world.app.engine.launch_tracker.finish().await;
        let explained = world.get(path).await.expect(200);
        assert_snapshot!(offers(&explained["plans"][0]), @r"
        racks rack 7 good | 0.250 | 0.278 | 40000 | 1 | 1 | taken
        racks  stale | - | - | null | 0 | 0 | its bid expired at 2020-01-01T00:00:00.000Z
        racks  cheap | - | - | null | 0 | 0 | its bid is invalid: /price must be >= 0
        racks  forgotten | - | - | null | 0 | 0 | racks made no bid for it; it bid for somebody-elses, which it was not asked about
        ");
        let launch = &explained["launches"][0];
        assert_eq!(
            (&launch["state"], &launch["price"]),
            (&json!("accepted"), &json!(0.25))
        );
    }
);
