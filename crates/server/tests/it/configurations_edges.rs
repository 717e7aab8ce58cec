//! Edge cases of worker configurations: equal ids, completion by providers, and stored rules that
//! are refused today.

use cloud::ProviderConfig;
use serde_json::{Value, json};
use server::config::Config;

use crate::configurations::{BUILD, OPT, build, made, refused, rule, with_rule, zones};
use crate::database::{on_both, on_sqlite_first};
use crate::world::World;

/// A second cloud like `aws`, and both without places.
fn twins(config: &mut Config) {
    let providers = &mut config.providers.0;
    let aws = providers.iter().find(|(id, _)| id.as_str() == "aws");
    let ProviderConfig::Fake(settings) = aws.unwrap().1.clone() else {
        panic!("aws is a fake cloud here");
    };
    let twin = "aws-twin".parse().unwrap();
    providers.insert(0, (twin, ProviderConfig::Fake(settings)));
}

/// `build`, launched by both.
fn by_twins(launch_config: &Value) -> Value {
    let section = json!({"region": "r", "capacityPerInstance": 1, "launchConfig": launch_config});
    let both =
        json!({"providers": {"aws": {}, "aws-twin": {}}, "aws": section, "aws-twin": section});
    let mut document = build();
    document["rules"].as_array_mut().unwrap().truncate(1);
    with_rule(document, rule("both", Value::Null, both))
}

/// Another version with the same content, not compiled yet.
async fn stored_anew(world: &World, market: Option<Value>) {
    let write = world.write(move |tx| {
        let id = "build".parse().unwrap();
        let mut stored = store::configurations::get(tx, &id)?.unwrap();
        let seen = stored.version;
        stored.market = market.clone().unwrap_or(stored.market);
        stored.version = seen.next();
        store::configurations::update(tx, &stored, seen)
    });
    write.await;
}

async fn steering(world: &World) -> Vec<Value> {
    let pool = world.get(OPT).await.expect(200);
    let configs = pool["config"]["launchConfigs"].as_array().unwrap();
    configs
        .iter()
        .map(|config| config["workerManager"].clone())
        .collect()
}

on_sqlite_first!(
    two_providers_may_launch_the_same_each_under_an_id_of_its_own,
    twins,
    |world| {
        let document = by_twins(&json!({"ImageId": "ami-1"}));
        let plan = world.post(&format!("{BUILD}/plan"), document.clone());
        assert_eq!(plan.await.expect(200)["launchConfigs"]["created"], 4);
        world.put(BUILD, document.clone()).await.expect(200);
        let steering = steering(world).await;
        assert_eq!(steering.len(), 2, "{steering:?}");
        assert_eq!(steering[0].get("providerId"), None);
        assert_eq!(steering[1]["providerId"], "aws-twin");
        assert_ne!(steering[0]["launchConfigId"], steering[1]["launchConfigId"]);
        // The same content gives the same result, also when the stored version is compiled.
        stored_anew(world, None).await;
        let plan = world.post(&format!("{BUILD}/plan"), document);
        let plan = plan.await.expect(200);
        assert_eq!(plan["pools"], json!([]), "{plan}");
    }
);

on_sqlite_first!(
    an_id_that_is_given_for_two_contents_is_refused_with_both_places,
    twins,
    |world| {
        let other = json!({"aws-twin": {"launchConfig": {"ImageId": "ami-2"}}});
        let document = by_twins(&json!({"ImageId": "ami-1"}));
        let mut document = with_rule(document, rule("other", Value::Null, other));
        world.put(BUILD, document.clone()).await.expect(200);
        let ids = given(&steering(world).await);
        document["launchConfigIds"] = json!({(ids[0].as_str()): "mine", (ids[1].as_str()): "mine"});
        let text = refused(world.post(BUILD, document), 400).await;
        for part in ["provider=aws-twin", "the id mine", "(with provider=aws,"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(world.get(BUILD).await.expect(200)["version"], 1);
    }
);

/// The ids under `workerManager`.
fn given(steering: &[Value]) -> Vec<String> {
    let ids = steering.iter().map(|steering| &steering["launchConfigId"]);
    ids.map(|id| id.as_str().unwrap().to_owned()).collect()
}

on_sqlite_first!(
    an_id_that_stands_for_other_content_is_a_conflict_that_a_plan_foresees,
    |world| {
        let with = |ami: &str, ids: Value| {
            let values = json!({"aws": {"region": "r", "launchConfig": {"ImageId": ami}}});
            let mut document = with_rule(build(), rule("own", Value::Null, values));
            document["launchConfigIds"] = ids;
            document
        };
        world.put(BUILD, with("ami-7", json!({}))).await.expect(200);
        let seven = given(&steering(world).await).remove(0);
        let mine = json!({(seven.as_str()): "mine"});
        world
            .post(BUILD, with("ami-7", mine.clone()))
            .await
            .expect(200);
        assert_eq!(given(&steering(world).await), ["mine"]);
        // The id holds for its content only, so that other content is no conflict.
        world.post(BUILD, with("ami-8", mine)).await.expect(200);
        let eight = given(&steering(world).await).remove(0);
        assert!(eight.starts_with("lc-"), "{eight}");
        let moved = with("ami-8", json!({(eight.as_str()): "mine"}));
        let plan = world.post(&format!("{BUILD}/plan"), moved.clone());
        let plan = plan.await.expect(200);
        let foreseen = plan["conflicts"][0].as_str().unwrap().to_owned();
        let text = refused(world.post(BUILD, moved), 409).await;
        assert_eq!(text, foreseen);
        for part in ["provider=aws", "workerType=build-opt", "`mine`"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        assert_eq!(world.get(BUILD).await.expect(200)["version"], 3);
    }
);

/// A cloud that puts values of its own into launch configs.
fn generous(config: &mut Config) {
    let cloud = serde_json::from_value(json!({"kind": "fake"})).unwrap();
    let id = "generous".parse().unwrap();
    config.providers.0.push((id, cloud));
}

on_sqlite_first!(
    completed_launch_configs_have_their_ids_in_plans_and_schemas,
    generous,
    |world| {
        let with = |machine: &str| {
            let values = json!({"payloadSchema": {"type": "object"}, "providers": {"aws": null, "generous": {}},
                "generous": {"workerConfig": {"machine": machine}}});
            let mut document = build();
            document["rules"].as_array_mut().unwrap().truncate(1);
            with_rule(document, rule("generous", Value::Null, values))
        };
        world.put(BUILD, with("m1")).await.expect(200);
        let pool = world.get(OPT).await.expect(200);
        let config = &pool["config"]["launchConfigs"][0];
        assert_eq!(config["region"], "fake");
        let id = config["workerManager"]["launchConfigId"].as_str().unwrap();
        stored_anew(world, None).await;
        let of = format!("/worker-type/build-opt/launch-config/{id}/payload-schema");
        assert_eq!(
            world.get(&of).await.expect(200)["payloadSchema"],
            json!({"type": "object"})
        );
        let plan = world.post(&format!("{BUILD}/plan"), with("m2"));
        let plan = plan.await.expect(200);
        assert_eq!(plan["pools"][0]["replaced"][0]["before"], id);
        world.post(BUILD, with("m2")).await.expect(200);
        let pool = world.get(OPT).await.expect(200);
        let next = &pool["config"]["launchConfigs"][0]["workerManager"]["launchConfigId"];
        assert_eq!(*next, plan["pools"][0]["replaced"][0]["after"]);
    }
);

on_both!(
    a_stored_configuration_that_is_invalid_today_can_be_replaced_reverted_and_deleted,
    zones,
    |world| {
        made(world).await;
        let spoil = || stored_anew(world, Some(json!({"providers": {}})));
        spoil().await;
        let asked = json!({"conditions": {}});
        let text = refused(world.post(&format!("{BUILD}/evaluate"), asked), 409).await;
        for part in ["\"aws\" is not a provider", "revert it or delete it"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        let plan = world.post(&format!("{BUILD}/plan"), build());
        assert_eq!(plan.await.expect(200)["conflicts"], json!([]));
        let mut narrow = build();
        narrow["workerTypes"] = json!(["build-opt"]);
        let reply = world.post(BUILD, narrow).await.expect(200);
        assert_eq!(reply["version"], 3);
        let dropped = "/worker-pool/worker-manager%2Fbuild-dbg";
        let dropped = world.get(dropped).await.expect(200);
        assert_eq!(dropped["providerId"], "null-provider");
        spoil().await;
        let back = world.post(&format!("{BUILD}/revert"), json!({"to": 1}));
        assert_eq!(back.await.expect(200)["version"], 5);
        spoil().await;
        world.delete(BUILD).await.expect(200);
        world.get(BUILD).await.expect(404);
        let pool = world.get(OPT).await.expect(200);
        assert_eq!(pool["providerId"], "null-provider");
    }
);

on_sqlite_first!(
    a_provider_that_comes_and_goes_makes_no_versions_of_those_who_do_not_use_it,
    zones,
    |world| {
        assert_eq!(made(world).await["version"], 1);
        let works = &world.shaky.works;
        works.store(true, std::sync::atomic::Ordering::Release);
        world.set_up_providers().await;
        assert_eq!(made(world).await["version"], 1);
        stored_anew(world, None).await;
        assert_eq!(made(world).await["version"], 2);
    }
);

on_sqlite_first!(
    a_rule_that_names_an_unknown_strategy_service_is_refused,
    twins,
    |world| {
        let service = json!({"strategy": "external", "externalStrategy": "nobody"});
        let document = with_rule(build(), rule("thinker", Value::Null, service));
        let text = refused(world.put(BUILD, document), 400).await;
        let wanted = "there is no strategy service nobody: the configuration of the server has no \
                      section [strategies.nobody]";
        assert!(text.contains(wanted), "{text}");
        assert!(
            text.contains("/externalStrategy") && text.contains("thinker"),
            "{text}"
        );
        let incomplete = json!({"strategy": "external"});
        let document = with_rule(build(), rule("thinker", Value::Null, incomplete));
        let text = refused(world.put(BUILD, document), 400).await;
        assert!(text.contains("/externalStrategy"), "{text}");
    }
);

/// The cloud `google`, which has no places, in a region.
fn in_a_region(config: &mut Config) {
    let mut providers = config.providers.0.iter_mut();
    let google = providers.find(|(id, _)| id.as_str() == "google");
    let ProviderConfig::Fake(settings) = &mut google.unwrap().1 else {
        panic!("google is a fake cloud here");
    };
    settings.region = Some("dc1".to_owned().try_into().unwrap());
}

on_sqlite_first!(
    the_configured_region_of_a_provider_is_a_condition_of_its_rules,
    |config| { super::in_a_region(config) },
    |world| {
        let places = world.get("/provider-places").await.expect(200);
        let providers = places["providers"].as_array().unwrap();
        let google = providers.iter().find(|it| it["providerId"] == "google");
        assert_eq!(google.unwrap()["places"], json!([{"region": "dc1"}]));
        let mut document = build();
        let rules = document["rules"].as_array_mut().unwrap();
        rules.truncate(1);
        rules[0]["values"]["providers"] = json!({"google": {}});
        let launch_config = json!({"zone": "dc1-a", "capacityPerInstance": 1,
            "workerConfig": {}, "machineType": "zones/dc1-a/machineTypes/m", "scheduling": {},
            "disks": [], "networkInterfaces": []});
        let fixed = |region: &str| {
            let values = json!({"google": launch_config});
            with_rule(
                document.clone(),
                rule("fixed", json!({"region": region}), values),
            )
        };
        let text = refused(world.put(BUILD, fixed("google")), 400).await;
        assert!(text.contains("region=dc1"), "{text}");
        world.put(BUILD, fixed("dc*")).await.expect(200);
    }
);

on_sqlite_first!(
    rules_with_references_elements_and_sets_are_stored_edited_and_evaluated,
    zones,
    |world| {
        let mut document = build();
        document["sets"] = json!({"optimised": ["*-opt"]});
        let condition = json!({"workerType": {"set": "optimised"}});
        let mut extended = rule(
            "extended",
            condition,
            json!({"description": "for ${workerType}"}),
        );
        extended["references"] = json!(true);
        let document = with_rule(document, extended.clone());
        world.put(BUILD, document.clone()).await.expect(200);
        let stored = world.get(BUILD).await.expect(200);
        assert_eq!(stored["sets"], document["sets"]);
        assert_eq!(
            world.get(OPT).await.expect(200)["description"],
            "for build-opt"
        );

        let at = format!("{BUILD}/rule/extended");
        let mut body = extended.clone();
        body["elements"] = json!({"/tags/-": "x", "/tags/[=y]": null});
        body["values"]["regions"] = json!(["${/region}"]);
        let text = refused(world.post(&at, body.clone()), 400).await;
        assert!(
            text.contains("/regions/0: ${/region} has no value"),
            "{text}"
        );
        body["conditions"]["workerType"]["set"] = json!("optimized");
        let text = refused(world.post(&at, body.clone()), 400).await;
        assert!(
            text.contains(r#"no set has the name "optimized", did you mean "optimised"?"#),
            "{text}"
        );

        let asked = json!({"conditions": {"workerType": "build-opt"}, "sets": document["sets"],
            "rules": [extended], "pointer": "/description"});
        let reply = world
            .post("/evaluate-rules", asked.clone())
            .await
            .expect(200);
        assert_eq!(reply["values"]["description"], "for build-opt");
        assert_eq!(
            reply["origins"]["/description"]["references"],
            json!(["workerType"])
        );
        let mut asked = asked;
        asked["rules"][0]["values"]["description"] = json!("${zone}");
        let reply = world.post("/evaluate-rules", asked).await.expect(200);
        assert_eq!(reply["evaluationErrors"][0]["ruleId"], "extended");
    }
);
