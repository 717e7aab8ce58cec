//! Explanations of worker configurations: mistakes, origins, plans, history, payload schemas.

use domain::worker::{StoredWorker, Worker};
use serde_json::{Value, json};
use testing::sizes_around;

use crate::configurations::{BUILD, OPT, build, ids, image, made, refused, rule, with_rule, zones};
use crate::database::{assert_snapshot, on_both, on_sqlite_first};
use crate::queue_samples::{new_task, task_id};
use crate::samples::static_worker;

on_both!(
    the_complete_history_is_kept_compared_and_reverted,
    zones,
    |world| {
        made(world).await;
        let first = ids(world, OPT).await;
        let mut second = image("ami-2");
        second["reason"] = json!("new kernel");
        world
            .post(&format!("{BUILD}/rule/image"), second)
            .await
            .expect(200);
        let versions = world.get(&format!("{BUILD}/versions")).await.expect(200);
        let seen: Vec<_> = versions["versions"]
            .as_array()
            .unwrap()
            .iter()
            .map(|v| {
                format!(
                    "{} {} {} {}",
                    v["version"], v["action"], v["clientId"], v["reason"]
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                r#"2 "rule-replaced" "static/root" "image: new kernel""#,
                r#"1 "created" "static/root" """#,
            ]
        );
        let difference = world
            .get(&format!("{BUILD}/difference/1/2"))
            .await
            .expect(200);
        assert_eq!(
            difference["rules"],
            json!([{"ruleId": "image", "change": "changed", "values": [
        {"pointer": "/values/aws/launchConfig/ImageId", "before": "ami-1", "after": "ami-2"}]}])
        );
        assert_eq!(
            difference["launchConfigs"],
            json!({"created": 0, "replaced": 6, "archived": 0, "kept": 0, "updated": 0})
        );
        let reply = world
            .post(&format!("{BUILD}/revert"), json!({"to": 1}))
            .await
            .expect(200);
        assert_eq!(reply["version"], 3);
        assert_eq!(ids(world, OPT).await, first);
        let old = world.get(&format!("{BUILD}/version/2")).await.expect(200);
        assert_eq!(
            old["rules"][2]["values"]["aws"]["launchConfig"]["ImageId"],
            "ami-2"
        );
        world.get(&format!("{BUILD}/version/4")).await.expect(404);
        world
            .post(&format!("{BUILD}/revert"), json!({"to": 9}))
            .await
            .expect(404);
        world
            .get("/worker-configuration/nosuch/versions")
            .await
            .expect(404);
    }
);

on_sqlite_first!(
    a_providers_refusal_names_the_place_and_the_rule,
    zones,
    |world| {
        let wrong = with_rule(
            build(),
            rule(
                "oops",
                json!({"availabilityZone": "us-east-1b"}),
                json!({"aws": {"capacityPerInstance": 0}}),
            ),
        );
        let text = refused(world.put(BUILD, wrong), 400).await;
        assert_snapshot!(text.lines().take(2).collect::<Vec<_>>().join("\n"), @"
    The provider aws refuses 2 worker types (schema worker-manager/v1/config-aws.json):
    * with availabilityZone=us-east-1b, provider=aws, region=us-east-1, workerType=build-opt and 1 more, of 2 worker types: /aws/capacityPerInstance must be >= 1 (rules \"machine\", \"oops\")
    ");
        world.get(BUILD).await.expect(404);
        world.get(OPT).await.expect(404);
    }
);

on_sqlite_first!(
    bad_documents_are_refused_with_rule_and_path_and_change_nothing,
    zones,
    |world| {
        made(world).await;
        let told_before = world.told().await;
        assert!(told_before.contains("worker-pool-created"));
        for (extra, text) in [
            (
                json!({"ruleId": "x", "values": {}, "vlaues": {}}),
                "/rules/3",
            ),
            (rule("image", Value::Null, json!({})), "image"),
            (
                rule("x", Value::Null, json!({"owner": null})),
                "/owner: is required, and no rule that applies sets it (rules \"basics\", \"x\")",
            ),
            (rule("x", Value::Null, json!({"owner": "nobody"})), "/owner"),
            (
                rule("x", Value::Null, json!({"providers": {"nosuch": {}}})),
                "\"nosuch\" is not a provider. The providers are: aws, azure, google, pausing, static",
            ),
            (
                rule("x", Value::Null, json!({"payloadSchema": {"type": "x"}})),
                "/payloadSchema the JSON Schema cannot be used",
            ),
            (
                rule("x", json!({"region": "[z-"}), json!({})),
                "/rules/3/conditions/region",
            ),
        ] {
            let text_told = refused(world.post(BUILD, with_rule(build(), extra)), 400).await;
            assert!(text_told.contains(text), "{text}: {text_told}");
        }
        assert_eq!(world.get(BUILD).await.expect(200)["version"], 1);
        assert_eq!(world.told().await, "");
    }
);

on_sqlite_first!(a_failed_provider_is_distinguished_from_a_mistake, |world| {
    let wanted = json!({"workerTypes": ["a"], "rules": [rule("basics", Value::Null,
        json!({"owner": "ops@example.com", "description": "d", "maxCapacity": 1, "providers": {"shaky": {}}, "shaky": {}}))]});
    let text = refused(world.put(BUILD, wanted), 503).await;
    assert!(
        text.contains("/providers/shaky: the places of the provider are not known now"),
        "{text}"
    );
    world.get(BUILD).await.expect(404);
});

on_sqlite_first!(
    an_evaluation_says_where_each_value_comes_from,
    zones,
    |world| {
        made(world).await;
        world.put(&format!("{BUILD}/rule/b"), json!({"conditions": {"availabilityZone": "*b"}, "values": {"aws": {"launchConfig": {"ImageId": "ami-b"}}}})).await.expect(200);
        let asked = json!({"conditions": {"workerType": "build-opt", "provider": "aws", "region": "us-east-1", "availabilityZone": "us-east-1b"},
        "pointer": "/aws/launchConfig/ImageId"});
        let reply = world
            .post(&format!("{BUILD}/evaluate"), asked)
            .await
            .expect(200);
        assert_eq!(
            reply["values"]["aws"],
            json!({"capacityPerInstance": 1, "launchConfig": {"ImageId": "ami-b"}})
        );
        assert_eq!(
            reply["applying"],
            json!(["basics", "machine", "image", "b"])
        );
        assert_eq!(reply["origins"]["/aws/launchConfig/ImageId"]["ruleId"], "b");
        assert!(
            reply["text"].as_str().unwrap().contains("image"),
            "{}",
            reply["text"]
        );
        world
            .post(
                &format!("{BUILD}/evaluate"),
                json!({"conditions": {"a": 1}}),
            )
            .await
            .expect(400);
        world
            .post(
                "/worker-configuration/nosuch/evaluate",
                json!({"conditions": {}}),
            )
            .await
            .expect(404);
    }
);

on_sqlite_first!(rules_are_evaluated_without_being_stored, |world| {
    let rules = json!([
        rule("one", Value::Null, json!({"a": 1})),
        rule("two", json!({"x": "y*"}), json!({"a": 2}))
    ]);
    let reply = world
        .post(
            "/evaluate-rules",
            json!({"rules": rules, "conditions": {"x": "yes"}}),
        )
        .await
        .expect(200);
    assert_eq!(reply["values"], json!({"a": 2}));
    let text = refused(
        world.post(
            "/evaluate-rules",
            json!({"rules": [{"ruleId": ""}], "conditions": {}}),
        ),
        400,
    )
    .await;
    assert!(text.contains("/0"), "{text}");
    let long = "x".repeat(1_025);
    for conditions in [json!({"region": &long}), json!({&long: "x"})] {
        let body = json!({"rules": rules, "conditions": conditions});
        let text = refused(world.post("/evaluate-rules", body), 400).await;
        assert!(text.contains("may have 1024 bytes each"), "{text}");
    }
});

on_sqlite_first!(the_number_of_conditions_is_bounded, |world| {
    const LIMIT: usize = 64;
    for count in sizes_around(
        "server::api::worker_manager::configurations::evaluate::MAX_CONDITIONS",
        LIMIT,
    ) {
        let name = |number: usize| format!("c{number:03}");
        let conditions: serde_json::Map<String, Value> = (0..count)
            .map(|number| (name(number), json!("x")))
            .collect();
        // The last one counts, too.
        let last = json!({name(count.max(1) - 1): "x"});
        let rules = json!([rule("last", last, json!({"a": 1}))]);
        let body = json!({"rules": rules, "conditions": conditions});
        let asked = world.post("/evaluate-rules", body);
        if count > LIMIT {
            let text = refused(asked, 400).await;
            assert_eq!(text, "At most 64 conditions can be given");
            continue;
        }
        let expected = if count == 0 {
            json!({})
        } else {
            json!({"a": 1})
        };
        assert_eq!(asked.await.expect(200)["values"], expected, "{count}");
    }
});

on_sqlite_first!(a_plan_shows_the_changes_and_makes_none, zones, |world| {
    let plan = world
        .post(&format!("{BUILD}/plan"), build())
        .await
        .expect(200);
    assert_eq!(plan["version"], Value::Null);
    assert_eq!(plan["launchConfigs"]["created"], 6);
    world.get(BUILD).await.expect(404);
    made(world).await;
    let same = world
        .post(&format!("{BUILD}/plan"), build())
        .await
        .expect(200);
    assert_eq!(
        (&same["pools"], &same["rules"], &same["unchangedPools"]),
        (&json!([]), &json!([]), &json!(2))
    );
    // One worker runs from what would be replaced.
    let id = ids(world, OPT).await[0].1.clone();
    let worker = crate::samples::worker("worker-manager/build-opt", "us-east-1", "i-1");
    let worker = StoredWorker {
        launch_config_id: Some(id.parse().unwrap()),
        ..worker.into_stored()
    };
    world.insert(Worker::from_stored(worker)).await;
    let next = with_rule(
        build(),
        rule(
            "a",
            json!({"workerType": "build-opt", "availabilityZone": "us-east-1a"}),
            json!({"aws": {"launchConfig": {"ImageId": "ami-2"}}}),
        ),
    );
    let plan = world.post(&format!("{BUILD}/plan"), next).await.expect(200);
    assert_eq!(plan["rules"], json!([{"ruleId": "a", "change": "added"}]));
    assert_eq!(
        plan["launchConfigs"],
        json!({"created": 0, "replaced": 1, "archived": 0, "kept": 2, "updated": 0})
    );
    assert_eq!(plan["outdatedWorkers"], 1);
    let replaced = &plan["pools"][0]["replaced"][0];
    assert_eq!(
        (&replaced["before"], &replaced["workers"]),
        (&json!(id), &json!(1))
    );
    assert_eq!(
        replaced["values"],
        json!([{"pointer": "/launchConfig/ImageId", "before": "ami-1", "after": "ami-2"}])
    );
    assert_eq!(world.get(BUILD).await.expect(200)["version"], 1);
});

on_sqlite_first!(
    payload_schemas_are_shown_and_checked_if_rules_ask_for_that,
    zones,
    |world| {
        let schema = |name: &str| json!({"type": "object", "required": [name]});
        let mut document = build();
        document["rules"].as_array_mut().unwrap().extend([
            rule(
                "schema",
                Value::Null,
                json!({"payloadSchema": schema("command")}),
            ),
            rule(
                "check",
                json!({"workerType": "build-opt"}),
                json!({"checkPayload": true}),
            ),
            rule(
                "b",
                json!({"availabilityZone": "us-east-1b"}),
                json!({"payloadSchema": schema("zone")}),
            ),
        ]);
        world.put(BUILD, document).await.expect(200);
        let shown = world
            .get("/worker-type/build-opt/payload-schema")
            .await
            .expect(200);
        assert_eq!(
            shown,
            json!({"workerConfigurationId": "build", "checkPayload": true, "payloadSchema": schema("command")})
        );
        let ids = ids(world, OPT).await;
        let of = |id: &str| {
            format!("/worker-type/worker-manager/build-opt/launch-config/{id}/payload-schema")
        };
        assert_eq!(
            world.get(&of(&ids[0].1)).await.expect(200)["payloadSchema"]["required"],
            json!(["command"])
        );
        let narrow = world.get(&of(&ids[1].1)).await.expect(200)["payloadSchema"].clone();
        assert_eq!(narrow["required"], json!(["zone"]));
        world.get(&of("nosuch")).await.expect(404);
        world
            .get("/worker-type/nosuch/payload-schema")
            .await
            .expect(404);

        let task = |queue: &str, payload: Value| {
            new_task(world, json!({"taskQueueId": queue, "payload": payload}))
        };
        let path = |number: u32| format!("queue:/task/{}", task_id(number));
        let misfit = task("worker-manager/build-opt", json!({"commnd": []}));
        let text = refused(world.put(&path(1), misfit), 400).await;
        assert_snapshot!(text, @"
    The payload does not fit the payload schema of worker-manager/build-opt:
    * payload must have required property 'command'

    The schema is at http://fleet.example.com/api/worker-manager/v1/worker-type/worker-manager/build-opt/payload-schema; the worker configuration build asks that payloads are checked. Nothing was created.
    ");
        world.get(&path(1)).await.expect(404);
        world
            .put(
                &path(1),
                task("worker-manager/build-opt", json!({"command": []})),
            )
            .await
            .expect(200);
        // No rule adds it there.
        world
            .put(&path(2), task("worker-manager/build-dbg", json!({})))
            .await
            .expect(200);
    }
);

on_sqlite_first!(the_offers_of_providers_are_listed, zones, |world| {
    let reply = world.get("/provider-places").await.expect(200);
    let providers = reply["providers"].as_array().unwrap();
    let of = |id: &str| {
        let mut all = providers.iter();
        all.find(|told| told["providerId"] == id).unwrap()
    };
    let aws = of("aws");
    assert_eq!(aws["takes"], "launches");
    assert_eq!(
        aws["places"][1],
        json!({"region": "us-east-1", "availabilityZone": "us-east-1b"})
    );
    assert_eq!(aws["fills"]["region"], "/region");
    assert_eq!(of("static")["takes"], "declarations");
    assert_eq!(of("shaky").get("places"), None);
    let problem = of("shaky")["problem"].as_str().unwrap();
    assert!(!problem.is_empty());
});

on_sqlite_first!(
    nothing_is_written_while_a_provider_cannot_list_its_offers,
    zones,
    |world| {
        let opts_in = rule("shaky", Value::Null, json!({"providers": {"shaky": {}}}));
        let wanted = with_rule(build(), opts_in);
        let text = refused(world.put(BUILD, wanted.clone()), 503).await;
        for part in ["workerType=build-opt", "/providers/shaky", "tried again"] {
            assert!(text.contains(part), "{part}: {text}");
        }
        world.get(BUILD).await.expect(404);
        world.get(OPT).await.expect(404);
        made(world).await;
        refused(world.post(BUILD, wanted), 503).await;
        assert_eq!(world.get(BUILD).await.expect(200)["version"], 1);
    }
);

on_sqlite_first!(
    a_payload_schema_that_makes_no_sense_is_refused_with_its_place_and_rule,
    zones,
    |world| {
        let in_b = json!({"availabilityZone": "us-east-1b"});
        for (schema, said) in [
            (json!({"type": "no such type"}), "type"),
            (json!(["a list"]), "must be a JSON Schema"),
        ] {
            let odd = rule("odd", in_b.clone(), json!({"payloadSchema": schema}));
            let text = refused(world.put(BUILD, with_rule(build(), odd)), 400).await;
            for part in ["/payloadSchema", "us-east-1b", "\"odd\"", said] {
                assert!(text.contains(part), "{part}: {text}");
            }
        }
        world.get(BUILD).await.expect(404);
    }
);

on_sqlite_first!(
    workers_that_people_declare_have_pools_of_rules_too,
    zones,
    |world| {
        let by_hand = rule(
            "by hand",
            json!({"workerType": "build-dbg"}),
            json!({"providers": {"aws": null, "static": {}}, "lifecycle": {"reregistrationTimeout": 3600}}),
        );
        world
            .put(BUILD, with_rule(build(), by_hand))
            .await
            .expect(200);
        let pool = "/worker-pool/worker-manager%2Fbuild-dbg";
        let pool = world.get(pool).await.expect(200);
        assert_eq!(pool["providerId"], "static");
        // The workers do not get the limits of launches.
        assert_eq!(
            pool["config"],
            json!({"lifecycle": {"reregistrationTimeout": 3600}})
        );
        let declared = "/workers/worker-manager%2Fbuild-dbg/g/w";
        world.put(declared, static_worker()).await.expect(200);
    }
);
