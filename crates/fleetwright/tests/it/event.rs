//! `event tail`: past and new events.

use std::collections::HashSet;
use std::io::{BufRead as _, BufReader, Lines};
use std::net::TcpListener;
use std::process::{Child, ChildStdout, Stdio};

use serde_json::Value;

use crate::world::{Home, Server};

/// A running command, and its lines.
struct Following {
    process: Child,
    lines: Lines<BufReader<ChildStdout>>,
    seen: HashSet<String>,
}

impl Following {
    fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut process = server
            .command(arguments)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let lines = BufReader::new(process.stdout.take().unwrap()).lines();
        Self {
            process,
            lines,
            seen: HashSet::new(),
        }
    }

    /// Reads lines up to the first with this text; none may be repeated.
    fn until(&mut self, word: &str) {
        loop {
            let line = self.lines.next().unwrap().unwrap();
            assert!(self.seen.insert(line.clone()), "twice: {line}");
            if line.ends_with(word) {
                return;
            }
        }
    }
}

impl Drop for Following {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

fn create_pool(server: &Server, pool: &str) {
    server.ok(&[
        "pool",
        "create",
        pool,
        "--provider",
        "static",
        "--owner",
        "me@example.com",
    ]);
}

#[test]
fn events_are_listed_as_text_and_json() {
    let server = Server::start();
    create_pool(&server, "demo/one");
    create_pool(&server, "demo/two");
    let made = ["--exchange", "worker-pool-created"];
    let listed = || server.ok(&[&["event", "tail", "--pool", "demo/one"][..], &made].concat());
    // An event is published a moment after its change.
    while listed().is_empty() {}
    let text = listed();
    let mut words = text.split_whitespace();
    let [day, clock] = [(); 2].map(|()| words.next().unwrap());
    assert_eq!(
        (day.len(), clock.len(), &clock[2..3]),
        (10, 9, ":"),
        "{text}"
    );
    assert_eq!(
        words.collect::<Vec<_>>(),
        ["worker-pool-created", "demo/one"]
    );

    let lines = server.ok(&[
        "event",
        "tail",
        "--exchange",
        "worker-pool-created",
        "--json",
    ]);
    let pools: Vec<Value> = lines
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap()["payload"]["workerPoolId"].clone())
        .collect();
    assert!(pools.contains(&"demo/one".into()), "{lines}");
    assert_eq!(
        server.ok(&["event", "tail", "--exchange", "worker-running"]),
        ""
    );
    assert_eq!(server.ok(&["event", "tail", "--since", "0s"]), "");
}

#[test]
fn a_follower_reconnects_after_a_restart_and_misses_nothing() {
    let listen = {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        listener.local_addr().unwrap().to_string()
    };
    let server = Server::start_in(Home::new(), &["--listen", &listen]);
    let only = "worker-pool-created";
    let arguments = [
        "event",
        "tail",
        "--follow",
        // The follower may begin to look a little after the pool was made.
        "--since",
        "1m",
        "--exchange",
        only,
    ];
    let mut following = Following::start(&server, &arguments);
    create_pool(&server, "demo/one");
    following.until("demo/one");
    let (_, home) = server.terminate();
    let server = Server::start_in(home, &["--listen", &listen]);
    for pool in ["demo/two", "demo/three"] {
        create_pool(&server, pool);
        following.until(pool);
    }
}

#[test]
fn a_failed_stream_has_its_exit_code() {
    let server = Server::start();
    let stranger = server
        .command(&["event", "tail"])
        .env_remove("TASKCLUSTER_CLIENT_ID")
        .env_remove("TASKCLUSTER_ACCESS_TOKEN")
        .output()
        .unwrap();
    assert_eq!(stranger.status.code(), Some(4));
    for wrong in [["--since", "yesterday"], ["--pool", "nothing"]] {
        let done = server.run(&["event", "tail", wrong[0], wrong[1]]);
        assert_eq!(done.code, 2, "{wrong:?}: {}", done.err);
    }
    let done = server.run(&["event", "tail", "--task", "no-task"]);
    assert_eq!(done.code, 1, "{}", done.err);
    assert!(done.err.contains("taskId"), "{}", done.err);
    let nobody = server.run(&["event", "tail", "--root-url", "http://127.0.0.1:1"]);
    assert_eq!(nobody.code, 6, "{}", nobody.err);
}
