//! Servers that are slow, close connections, or are not Fleetwright.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;

use serde_json::json;

use crate::world::{Done, Home};

const GOOD: &str = r#"{"providers": [{"providerId": "p", "providerType": "static"}]}"#;

/// Runs a command against a server with these replies, one for each connection; also returns the
/// number of connections.
fn against(answers: &[&str], arguments: &[&str]) -> (Done, usize) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let home = Home::new();
    let mut child = home.command(&[&["--root-url", &url][..], arguments].concat());
    let child = child
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    let mut asked = 0;
    for answer in answers {
        let (mut stream, _) = listener.accept().unwrap();
        asked += 1;
        let mut head = BufReader::new(stream.try_clone().unwrap()).lines();
        while !head.next().unwrap().unwrap().is_empty() {}
        stream.write_all(answer.as_bytes()).unwrap();
    }
    drop(listener);
    (Done::of(child.wait_with_output().unwrap()), asked)
}

fn answer(status: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/json\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    )
}

#[test]
fn a_busy_or_broken_server_is_retried() {
    let (busy, good) = (answer("503 Busy", "{}"), answer("200 OK", GOOD));
    let broken = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf";
    let (done, asked) = against(&[&busy, broken, &good], &["provider", "list"]);
    assert_eq!((done.code, asked), (0, 3), "{}", done.err);
    assert!(done.out.contains("static"), "{}", done.out);
}

#[test]
fn calls_that_may_have_executed_are_not_repeated() {
    let busy = answer("503 Busy", r#"{"message": "come back later"}"#);
    let (done, _) = against(&[&busy], &["client", "create", "me"]);
    assert_eq!(done.code, 1);
    assert!(done.err.contains("come back later"), "{}", done.err);
}

#[test]
fn another_kind_of_server_is_recognized() {
    let page = answer("200 OK", "<html>hello</html>");
    let (done, _) = against(&[&page], &["provider", "list"]);
    assert_eq!(done.code, 1);
    assert!(done.err.contains("is not JSON"), "{}", done.err);
    assert!(done.err.contains("root URL"), "{}", done.err);
    let moved = answer("302 Found", "");
    let (done, _) = against(&[&moved], &["provider", "list"]);
    assert!(done.err.contains("answered 302"), "{}", done.err);
}

#[test]
fn a_worker_is_shown_without_the_parts_that_are_not_for_the_caller_and_not_without_others() {
    let worker = json!({"workerPoolId": "demo/x", "workerGroup": "g", "workerId": "w"});
    let worker = answer("200 OK", &worker.to_string());
    let price = answer("200 OK", r#"{"price": 0.25}"#);
    let forbidden = answer("403 Forbidden", r#"{"message": "no"}"#);
    let missing = answer("404 Not Found", r#"{"message": "no"}"#);
    let broken = answer("400 Bad Request", r#"{"message": "broken disk"}"#);
    let show = ["worker", "show", "demo/x", "g", "w"];
    let (done, _) = against(&[&worker, &forbidden, &missing], &show);
    assert_eq!(done.code, 0, "{}", done.err);
    let (done, _) = against(&[&worker, &price, &forbidden], &show);
    assert!(done.code == 0 && done.out.contains("0.25"), "{}", done.out);
    for answers in [[&worker, &broken, &missing], [&worker, &price, &broken]] {
        let n_asked = if answers[1] == &broken { 2 } else { 3 };
        let answers: Vec<&str> = answers[..n_asked]
            .iter()
            .map(|text| text.as_str())
            .collect();
        let (done, _) = against(&answers, &show);
        assert_eq!(done.code, 1, "{}", done.out);
        assert!(done.err.contains("broken disk"), "{}", done.err);
    }
}
