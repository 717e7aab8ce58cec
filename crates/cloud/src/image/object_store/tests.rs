//! The store against a server in memory that fails on demand, and against moto.

mod peer;
mod s3;

use std::fs;
use std::path::PathBuf;

use ::testing::sizes_around;
use reqwest::Method;
use serde_json::json;

use self::peer::{Fault, Peer};
use super::multipart::{MAX_PAGES, part_size};
use super::*;
use crate::SmallDisk;
use crate::image::output::read;
use crate::tests::values::TestClock;

const KEY: &str = "img/0000000001/image.tar";

struct World {
    folder: tempfile::TempDir,
    peer: Peer,
    store: ObjectStore,
}

impl World {
    async fn plain(states_checksums: bool) -> Self {
        let peer = Peer::in_memory(states_checksums).await;
        let settings = settings(json!({
            "url": format!("{}/files/", peer.url), "prefix": "images/", "stall_seconds": 1,
        }));
        let clock = TestClock::new();
        Self {
            folder: tempfile::tempdir().unwrap(),
            peer,
            store: ObjectStore::new(&settings, clock).unwrap(),
        }
    }

    fn file(&self, content: &[u8]) -> (PathBuf, Checksum) {
        let path = self.folder.path().join("source");
        fs::write(&path, content).unwrap();
        (path, read(content).unwrap())
    }

    fn to(&self) -> PathBuf {
        self.folder.path().join("copy")
    }

    async fn put(&self, content: &[u8]) -> Result<Checksum, ArtifactError> {
        let (file, checksum) = self.file(content);
        self.store.put(&key(), &file, &checksum).await?;
        Ok(checksum)
    }

    async fn get(&self, checksum: &Checksum) -> Result<Vec<u8>, ArtifactError> {
        let got = self.store.get(&key(), &self.to(), checksum).await;
        let left: Vec<_> = fs::read_dir(self.folder.path()).unwrap().collect();
        assert!(left.len() <= 2, "no unfinished file is left");
        got.map(|()| fs::read(self.to()).unwrap())
    }
}

fn settings(document: serde_json::Value) -> ObjectStoreSettings {
    serde_json::from_value(document).unwrap()
}

fn key() -> ArtifactKey {
    KEY.parse().unwrap()
}

#[tokio::test]
async fn files_come_back_from_a_plain_server() {
    for states_checksums in [true, false] {
        let world = World::plain(states_checksums).await;
        for size in [0, 1, 65_535, 65_536, 1_000_000] {
            let content = vec![7; size];
            let checksum = world.put(&content).await.unwrap();
            assert_eq!(world.get(&checksum).await.unwrap(), content);
            let found = world.store.find(&key()).await.unwrap().unwrap();
            assert_eq!(found.size_bytes, size as u64);
        }
        assert!(
            world
                .peer
                .files()
                .contains_key(&format!("/files/images/{KEY}"))
        );
        let location = world.store.location(&key());
        assert_eq!(location, format!("{}/files/images/{KEY}", world.peer.url));
        assert_eq!(world.store.list().await.unwrap(), None);
        let now = Timestamp::from_millis(i64::MAX);
        assert_eq!(world.store.remove_leftovers(now).await.unwrap(), 0);
        for _ in 0..2 {
            world.store.delete(&key()).await.unwrap();
        }
        assert_eq!(world.store.find(&key()).await.unwrap(), None);
    }
}

#[tokio::test]
async fn a_file_that_the_server_has_is_not_sent_again() {
    let world = World::plain(true).await;
    world.put(b"content").await.unwrap();
    world.put(b"content").await.unwrap();
    assert_eq!(world.peer.calls("PUT").len(), 1);
    world.put(b"CONTENT").await.unwrap();
    assert_eq!(world.peer.calls("PUT").len(), 2);
}

#[tokio::test]
async fn a_server_that_stores_something_else_is_found_out() {
    for states_checksums in [true, false] {
        let world = World::plain(states_checksums).await;
        let checksum = world.put(b"content").await.unwrap();
        let path = format!("/files/images/{KEY}");
        world.peer.set_file(&path, b"CONTENT");
        let error = world.get(&checksum).await.unwrap_err();
        assert!(
            matches!(error, ArtifactError::WrongContent { .. }),
            "{error}"
        );
        for longer in [&b"content and more"[..], b"short"] {
            world.peer.set_file(&path, longer);
            let error = world.get(&checksum).await.unwrap_err();
            assert!(
                matches!(error, ArtifactError::WrongContent { .. }),
                "{error}"
            );
        }
        assert!(!world.to().exists());
        // The server takes the file and keeps the one that it has.
        world.peer.next(Method::PUT, KEY, Fault::Answer(200, ""));
        let error = world.put(b"content").await.unwrap_err().to_string();
        assert!(error.starts_with(&format!(
            "{KEY} has the wrong content: 5 bytes, not 7 bytes"
        )));
    }
}

#[tokio::test]
async fn a_download_goes_on_where_it_was_interrupted() {
    let world = World::plain(false).await;
    let content: Vec<u8> = (0..300_000_u32).flat_map(u32::to_le_bytes).collect();
    let checksum = world.put(&content).await.unwrap();
    for length in [100_000, 1, 500_000] {
        world.peer.next(Method::GET, KEY, Fault::CutAfter(length));
    }
    let before = world.peer.calls("GET").len();
    assert_eq!(world.get(&checksum).await.unwrap(), content);
    assert_eq!(world.peer.calls("GET").len() - before, 4);
    // Without progress it gives up.
    for _ in 0..MAX_IDLE_TRIES {
        world.peer.next(Method::GET, KEY, Fault::LoseCall);
    }
    let error = world.get(&checksum).await.unwrap_err();
    assert!(error.is_transient(), "{error}");
    assert_eq!(world.get(&checksum).await.unwrap(), content);
    world.peer.next(Method::GET, KEY, Fault::Corrupt);
    let error = world.get(&checksum).await.unwrap_err();
    assert!(
        matches!(error, ArtifactError::WrongContent { .. }),
        "{error}"
    );
}

#[tokio::test]
async fn a_server_that_does_not_answer_is_given_up() {
    let world = World::plain(true).await;
    world.peer.next(Method::PUT, KEY, Fault::Stall);
    let error = world.put(b"content").await.unwrap_err();
    assert!(error.is_transient());
    assert!(
        error.to_string().ends_with("no answer within 1 s"),
        "{error}"
    );
    let checksum = world.put(b"content").await.unwrap();
    for _ in 0..MAX_IDLE_TRIES {
        world.peer.next(Method::GET, KEY, Fault::Stall);
    }
    let error = world.get(&checksum).await.unwrap_err();
    assert!(
        error.to_string().ends_with("no answer within 1 s"),
        "{error}"
    );
}

#[tokio::test]
async fn each_refusal_has_its_meaning() {
    let s3 = "<Error><Code>SlowDown</Code><Message>Reduce your rate</Message></Error>";
    let cases = [
        (
            503,
            s3,
            "the store throttles our calls: SlowDown: Reduce your rate",
            true,
        ),
        (429, "", "the store throttles our calls: status 429", true),
        (500, "", "the store is unavailable: status 500", true),
        (507, "", "the store is unavailable: status 507", true),
        (
            401,
            "",
            "the store does not accept our credentials: status 401",
            false,
        ),
        (
            403,
            "no XML",
            "the store does not accept our credentials: status 403",
            false,
        ),
        (400, "", "the store refuses the call: status 400", false),
        (301, "", "the store refuses the call: status 301", false),
    ];
    let world = World::plain(true).await;
    for (status, body, expected, is_transient) in cases {
        world
            .peer
            .next(Method::PUT, KEY, Fault::Answer(status, body));
        let error = world.put(b"content").await.unwrap_err();
        assert_eq!(error.to_string(), expected);
        assert_eq!(error.is_transient(), is_transient);
    }
    let (_, checksum) = world.file(b"content");
    let error = world.get(&checksum).await.unwrap_err();
    assert_eq!(error.to_string(), format!("the store has no {KEY}"));
    world.peer.next(Method::DELETE, KEY, Fault::Answer(500, ""));
    assert!(world.store.delete(&key()).await.unwrap_err().is_transient());
    // No server listens there.
    let nowhere = settings(json!({"url": "http://127.0.0.1:1"}));
    let nowhere = ObjectStore::new(&nowhere, TestClock::new()).unwrap();
    assert!(nowhere.find(&key()).await.unwrap_err().is_transient());
}

#[tokio::test]
async fn a_download_to_a_full_disk_leaves_nothing_and_may_be_tried_again() {
    let Some(disk) = SmallDisk::mount("1m") else {
        return;
    };
    let world = World::plain(true).await;
    let checksum = world.put(&vec![7; 2 << 20]).await.unwrap();
    let to = disk.path().join("copy");
    let error = world.store.get(&key(), &to, &checksum).await.unwrap_err();
    assert!(
        matches!(error, ArtifactError::File { .. }) && error.is_transient(),
        "{error}"
    );
    assert_eq!(fs::read_dir(disk.path()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_source_that_changed_is_not_stored() {
    let world = World::plain(true).await;
    let (file, _) = world.file(b"changed");
    let (_, checksum) = (file.clone(), read(&b"content"[..]).unwrap());
    let error = world.store.put(&key(), &file, &checksum).await.unwrap_err();
    assert!(
        matches!(error, ArtifactError::WrongContent { .. }),
        "{error}"
    );
    assert!(world.peer.calls("PUT").is_empty());
    let error = world
        .store
        .put(&key(), world.folder.path(), &checksum)
        .await
        .unwrap_err();
    assert!(error.to_string().contains("is not a file"), "{error}");
    let missing = world.folder.path().join("missing");
    let error = world
        .store
        .put(&key(), &missing, &checksum)
        .await
        .unwrap_err();
    assert!(matches!(error, ArtifactError::File { .. }), "{error}");
}

#[test]
fn settings_that_contradict_themselves_name_the_key() {
    let cases = [
        (json!({"url": "ftp://x"}), "url: must be"),
        (json!({"url": "http://"}), "url: must be"),
        (json!({"url": "http://x?a"}), "url: must be"),
        (
            json!({"url": "http://x", "bucket": "a/b"}),
            "bucket: must be the name",
        ),
        (
            json!({"url": "http://x", "bucket": ""}),
            "bucket: must be the name",
        ),
        (
            json!({"url": "http://x", "prefix": "a"}),
            "prefix: must be like images/",
        ),
        (
            json!({"url": "http://x", "prefix": "/"}),
            "prefix: must be like images/",
        ),
        (
            json!({"url": "http://x", "stall_seconds": 0}),
            "stall_seconds: must be at least 1",
        ),
        (
            json!({"url": "http://x", "bucket": "b", "access_key_id": "A"}),
            "access_key_id: needs",
        ),
        (
            json!({"url": "http://x", "secret_access_key": "s"}),
            "secret_access_key: needs",
        ),
        (
            json!({"url": "http://x", "access_key_id": "A", "secret_access_key": "s"}),
            "access_key_id: needs bucket",
        ),
    ];
    for (document, expected) in cases {
        let error = ObjectStore::new(&settings(document), TestClock::new())
            .err()
            .unwrap();
        assert!(error.to_string().starts_with(expected), "{error}");
    }
    let unknown = serde_json::from_value::<ObjectStoreSettings>(json!({"url": "x", "buckt": "b"}));
    assert!(unknown.unwrap_err().to_string().contains("buckt"));
}

#[test]
fn the_size_of_parts_has_limits() {
    let fits = |part_bytes: u64| {
        let settings = settings(json!({"url": "http://x", "part_bytes": part_bytes}));
        ObjectStore::new(&settings, TestClock::new()).is_ok()
    };
    let (least, most) = (MIN_PART_BYTES, MAX_PART_BYTES);
    for size in sizes_around("the length", 5 << 20) {
        assert_eq!(
            fits(size as u64),
            (least..=most).contains(&(size as u64)),
            "{size}"
        );
    }
    for size in sizes_around("the length", 64 << 20) {
        assert_eq!(
            fits(size as u64),
            (least..=most).contains(&(size as u64)),
            "{size}"
        );
    }
    // A file never has more parts than S3 takes.
    let parts = usize::try_from(MAX_PARTS).unwrap();
    for n_parts in sizes_around("cloud::image::object_store::MAX_PARTS", parts) {
        let size = n_parts as u64 * least;
        let part = part_size(least, size);
        assert!(
            part >= least && size.div_ceil(part) <= MAX_PARTS,
            "{n_parts}"
        );
        assert_eq!(part == least, n_parts <= parts, "{n_parts}");
    }
}

#[tokio::test]
async fn the_pages_of_a_list_of_uploads_have_a_limit() {
    const LIMIT: usize = 5;
    let last = "<ListMultipartUploadsResult><IsTruncated>false</IsTruncated>\
                </ListMultipartUploadsResult>";
    let more = "<ListMultipartUploadsResult><IsTruncated>true</IsTruncated><NextKeyMarker>k\
                </NextKeyMarker><NextUploadIdMarker>a b</NextUploadIdMarker>\
                </ListMultipartUploadsResult>";
    for n_pages in sizes_around("cloud::image::object_store::multipart::MAX_PAGES", LIMIT) {
        let world = World::plain(true).await;
        let settings = settings(json!({
            "url": world.peer.url, "bucket": "b", "access_key_id": "A", "secret_access_key": "s",
        }));
        let store = ObjectStore::new(&settings, TestClock::new()).unwrap();
        for number in 1..=n_pages.max(1) {
            let page = if number < n_pages { more } else { last };
            world
                .peer
                .next(Method::GET, "uploads=", Fault::Answer(200, page));
        }
        let listed = store.list_uploads("", LIMIT).await;
        assert_eq!(listed.is_ok(), n_pages <= LIMIT, "{n_pages}");
        if let Err(error) = listed {
            assert!(
                error
                    .to_string()
                    .ends_with("the list of uploads has more than 5 pages")
            );
        }
        let next = world.peer.calls("key-marker=k&upload-id-marker=a%20b");
        assert_eq!(next.len(), n_pages.clamp(1, LIMIT) - 1);
        let nothing = "<ListMultipartUploadsResult/>";
        world
            .peer
            .next(Method::GET, "uploads=", Fault::Answer(200, nothing));
        assert!(store.list_uploads("", MAX_PAGES).await.unwrap().is_empty());
    }
}
