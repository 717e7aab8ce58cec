//! Requests for builds of images on the command line.

use std::io::{BufRead as _, BufReader, Read as _};
use std::process::Stdio;

use serde_json::json;

use crate::image_builds::{MAKE, built, create, start, status_when};

#[test]
fn a_script_that_creates_an_image_and_builds_it_builds_once() {
    let server = start();
    let gate = server.home.path("gate");
    let wait = format!("until [ -e '{}' ]; do sleep 0.05; done", gate.display());
    create(&server, &format!("{wait}; echo built; {MAKE}"));
    // At once, as a script does: the image may not be in the tree yet, and its build not begun.
    let mut following = server
        .command(&["image", "build", "tiny", "--follow"])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let notes = BufReader::new(following.stderr.take().unwrap());
    let mut notes = notes.lines().map(Result::unwrap);
    assert!(notes.any(|note| note == "build 1 of image tiny:"));
    let said = server.run(&["image", "build", "tiny"]);
    let text = "build 1 of image tiny runs already: it is the first of this definition";
    assert_eq!(said.out.trim(), text);
    std::fs::write(&gate, "").unwrap();
    assert!(notes.any(|note| note == "build 1 of image tiny is ready"));
    let mut log = String::new();
    following
        .stdout
        .take()
        .unwrap()
        .read_to_string(&mut log)
        .unwrap();
    assert!(log.contains("built\n"), "{log}");
    assert_eq!(following.wait().unwrap().code(), Some(0));
    let status = built(&server, 1);
    assert_eq!(status["builds"].as_array().unwrap().len(), 1, "{status}");
    assert!(status.get("request").is_none(), "{status}");
}

#[test]
fn who_asks_for_a_build_that_cannot_begin_reads_why() {
    let server = start();
    create(&server, MAKE);
    built(&server, 1);
    server.ok(&["image", "pause", "tiny", "--reason", "holidays"]);
    status_when(&server, "it is paused", |status| {
        status["state"] == "paused"
    });
    let note = "no build yet: paused by static/owner: holidays";
    let asked = server.run(&["image", "build", "tiny"]);
    assert_eq!((asked.code, asked.err.trim()), (0, note));
    let asked = server.json(&["image", "build", "tiny"]);
    assert_eq!(
        asked,
        json!({"newerThan": 1, "waits": "paused by static/owner: holidays"})
    );
    let mut following = server
        .command(&["image", "build", "tiny", "--follow"])
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let notes = BufReader::new(following.stderr.take().unwrap());
    let mut notes = notes.lines().map(Result::unwrap);
    assert_eq!(notes.next().as_deref(), Some(note));
    server.ok(&["image", "resume", "tiny"]);
    assert!(notes.any(|note| note == "build 2 of image tiny is ready"));
    assert_eq!(following.wait().unwrap().code(), Some(0));
    built(&server, 2);
}

#[test]
fn the_history_says_why_and_about_which_build() {
    let server = start();
    create(&server, MAKE);
    built(&server, 1);
    server.ok(&["image", "pause", "tiny", "--reason", "holidays"]);
    let history = server.ok(&["audit", "show", "image", "tiny"]);
    let has_line = |parts: &[&str]| {
        let mut lines = history.lines();
        lines.any(|line| parts.iter().all(|part| line.contains(part)))
    };
    assert!(
        has_line(&["static/owner", "paused", "holidays"]),
        "{history}"
    );
    // A decision of the program has its build and its reason, too.
    let promoted = [
        "fleetwright",
        "build-promoted",
        " 1 ",
        "no other build can be used",
    ];
    assert!(has_line(&promoted), "{history}");
}
