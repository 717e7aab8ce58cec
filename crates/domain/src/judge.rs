//! The decision of a scan about one worker, from facts of its machine and the queue.
//!
//! Every state that is not final ends without outside help. A requested or running worker is asked
//! to stop after a limit. A worker that was asked to stop counts as stopped when its machine could
//! not be checked for a day. A machine that the cloud still lists is ended again and again until
//! the cloud no longer lists it or its row expires. After that it is a machine without a row, and
//! the sweep of our machines ends it.

mod news;

pub use news::{Work, end_news};

use crate::launch::Cause;
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
/// It then expires this much later than now.
pub const EXTENDED_LIFE_MS: i64 = 8 * DAY_MS;

/// The state of the machine, as the provider reports it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MachineState {
    /// It exists, or is starting.
    Alive,
    /// It is shutting down.
    Ending,
    /// It ran and has ended.
    Ended(MachineEnd),
    /// The provider knows no such machine. This says nothing about a machine that was just made.
    NotFound,
}

/// The end of a machine, as far as its provider knows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct MachineEnd {
    pub why: Option<String>,
    pub at: Option<Timestamp>,
    /// Why the cloud could not make the machine, after it had accepted the launch.
    pub cause: Option<Cause>,
}

impl MachineEnd {
    /// An end at an unknown time.
    pub fn because(why: Option<String>) -> Self {
        Self {
            why,
            ..Self::default()
        }
    }

    /// The end of a machine that could not be made.
    pub fn not_made(why: String, cause: Option<Cause>) -> Self {
        Self {
            cause,
            ..Self::because(Some(why))
        }
    }
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
/// these live until somebody removes them.
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
        Some(MachineState::Ended(end)) => return stopped(ended_reason(end.why)),
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
        WorkerState::Requested => never_registered(worker, attention),
        WorkerState::Running => age_reason(worker, attention).or_else(silence),
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
        Some(MachineState::Ended(end)) => stopped(ended_reason(end.why)),
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
fn never_registered(worker: &Worker, attention: &Attention) -> Option<String> {
    let terms = &worker.terms;
    let stated = terms.terminate_after.map(Timestamp::from_millis);
    let stated = stated.unwrap_or_else(|| worker.created.plus_millis(DEFAULT_REREGISTRATION_MS));
    let limit = stated.min(worker.created.plus_millis(inactivity_ms(worker)));
    is_over(limit, worker.created, attention).then(|| {
        let seconds = limit.millis_since(worker.created) / SECOND_MS;
        format!("never registered within {seconds}s")
    })
}

fn age_reason(worker: &Worker, attention: &Attention) -> Option<String> {
    let limit = Timestamp::from_millis(worker.terms.terminate_after?);
    let registered = worker.terms.registered_at.map(Timestamp::from_millis);
    let since = registered.unwrap_or(worker.created);
    let is_over = is_over(limit, since, attention);
    is_over.then(|| "terminateAfter time exceeded".to_owned())
}

/// Whether a limit has passed that a worker got at this time. After a gap the worker has all of the
/// time once more: if the clock was set forward, it has not had it yet. That ends after a day, as
/// gaps may follow each other without end: a server that runs for some minutes of each day.
fn is_over(limit: Timestamp, since: Timestamp, attention: &Attention) -> bool {
    let again = |gap: Timestamp| {
        let again = gap.plus_millis(limit.millis_since(since));
        again.min(limit.plus_millis(DAY_MS))
    };
    limit.max(attention.gap.map_or(limit, again)) < attention.looked
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
mod tests;
