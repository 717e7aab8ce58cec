//! `worker run` against a server: both as processes, tasks as well.

use std::fs::File;
use std::process::{Child, Command, Stdio};

use serde_json::{Value, json};

use crate::queue_calls::wait_for;
use crate::world::{Home, Server};

/// A pool of static workers.
pub(crate) const IRON: &str = "demo/iron";
/// A pool of local worker processes.
const LOCAL: &str = "demo/local";
/// Short claims, so that tests of expired claims are fast.
const CONFIG: &str = "[queue]\nclaim_seconds = 30\n[fleet]\nround_seconds = 1\nscan_seconds = 1\n";

/// A worker process, killed with its tasks when it is dropped.
pub(crate) struct Running {
    process: Child,
    log: String,
}

fn start() -> Server {
    let home = Home::new();
    let file = home.write("c.toml", CONFIG);
    Server::start_in(home, &["--config", &file])
}

fn create_pool(server: &Server, pool: &str, provider: &str, config: &Value) {
    let config = config.to_string();
    let owner = ["--provider", provider, "--owner", "o@example.com"];
    server.ok(&[&["pool", "create", pool, "--config", &config][..], &owner].concat());
}

/// A pool of at most one worker with this capacity.
fn create_local_pool(server: &Server, capacity: u32, worker_config: &Value) {
    let launch_config = json!({
        "workerConfig": worker_config,
        "workerManager": {"capacityPerInstance": capacity},
    });
    let config = json!({
        "minCapacity": 0,
        "maxCapacity": capacity,
        "launchConfigs": [launch_config],
    });
    create_pool(server, LOCAL, "local", &config);
}

/// Creates a worker with a known secret.
pub(crate) fn create_static_pool(server: &Server) {
    create_pool(server, IRON, "static", &json!({"workerConfig": {}}));
    let file = server.home.write("secret", &"s".repeat(44));
    server.ok(&[
        "worker",
        "create",
        IRON,
        "rack",
        "w1",
        "--secret-file",
        &file,
    ]);
}

fn arguments(server: &Server) -> Vec<String> {
    let work = server.home.path("work").display().to_string();
    let secret = server.home.path("secret").display().to_string();
    let root_url = server.root_url();
    let who = ["--pool", IRON, "--group", "rack", "--id", "w1"];
    [
        &[
            "worker",
            "run",
            "--provider",
            "static",
            "--root-url",
            &root_url,
        ][..],
        &who,
        &["--secret-file", &secret, "--work-dir", &work],
    ]
    .concat()
    .into_iter()
    .map(str::to_owned)
    .collect()
}

/// Starts the static worker.
pub(crate) fn work(server: &Server, more: &[&str]) -> Running {
    let log = server.home.path("worker-log");
    let arguments = arguments(server);
    let arguments: Vec<_> = arguments
        .iter()
        .map(String::as_str)
        .chain(more.iter().copied())
        .collect();
    let process = server
        .home
        .command(&arguments)
        .stdout(Stdio::null())
        .stderr(
            File::options()
                .append(true)
                .create(true)
                .open(&log)
                .unwrap(),
        )
        .spawn()
        .unwrap();
    Running {
        process,
        log: log.display().to_string(),
    }
}

impl Running {
    /// Waits until the worker stops by itself.
    fn ended(mut self) -> (Option<i32>, String) {
        let code = wait_for("the worker ends", || self.process.try_wait().unwrap());
        (code.code(), std::fs::read_to_string(&self.log).unwrap())
    }

    fn end(self) {
        // Until we wait for it, no other process gets its id.
        signal(&self.process.id().to_string(), "-TERM");
        let (code, log) = self.ended();
        assert_eq!(code, Some(0), "{log}");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _gone_already = self.process.kill();
        let _gone_already = self.process.wait();
    }
}

fn signal(id: &str, signal: &str) {
    let sent = Command::new("kill").args([signal, id]).status().unwrap();
    assert!(sent.success());
}

/// The process of the one worker that the server started.
fn launched_worker(server: &Server) -> String {
    let folder = server.home.path("data").display().to_string();
    let is_ours = |id: &String| {
        let words = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        words.contains("--identity") && words.contains(&folder)
    };
    let entries = std::fs::read_dir("/proc").unwrap();
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut ours = names
        .filter(|name| name.parse::<u32>().is_ok())
        .filter(is_ours);
    let worker = ours.next().unwrap();
    assert_eq!(ours.next(), None);
    worker
}

/// A task that runs forever in its first run and completes in its second; and its process.
fn until_a_task_runs_once(server: &Server) -> (String, String) {
    let flag = server.home.path("second").display().to_string();
    let command = format!("[ -e {flag} ] || {{ touch {flag}; echo $$; sleep 600 & wait; }}");
    let task = server.create_task(LOCAL, &json!({"command": command}));
    let id = wait_for("it runs", || id_in(&server.log_now(&task, 0)));
    (task, id)
}

fn is_running(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// The process id that a task wrote to its log.
fn id_in(log: &str) -> Option<String> {
    let line = log.lines().find(|line| line.parse::<u32>().is_ok());
    line.map(str::to_owned)
}

fn end_of(run: &Value) -> (&str, &str) {
    let of = |key: &str| run[key].as_str().unwrap_or_default();
    (of("state"), of("reasonResolved"))
}

#[test]
fn tasks_complete_fail_are_refused_or_time_out_each_with_its_log() {
    let server = start();
    create_local_pool(&server, 1, &json!({}));
    for (payload, end, part) in [
        (
            json!({"command": ["sh", "-c", "echo hello; echo oops >&2"]}),
            ("completed", "completed"),
            "\nhello\noops\n[fleetwright] exit code 0 after",
        ),
        (
            json!({"command": "exit 3"}),
            ("failed", "failed"),
            "[fleetwright] exit code 3 after",
        ),
        (
            json!({"command": ["x"], "image": "y"}),
            ("exception", "malformed-payload"),
            "[fleetwright] payload.image is unknown",
        ),
        (
            json!({"command": "sleep 60", "maxRunTime": 1}),
            ("failed", "failed"),
            "it ran longer than maxRunTime (1 s)",
        ),
        (
            // Longer than the claim's first renewal.
            json!({"command": "sleep 11"}),
            ("completed", "completed"),
            "exit code 0 after 11.",
        ),
    ] {
        let task = server.create_task(LOCAL, &payload);
        let log = server.whole_log(&task, 0);
        assert!(log.contains(part), "{log}");
        let run = server.resolved(&task);
        assert_eq!(end_of(&run), end, "{log}");
    }
    let workers = server.json(&["worker", "list", LOCAL]);
    assert_eq!(workers["workers"].as_array().unwrap().len(), 1, "{workers}");
}

#[test]
fn a_worker_of_capacity_two_runs_two_tasks_and_stops_when_idle() {
    let server = start();
    let config = json!({"fleetwright": {"idleTimeoutSeconds": 1}});
    create_local_pool(&server, 2, &config);
    let folder = server.home.path("").display().to_string();
    let meet = |mine: &str, other: &str| {
        let command =
            format!("touch {folder}/{mine}; while ! [ -e {folder}/{other} ]; do sleep 0.02; done");
        server.create_task(LOCAL, &json!({"command": command, "maxRunTime": 30}))
    };
    for task in [meet("a", "b"), meet("b", "a")] {
        assert_eq!(end_of(&server.resolved(&task)).0, "completed");
    }
    wait_for("its worker has gone", || {
        let workers = server.json(&["worker", "list", LOCAL]);
        let workers = workers["workers"].as_array().unwrap().clone();
        assert_eq!(workers.len(), 1, "{workers:?}");
        (workers[0]["state"] == "stopped").then_some(())
    });
}

#[test]
fn artifacts_of_a_task_can_be_fetched() {
    let server = start();
    create_local_pool(&server, 1, &json!({}));
    let payload = json!({
        "command": "mkdir out; echo hello > out/a.txt",
        "artifacts": [{"name": "public/out", "path": "out", "type": "directory"}],
    });
    let task = server.create_task(LOCAL, &payload);
    let log = server.whole_log(&task, 0);
    assert_eq!(end_of(&server.resolved(&task)).0, "completed", "{log}");
    let path = format!("/api/queue/v1/task/{task}/runs/0/artifacts");
    let (_, listed) = server.call("GET", &path, None);
    assert!(listed.contains("public/out/a.txt"), "{listed}");
    let (status, to) = server.call("GET", &format!("{path}/public/out/a.txt"), None);
    assert!(matches!(status, 200 | 303), "{status}: {to}");
}

#[test]
fn a_cancelled_task_is_killed() {
    let server = start();
    create_local_pool(&server, 1, &json!({}));
    let task = server.create_task(LOCAL, &json!({"command": "echo $$; exec sleep 600"}));
    let id = wait_for("it runs", || id_in(&server.log_now(&task, 0)));
    server.cancel_task(&task);
    wait_for("it is killed", || (!is_running(&id)).then_some(()));
    let next = server.create_task(LOCAL, &json!({"command": "true"}));
    assert_eq!(end_of(&server.resolved(&next)).0, "completed");
    assert_eq!(end_of(&server.resolved(&task)), ("exception", "canceled"));
}

#[test]
fn a_task_outlives_a_restart_of_the_server() {
    let home = Home::new();
    let mut server = Server::start_in(home, &[]);
    create_local_pool(&server, 1, &json!({}));
    let flag = server.home.path("go").display().to_string();
    let command = format!("echo before; while ! [ -e {flag} ]; do sleep 0.05; done; echo after");
    let task = server.create_task(LOCAL, &json!({"command": command}));
    wait_for("it runs", || {
        let log = server.log_now(&task, 0);
        log.contains("before\n").then_some(())
    });
    let address = server.root_url().replace("http://", "");
    let (_, home) = server.terminate();
    home.write("go", "");
    server = Server::start_in(home, &["--listen", &address]);
    let log = server.whole_log(&task, 0);
    let end = "\nbefore\nafter\n[fleetwright] exit code 0";
    assert!(log.contains(end), "{log}");
    assert_eq!(end_of(&server.resolved(&task)).0, "completed");
}

#[test]
fn a_stopped_worker_returns_its_task_to_the_queue() {
    let server = start();
    create_local_pool(&server, 1, &json!({}));
    let (task, id) = until_a_task_runs_once(&server);
    signal(&launched_worker(&server), "-INT");
    assert_eq!(end_of(&server.resolved(&task)).0, "completed");
    assert!(!is_running(&id));
    let runs = server.task_status(&task)["runs"].clone();
    assert_eq!(end_of(&runs[0]), ("exception", "worker-shutdown"));
    let log = server.log_now(&task, 0);
    assert!(log.contains("the worker is stopping"), "{log}");
}

#[test]
fn a_killed_worker_leaves_no_process_and_its_task_runs_elsewhere() {
    let server = start();
    create_local_pool(&server, 1, &json!({}));
    let (task, id) = until_a_task_runs_once(&server);
    signal(&launched_worker(&server), "-KILL");
    wait_for("its task ended", || (!is_running(&id)).then_some(()));
    assert_eq!(end_of(&server.resolved(&task)).0, "completed");
    assert_ne!(server.task_status(&task)["runs"][1], Value::Null);
}

#[test]
fn a_static_worker_keeps_its_registration_after_a_restart() {
    let server = start();
    create_static_pool(&server);
    for part in ["is registered until", "continues; it is registered until"] {
        let worker = work(&server, &[]);
        for _ in 0..2 {
            let task = server.create_task(IRON, &json!({"command": "true"}));
            assert_eq!(end_of(&server.resolved(&task)).0, "completed");
        }
        worker.end();
        let log = server.home.read("worker-log");
        assert!(log.contains(part), "{log}");
    }
}

#[test]
fn a_worker_reports_why_it_cannot_start() {
    let server = start();
    create_static_pool(&server);
    let refused = |arguments: &[&str], code: i32, part: &str| {
        let done = server.home.run(arguments);
        assert_eq!(done.code, code, "{}", done.err);
        assert!(done.err.contains(part), "{}", done.err);
    };
    refused(&["worker"], 2, "Usage");
    refused(&["worker", "--json"], 2, "--identity FILE");
    let both = ["worker", "--identity", "x", "list", "a/b"];
    refused(&both, 2, "--identity FILE");
    refused(&["worker", "--identity", "/nosuch"], 2, "/nosuch");
    refused(&["worker", "run"], 2, "--identity");
    let bare = ["worker", "run", "--provider", "static"];
    refused(&bare, 2, "--secret-file");
    let bad = [
        "worker",
        "run",
        "--provider",
        "aws",
        "--metadata-url",
        "ftp://x",
    ];
    refused(&bad, 2, "ftp://x");
    server.home.write("secret", &"t".repeat(44));
    let arguments = arguments(&server);
    let arguments: Vec<_> = arguments.iter().map(String::as_str).collect();
    refused(&arguments, 4, "could not register");
    let json = server.home.run(&[&arguments[..], &["--json"]].concat());
    for line in json.err.lines() {
        assert!(serde_json::from_str::<Value>(line).is_ok(), "{line}");
    }
}
