//! A strategy service that answers as a test wants, and what the client makes of it.

use access::authenticate::{self, Client, Policy, check_payload};
use access::hawk::{self, RequestLine};
use domain::time::Clock as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;
use crate::tests::values::{TestClock, context_at};

const SECRET: &str = "a-secret-of-more-than-22-characters";

fn settings(url: &str) -> StrategySettings {
    StrategySettings {
        url: url.to_owned(),
        secret: Some(Secret::new(SECRET)),
        secret_file: None,
        time_limit_seconds: MAX_TIME_LIMIT_SECONDS,
        max_answer_bytes: 1_000,
    }
}

fn client(settings: StrategySettings) -> Result<StrategyClient, String> {
    let context = context_at("unused", &TestClock::new());
    let context = StrategyContext {
        schemas: context.schemas,
        keyring: context.keyring,
        root_url: context.root_url,
        clock: context.clock,
    };
    StrategyClient::new("brain".parse().unwrap(), settings, &context)
}

/// Reads a request: its head and its body.
async fn read_request(stream: &mut TcpStream) -> (String, Vec<u8>) {
    let mut bytes = Vec::new();
    let mut part = [0; 4_096];
    loop {
        let count = stream.read(&mut part).await.unwrap();
        bytes.extend_from_slice(&part[..count]);
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = header(head, "content-length").parse::<usize>().unwrap();
        if body.len() >= length {
            return (head.to_owned(), body.as_bytes().to_vec());
        }
    }
}

fn header<'a>(head: &'a str, name: &str) -> &'a str {
    let mut lines = head.lines().filter_map(|line| line.split_once(": "));
    let found = lines.find(|(key, _)| key.eq_ignore_ascii_case(name));
    found.map_or("", |(_, value)| value)
}

/// The result of one question to a service that sends these bytes and closes the connection;
/// without bytes, it keeps the connection open.
async fn ask_with(response: Option<String>) -> Result<Proposal, AskError> {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut settings = settings(&format!("http://127.0.0.1:{port}/x"));
    if response.is_none() {
        settings.time_limit_seconds = 1;
    }
    let client = client(settings).unwrap();
    let served = async {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (head, body) = read_request(&mut stream).await;
        check_signature(&head, &body, port);
        match response {
            None => std::future::pending().await,
            Some(response) => stream.write_all(response.as_bytes()).await.unwrap(),
        }
    };
    let asked = client.ask(json!({"workerPoolId": "a/b"}));
    tokio::pin!(asked, served);
    tokio::select! {
        answer = &mut asked => answer,
        () = &mut served => asked.await,
    }
}

fn check_signature(head: &str, body: &[u8], port: u16) {
    let line = RequestLine {
        method: "POST",
        resource: "/x/v1/plan",
        host: "127.0.0.1",
        port,
    };
    let sender = Client {
        client_id: "brain".to_owned(),
        access_token: Secret::new(SECRET),
        scopes: Vec::new(),
        expires_ms: i64::MAX,
        disabled: false,
    };
    let now_ms = TestClock::new().now().as_millis();
    let expand = |_: &[String]| Ok(Arc::default());
    let credentials = hawk::read(&line, Some(header(head, "authorization"))).unwrap();
    let policy = Policy::default();
    let verified =
        authenticate::verify(&credentials, &line, Some(&sender), &expand, now_ms, &policy);
    let hash = verified.unwrap().payload_hash;
    check_payload(hash.as_deref(), header(head, "content-type"), body).unwrap();
    let body: Value = serde_json::from_slice(body).unwrap();
    assert_eq!(
        (&body["version"], &body["strategy"]),
        (&json!(1), &json!("brain"))
    );
}

fn http(status: &str, body: &str) -> Option<String> {
    let length = body.len();
    Some(format!(
        "HTTP/1.1 {status}\r\ncontent-length: {length}\r\nlocation: /y\r\nconnection: close\r\n\r\n{body}"
    ))
}

async fn answered(body: &Value) -> Result<Proposal, AskError> {
    ask_with(http("200 OK", &body.to_string())).await
}

#[tokio::test]
async fn a_valid_answer_becomes_a_proposal() {
    let answer = json!({"version": 1, "launches": [{"launchConfigId": "a", "machines": 3.0}],
        "stop": [{"workerGroup": "g", "workerId": "w"}], "reasons": ["a\npush"],
        "expires": "2026-09-21T14:13:30Z"});
    let proposal = answered(&answer).await.unwrap();
    assert_eq!(proposal.launches[0].machines, 3);
    assert_eq!(proposal.stop[0].worker_id.as_str(), "w");
    assert_eq!(proposal.reasons, ["a push"]);
    assert_eq!(
        proposal.expires.unwrap().to_string(),
        "2026-09-21T14:13:30.000Z"
    );
    let nothing = answered(&json!({"version": 1})).await;
    assert_eq!(nothing, Ok(Proposal::default()));
}

#[tokio::test]
async fn a_wrong_answer_is_refused_with_the_field_that_is_wrong() {
    let launch = |machines: Value| json!({"version": 1, "launches": [{"launchConfigId": "a", "machines": machines}]});
    let many = vec![json!({"launchConfigId": "a", "machines": 1}); 1_001];
    for (answer, wanted) in [
        (launch(json!(-1)), "data/launches/0/machines must be >= 0"),
        (
            launch(json!(1.5)),
            "data/launches/0/machines must be integer",
        ),
        (
            launch(json!(1e300)),
            "data/launches/0/machines must be <= 1000000000",
        ),
        (
            launch(json!(1_000_000_001)),
            "data/launches/0/machines must be <= 1000000000",
        ),
        (
            launch(json!("NaN")),
            "data/launches/0/machines must be integer",
        ),
        (
            launch(Value::Null),
            "data/launches/0/machines must be integer",
        ),
        (
            json!({"version": 1, "launches": {}}),
            "data/launches must be array",
        ),
        (
            json!({"version": 1, "lunches": []}),
            "data must NOT have additional properties",
        ),
        (
            json!({"version": 1, "stop": [{"workerGroup": "g"}]}),
            "data/stop/0 must have required",
        ),
        (
            json!({"version": 1, "stop": [{"workerGroup": "g", "workerId": "a b"}]}),
            "data/stop/0/workerId must match pattern",
        ),
        (
            json!({"version": 1, "reasons": ["x".repeat(501)]}),
            "data/reasons/0 must NOT have more",
        ),
        (
            json!({"version": 1, "expires": "soon"}),
            "data/expires must match format",
        ),
        (
            json!({"version": 2}),
            "has the version 2, and this program reads version 1",
        ),
        (
            json!({}),
            "has the version null, and this program reads version 1",
        ),
        (json!([]), "its answer is wrong: data must be object"),
        (
            json!({"version": 1, "launches": many}),
            "is longer than 1000 bytes",
        ),
    ] {
        match answered(&answer).await {
            Err(AskError::Invalid(why)) => {
                assert!(why.contains(wanted), "{why}");
                assert!(why.chars().count() <= MAX_TEXT_CHARS + 1, "{why}");
            }
            other => panic!("{wanted}: {other:?}"),
        }
    }
}

#[tokio::test]
async fn a_body_that_is_no_json_is_refused() {
    for body in [
        "",
        "<h1>Oops</h1>",
        "{\"version\": NaN}",
        "{\"version\": 1",
        "nul",
    ] {
        match ask_with(http("200 OK", body)).await {
            Err(AskError::Invalid(why)) => {
                assert!(why.starts_with("its answer is not JSON: "), "{why}");
            }
            other => panic!("{body}: {other:?}"),
        }
    }
    let deep = format!("{}1{}", "[".repeat(400), "]".repeat(400));
    let asked = ask_with(http("200 OK", &deep)).await;
    assert!(matches!(asked, Err(AskError::Invalid(_))), "{asked:?}");
}

#[tokio::test]
async fn an_answer_may_have_the_maximum_size_and_not_a_byte_more() {
    let padded = |length: usize| format!("{:<length$}", "{\"version\": 1}");
    for (length, fits) in [(999, true), (1_000, true), (1_001, false), (10_000, false)] {
        let asked = ask_with(http("200 OK", &padded(length))).await;
        assert_eq!(asked.is_ok(), fits, "{length}: {asked:?}");
    }
}

#[tokio::test]
async fn a_service_that_does_not_work_is_told_from_a_wrong_answer() {
    for (response, wanted) in [
        (None, "no answer within 1 s"),
        (Some(String::new()), "no response: "),
        (
            http("500 Oops", "{\"version\": 1}"),
            "it answered with the status 500",
        ),
        (
            http("302 Found", "{\"version\": 1}"),
            "it answered with the status 302",
        ),
        (http("401 No", ""), "it answered with the status 401"),
        (
            Some("HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{".to_owned()),
            "no response: ",
        ),
    ] {
        match ask_with(response).await {
            Err(AskError::Failed(why)) => assert!(why.starts_with(wanted), "{why}"),
            other => panic!("{wanted}: {other:?}"),
        }
    }
    let refused = client(settings("http://127.0.0.1:1/")).unwrap();
    let why = refused.ask(json!({})).await.unwrap_err().to_string();
    assert!(why.contains("Connection refused"), "{why}");
}

#[test]
fn invalid_settings_are_named() {
    let with = |change: fn(&mut StrategySettings)| {
        let mut settings = settings("http://127.0.0.1:1");
        change(&mut settings);
        let built = client(settings.clone()).err();
        let problem = settings.problem();
        problem.map(|(key, text)| format!("{key} {text}")).or(built)
    };
    assert_eq!(with(|_| ()), None);
    let wrong = |change: fn(&mut StrategySettings)| with(change).unwrap();
    assert!(wrong(|it| it.url = "ftp://x".to_owned()).starts_with("strategies.brain.url must"));
    assert!(wrong(|it| it.secret = None).starts_with("set either strategies.brain.secret or"));
    assert!(wrong(|it| it.secret = Some(Secret::new("x"))).contains("shorter than 22"));
    for seconds in [0, MAX_TIME_LIMIT_SECONDS + 1, u64::MAX] {
        let mut settings = settings("http://x");
        settings.time_limit_seconds = seconds;
        assert_eq!(settings.problem().unwrap().0, "time_limit_seconds");
    }
    for bytes in [0, MAX_MAX_ANSWER_BYTES + 1] {
        let mut settings = settings("http://x");
        settings.max_answer_bytes = bytes;
        assert_eq!(settings.problem().unwrap().0, "max_answer_bytes");
    }
}
