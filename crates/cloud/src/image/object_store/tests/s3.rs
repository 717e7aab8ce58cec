//! The store against moto, which simulates S3, through a peer that injects failures.
//!
//! Runs when TEST_EC2_URL is the address of such a server, as set by `scripts/with-moto`.

use super::*;

const PART: usize = 5 * 1024 * 1024;

impl World {
    /// `None`, with a printed note, without such a server.
    async fn on_moto(bucket: &str) -> Option<Self> {
        let Ok(target) = std::env::var("TEST_EC2_URL") else {
            eprintln!("skipped: TEST_EC2_URL is not set (scripts/with-moto sets it)");
            return None;
        };
        let bucket = format!("{bucket}-{}", std::process::id());
        let made = reqwest::Client::new()
            .put(format!("{target}/{bucket}"))
            .send()
            .await;
        assert!(made.unwrap().status().is_success());
        let peer = Peer::before(target).await;
        let settings = settings(json!({
            "url": peer.url, "bucket": bucket, "prefix": "images/", "part_bytes": PART,
            "access_key_id": "AKID", "secret_access_key": "hush", "stall_seconds": 5,
        }));
        Some(Self {
            folder: tempfile::tempdir().unwrap(),
            peer,
            store: ObjectStore::new(&settings, TestClock::new()).unwrap(),
        })
    }

    fn n_parts_sent(&self) -> usize {
        self.peer.calls("partNumber=").len()
    }
}

fn content(size: usize) -> Vec<u8> {
    (0..251_u8).cycle().take(size).collect()
}

#[tokio::test]
async fn files_around_the_size_of_a_part_come_back_from_s3() {
    let Some(world) = World::on_moto("sizes").await else {
        return;
    };
    for (size, n_parts) in [
        (0, 0),
        (1, 0),
        (PART - 1, 0),
        (PART, 0),
        (PART + 1, 2),
        (3 * PART, 3),
    ] {
        let before = world.n_parts_sent();
        let content = content(size);
        let checksum = world.put(&content).await.unwrap();
        assert_eq!(world.n_parts_sent() - before, n_parts, "{size}");
        assert!(world.get(&checksum).await.unwrap() == content, "{size}");
        // S3 has it.
        world.put(&content).await.unwrap();
        assert_eq!(world.n_parts_sent() - before, n_parts, "{size}");
    }
    let all = world.store.list().await.unwrap().unwrap();
    assert_eq!(all.len(), 1);
    assert_eq!(
        (all[0].key.as_str(), all[0].size_bytes),
        (KEY, 3 * PART as u64)
    );
    assert!(world.store.location(&key()).starts_with("s3://sizes-"));
    for _ in 0..2 {
        world.store.delete(&key()).await.unwrap();
    }
    assert_eq!(world.store.list().await.unwrap(), Some(Vec::new()));
}

#[tokio::test]
async fn an_interrupted_upload_sends_only_the_parts_that_s3_lacks() {
    let Some(world) = World::on_moto("resume").await else {
        return;
    };
    let content = content(3 * PART + 7);
    let faults = [
        (Fault::LoseCall, "partNumber=3"),
        (Fault::LoseAnswer, "partNumber=3"),
        (Fault::Answer(503, ""), "partNumber=4"),
        (
            Fault::Tag("\"00000000000000000000000000000000\""),
            "partNumber=4",
        ),
    ];
    for (fault, part) in faults {
        world.peer.next(Method::PUT, part, fault);
        assert!(world.put(&content).await.unwrap_err().is_transient());
    }
    world.peer.next(Method::POST, "uploadId=", Fault::LoseCall);
    assert!(world.put(&content).await.unwrap_err().is_transient());
    let sent = world.n_parts_sent();
    let checksum = world.put(&content).await.unwrap();
    assert_eq!(world.n_parts_sent(), sent, "all parts had arrived");
    for (number, times) in [(1, 1), (2, 1), (3, 2), (4, 2)] {
        let calls = world.peer.calls(&format!("partNumber={number}&"));
        assert_eq!(calls.len(), times, "{calls:?}");
    }
    assert_eq!(world.peer.calls("?uploads=").len(), 1, "it was begun once");
    assert!(world.get(&checksum).await.unwrap() == content);
}

#[tokio::test]
async fn an_upload_whose_end_was_lost_is_found_complete() {
    let Some(world) = World::on_moto("lost").await else {
        return;
    };
    let content = content(PART + 1);
    world
        .peer
        .next(Method::POST, "uploadId=", Fault::LoseAnswer);
    assert!(world.put(&content).await.unwrap_err().is_transient());
    let sent = world.n_parts_sent();
    world.put(&content).await.unwrap();
    assert_eq!(world.n_parts_sent(), sent);
    // S3 may report an error after it has reported success.
    let late = "<Error><Code>InternalError</Code><Message>sorry</Message></Error>";
    world.store.delete(&key()).await.unwrap();
    world
        .peer
        .next(Method::POST, "uploadId=", Fault::Answer(200, late));
    let error = world.put(&content).await.unwrap_err();
    assert_eq!(
        error.to_string(),
        "the store is unavailable: InternalError: sorry"
    );
}

#[tokio::test]
async fn an_upload_begun_with_another_content_is_begun_anew() {
    let Some(world) = World::on_moto("anew").await else {
        return;
    };
    let (first, second) = (content(2 * PART), vec![9; 2 * PART]);
    world
        .peer
        .next(Method::PUT, "partNumber=2", Fault::LoseCall);
    assert!(world.put(&first).await.is_err());
    let error = world.put(&second).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert!(
        error.to_string().contains("was begun with another content"),
        "{error}"
    );
    let checksum = world.put(&second).await.unwrap();
    assert!(world.get(&checksum).await.unwrap() == second);
}

#[tokio::test]
async fn unfinished_uploads_are_found_and_aborted_when_they_are_old() {
    let Some(world) = World::on_moto("leftovers").await else {
        return;
    };
    world
        .peer
        .next(Method::PUT, "partNumber=2", Fault::LoseCall);
    assert!(world.put(&content(2 * PART)).await.is_err());
    let long_ago = Timestamp::from_millis(0);
    assert_eq!(world.store.remove_leftovers(long_ago).await.unwrap(), 0);
    let later = "2999-01-01T00:00:00.000Z".parse().unwrap();
    assert_eq!(world.store.remove_leftovers(later).await.unwrap(), 1);
    assert_eq!(world.store.remove_leftovers(later).await.unwrap(), 0);
}

#[tokio::test]
async fn a_missing_bucket_and_a_refused_key_are_named() {
    let Some(world) = World::on_moto("refused").await else {
        return;
    };
    let denied = "<Error><Code>InvalidAccessKeyId</Code><Message>no such key</Message></Error>";
    world
        .peer
        .next(Method::PUT, KEY, Fault::Answer(403, denied));
    let error = world.put(b"content").await.unwrap_err();
    let expected = "the store does not accept our credentials: InvalidAccessKeyId: no such key";
    assert_eq!(error.to_string(), expected);
    let elsewhere = settings(json!({
        "url": world.peer.url, "bucket": "no-such-bucket", "access_key_id": "AKID",
        "secret_access_key": "hush",
    }));
    let elsewhere = ObjectStore::new(&elsewhere, TestClock::new()).unwrap();
    let (file, checksum) = world.file(b"content");
    let error = elsewhere.put(&key(), &file, &checksum).await.unwrap_err();
    assert!(error.to_string().contains("NoSuchBucket"), "{error}");
}
