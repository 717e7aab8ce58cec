//! Makes problems of facts; `None`: the fact is no problem.

use super::{FleetProblem, ProblemKind, ProblemSubject, Severity};
use crate::budgets::{BudgetStep, MoneyBudget, counted};
use crate::id::{LaunchConfigId, PoolId, ProviderId};
use crate::launch::Cause;
use crate::overrides::Override;
use crate::plan::Usability;
use crate::relay::Relay;
use crate::time::{HOUR_MS, Timestamp};
use crate::waits::WaitCause;

/// An override that ends within this time is named.
pub const ENDS_SOON_MS: i64 = HOUR_MS;
/// Fewer errors of an hour are no rise.
const RISING_FROM: u64 = 10;
/// A rise is this many times the usual number of an hour.
const RISE_FACTOR: u64 = 3;
/// The hours before the last one with which the last one is compared.
const USUAL_HOURS: u64 = 23;

/// A problem without a proposal.
pub(super) fn problem(
    kind: ProblemKind,
    severity: Severity,
    subject: ProblemSubject,
    reason: String,
) -> FleetProblem {
    FleetProblem {
        kind,
        severity,
        since: None,
        reason,
        words: None,
        next: None,
        action: None,
        subject,
        n_waiting: 0,
    }
}

/// Tasks of a pool wait for a cause that does not pass by itself soon.
pub fn of_wait(
    pool: &PoolId,
    n_waiting: u64,
    cause: WaitCause,
    since: Option<Timestamp>,
) -> Option<FleetProblem> {
    let (severity, because) = match cause {
        WaitCause::Deciding
        | WaitCause::Asked
        | WaitCause::Booting
        | WaitCause::Claim
        | WaitCause::Busy
        | WaitCause::Dependencies
        | WaitCause::Unrecorded
        // A problem of its own.
        | WaitCause::PlannerLate
        | WaitCause::UnknownQueue => return None,
        WaitCause::Maximum => (Severity::Warned, "the pool is at its maximum"),
        WaitCause::Paused => (Severity::Warned, "its launch configs are paused"),
        WaitCause::Budget => (Severity::Warned, "a budget is spent"),
        WaitCause::Quota => (Severity::Warned, "a quota of the provider is used up"),
        WaitCause::Price => (Severity::Ill, "no bid is under the maximum price"),
        WaitCause::Refused => (Severity::Ill, "every launch config is refused"),
        WaitCause::OutOfService => (Severity::Ill, "its provider is out of service"),
        WaitCause::NoLaunchConfig => (Severity::Ill, "it has no launch config that can be used"),
        WaitCause::Silent => (Severity::Ill, "its workers do not ask for work"),
        WaitCause::Quarantined => (Severity::Ill, "its workers are quarantined"),
    };
    let next = match cause {
        WaitCause::Quota | WaitCause::Refused => "the launch configs are tried again",
        WaitCause::OutOfService => "the provider is set up again, each minute",
        WaitCause::Paused => "the pause ends by itself",
        WaitCause::Budget => "the next period of the budget begins",
        WaitCause::Silent => "silent workers are ended",
        WaitCause::Quarantined => "the quarantine ends by itself",
        WaitCause::Price => "bids are asked for again in each round",
        WaitCause::NoLaunchConfig => "the pool is planned again when its launch configs change",
        WaitCause::Maximum
        | WaitCause::Deciding
        | WaitCause::PlannerLate
        | WaitCause::UnknownQueue
        | WaitCause::Asked
        | WaitCause::Booting
        | WaitCause::Claim
        | WaitCause::Busy
        | WaitCause::Dependencies
        | WaitCause::Unrecorded => "tasks run as workers become free",
    };
    if n_waiting == 0 {
        return None;
    }
    let (tasks, wait) = match n_waiting {
        1 => ("task", "waits"),
        _ => ("tasks", "wait"),
    };
    let reason = format!("{n_waiting} {tasks} {wait} in {pool}: {because}");
    Some(FleetProblem {
        since,
        next: Some(next.to_owned()),
        action: Some(format!("fleetwright explain pool {pool}")),
        n_waiting,
        ..problem(
            ProblemKind::TasksWait,
            severity,
            ProblemSubject::Pool(pool.clone()),
            reason,
        )
    })
}

/// Tasks wait in a queue without a pool.
pub fn of_unknown_queue(queue: &PoolId, n_waiting: u64) -> FleetProblem {
    let subject = ProblemSubject::Pool(queue.clone());
    let reason = format!("{n_waiting} tasks wait in {queue}, and no worker pool has this name");
    FleetProblem {
        next: Some("the tasks end at their deadlines".to_owned()),
        action: Some("fleetwright pool list".to_owned()),
        n_waiting,
        ..problem(ProblemKind::UnknownQueue, Severity::Ill, subject, reason)
    }
}

/// A launch config whose launches failed.
pub struct FailingLaunchConfig<'a> {
    pub pool: &'a PoolId,
    pub id: &'a LaunchConfigId,
    pub usability: Usability,
    /// The most frequent cause, and its machines.
    pub cause: &'a str,
    pub machines: u64,
    pub words: &'a str,
    pub since: Option<Timestamp>,
    pub n_waiting: u64,
}

/// It is shut off while tasks wait, or it is not used for a while.
pub fn of_launch_config(failing: &FailingLaunchConfig<'_>) -> Option<FleetProblem> {
    if !failing.usability.is_failing() {
        return None;
    }
    let (pool, id) = (failing.pool, failing.id);
    let severity = match failing.n_waiting {
        0 => Severity::Warned,
        _ => Severity::Ill,
    };
    let subject = ProblemSubject::LaunchConfig(pool.clone(), id.clone());
    let reason = format!(
        "launch config {id} of {pool} is {}: {} failed ({})",
        failing.usability.as_str(),
        counted(failing.machines),
        failing.cause
    );
    let next = match failing.usability.next_try() {
        Some(at) => format!("it is tried again with one machine at {at}"),
        None => "it is tried with one machine when capacity is needed".to_owned(),
    };
    Some(FleetProblem {
        since: failing.since,
        words: Some(failing.words.to_owned()).filter(|words| !words.is_empty()),
        next: Some(next),
        action: Some(format!("fleetwright explain launch-config {pool} {id}")),
        ..problem(ProblemKind::LaunchConfigShutOff, severity, subject, reason)
    })
}

/// An override pauses launch configs.
pub fn of_pause(pause: &Override, subject: ProblemSubject) -> FleetProblem {
    FleetProblem {
        since: Some(pause.created),
        next: Some(format!("the pause ends at {}", pause.until)),
        action: Some(format!("fleetwright override remove {}", pause.id)),
        ..problem(
            ProblemKind::LaunchConfigPaused,
            Severity::Warned,
            subject,
            pause.pause_text(),
        )
    }
}

/// An override ends soon.
pub fn of_override(given: &Override, now: Timestamp) -> Option<FleetProblem> {
    if !given.is_in_force(now) || given.until.millis_since(now) > ENDS_SOON_MS {
        return None;
    }
    let reason = format!(
        "override {} ends at {}: {}",
        given.id, given.until, given.reason
    );
    Some(FleetProblem {
        since: Some(given.created),
        next: Some("the values of the rules hold again then".to_owned()),
        action: Some(format!("fleetwright override show {}", given.id)),
        ..problem(
            ProblemKind::OverrideEnds,
            Severity::Warned,
            ProblemSubject::Override(given.id.clone()),
            reason,
        )
    })
}

/// A provider that is out of service. Since when is not recorded.
pub fn of_provider(id: &ProviderId, error: &str) -> FleetProblem {
    FleetProblem {
        words: Some(error.to_owned()).filter(|words| !words.is_empty()),
        next: Some("it is set up again, each minute".to_owned()),
        action: Some("fleetwright doctor".to_owned()),
        ..problem(
            ProblemKind::ProviderOutOfService,
            Severity::Ill,
            ProblemSubject::Provider(id.clone()),
            format!("provider {id} is out of service"),
        )
    }
}

/// A provider that refused launches lately for a cause that no launch config is to blame for.
pub fn of_provider_refusals(
    id: &ProviderId,
    cause: Cause,
    machines: u64,
    since: Timestamp,
) -> Option<FleetProblem> {
    let (kind, severity, text) = match cause {
        Cause::Throttled => (
            ProblemKind::ProviderThrottled,
            Severity::Warned,
            "it was asked too often",
        ),
        Cause::Credentials => (
            ProblemKind::ProviderRefuses,
            Severity::Ill,
            "it does not accept our credentials",
        ),
        Cause::Unavailable => (
            ProblemKind::ProviderRefuses,
            Severity::Ill,
            "it does not work",
        ),
        Cause::Capacity | Cause::Quota | Cause::Configuration | Cause::Lost => return None,
    };
    let action = if cause == Cause::Credentials {
        "fleetwright doctor"
    } else {
        "fleetwright health --by cause"
    };
    let reason = format!("provider {id} refused {machines} machines in the last hour: {text}");
    Some(FleetProblem {
        since: Some(since),
        next: Some("launches are tried again after a pause".to_owned()),
        action: Some(action.to_owned()),
        ..problem(kind, severity, ProblemSubject::Provider(id.clone()), reason)
    })
}

/// A budget that is spent, or nearly.
pub fn of_budget(budget: &MoneyBudget, now: Timestamp) -> Option<FleetProblem> {
    let state = budget.state(now);
    let (kind, severity) = match state.step {
        BudgetStep::Within => return None,
        BudgetStep::Warned | BudgetStep::Lowered => (ProblemKind::BudgetNear, Severity::Warned),
        BudgetStep::Spent => (ProblemKind::BudgetSpent, Severity::Ill),
    };
    Some(FleetProblem {
        next: Some(format!("the next period begins at {}", state.span.end)),
        action: Some(format!("fleetwright budget show {}", budget.id)),
        ..problem(
            kind,
            severity,
            ProblemSubject::Budget(budget.id.clone()),
            budget.text(now),
        )
    })
}

/// The errors of a pool with one title and code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorRate {
    pub pool: PoolId,
    pub title: String,
    pub code: String,
    /// In the last hour, and in the 23 hours before it.
    pub in_hour: u64,
    pub before: u64,
    /// The first of the last hour.
    pub first: Timestamp,
}

/// Errors that were not there the day before, or are much more than usual.
pub fn of_error_rate(rate: &ErrorRate) -> Option<FleetProblem> {
    let (pool, title) = (&rate.pool, &rate.title);
    let is_rise = rate.in_hour >= RISING_FROM
        && rate.in_hour.saturating_mul(USUAL_HOURS) >= rate.before.saturating_mul(RISE_FACTOR);
    let (kind, text) = match rate.before {
        _ if rate.in_hour == 0 => return None,
        0 => (ProblemKind::ErrorsNew, "none in the day before".to_owned()),
        before if is_rise => (
            ProblemKind::ErrorsRising,
            format!("{before} in the 23 hours before"),
        ),
        _ => return None,
    };
    let reason = format!("{} errors in {pool} in the last hour, {text}", rate.in_hour);
    Some(FleetProblem {
        since: Some(rate.first),
        words: Some(format!("{title} ({})", rate.code)),
        action: Some(format!("fleetwright error list {pool}")),
        ..problem(
            kind,
            Severity::Warned,
            ProblemSubject::Pool(pool.clone()),
            reason,
        )
    })
}

/// A relay that is silent.
pub fn of_relay(relay: &Relay, now: Timestamp) -> Option<FleetProblem> {
    let since = relay.silent_since(now)?;
    let id = &relay.id;
    Some(FleetProblem {
        since: Some(since),
        next: Some("hosts behind it get no credentials until it announces itself".to_owned()),
        action: Some(format!("fleetwright relay show {id}")),
        ..problem(
            ProblemKind::RelaySilent,
            Severity::Ill,
            ProblemSubject::Relay(id.clone()),
            format!("relay {id} is silent since {since}"),
        )
    })
}

/// Workers of a pool that are quarantined.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QuarantinedWorkers {
    pub pool: PoolId,
    pub count: u64,
    /// When the first of these quarantines ends.
    pub first_end: Timestamp,
}

pub fn of_quarantine(quarantined: &QuarantinedWorkers) -> FleetProblem {
    let (pool, count) = (&quarantined.pool, quarantined.count);
    let workers = if count == 1 {
        "worker of"
    } else {
        "workers of"
    };
    let are = if count == 1 { "is" } else { "are" };
    FleetProblem {
        next: Some(format!(
            "the first quarantine ends at {}",
            quarantined.first_end
        )),
        action: Some(format!("fleetwright worker list {pool} --quarantined")),
        ..problem(
            ProblemKind::WorkersQuarantined,
            Severity::Warned,
            ProblemSubject::Pool(pool.clone()),
            format!("{count} {workers} {pool} {are} quarantined"),
        )
    }
}

/// A duty that no process fulfils, as its results show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LatePart {
    Planner,
    Events,
    Series,
    Clock,
    /// An outside queue.
    Queue,
}

pub fn of_part(part: LatePart, since: Option<Timestamp>, detail: &str) -> FleetProblem {
    let (kind, role, text) = match part {
        LatePart::Planner => (ProblemKind::PlannerLate, "provisioner", "no server plans"),
        LatePart::Events => (
            ProblemKind::EventsLate,
            "publisher",
            "events are not published",
        ),
        LatePart::Series => (
            ProblemKind::SeriesLate,
            "housekeeper",
            "no series are recorded",
        ),
        LatePart::Clock => (ProblemKind::ClockWrong, "clock", "the time may be wrong"),
        LatePart::Queue => (
            ProblemKind::QueueSilent,
            "queue",
            "the queue does not say how much waits",
        ),
    };
    let severity = match part {
        LatePart::Planner | LatePart::Events | LatePart::Queue => Severity::Ill,
        LatePart::Series | LatePart::Clock => Severity::Warned,
    };
    let reason = match detail {
        "" => text.to_owned(),
        detail => format!("{text}: {detail}"),
    };
    FleetProblem {
        since,
        action: Some("fleetwright doctor".to_owned()),
        ..problem(kind, severity, ProblemSubject::Process(role), reason)
    }
}

#[cfg(test)]
mod tests {
    use testing::sizes_around;

    use super::super::sort_worst_first;
    use super::*;

    fn at(ms: i64) -> Timestamp {
        Timestamp::from_millis(ms)
    }

    fn pool() -> PoolId {
        "demo/linux".parse().unwrap()
    }

    #[test]
    fn a_wait_is_a_problem_unless_workers_are_starting() {
        let problems = WaitCause::ALL.map(|cause| of_wait(&pool(), 3, cause, Some(at(1))));
        let shown = WaitCause::ALL.iter().zip(&problems);
        let shown = shown.filter_map(|(cause, problem)| {
            let problem = problem.as_ref()?;
            Some(format!("{} {cause}: {}", problem.severity, problem.reason))
        });
        insta::assert_snapshot!(shown.collect::<Vec<_>>().join("\n"), @r"
        warned maximum: 3 tasks wait in demo/linux: the pool is at its maximum
        warned paused: 3 tasks wait in demo/linux: its launch configs are paused
        warned budget: 3 tasks wait in demo/linux: a budget is spent
        warned quota: 3 tasks wait in demo/linux: a quota of the provider is used up
        ill refused: 3 tasks wait in demo/linux: every launch config is refused
        ill price: 3 tasks wait in demo/linux: no bid is under the maximum price
        ill out-of-service: 3 tasks wait in demo/linux: its provider is out of service
        ill no-launch-config: 3 tasks wait in demo/linux: it has no launch config that can be used
        ill silent: 3 tasks wait in demo/linux: its workers do not ask for work
        ill quarantined: 3 tasks wait in demo/linux: its workers are quarantined
        ");
        assert_eq!(of_wait(&pool(), 0, WaitCause::Refused, None), None);
    }

    #[test]
    fn errors_are_new_or_rising_or_usual() {
        let kind = |in_hour, before| {
            let rate = ErrorRate {
                pool: pool(),
                title: "t".to_owned(),
                code: "c".to_owned(),
                in_hour,
                before,
                first: at(0),
            };
            of_error_rate(&rate).map(|problem| problem.kind)
        };
        assert_eq!(kind(0, 0), None);
        assert_eq!(kind(0, 9), None);
        assert_eq!(kind(1, 0), Some(ProblemKind::ErrorsNew));
        // Ten an hour, after one an hour or seven an hour.
        assert_eq!(kind(10, 23), Some(ProblemKind::ErrorsRising));
        assert_eq!(kind(9, 23), None);
        assert_eq!(kind(10, 7 * 23), None);
        assert_eq!(kind(30, 10 * 23), Some(ProblemKind::ErrorsRising));
        assert_eq!(kind(29, 10 * 23), None);
    }

    #[test]
    fn a_launch_config_is_ill_if_tasks_wait_for_it() {
        let id = "lc".parse().unwrap();
        let of = |usability, n_waiting| {
            let problem = of_launch_config(&FailingLaunchConfig {
                pool: &pool(),
                id: &id,
                usability,
                cause: "capacity",
                machines: 4,
                words: "",
                since: None,
                n_waiting,
            });
            problem.map(|problem| (problem.severity, problem.next.unwrap()))
        };
        let shut = Usability::ShutOff { until: at(HOUR_MS) };
        let (severity, next) = of(shut, 1).unwrap();
        assert_eq!(severity, Severity::Ill);
        assert_eq!(
            next,
            "it is tried again with one machine at 1970-01-01T01:00:00.000Z"
        );
        assert_eq!(of(shut, 0).unwrap().0, Severity::Warned);
        assert_eq!(of(Usability::Usable, 5), None);
        assert_eq!(of(Usability::Unusable, 5), None);
    }

    #[test]
    fn the_worst_come_first() {
        let mut problems = vec![
            of_part(LatePart::Series, Some(at(9)), ""),
            of_wait(&pool(), 3, WaitCause::Maximum, Some(at(1))).unwrap(),
            of_part(LatePart::Planner, Some(at(9)), ""),
            of_wait(&pool(), 9, WaitCause::Maximum, Some(at(1))).unwrap(),
            of_wait(&pool(), 2, WaitCause::Refused, Some(at(1))).unwrap(),
        ];
        sort_worst_first(&mut problems);
        let shown = problems.iter().map(|it| (it.kind, it.n_waiting));
        assert_eq!(
            shown.collect::<Vec<_>>(),
            [
                (ProblemKind::TasksWait, 2),
                (ProblemKind::PlannerLate, 0),
                (ProblemKind::TasksWait, 9),
                (ProblemKind::TasksWait, 3),
                (ProblemKind::SeriesLate, 0),
            ]
        );
    }

    #[test]
    fn a_rise_is_large_and_many_times_the_usual() {
        let is_rise = |in_hour: usize, before: u64| {
            let rate = ErrorRate {
                pool: pool(),
                title: String::new(),
                code: String::new(),
                in_hour: in_hour as u64,
                before,
                first: at(0),
            };
            of_error_rate(&rate).is_some()
        };
        for count in sizes_around("domain::status::find::RISING_FROM", 10) {
            assert_eq!(is_rise(count, 23), count >= 10, "{count}");
        }
        for factor in sizes_around("domain::status::find::RISE_FACTOR", 3) {
            // Ten an hour are usual.
            assert_eq!(is_rise(10 * factor, 10 * 23), factor >= 3, "{factor}");
        }
    }
}
