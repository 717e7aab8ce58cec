//! Requests of other programs to evaluate rules, over standard input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{Done, Home};

const EVALUATE: [&str; 2] = ["rules", "evaluate"];

/// The part of docs/rules.md between two texts, after this heading.
fn documented(start: &str, end: &str) -> String {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rules.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page
        .split_once("## Evaluation from other programs")
        .unwrap();
    let (_, rest) = section.split_once(start).unwrap();
    rest.split_once(end).unwrap().0.to_owned()
}

#[test]
fn the_documented_requests_have_the_documented_answers() {
    let requests = documented("<<'END'\n", "END\n");
    let done = Done::of_input(Home::new().command(&EVALUATE), &requests);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    assert_eq!(done.out, documented("```json\n", "```"));
}

#[test]
fn an_invalid_request_has_the_documented_errors_and_exit_code() {
    let invalid = json!({
        "rules": [{"ruleId": "all", "values": {}, "conditions": {"zone": 7}}],
    });
    let requests = format!("\n\n{invalid}\n{{\"rules\": []}}\n");
    let done = Done::of_input(Home::new().command(&EVALUATE), &requests);
    assert_eq!(
        (done.code, done.err.as_str()),
        (1, "error: 1 request had errors, see their answers\n")
    );
    let (first, second) = done.out.split_once('\n').unwrap();
    let error = documented("usual. After", "\n```\n\n| Key of an error");
    assert!(error.ends_with(&format!("```json\n{first}")), "{first}");
    let second: Value = serde_json::from_str(second).unwrap();
    assert_eq!(
        (&second["line"], &second["values"]),
        (&json!(4), &json!({}))
    );
}

#[test]
fn a_request_is_answered_before_the_next_one_is_written() {
    let mut command = Home::new().command(&EVALUATE);
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let mut requests = child.stdin.take().unwrap();
    let mut answers = BufReader::new(child.stdout.take().unwrap()).lines();
    for (request, expected) in [
        (
            r#"{"rules": [{"ruleId": "r", "values": {"x": 1}}]}"#,
            json!({"x": 1}),
        ),
        (r#"{"conditions": {"zone": "z"}}"#, json!({"x": 1})),
        (r#"{"rules": []}"#, json!({})),
    ] {
        writeln!(requests, "{request}").unwrap();
        let answer = answers.next().unwrap().unwrap();
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["values"], expected);
    }
    drop(requests);
    assert!(child.wait().unwrap().success());
}
