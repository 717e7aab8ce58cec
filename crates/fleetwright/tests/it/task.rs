//! Commands on tasks: create, follow, show, cancel.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;

use serde_json::{Value, json};

use crate::queue_calls::wait_for;
use crate::worker_runs::{IRON, create_static_pool, work};
use crate::world::Server;

/// A pool without workers.
const EMPTY: &str = "demo/empty";
const NO_TASK: &str = "AAAAAAAAQACAAAAAAAAAAA";

fn create(server: &Server, arguments: &[&str]) -> String {
    let create = ["--json", "task", "create", "--force", "--pool"];
    let text = server.ok(&[&create[..], arguments].concat());
    let reply: Value = serde_json::from_str(&text).unwrap();
    reply["status"]["taskId"].as_str().unwrap().to_owned()
}

#[test]
fn a_task_is_run_and_its_log_is_shown_as_it_grows() {
    let server = Server::start();
    create_static_pool(&server);
    let _worker = work(&server, &[]);
    let script = "echo $WORD; read go < fifo";
    let script = format!("mkfifo fifo; echo $PWD; {script}; echo bye");
    let mut watching = server
        .command(&[
            "task",
            "create",
            "--pool",
            IRON,
            "--log",
            "--env",
            "WORD=hello",
        ])
        .args(["--max-run-time", "2m", "--", "sh", "-c", &script])
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let lines = BufReader::new(watching.stdout.take().unwrap()).lines();
    let (mut folder, mut seen) = (String::new(), Vec::new());
    for line in lines {
        let line = line.unwrap();
        if line.starts_with('/') {
            folder.clone_from(&line);
        }
        if line == "hello" {
            // The task waits for us, so this line came while it was running.
            std::fs::write(format!("{folder}/fifo"), "go\n").unwrap();
        }
        seen.push(line);
    }
    assert!(seen.contains(&"bye".to_owned()), "{seen:?}");
    assert_eq!(watching.wait().unwrap().code(), Some(0));
}

#[test]
fn a_followed_task_says_why_it_waits_and_each_change_of_it() {
    let server = Server::start();
    let create = [
        "task", "create", "--force", "--pool", IRON, "--log", "--", "true",
    ];
    let mut watching = server
        .command(&create)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(watching.stderr.take().unwrap()).lines();
    let created = lines.next().unwrap().unwrap();
    let id = created.split(' ').nth(2).unwrap().to_owned();
    let mut next_cause = || {
        let mut causes = lines.by_ref().map(Result::unwrap);
        causes
            .find(|line| line.starts_with("it waits because "))
            .unwrap()
    };
    let first = next_cause();
    assert!(first.contains("pool"), "{first}");
    create_static_pool(&server);
    let second = next_cause();
    assert_ne!(first, second);
    server.ok(&["task", "cancel", "--yes", &id]);
    let rest: Vec<String> = lines.map(Result::unwrap).collect();
    assert!(
        !rest.iter().any(|line| line.contains("show its log")),
        "{rest:?}"
    );
    assert_eq!(watching.wait().unwrap().code(), Some(1));
}

#[test]
fn the_exit_code_tells_whether_the_task_completed() {
    let server = Server::start();
    create_static_pool(&server);
    let _worker = work(&server, &[]);
    // The deadline ends the wait if there is no worker.
    let create = [
        "task",
        "create",
        "--pool",
        IRON,
        "--deadline",
        "50s",
        "--wait",
    ];
    let completed = server.run(&[&create[..], &["--json", "--", "true"]].concat());
    assert_eq!(completed.code, 0, "{}", completed.err);
    assert!(
        completed.out.contains("\"state\": \"completed\""),
        "{}",
        completed.out
    );
    let failed = server.run(&[&create[..], &["--", "sh", "-c", "echo no luck; exit 3"]].concat());
    assert_eq!(
        (failed.code, failed.out.as_str()),
        (1, ""),
        "{}",
        failed.err
    );
    let hint = failed.err.lines().last().unwrap();
    let id = hint
        .split([' ', '`'])
        .find(|word| word.len() == 22)
        .unwrap();
    let log = server.ok(&["task", "log", id]);
    assert!(log.contains("no luck\n"), "{log}");
    assert_eq!(server.ok(&["task", "log", "--follow", id]), log);
    assert_eq!(server.ok(&["task", "log", "--run", "0", id]), log);
    let shown = server.ok(&["task", "status", id]);
    for part in ["State         failed", "demo/iron", "rack", "w1"] {
        assert!(shown.contains(part), "{part}: {shown}");
    }
}

#[test]
fn flags_define_the_task() {
    let server = Server::start();
    let first = create(&server, &[EMPTY, "--", "true"]);
    let arguments = [
        &[
            EMPTY,
            "--name",
            "build",
            "--description",
            "why",
            "--owner",
            "me@example.com",
        ][..],
        &[
            "--deadline",
            "2h",
            "--priority",
            "high",
            "--after",
            &first,
            "--task-group",
            &first,
        ],
        &[
            "--scope",
            "a:b",
            "--retries",
            "1",
            "--max-run-time",
            "90s",
            "--env",
            "A=b=c",
        ],
        &["--", "make", "-j", "all"],
    ]
    .concat();
    let id = create(&server, &arguments);
    let (status, text) = server.call("GET", &format!("/api/queue/v1/task/{id}"), None);
    assert_eq!(status, 200, "{text}");
    let task: Value = serde_json::from_str(&text).unwrap();
    let payload = json!({"command": ["make", "-j", "all"], "env": {"A": "b=c"}, "maxRunTime": 90});
    assert_eq!(task["payload"], payload);
    assert_eq!(task["metadata"]["name"], "build");
    assert_eq!(task["metadata"]["owner"], "me@example.com");
    assert_eq!(
        (&task["priority"], &task["retries"]),
        (&json!("high"), &json!(1))
    );
    assert_eq!(task["dependencies"], json!([first]));
    assert_eq!(task["scopes"], json!(["a:b"]));
    let group = server.json(&["task", "list", "--task-group", &first]);
    let mut states: Vec<_> = group["tasks"]
        .as_array()
        .unwrap()
        .iter()
        .map(|task| &task["state"])
        .collect();
    states.sort_by_key(|state| state.as_str());
    assert_eq!(states, ["pending", "unscheduled"]);
    let whole = create(&server, &[EMPTY, "--payload", "{\"image\": \"x\"}"]);
    let (_, text) = server.call("GET", &format!("/api/queue/v1/task/{whole}"), None);
    let task: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(task["payload"], json!({"image": "x"}));
}

#[test]
fn pending_tasks_are_listed_and_can_be_cancelled() {
    let server = Server::start();
    let created = server.run(&[
        "task", "create", "--force", "--pool", EMPTY, "--", "echo", "a task",
    ]);
    assert_eq!(created.code, 0, "{}", created.err);
    let id = created.out.split(' ').nth(2).unwrap().to_owned();
    assert!(
        created
            .err
            .contains(&format!("fleetwright task log --follow {id}")),
        "{}",
        created.err
    );
    let list = server.ok(&["task", "list", "--pool", EMPTY]);
    assert!(list.contains(&id) && list.contains("echo a task"), "{list}");
    let queues = server.json(&["queue", "list"]);
    let queue = &queues["taskQueues"][0];
    assert_eq!(
        (&queue["taskQueueId"], &queue["pendingTasks"]),
        (&json!(EMPTY), &json!(1))
    );
    assert!(server.ok(&["queue", "list"]).contains(EMPTY));
    let refused = server.run(&["task", "cancel", &id]);
    assert_eq!(refused.code, 2, "nobody was asked: {}", refused.err);
    let waiting = server
        .command(&["task", "log", "--follow", &id])
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
    let mut waiting = waiting.unwrap();
    assert_eq!(
        server.ok(&["task", "cancel", &id, "--yes"]),
        format!("cancelled task {id}\n")
    );
    let code = wait_for("the follower ends", || waiting.try_wait().unwrap());
    assert_eq!(code.code(), Some(0));
    let status = server.json(&["task", "status", &id]);
    assert_eq!(status["state"], "exception");
    assert!(
        server.json(&["task", "list", "--pool", EMPTY])["tasks"]
            .as_array()
            .unwrap()
            .is_empty()
    );
    let again = server.ok(&["task", "rerun", &id]);
    assert_eq!(again, format!("task {id} is pending\n"));
    server.ok(&["task", "priority", &id, "high"]);
    let status = server.json(&["task", "status", &id]);
    assert_eq!(status["priority"], "high");
    assert_eq!(server.run(&["task", "priority", &id, "urgent"]).code, 2);
}

#[test]
fn a_misspelt_pool_is_refused_with_a_suggestion() {
    let server = Server::start();
    let create = ["task", "create", "--pool", "local/defualt"];
    for more in [&["--log"][..], &["--json"], &[]] {
        let refused = server.run(&[&create[..], more, &["--", "true"]].concat());
        assert_eq!(refused.code, 3, "{}", refused.err);
        let meant = "pool local/defualt does not exist, did you mean \"local/default\"?";
        assert!(refused.err.contains(meant), "{}", refused.err);
        assert!(refused.err.contains("--force"), "{}", refused.err);
    }
    assert_eq!(server.json(&["queue", "list"])["taskQueues"], json!([]));
    server.ok(&[&create[..], &["--force", "--", "true"]].concat());
}

#[test]
fn an_interrupt_reports_that_the_task_continues_and_how_to_cancel_it() {
    let server = Server::start();
    let mut waiting = server
        .command(&[
            "task", "create", "--force", "--pool", EMPTY, "--wait", "--", "true",
        ])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(waiting.stderr.take().unwrap()).lines();
    let created = lines.next().unwrap().unwrap();
    let id = created.split(' ').nth(2).unwrap().to_owned();
    let sent = std::process::Command::new("kill")
        .args(["-INT", &waiting.id().to_string()])
        .status();
    assert!(sent.unwrap().success());
    let said: Vec<String> = lines.map(|line| line.unwrap()).collect();
    assert_eq!(waiting.wait().unwrap().code(), Some(130));
    let said = said.join("\n");
    assert!(said.contains(&format!("task {id} continues")), "{said}");
    assert!(
        said.contains(&format!("fleetwright task cancel {id}")),
        "{said}"
    );
    assert_eq!(server.json(&["task", "status", &id])["state"], "pending");
}

#[test]
fn impossible_requests_have_their_exit_codes() {
    let server = Server::start();
    let create = ["task", "create", "--force", "--pool", EMPTY];
    for (arguments, code, part) in [
        (&[&create[..]].concat()[..], 2, "COMMAND"),
        (
            &[&create[..], &["--max-run-time", "x", "--", "true"]].concat(),
            2,
            "--max-run-time",
        ),
        (
            &[&create[..], &["--deadline", "x", "--", "true"]].concat(),
            2,
            "--deadline",
        ),
        (
            &[&create[..], &["--priority", "x", "--", "true"]].concat(),
            2,
            "priority",
        ),
        (
            &[&create[..], &["--env", "=x", "--", "true"]].concat(),
            2,
            "NAME=VALUE",
        ),
        (&[&create[..], &["--payload", "{"]].concat(), 2, "--payload"),
        (
            &[&create[..], &["--json", "--log", "--", "true"]].concat(),
            2,
            "--json",
        ),
        (
            &[&create[..], &["--after", NO_TASK, "--", "true"]].concat(),
            1,
            NO_TASK,
        ),
        (&["task", "status", NO_TASK], 3, NO_TASK),
        (&["task", "log", NO_TASK], 3, NO_TASK),
        (&["task", "log", "--run", "7", NO_TASK], 3, NO_TASK),
        (&["task", "cancel", "--yes", NO_TASK], 3, NO_TASK),
        (&["task", "status", "42"], 2, "22 letters"),
        (
            &["task", "list", "--state", "unscheduled"],
            2,
            "--task-group",
        ),
    ] {
        let done = server.run(arguments);
        assert_eq!(done.code, code, "{arguments:?}: {}", done.err);
        assert!(done.err.contains(part), "{arguments:?}: {}", done.err);
    }
    let unscheduled = create_after_pending(&server);
    let done = server.run(&["task", "log", &unscheduled]);
    assert_eq!(done.code, 1);
    assert!(done.err.contains("it is not scheduled yet"), "{}", done.err);
}

fn create_after_pending(server: &Server) -> String {
    let first = create(server, &[EMPTY, "--", "true"]);
    create(server, &[EMPTY, "--after", &first, "--", "true"])
}
