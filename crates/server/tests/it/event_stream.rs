//! The live stream of events: its listeners, how they resume, and how the stream ends.

use std::sync::Arc;
use std::time::Duration;

use engine::random::Random;
use http_body_util::BodyExt;
use rand::SeedableRng;
use rand::rngs::StdRng;
use serde_json::{Value, json};
use server::api::body::Body;
use server::app::App;
use server::background::EventPublisher;
use server::background::driver::BackgroundTask;
use server::start::start_with;
use testing::sizes_around;

use crate::ask::Ask;
use crate::database::{on_both, on_sqlite_first};
use crate::samples::{null_pool, static_pool, static_worker, worker};
use crate::world::World;

/// Whatever is waited for comes within this time, or never.
const PATIENCE: Duration = Duration::from_secs(120);
const EVENTS: &str = "fleetwright:/events";

/// One message of the stream.
#[derive(Clone, Debug, PartialEq)]
struct Message {
    id: Option<i64>,
    event: Option<String>,
    payload: Value,
}

/// A client that listens.
struct Listening {
    body: Body,
    text: String,
}

impl Listening {
    async fn open(ask: Ask) -> Self {
        let response = ask.open().await;
        assert_eq!(response.status(), 200);
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        let mut listening = Self {
            body: response.into_body(),
            text: String::new(),
        };
        let first = listening.next().await.unwrap();
        assert_eq!((first.id, first.event), (None, None), "how long to wait");
        listening
    }

    /// `None` at the end of the stream.
    async fn next(&mut self) -> Option<Message> {
        loop {
            if let Some((message, rest)) = self.text.split_once("\n\n") {
                let message = parse(message);
                self.text = rest.to_owned();
                return Some(message);
            }
            let frame = tokio::time::timeout(PATIENCE, self.body.frame()).await;
            let bytes = frame
                .expect("a message in time")?
                .unwrap()
                .into_data()
                .unwrap();
            self.text.push_str(std::str::from_utf8(&bytes).unwrap());
        }
    }

    /// The next message that is not a heartbeat.
    async fn event(&mut self) -> Message {
        loop {
            let message = self.next().await.expect("another message");
            if message.event.is_some() {
                return message;
            }
        }
    }

    /// The names of all events up to the end, and the last message.
    async fn rest(&mut self) -> (Vec<String>, Message) {
        let mut names = Vec::new();
        loop {
            let message = self.event().await;
            let name = message.event.clone().unwrap();
            if name == "end" {
                assert_eq!(self.next().await, None);
                return (names, message);
            }
            names.push(name);
        }
    }
}

fn parse(text: &str) -> Message {
    let mut message = Message {
        id: None,
        event: None,
        payload: Value::Null,
    };
    for line in text.lines() {
        match line.split_once(": ").unwrap() {
            ("id", id) => message.id = Some(id.parse().unwrap()),
            ("event", event) => message.event = Some(event.to_owned()),
            ("data", text) => message.payload = serde_json::from_str(text).unwrap(),
            ("retry", _) => {}
            (other, _) => panic!("{other}"),
        }
    }
    message
}

async fn publish(app: &Arc<App>) {
    EventPublisher(Arc::clone(app)).activate().await.unwrap();
}

async fn make_pool(world: &World, id: &str) {
    make(world, id, null_pool()).await;
}

/// Its launch config is a second event.
async fn make_pool_of_hosts(world: &World, id: &str) {
    make(world, id, static_pool()).await;
}

async fn make(world: &World, id: &str, pool: Value) {
    let path = format!("/worker-pool/{}", id.replace('/', "%2F"));
    world.put(&path, pool).await.expect(200);
    publish(&world.app).await;
}

/// The events that a listener with this query gets.
async fn all(world: &World, query: &str) -> Vec<String> {
    let ask = world.get(&format!("{EVENTS}?after=0&follow=false{query}"));
    let (names, end) = Listening::open(ask).await.rest().await;
    assert_eq!(end.payload, json!({"reason": "these were all"}));
    names
}

on_both!(events_arrive_at_once, |world| {
    make_pool(world, "before/that").await;
    let mut listening = Listening::open(world.get(EVENTS)).await;
    make_pool(world, "pp/ee").await;
    let heard = listening.event().await;
    assert_eq!(heard.event.as_deref(), Some("worker-pool-created"));
    let event = &heard.payload;
    assert_eq!(event["sequence"], json!(heard.id.unwrap()));
    assert_eq!(
        event["exchange"],
        "exchange/taskcluster-worker-manager/v1/worker-pool-created"
    );
    assert_eq!(event["routingKey"], "primary._._._._._._._");
    assert_eq!(event["created"], world.now().to_string());
    assert_eq!(event["payload"]["workerPoolId"], "pp/ee");
    assert_eq!(event["id"].as_str().unwrap().len(), 22);
});

on_both!(a_listener_goes_on_where_it_was, |world| {
    let mut listening = Listening::open(world.get(EVENTS)).await;
    make_pool(world, "pp/a").await;
    let first = listening.event().await;
    drop(listening);
    make_pool(world, "pp/b").await;
    make_pool(world, "pp/c").await;
    let id = first.id.unwrap().to_string();
    let by_header = world.get(EVENTS).header("last-event-id", &id);
    // A client that reconnects sends both, and its position has moved since it began.
    let by_both = world
        .get(&format!("{EVENTS}?after=0"))
        .header("last-event-id", &id);
    let by_query = world.get(&format!("{EVENTS}?after={id}"));
    for ask in [by_header, by_both, by_query] {
        let mut again = Listening::open(ask).await;
        for pool in ["pp/b", "pp/c"] {
            let event = again.event().await;
            assert_eq!(event.payload["payload"]["workerPoolId"], pool);
        }
    }
});

on_both!(a_listener_gets_the_events_of_its_filter, |world| {
    make_pool_of_hosts(world, "pp/a").await;
    make_pool(world, "pp/b").await;
    world
        .put("/workers/pp%2Fa/g/w1", static_worker())
        .await
        .expect(200);
    world
        .put("/workers/pp%2Fa/g/w2", static_worker())
        .await
        .expect(200);
    world.client("someone", &[]).await;
    publish(&world.app).await;
    let made = "worker-pool-created";
    let config = "launch-config-created";
    let runs = "worker-running";
    for (query, expected) in [
        ("", vec![made, config, made, runs, runs, "client-created"]),
        ("&workerPoolId=pp%2Fa", vec![made, config, runs, runs]),
        ("&workerPoolId=pp%2Fa&workerId=w1&workerGroup=g", vec![runs]),
        ("&workerGroup=other", vec![]),
        ("&exchange=worker-running", vec![runs, runs]),
        (
            "&exchange=exchange/taskcluster-auth/v1/client-created,worker-pool-created",
            vec![made, made, "client-created"],
        ),
        ("&taskId=AAAAAAAAQACAAAAAAAAAAA", vec![]),
        ("&taskGroupId=AAAAAAAAQACAAAAAAAAAAA", vec![]),
    ] {
        assert_eq!(all(world, query).await, expected, "{query}");
    }
});

on_both!(a_listener_can_begin_in_the_past, |world| {
    make_pool(world, "pp/a").await;
    world.clock.advance_ms(3_600_000);
    let since = world.now().to_string();
    make_pool(world, "pp/b").await;
    let ask = world.get(&format!("{EVENTS}?follow=false&since={since}"));
    let mut listening = Listening::open(ask).await;
    let event = listening.event().await;
    assert_eq!(event.payload["payload"]["workerPoolId"], "pp/b");
    assert_eq!(listening.rest().await.0, Vec::<String>::new());
});

on_sqlite_first!(a_listener_gets_only_events_that_it_could_read, |world| {
    make_pool_of_hosts(world, "pp/a").await;
    make_pool(world, "pp/b").await;
    world.insert(worker("pp/a", "g", "w")).await;
    world
        .put("/workers/pp%2Fa/g/s", static_worker())
        .await
        .expect(200);
    publish(&world.app).await;
    let listen = "fleetwright:listen-events";
    for (scopes, expected) in [
        (vec![listen], vec![]),
        (
            vec![listen, "worker-manager:get-worker-pool:pp/a"],
            vec!["worker-pool-created", "launch-config-created"],
        ),
        (
            vec![listen, "worker-manager:list-workers:pp/a"],
            vec!["worker-running"],
        ),
        (
            vec![listen, "worker-manager:get-worker:pp/a/g/s"],
            vec!["worker-running"],
        ),
        (vec![listen, "worker-manager:get-worker:pp/a/g/x"], vec![]),
    ] {
        let who = world.root().temporary(None, &scopes, world.now());
        let ask = world
            .get(&format!("{EVENTS}?after=0&follow=false"))
            .by(&who);
        let (names, _) = Listening::open(ask).await.rest().await;
        assert_eq!(names, expected, "{scopes:?}");
    }
});

on_both!(
    a_listener_that_does_not_follow_gets_what_was_committed_before,
    |world| {
        world
            .put("/worker-pool/pp%2Fa", null_pool())
            .await
            .expect(200);
        let (names, ()) = tokio::join!(all(world, ""), publish(&world.app));
        assert_eq!(names, ["worker-pool-created"]);
        // Events of another process are in the stream, but not yet in this one's memory.
        let other = second_app(world).await;
        let path = "/worker-pool/pp%2Fb";
        world.put(path, null_pool()).await.expect(200);
        publish(&other).await;
        let (names, ()) = tokio::join!(all(world, ""), publish(&world.app));
        assert_eq!(names, ["worker-pool-created", "worker-pool-created"]);
    }
);

on_both!(
    a_listener_that_does_not_follow_gets_an_answer_without_a_publisher,
    |world| {
        make_pool(world, "pp/a").await;
        world
            .put("/worker-pool/pp%2Fb", null_pool())
            .await
            .expect(200);
        assert_eq!(all(world, "").await, ["worker-pool-created"]);
    }
);

on_both!(a_slow_listener_misses_nothing, |world| {
    let mut listening = Listening::open(world.get(EVENTS)).await;
    // More than is kept in memory, published while the listener does not read.
    const N_EVENTS: usize = 5_000;
    let ids = (0..N_EVENTS).map(|number| format!("e{number}"));
    let ids: Vec<String> = ids.collect();
    world
        .write(move |tx| {
            for id in &ids {
                let body = domain::event::EventBody::PoolCreated {
                    pool_id: "pp/ee".parse().unwrap(),
                    provider_id: "static".parse().unwrap(),
                };
                let event = domain::event::Event {
                    id: id.clone(),
                    created: domain::time::Timestamp::from_millis(1_790_000_000_000),
                    body,
                };
                store::outbox::push(tx, &event)?;
            }
            Ok(())
        })
        .await;
    publish(&world.app).await;
    for number in 0..N_EVENTS {
        let event = listening.event().await;
        assert_eq!(event.payload["id"], format!("e{number}"));
    }
});

on_both!(a_listener_is_notified_of_expired_events, |world| {
    make_pool(world, "pp/a").await;
    let mut before = Listening::open(world.get(EVENTS)).await;
    make_pool(world, "pp/b").await;
    let seen = before.event().await.id.unwrap() - 1;
    make_pool(world, "pp/c").await;
    // The events in memory are from before this time.
    world.clock.advance_ms(48 * 3_600_000);
    make_pool(world, "pp/d").await;
    world.read_outcomes().await;
    world.keep_house().await;
    let app = second_app(world).await;
    let server = Arc::new(server::api::listener::Server::new(app));
    let path = format!("{EVENTS}?after={seen}&follow=false");
    let ask = Ask::new(server, http::Method::GET, &path, world.now()).by(&world.root());
    let mut listening = Listening::open(ask).await;
    let missed = listening.event().await;
    assert_eq!(missed.event.as_deref(), Some("missed"));
    assert_eq!(missed.payload, json!({"after": seen, "until": seen + 2}));
    assert_eq!(missed.id, Some(seen + 2));
    let event = listening.event().await;
    assert_eq!(event.payload["payload"]["workerPoolId"], "pp/d");
});

on_both!(an_unknown_position_is_reported_as_missed, |world| {
    make_pool(world, "pp/a").await;
    let ask = world.get(&format!("{EVENTS}?after=999999&follow=false"));
    let mut listening = Listening::open(ask).await;
    let missed = listening.event().await;
    assert_eq!(missed.event.as_deref(), Some("missed"));
    let (names, end) = listening.rest().await;
    assert!(names.is_empty());
    assert_eq!(end.id, missed.id);
});

/// A second process on the same database.
async fn second_app(world: &World) -> Arc<App> {
    let random = Random::new(StdRng::seed_from_u64(99));
    let clock = Arc::clone(&world.clock) as _;
    start_with(world.app.config.clone(), clock, random, Vec::new())
        .await
        .unwrap()
}

on_both!(events_of_another_process_arrive_here, |world| {
    let other = second_app(world).await;
    let mut listening = Listening::open(world.get(EVENTS)).await;
    let server = Arc::new(server::api::listener::Server::new(Arc::clone(&other)));
    for (number, places) in [(1, &other), (2, &world.app), (3, &other)] {
        let path = format!("/worker-pool/pp%2Fp{number}");
        let made = Ask::new(Arc::clone(&server), http::Method::PUT, &path, world.now());
        made.by(&world.root()).json(&null_pool()).await.expect(200);
        // Both processes publish the event, whichever assigned its position.
        publish(places).await;
        publish(&world.app).await;
        let event = listening.event().await;
        assert_eq!(
            event.payload["payload"]["workerPoolId"],
            format!("pp/p{number}")
        );
    }
    publish(&other).await;
    assert_eq!(other.events.head(), world.app.events.head());
    assert_eq!(
        world
            .log
            .lines("server::background::publish: worker-pool-created")
            .len(),
        3
    );
});

on_sqlite_first!(
    a_listener_shows_its_credentials_again_after_a_while,
    |world| {
        let mut listening = Listening::open(world.get(EVENTS)).await;
        world.clock.advance_ms(15 * 60_000);
        make_pool(world, "pp/a").await;
        let (names, end) = listening.rest().await;
        assert!(
            names.is_empty(),
            "its time was over before this was told: {names:?}"
        );
        assert_eq!(
            end.payload,
            json!({"reason": "reconnect with your credentials"})
        );
    }
);

on_sqlite_first!(credentials_that_expire_end_the_stream, |world| {
    let short = world.root().temporary_between(
        None,
        &["*"],
        world.now().as_millis(),
        world.now().plus_seconds(60).as_millis(),
    );
    let mut listening = Listening::open(world.get(EVENTS).by(&short)).await;
    world.clock.advance_ms(60_000);
    make_pool(world, "pp/a").await;
    let (names, _) = listening.rest().await;
    assert!(names.is_empty(), "{names:?}");
});

#[tokio::test(start_paused = true)]
async fn a_silent_stream_gives_heartbeats_with_its_position() {
    let world = World::open(crate::database::Database::sqlite(), |_| {}).await;
    let ask = world.get(&format!("{EVENTS}?exchange=worker-running"));
    let mut listening = Listening::open(ask).await;
    let place = listening.next().await.unwrap().id.unwrap();
    make_pool(&world, "pp/a").await;
    let life = listening.next().await.unwrap();
    assert_eq!((life.event, life.id), (None, Some(place + 1)));
}

on_sqlite_first!(questions_that_make_no_sense_are_refused, |world| {
    let path = |query: &str| format!("{EVENTS}?{query}");
    let refused = |answer: crate::ask::Answer, part| {
        answer.refused_with(400, "InvalidRequestArguments", part);
    };
    refused(world.get(&path("after=-1")).await, "after");
    refused(
        world.get(&path("after=99999999999999999999")).await,
        "are the `id`",
    );
    let header = world.get(EVENTS).header("last-event-id", "abc");
    refused(header.await, "are the `id`");
    refused(world.get(&path("since=soon")).await, "since");
    refused(
        world.get(&path("since=2026-99-99T00:00:00Z")).await,
        "`since` is a time like",
    );
    refused(world.get(&path("follow=maybe")).await, "follow");
    refused(world.get(&path("pool=a%2Fb")).await, "is not supported");
});

on_sqlite_first!(the_number_of_a_listeners_exchanges_is_bounded, |world| {
    make_pool(world, "pp/a").await;
    for count in sizes_around("server::api::fleetwright::events::MAX_EXCHANGES", 50) {
        // The only matching event comes last.
        let mut names = vec!["x"; count.saturating_sub(1)];
        names.extend(["worker-pool-created"].into_iter().take(count));
        let query = match count {
            0 => String::new(),
            _ => format!("&exchange={}", names.join(",")),
        };
        if count <= 50 {
            assert_eq!(all(world, &query).await, ["worker-pool-created"], "{count}");
            continue;
        }
        let refused = world.get(&format!("{EVENTS}?after=0{query}")).await;
        let text = "`exchange` names more than 50 exchanges";
        refused.refused(400, "InvalidRequestArguments", text);
    }
});

/// Writes `count` events.
async fn tell(world: &World, count: usize) {
    let created = world.now();
    world
        .write(move |tx| {
            for number in 0..count {
                let body = domain::event::EventBody::PoolCreated {
                    pool_id: "pp/ee".parse().unwrap(),
                    provider_id: "static".parse().unwrap(),
                };
                let id = format!("of-{count}-{number}");
                store::outbox::push(tx, &domain::event::Event { id, created, body })?;
            }
            Ok(())
        })
        .await;
    publish(&world.app).await;
}

on_both!(events_of_the_past_are_read_page_by_page, |world| {
    const PAGE: usize = 200;
    let sizes = sizes_around("server::api::fleetwright::events::PAGE", PAGE);
    tell(world, 10 * PAGE).await;
    for count in sizes {
        // It began after all of them, so it has none in memory.
        let app = second_app(world).await;
        let server = Arc::new(server::api::listener::Server::new(Arc::clone(&app)));
        let after = app.events.head() - i64::try_from(count).unwrap();
        let path = format!("{EVENTS}?after={after}&follow=false");
        let ask = Ask::new(Arc::clone(&server), http::Method::GET, &path, world.now());
        app.engine.store.take_counts();
        let mut listening = Listening::open(ask.by(&world.root())).await;
        let (names, end) = listening.rest().await;
        assert_eq!((names.len(), end.id), (count, Some(app.events.head())));
        assert_eq!(names.iter().filter(|name| *name == "missed").count(), 0);
        let n_pages = count.div_ceil(PAGE) as u64;
        let counts = app.engine.store.take_counts();
        assert_eq!(counts.transactions("event_list_after"), n_pages);
        // A listener that asks for the same pages reads them from memory, as far as they are kept.
        let ask = Ask::new(Arc::clone(&server), http::Method::GET, &path, world.now());
        let mut listening = Listening::open(ask.by(&world.root())).await;
        assert_eq!(listening.rest().await.0.len(), count);
        let counts = app.engine.store.take_counts();
        let n_again = if n_pages > 8 { n_pages } else { 0 };
        assert_eq!(counts.transactions("event_list_after"), n_again);
    }
});
