//! How the strategy of a pool is chosen: by the pool, its worker configuration, or the server.

use std::sync::Arc;

use domain::id::PoolId;
use domain::plan::StrategyName;
use engine::fleet;
use engine::random::Random;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::config::Config;
use server::start::start_with;
use store::StoreError;

use crate::configurations::{BUILD, build, refused, rule, with_rule, zones};
use crate::database::on_sqlite_first;
use crate::fleet_world::{POOL, fleet_on_sqlite_first, machine, plain_pool, pool};
use crate::samples::{self, launch_config};
use crate::world::World;

const PATH: &str = "/worker-pool/pp%2Fee";

/// `balanced, chosen by the pool`, and the same of the shadow.
async fn chosen(world: &World, pool: &str) -> (String, String) {
    let path = format!("fleetwright:/explain/pool/{}", pool.replace('/', "%2F"));
    let explained = world.get(&path).await.expect(200);
    let text = |chosen: &Value| {
        let text = chosen["text"].as_str().or(chosen["problem"].as_str());
        text.unwrap_or("none").to_owned()
    };
    (text(&explained["strategy"]), text(&explained["shadow"]))
}

fn by_default(config: &mut Config) {
    zones(config);
    config.planning.default_strategy = Some(StrategyName::AwsProvisioner);
    config.planning.default_shadow_strategy = Some(StrategyName::Weighted);
}

on_sqlite_first!(
    a_pool_its_worker_configuration_or_the_server_chooses,
    by_default,
    |world| {
        let by_hand = |config: Value| {
            let mut definition = samples::aws_pool(&[launch_config(None, "ami-1")]);
            let object = definition["config"].as_object_mut().unwrap();
            object.extend(config.as_object().unwrap().clone());
            definition
        };
        world.put(PATH, by_hand(json!({}))).await.expect(200);
        let of_server = (
            "aws-provisioner, the default of the server".to_owned(),
            "weighted, the default of the server".to_owned(),
        );
        assert_eq!(chosen(world, POOL).await, of_server);

        let own = json!({"strategy": "balanced", "shadowStrategy": "none"});
        world.post(PATH, by_hand(own)).await.expect(200);
        let of_pool = ("balanced, chosen by the pool".to_owned(), "none".to_owned());
        assert_eq!(chosen(world, POOL).await, of_pool);

        // All pools of the configuration, unless a rule for a pool says otherwise.
        let values = json!({"strategy": "balanced", "shadowStrategy": "aws-provisioner"});
        let document = with_rule(build(), rule("planning", Value::Null, values));
        let only_debug = json!({"workerType": "build-dbg"});
        let document = with_rule(
            document,
            rule("debug", only_debug, json!({"strategy": "weighted"})),
        );
        world.put(BUILD, document).await.expect(200);
        assert_eq!(
            chosen(world, "worker-manager/build-opt").await.0,
            "balanced, chosen by the worker configuration build, rule \"planning\""
        );
        let debug = chosen(world, "worker-manager/build-dbg").await;
        assert_eq!(
            debug.0,
            "weighted, chosen by the worker configuration build, rule \"debug\""
        );
        assert_eq!(
            debug.1,
            "aws-provisioner, chosen by the worker configuration build, rule \"planning\""
        );
    }
);

/// Whether the reply to a pool with these keys is that they were stored.
async fn accepted(world: &World, provider: &str, config: Value) {
    let path = format!("/worker-pool/pp%2F{provider}");
    let keys = json!({"strategy": "aws-provisioner", "scalingRatio": -0.2, "waitPrice": 2,
        "minPrice": 0.1, "maxPrice": 8, "literal": true, "shadowStrategy": "aws-provisioner"});
    let mut config = config;
    let object = config.as_object_mut().unwrap();
    object.extend(keys.as_object().unwrap().clone());
    let definition = samples::pool(provider, config);
    let made = world.put(&path, definition).await.expect(200);
    for (key, value) in keys.as_object().unwrap() {
        assert_eq!(made["config"][key], *value, "{provider} {key}");
    }
    // The reply may be sent back, and changes nothing.
    let again = samples::pool(provider, made["config"].clone());
    let plan = world.post(&format!("/plan-worker-pool/pp%2F{provider}"), again);
    let plan = plan.await.expect(200);
    assert_eq!(plan["changes"], false, "{provider}: {plan}");
}

on_sqlite_first!(
    pools_of_each_provider_accept_the_keys_of_planning,
    zones,
    |world| {
        let launches = |launch_config: Value| json!({"minCapacity": 0, "maxCapacity": 10, "launchConfigs": [launch_config]});
        accepted(world, "aws", launches(launch_config(None, "ami-1"))).await;
        accepted(world, "static", json!({"workerConfig": {}})).await;
        accepted(world, "null-provider", json!({})).await;
        let google = json!({"region": "us-central1", "zone": "us-central1-a", "capacityPerInstance": 1,
            "machineType": "zones/us-central1-a/machineTypes/n2", "scheduling": {}, "workerConfig": {},
            "networkInterfaces": [], "disks": []});
        accepted(world, "google", launches(google)).await;
        // Made by rules, with the same keys.
        let keys = json!({"strategy": "aws-provisioner", "scalingRatio": -0.2, "waitPrice": 2,
            "minPrice": 0.1, "maxPrice": 8, "literal": true, "shadowStrategy": "balanced"});
        let keys_of_shadow = json!({"scalingRatio": 0.2});
        let document = with_rule(build(), rule("planning", Value::Null, keys));
        let problem = refused(world.put(BUILD, document.clone()), 400).await;
        assert!(
            problem.contains("/shadowStrategy: shadowStrategy: balanced does not accept the settings of the pool: scalingRatio"),
            "{problem}"
        );
        let document = with_rule(document, rule("ratio", Value::Null, keys_of_shadow));
        world.put(BUILD, document).await.expect(200);
        let made = world
            .get("/worker-pool/worker-manager%2Fbuild-opt")
            .await
            .expect(200);
        assert_eq!(made["config"]["strategy"], "aws-provisioner");
        assert_eq!(made["config"]["literal"], true);
        assert_eq!(made["config"]["shadowStrategy"], "balanced");
    }
);

on_sqlite_first!(bad_planning_keys_are_refused_by_name, |world| {
    let with = |key: &str, value: Value| {
        let mut definition = samples::aws_pool(&[launch_config(None, "ami-1")]);
        definition["config"][key] = value;
        definition
    };
    let cases = [
        (
            "strategy",
            json!("cheapest"),
            "config: \"cheapest\" is not a strategy",
        ),
        (
            "shadowStrategy",
            json!("cheapest"),
            "config: shadowStrategy: \"cheapest\" is not a strategy",
        ),
        (
            "shadowStrategy",
            json!(null),
            "config: shadowStrategy: null",
        ),
        ("waitPrice", json!(-1), "config: waitPrice must be a number"),
        ("minPrice", json!("1"), "config: minPrice must be a number"),
        ("maxPrice", json!(1e10), "config: maxPrice must be a number"),
        ("literal", json!(1), "config: literal must be true or false"),
        // Without a strategy of its own, the schema of the provider holds.
        (
            "scalingRatio",
            json!(-0.2),
            "data/scalingRatio must be >= 0",
        ),
        ("stratgy", json!("balanced"), "stratgy"),
    ];
    for (key, value, expected) in cases {
        let problem = refused(world.put(PATH, with(key, value)), 400).await;
        assert!(problem.contains(expected), "{key}: {problem}");
    }
});

fleet_on_sqlite_first!(a_stored_plan_names_the_strategy_that_made_it, |fleet| {
    fleet.make_pool(POOL, plain_pool(4)).await;
    fleet.tasks(POOL, 1).await;
    fleet.round().await;
    let mut definition = pool("one", 0, 4, &[machine("a")]);
    definition["config"]["strategy"] = json!("balanced");
    fleet.change_pool(POOL, definition).await;
    let explained = fleet.explain_pool(POOL).await;
    assert_eq!(explained["strategy"]["name"], "balanced");
    assert_eq!(explained["strategy"]["chosenBy"], "pool");
    assert_eq!(explained["plans"][0]["strategy"], "weighted");
});

fleet_on_sqlite_first!(
    a_stored_plan_is_made_again_after_the_default_was_changed,
    |fleet| {
        fleet.make_pool(POOL, plain_pool(4)).await;
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        let number = fleet.plans(POOL).await[0].number;
        let mut config = fleet.app.config.clone();
        config.planning.default_strategy = Some(StrategyName::AwsProvisioner);
        let random = Random::new(StdRng::seed_from_u64(8));
        let clock = Arc::clone(&fleet.clock);
        let other = Box::pin(start_with(config, clock, random, fleet.providers()));
        let other = other.await.unwrap();
        assert_eq!(
            other.engine.strategies.strategy,
            StrategyName::AwsProvisioner
        );
        let id: PoolId = POOL.parse().unwrap();
        let read = other.engine.store.read("test", move |tx| {
            let again = fleet::replay(tx, &id, number).unwrap().unwrap();
            let stored = store::plans::get(tx, &id, number)?.unwrap();
            let offers = fleet::stored_offers(tx, &id, number).unwrap().unwrap();
            Ok::<_, StoreError>((again, stored.plan, offers.strategy))
        });
        let (again, stored, strategy) = read.await.unwrap();
        assert_eq!(again.to_json(), stored);
        assert_eq!(strategy, StrategyName::Weighted);
        other.engine.store.close().await;
    }
);
