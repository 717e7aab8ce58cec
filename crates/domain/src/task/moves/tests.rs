//! The transitions of a task, one by one.

use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::json;
use testing::sizes_around;

use super::super::{Requires, TaskDefinition};
use super::*;

fn at(millis: i64) -> Timestamp {
    Timestamp::from_millis(millis)
}

const DEADLINE: i64 = 1_000_000;

fn task() -> Task {
    let definition = TaskDefinition {
        task_queue_id: "a/b".parse().unwrap(),
        scheduler_id: "-".parse().unwrap(),
        project_id: "none".parse().unwrap(),
        task_group_id: "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap(),
        dependencies: Vec::new(),
        requires: Requires::AllCompleted,
        routes: Vec::new(),
        priority: Priority::Low,
        retries: 1,
        created: at(0),
        deadline: at(DEADLINE),
        expires: at(2 * DEADLINE),
        scopes: Vec::new(),
        payload: json!({}),
        metadata: json!({}),
        tags: BTreeMap::new(),
        extra: json!({}),
    };
    Task::new("AAAAAAAAQACAAAAAAAAAAA".parse().unwrap(), definition)
}

fn pending() -> Task {
    task().schedule(at(1)).unwrap().task
}

fn claim(task: Task, run_id: u32, worker: &str, now: i64) -> Result<Transition, TransitionError> {
    let (group, worker) = ("g".parse().unwrap(), worker.parse().unwrap());
    task.claim(run_id, &group, &worker, at(now), at(now + 1_000))
}

fn running() -> Task {
    claim(pending(), 0, "w", 2).unwrap().task
}

fn refusal(moved: Result<Transition, TransitionError>) -> String {
    moved.unwrap_err().to_string()
}

#[test]
fn a_task_waits_is_claimed_and_completes() {
    let moved = task().schedule(at(1)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Pending(0)]);
    assert_eq!(moved.task.state(), TaskState::Pending);
    let moved = claim(moved.task, 0, "w", 2).unwrap();
    assert_eq!(moved.news, [TaskEvent::Running(0)]);
    let moved = moved.task.report(0, true, at(3)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Completed(0)]);
    assert_eq!(moved.task.state(), TaskState::Completed);
}

#[test]
fn what_was_done_is_not_done_twice() {
    assert_eq!(pending().schedule(at(2)).unwrap().news, []);
    assert_eq!(claim(running(), 0, "w", 5).unwrap().news, []);
    let failed = running().report(0, false, at(3)).unwrap().task;
    assert_eq!(failed.clone().report(0, false, at(4)).unwrap().news, []);
    assert_eq!(failed.clone().cancel(at(4)).unwrap().news, []);
    assert_eq!(failed.miss_deadline(at(4)).news, []);
    let reason = ExceptionReason::MalformedPayload;
    let malformed = running().report_exception(0, reason, at(3)).unwrap().task;
    assert_eq!(
        malformed.report_exception(0, reason, at(4)).unwrap().news,
        []
    );
}

#[test]
fn a_run_belongs_to_one_worker() {
    assert_eq!(
        refusal(claim(running(), 0, "other", 3)),
        "Run 0 of task AAAAAAAAQACAAAAAAAAAAA was claimed by another worker"
    );
    assert!(refusal(claim(pending(), 1, "w", 3)).contains("has no run 1"));
    let done = running().report(0, true, at(3)).unwrap().task;
    assert!(refusal(claim(done, 0, "w", 4)).contains("is completed, which does not allow this"));
}

#[test]
fn reclaiming_extends_the_claim_and_never_shortens_it() {
    let moved = running().reclaim(0, at(500), at(2_500)).unwrap();
    let until = |task: &Task| task.runs[0].claim.as_ref().unwrap().taken_until;
    assert_eq!(until(&moved.task), at(2_500));
    let moved = moved.task.reclaim(0, at(500), at(10)).unwrap();
    assert_eq!(until(&moved.task), at(2_500));
    assert!(refusal(pending().reclaim(0, at(2), at(9))).contains("is pending"));
    assert!(refusal(running().reclaim(7, at(2), at(9))).contains("has no run 7"));
    let done = running().report(0, true, at(3)).unwrap().task;
    assert!(refusal(done.reclaim(0, at(4), at(9))).contains("is completed"));
}

#[test]
fn a_result_can_be_reported_once_and_only_for_what_runs() {
    let done = running().report(0, true, at(3)).unwrap().task;
    assert!(refusal(done.clone().report(0, false, at(4))).contains("is completed"));
    let shutdown = ExceptionReason::WorkerShutdown;
    assert!(refusal(done.report_exception(0, shutdown, at(4))).contains("is completed"));
    assert!(refusal(pending().report(0, true, at(4))).contains("is pending"));
    assert!(refusal(task().report(0, true, at(4))).contains("has no run 0"));
}

#[test]
fn a_lost_run_is_retried_while_retries_are_left() {
    let moved = running()
        .report_exception(0, ExceptionReason::WorkerShutdown, at(3))
        .unwrap();
    assert_eq!(moved.news, [TaskEvent::Exception(0), TaskEvent::Pending(1)]);
    assert_eq!(moved.task.runs[1].reason, StartReason::Retry);
    assert_eq!(moved.task.retries_left, 0);
    let again = claim(moved.task, 1, "w", 4).unwrap().task;
    let moved = again
        .report_exception(1, ExceptionReason::WorkerShutdown, at(5))
        .unwrap();
    assert_eq!(moved.news, [TaskEvent::Exception(1)]);
    assert_eq!(moved.task.state(), TaskState::Exception);
}

#[test]
fn each_reason_for_an_exception_retries_or_not() {
    for (reason, retry) in [
        (ExceptionReason::WorkerShutdown, Some(StartReason::Retry)),
        (
            ExceptionReason::IntermittentTask,
            Some(StartReason::TaskRetry),
        ),
        (ExceptionReason::MalformedPayload, None),
        (ExceptionReason::ResourceUnavailable, None),
        (ExceptionReason::InternalError, None),
    ] {
        let task = running().report_exception(0, reason, at(3)).unwrap().task;
        assert_eq!(task.runs.get(1).map(|run| run.reason), retry, "{reason:?}");
        assert_eq!(task.runs[0].end.unwrap().reason, reason.end());
    }
}

#[test]
fn a_claim_expires_when_its_time_has_come_and_not_before() {
    assert_eq!(running().expire_claim(0, at(1_001)).unwrap().news, []);
    let moved = running().expire_claim(0, at(1_002)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Exception(0), TaskEvent::Pending(1)]);
    assert_eq!(
        moved.task.runs[0].end.unwrap().reason,
        EndReason::ClaimExpired
    );
    let again = moved.task.expire_claim(0, at(9_999)).unwrap();
    assert_eq!(again.news, []);
}

#[test]
fn nothing_is_tried_again_after_the_deadline() {
    let moved = running().expire_claim(0, at(DEADLINE + 1)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Exception(0)]);
}

#[test]
fn a_stopped_worker_loses_its_run() {
    let gone = ExceptionReason::WorkerShutdown;
    let moved = running().take_away(0, gone, at(3)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Exception(0), TaskEvent::Pending(1)]);
    assert_eq!(moved.task.take_away(0, gone, at(4)).unwrap().news, []);
}

#[test]
fn what_a_worker_never_heard_of_is_tried_again_without_using_up_a_retry() {
    let claim_of = |task: &Task| task.runs[0].claim.clone().unwrap();
    let mut task = running();
    task.0.retries_left = 0;
    let unheard = claim_of(&task);
    let moved = task.clone().give_back(0, &unheard, at(3)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Exception(0), TaskEvent::Pending(1)]);
    assert_eq!(
        moved.task.runs[0].end.unwrap().reason,
        EndReason::WorkerShutdown
    );
    assert_eq!(moved.task.retries_left, 0);
    // Neither twice, nor once the worker has shown that it received the run.
    assert_eq!(moved.task.give_back(0, &unheard, at(4)).unwrap().news, []);
    let kept = task.reclaim(0, at(3), at(3_000)).unwrap().task;
    assert_eq!(kept.give_back(0, &unheard, at(4)).unwrap().news, []);
}

#[test]
fn a_task_that_never_ran_ends_with_a_run_that_says_why() {
    for (moved, reason) in [
        (task().cancel(at(3)).unwrap(), EndReason::Canceled),
        (task().miss_deadline(at(3)), EndReason::DeadlineExceeded),
    ] {
        assert_eq!(moved.news, [TaskEvent::Exception(0)]);
        let run = &moved.task.runs[0];
        assert_eq!(run.reason, StartReason::Exception);
        assert_eq!(run.end.unwrap().reason, reason);
    }
    let moved = running().cancel(at(3)).unwrap();
    assert_eq!(moved.task.runs.len(), 1);
    assert_eq!(moved.task.state(), TaskState::Exception);
}

#[test]
fn a_resolved_task_can_be_run_again_with_all_its_retries() {
    let lost = running()
        .report_exception(0, ExceptionReason::WorkerShutdown, at(3))
        .unwrap();
    let over = lost.task.cancel(at(4)).unwrap().task;
    assert_eq!(over.retries_left, 0);
    let moved = over.rerun(at(5)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Pending(2)]);
    assert_eq!(moved.task.retries_left, 1);
    assert_eq!(moved.task.rerun(at(6)).unwrap().news, []);
    let claimed = claim(pending(), 0, "w", 2).unwrap().task;
    assert_eq!(claimed.rerun(at(6)).unwrap().news, []);
    // Without waiting for dependencies.
    let moved = task().rerun(at(6)).unwrap();
    assert_eq!(moved.news, [TaskEvent::Pending(0)]);
    assert_eq!(moved.task.runs[0].reason, StartReason::Rerun);
}

#[test]
fn the_number_of_runs_is_limited() {
    for count in sizes_around("domain::task::moves::MAX_RUNS", MAX_RUNS) {
        let mut task = task();
        for wanted in 1..=count {
            let ended = match wanted {
                1 => task,
                _ => task.cancel(at(2)).unwrap().task,
            };
            let moved = ended.clone().rerun(at(3));
            if wanted > MAX_RUNS {
                assert!(refusal(moved).contains("has had 50 runs"));
                task = ended;
                break;
            }
            task = moved.unwrap().task;
        }
        assert_eq!(task.runs.len(), count.min(MAX_RUNS));
        let Some((run_id, run)) = task.last_run().filter(|(_, run)| run.end.is_none()) else {
            continue;
        };
        assert_eq!(run.reason, StartReason::Rerun);
        // A retry is a further run, too.
        let task = claim(task, run_id, "w", 4).unwrap().task;
        let lost = task.report_exception(run_id, ExceptionReason::WorkerShutdown, at(5));
        let lost = lost.unwrap();
        let again = (count < MAX_RUNS).then_some(TaskEvent::Pending(run_id + 1));
        let news = [Some(TaskEvent::Exception(run_id)), again];
        assert_eq!(lost.news, news.into_iter().flatten().collect::<Vec<_>>());
    }
}

#[test]
fn after_the_deadline_people_and_workers_can_begin_nothing() {
    let late = DEADLINE + 1;
    for moved in [
        task().schedule(at(late)),
        task().cancel(at(late)),
        claim(pending(), 0, "w", late),
        running().reclaim(0, at(late), at(late + 1)),
        running()
            .report(0, true, at(3))
            .unwrap()
            .task
            .rerun(at(late)),
    ] {
        assert!(refusal(moved).contains("which has passed"));
    }
    // Work that was done in time may still be reported.
    assert!(running().report(0, true, at(late)).is_ok());
}

#[test]
fn the_priority_of_an_unresolved_task_can_change() {
    let moved = pending().change_priority(Priority::High).unwrap();
    assert_eq!(
        moved.news,
        [TaskEvent::PriorityChanged { old: Priority::Low }]
    );
    assert_eq!(moved.task.document().priority, "high");
    assert_eq!(moved.task.change_priority(Priority::High).unwrap().news, []);
    let done = running().report(0, true, at(3)).unwrap().task;
    assert!(refusal(done.change_priority(Priority::High)).contains("is resolved"));
}

/// A transition that may be tried at any time.
fn attempt() -> impl Strategy<Value = (u8, u32, i64)> {
    (0..11_u8, 0..4_u32, 0..2_000_i64)
}

fn apply(
    task: Task,
    (what, run_id, wait): (u8, u32, i64),
    now: i64,
) -> Result<Transition, TransitionError> {
    let now = at(now + wait);
    match what {
        0 => task.schedule(now),
        1 => task.rerun(now),
        2 => task.cancel(now),
        3 | 4 => {
            let (group, worker) = ("g".parse().unwrap(), "w".parse().unwrap());
            task.claim(run_id, &group, &worker, now, now.plus_millis(1_000))
        }
        5 => task.reclaim(run_id, now, now.plus_millis(1_000)),
        6 => task.report(run_id, true, now),
        7 => task.report_exception(run_id, ExceptionReason::WorkerShutdown, now),
        8 => task.expire_claim(run_id, now),
        9 => match task.run(run_id).and_then(|run| run.claim.clone()) {
            Some(claim) => task.give_back(run_id, &claim, now),
            None => task.schedule(now),
        },
        _ => task.take_away(run_id, ExceptionReason::WorkerShutdown, now),
    }
}

proptest! {
    #[test]
    fn only_the_last_run_is_ever_open_and_ended_runs_never_change(
        attempts in proptest::collection::vec(attempt(), 0..60)
    ) {
        let (mut task, mut now) = (task(), 0);
        for attempt in attempts {
            let before = task.runs.clone();
            if let Ok(moved) = apply(task.clone(), attempt, now) {
                task = moved.task;
            }
            now += attempt.2;
            prop_assert!(task.runs.len() <= MAX_RUNS);
            for (run_id, run) in task.runs.iter().enumerate() {
                let is_last = run_id + 1 == task.runs.len();
                prop_assert!(is_last || run.end.is_some());
                if let Some(was) = before.get(run_id).filter(|was| was.end.is_some()) {
                    prop_assert_eq!(was, run);
                }
            }
            // At most one run was added, and only retries use up retries.
            prop_assert!(task.runs.len() <= before.len() + 1);
            prop_assert!(task.retries_left <= task.definition.retries);
        }
    }
}
