//! Which path reaches what: services, encodings, wildcards, aliases, pages outside the API.

use http::Method;
use serde_json::{Value, json};

use crate::ask::Answer;
use crate::database::{assert_snapshot, on_sqlite_first};
use crate::samples::{static_pool, static_worker};
use crate::world::World;

/// An unknown path, whose error does not have the format of API errors.
#[track_caller]
fn nowhere(answer: Answer) {
    assert_eq!(
        answer.header("content-type"),
        "application/json; charset=utf-8"
    );
    assert_eq!(
        (answer.status, answer.text.as_str()),
        (404, "{\"error\":\"Not found\"}")
    );
}

on_sqlite_first!(
    every_service_answers_its_health_without_credentials,
    |world| {
        for service in ["worker-manager", "auth"] {
            let path = |name: &str| format!("root:/api/{service}/v1/{name}");
            let ping = world.get(&path("ping")).anonymously().await.expect(200);
            assert_eq!(ping, json!({"alive": true, "uptime": 0.0}));
            for name in ["__lbheartbeat__", "__heartbeat__"] {
                let beat = world.get(&path(name)).anonymously().await.expect(200);
                assert_eq!(beat, json!({}), "{name}");
            }
            let version = world
                .get(&path("__version__"))
                .anonymously()
                .await
                .expect(200);
            for key in ["version", "commit", "source", "build"] {
                assert!(version[key].is_string(), "{key}");
            }
        }
    }
);

on_sqlite_first!(pages_outside_the_api_answer_without_credentials, |world| {
    for (path, content_type, text) in [
        ("/__lbheartbeat__", "application/json; charset=utf-8", "{}"),
        ("/__heartbeat__", "application/json; charset=utf-8", "{}"),
        (
            "/robots.txt",
            "text/plain; charset=utf-8",
            "User-Agent: *\nDisallow: /\n",
        ),
        ("/live", "text/plain; charset=utf-8", "alive\n"),
        ("/ready", "text/plain; charset=utf-8", "ready\n"),
    ] {
        let answer = world.get(&format!("root:{path}")).anonymously().await;
        assert_eq!((answer.status, answer.text.as_str()), (200, text), "{path}");
        assert_eq!(answer.header("content-type"), content_type, "{path}");
    }
    let version = world
        .get("root:/__version__")
        .anonymously()
        .await
        .expect(200);
    assert_eq!(version["version"], env!("CARGO_PKG_VERSION"));
    let welcome = world.get("root:/").anonymously().await.expect(200);
    assert_eq!(welcome["openapi"], "http://fleet.example.com/openapi.json");
});

on_sqlite_first!(metrics_are_for_this_machine_only, |world| {
    nowhere(world.get("root:/metrics").await);
    nowhere(
        world
            .get("root:/metrics")
            .locally()
            .header("x-forwarded-for", "192.0.2.1")
            .await,
    );
    let answer = world.get("root:/metrics").locally().anonymously().await;
    assert_eq!(answer.status, 200);
    assert!(answer.text.contains("fleetwright_build_info"));
});

on_sqlite_first!(unknown_paths_are_not_found, |world| {
    for path in [
        "root:/nosuch",
        "root:/api",
        "root:/api/",
        "root:/api/worker-manager",
        "root:/api/worker-manager/v1",
        "root:/api/worker-manager/v1/",
        "root:/api/worker-manager/v2/ping",
        "root:/api/worker-manager/v11/ping",
        "root:/api/worker-managers/v1/ping",
        "root:/api/queues/v1/ping",
        "root:/API/worker-manager/v1/ping",
        "/Ping",
        "/nosuch",
        "/worker-pool",
        "/workers",
        "/ping/pong",
        "auth:/clients/a/b",
        "root:/references/nosuch.json",
        "root:/references/queues/v1/api.json",
        "root:/schemas/nosuch.json",
    ] {
        nowhere(world.get(path).await);
    }
    nowhere(world.ask(Method::PATCH, "/ping").await);
    nowhere(world.ask(Method::POST, "/ping").await);
    nowhere(world.ask(Method::POST, "root:/ready").await);
});

/// Which method an error of this path names, and what it takes for its parameters.
async fn reached(world: &World, method: Method, path: &str) -> String {
    let ask = world.ask(method, path);
    let answer = ask.json(&json!({"no": "such body"})).anonymously().await;
    let info = &answer.body()["requestInfo"];
    format!(
        "{} {}",
        info["method"].as_str().unwrap_or("none"),
        info["params"]
    )
}

on_sqlite_first!(raw_and_encoded_slashes_reach_the_same_pool, |world| {
    let (get, post) = (Method::GET, Method::POST);
    let mut lines = Vec::new();
    for (method, path) in [
        (&get, "/worker-pool/pp%2Fee"),
        (&get, "/worker-pool/pp/ee"),
        (&get, "/worker-pool/pp%2fee"),
        (&get, "/worker-pool/pp/ee/"),
        (&get, "/worker-pool/"),
        (&get, "/worker-pool/pp/ee/stats"),
        (&get, "/worker-pool/pp%2Fee/stats/"),
        (&get, "/worker-pool/pp%2Fee/launch-configs"),
        (&get, "/worker-pool/pp/ee/launch-configs"),
        (&get, "/worker-pool-errors/pp/ee"),
        (&post, "/worker-pool-errors/pp%2Fee"),
        (&get, "/workers/pp%2Fee"),
        (&get, "/workers/pp/ee"),
        (&get, "/workers/pp%2Fee/g"),
        (&get, "/workers/pp%2Fee:/g"),
        (&get, "/workers/pp%2Fee:/g/w"),
        (&get, "/workers/pp%2Fee/g/w/"),
        (&get, "/workers/pp%2Fee/g/w/should-terminate"),
        (&post, "/workers/pp%2Fee:/g/w"),
        (&Method::PUT, "/workers/pp%2Fee:/g/w"),
        (&Method::DELETE, "/workers/pp%2Fee:/g/w"),
        (&get, "/provisioners/pp/worker-types/ee/workers"),
        (&get, "auth:/clients"),
        (&get, "auth:/clients/"),
        (&get, "auth:/clients/a%2Fb%7Cc"),
        (&get, "auth:/roles/hook%3A*"),
    ] {
        lines.push(format!(
            "{path} → {}",
            reached(world, method.clone(), path).await
        ));
    }
    assert_snapshot!(lines.join("\n"), @r#"
    /worker-pool/pp%2Fee → workerPool {"workerPoolId":"pp/ee"}
    /worker-pool/pp/ee → workerPool {"workerPoolId":"pp/ee"}
    /worker-pool/pp%2fee → workerPool {"workerPoolId":"pp/ee"}
    /worker-pool/pp/ee/ → workerPool {"workerPoolId":"pp/ee/"}
    /worker-pool/ → workerPool {"workerPoolId":""}
    /worker-pool/pp/ee/stats → workerPoolStats {"workerPoolId":"pp/ee"}
    /worker-pool/pp%2Fee/stats/ → workerPoolStats {"workerPoolId":"pp/ee"}
    /worker-pool/pp%2Fee/launch-configs → listWorkerPoolLaunchConfigs {"workerPoolId":"pp/ee"}
    /worker-pool/pp/ee/launch-configs → workerPool {"workerPoolId":"pp/ee/launch-configs"}
    /worker-pool-errors/pp/ee → listWorkerPoolErrors {"workerPoolId":"pp/ee"}
    /worker-pool-errors/pp%2Fee → reportWorkerError {"workerPoolId":"pp/ee"}
    /workers/pp%2Fee → listWorkersForWorkerPool {"workerPoolId":"pp/ee"}
    /workers/pp/ee → listWorkersForWorkerGroup {"workerGroup":"ee","workerPoolId":"pp"}
    /workers/pp%2Fee/g → listWorkersForWorkerGroup {"workerGroup":"g","workerPoolId":"pp/ee"}
    /workers/pp%2Fee:/g → listWorkersForWorkerGroupWithColon {"workerGroup":"g","workerPoolId":"pp/ee"}
    /workers/pp%2Fee:/g/w → workerWithColon {"workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}
    /workers/pp%2Fee/g/w/ → worker {"workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}
    /workers/pp%2Fee/g/w/should-terminate → shouldWorkerTerminate {"workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}
    /workers/pp%2Fee:/g/w → updateWorkerWithColon {"workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}
    /workers/pp%2Fee:/g/w → createWorkerWithColon {"workerGroup":"g","workerId":"w","workerPoolId":"pp/ee"}
    /workers/pp%2Fee:/g/w → removeWorker {"workerGroup":"g","workerId":"w","workerPoolId":"pp/ee:"}
    /provisioners/pp/worker-types/ee/workers → listWorkers {"provisionerId":"pp","workerType":"ee"}
    auth:/clients → listClients {}
    auth:/clients/ → listClients {}
    auth:/clients/a%2Fb%7Cc → client {"clientId":"a/b|c"}
    auth:/roles/hook%3A* → role {"roleId":"hook:*"}
    "#);
});

on_sqlite_first!(paths_that_are_no_text_are_refused, |world| {
    let answer = world.get("/worker-pool/%FF%FE").await;
    answer.refused_with(
        400,
        "InvalidRequestArguments",
        "not valid percent-encoded UTF-8",
    );
});

on_sqlite_first!(an_empty_or_trailing_wildcard_fails_its_pattern, |world| {
    for path in [
        "/worker-pool/",
        "/worker-pool/pp/ee/",
        "/workers/",
        "/worker-pool-errors/",
    ] {
        let answer = world.get(path).await;
        answer.refused_with(
            400,
            "InvalidRequestArguments",
            "Invalid URL patterns:\nURL parameter",
        );
    }
    // With a raw slash this is a group of the pool `pp`.
    let answer = world.get("/workers/pp/ee").await;
    answer.refused_with(
        400,
        "InvalidRequestArguments",
        "'workerPoolId' given as 'pp'",
    );
});

on_sqlite_first!(old_clients_may_write_a_colon_behind_the_pool, |world| {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    let (old, new) = ("/workers/pp%2Fee:/g/w", "/workers/pp%2Fee/g/w");
    let made = world.put(old, static_worker()).await.expect(200);
    assert_eq!(world.get(old).await.expect(200), made);
    assert_eq!(world.get(new).await.expect(200), made);
    let changed = json!({"expires": "2027-01-01T00:00:00.000Z"});
    world.post(old, changed).await.expect(200);
    let listed = world.get("/workers/pp%2Fee:/g").await.expect(200);
    assert_eq!(listed["workers"].as_array().map(Vec::len), Some(1));
    let text = "Worker not found";
    let answer = world.get("/workers/pp%2Fee:/g/nosuch").await;
    assert_eq!(answer.body()["requestInfo"]["method"], "workerWithColon");
    answer.refused(404, "ResourceNotFound", text);
});

on_sqlite_first!(a_trailing_slash_is_tolerated, |world| {
    for path in [
        "/ping/",
        "/providers/",
        "/worker-pools/",
        "auth:/roles",
        "auth:/roleids",
    ] {
        world.get(path).await.expect(200);
    }
});

on_sqlite_first!(head_is_answered_as_get_without_the_body, |world| {
    let get = world.get("/providers").await;
    let head = world.ask(Method::HEAD, "/providers").await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    assert_eq!(head.header("content-type"), get.header("content-type"));
    let refused = world.ask(Method::HEAD, "/providers").anonymously().await;
    assert_eq!((refused.status, refused.text.as_str()), (403, ""));
});

on_sqlite_first!(options_lists_the_allowed_methods, |world| {
    for (path, allowed) in [
        ("/worker-pool/pp%2Fee", "GET,PUT,POST,DELETE,HEAD"),
        ("/worker/register", "POST"),
        ("/workers/pp%2Fee/g/w", "GET,PUT,POST,DELETE,HEAD"),
        ("auth:/roles", "GET,HEAD"),
    ] {
        let answer = world.ask(Method::OPTIONS, path).anonymously().await;
        assert_eq!((answer.status, answer.text.as_str()), (200, ""));
        assert_eq!(answer.header("allow"), allowed, "{path}");
        assert_eq!(answer.header("access-control-allow-origin"), "*");
    }
    nowhere(world.ask(Method::OPTIONS, "/nosuch").anonymously().await);
});

on_sqlite_first!(
    every_reply_has_the_headers_that_browsers_and_proxies_want,
    |world| {
        for path in ["/ping", "/providers", "/nosuch", "root:/ready"] {
            let answer = world.get(path).anonymously().await;
            for (name, value) in [
                ("cache-control", "no-store no-cache must-revalidate"),
                ("access-control-allow-origin", "*"),
                ("access-control-max-age", "900"),
                (
                    "access-control-allow-methods",
                    "OPTIONS,GET,HEAD,POST,PUT,DELETE,TRACE,CONNECT",
                ),
                ("access-control-request-method", "*"),
                (
                    "access-control-allow-headers",
                    "X-Requested-With,Content-Type,Authorization,Accept,Origin,Cache-Control,Range,\
                     If-Range,If-None-Match",
                ),
                ("x-content-type-options", "nosniff"),
                (
                    "content-security-policy",
                    "default-src 'none'; frame-ancestors 'none'; base-uri 'none'; \
                 report-uri /__cspreport__",
                ),
            ] {
                assert_eq!(answer.header(name), value, "{path}");
            }
        }
    }
);

on_sqlite_first!(a_trace_id_is_given_back_and_a_request_id_is_new, |world| {
    let ask = || {
        world
            .get("/ping")
            .header("x-taskcluster-trace-id", "trace-1")
    };
    let (first, second) = (ask().await, ask().await);
    assert_eq!(first.header("x-for-trace-id"), "trace-1");
    assert_ne!(
        first.header("x-for-request-id"),
        second.header("x-for-request-id")
    );
    let untraced = world.get("/ping").await;
    assert_eq!(untraced.header("x-for-trace-id").len(), 36);
    let huge = world
        .get("/ping")
        .header("x-taskcluster-trace-id", &"x".repeat(65))
        .await;
    assert_eq!(huge.header("x-for-trace-id").len(), 36);
});

on_sqlite_first!(replies_are_indented_by_two_spaces, |world| {
    let answer = world.get("/worker-pools").await;
    assert_eq!(answer.text, "{\n  \"workerPools\": []\n}");
    assert_eq!(
        answer.header("content-type"),
        "application/json; charset=utf-8"
    );
    let gone = world.delete("auth:/clients/nosuch").await;
    assert_eq!((gone.status, gone.body()), (204, Value::Null));
    // Items of lists are one line each; members are sorted.
    for id in ["role-1", "role-2", "role-3"] {
        let role = json!({"scopes": ["x", "y"], "description": "a \"b\"\nc"});
        let put = world.put(&format!("auth:/roles/{id}"), role);
        put.await.expect(200);
    }
    let roles = world.get("auth:/roles2/?limit=2").await;
    let lines: Vec<&str> = roles.text.lines().collect();
    assert_eq!(lines.len(), 7, "{}", roles.text);
    assert_eq!((lines[0], lines[2]), ("{", "  \"roles\": ["));
    assert!(
        lines[1].starts_with("  \"continuationToken\": \""),
        "{}",
        lines[1]
    );
    assert!(
        lines[3].starts_with("    {\"") && lines[3].ends_with("},"),
        "{}",
        lines[3]
    );
    assert!(
        lines[4].starts_with("    {\"") && lines[4].ends_with('}'),
        "{}",
        lines[4]
    );
    assert_eq!((lines[5], lines[6]), ("  ]", "}"));
    let parsed = roles.expect(200);
    assert_eq!(parsed["roles"].as_array().unwrap().len(), 2);
    assert_eq!(parsed["roles"][0]["description"], "a \"b\"\nc");
});
