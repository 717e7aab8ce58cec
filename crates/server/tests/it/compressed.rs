//! Long replies to clients that accept compressed ones.

use std::io::Read as _;

use bytes::Bytes;
use flate2::read::GzDecoder;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};

use crate::database::on_sqlite_first;
use crate::samples::static_pool;
use crate::world::World;

const POOL: &str = "/worker-pool/pp%2Fee";
/// The shortest reply that is compressed.
const MIN_BYTES: usize = 16 * 1024;

/// The encoding, `vary`, and the bytes.
async fn shown(world: &World, accepted: &str) -> (String, String, Bytes) {
    let ask = world.get(POOL).header("accept-encoding", accepted);
    let (parts, body) = ask.open().await.into_parts();
    assert_eq!(parts.status, 200);
    let header = |name| {
        let value = parts.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap()).to_owned()
    };
    let (encoding, vary) = (header("content-encoding"), header("vary"));
    (encoding, vary, body.collect().await.unwrap().to_bytes())
}

/// Makes the reply about the pool this long.
async fn make_reply(world: &World, length: usize) {
    let described = |text: String| {
        let mut pool = static_pool();
        pool["config"]["workerConfig"]["a"] = json!(text);
        pool
    };
    let empty = world.post(POOL, described(String::new())).await;
    let padding = length - empty.text.len();
    let padded = world.post(POOL, described("x".repeat(padding))).await;
    assert_eq!(padded.text.len(), length);
}

on_sqlite_first!(long_replies_are_compressed_if_the_client_asks, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    for length in [
        1_000,
        MIN_BYTES - 1,
        MIN_BYTES,
        MIN_BYTES + 1,
        10 * MIN_BYTES,
    ] {
        make_reply(world, length).await;
        let (encoding, vary, plain) = shown(world, "identity").await;
        let is_long = length >= MIN_BYTES;
        assert_eq!((encoding.as_str(), plain.len()), ("", length));
        assert_eq!(vary.contains("accept-encoding"), is_long, "{length}");
        let (encoding, vary, bytes) = shown(world, "deflate, gzip").await;
        assert_eq!(vary.contains("accept-encoding"), is_long, "{length}");
        if !is_long {
            assert_eq!((encoding.as_str(), bytes), ("", plain));
            continue;
        }
        assert_eq!(encoding, "gzip");
        assert!(bytes.len() < length / 10, "{}", bytes.len());
        let mut unpacked = Vec::new();
        GzDecoder::new(&bytes[..])
            .read_to_end(&mut unpacked)
            .unwrap();
        assert_eq!(unpacked, plain);
        let value: Value = serde_json::from_slice(&unpacked).unwrap();
        assert_eq!(value["workerPoolId"], "pp/ee");
    }
});

on_sqlite_first!(replies_to_changes_are_not_compressed, |world| {
    world.put(POOL, static_pool()).await.expect(200);
    make_reply(world, 10 * MIN_BYTES).await;
    let same = world.post(POOL, static_pool());
    let answer = same.header("accept-encoding", "gzip").await;
    assert_eq!(
        (answer.status, answer.header("content-encoding")),
        (200, "")
    );
});
