//! Tasks from their claim to their report.

use std::time::Duration;

use serde_json::json;
use testing::sizes_around;

use crate::world::World;

#[tokio::test]
async fn a_task_runs_and_its_log_has_head_output_and_end() {
    let world = World::new().await;
    let payload = json!({"command": ["sh", "-c", "echo one; echo two >&2"]});
    let (outcome, log) = world.run(payload).await;
    assert_eq!(outcome, "completed");
    let lines: Vec<_> = log.lines().collect();
    assert_eq!(lines.len(), 5, "{log}");
    assert!(lines[0].starts_with("[fleetwright] task "), "{log}");
    assert!(
        lines[0].contains("on worker host/w1 of pool demo/linux"),
        "{log}"
    );
    assert_eq!(
        lines[1],
        r#"[fleetwright] command: ["sh","-c","echo one; echo two >&2"]"#
    );
    assert_eq!(lines[2..4], ["one", "two"]);
    assert!(
        lines[4].starts_with("[fleetwright] exit code 0 after 0."),
        "{log}"
    );
    world.fleet.look(|state| assert!(state.is_removed));
    assert_eq!(world.leftovers(), [""; 0]);
}

#[tokio::test]
async fn a_failing_command_fails_the_task_with_its_exit_code() {
    let world = World::new().await;
    let (outcome, log) = world.run(json!({"command": "printf oops; exit 3"})).await;
    assert_eq!(outcome, "failed");
    assert!(
        log.contains("oops\n[fleetwright] exit code 3 after"),
        "{log}"
    );
}

#[tokio::test]
async fn a_command_killed_by_a_signal_fails_the_task() {
    let world = World::new().await;
    let (outcome, log) = world.run(json!({"command": "kill -SEGV $$"})).await;
    assert_eq!(outcome, "failed");
    assert!(
        log.contains("[fleetwright] killed by signal 11 after"),
        "{log}"
    );
}

#[tokio::test]
async fn a_program_that_does_not_exist_is_named_in_the_log() {
    let world = World::new().await;
    let (outcome, log) = world.run(json!({"command": ["no-such-program"]})).await;
    assert_eq!(outcome, "failed");
    assert!(log.contains("no-such-program"), "{log}");
    assert!(log.contains("exit code 127"), "{log}");
}

#[tokio::test]
async fn a_malformed_payload_is_an_exception_and_all_its_errors_are_in_the_log() {
    let world = World::new().await;
    let (outcome, log) = world.run(json!({"image": "debian", "maxRunTime": 0})).await;
    assert_eq!(outcome, "malformed-payload");
    for part in [
        "payload.command must",
        "payload.image is unknown",
        "payload.maxRunTime must",
    ] {
        assert!(log.contains(part), "{log}");
    }
}

#[tokio::test]
async fn tasks_get_the_variables_of_the_launch_config_and_may_override_them() {
    let world = World::new().await;
    let mut identity = world.identity();
    let variables = [("COLOUR", "blue"), ("SIZE", "large"), ("TASK_ID", "forged")];
    identity.env = variables
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .into();
    let working = world.start_as(identity, Duration::from_secs(10));
    let command = "echo colour=$COLOUR size=$SIZE id=${#TASK_ID}";
    let payload = json!({"command": command, "env": {"SIZE": "small"}});
    let (outcome, log) = world.outcome_of(payload).await;
    working.end().await.unwrap();
    assert_eq!(outcome, "completed");
    assert!(log.contains("colour=blue size=small"), "{log}");
    assert!(!log.contains("id=6"), "{log}");
}

#[tokio::test]
async fn a_too_large_environment_is_an_error_of_the_task() {
    let world = World::new().await;
    let env: serde_json::Map<_, _> = (0..100)
        .map(|n| (format!("V{n}"), json!("x".repeat(100_000))))
        .collect();
    let (outcome, log) = world.run(json!({"command": ["true"], "env": env})).await;
    assert_eq!(outcome, "malformed-payload");
    assert!(
        log.contains("cannot start the command: Argument list too long"),
        "{log}"
    );
}

#[tokio::test]
async fn a_task_that_runs_too_long_is_ended_with_all_that_it_started() {
    let world = World::new().await;
    let command = "sleep 600 & echo $!; trap 'echo asked to end' TERM; wait; sleep 600";
    let payload = json!({"command": command, "maxRunTime": 1});
    let working = world.start();
    let (outcome, log) = world.outcome_of(payload).await;
    assert_eq!(outcome, "failed");
    assert!(log.contains("asked to end"), "{log}");
    assert!(log.contains("it ran longer than maxRunTime (1 s)"), "{log}");
    let child = log
        .lines()
        .find(|line| line.parse::<u32>().is_ok())
        .unwrap();
    assert!(!is_running(child), "{child}");
    working.end().await.unwrap();
}

#[tokio::test]
async fn processes_that_a_task_leaves_running_end_with_it() {
    let world = World::new().await;
    let (outcome, log) = world.run(json!({"command": "sleep 600 & echo $!"})).await;
    assert_eq!(outcome, "completed");
    let child = log
        .lines()
        .find(|line| line.parse::<u32>().is_ok())
        .unwrap();
    assert!(!is_running(child), "{child}");
}

#[tokio::test]
async fn a_process_that_left_its_group_neither_holds_the_task_nor_survives_it() {
    let world = World::new().await;
    let command = "setsid sh -c 'echo $$; exec sleep 600' & sleep 0.2; echo done";
    let (outcome, log) = world.run(json!({"command": command})).await;
    assert_eq!(outcome, "completed");
    assert!(log.contains("done\n"), "{log}");
    assert!(log.contains("holds the output open"), "{log}");
    let child = log.lines().find(|line| line.parse::<u32>().is_ok());
    assert!(!is_running(child.unwrap()));
}

#[tokio::test]
async fn a_task_sees_its_own_variables_and_folder_and_no_credentials() {
    let world = World::new().await;
    let payload = json!({"command": "env; pwd; ls -A", "env": {"COLOUR": "blue", "TASK_ID": "no"}});
    let (outcome, log) = world.run(payload).await;
    assert_eq!(outcome, "completed");
    let tasks = world.folder.path().join("work").join("worker-tasks");
    for part in [
        "COLOUR=blue\n",
        "RUN_ID=0\n",
        "TASK_GROUP_ID=",
        "TASKCLUSTER_WORKER_LOCATION={\"cloud\":\"static\"}\n",
        &format!("TASKCLUSTER_ROOT_URL={}\n", world.fleet.url()),
        &format!("{}/", tasks.display()),
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    for part in [
        "TASK_ID=no",
        "CARGO",
        "accessToken",
        "certificate",
        "TASKCLUSTER_ACCESS",
    ] {
        assert!(!log.contains(part), "{part}: {log}");
    }
}

#[tokio::test]
async fn binary_output_arrives_unchanged() {
    let world = World::new().await;
    let task = world
        .fleet
        .add_task(json!({"command": ["printf", "\\377\\000\\001"]}));
    let working = world.start();
    world
        .fleet
        .until("resolved", |state| state.run(&task).is_resolved())
        .await;
    let log = world.fleet.look(|state| state.run(&task).log.clone());
    assert!(log.windows(4).any(|bytes| bytes == b"\xff\x00\x01\n"));
    working.end().await.unwrap();
}

#[tokio::test]
async fn the_first_line_is_sent_while_the_task_runs_and_a_flood_in_large_pieces() {
    let world = World::new().await;
    let working = world.start();
    let command = "echo first; while ! [ -e go ]; do sleep 0.02; done; seq 200000";
    let task = world.fleet.add_task(json!({"command": command}));
    world
        .fleet
        .until("the first line", |state| {
            state.run(&task).log_text().contains("first\n")
        })
        .await;
    let folder = world.folder.path().join("work/worker-tasks");
    let folder = std::fs::read_dir(folder).unwrap().next().unwrap().unwrap();
    std::fs::write(folder.path().join("go"), "").unwrap();
    world
        .fleet
        .until("resolved", |state| state.run(&task).is_resolved())
        .await;
    world.fleet.look(|state| {
        let run = state.run(&task);
        let log = run.log_text();
        assert!(log.contains("\n199999\n200000\n[fleetwright] exit code 0"));
        assert!(run.is_log_finished);
        assert!(run.n_log_pieces < 40, "{} pieces", run.n_log_pieces);
    });
    working.end().await.unwrap();
}

#[tokio::test]
async fn two_tasks_run_at_once_when_there_is_room_for_two() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.worker_config = json!({"fleetwright": {"capacity": 2}}));
    // Each waits for the other.
    let meet = |mine: &str, other: &str| {
        let folder = world.folder.path().display();
        let wait = format!("while ! [ -e {folder}/{other} ]; do sleep 0.02; done");
        json!({"command": format!("touch {folder}/{mine}; {wait}"), "maxRunTime": 20})
    };
    let working = world.start();
    let tasks = [meet("a", "b"), meet("b", "a")].map(|payload| world.fleet.add_task(payload));
    for task in &tasks {
        world
            .fleet
            .until("resolved", |state| state.run(task).is_resolved())
            .await;
        world.fleet.look(|state| {
            assert_eq!(state.run(task).outcome.as_deref(), Some("completed"));
        });
    }
    working.end().await.unwrap();
}

/// The queue's limit for one claim.
const MAX_CLAIMS: usize = 32;

/// Runs `n_tasks` tasks with a worker of this capacity. Returns how many it requested each time.
async fn requested_counts(capacity: usize, n_tasks: usize) -> Vec<usize> {
    let world = World::new().await;
    world.fleet.change(|state| {
        state.worker_config = json!({"fleetwright": {"capacity": capacity}});
    });
    let add = |_| world.fleet.add_task(json!({"command": ["true"]}));
    let tasks: Vec<String> = (0..n_tasks).map(add).collect();
    let working = world.start();
    world
        .fleet
        .until("all tasks are resolved", |state| {
            let is_resolved = |task: &String| state.run(task).is_resolved();
            state.n_calls("/claim-work/") > 0 && tasks.iter().all(is_resolved)
        })
        .await;
    working.end().await.unwrap();
    world.fleet.look(|state| {
        let asked = state.bodies.iter();
        let asked = asked.filter_map(|body| body["tasks"].as_u64());
        asked.map(|n| usize::try_from(n).unwrap()).collect()
    })
}

#[tokio::test]
async fn a_large_worker_claims_up_to_the_limit_and_then_the_rest() {
    let sizes = sizes_around("worker::worker::MAX_CLAIMS", MAX_CLAIMS).into_iter();
    // Each worker has room for a task.
    let sizes = sizes.filter(|capacity| *capacity > 0);
    let side_by_side = sizes.map(async |capacity| {
        // Processes are expensive, so only the sizes that show that the rest is claimed too.
        let n_tasks = if capacity == MAX_CLAIMS + 1 {
            capacity
        } else {
            0
        };
        let asked = requested_counts(capacity, n_tasks).await;
        assert_eq!(asked[0], capacity.min(MAX_CLAIMS), "{asked:?}");
        assert!(asked.iter().all(|n| *n <= MAX_CLAIMS), "{asked:?}");
    });
    futures_util::future::join_all(side_by_side).await;
}

#[tokio::test]
async fn one_worker_runs_one_task_after_the_other() {
    let world = World::new().await;
    let working = world.start();
    for n in 0..5 {
        let (outcome, log) = world
            .outcome_of(json!({"command": format!("echo {n}")}))
            .await;
        assert_eq!(outcome, "completed");
        assert!(log.contains(&format!("\n{n}\n")), "{log}");
    }
    working.end().await.unwrap();
    world.fleet.look(|state| assert_eq!(state.n_registered, 1));
}

#[tokio::test]
async fn a_claim_is_renewed_while_the_task_runs() {
    let world = World::new().await;
    world
        .fleet
        .change(|state| state.claimed_for = Duration::from_secs(2));
    let working = world.start();
    // Longer than one claim, which would expire without renewals.
    let (outcome, _) = world.outcome_of(json!({"command": "sleep 3"})).await;
    assert_eq!(outcome, "completed");
    world
        .fleet
        .look(|state| assert!(state.n_calls("/reclaim") >= 2));
    working.end().await.unwrap();
}

#[tokio::test]
async fn artifacts_are_kept_and_a_missing_one_fails_the_task() {
    let world = World::new().await;
    let artifacts = json!([
        {"name": "public/all", "path": "out", "type": "directory"},
        {"name": "public/none", "path": "nothing", "type": "file"},
    ]);
    let command = "mkdir out; echo hello > out/a.txt; : > out/empty.json";
    let (outcome, log) = world
        .run(json!({"command": command, "artifacts": artifacts}))
        .await;
    assert_eq!(outcome, "failed");
    assert!(
        log.contains("artifact public/none: nothing: No such file"),
        "{log}"
    );
    world.fleet.look(|state| {
        let of = |name: &str| &state.artifacts[&name.replace('/', "%2F")];
        let (text, bytes) = of("public/all/a.txt");
        assert_eq!(text["contentType"], "text/plain; charset=utf-8");
        assert_eq!(bytes, b"hello\n");
        assert_eq!(
            of("public/all/empty.json").0["contentType"],
            "application/json"
        );
        assert_eq!(of("public/none").0["reason"], "file-missing-on-worker");
    });
}

fn is_running(id: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{id}/stat"));
    stat.is_ok_and(|stat| !stat.contains(") Z "))
}
