//! Pools that people create with several providers, in the form that Taskcluster's clients can
//! send: `config.providers`, and `workerManager.providerId` of each launch config.

use std::sync::Arc;
use std::time::Duration;

use domain::id::ProviderId;
use domain::worker::WorkerState;
use serde_json::{Value, json};
use tokio::sync::Barrier;

use crate::configurations::refused;
use crate::database::on_sqlite_first;
use crate::fleet_world::{Fleet, MINUTE_MS, POOL, fleet_on_sqlite_first, machine};
use crate::samples::{self, launch_config, static_worker};

const PATH: &str = "/worker-pool/pp%2Fee";

/// The launch config, of this provider.
fn of(provider: &str, mut launch_config: Value) -> Value {
    launch_config["workerManager"]["providerId"] = json!(provider);
    launch_config
}

/// A pool of the clouds of the fleet's tests.
fn spread(providers: &[&str], launch_configs: &[Value]) -> Value {
    let config = json!({"minCapacity": 0, "maxCapacity": 9, "providers": providers,
        "launchConfigs": launch_configs});
    samples::pool(providers[0], config)
}

fn machines_of_two() -> [Value; 2] {
    [machine("a"), of("two", machine("b"))]
}

impl Fleet {
    async fn by_provider(&self) -> Vec<(String, &'static str)> {
        let workers = self.workers(POOL).await;
        let name = |worker: &domain::worker::Worker| {
            (worker.provider_id.to_string(), worker.state.as_str())
        };
        let mut names: Vec<_> = workers.iter().map(name).collect();
        names.sort();
        names
    }

    async fn providers_of_pool(&self) -> [String; 2] {
        let pool = self.stored_pool(POOL).await.unwrap();
        let text = |ids: Vec<&ProviderId>| {
            let ids: Vec<&str> = ids.into_iter().map(ProviderId::as_str).collect();
            ids.join(" ")
        };
        let previous = pool.previous_provider_ids.iter().collect();
        [text(pool.provider_ids().collect()), text(previous)]
    }
}

fleet_on_sqlite_first!(
    a_pool_made_by_hand_takes_machines_of_several_providers,
    |fleet| {
        let definition = spread(&["one", "two"], &machines_of_two());
        let made = fleet.put(PATH, definition.clone()).await.expect(200);
        assert_eq!(made["providerId"], "one");
        assert_eq!(made["config"]["providers"], json!(["one", "two"]));
        assert_eq!(
            made["config"]["launchConfigs"][1]["workerManager"],
            json!({"capacityPerInstance": 1, "launchConfigId": "b", "providerId": "two"})
        );
        // The same request again changes nothing, and neither does the reply sent back.
        assert_eq!(fleet.put(PATH, definition).await.expect(200), made);
        let mut again = made.clone();
        again.as_object_mut().unwrap().retain(|key, _| {
            [
                "providerId",
                "description",
                "config",
                "owner",
                "emailOnError",
            ]
            .contains(&key.as_str())
        });
        let plan = fleet
            .post("/plan-worker-pool/pp%2Fee", again.clone())
            .await
            .expect(200);
        assert_eq!(plan["changes"], false, "{plan}");
        fleet.post(PATH, again).await.expect(200);
        fleet.tasks(POOL, 4).await;
        fleet.round().await;
        let by_provider = fleet.by_provider().await;
        assert_eq!(by_provider.len(), 4);
        for provider in ["one", "two"] {
            let expected = (provider.to_owned(), "requested");
            assert!(by_provider.contains(&expected), "{by_provider:?}");
        }
        for launch in fleet.launches(POOL).await {
            let is_first = launch.launch_config_id.as_str() == "a";
            assert_eq!(
                launch.provider_id.as_str(),
                if is_first { "one" } else { "two" }
            );
        }
        fleet.register_all(POOL).await;
    }
);

fleet_on_sqlite_first!(an_edit_that_drops_a_provider_lets_its_workers_go, |fleet| {
    let two = spread(&["one", "two"], &machines_of_two());
    fleet.put(PATH, two.clone()).await.expect(200);
    fleet.tasks(POOL, 4).await;
    fleet.round().await;
    fleet.register_all(POOL).await;
    assert_eq!(fleet.providers_of_pool().await, ["one two", ""]);

    // The other launch config stays, and is now of the only provider.
    fleet
        .post(PATH, spread(&["one"], &[machine("a")]))
        .await
        .expect(200);
    assert_eq!(fleet.providers_of_pool().await, ["one", "two"]);
    fleet.pass_ms(2 * MINUTE_MS);
    fleet.round().await;
    let workers = fleet.workers(POOL).await;
    let running = workers
        .iter()
        .filter(|worker| worker.state == WorkerState::Running);
    for worker in running {
        let advice = worker.terms.advice.as_ref();
        let leaves = advice.is_some_and(|advice| advice.terminate);
        assert_eq!(
            leaves,
            worker.provider_id.as_str() == "two",
            "{}",
            worker.key
        );
    }

    // The first provider leaves, and the other comes back.
    fleet
        .post(PATH, spread(&["two"], &[of("two", machine("b"))]))
        .await
        .expect(200);
    assert_eq!(fleet.providers_of_pool().await, ["two", "one"]);
    fleet.post(PATH, two).await.expect(200);
    assert_eq!(fleet.providers_of_pool().await, ["one two", ""]);
});

fleet_on_sqlite_first!(
    declared_hosts_and_machines_share_a_pool_made_by_hand,
    |fleet| {
        let mut definition = spread(&["one", "static"], &[machine("a")]);
        definition["config"]["workerConfig"] = json!({"for": "hosts"});
        definition["config"]["lifecycle"] =
            json!({"registrationTimeout": 900, "reregistrationTimeout": 3600});
        let made = fleet.put(PATH, definition).await.expect(200);
        assert_eq!(made["config"]["workerConfig"], json!({"for": "hosts"}));
        fleet
            .put("/workers/pp%2Fee/lab/host-1", static_worker())
            .await
            .expect(200);
        fleet.tasks(POOL, 3).await;
        fleet.round().await;
        let (one, host) = (
            ("one".to_owned(), "requested"),
            ("static".to_owned(), "running"),
        );
        assert_eq!(fleet.by_provider().await, [one.clone(), one, host]);
    }
);

on_sqlite_first!(each_provider_checks_its_own_launch_configs, |world| {
    let config = |image: Value| {
        let mut one = launch_config(Some("big"), "ami-1");
        one["launchConfig"]["ImageId"] = image;
        json!({"minCapacity": 0, "maxCapacity": 3, "providers": ["google", "aws"],
        "strategy": "aws-provisioner", "maxPrice": 2, "launchConfigs": [
            {"region": "r", "zone": "z", "disks": [], "machineType": "m", "networkInterfaces": [],
                    "scheduling": {}, "workerConfig": {}},
            of("aws", one),
        ]})
    };
    // Keys for the planner need no place in the schemas of the clouds.
    let good = samples::pool("google", config(json!("ami-1")));
    let made = world.put(PATH, good.clone()).await.expect(200);
    assert_eq!(made["config"]["strategy"], "aws-provisioner");
    let bad = samples::pool("google", config(json!(7)));
    assert_eq!(
        refused(world.post(PATH, bad), 400).await,
        "The providers refuse the config:\n  * launchConfigs[1] (big) (provider aws): \
         /launchConfig/ImageId must be string"
    );
    let mut bad = good.clone();
    bad["config"]["maxCapacity"] = json!("many");
    bad["config"]["launchConfigs"][0] = json!({"region": "r"});
    let text = refused(world.post(PATH, bad), 400).await;
    assert!(
        text.starts_with("config: maxCapacity must be a whole number"),
        "{text}"
    );
    let mut bad = good.clone();
    bad["config"]["launchConfigs"][0] = json!({"region": "r"});
    bad["config"]["foo"] = json!(1);
    let text = refused(world.post(PATH, bad), 400).await;
    assert!(
        text.contains("* launchConfigs[0] (provider google): must have required"),
        "{text}"
    );
    assert!(
        text.contains("* config (provider aws):  must NOT have additional"),
        "{text}"
    );
    let mut bad = good;
    bad["config"]["strategy"] = json!("cheapest");
    let text = refused(world.post(PATH, bad), 400).await;
    assert!(
        text.starts_with("config: \"cheapest\" is not a strategy"),
        "{text}"
    );
    assert_eq!(world.get(PATH).await.expect(200), made);
});

on_sqlite_first!(
    a_list_of_providers_that_contradicts_itself_is_refused,
    |world| {
        let aws = |id: &str| launch_config(Some(id), "ami-1");
        let with = |providers: Value, launch_configs: Value| {
            let config = json!({"minCapacity": 0, "maxCapacity": 3, "providers": providers,
            "launchConfigs": launch_configs});
            samples::pool("aws", config)
        };
        let cases = [
            (
                with(json!("aws"), json!([])),
                "config.providers must be a list of 1 to 20 provider ids, not \"aws\"",
            ),
            (
                with(json!(["google"]), json!([])),
                "config.providers must contain aws, the providerId of the pool",
            ),
            (
                with(json!(["aws", "nosuch"]), json!([])),
                "config.providers: there is no provider nosuch. `fleetwright provider list` shows what exists",
            ),
            (
                with(json!(["aws", "null-provider"]), json!([])),
                "config.providers: null-provider has no workers",
            ),
            (
                with(
                    json!(["aws", "google"]),
                    json!([aws("a"), of("azure", aws("b"))]),
                ),
                "launchConfigs[1] (b) names the provider \"azure\", which the pool does not have: \
             list it in config.providers",
            ),
            (
                with(
                    json!(["aws", "static"]),
                    json!([aws("a"), of("static", aws("b"))]),
                ),
                "The providers refuse the config:\n  \
             * launchConfigs[1] (b) (provider static): must NOT have additional properties: \
             \"capacityPerInstance\"\n  \
             * launchConfigs[1] (b) (provider static): must NOT have additional properties: \
             \"launchConfig\"\n  \
             * launchConfigs[1] (b) (provider static): must NOT have additional properties: \
             \"region\"",
            ),
        ];
        for (body, expected) in cases {
            assert_eq!(refused(world.put(PATH, body), 400).await, expected);
        }
        // Without a list, the pool has one provider.
        let config =
            json!({"minCapacity": 0, "maxCapacity": 3, "launchConfigs": [of("google", aws("a"))]});
        let text = refused(world.put(PATH, samples::pool("aws", config)), 400).await;
        assert!(
            text.starts_with("launchConfigs[0] (a) names the provider \"google\""),
            "{text}"
        );
        let config =
            json!({"minCapacity": 0, "maxCapacity": 3, "launchConfigs": [of("aws", aws("a"))]});
        let made = world
            .put(PATH, samples::pool("aws", config))
            .await
            .expect(200);
        let steering = &made["config"]["launchConfigs"][0]["workerManager"];
        assert_eq!(*steering, json!({"launchConfigId": "a"}));
    }
);

fleet_on_sqlite_first!(the_same_content_at_two_providers_has_two_ids, |fleet| {
    let plain = json!({"workerConfig": {}, "workerManager": {}});
    let definition = spread(&["one", "two"], &[plain.clone(), of("two", plain)]);
    let made = fleet.put(PATH, definition.clone()).await.expect(200);
    let configs = made["config"]["launchConfigs"].as_array().unwrap();
    let ids: Vec<&str> = configs
        .iter()
        .map(|config| config["workerManager"]["launchConfigId"].as_str().unwrap())
        .collect();
    assert_ne!(ids[0], ids[1]);
    assert_eq!(fleet.put(PATH, definition).await.expect(200), made);
});

on_sqlite_first!(
    a_pool_of_several_needs_the_scope_of_each_provider,
    |world| {
        let body = samples::pool(
            "aws",
            json!({"minCapacity": 0, "maxCapacity": 1, "providers": ["aws", "google"],
            "launchConfigs": []}),
        );
        let (manage, get) = (
            "worker-manager:manage-worker-pool:pp/ee",
            "worker-manager:get-worker-pool:pp/ee",
        );
        let (aws, google) = (
            "worker-manager:provider:aws",
            "worker-manager:provider:google",
        );
        let by = |scopes: &[&str]| world.root().temporary(None, scopes, world.now());
        let plan = "/plan-worker-pool/pp%2Fee";
        let planned = async |scopes: &[&str]| world.post(plan, body.clone()).by(&by(scopes)).await;
        let put = async |scopes: &[&str]| world.put(PATH, body.clone()).by(&by(scopes)).await;
        for provider in [aws, google] {
            for refused in [
                put(&[manage, provider]).await,
                planned(&[get, provider]).await,
            ] {
                assert_eq!(refused.expect(403)["code"], "InsufficientScopes");
            }
        }
        planned(&[get, aws, google]).await.expect(200);
        put(&[manage, aws, google]).await.expect(200);
    }
);

fleet_on_sqlite_first!(providers_check_their_parts_at_the_same_time, |fleet| {
    let meeting = Arc::new(Barrier::new(2));
    for cloud in [&fleet.one, &fleet.two] {
        *cloud.meeting.lock().unwrap() = Some(Arc::clone(&meeting));
    }
    let definition = spread(&["one", "two"], &machines_of_two());
    let made = async { fleet.put(PATH, definition).await.expect(200) };
    // One after the other, they would not meet.
    let made = tokio::time::timeout(Duration::from_secs(120), made).await;
    assert_eq!(made.unwrap()["config"]["providers"], json!(["one", "two"]));
});
