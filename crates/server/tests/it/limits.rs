//! Limits: requests that are too large, too slow, too deep or cannot be stored are refused, and no
//! others.

use http::Method;
use serde_json::{Value, json};
use std::sync::Arc;
use testing::sizes_around;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio_util::sync::CancellationToken;

use crate::database::{Database, on_both, on_sqlite_first};
use crate::samples::{aws_pool, launch_config, pool, static_pool};
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
const MEGABYTE: usize = 1024 * 1024;

fn pool_with_text(text: &str) -> Value {
    pool("static", json!({"workerConfig": {"text": text}}))
}

on_sqlite_first!(a_body_of_twenty_megabytes_is_too_large, |world| {
    let large = pool_with_text(&"x".repeat(20 * MEGABYTE));
    let answer = world.put(POOL, large).await;
    assert!(answer.text.len() < 2_000);
    answer.refused(
        413,
        "InputTooLarge",
        "The body is larger than 10485760 bytes",
    );
});

on_both!(a_body_just_below_the_limit_is_stored, |world| {
    let text = "x".repeat(10 * MEGABYTE - 1_000);
    world.put(POOL, pool_with_text(&text)).await.expect(200);
    let shown = world.get(POOL).await.expect(200);
    assert_eq!(shown["config"]["workerConfig"]["text"], text);
    let again = world.put(POOL, pool_with_text("")).await;
    again.refused(409, "RequestConflict", "Worker pool already exists");
});

on_sqlite_first!(large_bodies_are_not_repeated_in_errors, |world| {
    let mut large = pool_with_text(&"x".repeat(MEGABYTE));
    large["surprise"] = json!(1);
    let answer = world.put(POOL, large).await;
    assert!(answer.text.len() < 2_000);
    assert_eq!(answer.body()["requestInfo"]["payload"], "(OMITTED)");
});

on_sqlite_first!(deep_nesting_is_refused, |world| {
    for (open, close) in [("[", "]"), ("{\"a\":", "}")] {
        for depth in [200, 50_000] {
            let text = format!("{}1{}", open.repeat(depth), close.repeat(depth));
            for path in [POOL, "/worker/register"] {
                let method = if path == POOL {
                    Method::PUT
                } else {
                    Method::POST
                };
                let ask = world
                    .ask(method, path)
                    .body("application/json", text.clone());
                if path != POOL && text.len() > 64 * 1024 {
                    ask.await.refused_with(413, "InputTooLarge", "larger than");
                    continue;
                }
                ask.await
                    .refused_with(400, "MalformedPayload", "Failed to parse body as JSON");
            }
        }
    }
    let text = format!("[{}", "{\"a\":[".repeat(20_000));
    let ask = world.ask(Method::PUT, POOL).body("application/json", text);
    ask.await
        .refused_with(400, "MalformedPayload", "Failed to parse body as JSON");
});

on_sqlite_first!(a_bounded_number_of_problems_is_listed, |world| {
    let scopes: Vec<Value> = (0..50_000).map(|number| json!(number)).collect();
    let body = json!({"description": "", "scopes": scopes});
    let answer = world.put("auth:/roles/r", body).await;
    assert!(answer.text.len() < 100_000, "{}", answer.text.len());
    answer.refused_with(400, "InputValidationError", "");
});

on_both!(texts_with_nul_are_refused_everywhere, |world| {
    for body in [
        pool_with_text("a\0b"),
        pool("static", json!({"workerConfig": {"a\0b": 1}})),
        pool("static", json!({"workerConfig": [[{"deep": ["\0"]}]]})),
    ] {
        let answer = world.put(POOL, body).await;
        answer.refused_with(400, "MalformedPayload", "U+0000");
    }
    for path in [
        "/worker-pool/pp%00%2Fee",
        "/provisioners/a%00/worker-types/b/workers",
        "/workers/pp%2Fee?launchConfigId=%00",
        "/worker-pools?continuationToken=%00",
        "/worker-pool-errors/stats?workerPoolId=%00",
        "auth:/audit/client/%00",
        "auth:/clients/?prefix=%00",
        "auth:/clients/a%00",
        "auth:/roles/a%00",
    ] {
        let answer = world.get(path).await;
        assert_eq!(answer.status, 400, "{path}: {}", answer.text);
    }
});

on_both!(odd_texts_are_stored_as_they_are, |world| {
    let odd = "\u{1}\u{7f}\u{2028}\u{10ffff} 'quoted' \"twice\" \\ %00 ; -- größe 🦀\r\n\t";
    let mut wanted = pool_with_text(odd);
    wanted["description"] = json!(odd);
    world.put(POOL, wanted.clone()).await.expect(200);
    let shown = world.get(POOL).await.expect(200);
    assert_eq!(shown["description"], odd);
    assert_eq!(shown["config"], wanted["config"]);
});

on_both!(numbers_at_their_edges_are_kept_or_refused, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    let worker = |capacity: Value| {
        json!({"expires": "2026-12-01T00:00:00.000Z", "capacity": capacity,
            "providerInfo": {"staticSecret": "s".repeat(44)}})
    };
    let largest = u32::MAX;
    let made = world
        .put("/workers/pp%2Fee/g/w1", worker(json!(largest)))
        .await
        .expect(200);
    assert_eq!(made["capacity"], largest);
    world
        .put("/workers/pp%2Fee/g/w2", worker(json!(largest)))
        .await
        .expect(200);
    let shown = world.get(POOL).await.expect(200);
    assert_eq!(shown["runningCapacity"], 2 * u64::from(largest));
    for bad in [
        json!(0),
        json!(-1),
        json!(1.5),
        json!("1"),
        json!(u64::from(largest) + 1),
        json!(1e300),
    ] {
        let answer = world
            .put("/workers/pp%2Fee/g/w3", worker(bad.clone()))
            .await;
        assert_eq!(answer.status, 400, "{bad}: {}", answer.text);
    }
    for expires in [
        "9999-12-31T23:59:59.999Z",
        "9999-12-31T23:59:60Z",
        "0000-01-01T00:00:00Z",
    ] {
        let mut body = worker(json!(1));
        body["expires"] = json!(expires);
        let answer = world.put("/workers/pp%2Fee/g/w4", body).await;
        assert!(
            [200, 400, 409].contains(&answer.status),
            "{expires}: {}",
            answer.text
        );
    }
});

/// A server on a socket, for tests that need one.
pub(crate) async fn on_a_socket(world: &World) -> (std::net::SocketAddr, CancellationToken) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    tokio::spawn(Arc::clone(&world.server).serve(listener, stop.clone()));
    (address, stop)
}

pub(crate) async fn say(address: std::net::SocketAddr, text: &str) -> String {
    let mut stream = TcpStream::connect(address).await.unwrap();
    // It may be refused before all of it was sent.
    let _ = stream.write_all(text.as_bytes()).await;
    let mut reply = Vec::new();
    let _ = stream.read_to_end(&mut reply).await;
    String::from_utf8_lossy(&reply).into_owned()
}

#[tokio::test]
async fn a_body_that_does_not_arrive_times_out() {
    let world = World::open(Database::sqlite(), |config| config.server.body_seconds = 1).await;
    let (address, _stop) = on_a_socket(&world).await;
    let reply = say(
        address,
        "POST /api/worker-manager/v1/worker/register HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 100\r\n\r\n{\"worker",
    )
    .await;
    assert!(reply.starts_with("HTTP/1.1 408 "), "{reply}");
    assert!(
        reply.contains("The body did not arrive within 1 seconds"),
        "{reply}"
    );
}

#[tokio::test]
async fn a_head_that_does_not_arrive_times_out() {
    let world = World::open(Database::sqlite(), |config| config.server.head_seconds = 1).await;
    let (address, _stop) = on_a_socket(&world).await;
    assert_eq!(say(address, "GET /live HTTP/1.1\r\nhost").await, "");
    assert_eq!(say(address, "").await, "");
}

#[tokio::test]
async fn a_body_that_is_too_large_is_refused_before_all_of_it_has_arrived() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let (address, _stop) = on_a_socket(&world).await;
    let reply = say(
        address,
        "POST /api/worker-manager/v1/worker/register HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\
         content-type: application/json\r\ncontent-length: 99999999999\r\n\r\n{",
    )
    .await;
    assert!(reply.starts_with("HTTP/1.1 413 "), "{reply}");
}

#[tokio::test]
async fn heads_that_are_too_large_are_refused() {
    let world = World::open(Database::sqlite(), |config| config.server.head_seconds = 2).await;
    let (address, _stop) = on_a_socket(&world).await;
    for head in [
        format!(
            "GET /live HTTP/1.1\r\nhost: x\r\nx: {}\r\n\r\n",
            "x".repeat(300_000)
        ),
        format!(
            "GET /live HTTP/1.1\r\nhost: x\r\n{}\r\n",
            "x: y\r\n".repeat(150)
        ),
        format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(300_000)),
        "nonsense\r\n\r\n".to_owned(),
    ] {
        let reply = say(address, &head).await;
        let refused = reply.is_empty() || reply.starts_with("HTTP/1.1 4");
        assert!(refused, "{:.60}: {reply}", head);
    }
    let reply = say(
        address,
        "GET /live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
    )
    .await;
    assert!(reply.ends_with("alive\n"), "{reply}");
}

#[tokio::test]
async fn heads_have_at_most_16_kib() {
    let limit = 16 * 1024;
    let world = World::open(Database::sqlite(), |_| {}).await;
    for extra in [1_000, limit - 1_000, limit, limit + 1_000, 10 * limit] {
        // In several headers, and once in one.
        let lines: String = (0..extra / 1_000)
            .map(|number| format!("x-{number:04}: {}\r\n", "x".repeat(1_000 - 10)))
            .collect();
        let one = format!("x: {}\r\n", "x".repeat(extra - 5));
        let (address, _stop) = on_a_socket(&world).await;
        for lines in [lines, one] {
            let head = format!("GET /live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n{lines}\r\n");
            let reply = say(address, &head).await;
            if head.len() <= limit {
                assert!(reply.ends_with("alive\n"), "{}: {reply}", head.len());
            } else {
                let refused = reply.is_empty() || reply.starts_with("HTTP/1.1 431 ");
                assert!(refused, "{}: {reply}", head.len());
            }
        }
    }
}

#[tokio::test]
async fn a_head_has_at_most_a_hundred_headers() {
    const LIMIT: usize = 100;
    let world = World::open(Database::sqlite(), |_| {}).await;
    let (address, _stop) = on_a_socket(&world).await;
    for count in sizes_around("server::api::listener::MAX_HEADERS", LIMIT) {
        let lines: String = (0..count)
            .map(|number| format!("x-{number}: y\r\n"))
            .collect();
        // This version needs no header at all, and ends the connection by itself.
        let reply = say(address, &format!("GET /live HTTP/1.0\r\n{lines}\r\n")).await;
        if count <= LIMIT {
            assert!(reply.ends_with("alive\n"), "{count}: {reply}");
        } else {
            let is_refused =
                reply.starts_with("HTTP/1.1 431 ") || reply.starts_with("HTTP/1.0 431 ");
            assert!(is_refused, "{count}: {reply}");
        }
    }
}

#[tokio::test]
async fn head_reports_the_length_that_get_sends() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let (address, _stop) = on_a_socket(&world).await;
    let rest = "/live HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
    let get = say(address, &format!("GET {rest}")).await;
    let head = say(address, &format!("HEAD {rest}")).await;
    assert!(get.contains("content-length: 6\r\n"), "{get}");
    assert!(head.contains("content-length: 6\r\n"), "{head}");
    assert_eq!(head.matches("content-length").count(), 1, "{head}");
    assert!(head.ends_with("\r\n\r\n"), "{head}");
}

#[tokio::test]
async fn a_request_under_way_may_end_when_the_server_stops() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let serving = tokio::spawn(Arc::clone(&world.server).serve(listener, stop.clone()));
    let mut stream = TcpStream::connect(address).await.unwrap();
    let head = "POST /api/worker-manager/v1/worker/register HTTP/1.1\r\nhost: x\r\n\
                content-type: application/json\r\ncontent-length: 2\r\nexpect: 100-continue\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    // That the body is asked for shows that the request is under way.
    let mut go_on = [0; 25];
    stream.read_exact(&mut go_on).await.unwrap();
    assert!(go_on.starts_with(b"HTTP/1.1 100 Continue"));
    stop.cancel();
    stream.write_all(b"{}").await.unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 400 "), "{reply}");
    serving.await.unwrap();
    assert!(TcpStream::connect(address).await.is_err());
}

on_both!(
    a_pool_has_a_great_many_launch_configs_but_not_any_number,
    |world| {
        let configs: Vec<Value> = (0..2_001)
            .map(|number| launch_config(None, &number.to_string()))
            .collect();
        let answer = world.put(POOL, aws_pool(&configs)).await;
        let text = "A pool has at most 2000 launch configs";
        answer.refused(400, "InputError", text);
        world.put(POOL, aws_pool(&configs[1..])).await.expect(200);
        let answer = world.post(POOL, aws_pool(&configs)).await;
        answer.refused(400, "InputError", text);
        let listed = world.get("/worker-pools").await.expect(200);
        let listed = listed["workerPools"][0]["config"]["launchConfigs"].as_array();
        assert_eq!(listed.map(Vec::len), Some(2_000));
    }
);
