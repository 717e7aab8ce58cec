//! Failures between a worker and its server, and their effect on tasks.

use std::time::Duration;

use serde_json::json;

use crate::fleet::InjectedFailure;
use crate::world::World;

#[tokio::test]
async fn a_task_outlives_a_server_that_is_away_for_a_while() {
    let world = World::new().await;
    world.fleet.inject(3, "/log", InjectedFailure::Status(502));
    world.fleet.inject(2, "/log", InjectedFailure::LostAnswer);
    world
        .fleet
        .inject(2, "/completed", InjectedFailure::Status(503));
    world
        .fleet
        .inject(1, "/completed", InjectedFailure::LostAnswer);
    world
        .fleet
        .inject(1, "claim-work", InjectedFailure::Status(500));
    let (outcome, log) = world
        .run(json!({"command": "echo one; sleep 0.5; echo two"}))
        .await;
    assert_eq!(outcome, "completed");
    let lines: Vec<_> = log.lines().skip(2).take(2).collect();
    assert_eq!(lines, ["one", "two"], "no line is lost or repeated: {log}");
}

#[tokio::test]
async fn bytes_that_the_server_lost_are_sent_again() {
    let world = World::new().await;
    let working = world.start();
    let command = "echo one; while ! [ -e go ]; do sleep 0.02; done; echo two";
    let task = world.fleet.add_task(json!({"command": command}));
    world
        .fleet
        .until("the first line", |state| {
            state.run(&task).log_text().contains("one\n")
        })
        .await;
    // Like after a power failure of the server.
    world
        .fleet
        .change(|state| state.run_mut(&task).log.truncate(10));
    let folder = world.folder.path().join("work/worker-tasks");
    let folder = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
    std::fs::write(folder.path().join("go"), "").unwrap();
    world
        .fleet
        .until("resolved", |state| state.run(&task).is_resolved())
        .await;
    let log = world.fleet.look(|state| state.run(&task).log_text());
    assert!(log.starts_with("[fleetwright] task "), "{log}");
    assert!(
        log.contains("\none\ntwo\n[fleetwright] exit code 0"),
        "{log}"
    );
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_cancelled_task_is_killed_and_not_reported() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.claimed_for = Duration::from_secs(3));
    let working = world.start();
    let task = world
        .fleet
        .add_task(json!({"command": "echo $$; exec sleep 600"}));
    let id_of = |log: &str| {
        log.lines()
            .find(|line| line.parse::<u32>().is_ok())
            .map(str::to_owned)
    };
    world
        .fleet
        .until("it runs", |state| {
            id_of(&state.run(&task).log_text()).is_some()
        })
        .await;
    let id = world
        .fleet
        .look(|state| id_of(&state.run(&task).log_text()))
        .unwrap();
    world
        .fleet
        .change(|state| state.run_mut(&task).outcome = Some("canceled".to_owned()));
    // The worker notices when it renews its claim, and is then free for other work.
    let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    assert!(!std::path::Path::new(&format!("/proc/{id}/environ")).exists());
    working.end().await.unwrap();
    world.fleet.look(|state| {
        assert_eq!(state.run(&task).outcome.as_deref(), Some("canceled"));
        assert_eq!(state.n_calls(&format!("{task}/runs/0/exception")), 0);
        assert_eq!(state.n_calls(&format!("{task}/runs/0/failed")), 0);
    });
}

#[tokio::test]
async fn a_cancelled_task_that_writes_is_noticed_with_its_next_line() {
    let world = World::new().await;
    let working = world.start();
    let command = "echo one; while :; do sleep 0.1; echo more; done";
    let task = world.fleet.add_task(json!({"command": command}));
    world
        .fleet
        .until("it runs", |state| {
            state.run(&task).log_text().contains("more\n")
        })
        .await;
    world
        .fleet
        .change(|state| state.run_mut(&task).outcome = Some("canceled".to_owned()));
    // Its claim would be valid for 20 minutes.
    let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_run_that_cannot_be_renewed_ends_when_its_claim_does() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.claimed_for = Duration::from_secs(2));
    world
        .fleet
        .inject(usize::MAX, "/reclaim", InjectedFailure::Status(503));
    let working = world.start();
    let task = world
        .fleet
        .add_task(json!({"command": "echo one; exec sleep 600"}));
    world
        .fleet
        .until("it runs", |state| state.run(&task).is_claimed)
        .await;
    world
        .fleet
        .change(|state| state.claimed_for = Duration::from_secs(60));
    let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    world
        .fleet
        .look(|state| assert_eq!(state.run(&task).outcome, None));
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_server_that_keeps_no_logs_can_still_have_its_tasks_run() {
    let world = World::new().await;
    world
        .fleet
        .inject(usize::MAX, "/log", InjectedFailure::Status(400));
    let (outcome, log) = world.run(json!({"command": "echo one"})).await;
    assert_eq!((outcome.as_str(), log.as_str()), ("completed", ""));
}

#[tokio::test]
async fn a_report_that_comes_too_late_is_given_up() {
    let world = World::new().await;
    world
        .fleet
        .inject(usize::MAX, "/completed", InjectedFailure::Status(409));
    let working = world.start();
    let task = world.fleet.add_task(json!({"command": "true"}));
    world
        .fleet
        .until("it is reported", |state| {
            state.n_calls(&format!("{task}/runs/0/completed")) == 1
        })
        .await;
    let next = world.fleet.add_task(json!({"command": "exit 1"}));
    world
        .fleet
        .until("resolved", |state| state.run(&next).is_resolved())
        .await;
    working.end().await.unwrap();
    world
        .fleet
        .look(|state| assert_eq!(state.run(&task).outcome, None));
}

#[tokio::test]
async fn a_run_that_the_server_resolved_is_noticed_by_its_log() {
    let world = World::new().await;
    let working = world.start();
    let task = world
        .fleet
        .add_task(json!({"command": "while :; do echo more; sleep 0.1; done"}));
    world
        .fleet
        .until("it runs", |state| {
            state.run(&task).log_text().contains("more\n")
        })
        .await;
    world
        .fleet
        .change(|state| state.run_mut(&task).outcome = Some("completed".to_owned()));
    let (outcome, _) = world.outcome_of(json!({"command": "true"})).await;
    assert_eq!(outcome, "completed");
    working.end().await.unwrap();
}

#[tokio::test]
async fn a_server_that_does_not_hold_calls_open_is_polled_slowly() {
    let world = World::new().await;
    // Time: a lower bound, from before the first poll. A slow machine only takes longer.
    let start = tokio::time::Instant::now();
    let working = world.start();
    world
        .fleet
        .until("four polls", |state| state.n_calls("claim-work") >= 4)
        .await;
    assert!(
        // Time: see above.
        start.elapsed() >= Duration::from_millis(1_500),
        "{:?}",
        start.elapsed() // Time: for the message.
    );
    working.end().await.unwrap();
}

#[tokio::test]
async fn after_a_too_long_response_fewer_tasks_are_claimed() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.worker_config = json!({"fleetwright": {"capacity": 3}}));
    let large = || json!({"command": "true", "filler": "x".repeat(25 << 20)});
    let tasks: Vec<_> = (0..5).map(|_| world.fleet.add_task(large())).collect();
    let working = world.start();
    let outcome = |task: &String| world.fleet.look(|state| state.run(task).outcome.clone());
    world
        .fleet
        .until("tasks that are assigned one by one are resolved", |state| {
            tasks[3..].iter().all(|task| state.run(task).is_resolved())
        })
        .await;
    // Three at once are too long. The payloads of these are read, and refused as malformed.
    assert!(tasks[..3].iter().all(|task| outcome(task).is_none()));
    for task in &tasks[3..] {
        assert_eq!(outcome(task).as_deref(), Some("malformed-payload"));
    }
    working.end().await.unwrap();
}
