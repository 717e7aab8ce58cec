//! Limits for clients that are not authenticated yet: small bodies, few calls, and nothing that is
//! stored.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use http_body::{Body, Frame};
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use server::api::endpoint::Endpoint;
use server::api::endpoints;
use server::app::App;

use crate::ask::Ask;
use crate::database::{Database, on_sqlite_first};
use crate::samples::static_pool;
use crate::world::World;

/// A body of a call that anybody can make.
const OPEN_BYTES: usize = 64 * 1024;
const REGISTER: &str = "/worker/register";
const POOL: &str = "/worker-pool/pp%2Fee";
const PIECE: usize = 4 * 1024;

fn register(world: &World, body: impl Into<Bytes>) -> Ask {
    let ask = world.ask(Method::POST, REGISTER).anonymously();
    ask.body("application/json", body)
}

/// JSON of exactly this length, as far as there is one.
fn json_of(bytes: usize) -> String {
    match bytes.checked_sub(r#"{"a":""}"#.len()) {
        Some(rest) => format!(r#"{{"a":"{}"}}"#, "x".repeat(rest)),
        None => "1".repeat(bytes),
    }
}

on_sqlite_first!(
    a_call_that_anybody_can_make_takes_64_kib_and_no_more,
    |world| {
        for bytes in [
            0,
            1,
            OPEN_BYTES - 1,
            OPEN_BYTES,
            OPEN_BYTES + 1,
            10 * OPEN_BYTES,
        ] {
            let answer = register(world, json_of(bytes)).await;
            if bytes <= OPEN_BYTES {
                assert_eq!(answer.status, 400, "{bytes}: {}", answer.text);
                continue;
            }
            let text = format!("The body is larger than {OPEN_BYTES} bytes");
            answer.refused(413, "InputTooLarge", &text);
        }
        // Authenticated clients may send more.
        let text = "x".repeat(10 * OPEN_BYTES);
        let mut pool = static_pool();
        pool["config"] = json!({"workerConfig": {"text": text}});
        world.put(POOL, pool).await.expect(200);
    }
);

/// This many objects with one member each: with its comma, seven bytes of text become hundreds.
fn objects(n_objects: usize) -> String {
    let objects = vec![r#"{"":0}"#; n_objects].join(",");
    format!(r#"{{"a":[{objects}]}}"#)
}

/// How much one of them weighs: its text and its comma twice, the object, and a further value.
const OBJECT_WEIGHT: usize = 7 + 7 + 640 + 112;
/// The frame around them.
const FRAME_WEIGHT: usize = 670;

#[tokio::test]
async fn a_small_text_that_becomes_large_is_not_parsed() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    // An open call may weigh a megabyte.
    let limit = (1024 * 1024 - FRAME_WEIGHT) / OBJECT_WEIGHT;
    for n_objects in [0, 1, limit - 1, limit, limit + 1, 4 * limit, 10 * limit] {
        let text = objects(n_objects);
        let is_long = text.len() > OPEN_BYTES;
        let answer = register(&world, text).await;
        match n_objects {
            _ if n_objects <= limit => assert_eq!(answer.status, 400, "{n_objects}"),
            _ if is_long => answer.refused_with(413, "InputTooLarge", "is larger than"),
            _ => answer.refused_with(413, "InputTooLarge", "The body has too many values"),
        }
    }
    // Ten megabytes of them, from somebody who may send ten megabytes.
    let large = objects(1_200_000);
    let ask = world.ask(Method::PUT, POOL).body("application/json", large);
    ask.await
        .refused_with(413, "InputTooLarge", "The body has too many values");
}

/// How much of a body the server held in memory while it was sent.
#[derive(Default)]
struct Kept {
    sent: AtomicUsize,
    most_open: AtomicUsize,
    most_admitted: AtomicUsize,
}

impl Kept {
    fn look(&self, app: &App, at_first: (usize, usize)) {
        let (admitted, open) = app.body_budget.free();
        let kept = (at_first.0 - admitted, at_first.1 - open);
        self.most_admitted.fetch_max(kept.0, Ordering::SeqCst);
        self.most_open.fetch_max(kept.1, Ordering::SeqCst);
    }
}

/// A body of this many pieces that begins like JSON.
fn watched(
    app: &Arc<App>,
    kept: &Arc<Kept>,
    n_pieces: usize,
) -> impl Body<Data = Bytes, Error = Infallible> + Send + 'static {
    let (app, kept) = (Arc::clone(app), Arc::clone(kept));
    let at_first = app.body_budget.free();
    let pieces = stream::iter(0..n_pieces).map(move |number| {
        kept.look(&app, at_first);
        kept.sent.fetch_add(PIECE, Ordering::SeqCst);
        let mut piece = vec![b' '; PIECE];
        if number == 0 {
            piece[0] = b'[';
        }
        Ok(Frame::data(Bytes::from(piece)))
    });
    StreamBody::new(pieces)
}

/// A path to the endpoint, with something for each parameter.
fn path_of(endpoint: &Endpoint) -> String {
    let mut path = format!("/api/{}/v1{}", endpoint.service.as_str(), endpoint.route);
    for parameter in endpoint.parameters() {
        path = path.replace(&format!("<{parameter}>"), "a");
    }
    path
}

on_sqlite_first!(
    no_route_keeps_much_of_a_body_before_its_sender_may_call,
    |world| {
        let at_first = world.app.body_budget.free();
        for endpoint in endpoints() {
            let kept = Arc::new(Kept::default());
            let method = endpoint.method.as_str().to_uppercase();
            let request = Request::builder()
                .method(method.as_str())
                .uri(path_of(endpoint))
                .header("host", "x")
                .header("content-type", "application/json")
                .body(watched(&world.app, &kept, 1_000))
                .unwrap();
            let peer = ([192, 0, 2, 7], 1).into();
            let reply = world.server.answer(request, peer).await;
            let status = reply.status().as_u16();
            // Streams begin, and pings do not look at what comes with them.
            assert!((200..500).contains(&status), "{}: {status}", endpoint.name);
            if endpoint.authorized_by_url() {
                assert_eq!(status, 403, "{}", endpoint.name);
            }
            drop(reply);
            let (sent, open, admitted) = (&kept.sent, &kept.most_open, &kept.most_admitted);
            let (open, admitted) = (open.load(Ordering::SeqCst), admitted.load(Ordering::SeqCst));
            assert_eq!(admitted, 0, "{}", endpoint.name);
            assert!(open <= OPEN_BYTES, "{}: {open}", endpoint.name);
            if endpoint.authorized_by_url() {
                assert_eq!(open, 0, "{}", endpoint.name);
            } else {
                let sent = sent.load(Ordering::SeqCst);
                assert!(sent <= OPEN_BYTES + PIECE, "{}: {sent}", endpoint.name);
            }
        }
        assert_eq!(world.app.body_budget.free(), at_first);
    }
);

on_sqlite_first!(
    callers_without_scopes_are_refused_whatever_the_body_is,
    |world| {
        let nobody = world.client("nobody", &[]).await;
        for body in ["{", "[[[", "{\"a\":1}", ""] {
            let ask = world
                .ask(Method::POST, "/evaluate-rules")
                .body("application/json", body);
            let answer = ask.by(&nobody).await;
            assert_eq!(answer.body()["requestInfo"]["payload"], json!({}));
            answer.refused_with(403, "InsufficientScopes", "worker-manager:evaluate-rules");
        }
    }
);

on_sqlite_first!(anonymous_scopes_do_not_allow_large_bodies, |world| {
    let scopes = ["auth:create-role:*", "worker-manager:list-worker-pools"];
    let role = json!({"description": "", "scopes": scopes});
    world.put("auth:/roles/anonymous", role).await.expect(200);
    let role = "auth:/roles/anything";
    for bytes in [
        0,
        OPEN_BYTES - 1,
        OPEN_BYTES,
        OPEN_BYTES + 1,
        10 * OPEN_BYTES,
    ] {
        // A call with a body, and a call without; zero bytes are valid JSON without length.
        for (method, path, expected) in [
            (Method::PUT, role, 400),
            (Method::GET, "/worker-pools", 200),
        ] {
            let body = json_of(bytes);
            let ask = world.ask(method, path).body("application/json", body);
            let answer = ask.anonymously().await;
            if bytes <= OPEN_BYTES {
                assert_eq!(answer.status, expected, "{bytes}: {}", answer.text);
                continue;
            }
            let text = format!("The body is larger than {OPEN_BYTES} bytes");
            answer.refused(413, "InputTooLarge", &text);
        }
    }
    let heavy = objects(2_000);
    let ask = world
        .ask(Method::PUT, role)
        .body("application/json", heavy.clone());
    let text = "at most 1048576 are given to one request";
    let answer = ask.anonymously().await;
    answer.refused_with(413, "InputTooLarge", text);
    // A known client may.
    let ask = world.ask(Method::PUT, role).body("application/json", heavy);
    ask.await.refused_with(400, "InputValidationError", "");
});

on_sqlite_first!(an_unexpected_body_must_be_small, |world| {
    for (method, path, expected) in [
        (Method::GET, "/worker-pools", 200),
        (Method::DELETE, "auth:/roles/none", 204),
        (Method::GET, "/ping", 200),
    ] {
        for bytes in [OPEN_BYTES, OPEN_BYTES + 1] {
            let ask = world.ask(method.clone(), path);
            let answer = ask.body("application/json", json_of(bytes)).await;
            if bytes <= OPEN_BYTES {
                assert_eq!(answer.status, expected, "{path}: {}", answer.text);
                continue;
            }
            answer.refused_with(413, "InputTooLarge", "larger than 65536 bytes");
        }
        // Its signature is verified all the same.
        let ask = world.ask(method, path).body("application/json", "{}");
        let seconds = world.now().as_millis() / 1_000;
        let header = ask.signature_with(&world.root(), seconds, Some("another"));
        let answer = ask.authorization(&header).await;
        match path {
            "/ping" => assert_eq!(answer.status, 200),
            _ => answer.refused_with(401, "AuthenticationFailed", "Invalid payload hash"),
        }
    }
});

/// A request whose body begins with this, and does not go on.
fn stalled(
    world: &World,
    request: http::request::Builder,
    begin: String,
    last_of_address: u8,
) -> tokio::task::JoinHandle<u16> {
    let begin = stream::iter([Ok::<_, Infallible>(Frame::data(Bytes::from(begin)))]);
    let request = request
        .header("host", "fleet.example.com")
        .header("content-type", "application/json")
        .body(StreamBody::new(begin.chain(stream::pending())))
        .unwrap();
    let (server, peer) = (Arc::clone(&world.server), [192, 0, 2, last_of_address]);
    tokio::spawn(async move {
        let reply = server.answer(request, (peer, 1).into()).await;
        reply.status().as_u16()
    })
}

#[tokio::test]
async fn an_unknown_sender_has_ten_seconds_and_takes_nothing_from_known_clients() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let role = json!({"description": "", "scopes": ["auth:create-role:*"]});
    world.put("auth:/roles/anonymous", role).await.expect(200);
    let at_first = world.app.body_budget.free();
    tokio::time::pause();
    let start = tokio::time::Instant::now();
    let request = Request::put("/api/auth/v1/roles/anything");
    let waiting = stalled(&world, request, "x".repeat(1_000), 7);
    while world.app.body_budget.free() != (at_first.0, at_first.1 - 1_000) {
        tokio::task::yield_now().await;
    }
    assert_eq!(waiting.await.unwrap(), 408);
    assert_eq!(start.elapsed().as_secs(), 10);
    assert_eq!(world.app.body_budget.free(), at_first);
}

#[tokio::test]
async fn an_address_leaves_memory_for_the_open_calls_of_others() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let at_first = world.app.body_budget.free();
    tokio::time::pause();
    // Half of the share of an address is for texts: four of its eight megabytes.
    let stalled: Vec<_> = (0..64)
        .map(|_| {
            let request = Request::post("/api/worker-manager/v1/worker/register");
            stalled(&world, request, "x".repeat(OPEN_BYTES), 7)
        })
        .collect();
    while world.app.body_budget.free().1 != at_first.1 - 64 * OPEN_BYTES {
        tokio::task::yield_now().await;
    }
    let refused = register(&world, "{}").await;
    refused.refused_with(503, "ServerBusy", "The bodies of other requests");
    assert_eq!(register(&world, "{}").locally().await.status, 400);
    for stalled in stalled {
        assert_eq!(stalled.await.unwrap(), 408);
    }
    assert_eq!(register(&world, "{}").await.status, 400);
    assert_eq!(world.app.body_budget.free(), at_first);
}

/// A pool whose configuration weighs about this much, and its text little.
fn heavy_pool(weight: usize) -> Value {
    let mut pool = static_pool();
    let objects = vec![json!({"": 0}); weight / OBJECT_WEIGHT];
    pool["config"] = json!({"workerConfig": {"a": objects}});
    pool
}

/// One request may weigh 100,000 bytes, and there is room for one of these at a time.
async fn narrow() -> World {
    let change = |config: &mut server::config::Config| {
        config.server.max_body_bytes = 50_000;
        config.server.body_memory_bytes = 110_000;
    };
    World::open(Database::sqlite(), change).await
}

#[tokio::test]
async fn the_memory_of_a_known_clients_body_is_bounded() {
    let world = narrow().await;
    let limit = 100_000;
    let text = objects((limit - FRAME_WEIGHT) / OBJECT_WEIGHT);
    // A space weighs twice: in the text, and in what is made of it.
    let weight = |text: &str| {
        let n_objects = text.matches('{').count();
        2 * text.len() + 640 * n_objects + 128 + 112 * text.matches(',').count()
    };
    let padded = text.clone() + &" ".repeat((limit - weight(&text)) / 2);
    assert_eq!(weight(&padded), limit);
    for (text, status) in [
        (text, 400),
        (padded[..padded.len() - 1].to_owned(), 400),
        (padded.clone(), 400),
        (padded + " ", 413),
        (objects(1_200), 413),
    ] {
        let n_bytes = text.len();
        let ask = world.ask(Method::PUT, POOL).body("application/json", text);
        let answer = ask.await;
        assert_eq!(answer.status, status, "{n_bytes}: {}", answer.text);
        if status == 413 {
            let text = "The body has too many values";
            answer.refused_with(413, "InputTooLarge", text);
        }
    }
}

#[tokio::test]
async fn heavy_bodies_wait_for_each_other_and_light_ones_for_none() {
    let world = narrow().await;
    let at_first = world.app.body_budget.free();
    let put = |name: &str, pool: Value| world.put(&format!("/worker-pool/pp%2F{name}"), pool);
    let heavy = |name: &str| put(name, heavy_pool(80_000)).send();
    let answers = tokio::join!(
        heavy("a"),
        heavy("b"),
        heavy("c"),
        put("light", static_pool()).send(),
    );
    for answer in [answers.0, answers.1, answers.2, answers.3] {
        answer.expect(200);
    }
    assert_eq!(world.app.body_budget.free(), at_first);
}

#[tokio::test]
async fn all_bodies_share_a_bounded_memory_and_return_it() {
    let change = |config: &mut server::config::Config| {
        config.server.max_body_bytes = 4_000;
        // Half of it is for parsing.
        config.server.body_memory_bytes = 16_000;
    };
    let world = World::open(Database::sqlite(), change).await;
    let at_first = world.app.body_budget.free();
    tokio::time::pause();
    // Two callers that may call, and then do not send the end of their bodies.
    let stalled = || {
        let signed = world.ask(Method::PUT, POOL);
        let signature = signed.signature_with(&world.root(), world.now().as_millis() / 1_000, None);
        let first = Bytes::from(json_of(3_900)).slice(..3_900 - 1);
        let first = stream::iter([Ok::<_, Infallible>(Frame::data(first))]);
        let request = Request::put("/api/worker-manager/v1/worker-pool/pp%2Fee")
            .header("host", "fleet.example.com")
            .header("content-type", "application/json")
            .header("authorization", signature)
            .body(StreamBody::new(first.chain(stream::pending())))
            .unwrap();
        let server = Arc::clone(&world.server);
        tokio::spawn(async move { server.answer(request, ([192, 0, 2, 7], 1).into()).await })
    };
    let (first, second) = (stalled(), stalled());
    while world.app.body_budget.free().0 > 16_000 - 2 * 3_899 {
        tokio::task::yield_now().await;
    }
    let mut pool = static_pool();
    pool["description"] = json!("x".repeat(500));
    let refused = world.put(POOL, pool).await;
    assert_eq!(refused.header("retry-after"), "5");
    refused.refused_with(503, "ServerBusy", "The bodies of other requests");
    // Calls without a body are answered, and so are calls that need no credentials.
    world.get("/worker-pools").await.expect(200);
    assert_eq!(register(&world, "{}").await.status, 400);
    for stalled in [first, second] {
        let reply = stalled.await.unwrap();
        assert_eq!(reply.status(), 408);
        let body = reply.into_body().collect().await.unwrap().to_bytes();
        assert!(serde_json::from_slice::<Value>(&body).is_ok());
    }
    assert_eq!(world.app.body_budget.free(), at_first);
}

#[tokio::test]
async fn an_address_makes_a_bounded_number_of_open_calls_a_minute() {
    let change = |config: &mut server::config::Config| config.server.open_calls_per_minute = 3;
    let world = World::open(Database::sqlite(), change).await;
    for _ in 0..3 {
        assert_eq!(register(&world, "{}").await.status, 400);
    }
    let refused = register(&world, "{}").await;
    assert_eq!(refused.header("retry-after"), "5");
    let text = "Too many calls without valid credentials came from this address";
    refused.refused(429, "TooManyRequests", text);
    // Nor are they looked at: a proof that is right gets the same answer.
    register(&world, "nonsense")
        .await
        .refused(429, "TooManyRequests", text);
    // All else is as ever, and so are calls from this machine.
    world.get("/ping").anonymously().await.expect(200);
    world.get("/worker-pools").await.expect(200);
    assert_eq!(register(&world, "{}").locally().await.status, 400);
    world.clock.advance_ms(20_000);
    assert_eq!(register(&world, "{}").await.status, 400);
    assert_eq!(register(&world, "{}").await.status, 429);
}
