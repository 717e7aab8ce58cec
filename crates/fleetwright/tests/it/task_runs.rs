//! `worker runs` and `pool runs`: the outcomes of task runs, as text and JSON.

use serde_json::{Value, json};

use crate::queue_calls::wait_for;
use crate::world::Server;

#[test]
fn the_last_runs_of_a_worker_and_of_its_pool_are_shown() {
    let server = Server::start();
    server.ok(&[
        "pool",
        "create",
        "demo/linux",
        "--provider",
        "static",
        "--owner",
        "you@example.com",
    ]);
    let of_worker = ["worker", "runs", "demo/linux", "g", "w"];
    let nobody = server.run(&of_worker);
    assert!(nobody.err.contains("Worker not found"), "{}", nobody.err);
    let before = server.ok(&["pool", "runs", "demo/linux"]);
    assert!(before.starts_with("WITHIN  COMPLETED"), "{before}");
    run_a_task(&server);
    let shown = wait_for("the run is listed", || {
        let runs = server.json(&["pool", "runs", "demo/linux"]);
        let is_there = runs["taskRuns"]
            .as_array()
            .is_some_and(|runs| !runs.is_empty());
        is_there.then_some(runs)
    });
    let run = &shown["taskRuns"][0];
    assert_eq!(
        (&run["workerId"], &run["outcome"], &run["runId"]),
        (&json!("w"), &json!("completed"), &json!(0))
    );
    assert_eq!(shown["windows"][0]["successRate"], json!(1.0));
    let task = run["taskId"].as_str().unwrap();
    let text = server.ok(&of_worker);
    assert!(text.contains(task) && text.contains("100.0 %"), "{text}");
    let one = server.json(&[&of_worker[..], &["--limit", "1"]].concat());
    assert_eq!(one["taskRuns"].as_array().map(Vec::len), Some(1));
}

/// Creates, claims and completes a task.
fn run_a_task(server: &Server) {
    server.create_task("demo/linux", &json!({}));
    let body = json!({"workerGroup": "g", "workerId": "w", "tasks": 1});
    let claimed = post(server, "/claim-work/demo%2Flinux", &body);
    let task = claimed["tasks"][0]["status"]["taskId"].as_str().unwrap();
    post(
        server,
        &format!("/task/{task}/runs/0/completed"),
        &json!({}),
    );
}

fn post(server: &Server, path: &str, body: &Value) -> Value {
    let (status, text) = server.call("POST", &format!("/api/queue/v1{path}"), Some(body));
    assert_eq!(status, 200, "{path}: {text}");
    serde_json::from_str(&text).unwrap()
}
