//! The wording of problems, and the limits of messages.

use contract::{Invalid, MAX_PROBLEMS, Problem, Schemas};
use proptest::prelude::*;
use serde_json::{Map, Value, json};

const ROOT: &str = "https://tc.example.com";

fn problems(name: &str, document: Value) -> Vec<String> {
    match Schemas::new().check(name, &document) {
        Ok(()) => Vec::new(),
        Err(refused) => refused.problems.iter().map(Problem::to_string).collect(),
    }
}

fn pool_request(key: &str, value: Value) -> Value {
    let mut request = json!({
        "providerId": "p", "description": "", "config": {}, "owner": "a@example.com", "emailOnError": false
    });
    request[key] = value;
    request
}

fn of_pool(key: &str, value: Value) -> Vec<String> {
    problems(
        "worker-manager/v1/create-worker-pool-request.json",
        pool_request(key, value),
    )
}

fn task_run(run_id: Value) -> Vec<String> {
    let run = json!({"taskId": "fN1SbArXTPSVFNUvaOlinQ", "runId": run_id});
    problems("worker-manager/v1/task-run.json", run)
}

#[test]
fn a_message_has_the_layout_that_clients_know() {
    let config = json!({
        "minCapacity": 0, "maxCapacity": 1, "launchConfigs": [], "lifecycle": {"queueInactivityTimeout": 2}
    });
    let refused = Schemas::new()
        .check("worker-manager/v1/config-google.json", &config)
        .unwrap_err();
    assert_eq!(
        refused.message(ROOT),
        "\nSchema Validation Failed!\n\
         Rejecting Schema: https://tc.example.com/schemas/worker-manager/v1/config-google.json#\n\
         Errors:\n  * data/lifecycle/queueInactivityTimeout must be >= 1200"
    );
    assert_eq!(
        refused.to_string(),
        "does not fit worker-manager/v1/config-google.json: \
         data/lifecycle/queueInactivityTimeout must be >= 1200"
    );
}

#[test]
fn every_problem_has_a_line_of_its_own() {
    let document = json!({"a": 1, "\"\u{1}é": 2, "scopes": 3});
    let mut lines = problems("auth/v1/scopeset.json", document);
    lines.sort();
    assert_eq!(
        lines,
        [
            r#"data must NOT have additional properties: "\"\u0001é""#,
            r#"data must NOT have additional properties: "a""#,
            "data/scopes must be array",
        ]
    );
}

#[test]
fn types_and_requirements() {
    assert_eq!(of_pool("config", json!([])), ["data/config must be object"]);
    assert_eq!(
        of_pool("emailOnError", json!("yes")),
        ["data/emailOnError must be boolean"]
    );
    assert_eq!(of_pool("owner", json!(1)), ["data/owner must be string"]);
    assert_eq!(
        problems("auth/v1/scopeset.json", json!(null)),
        ["data must be object"]
    );
    assert_eq!(
        problems("auth/v1/scopeset.json", json!({"scopes": {}})),
        ["data/scopes must be array"]
    );
    assert_eq!(
        problems("auth/v1/scopeset.json", json!({"scopes": ["a", 1]})),
        ["data/scopes/1 must be string"]
    );
    assert_eq!(
        problems("worker-manager/v1/create-worker-request.json", json!({})),
        ["data must have required property 'expires'"]
    );
}

#[test]
fn texts_are_measured_in_characters() {
    let umlauts = |count: usize| json!("ä".repeat(count));
    assert!(of_pool("description", umlauts(10_240)).is_empty());
    assert_eq!(
        of_pool("description", umlauts(10_241)),
        ["data/description must NOT have more than 10240 characters"]
    );
    assert_eq!(
        of_pool("providerId", json!("")),
        ["data/providerId must NOT have fewer than 1 characters"]
    );
    assert_eq!(
        of_pool("providerId", json!("a b")),
        [r#"data/providerId must match pattern "^([a-zA-Z0-9-_]*)$""#]
    );
}

#[test]
fn patterns_have_their_meaning_in_javascript() {
    let update = |id: &str| {
        let request = pool_request("workerPoolId", json!(id));
        problems("worker-manager/v1/update-worker-pool-request.json", request)
    };
    assert!(update("proj-x_y/linux-2").is_empty());
    for bad in ["a/b\n", "a", "a/B", "a.b/c"] {
        let pattern = "^[a-zA-Z0-9-_]{1,38}/[a-z]([-a-z0-9]{0,36}[a-z0-9])?$";
        assert_eq!(
            update(bad),
            [format!(
                "data/workerPoolId must match pattern \"{pattern}\""
            )]
        );
    }
}

#[test]
fn numbers_and_their_bounds() {
    assert!(task_run(json!(0)).is_empty());
    assert!(
        task_run(json!(3.0)).is_empty(),
        "a number without a fraction is an integer, however it is written"
    );
    assert_eq!(task_run(json!(0.5)), ["data/runId must be integer"]);
    assert_eq!(task_run(json!(-1)), ["data/runId must be >= 0"]);
    assert_eq!(task_run(json!(1001)), ["data/runId must be <= 1000"]);
}

#[test]
fn formats() {
    let expires = |text: &str| {
        problems(
            "worker-manager/v1/create-worker-request.json",
            json!({"expires": text}),
        )
    };
    for good in [
        "2026-01-02T03:04:05.678Z",
        "2026-01-02T03:04:05Z",
        "2026-01-02T03:04:05+01:00",
    ] {
        assert!(expires(good).is_empty(), "{good}");
    }
    for bad in [
        "",
        "soon",
        "2026-01-02",
        "2026-01-02T03:04:05",
        "2026-13-02T03:04:05Z",
        "2026-01-02 03:04:05Z",
    ] {
        assert_eq!(
            expires(bad),
            [r#"data/expires must match format "date-time""#],
            "{bad}"
        );
    }
    assert_eq!(
        of_pool("owner", json!("nobody")),
        [r#"data/owner must match format "email""#]
    );
    let logs = |address: &str| {
        let document = json!({"$schema": address, "serviceName": "a", "types": []});
        problems("common/logs-reference-v0.json", document)
    };
    assert!(logs("https://tc.example.com/schemas/common/logs-reference-v0.json#").is_empty());
    assert_eq!(
        logs("no address"),
        [r#"data/$schema must match format "uri""#]
    );
}

#[test]
fn lists() {
    let config = |launch_configs: Value| {
        let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": launch_configs});
        problems("worker-manager/v1/config-aws.json", config)
    };
    let one = json!({"region": "r", "launchConfig": {"ImageId": "i"}});
    assert_eq!(
        config(json!([one, one])),
        ["data/launchConfigs must NOT have duplicate items (items ## 0 and 1 are identical)"]
    );
    assert_eq!(
        problems("auth/v1/scopeset.json", json!({"scopes": ["a", "b", "a"]})),
        ["data/scopes must NOT have duplicate items (items ## 2 and 0 are identical)"]
    );
    let task = |key: &str, value: Value| {
        let mut found = problems("worker-manager/v1/task.json", json!({key: value}));
        found.retain(|line| line.starts_with(&format!("data/{key}")));
        found
    };
    let routes: Vec<String> = (0..65).map(|index| index.to_string()).collect();
    assert_eq!(
        task("routes", json!(routes)),
        ["data/routes must NOT have more than 64 items"]
    );
    assert_eq!(
        task("priority", json!("urgent")),
        ["data/priority must be equal to one of the allowed values"]
    );
    assert_eq!(
        task("tags", json!({"a/b~": 1})),
        ["data/tags/a~1b~0 must be string"],
        "keys are escaped in pointers"
    );
}

#[test]
fn forbidden_members_are_reported() {
    let launch_config = json!({
        "region": "r",
        "launchConfig": {"ImageId": "i", "IamInstanceProfile": 1, "UserData": 1, "MinCount": 1, "MaxCount": 1},
        "additionalUserData": {"rootUrl": "x"}
    });
    let config = json!({"minCapacity": 0, "maxCapacity": 1, "launchConfigs": [launch_config]});
    assert_eq!(
        problems("worker-manager/v1/config-aws.json", config),
        [
            "data/launchConfigs/0/additionalUserData/rootUrl must NOT be valid",
            "data/launchConfigs/0/launchConfig must NOT be valid",
        ]
    );
}

#[test]
fn a_choice_lists_the_problems_of_each_branch_and_then_its_own() {
    let request = |proof: Value| {
        let mut request = json!({
            "workerPoolId": "a/b", "providerId": "p", "workerGroup": "g", "workerId": "w"
        });
        request["workerIdentityProof"] = proof;
        problems("worker-manager/v1/register-worker-request.json", request)
    };
    assert!(request(json!({"token": "t"})).is_empty());
    let refused = request(json!({"secret": "s"}));
    assert_eq!(
        refused.last().map(String::as_str),
        Some("data/workerIdentityProof must match exactly one schema in oneOf")
    );
    for line in [
        "must have required property 'token'",
        r#"must NOT have additional properties: "secret""#,
    ] {
        assert!(
            refused.contains(&format!("data/workerIdentityProof {line}")),
            "{refused:#?}"
        );
    }
    assert_eq!(request(json!(1)).last(), refused.last());
}

#[test]
fn a_choice_of_constants_is_reported() {
    let stats = problems(
        "worker-manager/v1/worker-pool-error-stats.json",
        json!({"workerPoolId": "?", "totals": 1}),
    );
    assert!(
        stats.contains(&"data/workerPoolId must be equal to constant".to_owned()),
        "{stats:#?}"
    );
    assert!(stats.contains(&"data/workerPoolId must match exactly one schema in oneOf".to_owned()));
    let task = problems(
        "worker-manager/v1/task.json",
        json!({"metadata": {"source": "("}}),
    );
    assert!(
        task.contains(&"data/metadata/source must match a schema in anyOf".to_owned()),
        "{task:#?}"
    );
}

#[test]
fn the_number_of_listed_problems_is_limited() {
    let refused = |count: usize| {
        let scopes: Vec<usize> = (0..count).collect();
        Schemas::new()
            .check("auth/v1/scopeset.json", &json!({"scopes": scopes}))
            .unwrap_err()
    };
    assert_eq!(refused(MAX_PROBLEMS).problems.len(), MAX_PROBLEMS);
    let many = refused(10_000);
    assert_eq!(many.problems.len(), MAX_PROBLEMS + 1);
    assert_eq!(
        many.problems.last().map(Problem::to_string).as_deref(),
        Some("data has more problems than the 100 listed here")
    );
    let keys: Map<String, Value> = (0..10_000)
        .map(|index| (index.to_string(), Value::Null))
        .collect();
    let many = Schemas::new()
        .check("auth/v1/scopeset.json", &Value::Object(keys))
        .unwrap_err();
    assert_eq!(many.problems.len(), MAX_PROBLEMS + 1);
}

#[test]
fn the_problems_of_a_huge_document_are_not_listed() {
    let scopes = vec![Value::from(1); 1_000_000];
    let refused = Schemas::new()
        .check("auth/v1/scopeset.json", &json!({"scopes": scopes}))
        .unwrap_err();
    assert_eq!(
        refused.problems,
        [Problem {
            pointer: String::new(),
            message: "must fit its schema (it is too large to list the problems)".to_owned()
        }]
    );
}

#[test]
fn a_long_key_does_not_make_a_long_message() {
    let mut document = Map::new();
    document.insert("k".repeat(1_000_000), Value::Null);
    let refused = Schemas::new()
        .check("auth/v1/scopeset.json", &Value::Object(document))
        .unwrap_err();
    assert!(refused.message(ROOT).len() < 2_000);
}

#[test]
fn a_deep_document_is_validated() {
    let deep = (0..120).fold(json!(1), |inner, _| json!({"AnyOf": [inner]}));
    let entry = json!({
        "type": "function", "method": "get", "route": "/", "args": [], "name": "n", "stability": "stable",
        "title": "t", "description": "d", "category": "c", "scopes": deep
    });
    let reference = json!({
        "apiVersion": "v1", "$schema": "https://x/y", "title": "t", "description": "d",
        "serviceName": "s", "entries": [entry]
    });
    let refused = Schemas::new()
        .check("common/api-reference-v0.json", &reference)
        .unwrap_err();
    assert!(refused.problems.len() <= MAX_PROBLEMS + 1);
    assert!(refused.message(ROOT).len() < 300_000);
}

#[test]
fn an_unknown_name_is_refused_like_a_document() {
    let refused = Schemas::new()
        .validate("worker-manager/v1/no.json", &mut json!({}))
        .unwrap_err();
    assert_eq!(
        refused,
        Invalid {
            schema: "worker-manager/v1/no.json".to_owned(),
            problems: vec![Problem {
                pointer: String::new(),
                message: "has no schema of this name".to_owned()
            }]
        }
    );
}

/// Any document, often with keys and values that the schemas know.
fn documents() -> impl Strategy<Value = Value> {
    let words = prop::sample::select(vec![
        "lifecycle",
        "launchConfigs",
        "workerManager",
        "config",
        "scopes",
        "queueInactivityTimeout",
        "workerPoolId",
        "armDeployment",
        "parameters",
        "template",
        "entries",
        "AnyOf",
        "a/b",
        "2026-01-02T03:04:05Z",
        "é\u{0}",
    ]);
    let leaves = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<u64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        ".*".prop_map(Value::from),
        words.clone().prop_map(Value::from),
    ];
    leaves.prop_recursive(5, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            prop::collection::vec(
                (
                    prop_oneof![words.clone().prop_map(str::to_owned), ".*"],
                    inner
                ),
                0..6
            )
            .prop_map(|members| Value::Object(members.into_iter().collect())),
        ]
    })
}

proptest! {
    #[test]
    fn no_document_makes_validation_panic(document in documents()) {
        let schemas = Schemas::new();
        for name in schemas.names() {
            let mut filled = document.clone();
            if let Err(refused) = schemas.validate(name, &mut filled) {
                prop_assert!((1..=MAX_PROBLEMS + 1).contains(&refused.problems.len()));
                prop_assert!(refused.message(ROOT).contains(name));
            }
            let mut again = filled.clone();
            prop_assert_eq!(schemas.validate(name, &mut again).is_ok(), schemas.check(name, &filled).is_ok());
            prop_assert_eq!(again, filled, "defaults are inserted once");
            let mut rewritten = document.clone();
            contract::numbers::as_javascript(&mut rewritten);
        }
    }
}
