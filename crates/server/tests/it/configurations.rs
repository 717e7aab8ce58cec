//! Worker configurations: the results of their rules, and the scopes that edits need.

use cloud::ProviderConfig;
use domain::worker::{StoredWorker, Worker};
use serde_json::{Value, json};
use server::config::Config;

use crate::ask::Ask;
use crate::database::{on_both, on_sqlite_first};
use crate::samples::{static_pool, worker};
use crate::world::World;

pub(crate) const BUILD: &str = "/worker-configuration/build";
pub(crate) const OPT: &str = "/worker-pool/worker-manager%2Fbuild-opt";

/// `aws` offers three zones in two regions.
pub(crate) fn zones(config: &mut Config) {
    let aws = config
        .providers
        .0
        .iter_mut()
        .find(|(id, _)| id.as_str() == "aws")
        .unwrap();
    let ProviderConfig::Fake(settings) = &mut aws.1 else {
        panic!("aws is a fake cloud here");
    };
    let place = |region: &str, zone: &str| {
        [("region", region), ("availabilityZone", zone)]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .into()
    };
    settings.places = vec![
        place("us-east-1", "us-east-1a"),
        place("us-east-1", "us-east-1b"),
        place("us-west-2", "us-west-2a"),
    ];
}

pub(crate) fn rule(id: &str, conditions: Value, values: Value) -> Value {
    json!({"ruleId": id, "description": id, "conditions": conditions, "values": values})
}

/// Two worker types, one provider, three rules.
pub(crate) fn build() -> Value {
    json!({
        "description": "what builds",
        "workerTypes": ["build-opt", "build-dbg"],
        "rules": [
            rule("basics", Value::Null, json!({"owner": "ops@example.com", "description": "builds", "maxCapacity": 10,
                "providers": {"aws": {}}})),
            rule("machine", json!({"provider": "aws"}), json!({"aws": {"capacityPerInstance": 1}})),
            rule("image", json!({"provider": "aws"}), json!({"aws": {"launchConfig": {"ImageId": "ami-1"}}})),
        ],
    })
}

pub(crate) fn with_rule(mut document: Value, rule: Value) -> Value {
    document["rules"].as_array_mut().unwrap().push(rule);
    document
}

pub(crate) fn image(ami: &str) -> Value {
    json!({"description": "image", "conditions": {"provider": "aws"}, "values": {"aws": {"launchConfig": {"ImageId": ami}}}})
}

pub(crate) async fn made(world: &World) -> Value {
    world.put(BUILD, build()).await.expect(200)
}

/// Launch config ids by zone.
pub(crate) async fn ids(world: &World, pool: &str) -> Vec<(String, String)> {
    let pool = world.get(pool).await.expect(200);
    let configs = pool["config"]["launchConfigs"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let mut ids: Vec<_> = configs
        .iter()
        .map(|config| {
            let zone = &config["launchConfig"]["Placement"]["AvailabilityZone"];
            (text(zone), text(&config["workerManager"]["launchConfigId"]))
        })
        .collect();
    ids.sort();
    ids
}

pub(crate) async fn refused(ask: Ask, status: u16) -> String {
    let body = ask.await.expect(status);
    let text = body["message"].as_str().unwrap();
    text.split("\n\n---\n\n").next().unwrap().to_owned()
}

on_sqlite_first!(
    rules_become_pools_with_a_launch_config_for_each_place,
    zones,
    |world| {
        let reply = made(world).await;
        assert_eq!(reply["version"], 1);
        assert_eq!(reply["workerTypes"], json!(["build-opt", "build-dbg"]));
        let pool = world.get(OPT).await.expect(200);
        assert_eq!(pool["providerId"], "aws");
        assert_eq!(pool["config"]["maxCapacity"], 10);
        let configs = pool["config"]["launchConfigs"].as_array().unwrap();
        assert_eq!(configs.len(), 3);
        assert_eq!(configs[0]["region"], "us-east-1");
        assert_eq!(
            configs[0]["launchConfig"],
            json!({"ImageId": "ami-1", "Placement": {"AvailabilityZone": "us-east-1a"}})
        );
        let told = world.told().await;
        assert_eq!(told.matches("worker-pool-created").count(), 2);
        assert_eq!(told.matches("launch-config-created").count(), 6);
        // The same request again changes nothing and publishes no event.
        assert_eq!(made(world).await, reply);
        assert_eq!(world.told().await, "");
    }
);

on_sqlite_first!(an_edit_of_one_rule_changes_nothing_else, zones, |world| {
    made(world).await;
    let before = ids(world, OPT).await;
    let narrow = json!({"description": "", "conditions": {"availabilityZone": "us-east-1b"},
        "values": {"aws": {"launchConfig": {"ImageId": "ami-2"}}}});
    world.events().await;
    let reply = world
        .put(&format!("{BUILD}/rule/b%20only"), narrow)
        .await
        .expect(200);
    assert_eq!(reply["version"], 2);
    assert_eq!(reply["rule"]["ruleId"], "b only");
    let after = ids(world, OPT).await;
    assert_eq!((&before[0], &before[2]), (&after[0], &after[2]));
    assert_ne!(before[1], after[1]);
    let told = world.told().await;
    for (event, n) in [
        ("worker-pool-updated", 2),
        ("launch-config-created", 2),
        ("launch-config-archived", 2),
    ] {
        assert_eq!(told.matches(event).count(), n, "{event}");
    }
});

on_sqlite_first!(
    a_pool_made_of_rules_is_read_only_for_the_api_of_pools,
    zones,
    |world| {
        made(world).await;
        let text = "Worker pool worker-manager/build-opt is made of the worker configuration build: change its rules instead, or \
                take the worker type out of it first";
        assert_eq!(refused(world.post(OPT, static_pool()), 409).await, text);
        assert_eq!(refused(world.put(OPT, static_pool()), 409).await, text);
        assert_eq!(refused(world.delete(OPT), 409).await, text);
        // Even with an invalid config: the pool cannot be corrected there.
        let mut unfit = static_pool();
        unfit["providerId"] = json!("aws");
        unfit["config"] = json!({"launchConfigs": 1});
        assert_eq!(refused(world.post(OPT, unfit.clone()), 409).await, text);
        assert_eq!(refused(world.put(OPT, unfit), 409).await, text);
    }
);

on_sqlite_first!(
    a_worker_type_is_in_one_configuration_at_most,
    zones,
    |world| {
        made(world).await;
        let mut other = build();
        other["workerTypes"] = json!(["new", "build-dbg"]);
        let text = refused(world.put("/worker-configuration/other", other), 409).await;
        assert_eq!(
            text,
            "The worker type build-dbg belongs to the worker configuration build. Nothing was changed; remove it there first."
        );
        world.get("/worker-configuration/other").await.expect(404);
        world
            .get("/worker-pool/worker-manager%2Fnew")
            .await
            .expect(404);
    }
);

on_both!(
    an_edit_on_an_old_version_is_refused_and_nothing_is_lost,
    zones,
    |world| {
        made(world).await;
        let mut first = image("ami-2");
        first["version"] = json!(1);
        let mut second = image("ami-3");
        second["version"] = json!(1);
        world
            .post(&format!("{BUILD}/rule/image"), first)
            .await
            .expect(200);
        let text = refused(world.post(&format!("{BUILD}/rule/image"), second), 409).await;
        assert_eq!(
            text,
            "The worker configuration is at version 2 and not at 1: somebody changed it meanwhile. Nothing was changed; \
        read it again and repeat the edit on that."
        );
        let mut whole = build();
        whole["version"] = json!(1);
        world.post(BUILD, whole).await.expect(409);
        let rule = world.get(&format!("{BUILD}/rule/image")).await.expect(200);
        assert_eq!(
            rule["rule"]["values"]["aws"]["launchConfig"]["ImageId"],
            "ami-2"
        );
        assert_eq!(rule["version"], 2);
        world
            .delete(&format!("{BUILD}?version=1"))
            .await
            .expect(409);
    }
);

on_both!(parallel many_writers_of_different_rules_lose_no_edit, |world| {
    const WRITERS: usize = 24;
    let mut document = build();
    document["workerTypes"] = json!(["a"]);
    document["rules"][0]["values"]["providers"] = json!({"aws": {"places": [{"region": "us-west-2"}]}});
    document["rules"][1]["values"]["aws"]["region"] = json!("us-west-2");
    world.put(BUILD, document).await.expect(200);
    let edits = (0..WRITERS).map(|n| {
        let body = json!({"description": "", "conditions": null,
            "values": {"aws": {"launchConfig": {"UserData": {format!("k{n}"): n}}}}});
        let ask = world.put(&format!("{BUILD}/rule/r{n}"), body);
        tokio::spawn(async move {
            let answer = ask.await;
            answer.status
        })
    });
    let edits: Vec<_> = edits.collect();
    let mut landed = Vec::new();
    for (n, edit) in edits.into_iter().enumerate() {
        match edit.await.unwrap() {
            200 => landed.push(n),
            // The client must retry, so nothing of it may be stored.
            status => assert_eq!(status, 409),
        }
    }
    let now = world.get(BUILD).await.expect(200);
    let mut there: Vec<usize> = now["rules"].as_array().unwrap().iter()
        .filter_map(|rule| rule["ruleId"].as_str().unwrap().strip_prefix('r')?.parse().ok())
        .collect();
    there.sort_unstable();
    assert_eq!(there, landed);
    assert_eq!(now["version"], 1 + landed.len());
    assert!(landed.len() > WRITERS / 2, "{landed:?}");
    let pool = world.get("/worker-pool/worker-manager%2Fa").await.expect(200);
    let data = &pool["config"]["launchConfigs"][0]["launchConfig"]["UserData"];
    assert_eq!(data.as_object().unwrap().len(), landed.len());
    let history = world.get(&format!("{BUILD}/versions")).await.expect(200);
    assert_eq!(history["versions"].as_array().unwrap().len(), 1 + landed.len());
});

on_sqlite_first!(
    rules_are_added_moved_replaced_and_removed_in_place,
    zones,
    |world| {
        made(world).await;
        let order = async || -> Vec<String> {
            let now = world.get(BUILD).await.expect(200);
            let rules = now["rules"].as_array().unwrap();
            rules
                .iter()
                .map(|rule| rule["ruleId"].as_str().unwrap().to_owned())
                .collect()
        };
        let mut added = image("ami-9");
        added["position"] = json!({"after": "basics"});
        let path = format!("{BUILD}/rule/extra");
        world.put(&path, added.clone()).await.expect(200);
        assert_eq!(order().await, ["basics", "extra", "machine", "image"]);
        // Sent again, because the answer was lost.
        assert_eq!(world.put(&path, added).await.expect(200)["version"], 2);
        let moved = world
            .post(&format!("{path}/move"), json!({"position": "last"}))
            .await
            .expect(200);
        assert_eq!(order().await, ["basics", "machine", "image", "extra"]);
        assert_eq!(world.get(&path).await.expect(200), moved);
        let gone = world.delete(&path).await.expect(200);
        assert_eq!(gone, json!({"ruleId": "extra", "version": 4}));
        assert_eq!(order().await, ["basics", "machine", "image"]);
    }
);

on_sqlite_first!(
    edits_of_rules_that_make_no_sense_are_refused_each_in_its_own_way,
    zones,
    |world| {
        made(world).await;
        for (ask, status, text) in [
            (
                world.put(&format!("{BUILD}/rule/image"), image("ami-5")),
                409,
                "a rule \"image\" exists already",
            ),
            (
                world.post(&format!("{BUILD}/rule/imag"), image("ami-5")),
                404,
                "no rule has the ruleId \"imag\"",
            ),
            (
                world.delete(&format!("{BUILD}/rule/nosuch")),
                404,
                "no rule has the ruleId \"nosuch\"",
            ),
            (
                world.get(&format!("{BUILD}/rule/nosuch")),
                404,
                "no rule has the ruleId \"nosuch\"",
            ),
            (
                world.post(
                    &format!("{BUILD}/rule/image/move"),
                    json!({"position": {"after": "image"}}),
                ),
                400,
                "next to itself",
            ),
            (
                world.post(&format!("{BUILD}/rule/image"), json!({"values": 1})),
                400,
                "/values",
            ),
            (
                world.post(
                    &format!("{BUILD}/rule/image"),
                    json!({"values": {}, "conditions": {"region": "[a"}}),
                ),
                400,
                "/conditions/region",
            ),
            (
                world.post("/worker-configuration/nosuch/rule/image", image("ami-5")),
                404,
                "Worker configuration does not exist",
            ),
        ] {
            let told = refused(ask, status).await;
            assert!(told.contains(text), "{told}");
        }
    }
);

on_both!(
    a_deleted_configuration_frees_its_worker_types_and_can_be_brought_back,
    zones,
    |world| {
        made(world).await;
        let first = ids(world, OPT).await;
        world.delete(BUILD).await.expect(200);
        world.get(BUILD).await.expect(404);
        let pool = world.get(OPT).await.expect(200);
        assert_eq!(pool["providerId"], "null-provider");
        let mut other = build();
        other["workerTypes"] = json!(["build-opt"]);
        world
            .put("/worker-configuration/other", other)
            .await
            .expect(200);
        world
            .post(&format!("{BUILD}/revert"), json!({"to": 1}))
            .await
            .expect(409);
        world
            .delete("/worker-configuration/other")
            .await
            .expect(200);
        let back = world
            .post(&format!("{BUILD}/revert"), json!({"to": 1}))
            .await
            .expect(200);
        assert_eq!(back["version"], 3);
        assert_eq!(ids(world, OPT).await, first);
        world
            .delete("/worker-configuration/nosuch")
            .await
            .expect(404);
    }
);

on_sqlite_first!(
    a_worker_type_that_is_taken_out_loses_its_workers_provider_and_may_come_back,
    zones,
    |world| {
        made(world).await;
        let mut fewer = build();
        fewer["workerTypes"] = json!(["build-dbg"]);
        world.post(BUILD, fewer).await.expect(200);
        assert_eq!(
            world.get(OPT).await.expect(200)["providerId"],
            "null-provider"
        );
        world.keep_house().await;
        world.get(OPT).await.expect(404);
        world.post(BUILD, build()).await.expect(200);
        assert_eq!(world.get(OPT).await.expect(200)["providerId"], "aws");
        // Housekeeping keeps the pools of a configuration.
        world.keep_house().await;
        world.get(OPT).await.expect(200);
    }
);

on_sqlite_first!(
    a_pool_made_by_hand_is_taken_over_only_when_asked_to,
    zones,
    |world| {
        world.put(OPT, static_pool()).await.expect(200);
        let text = refused(world.put(BUILD, build()), 409).await;
        assert!(
            text.starts_with(
                "There is a worker pool worker-manager/build-opt that was made by hand."
            ),
            "{text}"
        );
        let mut adopting = build();
        adopting["adoptPools"] = json!(true);
        let plan = world
            .post(&format!("{BUILD}/plan"), build())
            .await
            .expect(200);
        assert_eq!(
            plan["conflicts"],
            json!([
                "there is a worker pool worker-manager/build-opt that was made by hand (see adoptPools)"
            ])
        );
        // Only with the consent to adopt it is the pool shown with its definition.
        assert_eq!(plan["pools"][0]["change"], "created");
        world.put(BUILD, adopting).await.expect(200);
        assert_eq!(world.get(OPT).await.expect(200)["providerId"], "aws");
    }
);

/// A pool made by hand as `build()` makes it, with these images by zone.
fn by_hand(images: [&str; 3]) -> Value {
    let places = [("us-east-1", "a"), ("us-east-1", "b"), ("us-west-2", "a")];
    let configs = places.iter().zip(images).map(|((region, zone), image)| {
        let zone = format!("{region}{zone}");
        json!({"region": region, "capacityPerInstance": 1,
            "launchConfig": {"ImageId": image, "Placement": {"AvailabilityZone": zone}}})
    });
    let configs: Vec<_> = configs.collect();
    json!({"providerId": "aws", "owner": "ops@example.com", "description": "builds", "emailOnError": false,
        "config": {"minCapacity": 0, "maxCapacity": 10, "launchConfigs": configs}})
}

on_sqlite_first!(
    a_plan_compares_pools_to_adopt_with_their_definitions,
    zones,
    |world| {
        let mut adopting = build();
        adopting["adoptPools"] = json!(true);
        adopting["workerTypes"] = json!(["build-opt"]);
        let plan = async |wanted: &Value| {
            let plan = world.post(&format!("{BUILD}/plan"), wanted.clone());
            plan.await.expect(200)
        };
        world.put(OPT, by_hand(["ami-1"; 3])).await.expect(200);
        let same = plan(&adopting).await;
        let pool = &same["pools"][0];
        assert_eq!(
            (&pool["change"], &pool["kept"]),
            (&json!("adopted"), &json!(3))
        );
        for list in ["settings", "created", "replaced", "updated", "archived"] {
            assert_eq!(pool[list], json!([]), "{list}");
        }

        let mut other = by_hand(["ami-0", "ami-1", "ami-1"]);
        other["owner"] = json!("you@example.com");
        other["config"]["maxCapacity"] = json!(3);
        other["config"]["lifecycle"] = json!({"queueInactivityTimeout": 1_500});
        other["config"]["launchConfigs"][1]["workerManager"] = json!({"maxCapacity": 2});
        world.post(OPT, other).await.expect(200);
        let old = ids(world, OPT).await.remove(0).1;
        let worker = Worker::from_stored(StoredWorker {
            launch_config_id: Some(old.parse().unwrap()),
            ..worker("worker-manager/build-opt", "g", "w").into_stored()
        });
        world.insert(worker).await;
        let differing = plan(&adopting).await;
        let pool = &differing["pools"][0];
        let changed = |values: &Value| -> Vec<Value> {
            let values = values.as_array().unwrap().iter();
            values
                .map(|value| json!([value["pointer"], value["before"], value["after"]]))
                .collect()
        };
        assert_eq!(
            changed(&pool["settings"]),
            [
                json!(["/config/lifecycle", {"queueInactivityTimeout": 1_500, "reregistrationTimeout": 345_600}, null]),
                json!(["/config/maxCapacity", 3, 10]),
                json!(["/owner", "you@example.com", "ops@example.com"]),
            ]
        );
        let replaced = &pool["replaced"][0];
        assert_eq!(replaced["before"], json!(old));
        assert_eq!(
            changed(&replaced["values"]),
            [json!(["/launchConfig/ImageId", "ami-0", "ami-1"])]
        );
        assert_eq!(
            changed(&pool["updated"][0]["values"]),
            [json!(["/workerManager", {"maxCapacity": 2}, null])]
        );
        let counts = json!({"created": 0, "replaced": 1, "updated": 1, "archived": 0, "kept": 2});
        assert_eq!(differing["launchConfigs"], counts);
        assert_eq!(differing["outdatedWorkers"], 1);
        // The plan matches the result.
        world.put(BUILD, adopting.clone()).await.expect(200);
        assert_eq!(world.get(OPT).await.expect(200)["owner"], "ops@example.com");
        assert_eq!(plan(&adopting).await["pools"], json!([]));
    }
);

on_sqlite_first!(
    a_pool_can_have_launch_configs_of_several_providers,
    zones,
    |world| {
        let google = json!({"machineType": "n2", "region": "us-central1", "zone": "us-central1-a", "scheduling": {},
        "disks": [], "networkInterfaces": [], "workerConfig": {}, "capacityPerInstance": 1});
        let both = with_rule(
            build(),
            rule(
                "google",
                Value::Null,
                json!({"providers": {"google": {}}, "google": google}),
            ),
        );
        world.put(BUILD, both).await.expect(200);
        let pool = world.get(OPT).await.expect(200);
        let configs = pool["config"]["launchConfigs"].as_array().unwrap();
        let providers: Vec<_> = configs
            .iter()
            .map(|config| config["workerManager"]["providerId"].clone())
            .collect();
        assert_eq!(
            providers,
            [Value::Null, Value::Null, Value::Null, json!("google")]
        );
        let stored = world
            .read(|tx| store::pools::get(tx, &"worker-manager/build-opt".parse().unwrap()))
            .await
            .unwrap();
        assert!(stored.has_provider(&"google".parse().unwrap()));
        // And back to one.
        world.post(BUILD, build()).await.expect(200);
        let stored = world
            .read(|tx| store::pools::get(tx, &"worker-manager/build-opt".parse().unwrap()))
            .await
            .unwrap();
        assert_eq!(stored.previous_provider_ids, ["google".parse().unwrap()]);
    }
);

on_sqlite_first!(
    replies_to_clients_without_rules_keep_their_form,
    zones,
    |world| {
        made(world).await;
        let pools = world.get("/worker-pools").await.expect(200);
        assert_eq!(pools["workerPools"].as_array().unwrap().len(), 2);
        let configs = world
            .get(&format!("{OPT}/launch-configs"))
            .await
            .expect(200);
        assert_eq!(
            configs["workerPoolLaunchConfigs"].as_array().unwrap().len(),
            3
        );
        let listed = world.get("/worker-configurations").await.expect(200);
        assert_eq!(
            listed["workerConfigurations"][0]["workerConfigurationId"],
            "build"
        );
        assert_eq!(listed["workerConfigurations"][0].get("rules"), None);
    }
);
