//! The steps of a request in their order, and the text of each refusal.

use http::Method;
use serde_json::{Value, json};
use testing::sizes_around;

use crate::database::{assert_snapshot, on_sqlite_first};
use crate::samples::{pool, static_pool};

const POOL: &str = "/worker-pool/pp%2Fee";

on_sqlite_first!(an_error_has_exactly_this_form, |world| {
    let answer = world.get("/worker-pool/proj-x%2Fnone").await;
    assert_eq!(answer.status, 404);
    assert_snapshot!(answer.text, @r#"
    {
      "code": "ResourceNotFound",
      "message": "Worker pool does not exist\n\n---\n\n* method:     workerPool\n* errorCode:  ResourceNotFound\n* statusCode: 404\n* time:       2026-09-21T14:13:20.000Z",
      "requestInfo": {
        "method": "workerPool",
        "params": {
          "workerPoolId": "proj-x/none"
        },
        "payload": {},
        "time": "2026-09-21T14:13:20.000Z"
      }
    }
    "#);
    let advice = answer.header("fleetwright-advice");
    assert_eq!(advice, "`fleetwright pool list` lists what exists");
});

on_sqlite_first!(
    missing_scopes_are_reported_to_callers_with_credentials,
    |world| {
        let scopes = ["worker-manager:manage-worker-pool:pp/ee"];
        let client = world.client("ci", &scopes).await;
        let answer = world.put(POOL, static_pool()).by(&client).await;
        let body = answer.body();
        assert_eq!(answer.status, 403);
        assert_snapshot!(body["message"].as_str().unwrap(), @r#"
    Client ID ci does not have sufficient scopes and is missing the following scopes:

    ```
    worker-manager:provider:static
    ```

    This request requires the client to satisfy the following scope expression:

    ```
    {
      "AllOf": [
        "worker-manager:manage-worker-pool:pp/ee",
        "worker-manager:provider:static"
      ]
    }
    ```

    ---

    * method:     createWorkerPool
    * errorCode:  InsufficientScopes
    * statusCode: 403
    * time:       2026-09-21T14:13:20.000Z
    "#);
        assert_eq!(body["requestInfo"]["payload"], static_pool());
        let neither = world.client("nobody", &[]).await;
        let answer = world.put(POOL, static_pool()).by(&neither).await;
        assert_snapshot!(answer.body()["message"].as_str().unwrap(), @r#"
    Client ID nobody does not have sufficient scopes and is missing the following scopes:

    ```
    {
      "AllOf": [
        "worker-manager:manage-worker-pool:pp/ee",
        "worker-manager:provider:static"
      ]
    }
    ```

    This request requires the client to satisfy the following scope expression:

    ```
    {
      "AllOf": [
        "worker-manager:manage-worker-pool:pp/ee",
        "worker-manager:provider:static"
      ]
    }
    ```

    ---

    * method:     createWorkerPool
    * errorCode:  InsufficientScopes
    * statusCode: 403
    * time:       2026-09-21T14:13:20.000Z
    "#);
    }
);

on_sqlite_first!(
    without_credentials_the_needed_scopes_are_reported,
    |world| {
        let answer = world.get(POOL).anonymously().await;
        assert_eq!(answer.status, 403);
        assert_snapshot!(answer.body()["message"].as_str().unwrap(), @r"
    This request requires Taskcluster credentials that satisfy the following scope expression:

    ```
    worker-manager:get-worker-pool:pp/ee
    ```

    ---

    * method:     workerPool
    * errorCode:  InsufficientScopes
    * statusCode: 403
    * time:       2026-09-21T14:13:20.000Z
    ");
    }
);

on_sqlite_first!(problems_of_a_body_are_listed, |world| {
    let mut wrong = pool("static", json!({}));
    wrong["owner"] = json!("nobody");
    wrong["emailOnError"] = json!("yes");
    wrong["surprise"] = json!(1);
    wrong.as_object_mut().unwrap().remove("description");
    let answer = world.put(POOL, wrong.clone()).await;
    let body = answer.body();
    assert_eq!(body["requestInfo"]["payload"], wrong);
    assert_snapshot!(body["message"].as_str().unwrap(), @r#"

    Schema Validation Failed!
    Rejecting Schema: http://fleet.example.com/schemas/worker-manager/v1/create-worker-pool-request.json#
    Errors:
      * data must have required property 'description'
      * data/emailOnError must be boolean
      * data/owner must match format "email"
      * data must NOT have additional properties: "surprise"

    ---

    * method:     createWorkerPool
    * errorCode:  InputValidationError
    * statusCode: 400
    * time:       2026-09-21T14:13:20.000Z
    "#);
    answer.refused_with(400, "InputValidationError", "Schema Validation Failed!");
});

on_sqlite_first!(the_body_is_read_before_anything_else, |world| {
    for text in [
        "{",
        "nul",
        "\"text\"",
        "3",
        "null",
        "{\"a\": 1} x",
        "{'a': 1}",
    ] {
        let ask = world
            .ask(Method::PUT, "/worker-pool/not-a-pool")
            .body("application/json", text);
        ask.anonymously()
            .await
            .refused_with(400, "MalformedPayload", "");
    }
    // An empty body is an empty object, which lacks what the schema asks for.
    let ask = world.ask(Method::PUT, POOL).body("application/json", "");
    ask.await
        .refused_with(400, "InputValidationError", "must have required property");
    // An array is JSON as well; it fails the schema.
    let ask = world.ask(Method::PUT, POOL).body("application/json", "[]");
    ask.await
        .refused_with(400, "InputValidationError", "must be object");
    // A body where none is expected is looked at all the same.
    let ask = world
        .ask(Method::GET, "/ping")
        .body("application/json", "{");
    ask.await
        .refused_with(400, "MalformedPayload", "Failed to parse body as JSON");
});

on_sqlite_first!(a_body_must_be_declared_as_json, |world| {
    for content_type in [
        "text/plain",
        "application/x-www-form-urlencoded",
        "text/json",
    ] {
        let ask = world
            .ask(Method::PUT, POOL)
            .body(content_type, static_pool().to_string());
        // Its hash is that of a body that was not read.
        let header = ask.signature_with(&world.root(), 1_790_000_000, None);
        let answer = ask.authorization(&header).await;
        answer.refused(
            400,
            "MalformedPayload",
            &format!(
                "Payload must be JSON with content-type: application/json got content-type: \
                 {content_type}"
            ),
        );
    }
    let ask = world.ask(Method::PUT, POOL);
    ask.await
        .refused_with(400, "MalformedPayload", "got content-type: ");
    for content_type in ["application/json; charset=utf-8", "Application/JSON"] {
        let ask = world
            .ask(Method::PUT, POOL)
            .body(content_type, static_pool().to_string());
        ask.await.expect(200);
    }
});

on_sqlite_first!(
    scopes_of_the_url_are_checked_before_parameters_query_and_body,
    |world| {
        let nobody = world.client("nobody", &[]).await;
        for path in [
            "/worker-pool/not-a-pool",
            "/worker-pools?limit=many",
            "/workers/not-a-pool/g/w?surprise=1",
            "/workers/pp%2Fee/g?limit=1&limit=2",
        ] {
            let answer = world.get(path).by(&nobody).await;
            answer.refused_with(403, "InsufficientScopes", "Client ID nobody");
            world
                .get(path)
                .await
                .refused_with(400, "InvalidRequestArguments", "");
        }
        let answer = world
            .put("/workers/pp%2Fee/g/w", json!({"no": 1}))
            .by(&nobody)
            .await;
        answer.refused_with(
            403,
            "InsufficientScopes",
            "worker-manager:create-worker:pp/ee/g/w",
        );
    }
);

on_sqlite_first!(
    scopes_that_depend_on_the_body_are_checked_after_its_schema,
    |world| {
        let nobody = world.client("nobody", &[]).await;
        let empty = json!({});
        for (method, path) in [
            (Method::PUT, POOL),
            (Method::POST, POOL),
            (Method::POST, "/worker-pool-errors/pp%2Fee"),
            (Method::POST, "/worker/reregister"),
        ] {
            let answer = world.ask(method, path).json(&empty).by(&nobody).await;
            answer.refused_with(400, "InputValidationError", "must have required property");
        }
        let answer = world
            .get("/worker-pool-errors/stats?workerPoolId=_%20_")
            .by(&nobody)
            .await;
        answer.refused_with(400, "InvalidRequestArguments", "does not match expression");
        let answer = world.get("/worker-pool-errors/stats").by(&nobody).await;
        let scope = "worker-manager:list-worker-pool-errors:*";
        answer.refused_with(403, "InsufficientScopes", scope);
        let one = world
            .client("one", &["worker-manager:list-worker-pool-errors:pp/ee"])
            .await;
        world
            .get("/worker-pool-errors/stats")
            .by(&one)
            .await
            .refused_with(403, "InsufficientScopes", scope);
        let answer = world
            .get("/worker-pool-errors/stats?workerPoolId=pp%2Fee")
            .by(&one)
            .await;
        answer.refused(404, "ResourceNotFound", "Worker pool does not exist");
    }
);

on_sqlite_first!(scopes_are_checked_before_the_content_of_a_pool, |world| {
    let scopes = ["worker-manager:manage-worker-pool:pp/ee"];
    let client = world.client("ci", &scopes).await;
    for wanted in [
        pool("nosuch", json!({})),
        pool("static", json!({"surprise": 1})),
    ] {
        let answer = world.put(POOL, wanted.clone()).by(&client).await;
        answer.refused_with(403, "InsufficientScopes", "worker-manager:provider:");
        let answer = world.post(POOL, wanted).by(&client).await;
        answer.refused_with(403, "InsufficientScopes", "worker-manager:provider:");
    }
});

on_sqlite_first!(bad_parameters_are_listed_one_a_line, |world| {
    let answer = world.get("/workers/no-pool/a%20b/w%2Fw").await;
    answer.refused(
        400,
        "InvalidRequestArguments",
        "Invalid URL patterns:\n\
         URL parameter 'workerPoolId' given as 'no-pool' must match regular expression: \
         '^[a-zA-Z0-9-_]{1,38}\\/[a-z]([-a-z0-9]{0,36}[a-z0-9])?$'\n\
         URL parameter 'workerGroup' given as 'a b' must match regular expression: \
         '^[a-zA-Z0-9-_]{1,38}$'\n\
         URL parameter 'workerId' given as 'w/w' must match regular expression: \
         '^[a-zA-Z0-9-_]{1,38}$'",
    );
});

on_sqlite_first!(each_problem_with_a_query_has_its_text, |world| {
    for (query, text) in [
        (
            "surprise=1",
            "Query-string parameter: surprise is not supported!",
        ),
        (
            "limit=1&limit=1",
            "Query-string parameter: limit must be a string!",
        ),
        (
            "limit=ten",
            "Query-string parameter: limit=\"ten\" does not match expression: /^[0-9]+$/",
        ),
        (
            "limit=",
            "Query-string parameter: limit=\"\" does not match expression: /^[0-9]+$/",
        ),
        (
            "limit=-1",
            "Query-string parameter: limit=\"-1\" does not match expression: /^[0-9]+$/",
        ),
        (
            "continuationToken=",
            "Query-string parameter: continuationToken=\"\" does not match expression: /./",
        ),
    ] {
        let answer = world.get(&format!("/worker-pools?{query}")).await;
        answer.refused(400, "InvalidRequestArguments", text);
    }
    let listed = world.get("/worker-pools?a=1&b=2").await;
    let text =
        "Query-string parameter: a is not supported!\nQuery-string parameter: b is not supported!";
    listed.refused(400, "InvalidRequestArguments", text);
    world.get("/worker-pools?").await.expect(200);
    world.get("/worker-pools?&&limit=1&").await.expect(200);
    world
        .get("/ping?x=1")
        .await
        .refused_with(400, "InvalidRequestArguments", "x is not supported");
});

on_sqlite_first!(
    a_query_with_many_problems_names_some_and_counts_the_others,
    |world| {
        let limit = 10;
        for n_problems in sizes_around("server::api::query::MAX_PROBLEMS", limit) {
            let query: Vec<String> = (0..n_problems).map(|it| format!("p{it}=1")).collect();
            let answer = world
                .get(&format!("/worker-pools?limit=1&{}", query.join("&")))
                .await;
            if n_problems == 0 {
                answer.expect(200);
                continue;
            }
            let named = (0..n_problems.min(limit))
                .map(|it| format!("Query-string parameter: p{it} is not supported!"));
            let more = n_problems.saturating_sub(limit);
            let others = (more > 0).then(|| format!("And {more} more"));
            let text: Vec<String> = named.chain(others).collect();
            answer.refused(400, "InvalidRequestArguments", &text.join("\n"));
        }
        let many = "a&".repeat(7_000);
        let answer = world.get(&format!("/worker-pools?{many}")).await;
        assert!(answer.text.len() < 2_000, "{}", answer.text.len());
        answer.refused_with(400, "InvalidRequestArguments", "And 6990 more");
    }
);

on_sqlite_first!(methods_without_scopes_never_look_at_credentials, |world| {
    for bad in ["Hawk id=\"nobody\"", "Basic abc", "nonsense", ""] {
        world.get("/ping").authorization(bad).await.expect(200);
        let answer = world
            .post("/worker/register", json!({}))
            .authorization(bad)
            .await;
        answer.refused_with(400, "InputValidationError", "must have required property");
    }
});

on_sqlite_first!(defaults_of_the_schema_are_put_into_the_body, |world| {
    let body = json!({"expires": "2027-01-01T00:00:00.000Z", "description": ""});
    let made = world.put("auth:/clients/plain", body).await.expect(200);
    assert_eq!(
        (&made["deleteOnExpiration"], &made["scopes"]),
        (&json!(false), &json!([]))
    );
});

on_sqlite_first!(numbers_are_read_as_javascript_reads_them, |world| {
    let text = static_pool()
        .to_string()
        .replace("\"a\":1", "\"a\":1.0,\"b\":1e2,\"c\":12345678901234567890");
    let made = world
        .ask(Method::PUT, POOL)
        .body("application/json", text)
        .await
        .expect(200);
    let config: &Value = &made["config"]["workerConfig"];
    assert_eq!(
        config.to_string(),
        r#"{"a":1,"b":100,"c":12345678901234567000}"#
    );
});
