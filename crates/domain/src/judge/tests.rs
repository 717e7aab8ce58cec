//! The decision for each state of a worker and its machine.

use serde_json::Value;

use super::*;
use crate::Version;
use crate::id::WorkerKey;
use crate::worker::{StoredWorker, Terms};

const NOW: i64 = 100 * DAY_MS;

fn ago(ms: i64) -> Timestamp {
    Timestamp::from_millis(NOW - ms)
}

fn key() -> WorkerKey {
    WorkerKey {
        pool_id: "a/b".parse().unwrap(),
        group: "g".parse().unwrap(),
        id: "w".parse().unwrap(),
    }
}

/// Made an hour ago, registered half an hour ago, far from its limits; if it is stopping, since
/// ten minutes ago.
fn worker(state: WorkerState) -> StoredWorker {
    let stopping = state >= WorkerState::Stopping;
    StoredWorker {
        key: key(),
        provider_id: "cloud".parse().unwrap(),
        launch_config_id: None,
        state,
        capacity: 1,
        price: None,
        created: ago(HOUR_MS),
        expires: ago(-8 * DAY_MS),
        last_modified: ago(0),
        last_checked: ago(0),
        terms: Terms {
            terminate_after: Some(NOW + DAY_MS),
            registered_at: (state != WorkerState::Requested).then_some(NOW - HOUR_MS / 2),
            stopped_at: stopping.then_some(NOW - 10 * MINUTE_MS),
            ..Terms::default()
        },
        provider_data: Value::Null,
        secret: None,
        previous_secret: None,
        version: Version::FIRST,
    }
}

fn at(looked: Timestamp) -> Attention {
    Attention {
        looked,
        listening: ago(NOW),
        gap: None,
    }
}

fn short(judgement: &Judgement) -> String {
    match judgement {
        Judgement::Keep { extend_expiry } => if *extend_expiry {
            "keep longer"
        } else {
            "keep"
        }
        .to_owned(),
        Judgement::Stopped { reason } => format!("stopped: {reason}"),
        Judgement::End { reason } => format!("end: {reason}"),
        Judgement::EndAgain { reason } => format!("again: {reason}"),
    }
}

fn verdict(worker: &StoredWorker, seen: Option<MachineState>, queue: QueueFacts<'_>) -> String {
    let worker = Worker::from_stored(worker.clone());
    short(&judge(&worker, seen, queue, &at(ago(0))))
}

fn of(worker: &StoredWorker, seen: Option<MachineState>) -> String {
    verdict(worker, seen, QueueFacts::Unknown)
}

fn with_queue(worker: &StoredWorker, queue: QueueFacts<'_>) -> String {
    verdict(worker, Some(MachineState::Alive), queue)
}

#[test]
fn every_state_and_every_sighting_has_its_judgement() {
    let sightings = || {
        [
            None,
            Some(MachineState::Alive),
            Some(MachineState::Ending),
            Some(MachineState::Ended(MachineEnd::default())),
            Some(MachineState::Ended(MachineEnd::because(Some(
                "spot price".to_owned(),
            )))),
            Some(MachineState::NotFound),
        ]
    };
    let row = |state| sightings().map(|seen| of(&worker(state), seen));
    let living = [
        "keep",
        "keep",
        "end: its machine is shutting down",
        "stopped: its machine ended",
        "stopped: its machine ended: spot price",
        "stopped: the cloud has no such machine",
    ];
    assert_eq!(row(WorkerState::Requested), living);
    assert_eq!(row(WorkerState::Running), living);
    assert_eq!(
        row(WorkerState::Stopping),
        [
            "keep",
            "keep",
            "keep",
            "stopped: its machine ended",
            "stopped: its machine ended: spot price",
            "stopped: the cloud no longer has this machine",
        ]
    );
    assert_eq!(row(WorkerState::Stopped), ["keep"; 6]);
}

#[test]
fn a_machine_that_was_just_made_may_not_be_found_yet() {
    for state in [WorkerState::Requested, WorkerState::Running] {
        let mut young = worker(state);
        young.created = ago(NEWBORN_MS - 1);
        assert_eq!(of(&young, Some(MachineState::NotFound)), "keep");
        young.created = ago(NEWBORN_MS);
        let found = of(&young, Some(MachineState::NotFound));
        assert_eq!(found, "stopped: the cloud has no such machine");
    }
    // When it should end, not finding it is the expected result.
    let mut young = worker(WorkerState::Stopping);
    young.created = ago(MINUTE_MS);
    let found = of(&young, Some(MachineState::NotFound));
    assert_eq!(found, "stopped: the cloud no longer has this machine");
}

#[test]
fn a_recently_active_worker_is_kept_whatever_the_cloud_reports() {
    let found = |worker: &StoredWorker, queue: QueueFacts<'_>| {
        verdict(worker, Some(MachineState::NotFound), queue)
    };
    let mut fresh = worker(WorkerState::Running);
    fresh.terms.registered_at = Some(NOW - NEWBORN_MS + 1);
    assert_eq!(found(&fresh, QueueFacts::Unknown), "keep");
    let old = worker(WorkerState::Running);
    let mut seen = QueueWorker::new(key(), ago(HOUR_MS), ago(-DAY_MS));
    seen.last_date_active = Some(ago(NEWBORN_MS - 1));
    assert_eq!(found(&old, QueueFacts::Seen(&seen)), "keep");
    seen.last_date_active = Some(ago(NEWBORN_MS));
    let stopped = "stopped: the cloud has no such machine";
    assert_eq!(found(&old, QueueFacts::Seen(&seen)), stopped);
}

#[test]
fn after_a_step_of_the_clock_every_worker_may_be_new() {
    let old = Worker::from_stored(worker(WorkerState::Running));
    let found = |gap| {
        let mut attention = at(ago(0));
        attention.gap = gap;
        let seen = Some(MachineState::NotFound);
        short(&judge(&old, seen, QueueFacts::NeverSeen, &attention))
    };
    let stopped = "stopped: the cloud has no such machine";
    assert_eq!(found(Some(ago(NEWBORN_MS - 1))), "keep");
    assert_eq!(found(Some(ago(NEWBORN_MS))), stopped);
}

#[test]
fn a_step_of_the_clock_ends_no_machine_that_boots_or_works() {
    let with_gap = |worker: &StoredWorker, gap| {
        let mut attention = at(ago(0));
        attention.gap = gap;
        let (worker, seen) = (Worker::from_stored(worker.clone()), MachineState::Alive);
        short(&judge(&worker, Some(seen), QueueFacts::Unknown, &attention))
    };
    // Half an hour to register; the clock says that it was an hour.
    let mut booting = worker(WorkerState::Requested);
    booting.terms.terminate_after = Some(booting.created.as_millis() + 1_800_000);
    let late = "end: never registered within 1800s";
    for (gap, expected) in [
        (None, late),
        (Some(ago(0)), "keep"),
        (Some(ago(1_800_000)), "keep"),
        (Some(ago(1_800_001)), late),
        (Some(ago(HOUR_MS)), late),
    ] {
        assert_eq!(with_gap(&booting, gap), expected, "{gap:?}");
    }
    // Gaps that follow each other keep it for a day.
    for (late_ms, expected) in [(DAY_MS, "keep"), (DAY_MS + 1, late)] {
        let mut older = booting.clone();
        older.created = Timestamp::from_millis(NOW - 1_800_000 - late_ms);
        older.terms.terminate_after = Some(NOW - late_ms);
        assert_eq!(with_gap(&older, Some(ago(0))), expected, "{late_ms}");
    }
    // It may work for 29 minutes after it registered, half an hour ago.
    let mut working = worker(WorkerState::Running);
    working.terms.terminate_after = Some(NOW - MINUTE_MS);
    let old = "end: terminateAfter time exceeded";
    for (gap, expected) in [
        (None, old),
        (Some(ago(0)), "keep"),
        (Some(ago(29 * MINUTE_MS)), "keep"),
        (Some(ago(29 * MINUTE_MS + 1)), old),
        (Some(ago(HOUR_MS)), old),
    ] {
        assert_eq!(with_gap(&working, gap), expected, "{gap:?}");
    }
}

#[test]
fn a_worker_older_than_its_limit_must_stop() {
    let mut running = worker(WorkerState::Running);
    running.terms.terminate_after = Some(NOW);
    assert_eq!(of(&running, None), "keep");
    running.terms.terminate_after = Some(NOW - 1);
    for seen in [None, Some(MachineState::Alive)] {
        assert_eq!(of(&running, seen), "end: terminateAfter time exceeded");
    }
    let mut requested = worker(WorkerState::Requested);
    requested.terms.terminate_after = Some(requested.created.as_millis() + 1_800_000);
    assert_eq!(of(&requested, None), "end: never registered within 1800s");
    let mut stopping = worker(WorkerState::Stopping);
    stopping.terms.terminate_after = Some(0);
    assert_eq!(of(&stopping, Some(MachineState::Alive)), "keep");
}

#[test]
fn a_worker_that_never_registers_stops_no_later_than_one_without_claims() {
    let mut requested = worker(WorkerState::Requested);
    requested.created = ago(2 * HOUR_MS);
    assert_eq!(of(&requested, Some(MachineState::Alive)), "keep");
    requested.created = ago(2 * HOUR_MS + 1);
    assert_eq!(of(&requested, None), "end: never registered within 7200s");
    // Also without terms, as in old rows.
    requested.terms = Terms::default();
    assert_eq!(of(&requested, None), "end: never registered within 7200s");
    requested.terms.queue_inactivity_timeout = Some(i64::MAX);
    assert_eq!(of(&requested, None), "keep");
    requested.created = ago(97 * HOUR_MS);
    assert_eq!(of(&requested, None), "end: never registered within 345600s");
}

#[test]
fn a_worker_that_never_claims_is_a_zombie_unless_the_queue_is_unknown() {
    let mut running = worker(WorkerState::Running);
    running.terms.queue_inactivity_timeout = Some(1_800_000);
    assert_eq!(with_queue(&running, QueueFacts::NeverSeen), "keep");
    running.terms.registered_at = Some(NOW - 1_800_001);
    assert_eq!(
        with_queue(&running, QueueFacts::NeverSeen),
        "end: worker never claimed work, created=1970-04-10T23:00:00.000Z, queueInactivityTimeout=1800s"
    );
    assert_eq!(with_queue(&running, QueueFacts::Unknown), "keep");
    // Without a registration time and without a limit of its own.
    running.terms = Terms::default();
    running.created = ago(DEFAULT_FIRST_CLAIM_MS);
    assert_eq!(with_queue(&running, QueueFacts::NeverSeen), "keep");
    running.created = ago(DEFAULT_FIRST_CLAIM_MS + 1);
    assert!(with_queue(&running, QueueFacts::NeverSeen).ends_with("firstClaimTimeout=1800s"));
}

#[test]
fn a_pool_may_say_how_long_the_first_claim_may_take() {
    let mut running = worker(WorkerState::Running);
    let ends_after = |worker: &StoredWorker, ms: i64| {
        let mut worker = worker.clone();
        worker.created = ago(DAY_MS);
        worker.terms.registered_at = Some(NOW - ms);
        assert_eq!(with_queue(&worker, QueueFacts::NeverSeen), "keep");
        worker.terms.registered_at = Some(NOW - ms - 1);
        let end = with_queue(&worker, QueueFacts::NeverSeen);
        end.rsplit(", ").next().unwrap().to_owned()
    };
    running.terms.first_claim_timeout = Some(HOUR_MS);
    assert_eq!(ends_after(&running, HOUR_MS), "firstClaimTimeout=3600s");
    // The inactivity limit counts if it is shorter.
    running.terms.queue_inactivity_timeout = Some(20 * MINUTE_MS);
    let end = ends_after(&running, 20 * MINUTE_MS);
    assert_eq!(end, "queueInactivityTimeout=1200s");
    running.terms.first_claim_timeout = Some(0);
    running.terms.queue_inactivity_timeout = Some(i64::MAX);
    let end = ends_after(&running, DEFAULT_FIRST_CLAIM_MS);
    assert_eq!(end, "firstClaimTimeout=1800s");
    // It may have asked, and the queue forgot.
    running.terms.registered_at = Some(NOW - QUEUE_MEMORY_MS);
    running.created = ago(DAY_MS);
    assert_eq!(with_queue(&running, QueueFacts::NeverSeen), "keep");
}

#[test]
fn a_worker_that_is_silent_is_a_zombie_unless_it_is_quarantined() {
    let mut running = worker(WorkerState::Running);
    running.created = ago(DAY_MS);
    running.terms.registered_at = Some(NOW - 20 * HOUR_MS);
    let mut seen = QueueWorker::new(key(), ago(10 * HOUR_MS), ago(-DAY_MS));
    seen.last_date_active = Some(ago(2 * HOUR_MS));
    assert_eq!(with_queue(&running, QueueFacts::Seen(&seen)), "keep");
    seen.last_date_active = Some(ago(2 * HOUR_MS + 1));
    assert_eq!(
        with_queue(&running, QueueFacts::Seen(&seen)),
        "end: worker inactive, lastDateActive=1970-04-10T21:59:59.999Z, queueInactivityTimeout=7200s"
    );
    // Activity before it registered does not count.
    running.terms.registered_at = Some(NOW - MINUTE_MS);
    assert_eq!(with_queue(&running, QueueFacts::Seen(&seen)), "keep");
    running.terms.registered_at = Some(NOW - 20 * HOUR_MS);
    seen.quarantine_until = Some(ago(-1));
    assert_eq!(with_queue(&running, QueueFacts::Seen(&seen)), "keep");
    seen.quarantine_until = Some(ago(1));
    assert!(with_queue(&running, QueueFacts::Seen(&seen)).starts_with("end: worker inactive"));
    // Its first claim is its last known activity.
    seen.last_date_active = None;
    assert!(with_queue(&running, QueueFacts::Seen(&seen)).contains("1970-04-10T14:00"));
}

#[test]
fn silence_says_nothing_until_the_worker_could_have_been_heard() {
    let mut running = worker(WorkerState::Running);
    running.created = ago(DAY_MS);
    running.terms.registered_at = Some(NOW - 5 * HOUR_MS);
    let mut seen = QueueWorker::new(key(), ago(5 * HOUR_MS), ago(-DAY_MS));
    seen.last_date_active = Some(ago(4 * HOUR_MS));
    for (limit_ms, heard_ms) in [
        (2 * HOUR_MS, HEARD_MS),
        (HEARD_MS, HEARD_MS),
        (MINUTE_MS, MINUTE_MS),
    ] {
        running.terms.queue_inactivity_timeout = Some(limit_ms);
        for queue in [QueueFacts::NeverSeen, QueueFacts::Seen(&seen)] {
            let running = Worker::from_stored(running.clone());
            let judged = |listening_ms| {
                let alive = Some(MachineState::Alive);
                let mut attention = at(ago(0));
                attention.listening = ago(listening_ms);
                short(&judge(&running, alive, queue, &attention))
            };
            for listening_ms in [-HOUR_MS, 0, heard_ms] {
                assert_eq!(judged(listening_ms), "keep", "{limit_ms} {listening_ms}");
            }
            assert!(
                judged(heard_ms + 1).starts_with("end: worker"),
                "{limit_ms}"
            );
        }
    }
}

#[test]
fn a_row_lives_on_as_long_as_its_worker() {
    let mut running = worker(WorkerState::Running);
    running.expires = ago(-EXPIRY_MARGIN_MS);
    assert_eq!(of(&running, None), "keep");
    running.expires = ago(-EXPIRY_MARGIN_MS + 1);
    assert_eq!(of(&running, None), "keep longer");
    for state in [WorkerState::Stopping, WorkerState::Stopped] {
        let mut old = worker(state);
        old.expires = ago(0);
        assert_eq!(of(&old, Some(MachineState::Alive)), "keep");
    }
}

#[test]
fn a_machine_that_does_not_end_is_ended_again() {
    let mut stopping = worker(WorkerState::Stopping);
    stopping.terms.stopped_at = Some(NOW - ENDING_MS);
    assert_eq!(of(&stopping, Some(MachineState::Alive)), "keep");
    stopping.terms.stopped_at = Some(NOW - 30 * HOUR_MS);
    for seen in [MachineState::Alive, MachineState::Ending] {
        assert_eq!(
            of(&stopping, Some(seen)),
            "again: asked to stop 30 h ago, and its machine still exists"
        );
    }
}

#[test]
fn a_machine_that_cannot_be_checked_counts_as_stopped_after_a_day() {
    let mut stopping = worker(WorkerState::Stopping);
    stopping.terms.stopped_at = Some(NOW - UNSEEN_ENDING_MS);
    assert_eq!(of(&stopping, None), "keep");
    stopping.terms.stopped_at = None;
    stopping.last_modified = ago(UNSEEN_ENDING_MS + 1);
    assert_eq!(
        of(&stopping, None),
        "stopped: asked to stop 24 h ago, and its machine could not be checked since"
    );
}

#[test]
fn every_state_ends_without_cloud_worker_or_queue() {
    let mut now = ago(0);
    let mut worker = Worker::from_stored(worker(WorkerState::Requested));
    let mut n_days = 0;
    while worker.state != WorkerState::Stopped {
        now = now.plus_millis(DAY_MS);
        n_days += 1;
        assert!(n_days < 10, "{:?}", worker.state);
        match judge(&worker, None, QueueFacts::Unknown, &at(now)) {
            Judgement::Keep { .. } => {}
            Judgement::End { .. } => worker = worker.stop("", now),
            Judgement::Stopped { .. } => worker = worker.mark_stopped("", now),
            Judgement::EndAgain { reason } => panic!("no scan saw the machine: {reason}"),
        }
    }
    assert!(n_days <= 3);
}
