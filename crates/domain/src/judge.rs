//! The decision of a scan about one worker, from the state of its machine and the facts of the
//! queue.
//!
//! Every state that is not final ends without outside help. A requested or running worker is asked
//! to stop after a limit. A worker that was asked to stop counts as stopped when its machine could
//! not be checked for a day. A machine that the cloud still lists is ended again and again until
//! the cloud no longer lists it or its row expires. After that it is a machine without a row, and
//! the sweep of our machines ends it.

use crate::lifecycle::{DEFAULT_FIRST_CLAIM_MS, DEFAULT_INACTIVITY_MS, DEFAULT_REREGISTRATION_MS};
use crate::queue_worker::QueueWorker;
use crate::time::{DAY_MS, HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use crate::worker::{Worker, WorkerState};

/// A cloud may not list a machine this soon after making it, and it is wrong about a worker that
/// was active since.
pub const NEWBORN_MS: i64 = 5 * MINUTE_MS;
/// Ending a machine should not take longer; after this the cloud is asked again.
pub const ENDING_MS: i64 = HOUR_MS;
/// A machine that should end and could not be checked for this long counts as stopped.
pub const UNSEEN_ENDING_MS: i64 = DAY_MS;
/// The queue forgets a worker that has not asked for work for this long.
const QUEUE_MEMORY_MS: i64 = DAY_MS;
/// The name of the limit for workers that claimed work and stopped asking for it.
const INACTIVITY: &str = "queueInactivityTimeout";
/// A worker that lives shows activity within this time: it asks for work, or claims its run again
/// (after 20 minutes at most, unless `queue.claim_seconds` is longer).
const HEARD_MS: i64 = 30 * MINUTE_MS;
/// A row that expires sooner than this is extended while its worker lives.
pub const EXPIRY_MARGIN_MS: i64 = 7 * DAY_MS;

/// The state of the machine, as the provider reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// It runs or is starting.
    Alive,
    /// It is shutting down.
    Ending,
    /// It ran and has ended, with the reason if it is known.
    Ended(Option<String>),
    /// The provider knows no such machine.
    NotFound,
}

/// The facts of the queue about the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueFacts<'a> {
    /// The queue could not be asked.
    Unknown,
    /// The worker never claimed anything.
    NeverSeen,
    Seen(&'a QueueWorker),
}

/// For how long machines and workers were observed without a gap. After an outage, or when the
/// clock was set, missing activity proves nothing for a while.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attention {
    /// When the check of the machine began. The decision is made for this time, however long it
    /// took.
    pub looked: Timestamp,
    /// Since when the activity of a worker would have been noticed.
    pub listening: Timestamp,
    /// When the clock was last found to have been set, or the process to have been suspended.
    pub gap: Option<Timestamp>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Judgement {
    /// No change.
    Keep { extend_expiry: bool },
    /// Its machine has ended.
    Stopped { reason: String },
    /// It must stop.
    End { reason: String },
    /// It was asked to stop, and its machine still runs.
    EndAgain { reason: String },
}

/// `seen` is `None` if the machine could not be checked. Not for workers without a machine of ours:
/// these end when somebody removes them or when their row expires.
pub fn judge(
    worker: &Worker,
    seen: Option<MachineState>,
    queue: QueueFacts<'_>,
    attention: &Attention,
) -> Judgement {
    match worker.state {
        WorkerState::Stopped => Judgement::Keep {
            extend_expiry: false,
        },
        WorkerState::Stopping => judge_stopping(worker, seen, attention.looked),
        WorkerState::Requested | WorkerState::Running => {
            judge_living(worker, seen, queue, attention)
        }
    }
}

fn judge_living(
    worker: &Worker,
    seen: Option<MachineState>,
    queue: QueueFacts<'_>,
    attention: &Attention,
) -> Judgement {
    let now = attention.looked;
    let last_sign = Some(last_sign(worker, queue)).max(attention.gap);
    let is_newborn = last_sign.is_some_and(|sign| now.millis_since(sign) < NEWBORN_MS);
    match seen {
        Some(MachineState::Ended(why)) => return stopped(ended_reason(why)),
        Some(MachineState::NotFound) if !is_newborn => {
            return stopped("the cloud has no such machine".to_owned());
        }
        Some(MachineState::Ending) => {
            return Judgement::End {
                reason: "its machine is shutting down".to_owned(),
            };
        }
        Some(MachineState::Alive | MachineState::NotFound) | None => {}
    }
    let silence = || inactivity_reason(worker, queue, attention);
    let over = match worker.state {
        WorkerState::Requested => never_registered(worker, now),
        WorkerState::Running => age_reason(worker, now).or_else(silence),
        WorkerState::Stopping | WorkerState::Stopped => None,
    };
    match over {
        Some(reason) => Judgement::End { reason },
        None => Judgement::Keep {
            extend_expiry: worker.expires.millis_since(now) < EXPIRY_MARGIN_MS,
        },
    }
}

/// The last time at which anything proved that its machine exists.
fn last_sign(worker: &Worker, queue: QueueFacts<'_>) -> Timestamp {
    let registered = worker.terms.registered_at.map(Timestamp::from_millis);
    let active = match queue {
        QueueFacts::Seen(seen) => seen.last_date_active,
        QueueFacts::Unknown | QueueFacts::NeverSeen => None,
    };
    worker
        .created
        .max(registered.unwrap_or(worker.created))
        .max(active.unwrap_or(worker.created))
}

fn judge_stopping(worker: &Worker, seen: Option<MachineState>, now: Timestamp) -> Judgement {
    let since = worker.terms.stopped_at.map(Timestamp::from_millis);
    let since = since.unwrap_or(worker.last_modified);
    let waited_ms = now.millis_since(since);
    let hours = waited_ms / HOUR_MS;
    match seen {
        Some(MachineState::Ended(why)) => stopped(ended_reason(why)),
        Some(MachineState::NotFound) => stopped("the cloud no longer has this machine".to_owned()),
        Some(MachineState::Alive | MachineState::Ending) if waited_ms > ENDING_MS => {
            Judgement::EndAgain {
                reason: format!("asked to stop {hours} h ago, and its machine still exists"),
            }
        }
        None if waited_ms > UNSEEN_ENDING_MS => stopped(format!(
            "asked to stop {hours} h ago, and its machine could not be checked since"
        )),
        Some(MachineState::Alive | MachineState::Ending) | None => Judgement::Keep {
            extend_expiry: false,
        },
    }
}

fn stopped(reason: String) -> Judgement {
    Judgement::Stopped { reason }
}

fn ended_reason(why: Option<String>) -> String {
    match why {
        Some(why) => format!("its machine ended: {why}"),
        None => "its machine ended".to_owned(),
    }
}

/// Before a worker can claim work it shows no activity, so the limit is the same as after
/// registering.
fn never_registered(worker: &Worker, now: Timestamp) -> Option<String> {
    let terms = &worker.terms;
    let stated = terms.terminate_after.map(Timestamp::from_millis);
    let stated = stated.unwrap_or_else(|| worker.created.plus_millis(DEFAULT_REREGISTRATION_MS));
    let limit = stated.min(worker.created.plus_millis(inactivity_ms(worker)));
    (limit < now).then(|| {
        let seconds = limit.millis_since(worker.created) / SECOND_MS;
        format!("never registered within {seconds}s")
    })
}

fn age_reason(worker: &Worker, now: Timestamp) -> Option<String> {
    let limit = Timestamp::from_millis(worker.terms.terminate_after?);
    (limit < now).then(|| "terminateAfter time exceeded".to_owned())
}

/// The worker runs and does not ask for work. The time before it registered does not count.
fn inactivity_reason(
    worker: &Worker,
    queue: QueueFacts<'_>,
    attention: &Attention,
) -> Option<String> {
    let now = attention.looked;
    let registered = worker.terms.registered_at.map(Timestamp::from_millis);
    let registered = registered.unwrap_or(worker.created);
    let (name, limit_ms, since, silence) = match queue {
        QueueFacts::Unknown => return None,
        QueueFacts::Seen(seen) if seen.is_quarantined(now) => return None,
        QueueFacts::NeverSeen => {
            let (name, limit_ms) = first_claim_limit(worker, now.millis_since(registered));
            let silence = format!("worker never claimed work, created={}", worker.created);
            (name, limit_ms, registered, silence)
        }
        QueueFacts::Seen(seen) => {
            let active = seen.last_date_active.unwrap_or(seen.first_claim);
            let silence = format!("worker inactive, lastDateActive={active}");
            let since = active.max(registered);
            (INACTIVITY, inactivity_ms(worker), since, silence)
        }
    };
    let is_heard = now.millis_since(attention.listening) > limit_ms.min(HEARD_MS);
    let is_over = is_heard && now.millis_since(since) > limit_ms;
    is_over.then(|| format!("{silence}, {name}={}s", limit_ms / SECOND_MS))
}

/// How long a registered worker may not ask for work before it counts as broken: the shorter of
/// both limits. If it registered long ago, the queue may have forgotten that it asked, so only the
/// second limit counts.
fn first_claim_limit(worker: &Worker, registered_for_ms: i64) -> (&'static str, i64) {
    let stated = worker.terms.first_claim_timeout;
    let first_claim_ms = stated.filter(|ms| *ms > 0);
    let first_claim_ms = first_claim_ms.unwrap_or(DEFAULT_FIRST_CLAIM_MS);
    let inactivity_ms = inactivity_ms(worker);
    match first_claim_ms < inactivity_ms && registered_for_ms < QUEUE_MEMORY_MS {
        true => ("firstClaimTimeout", first_claim_ms),
        false => (INACTIVITY, inactivity_ms),
    }
}

fn inactivity_ms(worker: &Worker) -> i64 {
    let stated = worker.terms.queue_inactivity_timeout;
    stated.filter(|ms| *ms > 0).unwrap_or(DEFAULT_INACTIVITY_MS)
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::Version;
    use crate::id::WorkerKey;
    use crate::worker::Terms;

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
    fn worker(state: WorkerState) -> Worker {
        let stopping = state >= WorkerState::Stopping;
        Worker {
            key: key(),
            provider_id: "cloud".parse().unwrap(),
            launch_config_id: None,
            state,
            capacity: 1,
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

    fn of(worker: &Worker, seen: Option<MachineState>) -> String {
        short(&judge(worker, seen, QueueFacts::Unknown, &at(ago(0))))
    }

    fn with_queue(worker: &Worker, queue: QueueFacts<'_>) -> String {
        short(&judge(
            worker,
            Some(MachineState::Alive),
            queue,
            &at(ago(0)),
        ))
    }

    #[test]
    fn every_state_and_every_sighting_has_its_judgement() {
        let sightings = || {
            [
                None,
                Some(MachineState::Alive),
                Some(MachineState::Ending),
                Some(MachineState::Ended(None)),
                Some(MachineState::Ended(Some("spot price".to_owned()))),
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
        let found = |worker: &Worker, queue: QueueFacts<'_>| {
            let seen = Some(MachineState::NotFound);
            short(&judge(worker, seen, queue, &at(ago(0))))
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
        let old = worker(WorkerState::Running);
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
        let ends_after = |worker: &Worker, ms: i64| {
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
            let old = Worker {
                expires: ago(0),
                ..worker(state)
            };
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
        let mut worker = worker(WorkerState::Requested);
        let mut n_days = 0;
        while worker.state != WorkerState::Stopped {
            now = now.plus_millis(DAY_MS);
            n_days += 1;
            assert!(n_days < 10, "{:?}", worker.state);
            match judge(&worker, None, QueueFacts::Unknown, &at(now)) {
                Judgement::Keep { .. } => {}
                Judgement::End { .. } => worker.leave(WorkerState::Stopping, now),
                Judgement::Stopped { .. } => worker.leave(WorkerState::Stopped, now),
                Judgement::EndAgain { reason } => panic!("nobody saw it: {reason}"),
            }
        }
        assert!(n_days <= 3);
    }
}
