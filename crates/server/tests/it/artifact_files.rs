//! Files of artifacts: uploaded, downloaded, and deleted after they expire.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use engine::artifacts::ArtifactFolder;
use futures_util::{StreamExt, stream};
use http::{HeaderMap, Method, Request};
use http_body::{Body, Frame};
use http_body_util::StreamBody;
use serde_json::{Value, json};
use server::background::ArtifactCleanup;
use server::background::driver::BackgroundTask;

use crate::artifacts::{FOREVER, RUN, link, path, s3};
use crate::ask::{Answer, Ask};
use crate::database::{Database, on_both, on_sqlite_first};
use crate::runs::{OTHER_TASK, TASK};
use crate::samples::DAY_MS;
use crate::world::{ROOT_URL, World};

/// A URL of ours as the paths of tests are written.
pub(crate) fn ours(url: &str) -> String {
    let path = url.strip_prefix(ROOT_URL).unwrap();
    format!("root:{path}")
}

impl World {
    /// Where the file of a new artifact is to be put.
    pub(crate) async fn upload_url(&self, name: &str, content_type: &str) -> String {
        let made = self.create(name, s3(content_type)).await;
        ours(made["putUrl"].as_str().unwrap())
    }

    pub(crate) fn upload(&self, url: &str, bytes: impl Into<Bytes>) -> Ask {
        self.ask(Method::PUT, url).anonymously().raw(bytes)
    }

    pub(crate) async fn fetch(&self, path: &str) -> Answer {
        let url = ours(&self.place(path).await);
        self.get(&url).anonymously().await
    }

    pub(crate) async fn tidy_artifacts(&self) -> Value {
        let mut task = ArtifactCleanup::new(self.app.engine.clone());
        let mut done = json!({});
        // All shelves once.
        for _ in 0..16 {
            let activated = task.activate().await.unwrap();
            for (what, count) in activated.as_object().into_iter().flatten() {
                done[what] = json!(done[what].as_u64().unwrap_or(0) + count.as_u64().unwrap());
            }
        }
        done
    }

    fn files(&self) -> Vec<PathBuf> {
        let mut files = Vec::new();
        all_files(&self.app.config.artifact_folder().unwrap(), &mut files);
        files
    }
}

fn all_files(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).into_iter().flatten() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            all_files(&path, files);
        } else {
            files.push(path);
        }
    }
}

#[tokio::test]
async fn uploads_and_logs_leave_a_reserve_of_the_disk() {
    // No disk has so much room.
    let change = |config: &mut server::config::Config| config.artifacts.reserve_bytes = u64::MAX;
    let world = World::open(Database::sqlite(), change).await;
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    for bytes in ["", "x"] {
        let refused = world.upload(&url, bytes).await;
        refused.refused_with(507, "InsufficientStorage", "`artifacts.reserve_bytes`");
    }
    let log = format!("fleetwright:/task/{TASK}/runs/0/log?offset=0");
    let refused = world.ask(Method::PUT, &log).raw("x").await;
    refused.refused_with(507, "InsufficientStorage", "Nothing was stored");
    assert!(world.files().is_empty());
    // The rest of the server works on.
    let created = world.create_task(7, json!({})).await;
    assert_eq!(created.status, 200, "{}", created.text);
}

on_both!(
    the_files_of_a_task_have_a_limit_together,
    ten_bytes_of_a_task,
    |world| {
        world.running_task().await;
        let (first, second) = (
            world.upload_url("public/a", "text/plain").await,
            world.upload_url("public/b", "text/plain").await,
        );
        world.upload(&first, "123456").await.expect(200);
        for (url, bytes, status) in [
            (&second, "", 200),
            (&second, "1", 200),
            (&second, "123", 200),
            (&second, "1234", 200),
            (&second, "12345", 413),
            (&second, "1234567890123456789012345678901234567890", 413),
            // Again, the same file: only its new size counts.
            (&first, "123456", 200),
            (&first, "1234567", 413),
        ] {
            let answer = world.upload(url, bytes).await;
            if status == 413 {
                answer.refused_with(413, "InputTooLarge", "`artifacts.max_task_bytes`");
            } else {
                answer.expect(status);
            }
        }
        assert_eq!(world.fetch(&path("public/a")).await.text, "123456");
        assert_eq!(world.fetch(&path("public/b")).await.text, "1234");
    }
);

on_sqlite_first!(a_file_is_uploaded_and_fetched, |world| {
    world.running_task().await;
    let made = world
        .create("public/a.txt", s3("text/plain; charset=utf-8"))
        .await;
    assert_eq!(made["storageType"], "s3");
    assert_eq!(made["contentType"], "text/plain; charset=utf-8");
    assert_eq!(made["expires"], "2026-09-21T14:58:20.000Z");
    let url = ours(made["putUrl"].as_str().unwrap());
    world.upload(&url, "größe").await.expect(200);
    let fetched = world.fetch(&path("public/a.txt")).await;
    assert_eq!((fetched.status, fetched.text.as_str()), (200, "größe"));
    assert_eq!(fetched.header("content-type"), "text/plain; charset=utf-8");
    assert_eq!(
        fetched.header("content-disposition"),
        "inline; filename=\"a.txt\""
    );
    assert_eq!(fetched.header("content-encoding"), "");
    let place = ours(&world.place(&path("public/a.txt")).await);
    let head = world.ask(Method::HEAD, &place).anonymously().await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    assert_eq!(head.header("content-length"), "7");
    let info = world
        .get(&format!("{RUN}/artifact-info/public/a.txt"))
        .await
        .expect(200);
    let expected = json!({"storageType": "s3", "name": "public/a.txt", "expires": FOREVER,
        "contentType": "text/plain; charset=utf-8", "contentLength": 7});
    assert_eq!(info, expected);
    // No event announces an upload: clients know no such message.
    assert_eq!(world.told().await, "");
});

on_sqlite_first!(a_packed_file_is_given_back_packed, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    world
        .upload(&url, "zip")
        .header("content-encoding", "gzip")
        .await
        .expect(200);
    let fetched = world.fetch(&path("public/a")).await;
    assert_eq!(fetched.header("content-encoding"), "gzip");
});

on_sqlite_first!(odd_names_are_names_like_others, |world| {
    world.running_task().await;
    let names = [
        "public/../../../etc/passwd",
        "..",
        "/etc/passwd",
        "a b+c%d?e=f#g\"h\\",
        "log",
        "a//b/",
    ];
    for (number, name) in names.iter().enumerate() {
        let encoded = name
            .bytes()
            .map(|byte| format!("%{byte:02X}"))
            .collect::<String>();
        let url = world.upload_url(&encoded, "text/plain").await;
        world.upload(&url, number.to_string()).await.expect(200);
        let fetched = world.fetch(&path(&encoded)).await;
        assert_eq!(fetched.text, number.to_string(), "{name}");
    }
    assert_eq!(world.files().len(), names.len());
    let listed = world.get(&format!("{RUN}/artifacts")).await.expect(200);
    assert_eq!(listed["artifacts"].as_array().unwrap().len(), names.len());
    for bad in ["gr%C3%B6%C3%9Fe", "a%0Ab", &"x".repeat(1025)] {
        let refused = world.post(&path(bad), s3("a/b")).await;
        refused.refused_with(400, "InputError", "1 to 1024 printable ASCII characters");
    }
    let refused = world.get(&path("gr%C3%B6%C3%9Fe")).await;
    refused.refused_with(400, "InputError", "printable ASCII");
});

on_sqlite_first!(
    a_file_may_be_uploaded_again_while_its_run_goes_on,
    |world| {
        world.running_task().await;
        let url = world.upload_url("public/a", "text/plain").await;
        world.upload(&url, "first").await.expect(200);
        // The same request again gives a new URL and deletes nothing.
        world.create("public/a", s3("text/plain")).await;
        assert_eq!(world.fetch(&path("public/a")).await.text, "first");
        world.upload(&url, "2nd").await.expect(200);
        assert_eq!(world.fetch(&path("public/a")).await.text, "2nd");
        world.complete_run(0).await;
        let refused = world.upload(&url, "late").await;
        refused.refused_with(409, "RequestConflict", "after it has ended");
        assert_eq!(world.fetch(&path("public/a")).await.text, "2nd");
    }
);

on_sqlite_first!(
    an_artifact_without_an_upload_cannot_be_downloaded,
    |world| {
        world.running_task().await;
        let url = world.upload_url("public/a", "text/plain").await;
        let text = "Artifact not found: it has not been uploaded yet";
        world
            .get(&path("public/a"))
            .await
            .refused(404, "ResourceNotFound", text);
        let get = url.replace("signature", "x");
        assert_eq!(world.get(&get).anonymously().await.status, 400);
        // It is listed, as elsewhere.
        let listed = world.get(&format!("{RUN}/artifacts")).await.expect(200);
        assert_eq!(listed["artifacts"][0].get("contentLength"), None);
        // Its length is listed as soon as it was declared.
        let mut declared = s3("text/plain");
        declared["contentLength"] = json!(7);
        let made = world.create("public/b", declared).await;
        let listed = world.get(&format!("{RUN}/artifacts")).await.expect(200);
        assert_eq!(listed["artifacts"][1]["contentLength"], 7);
        let url = ours(made["putUrl"].as_str().unwrap());
        world.upload(&url, "x").await.expect(200);
        let listed = world.get(&format!("{RUN}/artifacts")).await.expect(200);
        assert_eq!(listed["artifacts"][1]["contentLength"], 1);
    }
);

on_sqlite_first!(a_missing_file_is_reported_to_the_operator, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    world.upload(&url, "x").await.expect(200);
    std::fs::remove_file(&world.files()[0]).unwrap();
    let text = "This artifact has no file";
    world
        .fetch(&path("public/a"))
        .await
        .refused(404, "ResourceNotFound", text);
    world.errors_expected.set(true);
    assert_eq!(world.log.lines("do all servers share the folder?").len(), 1);
});

on_sqlite_first!(
    a_disk_that_refuses_is_our_fault_and_leaves_nothing,
    |world| {
        world.running_task().await;
        let url = world.upload_url("public/a", "text/plain").await;
        let folder = world.app.config.artifact_folder().unwrap();
        std::fs::create_dir_all(folder.parent().unwrap()).unwrap();
        std::fs::write(&folder, "a file is in the way").unwrap();
        let refused = world.upload(&url, "x").await;
        refused.refused_with(500, "InternalServerError", "incidentId");
        world.errors_expected.set(true);
        let refused = world.get(&path("public/a")).await;
        assert_eq!(refused.status, 404);
    }
);

#[tokio::test]
async fn a_large_file_streams_through_and_one_too_large_leaves_nothing() {
    const LIMIT: usize = 20 * 1024 * 1024;
    let change = |config: &mut server::config::Config| {
        config.artifacts.max_bytes = LIMIT as u64;
        config.server.max_body_bytes = 1_000;
    };
    let world = World::open(Database::sqlite(), change).await;
    world.running_task().await;
    let url = world.upload_url("public/large", "application/x-tar").await;
    let large = Bytes::from(vec![b'x'; LIMIT]);
    world.upload(&url, large.clone()).await.expect(200);
    let fetched = world.fetch(&path("public/large")).await;
    assert_eq!(fetched.text.len(), LIMIT);
    let url = world.upload_url("public/larger", "application/x-tar").await;
    let refused = world
        .upload(&url, [large, Bytes::from_static(b"!")].concat())
        .await;
    refused.refused(
        413,
        "InputTooLarge",
        "The body is larger than 20971520 bytes",
    );
    assert_eq!(world.files().len(), 1);
    let mut announced = s3("a/b");
    announced["contentLength"] = json!(LIMIT + 1);
    let refused = world.post(&path("public/announced"), announced).await;
    refused.refused(
        400,
        "InputError",
        "An artifact cannot be larger than 20971520 bytes",
    );
}

/// A body of this many pieces, each made when it is requested; counts how many of them are held at
/// once.
fn counted(
    n_pieces: usize,
    held: &Arc<Held>,
    broken: bool,
) -> impl Body<Data = Bytes, Error = std::io::Error> + Send + 'static {
    let held = Arc::clone(held);
    let pieces = stream::iter(0..n_pieces).map(move |_| {
        let bytes = Bytes::from_owner(Piece::new(&held));
        Ok::<_, std::io::Error>(Frame::data(bytes))
    });
    let end = broken.then(|| Err(std::io::Error::other("hung up")));
    StreamBody::new(pieces.chain(stream::iter(end)))
}

#[derive(Default)]
struct Held {
    now: AtomicUsize,
    most: AtomicUsize,
}

struct Piece(Arc<Held>, Vec<u8>);

impl Piece {
    const BYTES: usize = 64 * 1024;

    fn new(held: &Arc<Held>) -> Self {
        let now = held.now.fetch_add(1, Ordering::SeqCst) + 1;
        held.most.fetch_max(now, Ordering::SeqCst);
        Self(Arc::clone(held), vec![b'x'; Self::BYTES])
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.1
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn put(
    world: &World,
    url: &str,
    body: impl Body<Data = Bytes, Error = std::io::Error> + Send + 'static,
) -> u16 {
    let path = url.strip_prefix("root:").unwrap();
    let request = Request::put(path).header("host", "x").body(body).unwrap();
    let reply = world
        .server
        .answer(request, ([192, 0, 2, 7], 1).into())
        .await;
    reply.status().as_u16()
}

on_sqlite_first!(an_upload_is_never_completely_in_memory, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    let held = Arc::new(Held::default());
    assert_eq!(put(world, &url, counted(320, &held, false)).await, 200);
    assert_eq!(
        std::fs::metadata(&world.files()[0]).unwrap().len(),
        320 * 65_536
    );
    let most = held.most.load(Ordering::SeqCst);
    assert!((1..=4).contains(&most), "{most} of 320 pieces at once");
});

on_sqlite_first!(an_upload_that_breaks_off_leaves_nothing, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    let held = Arc::new(Held::default());
    assert_eq!(put(world, &url, counted(50, &held, true)).await, 400);
    assert!(world.files().is_empty());
    assert_eq!(world.get(&path("public/a")).await.status, 404);
    assert_eq!(put(world, &url, counted(1, &held, false)).await, 200);
    assert_eq!(
        world.fetch(&path("public/a")).await.text.len(),
        Piece::BYTES
    );
});

on_both!(an_expired_artifact_is_deleted_with_its_file, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    world.upload(&url, "x").await.expect(200);
    let get = ours(&world.place(&path("public/a")).await);
    world.create("public/b", link("public/a")).await;
    assert_eq!(world.tidy_artifacts().await, json!({}));
    let until = "2026-10-01T00:00:00.000Z"
        .parse::<domain::time::Timestamp>()
        .unwrap();
    world.clock.advance_ms(until.millis_since(world.now()) + 1);
    for answer in [
        world.get(&path("public/a")).await,
        world.get(&path("public/b")).await,
    ] {
        answer.refused(410, "ResourceExpired", "Artifact expired");
    }
    assert_eq!(world.get(&get).anonymously().await.status, 401);
    assert_eq!(
        world.tidy_artifacts().await,
        json!({"artifacts expired": 2})
    );
    assert!(world.files().is_empty());
    let answer = world.get(&path("public/a")).await;
    answer.refused(404, "ResourceNotFound", "Artifact not found");
});

on_both!(files_that_belong_to_nothing_are_found, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    world.upload(&url, "x").await.expect(200);
    world.running_log().await;
    let run = world.files()[0].parent().unwrap().to_owned();
    let folder = ArtifactFolder::new(world.app.config.artifact_folder().unwrap());
    let other = folder.run(&OTHER_TASK.parse().unwrap(), 0);
    // No task has this name, so the folder is not ours.
    let strange = other.join("../..").join("7c".repeat(16)).join("0");
    for folder in [&other, &strange] {
        std::fs::create_dir_all(folder).unwrap();
    }
    let made = [
        run.join("0123"),
        run.join("0123.x.part"),
        other.join("log"),
        run.join("young"),
        strange.join("log"),
    ];
    for file in &made {
        std::fs::write(file, "lost").unwrap();
    }
    // Files are as old as they are on this machine; the clock of the test is somewhere else.
    let now = SystemTime::UNIX_EPOCH
        + std::time::Duration::from_millis(world.now().as_millis().unsigned_abs());
    let old = now - std::time::Duration::from_millis(DAY_MS.unsigned_abs() + 1);
    for file in world.files() {
        let age = if file.ends_with("young") { now } else { old };
        let file = std::fs::File::options().read(true).open(&file).unwrap();
        file.set_modified(age).unwrap();
    }
    assert_eq!(world.files().len(), 7);
    assert_eq!(
        world.tidy_artifacts().await,
        json!({"lost files removed": 3})
    );
    assert_eq!(world.files().len(), 4);
    assert!(!other.parent().unwrap().exists());
    assert_eq!(world.fetch(&path("public/a")).await.text, "x");
    assert_eq!(world.tidy_artifacts().await, json!({}));
});

on_sqlite_first!(head_has_the_headers_of_get, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    world.upload(&url, "x").await.expect(200);
    let get = ours(&world.place(&path("public/a")).await);
    let head = world.ask(Method::HEAD, &get).anonymously().await;
    assert_eq!((head.status, head.text.as_str()), (200, ""));
    let headers: &HeaderMap = &head.headers;
    assert_eq!(headers["content-type"], "text/plain");
});

/// A body whose second half comes after a signal.
fn in_halves() -> (
    tokio::sync::mpsc::Sender<&'static str>,
    impl Body<Data = Bytes, Error = std::io::Error> + Send + 'static,
) {
    let (send, mut receive) = tokio::sync::mpsc::channel(1);
    let pieces = stream::poll_fn(move |context| {
        let piece = receive.poll_recv(context);
        piece.map(|piece: Option<&str>| piece.map(|it| Ok(Frame::data(Bytes::from(it)))))
    });
    (send, StreamBody::new(pieces))
}

on_both!(
    an_upload_that_ends_after_its_run_replaces_nothing,
    |world| {
        world.running_task().await;
        let url = world.upload_url("public/a", "text/plain").await;
        world.upload(&url, "as it was").await.expect(200);
        let (send, body) = in_halves();
        let held_open = async {
            send.send("for").await.unwrap();
            // The channel has room for this once the first piece has been taken: the upload is
            // running.
            send.send("ged").await.unwrap();
            world.complete_run(0).await;
            drop(send);
        };
        let (status, ()) = tokio::join!(put(world, &url, body), held_open);
        assert_eq!(status, 409);
        assert_eq!(world.fetch(&path("public/a")).await.text, "as it was");
        // The thread of the refused transaction removes the file, perhaps after the answer.
        while world.files().len() > 1 {
            tokio::task::yield_now().await;
        }
    }
);

fn ten_bytes_of_a_task(config: &mut server::config::Config) {
    config.artifacts.max_task_bytes = 10;
}

on_both!(
    two_uploads_at_once_do_not_exceed_the_limit_of_their_task,
    ten_bytes_of_a_task,
    |world| {
        world.running_task().await;
        let first = world.upload_url("public/a", "text/plain").await;
        let second = world.upload_url("public/b", "text/plain").await;
        let ((one, of_one), (other, of_other)) = (in_halves(), in_halves());
        let sending = async {
            for send in [&one, &other] {
                send.send("123").await.unwrap();
                // Both uploads run once there is room for this, and each would fit alone.
                send.send("456").await.unwrap();
            }
            drop((one, other));
        };
        let (one, other, ()) = tokio::join!(
            put(world, &first, of_one),
            put(world, &second, of_other),
            sending
        );
        let mut statuses = [one, other];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 413]);
    }
);

on_both!(an_upload_that_ends_before_its_run_counts, |world| {
    world.running_task().await;
    let url = world.upload_url("public/a", "text/plain").await;
    let (send, body) = in_halves();
    let in_time = async {
        send.send("in ").await.unwrap();
        send.send("time").await.unwrap();
        drop(send);
    };
    let (status, ()) = tokio::join!(put(world, &url, body), in_time);
    assert_eq!(status, 200);
    world.complete_run(0).await;
    assert_eq!(world.fetch(&path("public/a")).await.text, "in time");
});
