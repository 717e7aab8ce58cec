//! The log of a run: appended by its worker, read by others, also while it grows.

use std::convert::Infallible;
use std::time::Duration;

use bytes::Bytes;
use domain::time::MINUTE_MS;
use futures_util::{StreamExt, stream};
use http::{Method, Request};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use serde_json::{Value, json};
use server::api::body::Body;

use crate::ask::{Answer, Ask};
use crate::database::{Database, on_both, on_sqlite_first};
use crate::runs::{OTHER_TASK, TASK};
use crate::world::World;

const LOG: &str = "fleetwright:/task/fN1SbArXTPSVFNUvaOlinQ/runs/0/log";
/// Nothing takes longer, unless it is broken.
const PATIENCE: Duration = Duration::from_secs(120);

fn state(length: usize, finished: bool, truncated: bool) -> Value {
    json!({"length": length, "finished": finished, "truncated": truncated, "running": true})
}

impl World {
    fn append(&self, query: &str, piece: impl Into<Bytes>) -> Ask {
        self.ask(Method::PUT, &format!("{LOG}?{query}")).raw(piece)
    }

    /// A log that has begun.
    pub(crate) async fn running_log(&self) {
        let begun = self.append("offset=0", "one\n").await.expect(200);
        assert_eq!(begun, state(4, false, false));
    }

    async fn log_text(&self, query: &str) -> Answer {
        self.get(&format!("{LOG}{query}")).await
    }

    async fn follow(&self, query: &str) -> Body {
        let reply = self.get(&format!("{LOG}?follow=true{query}")).open().await;
        assert_eq!(reply.status(), 200);
        reply.into_body()
    }
}

/// The next piece of a reply; `None` if that was all.
async fn next(body: &mut Body) -> Option<String> {
    let frame = tokio::time::timeout(PATIENCE, body.frame())
        .await
        .expect("nothing came");
    let bytes = frame?.unwrap().into_data().unwrap();
    Some(String::from_utf8(bytes.to_vec()).unwrap())
}

on_sqlite_first!(a_log_is_appended_and_read, |world| {
    world.running_task().await;
    assert_eq!(world.log_text("").await.text, "");
    world.running_log().await;
    // Again, and half again.
    world.running_log().await;
    let longer = world.append("offset=2", "e\ntwo\n").await.expect(200);
    assert_eq!(longer, state(8, false, false));
    let gap = world.append("offset=9", "x").await;
    gap.refused_with(
        409,
        "RequestConflict",
        "The log has 8 bytes, so nothing can be put at 9",
    );
    assert_eq!(
        world.append("offset=0", "").await.expect(200),
        state(8, false, false)
    );
    let done = world
        .append("offset=8&finished=true", "end\n")
        .await
        .expect(200);
    assert_eq!(done, state(12, true, false));
    let done = world
        .append("offset=8&finished=true", "end\n")
        .await
        .expect(200);
    assert_eq!(done, state(12, true, false));
    let more = world.append("offset=12", "more").await;
    more.refused(409, "RequestConflict", "The log is finished");
    let read = world.log_text("").await;
    assert_eq!((read.status, read.text.as_str()), (200, "one\ntwo\nend\n"));
    assert_eq!(read.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(world.log_text("?offset=8").await.text, "end\n");
    assert_eq!(world.log_text("?offset=99").await.text, "");
    let latest = world
        .get(&format!("fleetwright:/task/{TASK}/log?offset=4"))
        .await;
    assert_eq!(latest.text, "two\nend\n");
});

on_sqlite_first!(
    an_offset_beyond_the_end_of_any_file_finds_nothing,
    |world| {
        world.running_task().await;
        world.running_log().await;
        for offset in [1 << 44, i64::MAX as u64, 1 << 63, u64::MAX] {
            let read = world.log_text(&format!("?offset={offset}")).await;
            assert_eq!((read.status, read.text.as_str()), (200, ""), "{offset}");
        }
        let mut followed = world.follow(&format!("&offset={}", u64::MAX)).await;
        let finished = world.append("offset=4&finished=true", "two\n").await;
        finished.expect(200);
        assert_eq!(next(&mut followed).await, None);
        let larger = world.log_text("?offset=18446744073709551616").await;
        larger.refused(
            400,
            "InputError",
            "`offset` is larger than any log: give a smaller number",
        );
    }
);

on_sqlite_first!(a_log_is_followed_until_it_is_finished, |world| {
    world.running_task().await;
    world.running_log().await;
    let mut body = world.follow("").await;
    assert_eq!(next(&mut body).await.as_deref(), Some("one\n"));
    world.append("offset=4", "two\n").await.expect(200);
    assert_eq!(next(&mut body).await.as_deref(), Some("two\n"));
    world
        .append("offset=8&finished=true", "end\n")
        .await
        .expect(200);
    assert_eq!(next(&mut body).await.as_deref(), Some("end\n"));
    assert_eq!(next(&mut body).await, None);
    let mut late = world.follow("&offset=4").await;
    assert_eq!(next(&mut late).await.as_deref(), Some("two\nend\n"));
    assert_eq!(next(&mut late).await, None);
});

on_both!(a_log_is_followed_from_before_the_run_to_its_end, |world| {
    world.pending_task().await;
    let mut body = world.follow("").await;
    let (read, ()) = tokio::join!(
        async {
            let mut read = Vec::new();
            while let Some(piece) = next(&mut body).await {
                read.push(piece);
            }
            read.concat()
        },
        async {
            world.claim_run(0).await;
            world.running_log().await;
            // Its worker never says that the log is finished.
            world.lose_run(0).await;
        }
    );
    assert_eq!(read, "one\n");
});

on_sqlite_first!(
    a_follower_comes_again_with_its_credentials_now_and_then,
    |world| {
        world.running_task().await;
        world.running_log().await;
        let mut body = world.follow("").await;
        assert_eq!(next(&mut body).await.as_deref(), Some("one\n"));
        world.clock.advance_ms(15 * MINUTE_MS);
        let frame = tokio::time::timeout(PATIENCE, body.frame());
        // Broken off: this was not the end of the log.
        let problem = frame.await.unwrap().unwrap().unwrap_err();
        assert!(problem.to_string().contains("may come again"), "{problem}");
        world
            .append("offset=4&finished=true", "two\n")
            .await
            .expect(200);
        let mut again = world.follow("&offset=4").await;
        assert_eq!(next(&mut again).await.as_deref(), Some("two\n"));
        assert_eq!(next(&mut again).await, None);
    }
);

on_sqlite_first!(a_reader_that_leaves_leaves_nothing_behind, |world| {
    world.running_task().await;
    world.running_log().await;
    for _ in 0..3 {
        drop(world.follow("").await);
    }
    let mut body = world.follow("").await;
    next(&mut body).await;
    drop(body);
    world.append("offset=4", "two\n").await.expect(200);
});

#[tokio::test]
async fn a_follower_is_woken_at_once() {
    let world = World::open(Database::sqlite(), |_| {}).await;
    world.running_task().await;
    world.running_log().await;
    let mut body = world.follow("").await;
    next(&mut body).await;
    let mut offset = 4;
    for _ in 0..20 {
        let appended = world.append(&format!("offset={offset}"), "x\n").send();
        // Without wake-ups, the follower would look again after half a second.
        let both = async { tokio::join!(appended, next(&mut body)) };
        let (appended, read) = Box::pin(world.at_once(both)).await;
        appended.expect(200);
        assert_eq!(read.as_deref(), Some("x\n"));
        offset += 2;
    }
}

#[tokio::test]
async fn a_log_that_is_too_long_is_cut_and_marked() {
    let change = |config: &mut server::config::Config| config.artifacts.max_log_bytes = 6;
    let world = World::open(Database::sqlite(), change).await;
    world.running_task().await;
    world.running_log().await;
    let cut = world.append("offset=4", "two\n").await.expect(200);
    assert_eq!(cut["truncated"], true);
    let after = world.append("offset=8", "three\n").await.expect(200);
    assert_eq!(after, cut);
    let done = world
        .append("offset=14&finished=true", "")
        .await
        .expect(200);
    assert_eq!(done["finished"], true);
    let text = "one\ntw\n[fleetwright] The log was cut here: it has more than 6 bytes.\n";
    assert_eq!(world.log_text("").await.text, text);
}

on_sqlite_first!(
    pieces_are_not_too_large_and_say_where_they_belong,
    |world| {
        world.running_task().await;
        let large = world.append("offset=0", vec![b'x'; 1024 * 1024 + 1]).await;
        large.refused(
            413,
            "InputTooLarge",
            "The body is larger than 1048576 bytes",
        );
        world
            .append("offset=0", vec![b'x'; 1024 * 1024])
            .await
            .expect(200);
        let refused = world.append("", "x").await;
        refused.refused_with(400, "InputError", "`offset` is needed");
        let refused = world.append("offset=99999999999999999999999", "x").await;
        refused.refused(
            400,
            "InputError",
            "`offset` is larger than any log: give a smaller number",
        );
        let refused = world.append("offset=-1", "x").await;
        refused.refused_with(400, "InvalidRequestArguments", "offset");
    }
);

on_sqlite_first!(only_the_worker_of_a_running_run_appends, |world| {
    let put = async |path: &str| {
        let path = format!("fleetwright:{path}/log?offset=0");
        world.ask(Method::PUT, &path).raw("x").await
    };
    let run = format!("/task/{TASK}/runs/0");
    put(&run)
        .await
        .refused(404, "ResourceNotFound", "Task not found");
    world.pending_task().await;
    put(&run)
        .await
        .refused_with(409, "RequestConflict", "No worker has claimed the run");
    let unknown = put(&format!("/task/{TASK}/runs/1")).await;
    unknown.refused_with(404, "ResourceNotFound", "has no run `1`");
    world.claim_run(0).await;
    let other = format!("queue:create-artifact:{TASK}/1");
    let other = world.root().temporary(None, &[&other], world.now());
    let refused = world.append("offset=0", "x").by(&other).await;
    refused.refused_with(
        403,
        "InsufficientScopes",
        &format!("queue:create-artifact:{TASK}/0"),
    );
    put(&run).await.expect(200);
    world.complete_run(0).await;
    put(&run)
        .await
        .refused_with(409, "RequestConflict", "after it has ended");
});

on_both!(
    a_worker_whose_run_was_taken_away_learns_it_from_its_log,
    |world| {
        world.running_task().await;
        world.running_log().await;
        world.lose_run(0).await;
        let after = world.append("offset=4", "two\n").await.expect(200);
        assert_eq!(
            (&after["length"], &after["running"]),
            (&json!(8), &json!(false))
        );
    }
);

on_sqlite_first!(a_run_without_a_log_has_none, |world| {
    let unknown = world
        .get(&format!("fleetwright:/task/{OTHER_TASK}/log"))
        .await;
    unknown.refused(404, "ResourceNotFound", "Task not found");
    world.unscheduled_task().await;
    let none = world.get(&format!("fleetwright:/task/{TASK}/log")).await;
    none.refused(404, "ResourceNotFound", "Task doesn't have any runs");
    let none = world.log_text("").await;
    none.refused(
        404,
        "ResourceNotFound",
        &format!("Task `{TASK}` has no run `0`"),
    );
});

on_sqlite_first!(
    the_log_of_another_kind_of_worker_is_where_it_put_it,
    |world| {
        world.running_task().await;
        let create = async |name: &str, body: Value| {
            let path = format!("queue:/task/{TASK}/runs/0/artifacts/{name}");
            world.post(&path, body).await.expect(200)
        };
        let link = |to: &str| json!({"storageType": "link", "artifact": to, "expires": "2026-10-01T00:00:00.000Z"});
        let reference = json!({"storageType": "reference", "url": "https://logs.example.com/1",
        "contentType": "text/plain", "expires": "2026-10-01T00:00:00.000Z"});
        create("public/logs/live.log", link("public/logs/live_backing.log")).await;
        // After an exception there is still time for the log.
        world.lose_run(0).await;
        let none = format!("Run 0 of task {TASK} has no log");
        world
            .log_text("")
            .await
            .refused(404, "ResourceNotFound", &none);
        create("public/logs/live_backing.log", reference).await;
        for query in ["", "?follow=true"] {
            let elsewhere = world.log_text(query).await;
            assert_eq!(elsewhere.header("location"), "https://logs.example.com/1");
            assert_eq!(elsewhere.status, 303);
        }
    }
);

on_sqlite_first!(
    a_body_that_is_withheld_does_not_extend_the_time_for_a_log,
    |world| {
        world.running_task().await;
        world.running_log().await;
        world.lose_run(0).await;
        let last = 25 * MINUTE_MS - 1;
        world.clock.advance_ms(last);
        // The request begins in time. The first body arrives at once, the second one later.
        for (offset, late_ms, status) in [(4, 0, 200), (5, 1, 409)] {
            let ask = world.append(&format!("offset={offset}"), "");
            let clock = world.clock.clone();
            let pieces = stream::iter(0..2).map(move |number| {
                if number == 1 {
                    clock.advance_ms(late_ms);
                }
                let piece = Bytes::from_static(if number == 1 { b"x" } else { b"" });
                Ok::<_, Infallible>(Frame::data(piece))
            });
            let request = Request::builder()
                .method(Method::PUT)
                .uri(&ask.path)
                .header("host", &ask.host)
                .header("authorization", ask.signature(&world.root()))
                .body(StreamBody::new(pieces))
                .unwrap();
            let reply = world
                .server
                .answer(request, ([192, 0, 2, 7], 1).into())
                .await;
            assert_eq!(reply.status(), status, "{late_ms}");
        }
        assert_eq!(world.log_text("").await.text, "one\nx");
    }
);

const LIVE: &str = "public/logs/live.log";

async fn artifact(world: &World, name: &str, content: Value) {
    let path = format!("queue:/task/{TASK}/runs/0/artifacts/{name}");
    let mut body = content;
    body["expires"] = json!("2026-10-01T00:00:00.000Z");
    world.post(&path, body).await.expect(200);
}

fn reference() -> Value {
    json!({"storageType": "reference", "url": "https://worker.example.com/log/1",
        "contentType": "text/plain"})
}

on_sqlite_first!(
    the_live_log_of_another_kind_of_worker_is_where_its_reference_leads,
    |world| {
        world.running_task().await;
        artifact(world, LIVE, reference()).await;
        for query in ["", "?follow=true", "?offset=7"] {
            let elsewhere = world.log_text(query).await;
            let there = "https://worker.example.com/log/1";
            assert_eq!(elsewhere.header("location"), there);
            assert_eq!(elsewhere.status, 303);
        }
    }
);

on_sqlite_first!(
    a_follower_is_sent_away_as_soon_as_the_log_turns_out_to_be_elsewhere,
    |world| {
        world.running_task().await;
        let mut following = world.follow("").await;
        let reading = tokio::spawn(async move { following.frame().await });
        artifact(world, LIVE, reference()).await;
        let broken = tokio::time::timeout(PATIENCE, reading).await;
        let frame = broken.expect("nothing came").unwrap();
        // Not the end, which would be taken for the end of the log.
        assert!(frame.expect("it ended").is_err());
    }
);

on_sqlite_first!(a_run_that_never_began_has_the_uploaded_log_alone, |world| {
    world.running_task().await;
    artifact(world, "public/logs/live_backing.log", reference()).await;
    world.complete_run(0).await;
    assert_eq!(world.log_text("").await.status, 303);
});

on_sqlite_first!(a_link_of_the_log_opens_nothing_else, |world| {
    world.running_task().await;
    let path = |name: &str| format!("queue:/task/{TASK}/runs/0/artifacts/{name}");
    let until = "2026-10-01T00:00:00.000Z";
    let secret = json!({"storageType": "reference", "url": "https://secret.example.com/",
        "contentType": "text/plain", "expires": until});
    world.post(&path("private/x"), secret).await.expect(200);
    let link = json!({"storageType": "link", "artifact": "private/x", "expires": until});
    world
        .post(&path("public/logs/live.log"), link)
        .await
        .expect(200);
    world.complete_run(0).await;
    assert_eq!(world.log_text("").await.status, 404);
});

on_sqlite_first!(the_log_is_an_artifact_of_its_run, |world| {
    world.running_task().await;
    world.running_log().await;
    let listed = world
        .get(&format!("queue:/task/{TASK}/runs/0/artifacts"))
        .await
        .expect(200);
    let names = ["public/logs/live.log", "public/logs/live_backing.log"];
    for (number, name) in names.iter().enumerate() {
        let expected = json!({"storageType": "s3", "name": name,
            "contentType": "text/plain; charset=utf-8", "expires": "2026-10-21T14:13:20.000Z"});
        assert_eq!(listed["artifacts"][number], expected);
    }
    let fetch = async |name: &str| {
        let found = world
            .get(&format!("queue:/task/{TASK}/runs/0/artifacts/{name}"))
            .await;
        assert_eq!(found.status, 303, "{}", found.text);
        let url = found.header("location").to_owned();
        let path = url.strip_prefix(crate::world::ROOT_URL).unwrap();
        world
            .get(&format!("root:{path}"))
            .anonymously()
            .open()
            .await
            .into_body()
    };
    // The backing log ends at its present end; the live one continues.
    let mut backing = fetch(names[1]).await;
    assert_eq!(next(&mut backing).await.as_deref(), Some("one\n"));
    assert_eq!(next(&mut backing).await, None);
    let mut live = fetch(names[0]).await;
    assert_eq!(next(&mut live).await.as_deref(), Some("one\n"));
    world
        .append("offset=4&finished=true", "two\n")
        .await
        .expect(200);
    assert_eq!(next(&mut live).await.as_deref(), Some("two\n"));
    assert_eq!(next(&mut live).await, None);
    world.complete_run(0).await;
    for name in names {
        let mut whole = fetch(name).await;
        assert_eq!(next(&mut whole).await.as_deref(), Some("one\ntwo\n"));
        assert_eq!(next(&mut whole).await, None);
    }
});

#[tokio::test]
async fn a_server_without_a_folder_keeps_no_logs() {
    let world = World::open(Database::sqlite(), |config| config.data = None).await;
    world.running_task().await;
    for answer in [
        world.append("offset=0", "x").await,
        world.log_text("").await,
    ] {
        answer.refused_with(400, "InputError", "This server keeps no files of tasks");
    }
}

#[tokio::test]
async fn a_follower_is_cut_off_when_the_server_stops() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let world = World::open(Database::sqlite(), |_| {}).await;
    world.running_task().await;
    world.running_log().await;
    let role = json!({"description": "", "scopes": ["queue:get-artifact:public/*"]});
    world.put("auth:/roles/anonymous", role).await.expect(200);
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = tokio_util::sync::CancellationToken::new();
    let serving = tokio::spawn(world.server.clone().serve(listener, stop.clone()));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let head = format!(
        "GET /api/fleetwright/v1/task/{TASK}/runs/0/log?follow=true HTTP/1.1\r\nhost: x\r\n\r\n"
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    let mut reply = Vec::new();
    while !String::from_utf8_lossy(&reply).contains("one\n") {
        let mut piece = [0; 1024];
        let n_read = tokio::time::timeout(PATIENCE, stream.read(&mut piece))
            .await
            .unwrap()
            .unwrap();
        assert!(n_read > 0);
        reply.extend_from_slice(&piece[..n_read]);
    }
    stop.cancel();
    tokio::time::timeout(PATIENCE, serving)
        .await
        .unwrap()
        .unwrap();
    let mut rest = String::new();
    let _ = stream.read_to_string(&mut rest).await;
    // Not the last chunk: this was not the end of the log.
    assert!(!rest.ends_with("0\r\n\r\n"), "{rest:?}");
}
