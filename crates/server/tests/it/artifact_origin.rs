//! Public artifacts by path, at an origin of their own.

use std::path::Path;
use std::sync::Arc;

use http::Method;
use serde_json::{Value, json};
use server::config::Config;

use crate::artifact_files::ours;
use crate::artifacts::{FOREVER, RUN, link, path, s3};
use crate::ask::Ask;
use crate::database::{Database, on_sqlite_first};
use crate::runs::{OTHER_TASK, TASK};
use crate::world::World;

const ORIGIN: &str = "https://artifacts.example";

fn with_origin(config: &mut Config) {
    config.artifacts.origin = Some(format!("{ORIGIN}/"));
}

impl World {
    async fn let_everybody_read(&self, scopes: &[&str]) {
        let role = json!({"description": "", "scopes": scopes});
        let path = "auth:/roles/anonymous";
        self.delete(path).await;
        self.put(path, role).await.expect(200);
    }

    /// Asks at the origin of artifacts.
    fn at_origin(&self, method: Method, path: &str) -> Ask {
        let door = Arc::new(self.server.of_public_artifacts());
        let ask = Ask::new(door, method, &format!("root:{path}"), self.now());
        ask.header("host", "artifacts.example")
    }

    fn by_path(&self, name: &str) -> Ask {
        self.at_origin(Method::GET, &format!("/{TASK}/0/{name}"))
    }

    async fn page(&self, name: &str, content_type: &str, text: &'static str) {
        let url = self.upload_url(name, content_type).await;
        self.upload(&url, text).await.expect(200);
    }
}

on_sqlite_first!(
    the_api_leads_to_public_artifacts_by_path,
    with_origin,
    |world| {
        world.running_task().await;
        world
            .page("public/report/index.html", "text/html", "<p>")
            .await;
        world.page("private/a", "text/plain", "x").await;
        world.page("public/../a", "text/plain", "x").await;
        let at_origin = format!("{ORIGIN}/{TASK}/0/public/report/index.html");
        let signed = "/api/fleetwright/v1/task/";
        // The role anonymous has no scopes yet, so only a signed URL can be read.
        assert!(
            world
                .place(&path("public/report/index.html"))
                .await
                .contains(signed)
        );
        world
            .let_everybody_read(&["queue:get-artifact:public/*"])
            .await;
        assert_eq!(
            world.place(&path("public/report/index.html")).await,
            at_origin
        );
        let anonymous = world
            .get(&path("public/report/index.html"))
            .anonymously()
            .await;
        assert_eq!(anonymous.header("location"), at_origin);
        let content = format!("{RUN}/artifact-content/public/report/index.html");
        let content = world.get(&content).await.expect(200);
        assert_eq!(content, json!({"storageType": "s3", "url": at_origin}));
        // Artifacts that are not for everybody, and a name that no path can have, stay there.
        for name in ["private/a", "public%2F..%2Fa"] {
            assert!(world.place(&path(name)).await.contains(signed), "{name}");
        }
        // A link to it, and the log of the run.
        world
            .create("public/l", link("public/report/index.html"))
            .await;
        assert_eq!(world.place(&path("public/l")).await, at_origin);
        let log = format!("fleetwright:/task/{TASK}/runs/0/log?offset=0");
        world.ask(Method::PUT, &log).raw("line").await.expect(200);
        let log = "public/logs/live_backing.log";
        assert_eq!(
            world.place(&path(log)).await,
            format!("{ORIGIN}/{TASK}/0/{log}")
        );
        assert_eq!(world.by_path(log).await.text, "line");
    }
);

on_sqlite_first!(a_report_of_several_files_shows, with_origin, |world| {
    world
        .let_everybody_read(&["queue:get-artifact:public/*"])
        .await;
    world.running_task().await;
    let page = "<link rel=stylesheet href='a b.css'><script src=s.js></script>";
    world.page("public/r/index.html", "text/html", page).await;
    world.page("public/r/a%20b.css", "text/css", "p {}").await;
    world.page("public/r/s.js", "text/javascript", "1").await;
    world
        .page("public/r/d.pdf", "application/pdf", "%PDF")
        .await;
    let shown = world.by_path("public/r/index.html").await;
    assert_eq!((shown.status, shown.text.as_str()), (200, page));
    let policy = shown.header("content-security-policy").to_owned();
    for directive in policy.split("; ") {
        assert!(directive.starts_with("sandbox "), "{directive}");
    }
    for flag in ["allow-scripts", "allow-same-origin"] {
        assert!(policy.contains(flag), "{policy}");
    }
    // A name of the server that leads there has the cookies of the server.
    let door = Arc::new(world.server.of_public_artifacts());
    let path = format!("root:/{TASK}/0/public/r/index.html");
    let at_our_name = Ask::new(door, Method::GET, &path, world.now()).await;
    let policy = at_our_name.header("content-security-policy");
    assert!(!policy.contains("allow-same-origin"), "{policy}");
    for (name, value) in [
        ("x-content-type-options", "nosniff"),
        ("referrer-policy", "no-referrer"),
        ("access-control-allow-origin", "*"),
        ("cache-control", "no-cache"),
        ("content-type", "text/html"),
        ("content-disposition", "inline; filename=\"index.html\""),
    ] {
        assert_eq!(shown.header(name), value, "{name}");
    }
    assert!(shown.headers.get("set-cookie").is_none());
    // Styles often have a version in their query.
    let style = world.by_path("public/r/a%20b.css?v=3").await;
    assert_eq!(
        (style.text.as_str(), style.header("content-type")),
        ("p {}", "text/css")
    );
    assert_eq!(world.by_path("public/r/s.js").await.text, "1");
    let pdf = world.by_path("public/r/d.pdf").await;
    assert!(!pdf.header("content-security-policy").contains("sandbox"));
    // As other downloads.
    let tag = style.header("etag");
    let known = world
        .by_path("public/r/a%20b.css")
        .header("if-none-match", tag)
        .await;
    assert_eq!((known.status, known.header("etag")), (304, tag));
    let part = world
        .by_path("public/r/a%20b.css")
        .header("range", "bytes=2-")
        .await;
    assert_eq!((part.status, part.text.as_str()), (206, "{}"));
    let head = world
        .at_origin(Method::HEAD, &format!("/{TASK}/0/public/r/s.js"))
        .await;
    assert_eq!((head.status, head.header("content-length")), (200, "1"));
    let options = world
        .at_origin(Method::OPTIONS, &format!("/{TASK}/0/public/r/s.js"))
        .await;
    assert_eq!((options.status, options.header("allow")), (200, "GET,HEAD"));
});

#[tokio::test]
async fn pages_at_another_port_of_the_same_host_share_no_cookies() {
    let change = |config: &mut Config| {
        config.artifacts.origin = Some("http://fleet.example.com:8081".to_owned());
    };
    let world = World::open(Database::sqlite(), change).await;
    world
        .let_everybody_read(&["queue:get-artifact:public/*"])
        .await;
    world.running_task().await;
    world.page("public/a", "text/html", "x").await;
    let shown = world.by_path("public/a").await;
    let policy = shown.header("content-security-policy");
    assert!(policy.starts_with("sandbox allow-scripts"), "{policy}");
    assert!(!policy.contains("allow-same-origin"), "{policy}");
}

on_sqlite_first!(
    only_what_everybody_may_read_is_read_by_path,
    with_origin,
    |world| {
        world.running_task().await;
        world.let_everybody_read(&["queue:get-artifact:*"]).await;
        world.page("public/a", "text/plain", "x").await;
        world.page("private/a", "text/plain", "secret").await;
        world
            .page("public/../private/a", "text/plain", "its own name")
            .await;
        assert_eq!(world.by_path("public/a").await.text, "x");
        for name in ["private/a", "public", "public%2e", "Public/a"] {
            let refused = world.by_path(name).await;
            refused.refused_with(403, "InsufficientScopes", "begin with public/");
        }
        // No credentials count, in whatever form.
        world
            .let_everybody_read(&["queue:get-artifact:public/b"])
            .await;
        let asks = [
            world.by_path("public/a"),
            world.by_path("public/a").by(&world.root()),
            world
                .by_path("public/a")
                .by_bewit(&world.root(), i64::MAX / 1_000),
            world
                .by_path("public/a")
                .header("authorization", "Hawk nonsense"),
            world.by_path("public/a").header("cookie", "a=b"),
        ];
        for ask in asks {
            let refused = ask.await;
            assert!(refused.headers.get("www-authenticate").is_none());
            refused.refused_with(403, "InsufficientScopes", "accepts no credentials");
        }
        world
            .let_everybody_read(&["queue:get-artifact:public/a"])
            .await;
        let wrong = world
            .by_path("public/a")
            .header("authorization", "Hawk nonsense");
        assert_eq!(wrong.await.text, "x");
    }
);

on_sqlite_first!(strange_paths_lead_nowhere, with_origin, |world| {
    world
        .let_everybody_read(&["queue:get-artifact:public/*"])
        .await;
    world.running_task().await;
    world.page("public/a", "text/plain", "x").await;
    let long = "x".repeat(1_100);
    for (path, status) in [
        (format!("/{TASK}/0/public/missing"), 404),
        (format!("/{TASK}/1/public/a"), 404),
        (format!("/{TASK}/99999999999999999999/public/a"), 404),
        (format!("/{OTHER_TASK}/0/public/a"), 404),
        (format!("/{TASK}/0/public/../public/a"), 404),
        (format!("/{TASK}/0/public/%2e%2e/public/a"), 404),
        (format!("/{TASK}/0//public/a"), 403),
        (format!("/{TASK}/0/public//a"), 404),
        (format!("/{TASK}/0/public/a/"), 404),
        (format!("/{TASK}/0/public%2F..%2F..%2Fetc%2Fpasswd"), 404),
        (format!("/{TASK}/0/public/a%00"), 400),
        (format!("/{TASK}/0/public/a%0A"), 400),
        (format!("/{TASK}/0/public/%ff"), 400),
        (format!("/{TASK}/0/public/{long}"), 400),
        (format!("/{TASK}/0/public{}", "/x".repeat(1_000)), 404),
        (format!("/{TASK}/-1/public/a"), 400),
        (format!("/{TASK}/public/a"), 400),
        ("/nonsense/0/public/a".to_owned(), 400),
        (format!("/{TASK}/0/"), 400),
        (format!("/{TASK}/0"), 404),
        ("/".to_owned(), 404),
        ("/metrics".to_owned(), 404),
        ("/ready".to_owned(), 404),
        ("/references/manifest.json".to_owned(), 404),
        ("/api/auth/v1/ping".to_owned(), 400),
        (format!("/api/queue/v1/task/{TASK}"), 400),
    ] {
        let answer = world.at_origin(Method::GET, &path).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.text);
        let policy = answer.header("content-security-policy");
        assert!(policy.contains("default-src 'none'"), "{path}: {policy}");
    }
    // An encoded slash is a slash of the name.
    assert_eq!(world.by_path("public%2Fa").await.text, "x");
    for method in [Method::PUT, Method::POST, Method::DELETE, Method::TRACE] {
        let path = format!("/{TASK}/0/public/a");
        assert_eq!(world.at_origin(method, &path).await.status, 404);
    }
    let worker = world.by_path("public/a").header("service-worker", "script");
    assert_eq!(worker.await.status, 404);
});

on_sqlite_first!(
    artifacts_of_other_kinds_and_expired_ones_are_answered_by_path,
    with_origin,
    |world| {
        world
            .let_everybody_read(&["queue:get-artifact:public/*"])
            .await;
        world.running_task().await;
        world.page("public/a", "text/plain", "x").await;
        let to = "https://example.com/x?y=z";
        let reference = json!({"storageType": "reference", "url": to, "contentType": "text/html",
        "expires": FOREVER});
        world.create("public/r", reference).await;
        let found = world.by_path("public/r").await;
        assert_eq!((found.status, found.header("location")), (303, to));
        for (name, target, expected) in [
            ("public/l", "public/a", 303),
            ("public/cycle", "public/cycle", 303),
            ("public/p", "private/a", 403),
            ("public/dots", "public/../a", 403),
        ] {
            world.create(name, link(target)).await;
            let found = world.by_path(name).await;
            assert_eq!(found.status, expected, "{name}");
            if expected == 303 {
                assert_eq!(found.header("location"), format!("/{TASK}/0/{target}"));
            }
        }
        let error = json!({"storageType": "error", "reason": "file-missing-on-worker",
        "message": "no such file", "expires": FOREVER});
        world.create("public/e", error).await;
        let never = world.by_path("public/e").await.expect(424);
        assert_eq!(never["message"], "no such file");
        let unfinished: Value = world.create("public/u", s3("text/plain")).await;
        assert!(ours(unfinished["putUrl"].as_str().unwrap()).contains("signature"));
        let text = "Artifact not found: it has not been uploaded yet";
        world
            .by_path("public/u")
            .await
            .refused(404, "ResourceNotFound", text);
        world.clock.advance_ms(400 * 86_400_000);
        let expired = world.by_path("public/a").await;
        expired.refused(410, "ResourceExpired", "Artifact expired");
    }
);

/// Real sockets: both addresses have the same places.
#[tokio::test]
async fn the_origin_of_artifacts_listens_beside_the_server() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    use tokio_util::sync::CancellationToken;

    let world = World::open(Database::sqlite(), with_origin).await;
    world
        .let_everybody_read(&["queue:get-artifact:public/*"])
        .await;
    world.running_task().await;
    world.page("public/a", "text/plain", "over a socket").await;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let server = Arc::new(world.server.of_public_artifacts());
    let serving = tokio::spawn(server.serve(listener, stop.clone()));
    let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
    let request = format!(
        "GET /{TASK}/0/public/a HTTP/1.1\r\nhost: x\r\nrange: bytes=5-\r\nconnection: close\r\n\r\n"
    );
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 206 Partial Content\r\n"),
        "{answer}"
    );
    assert!(answer.ends_with("\r\n\r\na socket"), "{answer}");
    stop.cancel();
    serving.await.unwrap();
}

fn checked(text: &str) -> Result<Option<String>, String> {
    let text = format!("{text}\n[database]\nurl = \"sqlite:x\"");
    let config = Config::from_toml(&text, Path::new("f.toml")).map_err(|it| it.to_string())?;
    config.check().map_err(|it| it.to_string())?;
    Ok(config.artifact_origin())
}

#[test]
fn the_origin_of_artifacts_is_another_than_that_of_the_api() {
    let own =
        "root_url = \"https://fleet.example\"\nroot_url_aliases = [\"http://old.example:81\"]\n";
    for (origin, is_good) in [
        ("https://fleet.example:8443", true),
        ("https://artifacts.example/", true),
        ("http://fleet.example", true),
        ("https://fleet.example", false),
        ("https://fleet.example:443", false),
        ("https://FLEET.example/", false),
        ("http://old.example:81", false),
        ("https://artifacts.example/x", false),
        ("ftp://artifacts.example", false),
        ("artifacts.example", false),
    ] {
        match checked(&format!("{own}[artifacts]\norigin = \"{origin}\"")) {
            Ok(found) => {
                assert!(is_good, "{origin}");
                assert_eq!(found.as_deref(), Some(origin.trim_end_matches('/')));
            }
            Err(error) => {
                assert!(!is_good, "{error}");
                assert!(error.starts_with("artifacts.origin: must "), "{error}");
            }
        }
    }
}

#[test]
fn an_address_alone_is_its_own_origin() {
    for (text, expected) in [
        ("", Ok(None)),
        (
            "[artifacts]\nlisten = \"127.0.0.1:81\"",
            Ok(Some("http://127.0.0.1:81")),
        ),
        (
            "listen = \"127.0.0.1:0\"\n[artifacts]\nlisten = \"127.0.0.1:0\"",
            Ok(Some("http://127.0.0.1:0")),
        ),
        (
            "[artifacts]\nlisten = \"127.0.0.1:8080\"",
            Err("artifacts.origin: must have another host or port"),
        ),
        (
            "[artifacts]\nlisten = \"0.0.0.0:81\"",
            Err("artifacts.origin: is missing"),
        ),
        (
            "[artifacts]\nlisten = \"[::]:81\"",
            Err("artifacts.origin: is missing"),
        ),
        (
            "[artifacts]\nlisten = \"0.0.0.0:81\"\norigin = \"http://a.example\"",
            Ok(Some("http://a.example")),
        ),
    ] {
        match (checked(text), expected) {
            (Ok(found), Ok(expected)) => assert_eq!(found.as_deref(), expected, "{text}"),
            (Err(error), Err(part)) => assert!(error.starts_with(part), "{error}"),
            (found, expected) => panic!("{text}: {found:?}, not {expected:?}"),
        }
    }
}
