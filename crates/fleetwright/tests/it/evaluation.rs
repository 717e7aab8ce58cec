//! Requests of other programs to evaluate rules, over standard input.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};

use crate::world::{Done, Home};

const EVALUATE: [&str; 2] = ["rules", "evaluate"];

/// The part of a document between two texts, after this heading.
fn part(document: &str, heading: &str, start: &str, end: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let document = std::fs::read_to_string(path.join(document)).unwrap();
    let (_, section) = document.split_once(heading).unwrap();
    let (_, rest) = section.split_once(start).unwrap();
    rest.split_once(end).unwrap().0.to_owned()
}

fn documented(start: &str, end: &str) -> String {
    let heading = "## Evaluation from other programs";
    part("docs/rules.md", heading, start, end)
}

#[test]
fn the_documented_requests_have_the_documented_answers() {
    let requests = documented("<<'END'\n", "END\n");
    let done = Done::of_input(Home::new().command(&EVALUATE), &requests);
    assert_eq!((done.code, done.err.as_str()), (0, ""));
    assert_eq!(done.out, documented("```json\n", "```"));
}

#[test]
fn the_library_shows_the_answers_of_the_program() {
    let shown = |start, end| {
        let readme = "crates/rules/README.md";
        part(readme, "## From other languages", start, end)
    };
    let requests = shown("<<'END'\n", "END\n");
    let done = Done::of_input(Home::new().command(&EVALUATE), &requests);
    assert_eq!(done.code, 1);
    assert_eq!(done.out, shown("\nEND\n", "```"));
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
