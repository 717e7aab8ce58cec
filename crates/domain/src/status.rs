//! "Is all well?": what is wrong now, with what the program does about it and what people can do.

mod find;
mod images;

pub use find::{
    ENDS_SOON_MS, ErrorRate, FailingLaunchConfig, LatePart, QuarantinedWorkers, of_budget,
    of_error_rate, of_launch_config, of_override, of_part, of_pause, of_provider,
    of_provider_refusals, of_quarantine, of_relay, of_unknown_queue, of_wait,
};

pub use images::{of_canary, of_standing, of_step, of_unreadable};

use crate::id::{
    BudgetId, ImageName, LaunchConfigId, OverrideId, PoolId, ProviderId, RelayId, names,
};
use crate::time::Timestamp;

/// How bad a problem is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Something does not work.
    Ill,
    /// Something works less well, or will stop to.
    Warned,
}

names! {
    Severity, "not one of ill, warned",
    Ill = "ill",
    Warned = "warned",
}

/// The kind of a problem. Programs may rely on these names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemKind {
    PlannerLate,
    EventsLate,
    SeriesLate,
    ClockWrong,
    QueueSilent,
    UnknownQueue,
    ProviderOutOfService,
    ProviderRefuses,
    ProviderThrottled,
    TasksWait,
    LaunchConfigShutOff,
    LaunchConfigPaused,
    BudgetSpent,
    BudgetNear,
    ErrorsNew,
    ErrorsRising,
    ImageBuildFailed,
    ImageUploadFailed,
    ImageRolledBack,
    ImageUnreadable,
    ImageWithoutBuilder,
    CanaryExpired,
    RelaySilent,
    WorkersQuarantined,
    OverrideEnds,
}

names! {
    ProblemKind, "not a kind of problem",
    PlannerLate = "planner-late",
    EventsLate = "events-late",
    SeriesLate = "series-late",
    ClockWrong = "clock-wrong",
    QueueSilent = "queue-silent",
    UnknownQueue = "unknown-queue",
    ProviderOutOfService = "provider-out-of-service",
    ProviderRefuses = "provider-refuses",
    ProviderThrottled = "provider-throttled",
    TasksWait = "tasks-wait",
    LaunchConfigShutOff = "launch-config-shut-off",
    LaunchConfigPaused = "launch-config-paused",
    BudgetSpent = "budget-spent",
    BudgetNear = "budget-near",
    ErrorsNew = "errors-new",
    ErrorsRising = "errors-rising",
    ImageBuildFailed = "image-build-failed",
    ImageUploadFailed = "image-upload-failed",
    ImageRolledBack = "image-rolled-back",
    ImageUnreadable = "image-unreadable",
    ImageWithoutBuilder = "image-without-builder",
    CanaryExpired = "canary-expired",
    RelaySilent = "relay-silent",
    WorkersQuarantined = "workers-quarantined",
    OverrideEnds = "override-ends",
}

impl ProblemKind {
    /// The scope without which a caller does not see problems of this kind.
    pub fn scope(self) -> Option<&'static str> {
        match self {
            Self::BudgetSpent | Self::BudgetNear => Some("worker-manager:list-budgets"),
            Self::RelaySilent => Some("worker-manager:list-relays"),
            // A pause is an override, with the words of a person.
            Self::OverrideEnds | Self::LaunchConfigPaused => Some("worker-manager:list-overrides"),
            Self::ImageBuildFailed
            | Self::ImageUploadFailed
            | Self::ImageRolledBack
            | Self::ImageUnreadable
            | Self::ImageWithoutBuilder
            | Self::CanaryExpired => Some("fleetwright:list-images"),
            Self::PlannerLate
            | Self::EventsLate
            | Self::SeriesLate
            | Self::ClockWrong
            | Self::QueueSilent
            | Self::UnknownQueue
            | Self::ProviderOutOfService
            | Self::ProviderRefuses
            | Self::ProviderThrottled
            | Self::TasksWait
            | Self::LaunchConfigShutOff
            | Self::ErrorsNew
            | Self::ErrorsRising
            | Self::WorkersQuarantined => None,
        }
    }
}

/// The object that a problem is about.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProblemSubject {
    Pool(PoolId),
    LaunchConfig(PoolId, LaunchConfigId),
    Provider(ProviderId),
    Image(ImageName),
    Budget(BudgetId),
    Relay(RelayId),
    Override(OverrideId),
    /// A part of the program.
    Process(&'static str),
}

impl ProblemSubject {
    pub fn pool(&self) -> Option<&PoolId> {
        match self {
            Self::Pool(id) | Self::LaunchConfig(id, _) => Some(id),
            Self::Provider(_)
            | Self::Image(_)
            | Self::Budget(_)
            | Self::Relay(_)
            | Self::Override(_)
            | Self::Process(_) => None,
        }
    }
}

/// Something that is wrong now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FleetProblem {
    pub kind: ProblemKind,
    pub severity: Severity,
    /// `None`: it is not recorded since when.
    pub since: Option<Timestamp>,
    /// A sentence.
    pub reason: String,
    /// Words of a provider or a worker, for callers that may read the errors of the pool.
    pub words: Option<String>,
    /// The next step of the program by itself, and its time.
    pub next: Option<String>,
    /// A command for people.
    pub action: Option<String>,
    pub subject: ProblemSubject,
    /// The tasks that wait because of it, if it is known.
    pub n_waiting: u64,
}

/// Ill before warned; then by the number of waiting tasks, by kind, and by age.
pub fn sort_worst_first(problems: &mut [FleetProblem]) {
    problems.sort_by(|one, other| {
        let order = |it: &FleetProblem| (it.severity, u64::MAX - it.n_waiting, it.kind);
        let unknown = Timestamp::from_millis(i64::MAX);
        let since = |it: &FleetProblem| it.since.unwrap_or(unknown);
        order(one)
            .cmp(&order(other))
            .then_with(|| since(one).cmp(&since(other)))
            .then_with(|| one.subject.cmp(&other.subject))
    });
}
