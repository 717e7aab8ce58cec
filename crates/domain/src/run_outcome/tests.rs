//! The outcomes that messages of the queue contain, each of them once.

use serde_json::{Value, json};

use super::*;
use crate::event::EventBody;
use crate::task::{ExceptionReason, Task, TaskDocument, TaskEvent};

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

const TASK: &str = "AAAAAAAAQACAAAAAAAAAAA";

/// A message in the form of another deployment's queue.
fn message(run_id: Option<usize>, runs: Value) -> Vec<u8> {
    let mut message = json!({
        "version": 1, "workerGroup": "g", "workerId": "w", "task": {"tags": {"createdForUser": "x"}},
        "status": {"taskId": TASK, "taskQueueId": "proj-x/ci", "provisionerId": "proj-x",
            "workerType": "ci", "schedulerId": "-", "taskGroupId": TASK, "runs": runs, "later": 1},
    });
    if let Some(run_id) = run_id {
        message["runId"] = json!(run_id);
    }
    message.to_string().into_bytes()
}

fn run(created: &str, resolved: Option<&str>) -> Value {
    let mut run = json!({"runId": 0, "state": "s", "reasonCreated": created, "workerGroup": "g",
        "workerId": "w", "takenUntil": "2026-09-21T14:33:20Z", "scheduled": "2026-09-21T14:13:20Z",
        "started": "2026-09-21T14:13:20Z"});
    if let Some(reason) = resolved {
        run["reasonResolved"] = json!(reason);
        run["resolved"] = json!("2026-09-21T14:13:21.007Z");
    }
    run
}

fn waiting(created: &str) -> Value {
    json!({"runId": 1, "state": "pending", "reasonCreated": created,
        "scheduled": "2026-09-21T14:13:20Z"})
}

/// The run that a message ends, and its reason.
fn ended(run_id: Option<usize>, runs: Value) -> Option<(u32, EndReason)> {
    let outcome = RunOutcome::of_message(&message(run_id, runs)).unwrap();
    outcome.map(|outcome| (outcome.run_id, outcome.reason))
}

#[test]
fn a_message_says_which_worker_ended_which_run_how_and_when() {
    let body = message(Some(0), json!([run("scheduled", Some("failed"))]));
    let outcome = RunOutcome::of_message(&body).unwrap().unwrap();
    assert_eq!(
        outcome,
        RunOutcome {
            worker: WorkerKey {
                pool_id: "proj-x/ci".parse().unwrap(),
                group: "g".parse().unwrap(),
                id: "w".parse().unwrap(),
            },
            task_id: TASK.parse().unwrap(),
            run_id: 0,
            reason: EndReason::Failed,
            resolved: at(1_790_000_001_007),
            started: Some(at(1_790_000_000_000)),
        }
    );
    assert_eq!(outcome.duration_ms(), Some(1_007));
}

#[test]
fn only_a_run_that_ended_by_itself_has_a_duration() {
    let duration = |reason: &str, started: Value| {
        let mut run = run("scheduled", Some(reason));
        run["started"] = started;
        let body = message(Some(0), json!([run]));
        RunOutcome::of_message(&body)
            .unwrap()
            .unwrap()
            .duration_ms()
    };
    let started = || json!("2026-09-21T14:13:20Z");
    assert_eq!(duration("failed", started()), Some(1_007));
    assert_eq!(duration("canceled", started()), None);
    assert_eq!(duration("worker-shutdown", started()), None);
    assert_eq!(duration("completed", json!(null)), None);
    // The clock was set back meanwhile.
    assert_eq!(
        duration("completed", json!("2026-09-21T15:00:00Z")),
        Some(0)
    );
}

#[test]
fn a_lost_run_is_reported_by_the_message_of_the_next_run() {
    for (created, reason) in [
        ("retry", EndReason::WorkerShutdown),
        ("task-retry", EndReason::IntermittentTask),
    ] {
        let runs = json!([run("scheduled", Some(reason.as_str())), waiting(created)]);
        assert_eq!(ended(Some(1), runs), Some((0, reason)));
    }
}

#[test]
fn old_runs_that_a_status_repeats_are_no_news() {
    let again = json!([run("scheduled", Some("failed")), waiting("rerun")]);
    assert_eq!(ended(Some(1), again), None);
    let done = json!([
        run("scheduled", Some("claim-expired")),
        run("retry", Some("completed"))
    ]);
    assert_eq!(ended(Some(1), done), Some((1, EndReason::Completed)));
    let first = json!([waiting("scheduled")]);
    assert_eq!(ended(Some(0), first), None);
}

#[test]
fn an_unclaimed_run_has_no_outcome() {
    let mut canceled = waiting("scheduled");
    canceled["reasonResolved"] = json!("canceled");
    canceled["resolved"] = json!("2026-09-21T14:13:21Z");
    assert_eq!(ended(Some(0), json!([canceled])), None);
    assert_eq!(ended(None, json!([])), None);
}

#[test]
fn without_a_number_it_is_about_the_last_run() {
    let runs = json!([
        run("scheduled", Some("failed")),
        run("rerun", Some("canceled"))
    ]);
    assert_eq!(ended(None, runs), Some((1, EndReason::Canceled)));
}

#[test]
fn what_makes_no_sense_is_refused() {
    let with = |field: &str, value: Value| {
        let mut run = run("scheduled", Some("completed"));
        run[field] = value;
        message(Some(0), json!([run]))
    };
    for body in [
        b"".to_vec(),
        b"[]".to_vec(),
        b"{\"status\": 1}".to_vec(),
        message(Some(7), json!([])),
        with("reasonResolved", json!("fallen-over")),
        with("resolved", json!(null)),
        with("resolved", json!("yesterday")),
        with("started", json!("yesterday")),
        with("workerId", json!("no id")),
        with("workerGroup", json!("")),
    ] {
        let text = String::from_utf8_lossy(&body).into_owned();
        assert!(RunOutcome::of_message(&body).is_err(), "{text}");
    }
}

/// The messages of our own queue about a task.
fn own_messages(news: impl IntoIterator<Item = TaskEvent>, task: &Task) -> Vec<Vec<u8>> {
    let bodies = news.into_iter().map(|news| {
        let task = Box::new(task.clone());
        EventBody::Task { news, task }
            .payload(at(9))
            .to_string()
            .into_bytes()
    });
    bodies.collect()
}

#[test]
fn what_our_own_queue_tells_is_understood() {
    let document: TaskDocument = serde_json::from_value(json!({
        "taskQueueId": "proj-x/ci", "schedulerId": "me", "dependencies": [],
        "requires": "all-completed", "routes": [], "priority": "low", "retries": 5,
        "created": "1970-01-01T00:00:00Z", "deadline": "1970-01-02T00:00:00Z", "scopes": [],
        "payload": {}, "metadata": {}, "tags": {}, "extra": {},
    }))
    .unwrap();
    let id: TaskId = TASK.parse().unwrap();
    let task = Task::new(id.clone(), document.define(&id).unwrap());
    let (group, worker) = ("g".parse().unwrap(), "w".parse().unwrap());
    let mut told = Vec::new();
    let mut note = |moved: crate::task::Transition| {
        told.extend(own_messages(moved.news, &moved.task));
        moved.task
    };
    let task = note(task.schedule(at(1)).unwrap());
    let task = note(task.claim(0, &group, &worker, at(2), at(9)).unwrap());
    let gone = ExceptionReason::WorkerShutdown;
    let task = note(task.report_exception(0, gone, at(3)).unwrap());
    let task = note(task.claim(1, &group, &worker, at(4), at(9)).unwrap());
    note(task.report(1, true, at(5)).unwrap());
    let mut known = Vec::new();
    for body in &told {
        if let Some(outcome) = RunOutcome::of_message(body).unwrap()
            && !known.contains(&outcome)
        {
            known.push(outcome);
        }
    }
    let said: Vec<_> = known
        .iter()
        .map(|outcome| (outcome.run_id, outcome.reason, outcome.resolved))
        .collect();
    assert_eq!(
        said,
        [
            (0, EndReason::WorkerShutdown, at(3)),
            (1, EndReason::Completed, at(5)),
        ]
    );
}

#[test]
fn a_tally_keeps_exceptions_apart_by_their_reason() {
    let mut tally = OutcomeCounts::default();
    assert_eq!(tally.success_rate(), None);
    tally.add(EndReason::Completed, 6);
    tally.add(EndReason::Failed, 1);
    tally.add(EndReason::ClaimExpired, 2);
    tally.add(EndReason::ClaimExpired, 1);
    tally.add(EndReason::Canceled, 2);
    assert_eq!(
        (tally.completed, tally.failed, tally.exception()),
        (6, 1, 5)
    );
    assert_eq!(tally.exceptions["claim-expired"], 3);
    assert_eq!(tally.success_rate(), Some(0.5));
}

#[test]
fn a_window_begins_with_the_hour_of_its_first_moment() {
    let now: Timestamp = "2026-09-21T14:13:20Z".parse().unwrap();
    let since = Window::ALL.map(|window| window.since(now).to_string());
    assert_eq!(
        since,
        [
            "2026-09-21T13:00:00.000Z",
            "2026-09-20T14:00:00.000Z",
            "2026-09-14T14:00:00.000Z"
        ]
    );
}

#[test]
fn a_task_waits_since_the_first_of_the_runs_that_replace_each_other() {
    let at_minute = |mut run: Value, minute: u32| {
        run["scheduled"] = json!(format!("2026-09-21T14:{minute:02}:00Z"));
        run
    };
    let since = |runs: Value| {
        let ended = EndedRun::of_message(&message(None, runs)).unwrap().unwrap();
        assert_eq!(ended.priority, None);
        ended
            .waiting_since
            .map(|at| at.to_string()[14..16].to_owned())
    };
    let lost = || at_minute(run("scheduled", Some("claim-expired")), 1);
    let retried = || at_minute(run("retry", Some("completed")), 5);
    let rerun = || at_minute(run("rerun", Some("completed")), 9);
    assert_eq!(since(json!([retried()])), Some("05".to_owned()));
    assert_eq!(since(json!([lost(), retried()])), Some("01".to_owned()));
    assert_eq!(
        since(json!([lost(), retried(), rerun()])),
        Some("09".to_owned())
    );
    let mut unknown = run("scheduled", Some("completed"));
    unknown["scheduled"] = json!("soon");
    assert_eq!(since(json!([unknown])), None);
}

#[test]
fn the_priority_is_that_of_the_status_if_it_is_known() {
    for (name, expected) in [("high", Some(Priority::High)), ("normal", None)] {
        let body = message(Some(0), json!([run("scheduled", Some("completed"))]));
        let mut body: Value = serde_json::from_slice(&body).unwrap();
        body["status"]["priority"] = json!(name);
        let ended = EndedRun::of_message(body.to_string().as_bytes());
        assert_eq!(ended.unwrap().unwrap().priority, expected);
    }
}

#[test]
fn a_running_run_shows_the_claim_of_its_worker_and_no_outcome() {
    let claims = [
        message(Some(0), json!([run("scheduled", None)])),
        message(
            Some(1),
            json!([
                run("scheduled", Some("worker-shutdown")),
                run("retry", None)
            ]),
        ),
    ];
    for body in claims {
        let news = RunNews::of_message(&body).unwrap().unwrap();
        let claim = news.claim();
        assert_eq!(claim.worker.to_string(), "proj-x/ci/g/w");
        assert_eq!(claim.at.to_string(), "2026-09-21T14:13:20.000Z");
        assert_eq!(news, RunNews::Claimed(claim));
        assert_eq!(EndedRun::of_message(&body).unwrap(), None);
    }
    let ended = message(Some(0), json!([run("scheduled", Some("failed"))]));
    let news = RunNews::of_message(&ended).unwrap().unwrap();
    assert_eq!(
        news.claim().at.to_string(),
        "2026-09-21T14:13:20.000Z",
        "an ended run was claimed before"
    );
    let waits = message(Some(0), json!([waiting("scheduled")]));
    assert_eq!(RunNews::of_message(&waits).unwrap(), None);
}
