//! The phases of machines: measured in metrics, and explained for each launch config and region.

use http::Method;
use serde_json::{Value, json};

use crate::database::assert_snapshot;
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, fleet_test, plain_pool};

impl Fleet {
    async fn explain_launch_config(&self, id: &str) -> Value {
        let path = format!("fleetwright:/explain/launch-config/pp%2Fee/{id}");
        self.get(&path).await.expect(200)
    }
}

/// The steps of the only region, a line for each.
fn steps(explained: &Value) -> String {
    let phases = explained["regions"][0]["phases"].as_array().unwrap();
    let lines = phases.iter().map(|step| {
        format!(
            "{} to {}: {} machines, {} and {} ms",
            step["from"].as_str().unwrap(),
            step["phase"].as_str().unwrap(),
            step["machines"],
            step["medianMs"],
            step["p95Ms"]
        )
    });
    lines.collect::<Vec<_>>().join("\n")
}

fleet_on_sqlite_first!(
    a_launch_config_shows_how_long_its_machines_took_for_each_step,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        let none = fleet.explain_launch_config("a").await;
        assert_eq!(
            (&none["machines"], &none["regions"]),
            (&json!(0), &json!([]))
        );
        assert_eq!(
            (&none["state"], &none["availability"]),
            (&json!("active"), &json!("usable"))
        );
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        fleet.pass_ms(20_000);
        let requested = fleet.workers_in(POOL, "requested").await;
        let first = fleet.register(&requested[0]).await;
        fleet.pass_ms(40_000);
        fleet.register(&requested[1]).await;
        fleet.claim_with(&first).await;
        let explained = fleet.explain_launch_config("a").await;
        assert_eq!(explained["machines"], 2);
        assert_snapshot!(steps(&explained), @r"
        decided to requested: 2 machines, 0 and 0 ms
        requested to accepted: 2 machines, 0 and 0 ms
        accepted to registered: 2 machines, 20000 and 60000 ms
        registered to first-claim: 1 machines, 40000 and 40000 ms
        ");
        let metrics = fleet
            .get("root:/metrics")
            .locally()
            .anonymously()
            .await
            .text;
        for (phase, count, sum) in [
            ("requested", 2, "0"),
            ("accepted", 2, "0"),
            ("registered", 2, "80"),
            ("first-claim", 1, "40"),
        ] {
            let labels = format!(
                r#"{{workerPoolId="pp/ee",launchConfigId="a",providerId="one",region="fake",phase="{phase}"}}"#
            );
            for line in [
                format!("fleetwright_machine_phase_seconds_count{labels} {count}"),
                format!("fleetwright_machine_phase_seconds_sum{labels} {sum}"),
            ] {
                assert!(metrics.contains(&line), "{line} in {metrics}");
            }
        }
    }
);

fleet_on_sqlite_first!(an_unknown_launch_config_has_no_explanation, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    let path = "fleetwright:/explain/launch-config/pp%2Fee/nosuch";
    assert_eq!(fleet.ask(Method::GET, path).await.status, 404);
});

fleet_test!(
    start_up_times_are_summed_over_all_pools_by_place_and_launch_config,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 2).await;
        fleet.round().await;
        fleet.pass_ms(20_000);
        let requested = fleet.workers_in(POOL, "requested").await;
        fleet.register(&requested[0]).await;
        fleet.pass_ms(40_000);
        fleet.register(&requested[1]).await;
        let read = async |query: &str| {
            let path = format!("fleetwright:/startup{query}");
            fleet.get(&path).await.expect(200)
        };
        let report = read("").await;
        assert_eq!(report["machines"], 2);
        let registered = json!({"from": "accepted", "phase": "registered", "machines": 2,
            "p50Ms": 20_000, "p90Ms": 60_000, "maxMs": 60_000});
        assert_eq!(report["phases"][2], registered);
        let place = &report["places"][0];
        assert_eq!(
            (&place["providerId"], &place["region"]),
            (&json!("one"), &json!("fake"))
        );
        assert_eq!(place["phases"], report["phases"]);
        let config = &report["launchConfigs"][0];
        assert_eq!(
            (&config["workerPoolId"], &config["launchConfigId"]),
            (&json!(POOL), &json!("a"))
        );
        // A stopped worker counts like the others.
        fleet
            .delete(&format!(
                "/workers/pp%2Fee/{}/{}",
                requested[1].group, requested[1].id
            ))
            .await;
        assert_eq!(
            read("?workerPoolId=pp%2Fee").await["phases"],
            report["phases"]
        );
        assert_eq!(read("?workerPoolId=pp%2Fnosuch").await["machines"], 0);
        let later = fleet.now().to_string();
        assert_eq!(read(&format!("?since={later}")).await["machines"], 0);
        let scopes = ["fleetwright:read-startup", "fleetwright:explain:pp/other"];
        let who = fleet.root().temporary(None, &scopes, fleet.now());
        let other = fleet.get("fleetwright:/startup").by(&who).await.expect(200);
        assert_eq!(other["machines"], 0);
    }
);
