//! Arbitrary requests cause no panic and no internal error.

use std::cell::Cell;

use http::Method;
use proptest::prelude::*;
use proptest::test_runner::TestRunner;
use server::api::endpoint::Verb;
use server::api::endpoints;
use tokio::runtime::Handle;

use crate::ask::Answer;
use crate::database::on_both;
use crate::images_at_work::without_builder;
use crate::open_tree::OpenTree;
use crate::samples::{aws_pool, launch_config, pool, static_pool, static_worker, worker};
use crate::world::World;

const CASES: u32 = 300;

fn method() -> impl Strategy<Value = Method> {
    let known = [
        "GET", "PUT", "POST", "DELETE", "HEAD", "OPTIONS", "PATCH", "TRACE", "BREW",
    ];
    prop::sample::select(known.to_vec()).prop_map(|name| name.parse().unwrap())
}

/// A part of a path or query: something that names what is there, or anything.
fn word() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => prop::sample::select(vec![
            "pp%2Fee", "pp", "ee", "g", "w", "ci", "r", "client", "00000001QACAAAAAAAAAAA", "0",
        ])
            .prop_map(str::to_owned),
        1 => "[a-zA-Z0-9%+*.:_~-]{0,40}",
        1 => "(%[0-9A-F]{2}){0,6}",
    ]
}

/// The route of an endpoint with arbitrary parameters, or an arbitrary path.
fn path() -> impl Strategy<Value = String> {
    let routes: Vec<String> = endpoints()
        .iter()
        .map(|endpoint| format!("/api/{}/v1{}", endpoint.service.as_str(), endpoint.route))
        .collect();
    let filled = (
        prop::sample::select(routes),
        prop::collection::vec(word(), 4),
    )
        .prop_map(|(route, words)| {
            let mut words = words.into_iter();
            let parts = route
                .split('<')
                .enumerate()
                .map(|(number, part)| match number {
                    0 => part.to_owned(),
                    _ => words.next().unwrap_or_default() + part.split_once('>').unwrap().1,
                });
            parts.collect::<String>()
        });
    prop_oneof![6 => filled, 1 => "/[a-z/%._-]{0,30}", 1 => "/(references|schemas)/[a-z/.-]{0,30}"]
}

fn query() -> impl Strategy<Value = String> {
    let names = vec![
        "limit",
        "continuationToken",
        "state",
        "launchConfigId",
        "workerPoolId",
        "errorId",
        "includeArchived",
        "quarantined",
        "workerState",
        "prefix",
        "bewit",
        "x",
    ];
    let values = prop_oneof![
        word(),
        prop::sample::select(vec![
            "1",
            "0",
            "true",
            "running",
            "WyJhIl0",
            "WzEsImciLCJ3Il0"
        ])
        .prop_map(str::to_owned),
    ];
    let pair =
        (prop::sample::select(names), values).prop_map(|(name, value)| format!("{name}={value}"));
    prop::collection::vec(pair, 0..3).prop_map(|pairs| pairs.join("&"))
}

/// A body that an endpoint takes, cut or changed somewhere, or anything.
fn body() -> impl Strategy<Value = String> {
    let good = vec![
        static_pool(),
        aws_pool(&[launch_config(None, "a"), launch_config(Some("b"), "b")]),
        pool("null-provider", serde_json::json!({"launchConfigs": [1]})),
        static_worker(),
        serde_json::json!({"workerPoolId": "pp/ee", "providerId": "static", "workerGroup": "g",
            "workerId": "w", "workerIdentityProof": {"token": "t"}}),
        serde_json::json!({"workerPoolId": "pp/ee", "workerGroup": "g", "workerId": "w",
            "secret": "x".repeat(44)}),
        serde_json::json!({"kind": "k", "title": "t", "description": "d", "extra": {},
            "workerGroup": "g", "workerId": "w"}),
        serde_json::json!({"expires": "2027-01-01T00:00:00.000Z", "description": "", "scopes": ["a*"]}),
        serde_json::json!({"description": "", "scopes": ["assume:<..>"]}),
        serde_json::json!({"clientScopes": [], "requiredScopes": []}),
        serde_json::json!({"taskQueueId": "pp/ee", "created": "2026-09-21T14:13:20.000Z",
            "deadline": "2026-09-21T15:13:20.000Z", "payload": {}, "dependencies": [],
            "metadata": {"name": "n", "description": "d", "owner": "o", "source": "https://x"}}),
        serde_json::json!({"taskIds": ["00000001QACAAAAAAAAAAA", "x"]}),
        serde_json::json!({"taskQueueIds": ["pp/ee"]}),
        serde_json::json!({"newPriority": "high"}),
        serde_json::json!({"reason": "worker-shutdown"}),
        serde_json::json!({"method": "get", "resource": "/", "host": "x", "port": 1,
            "authorization": "Hawk", "sourceIp": "::1"}),
    ];
    let good = prop::sample::select(good).prop_map(|body| body.to_string());
    let changed = (good.clone(), any::<prop::sample::Index>(), "[\\PC]{0,3}").prop_map(
        |(text, at, other)| {
            let at = at.index(text.len());
            let start: String = text.chars().take(at).collect();
            let rest: String = text.chars().skip(at + 1).collect();
            format!("{start}{other}{rest}")
        },
    );
    prop_oneof![3 => good, 3 => changed, 1 => "\\PC{0,60}", 1 => Just(String::new())]
}

fn header() -> impl Strategy<Value = (String, String)> {
    let names = vec![
        "authorization",
        "host",
        "x-forwarded-for",
        "x-forwarded-proto",
        "x-forwarded-port",
        "x-taskcluster-trace-id",
        "accept",
        "x-anything",
    ];
    let values = prop_oneof![
        "[ -~]{0,60}",
        "Hawk id=\"[a-z/]{0,12}\", ts=\"[0-9]{0,20}\", nonce=\"[a-z]{0,3}\", mac=\"[a-zA-Z0-9+/=]{0,44}\"",
        Just("https".to_owned()),
        "[0-9]{1,7}",
    ];
    (prop::sample::select(names).prop_map(str::to_owned), values)
}

#[derive(Debug)]
struct Sent {
    method: Method,
    path: String,
    query: String,
    body: Option<(String, String)>,
    headers: Vec<(String, String)>,
    signed: bool,
}

fn sent() -> impl Strategy<Value = Sent> {
    let content_type = prop_oneof![
        5 => Just("application/json".to_owned()),
        1 => "[a-z/;= -]{0,20}",
    ];
    let body = prop::option::weighted(0.8, (content_type, body()));
    let headers = prop::collection::vec(header(), 0..3);
    let parts = (
        method(),
        path(),
        query(),
        body,
        headers,
        prop::bool::weighted(0.8),
    );
    parts.prop_map(|(method, path, query, body, headers, signed)| Sent {
        method,
        path,
        query,
        body,
        headers,
        signed,
    })
}

/// A listener to events or a log without an end waits for ever, so these requests get one.
fn ending(target: &str) -> String {
    if !target.contains("/events") && !target.contains("/log") {
        return target.to_owned();
    }
    let target = target.replace("follow=", "x=");
    let separator = if target.contains('?') { '&' } else { '?' };
    format!("{target}{separator}follow=false")
}

async fn send(world: &World, sent: &Sent) -> Option<Answer> {
    let target = match sent.query.as_str() {
        "" => sent.path.clone(),
        query => format!("{}?{query}", sent.path),
    };
    let target = ending(&target);
    // A text that is no URI or header never reaches the server.
    target.parse::<http::Uri>().ok()?;
    let mut ask = world.ask(sent.method.clone(), &format!("root:{target}"));
    if let Some((content_type, body)) = &sent.body {
        ask = ask.body(content_type, body.clone());
    }
    if !sent.signed {
        ask = ask.anonymously();
    }
    for (name, value) in &sent.headers {
        ask = ask.header(name, value);
    }
    Some(ask.await)
}

async fn populate(world: &World) {
    world
        .put("/worker-pool/pp%2Fee", static_pool())
        .await
        .expect(200);
    world
        .put("/workers/pp%2Fee/g/w", static_worker())
        .await
        .expect(200);
    world.insert(worker("pp/ee", "g", "v")).await;
    world.client("ci", &["a"]).await;
    let role = serde_json::json!({"description": "", "scopes": ["a"]});
    world.put("auth:/roles/r", role).await.expect(200);
    world.created(1, serde_json::json!({})).await;
}

on_both!(parallel no_request_whatever_makes_the_server_fail, without_builder, |world| {
    let tree = OpenTree::of(&world.app).await;
    populate(world).await;
    let mut runner = TestRunner::new(ProptestConfig { cases: CASES, ..ProptestConfig::default() });
    let answered = Cell::new(0);
    let outcome = runner.run(&sent(), |sent| {
        let answer = tokio::task::block_in_place(|| Handle::current().block_on(send(world, &sent)));
        if let Some(answer) = answer {
            answered.set(answered.get() + 1);
            prop_assert!(answer.status < 500, "{}", answer.text);
        }
        Ok(())
    });
    outcome.unwrap();
    assert!(answered.get() > CASES / 2, "only {} of them were requests", answered.get());
    tree.close().await;
});

// The least that every endpoint must stand: odd names, and bodies with nothing in them.
on_both!(
    every_endpoint_stands_empty_requests,
    without_builder,
    |world| {
        let tree = OpenTree::of(&world.app).await;
        populate(world).await;
        for endpoint in endpoints() {
            let method = match endpoint.method {
                Verb::Get => Method::GET,
                Verb::Put => Method::PUT,
                Verb::Post => Method::POST,
                Verb::Delete => Method::DELETE,
            };
            for parameter in ["x", "%20", "pp%2Fee", "%00", "..", "🦀"] {
                let crab: String =
                    percent_encoding::utf8_percent_encode("🦀", percent_encoding::NON_ALPHANUMERIC)
                        .collect();
                let parameter = if parameter == "🦀" {
                    &crab
                } else {
                    parameter
                };
                let route = endpoint
                    .parameters()
                    .iter()
                    .fold(endpoint.route.to_owned(), |route, name| {
                        route.replace(&format!("<{name}>"), parameter)
                    });
                let path = format!("root:/api/{}/v1{route}", endpoint.service.as_str());
                let path = if endpoint.streams.is_some() {
                    ending(&path)
                } else {
                    path
                };
                for body in ["", "{}", "[]"] {
                    let ask = world
                        .ask(method.clone(), &path)
                        .body("application/json", body);
                    let answer = ask.await;
                    assert!(answer.status < 500, "{path} {body}: {}", answer.text);
                }
            }
        }
        tree.close().await;
    }
);
