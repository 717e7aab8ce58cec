//! Connections of callers without credentials make room: for others, for health checks, and for
//! clients that have proved themselves.

use std::net::SocketAddr;

use http::Method;
use server::config::Config;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::ask::Who;
use crate::database::{Database, on_both};
use crate::limits::{on_a_socket, say};
use crate::world::World;

/// No test waits for it.
const NEVER: u64 = 100_000;
const PING: &str = "GET /api/queue/v1/ping HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";

async fn world(max_connections: usize, change: impl FnOnce(&mut Config)) -> World {
    World::open(Database::sqlite(), |config| {
        config.server.max_connections = max_connections;
        config.server.head_seconds = NEVER;
        config.server.idle_seconds = NEVER;
        change(config);
    })
    .await
}

async fn connect(address: SocketAddr, text: &str) -> TcpStream {
    let mut stream = TcpStream::connect(address).await.unwrap();
    stream.write_all(text.as_bytes()).await.unwrap();
    stream
}

/// The head of the next reply, and its body, whose length it says.
async fn next_reply(stream: &mut TcpStream) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    let mut reply = String::from_utf8(head).unwrap();
    let length = reply.split("content-length: ").nth(1).unwrap();
    let length = length.split("\r\n").next().unwrap().parse().unwrap();
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();
    reply.push_str(&String::from_utf8(body).unwrap());
    reply
}

/// Whether the server has closed it, once it did.
async fn is_closed(stream: &mut TcpStream) -> bool {
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).await.is_err() || rest.is_empty()
}

/// A signed request, which keeps the connection.
fn signed(world: &World, who: &Who) -> String {
    let ask = world.ask(Method::GET, "/worker-pools");
    let signature = ask.signature(who);
    format!(
        "GET {} HTTP/1.1\r\nhost: {}\r\nauthorization: {signature}\r\n\r\n",
        ask.path, ask.host
    )
}

#[tokio::test]
async fn half_a_request_line_on_all_connections_keeps_no_ping_out() {
    let world = world(100, |_| {}).await;
    let (address, _stop) = on_a_socket(&world).await;
    let mut halves = Vec::new();
    for _ in 0..100 {
        halves.push(connect(address, "GET /api/que").await);
    }
    for _ in 0..3 {
        let reply = say(address, PING).await;
        assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    }
    // The longest waiting ones have left.
    assert!(is_closed(&mut halves[0]).await);
    let rest = "ue/v1/ping HTTP/1.1\r\nhost: x\r\n\r\n";
    halves[99].write_all(rest.as_bytes()).await.unwrap();
    assert!(
        next_reply(&mut halves[99])
            .await
            .starts_with("HTTP/1.1 200 ")
    );
    let metrics = world.app.telemetry.render();
    let counted = "fleetwright_connections_closed_total{reason=\"full\"}";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn connections_that_only_wait_leave_even_a_single_place_to_others() {
    let world = world(1, |_| {}).await;
    let (address, _stop) = on_a_socket(&world).await;
    let mut silent = connect(address, "").await;
    let mut idle = connect(address, "GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(is_closed(&mut silent).await);
    assert!(next_reply(&mut idle).await.ends_with("alive\n"));
    let reply = say(address, PING).await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    assert!(is_closed(&mut idle).await);
}

#[tokio::test]
async fn a_client_that_has_proved_itself_keeps_its_connection() {
    let world = world(10, |_| {}).await;
    let (address, _stop) = on_a_socket(&world).await;
    let request = signed(&world, &world.root());
    let mut client = connect(address, &request).await;
    assert!(next_reply(&mut client).await.starts_with("HTTP/1.1 200 "));
    let wrong = signed(&world, &Who::new("static/root", "wrong"));
    let mut impostor = connect(address, &wrong).await;
    assert!(next_reply(&mut impostor).await.starts_with("HTTP/1.1 401 "));
    let mut others = Vec::new();
    for _ in 0..30 {
        others.push(connect(address, "GET /").await);
    }
    assert!(is_closed(&mut impostor).await);
    client.write_all(request.as_bytes()).await.unwrap();
    assert!(next_reply(&mut client).await.starts_with("HTTP/1.1 200 "));
}

#[tokio::test]
async fn known_clients_do_not_take_the_last_places() {
    let world = world(10, |_| {}).await;
    let (address, _stop) = on_a_socket(&world).await;
    let request = signed(&world, &world.root());
    let mut clients = Vec::new();
    for number in 0..10 {
        let mut client = connect(address, &request).await;
        let reply = next_reply(&mut client).await;
        if number < 9 {
            assert!(reply.starts_with("HTTP/1.1 200 "), "{number}: {reply}");
        } else {
            assert!(reply.starts_with("HTTP/1.1 503 "), "{reply}");
            assert!(reply.contains("server.max_connections"), "{reply}");
            assert!(reply.contains("retry-after: 5\r\n"), "{reply}");
        }
        clients.push(client);
    }
    let reply = say(address, PING).await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[tokio::test]
async fn heads_of_all_connections_have_a_budget() {
    let world = world(1_000, |config| {
        config.server.head_memory_bytes = 64 * 1024;
    })
    .await;
    let (address, _stop) = on_a_socket(&world).await;
    let half = format!("GET / HTTP/1.1\r\nhost: x\r\nx: {}", "x".repeat(15_000));
    let mut halves = Vec::new();
    for _ in 0..20 {
        halves.push(connect(address, &half).await);
    }
    // Four of them have room.
    for closed in &mut halves[..16] {
        assert!(is_closed(closed).await);
    }
    let reply = say(address, PING).await;
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
}

#[tokio::test]
async fn replies_to_more_connections_than_may_wait_say_that_they_end() {
    let world = world(1_000, |config| {
        config.server.head_memory_bytes = 16 * 1024;
    })
    .await;
    let (address, _stop) = on_a_socket(&world).await;
    let ask = "GET /live HTTP/1.1\r\nhost: x\r\n\r\n";
    let mut first = connect(address, ask).await;
    assert!(!next_reply(&mut first).await.contains("connection: close"));
    let mut second = connect(address, ask).await;
    assert!(
        next_reply(&mut second)
            .await
            .contains("connection: close\r\n")
    );
    assert!(is_closed(&mut second).await);
    // A known client does not count.
    let mut client = connect(address, &signed(&world, &world.root())).await;
    assert!(!next_reply(&mut client).await.contains("connection: close"));
    first.write_all(ask.as_bytes()).await.unwrap();
    assert!(!next_reply(&mut first).await.contains("connection: close"));
}

#[tokio::test]
async fn a_later_head_has_the_short_limit_from_its_first_byte_on() {
    let world = world(10, |config| config.server.head_seconds = 1).await;
    let (address, _stop) = on_a_socket(&world).await;
    let mut stream = connect(address, "GET /live HTTP/1.1\r\nhost: x\r\n\r\n").await;
    next_reply(&mut stream).await;
    stream.write_all(b"GET /live").await.unwrap();
    // Not after `idle_seconds`.
    assert!(is_closed(&mut stream).await);
}

on_both!(
    an_unknown_client_costs_one_read_and_is_known_once_it_exists,
    |world| {
        let stranger = Who::new("later", "x");
        let ask = || world.get("/worker-pools").by(&stranger);
        world.get("/worker-pools").await.expect(200);
        let (first, counts) = world.counted(Box::pin(ask().send())).await;
        assert_eq!((first.status, counts.statements("client_get")), (401, 1));
        for _ in 0..10 {
            let (again, counts) = world.counted(Box::pin(ask().send())).await;
            assert_eq!((again.status, counts.all_statements()), (401, 0));
        }
        let later = world
            .client("later", &["worker-manager:list-worker-pools"])
            .await;
        world.get("/worker-pools").by(&later).await.expect(200);
    }
);

#[tokio::test]
async fn an_address_fails_a_bounded_number_of_times_and_its_known_clients_do_not_suffer() {
    const LIMIT: u32 = 3;
    let change = |config: &mut Config| config.server.open_calls_per_minute = LIMIT;
    let world = World::open(Database::sqlite(), change).await;
    let scopes = ["worker-manager:list-worker-pools"];
    let known = world.client("known", &scopes).await;
    let fresh = world.client("fresh", &scopes).await;
    let ask = |who: &Who| world.get("/worker-pools").by(who);
    ask(&known).await.expect(200);
    let wrong = Who::new("known", "wrong");
    for _ in 0..LIMIT {
        assert_eq!(ask(&wrong).await.status, 401);
    }
    let text = "Too many calls without valid credentials came from this address";
    ask(&wrong).await.refused(429, "TooManyRequests", text);
    // A client that was used is in memory; another is not looked up.
    ask(&known).await.expect(200);
    let (refused, counts) = world.counted(Box::pin(ask(&fresh).send())).await;
    refused.refused(429, "TooManyRequests", text);
    assert_eq!(counts.statements("client_get"), 0);
    ask(&fresh).locally().await.expect(200);
    world.clock.advance_ms(60_000);
    assert_eq!(ask(&wrong).await.status, 401);
}
