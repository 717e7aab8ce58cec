//! Scopes for reading, changing and evaluating worker configurations and their rules.

use serde_json::{Value, json};

use crate::ask::Ask;
use crate::authorization::{Case, case, case_with};
use crate::configurations::{BUILD, build, image, made, rule, with_rule, zones};
use crate::database::on_sqlite_first;
use crate::world::World;

const MANAGE: &[&str] = &["worker-manager:manage-worker-configuration:build"];
const READ: &[&str] = &["worker-manager:get-worker-configuration:build"];

pub(crate) fn whole_cases() -> Vec<Case> {
    let whole: &[&str] = &[
        "worker-manager:manage-worker-configuration:build",
        "worker-manager:manage-worker-type:build-opt",
        "worker-manager:manage-worker-type:build-dbg",
        "worker-manager:provider:aws",
        "worker-manager:manage-worker-pool:worker-manager/build-opt",
        "worker-manager:manage-worker-pool:worker-manager/build-dbg",
    ];
    let mut adopting = build();
    adopting["adoptPools"] = json!(true);
    let path = "/worker-configuration/build";
    vec![
        case_with("createWorkerConfiguration", path, adopting.clone(), whole),
        case_with("updateWorkerConfiguration", path, adopting.clone(), whole),
        case("deleteWorkerConfiguration", path, MANAGE),
        case("workerConfiguration", path, READ),
        case(
            "listWorkerConfigurations",
            "/worker-configurations",
            &["worker-manager:list-worker-configurations"],
        ),
        case_with(
            "planWorkerConfiguration",
            "/worker-configuration/build/plan",
            adopting,
            &[
                "worker-manager:get-worker-configuration:build",
                "worker-manager:provider:aws",
                "worker-manager:get-worker-pool:worker-manager/build-opt",
                "worker-manager:get-worker-pool:worker-manager/build-dbg",
            ],
        ),
        case(
            "listWorkerConfigurationVersions",
            "/worker-configuration/build/versions",
            READ,
        ),
        case(
            "workerConfigurationVersion",
            "/worker-configuration/build/version/1",
            READ,
        ),
        case(
            "compareWorkerConfigurationVersions",
            "/worker-configuration/build/difference/1/2",
            READ,
        ),
        case_with(
            "revertWorkerConfiguration",
            "/worker-configuration/build/revert",
            json!({"to": 1}),
            MANAGE,
        ),
    ]
}

pub(crate) fn rule_cases() -> Vec<Case> {
    let one: &[&str] = &["worker-manager:edit-rule:build/image"];
    let rule = json!({"values": {}});
    let opting = json!({"values": {"providers": {"aws": {}, "google": null}}});
    let evaluation = json!({"conditions": {}});
    let given = json!({"conditions": {}, "rules": []});
    let image = "/worker-configuration/build/rule/image";
    let shift = "/worker-configuration/build/rule/image/move";
    let schema: &[&str] = &["worker-manager:get-payload-schema:a"];
    vec![
        case("workerConfigurationRule", image, READ),
        case_with("addWorkerConfigurationRule", image, rule.clone(), one),
        case_with("addWorkerConfigurationRule", image, rule.clone(), MANAGE),
        case_with(
            "addWorkerConfigurationRule",
            image,
            opting,
            &[
                "worker-manager:edit-rule:build/image",
                "worker-manager:provider:aws",
                "worker-manager:provider:google",
            ],
        ),
        case_with("replaceWorkerConfigurationRule", image, rule, one),
        case("removeWorkerConfigurationRule", image, one),
        case_with(
            "moveWorkerConfigurationRule",
            shift,
            json!({"position": "last"}),
            one,
        ),
        case_with(
            "evaluateWorkerConfiguration",
            "/worker-configuration/build/evaluate",
            evaluation,
            READ,
        ),
        case_with(
            "evaluateRules",
            "/evaluate-rules",
            given,
            &["worker-manager:evaluate-rules"],
        ),
        case(
            "listPlaces",
            "/provider-places",
            &["worker-manager:list-providers"],
        ),
        case(
            "workerTypePayloadSchema",
            "/worker-type/worker-manager%2Fa/payload-schema",
            schema,
        ),
        case(
            "launchConfigPayloadSchema",
            "/worker-type/worker-manager%2Fa/launch-config/lc-1/payload-schema",
            schema,
        ),
    ]
}

const OPT: &str = "worker-manager:manage-worker-type:build-opt";
const DBG: &str = "worker-manager:manage-worker-type:build-dbg";
const AWS: &str = "worker-manager:provider:aws";
const EDIT: &str = "worker-manager:edit-rule:build/extra";

fn with(world: &World, ask: Ask, scopes: &[&str]) -> Ask {
    ask.by(&world.root().temporary(None, scopes, world.now()))
}

/// Each of the scopes is needed: without any one of them the request is refused.
async fn takes(world: &World, ask: impl Fn() -> Ask, scopes: &[&str]) -> Value {
    for missing in scopes {
        let held: Vec<&str> = scopes
            .iter()
            .copied()
            .filter(|held| held != missing)
            .collect();
        let refused = with(world, ask(), &held).await;
        assert_eq!(refused.status, 403, "without {missing}: {}", refused.text);
    }
    with(world, ask(), scopes).await.expect(200)
}

on_sqlite_first!(
    worker_types_are_taken_away_only_by_those_who_may_manage_them,
    zones,
    |world| {
        made(world).await;
        let mut fewer = build();
        fewer["workerTypes"] = json!(["build-dbg"]);
        let whole = [MANAGE[0], OPT, DBG, AWS];
        takes(world, || world.post(BUILD, fewer.clone()), &whole).await;
        world.post(BUILD, build()).await.expect(200);
        let revert = || world.post(&format!("{BUILD}/revert"), json!({"to": 2}));
        takes(world, revert, &whole).await;
        world.post(BUILD, build()).await.expect(200);
        takes(world, || world.delete(BUILD), &whole[..3]).await;
    }
);

on_sqlite_first!(
    a_rule_is_edited_with_its_own_scope_or_with_those_of_an_update,
    zones,
    |world| {
        let extra = rule("extra", Value::Null, json!({}));
        let document = with_rule(build(), extra);
        world.put(BUILD, document).await.expect(200);
        let path = format!("{BUILD}/rule/extra");
        let whole = [MANAGE[0], OPT, DBG, AWS];
        takes(world, || world.post(&path, image("ami-2")), &whole).await;
        let reply = takes(world, || world.post(&path, image("ami-3")), &[EDIT]).await;
        // Callers without the scope to read the other rules do not see them.
        assert_eq!(reply, world.get(&path).await.expect(200));
        assert_eq!(reply.as_object().unwrap().len(), 2);
        assert_eq!(reply["rule"]["ruleId"], "extra");
        let first = || world.post(&format!("{path}/move"), json!({"position": "first"}));
        takes(world, first, &[EDIT]).await;
        takes(world, || world.delete(&path), &[EDIT]).await;
    }
);

on_sqlite_first!(
    a_rule_that_opts_out_of_a_provider_needs_that_providers_scope,
    zones,
    |world| {
        made(world).await;
        let path = format!("{BUILD}/rule/extra");
        let narrow = json!({"workerType": "build-dbg"});
        for out in [json!({"aws": null}), Value::Null] {
            let out = rule("extra", narrow.clone(), json!({"providers": out}));
            let document = with_rule(build(), out);
            let edits: [&dyn Fn() -> Ask; 3] = [
                &|| world.post(&path, image("ami-2")),
                &|| world.post(&format!("{path}/move"), json!({"position": "first"})),
                &|| world.delete(&path),
            ];
            for edit in edits {
                world.post(BUILD, document.clone()).await.expect(200);
                takes(world, edit, &[EDIT, AWS]).await;
            }
        }
    }
);
