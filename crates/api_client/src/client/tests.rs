//! Calls to a server whose replies a test chooses.

use std::sync::{Arc, Mutex};

use access::Secret;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

/// Maximum size of a reply in these tests.
const MAX_BYTES: usize = 20;

type Heads = Arc<Mutex<Vec<String>>>;

/// Answers the requests one by one and records their heads. Then it stops answering.
async fn server(answers: Vec<(u16, String)>) -> (Url, Heads) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let heads = Heads::default();
    let seen = Arc::clone(&heads);
    tokio::spawn(async move {
        for (status, body) in answers {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") {
                assert!(stream.read_buf(&mut head).await.unwrap() > 0);
            }
            let head = String::from_utf8(head).unwrap();
            seen.lock().unwrap().push(head);
            let text = format!(
                "HTTP/1.1 {status} X\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
                body.len()
            );
            stream.write_all(text.as_bytes()).await.unwrap();
        }
        std::future::pending::<()>().await;
        drop(listener);
    });
    (url.parse().unwrap(), heads)
}

fn client(root_url: Url) -> Client {
    let options = Options {
        user_agent: Some("test/1"),
        call_limit: Duration::from_secs(20),
        max_reply_bytes: MAX_BYTES,
        stamp: Box::new(|| Stamp {
            seconds: 1_700_000_000,
            nonce: "n".to_owned(),
        }),
        observer: None,
    };
    Client::new(root_url, options).unwrap()
}

fn credentials() -> Credentials {
    Credentials {
        client_id: "me".to_owned(),
        access_token: Secret::new("secret-token"),
        extension: None,
    }
}

fn never(_: &CallError) -> Option<Duration> {
    None
}

#[tokio::test]
async fn a_call_is_signed_and_its_reply_is_read() {
    let (url, heads) = server(vec![(200, r#"{"a": 1}"#.to_owned())]).await;
    let call = Call::get("auth", &["roles", "a/b"])
        .query("limit", Some(1))
        .header("last-event-id", Some("7"));
    let client = client(url.clone());
    let reply: Value = client
        .call(&call, Some(&credentials()), &mut never)
        .await
        .unwrap();
    assert_eq!(reply, json!({"a": 1}));
    let head = heads.lock().unwrap().remove(0);
    assert!(head.starts_with("GET /api/auth/v1/roles/a%2Fb?limit=1 HTTP/1.1\r\n"));
    assert!(head.contains("last-event-id: 7\r\n"), "{head}");
    assert!(head.contains("user-agent: test/1\r\n"), "{head}");
    let header = authorization(
        &credentials(),
        &call.method,
        &client.url(&call),
        &call.body,
        &(client.options.stamp)(),
    );
    assert!(
        header.starts_with("Hawk id=\"me\", ts=\"1700000000\", nonce=\"n\""),
        "{header}"
    );
    assert!(head.contains(&header), "{head}");
}

#[tokio::test]
async fn a_call_is_repeated_as_long_as_the_policy_says() {
    let busy = || (503, r#"{"message": "busy"}"#.to_owned());
    let answers = vec![busy(), busy(), (200, "{}".to_owned()), busy(), busy()];
    let (url, heads) = server(answers).await;
    let client = client(url);
    let call = Call::get("auth", &["ping"]);
    let mut n_errors = 0;
    let mut retry = |problem: &CallError| {
        n_errors += 1;
        problem.may_pass().then_some(Duration::ZERO)
    };
    client.exchange(&call, None, &mut retry).await.unwrap();
    assert_eq!((n_errors, heads.lock().unwrap().len()), (2, 3));
    assert!(!heads.lock().unwrap()[0].contains("authorization"));

    let mut attempts_left = 1;
    let mut retry = |_: &CallError| {
        attempts_left -= 1;
        (attempts_left >= 0).then_some(Duration::ZERO)
    };
    let refused = client.exchange(&call, None, &mut retry).await.unwrap_err();
    assert_eq!(refused.to_string(), "503 Service Unavailable: busy");
    assert_eq!(heads.lock().unwrap().len(), 5);
}

#[tokio::test]
async fn the_size_of_a_reply_is_limited() {
    for size in [
        0,
        1,
        MAX_BYTES - 1,
        MAX_BYTES,
        MAX_BYTES + 1,
        10 * MAX_BYTES,
    ] {
        let (url, _) = server(vec![(200, "x".repeat(size)), (404, "x".repeat(size))]).await;
        let client = client(url);
        let call = Call::get("auth", &["ping"]);
        match client.exchange(&call, None, &mut never).await {
            Ok(body) => assert!(body.len() == size && size <= MAX_BYTES, "{size}"),
            Err(CallError::BadReply(text)) => {
                assert!(size > MAX_BYTES, "{size}");
                assert_eq!(text, "it is longer than 20 bytes");
            }
            Err(problem) => panic!("{problem}"),
        }
        // A refusal remains a refusal, however long its body is.
        match client.exchange(&call, None, &mut never).await {
            Err(CallError::Refused(refusal)) => assert_eq!(refusal.status.as_u16(), 404),
            other => panic!("{other:?}"),
        }
    }
}

#[tokio::test]
async fn a_server_that_is_silent_or_absent_is_no_answer() {
    let (url, _) = server(Vec::new()).await;
    let ping = |millis| Call::get("auth", &["ping"]).limit(Duration::from_millis(millis));
    for millis in [50, 500, 5_000, 60_000] {
        let problem = client(url.clone()).send(&ping(millis), None).await;
        let problem = problem.unwrap_err();
        assert!(problem.may_pass());
        assert_eq!(
            super::super::root_cause(&problem),
            "the time limit was exceeded"
        );
        // On a busy machine it may take long to connect.
        if !problem.is_unsent() {
            break;
        }
        assert!(millis < 60_000, "it is connected and counts as unsent");
    }

    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}", closed.local_addr().unwrap());
    drop(closed);
    let problem = client(url.parse().unwrap())
        .send(&ping(60_000), None)
        .await
        .unwrap_err();
    assert!(problem.is_unsent());
    let text = super::super::with_causes(&problem);
    assert!(
        text.starts_with("no answer: ") && text.contains("refused"),
        "{text}"
    );
}

#[test]
fn credentials_print_no_token() {
    let text = format!("{:?}", credentials());
    assert!(
        text.contains("me") && !text.contains("secret-token"),
        "{text}"
    );
}

#[test]
fn an_invalid_root_url_is_refused_with_its_reason() {
    for text in ["", "fleet.example.com", "ftp://x", "http://", "x y"] {
        let problem = parse_root_url(text).unwrap_err().to_string();
        assert!(problem.ends_with("is not a root URL"), "{problem}");
    }
    for (text, part) in [
        ("http://127.0.0.1:1/y/z", "it has the path /y/z"),
        ("http://127.0.0.1:1/?a=b", "it has the query ?a=b"),
        ("http://127.0.0.1:1#f", "it has the fragment #f"),
    ] {
        let problem = parse_root_url(text).unwrap_err().to_string();
        assert!(problem.ends_with(part), "{problem}");
    }
    let url = parse_root_url("http://127.0.0.1:8080/").unwrap();
    assert_eq!(client(url).root_url(), "http://127.0.0.1:8080");
}

#[test]
fn calls_go_below_the_path_of_a_server() {
    let call = Call::get("auth", &["a b"]).query("x", Some(1));
    for (base, expected) in [
        (
            "https://a.example",
            "https://a.example/api/auth/v1/a%20b?x=1",
        ),
        (
            "https://a.example/tc/",
            "https://a.example/tc/api/auth/v1/a%20b?x=1",
        ),
    ] {
        let client = client(parse_base_url(base).unwrap());
        assert_eq!(client.url(&call).as_str(), expected);
    }
}

#[test]
fn proxies_are_not_asked_about_this_machine() {
    for (url, expected) in [
        ("http://localhost:1", true),
        ("http://127.0.0.1", true),
        ("http://[::1]:8", true),
        ("https://example.com", false),
    ] {
        assert_eq!(is_loopback(&url.parse().unwrap()), expected, "{url}");
    }
}
