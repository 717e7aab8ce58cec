//! The phases of machines: measured in metrics, and explained for each launch config and region.

use http::Method;
use serde_json::{Value, json};

use crate::database::assert_snapshot;
use crate::fleet_world::{Fleet, POOL, fleet_on_sqlite_first, plain_pool};

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
