//! Who may read, change and evaluate worker configurations and their rules.

use serde_json::json;

use crate::authorization::{Case, case, case_with};

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
    let mut adopting = crate::configurations::build();
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
            READ,
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
