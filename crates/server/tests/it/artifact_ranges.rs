//! Downloads that are continued, compared and unpacked: ranges, entity tags and encodings.

use std::io::{Read as _, Write as _};

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use http::{HeaderMap, Method};
use http_body_util::BodyExt as _;

use crate::artifact_files::ours;
use crate::artifacts::path;
use crate::ask::Ask;
use crate::database::on_sqlite_first;
use crate::runs::TASK;
use crate::world::World;

/// The server reads files in pieces of this size.
const PIECE_BYTES: usize = 64 * 1024;
const SIZES: [usize; 6] = [
    0,
    1,
    PIECE_BYTES - 1,
    PIECE_BYTES,
    PIECE_BYTES + 1,
    10 * PIECE_BYTES,
];

struct Download {
    status: u16,
    headers: HeaderMap,
    bytes: Vec<u8>,
}

impl Download {
    async fn of(ask: Ask) -> Self {
        let (parts, body) = ask.open().await.into_parts();
        Self {
            status: parts.status.as_u16(),
            headers: parts.headers,
            bytes: body.collect().await.unwrap().to_bytes().to_vec(),
        }
    }

    fn header(&self, name: &str) -> &str {
        let value = self.headers.get(name);
        value.map_or("", |value| value.to_str().unwrap())
    }
}

/// Bytes that differ from their neighbours.
fn content(length: usize) -> Vec<u8> {
    (0..=250).cycle().take(length).collect()
}

fn gzip(plain: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(plain).unwrap();
    encoder.finish().unwrap()
}

impl World {
    /// Uploads a file; returns the URL of its download.
    async fn stored(&self, name: &str, bytes: Vec<u8>, encoding: Option<&str>) -> String {
        let url = self.upload_url(name, "application/x-tar").await;
        let upload = self.upload(&url, bytes);
        let upload = match encoding {
            Some(encoding) => upload.header("content-encoding", encoding),
            None => upload,
        };
        upload.await.expect(200);
        ours(&self.place(&path(name)).await)
    }

    async fn download(&self, url: &str, headers: &[(&str, &str)]) -> Download {
        let ask = self.get(url).anonymously();
        let ask = headers
            .iter()
            .fold(ask, |ask, (name, value)| ask.header(name, value));
        Download::of(ask).await
    }
}

on_sqlite_first!(
    a_download_that_broke_off_goes_on_where_it_stopped,
    |world| {
        world.running_task().await;
        for length in SIZES {
            let all = content(length);
            let url = world
                .stored(&format!("public/{length}"), all.clone(), None)
                .await;
            let first = world.download(&url, &[]).await;
            assert_eq!((first.status, &first.bytes), (200, &all));
            assert_eq!(first.header("accept-ranges"), "bytes");
            let tag = first.header("etag").to_owned();
            for at in [0, 1, length / 2, length.saturating_sub(1)] {
                let range = format!("bytes={at}-");
                for headers in [
                    vec![("range", range.as_str())],
                    vec![("range", range.as_str()), ("if-range", tag.as_str())],
                ] {
                    let rest = world.download(&url, &headers).await;
                    if at >= length {
                        assert_eq!((rest.status, rest.bytes.len()), (416, 0));
                        assert_eq!(rest.header("content-range"), format!("bytes */{length}"));
                        continue;
                    }
                    assert_eq!((rest.status, rest.header("etag")), (206, tag.as_str()));
                    assert_eq!(rest.bytes, all[at..]);
                    let expected = format!("bytes {at}-{}/{length}", length - 1);
                    assert_eq!(rest.header("content-range"), expected);
                }
            }
            // All of it is there already: nothing to send.
            let rest = world
                .download(&url, &[("range", &format!("bytes={length}-"))])
                .await;
            assert_eq!(rest.status, 416);
            assert_eq!(rest.header("content-range"), format!("bytes */{length}"));
        }
    }
);

on_sqlite_first!(parts_have_a_beginning_and_an_end, |world| {
    world.running_task().await;
    let url = world.stored("public/a", b"0123456789".to_vec(), None).await;
    for (range, status, text) in [
        ("bytes=2-4", 206, "234"),
        ("bytes=-3", 206, "789"),
        ("bytes=0-99", 206, "0123456789"),
        ("bytes=10-", 416, ""),
        ("bytes=-0", 416, ""),
        ("bytes=0-1,4-5", 200, "0123456789"),
        ("bytes=4-2", 200, "0123456789"),
        ("nonsense", 200, "0123456789"),
    ] {
        let part = world.download(&url, &[("range", range)]).await;
        assert_eq!(
            (part.status, part.bytes.as_slice()),
            (status, text.as_bytes()),
            "{range}"
        );
    }
    // A part of a HEAD is not defined.
    let head = world
        .ask(Method::HEAD, &url)
        .anonymously()
        .header("range", "bytes=2-4");
    let head = Download::of(head).await;
    assert_eq!((head.status, head.header("content-length")), (200, "10"));
    assert_eq!(head.header("accept-ranges"), "bytes");
    assert!(!head.header("etag").is_empty() && head.bytes.is_empty());
});

on_sqlite_first!(a_part_of_a_replaced_file_is_not_continued, |world| {
    world.running_task().await;
    let url = world
        .stored("public/a", b"first content".to_vec(), None)
        .await;
    let tag = world.download(&url, &[]).await.header("etag").to_owned();
    let url = world
        .stored("public/a", b"other content".to_vec(), None)
        .await;
    let headers = [("range", "bytes=5-"), ("if-range", tag.as_str())];
    let again = world.download(&url, &headers).await;
    assert_eq!(
        (again.status, again.bytes.as_slice()),
        (200, &b"other content"[..])
    );
    assert_ne!(again.header("etag"), tag);
});

on_sqlite_first!(a_client_that_has_the_file_gets_none, |world| {
    world.running_task().await;
    let url = world.stored("public/a", b"content".to_vec(), None).await;
    let tag = world.download(&url, &[]).await.header("etag").to_owned();
    let weak = format!("W/{tag}");
    for (given, status) in [
        (tag.as_str(), 304),
        (weak.as_str(), 304),
        ("*", 304),
        ("\"other\"", 200),
    ] {
        for method in [Method::GET, Method::HEAD] {
            let ask = world
                .ask(method, &url)
                .anonymously()
                .header("if-none-match", given);
            let found = Download::of(ask).await;
            assert_eq!((found.status, found.header("etag")), (status, tag.as_str()));
        }
    }
    // It is compared before the range.
    let headers = [("if-none-match", tag.as_str()), ("range", "bytes=99-")];
    assert_eq!(world.download(&url, &headers).await.status, 304);
});

on_sqlite_first!(a_file_in_gzip_is_sent_as_it_is_or_unpacked, |world| {
    world.running_task().await;
    for length in [0, 1, PIECE_BYTES, 20 * PIECE_BYTES] {
        let plain = content(length);
        let packed = gzip(&plain);
        let name = format!("public/{length}");
        let url = world.stored(&name, packed.clone(), Some("gzip")).await;
        // Without the header, any encoding will do: so `curl -C -` goes on.
        for accepted in [None, Some("gzip, br"), Some("*")] {
            let headers: Vec<_> = accepted
                .map(|given| ("accept-encoding", given))
                .into_iter()
                .collect();
            let sent = world.download(&url, &headers).await;
            assert_eq!((sent.status, &sent.bytes), (200, &packed), "{accepted:?}");
            assert_eq!(sent.header("content-encoding"), "gzip");
            assert_eq!(sent.header("vary"), "accept-encoding");
            let middle = packed.len() / 2;
            let range = format!("bytes={middle}-");
            let tag = sent.header("etag");
            let headers = [headers, vec![("range", range.as_str()), ("if-range", tag)]].concat();
            let rest = world.download(&url, &headers).await;
            assert_eq!(
                (rest.status, rest.header("content-encoding")),
                (206, "gzip")
            );
            let mut unpacked = Vec::new();
            let joined = [&packed[..middle], &rest.bytes].concat();
            GzDecoder::new(joined.as_slice())
                .read_to_end(&mut unpacked)
                .unwrap();
            assert_eq!(unpacked, plain);
        }
        let packed_tag = world.download(&url, &[]).await.header("etag").to_owned();
        for refused in ["identity", "br", "gzip;q=0", ""] {
            let headers = [("accept-encoding", refused), ("range", "bytes=0-0")];
            let sent = world.download(&url, &headers).await;
            assert_eq!((sent.status, &sent.bytes), (200, &plain), "{refused:?}");
            assert_eq!(sent.header("content-encoding"), "");
            assert_eq!(sent.header("accept-ranges"), "none");
            assert_eq!(sent.header("vary"), "accept-encoding");
            // The two are different content to whoever keeps a part of one.
            assert_ne!(sent.header("etag"), packed_tag);
        }
    }
});

on_sqlite_first!(a_file_that_is_no_gzip_breaks_off_when_unpacked, |world| {
    world.running_task().await;
    let url = world
        .stored("public/a", b"plain".to_vec(), Some("gzip"))
        .await;
    let ask = world
        .get(&url)
        .anonymously()
        .header("accept-encoding", "identity");
    let body = ask.open().await.into_body();
    assert!(body.collect().await.is_err());
});

on_sqlite_first!(
    a_complete_log_has_parts_and_one_that_grows_has_none,
    |world| {
        world.running_task().await;
        let log = format!("fleetwright:/task/{TASK}/runs/0/log?offset=0");
        world
            .ask(Method::PUT, &log)
            .raw("0123456789")
            .await
            .expect(200);
        let backing = ours(&world.place(&path("public/logs/live_backing.log")).await);
        let part = world.download(&backing, &[("range", "bytes=4-6")]).await;
        assert_eq!((part.status, part.bytes.as_slice()), (206, &b"456"[..]));
        let live = ours(&world.place(&path("public/logs/live.log")).await);
        let open = world
            .get(&live)
            .anonymously()
            .header("range", "bytes=4-6")
            .open()
            .await;
        assert_eq!(open.status().as_u16(), 200);
        assert!(open.headers().get("accept-ranges").is_none());
        drop(open);
        world.complete_run(0).await;
        let part = world.download(&live, &[("range", "bytes=8-")]).await;
        assert_eq!((part.status, part.bytes.as_slice()), (206, &b"89"[..]));
    }
);
