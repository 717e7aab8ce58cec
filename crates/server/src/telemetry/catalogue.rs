//! Every metric, and the kinds of log records.

use engine::measures::{
    CLOCK_SKEW, CLOCK_STEPS, CLOUD_CALLS, CLOUD_RATE, DEMAND_FAILURES, IMAGE_STEPS, LAUNCHES,
    LEFTOVERS, LIFETIME_SECONDS, PHASE_SECONDS, POOL_PROVISION_SECONDS, PROVISION_SECONDS,
    REGISTRATION_FAILURES, REGISTRATION_SECONDS, REGISTRATIONS_REFUSED, STARTUP_SECONDS,
    STRATEGY_REQUESTS,
};

use super::{
    AUTH_FAILURE, AUTH_SUCCESS, BAD_OUTCOMES, BROKER_LAG, BROKER_UP, BROKER_WAITING, BUDGET_LEFT,
    BUDGET_LIMIT, BUDGET_SPENT, BUILD_INFO, CAPACITY, CAPACITY_MAXIMUM, CONNECTIONS_CLOSED,
    COST_PER_HOUR, COST_TODAY, EVENT_LISTENERS, EVENTS_PUBLISHED, EXISTING_CAPACITY, HTTP_REQUESTS,
    HTTP_SECONDS, IMAGE_AGE, IMAGE_BUILD_SECONDS, IMAGE_BUILDERS, IMAGE_BUILDS,
    IMAGE_BUILDS_RUNNING, IMAGE_CANARY_EVIDENCE, IMAGE_CANARY_STARTS, IMAGE_REQUESTS,
    IMAGE_UPLOAD_SECONDS, IMAGE_UPLOADS, NOTICES, NOTICES_UP, OLDEST_PENDING, OUTBOX_DEPTH,
    OUTCOMES, POOL_ERRORS, POOLS, PROBLEMS, PROVIDER_UP, REQUESTED_CAPACITY, SPANS,
    STOPPING_CAPACITY, TASK_AGE, TASK_SECONDS, TASKS, WAITING, WORKERS, taskcluster,
};
use crate::service::Service;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// Names, each with a description.
type Labels = &'static [(&'static str, &'static str)];

/// A metric at `/metrics`.
#[derive(Debug)]
pub struct Metric {
    /// `None`: of the entire process.
    pub service: Option<Service>,
    pub name: &'static str,
    pub kind: Kind,
    pub labels: Labels,
    pub description: &'static str,
}

/// A kind of log record that programs may look for.
#[derive(Debug)]
pub struct LogType {
    pub service: Option<Service>,
    pub name: &'static str,
    pub kind: &'static str,
    pub level: &'static str,
    pub title: &'static str,
    pub description: &'static str,
    pub fields: Labels,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Counter => "counter",
            Self::Gauge => "gauge",
            Self::Histogram => "histogram",
        }
    }
}

const CALL: Labels = &[
    ("service", "The service"),
    ("name", "The name of the endpoint"),
    ("method", "The HTTP method"),
    ("status", "The HTTP status of the reply"),
];
const POOL: Labels = &[
    ("workerPoolId", "The worker pool"),
    ("providerId", "Its provider"),
];
const OF_POOL: Labels = &[("workerPoolId", "The worker pool")];
const TASK_STATE: Labels = &[
    ("workerPoolId", "The worker pool"),
    ("state", "pending or running"),
];
const CAUSE: Labels = &[
    ("workerPoolId", "The worker pool"),
    ("cause", "As in `fleetwright wait`"),
];
const CAPACITY_STATE: Labels = &[
    ("workerPoolId", "The worker pool"),
    ("state", "requested, booting, idle, busy or leaving"),
];
const PROBLEM: Labels = &[
    ("kind", "As in `fleetwright status`"),
    ("severity", "ill or warned"),
];
const BUDGET: Labels = &[("budgetId", "The budget"), ("per", "hour, day or month")];
const PROVIDER: Labels = &[("providerId", "The provider")];
const CLOUD_CALL: Labels = &[
    ("providerId", "The provider"),
    ("region", "The region, or all"),
    ("call", "read, launch or end"),
];
const LEFTOVER: Labels = &[
    ("providerId", "The provider"),
    ("region", "The region, or all"),
    ("kind", "disk, volume, address, interface or deployment"),
];
const CLOUD_OUTCOME: Labels = &[
    ("providerId", "The provider"),
    ("region", "The region, or all"),
    ("call", "read, launch or end"),
    (
        "outcome",
        "answered, throttled by the cloud, or refused by our own limit",
    ),
];
const STRATEGY_OUTCOME: Labels = &[
    ("strategy", "The strategy service"),
    ("outcome", "answered, invalid, failed, paused or busy"),
];
const LAUNCH: Labels = &[
    ("providerId", "The provider"),
    (
        "outcome",
        "accepted, withdrawn, unknown, or the cause of a refusal",
    ),
];
const PHASE: Labels = &[
    ("workerPoolId", "The worker pool; others"),
    ("launchConfigId", "The launch config; others"),
    ("providerId", "Its provider; others"),
    ("region", "The region; others"),
    (
        "phase",
        "requested, accepted, registered or first-claim: the end of the step",
    ),
];
const NOTICE: Labels = &[
    ("channel", "email, or the webhook with its host"),
    ("outcome", "sent, failed, refused or given-up"),
];
const CLOSED: Labels = &[(
    "reason",
    "full: no place was left; address: too many of one address; heads: no memory for heads",
)];
const BUILD_OUTCOME: (&str, &str) = (
    "outcome",
    "ready, failed, or abandoned by a process that ended",
);
const IMAGE: (&str, &str) = ("imageId", "The image");
const TARGET: (&str, &str) = ("target", "A provider, and its region if it has several");
const CONFLICT: Labels = &[
    ("name", "The transaction"),
    ("statement", "The statement that conflicted"),
];
const STORE: Labels = &[("engine", "sqlite or postgres"), ("outcome", "ok or error")];

/// A row is the service, the kind, the name, the labels and the description of a metric.
macro_rules! metrics {
    ($($service:expr, $kind:ident, $name:expr, $labels:expr => $description:literal;)+) => {
        &[$(Metric {
            service: $service,
            kind: Kind::$kind,
            name: $name,
            labels: $labels,
            description: $description,
        }),+]
    };
}

const WM: Option<Service> = Some(Service::WorkerManager);
const AUTH: Option<Service> = Some(Service::Auth);

/// Every metric; a test compares this list with the recorded metrics.
pub static METRICS: &[Metric] = metrics! {
    None, Counter, HTTP_REQUESTS, CALL => "Requests answered.";
    None, Histogram, HTTP_SECONDS, CALL => "Seconds that requests took.";
    None, Counter, CONNECTIONS_CLOSED, CLOSED => "Connections closed to make room.";
    AUTH, Counter, AUTH_SUCCESS, &[] => "Valid signatures in authenticateHawk.";
    AUTH, Counter, AUTH_FAILURE, &[] => "Invalid signatures in authenticateHawk.";
    WM, Gauge, EXISTING_CAPACITY, POOL => "Capacity that is requested or running.";
    WM, Gauge, REQUESTED_CAPACITY, POOL => "Capacity that is requested.";
    WM, Gauge, STOPPING_CAPACITY, POOL => "Capacity that is stopping.";
    WM, Histogram, REGISTRATION_SECONDS, POOL =>
        "Seconds from a worker's creation to its registration.";
    WM, Histogram, PROVISION_SECONDS, POOL =>
        "Seconds from a worker's creation to its machine's start.";
    WM, Histogram, STARTUP_SECONDS, POOL => "Seconds from a machine's start to its registration.";
    WM, Histogram, LIFETIME_SECONDS, POOL => "Seconds from a worker's registration to its end.";
    WM, Histogram, LAUNCHES, LAUNCH => "Seconds that providers took to answer a launch.";
    WM, Histogram, PHASE_SECONDS, PHASE =>
        "Seconds that a step of a launched machine took. A process shows 200 launch configs.";
    WM, Counter, REGISTRATION_FAILURES, POOL => "Workers that ended without having registered.";
    WM, Counter, REGISTRATIONS_REFUSED, PROVIDER =>
        "Refused registrations; `unknown` for providers that are not configured.";
    WM, Counter, CLOUD_CALLS, CLOUD_OUTCOME => "Calls to clouds that have a rate limit.";
    WM, Gauge, CLOUD_RATE, CLOUD_CALL =>
        "Current limit of calls per second; lower after a cloud asked to slow down.";
    WM, Counter, LEFTOVERS, LEFTOVER =>
        "Removed resources with our tags that belonged to no machine any more.";
    WM, Gauge, POOLS, PROVIDER => "Worker pools, by provider.";
    WM, Gauge, WORKERS, &[("state", "The workers' state")] => "Workers, by state.";
    WM, Gauge, TASKS, TASK_STATE =>
        "Tasks of worker pools that wait for a worker or run; those that run only with our queue.";
    WM, Gauge, OLDEST_PENDING, OF_POOL =>
        "How long the task that waits longest has waited for a worker, in seconds.";
    WM, Gauge, WAITING, CAUSE => "Waiting tasks, by the cause for which the next one waits.";
    WM, Gauge, CAPACITY, CAPACITY_STATE => "Units of machines, each for one task at a time.";
    WM, Gauge, CAPACITY_MAXIMUM, OF_POOL => "Units that a pool may have, with overrides and budgets.";
    WM, Gauge, COST_PER_HOUR, OF_POOL => "Dollars that the machines of a pool cost in an hour now.";
    WM, Gauge, COST_TODAY, OF_POOL => "Dollars that the machines of a pool cost since midnight (UTC).";
    WM, Gauge, POOL_ERRORS, OF_POOL => "Errors that were reported in the last hour.";
    WM, Gauge, PROBLEMS, PROBLEM =>
        "Problems that the status shows; a kind without any is absent.";
    WM, Gauge, BUDGET_LIMIT, BUDGET => "Dollars that may be spent in a period.";
    WM, Gauge, BUDGET_SPENT, BUDGET => "Dollars that were spent in this period, at most.";
    WM, Gauge, BUDGET_LEFT, BUDGET => "Dollars that are left for an hour of new machines.";
    WM, Gauge, PROVIDER_UP, PROVIDER =>
        "1 if the provider is ready, 0 if its set-up has not succeeded.";
    None, Gauge, OUTBOX_DEPTH, &[] => "Events that wait to be published.";
    None, Gauge, EVENT_LISTENERS, &[] => "Listeners to the live stream of events, in this process.";
    None, Counter, NOTICES, NOTICE => "Attempts to send notices of errors in worker pools.";
    None, Gauge, NOTICES_UP, &[("channel", "email, or the webhook with its host")] =>
        "1 unless the last attempt to send a notice by this channel failed.";
    None, Counter, CLOCK_STEPS, &[] =>
        "How often the time stepped: the database's clock was set, or this machine was suspended.";
    None, Gauge, CLOCK_SKEW, &[] =>
        "How far the clock of this machine is ahead of the database's, in seconds.";
    None, Gauge, BROKER_UP, &[] =>
        "1 if the process that publishes to the AMQP broker can reach it.";
    None, Gauge, BROKER_WAITING, &[] => "Events that the AMQP broker has not confirmed yet.";
    None, Gauge, BROKER_LAG, &[] =>
        "Age of the oldest event that the AMQP broker has not confirmed yet, in seconds.";
    None, Counter, EVENTS_PUBLISHED, &[] =>
        "Events that the AMQP broker has confirmed to this process.";
    None, Counter, SPANS, &[("outcome", "sent, or dropped while the collector did not take them")] =>
        "Spans of traces.";
    WM, Counter, STRATEGY_REQUESTS, STRATEGY_OUTCOME => "Decisions that needed a strategy service.";
    WM, Counter, DEMAND_FAILURES, &[] => "Failed requests for a pool's demand to an outside queue.";
    WM, Counter, OUTCOMES, &[("outcome", "completed, failed or exception")] =>
        "Task runs on workers of pools whose outcome this process recorded.";
    WM, Counter, BAD_OUTCOMES, &[] => "Invalid messages of the queue about runs.";
    WM, Counter, IMAGE_BUILDS, &[IMAGE, BUILD_OUTCOME] =>
        "Builds of images that ended. Each server counts the builds of all builders.";
    WM, Histogram, IMAGE_BUILD_SECONDS, &[BUILD_OUTCOME] => "Seconds that builds of images took.";
    WM, Counter, IMAGE_UPLOADS, &[IMAGE, TARGET, BUILD_OUTCOME] =>
        "Uploads of images that ended. Each server counts the uploads of all builders.";
    WM, Histogram, IMAGE_UPLOAD_SECONDS, &[("providerId", "The provider"), BUILD_OUTCOME] =>
        "Seconds that uploads of images took.";
    WM, Gauge, IMAGE_AGE, &[IMAGE, TARGET] =>
        "Seconds since the end of the build from which new machines start.";
    WM, Counter, IMAGE_STEPS, &[IMAGE, ("step", "Like canary-started, build-promoted, build-rolled-back")] =>
        "Steps of rollouts of images that this process took.";
    WM, Gauge, IMAGE_CANARY_STARTS,
        &[IMAGE, ("group", "canary or control"), ("outcome", "pending, good or failed")] =>
        "Machines from which the verdict about a canary that runs is found.";
    WM, Gauge, IMAGE_CANARY_EVIDENCE, &[IMAGE, ("verdict", "worse or as-good")] =>
        "Evidence for a verdict about a canary that runs: the verdict is found at 1.";
    WM, Gauge, IMAGE_REQUESTS, &[] => "Images that wait for a build that somebody asked for.";
    WM, Gauge, IMAGE_BUILDS_RUNNING, &[] => "Images that are being built.";
    WM, Gauge, IMAGE_BUILDERS, &[] => "Builders of images that run.";
    None, Histogram, TASK_SECONDS, &[("name", "The task"), ("status", "success or exception")] =>
        "Durations of background tasks' activations, in seconds.";
    None, Gauge, TASK_AGE, &[("name", "The task")] =>
        "When a background task last succeeded, in seconds since 1970.";
    None, Gauge, BUILD_INFO, &[("version", "The program's version")] => "Always 1.";
    None, Histogram, "fleetwright_store_seconds", STORE => "Durations of transactions, in seconds.";
    None, Histogram, "fleetwright_transaction_seconds", &[("name", "The transaction")] =>
        "Durations of transactions by their name, in seconds.";
    None, Histogram, "fleetwright_store_wait_seconds", &[("engine", "sqlite or postgres")] =>
        "How long transactions waited for a connection, in seconds.";
    None, Counter, "fleetwright_store_retries_total", &[("name", "The transaction")] =>
        "Transactions that ran again after a conflict.";
    None, Counter, "fleetwright_store_conflicts_total", CONFLICT =>
        "Attempts of transactions that failed with a conflict.";
};

const QUEUE: Option<Service> = Some(Service::Queue);
const TASK_QUEUE: Labels = &[
    (
        "provisionerId",
        "The first part of the name of the task queue",
    ),
    ("workerType", "Its second part"),
];
const RESOLVED: Labels = &[
    (
        "provisionerId",
        "The first part of the name of the task queue",
    ),
    ("workerType", "Its second part"),
    ("reasonResolved", "Why the run ended"),
];
const TERMINATION: Labels = &[
    ("workerPoolId", "The worker pool"),
    ("providerId", "The provider"),
    ("reason", "over_capacity or launch_config_archived"),
];

/// Further metrics with `metrics.taskcluster_names`, under the names of Taskcluster's services.
pub static TASKCLUSTER_METRICS: &[Metric] = metrics! {
    WM, Gauge, taskcluster::PENDING_TASKS, POOL => "Tasks that wait.";
    WM, Gauge, taskcluster::CLAIMED_TASKS, POOL => "Tasks that run.";
    WM, Gauge, taskcluster::DESIRED_CAPACITY, POOL =>
        "The capacity that Taskcluster's estimator would want, whatever the strategy.";
    WM, Gauge, taskcluster::TOTAL_IDLE_CAPACITY, POOL => "Existing capacity without a task.";
    WM, Gauge, taskcluster::ADJUSTED_PENDING_TASKS, POOL =>
        "Waiting tasks beyond the idle capacity.";
    WM, Histogram, POOL_PROVISION_SECONDS, POOL => "Seconds that decisions on a pool took.";
    WM, Gauge, taskcluster::SCAN_SEEN, POOL => "Workers that have not stopped.";
    WM, Gauge, taskcluster::SCAN_ERRORS, POOL => "Errors of the pool in the last minute.";
    WM, Gauge, taskcluster::TERMINATING, TERMINATION =>
        "Running workers that were asked to stop.";
    QUEUE, Gauge, taskcluster::QUEUE_PENDING, TASK_QUEUE => "Tasks that wait.";
    QUEUE, Gauge, taskcluster::QUEUE_CLAIMED, TASK_QUEUE => "Tasks that run.";
    QUEUE, Counter, taskcluster::QUEUE_COMPLETED, TASK_QUEUE => "Runs that completed.";
    QUEUE, Counter, taskcluster::QUEUE_FAILED, RESOLVED => "Runs that failed.";
    QUEUE, Counter, taskcluster::QUEUE_EXCEPTION, RESOLVED => "Runs that ended as exception.";
    QUEUE, Gauge, taskcluster::QUEUE_WORKERS, TASK_QUEUE => "Workers that asked for work.";
    QUEUE, Gauge, taskcluster::QUEUE_RUNNING, TASK_QUEUE => "Those of them with a task.";
    QUEUE, Gauge, taskcluster::QUEUE_IDLE, TASK_QUEUE =>
        "Those of them without a task and not in quarantine.";
    QUEUE, Gauge, taskcluster::QUEUE_QUARANTINED, TASK_QUEUE => "Those of them in quarantine.";
};

/// The kinds of records; all carry `request.id` and `trace.id` if a request caused them.
pub static LOG_TYPES: [LogType; 4] = [
    LogType {
        service: None,
        name: "event",
        kind: "event",
        level: "info",
        title: "Something has changed",
        description: "One record for each event; the message begins with its exchange.",
        fields: &[
            ("event.id", "The event's id, to drop repeats"),
            ("event.topic", "The exchange's full name"),
            ("event.key", "The routing key"),
            ("event.payload", "The message"),
        ],
    },
    LogType {
        service: WM,
        name: "registrationErrorWarning",
        kind: "registration-error-warning",
        level: "warning",
        title: "A registration was refused",
        description: "The problem with a worker's registration; the worker itself gets fewer \
                      details.",
        fields: &[
            ("worker.pool", "The worker pool in the request"),
            ("worker.group", "The worker group"),
            ("worker.id", "The worker"),
            ("provider.id", "The provider in the request"),
            ("reason", "The problem"),
        ],
    },
    LogType {
        service: WM,
        name: "workerError",
        kind: "worker-error",
        level: "warning",
        title: "A worker reported an error",
        description: "The error itself is stored, and listed by `listWorkerPoolErrors`.",
        fields: &[
            ("pool.id", "The worker pool"),
            ("error.id", "The error"),
            ("error.kind", "Its kind"),
        ],
    },
    LogType {
        service: None,
        name: "errorReport",
        kind: "error-report",
        level: "err",
        title: "An internal error",
        description: "The caller got only the incident's id.",
        fields: &[
            ("incident.id", "The incident"),
            ("api.method", "The endpoint"),
        ],
    },
];

/// Whether the metric or log record belongs to the service.
pub fn concerns(of: Option<Service>, service: Service) -> bool {
    of.is_none_or(|of| of == service)
}
