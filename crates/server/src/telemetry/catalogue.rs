//! Every metric, and the kinds of log records.

use engine::measures::{
    CLOUD_CALLS, CLOUD_RATE, DEMAND_FAILURES, LAUNCHES, LIFETIME_SECONDS, PROVISION_SECONDS,
    REGISTRATION_FAILURES, REGISTRATION_SECONDS, REGISTRATIONS_REFUSED, STARTUP_SECONDS,
};

use super::{
    AUTH_FAILURE, AUTH_SUCCESS, BAD_OUTCOMES, BROKER_LAG, BROKER_UP, BROKER_WAITING, BUILD_INFO,
    CLOCK_SKEW, CLOCK_STEPS, EVENT_LISTENERS, EVENTS_PUBLISHED, EXISTING_CAPACITY, HTTP_REQUESTS,
    HTTP_SECONDS, NOTICES, NOTICES_UP, OUTBOX_DEPTH, OUTCOMES, POOLS, PROVIDER_UP,
    REQUESTED_CAPACITY, STOPPING_CAPACITY, TASK_AGE, TASK_SECONDS, WORKERS,
};
use crate::service::Service;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A metric at `/metrics`.
#[derive(Debug)]
pub struct Metric {
    /// `None`: of the entire process.
    pub service: Option<Service>,
    pub name: &'static str,
    pub kind: Kind,
    pub labels: &'static [(&'static str, &'static str)],
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
    pub fields: &'static [(&'static str, &'static str)],
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

type Labels = &'static [(&'static str, &'static str)];

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
const PROVIDER: Labels = &[("providerId", "The provider")];
const CLOUD_CALL: Labels = &[
    ("providerId", "The provider"),
    ("region", "The region, or all"),
    ("call", "read, launch or end"),
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
const LAUNCH: Labels = &[
    ("providerId", "The provider"),
    (
        "outcome",
        "accepted, withdrawn, unknown, or the cause of a refusal",
    ),
];
const TASK: Labels = &[("name", "The task")];
const STORE: Labels = &[
    ("name", "The transaction"),
    ("engine", "sqlite or postgres"),
    ("outcome", "ok or error"),
];

const fn metric(
    service: Option<Service>,
    kind: Kind,
    name: &'static str,
    labels: Labels,
    description: &'static str,
) -> Metric {
    Metric {
        service,
        name,
        kind,
        labels,
        description,
    }
}

const WM: Option<Service> = Some(Service::WorkerManager);
const AUTH: Option<Service> = Some(Service::Auth);

/// Every metric; a test compares this list with the recorded metrics.
pub static METRICS: [Metric; 39] = [
    metric(
        None,
        Kind::Counter,
        HTTP_REQUESTS,
        CALL,
        "Requests answered.",
    ),
    metric(
        None,
        Kind::Histogram,
        HTTP_SECONDS,
        CALL,
        "Seconds that requests took.",
    ),
    metric(
        AUTH,
        Kind::Counter,
        AUTH_SUCCESS,
        &[],
        "Valid signatures in authenticateHawk.",
    ),
    metric(
        AUTH,
        Kind::Counter,
        AUTH_FAILURE,
        &[],
        "Invalid signatures in authenticateHawk.",
    ),
    metric(
        WM,
        Kind::Gauge,
        EXISTING_CAPACITY,
        POOL,
        "Capacity that is requested or running.",
    ),
    metric(
        WM,
        Kind::Gauge,
        REQUESTED_CAPACITY,
        POOL,
        "Capacity that is requested.",
    ),
    metric(
        WM,
        Kind::Gauge,
        STOPPING_CAPACITY,
        POOL,
        "Capacity that is stopping.",
    ),
    metric(
        WM,
        Kind::Histogram,
        REGISTRATION_SECONDS,
        POOL,
        "Seconds from a worker's creation to its registration.",
    ),
    metric(
        WM,
        Kind::Histogram,
        PROVISION_SECONDS,
        POOL,
        "Seconds from a worker's creation to its machine's start.",
    ),
    metric(
        WM,
        Kind::Histogram,
        STARTUP_SECONDS,
        POOL,
        "Seconds from a machine's start to its registration.",
    ),
    metric(
        WM,
        Kind::Histogram,
        LIFETIME_SECONDS,
        POOL,
        "Seconds from a worker's registration to its end.",
    ),
    metric(
        WM,
        Kind::Histogram,
        LAUNCHES,
        LAUNCH,
        "Seconds that providers took to answer a launch.",
    ),
    metric(
        WM,
        Kind::Counter,
        REGISTRATION_FAILURES,
        POOL,
        "Workers that ended without having registered.",
    ),
    metric(
        WM,
        Kind::Counter,
        REGISTRATIONS_REFUSED,
        PROVIDER,
        "Refused registrations; `unknown` for providers that are not configured.",
    ),
    metric(
        WM,
        Kind::Counter,
        CLOUD_CALLS,
        CLOUD_OUTCOME,
        "Calls to clouds that have a rate limit.",
    ),
    metric(
        WM,
        Kind::Gauge,
        CLOUD_RATE,
        CLOUD_CALL,
        "Current limit of calls per second; lower after a cloud asked to slow down.",
    ),
    metric(
        WM,
        Kind::Gauge,
        POOLS,
        PROVIDER,
        "Worker pools, by provider.",
    ),
    metric(
        WM,
        Kind::Gauge,
        WORKERS,
        &[("state", "The workers' state")],
        "Workers, by state.",
    ),
    metric(
        WM,
        Kind::Gauge,
        PROVIDER_UP,
        PROVIDER,
        "1 if the provider is ready, 0 if its set-up has not succeeded.",
    ),
    metric(
        None,
        Kind::Gauge,
        OUTBOX_DEPTH,
        &[],
        "Events that wait to be published.",
    ),
    metric(
        None,
        Kind::Gauge,
        EVENT_LISTENERS,
        &[],
        "Listeners to the live stream of events, in this process.",
    ),
    metric(
        None,
        Kind::Counter,
        NOTICES,
        &[
            ("channel", "email, or the webhook with its host"),
            ("outcome", "sent, failed, refused or given-up"),
        ],
        "Attempts to send notices of errors in worker pools.",
    ),
    metric(
        None,
        Kind::Gauge,
        NOTICES_UP,
        &[("channel", "email, or the webhook with its host")],
        "1 unless the last attempt to send a notice by this channel failed.",
    ),
    metric(
        None,
        Kind::Counter,
        CLOCK_STEPS,
        &[],
        "How often the clock of this machine was set while the process ran.",
    ),
    metric(
        None,
        Kind::Gauge,
        CLOCK_SKEW,
        &[],
        "How far the clock of this machine is ahead of the database's, in seconds.",
    ),
    metric(
        None,
        Kind::Gauge,
        BROKER_UP,
        &[],
        "1 if the process that publishes to the AMQP broker can reach it.",
    ),
    metric(
        None,
        Kind::Gauge,
        BROKER_WAITING,
        &[],
        "Events that the AMQP broker has not confirmed yet.",
    ),
    metric(
        None,
        Kind::Gauge,
        BROKER_LAG,
        &[],
        "Age of the oldest event that the AMQP broker has not confirmed yet, in seconds.",
    ),
    metric(
        None,
        Kind::Counter,
        EVENTS_PUBLISHED,
        &[],
        "Events that the AMQP broker has confirmed to this process.",
    ),
    metric(
        WM,
        Kind::Counter,
        DEMAND_FAILURES,
        &[],
        "Failed requests for a pool's demand to an outside queue.",
    ),
    metric(
        WM,
        Kind::Counter,
        OUTCOMES,
        &[("outcome", "completed, failed or exception")],
        "Task runs on workers of pools whose outcome this process recorded.",
    ),
    metric(
        WM,
        Kind::Counter,
        BAD_OUTCOMES,
        &[],
        "Invalid messages of the queue about runs.",
    ),
    metric(
        None,
        Kind::Histogram,
        TASK_SECONDS,
        &[("name", "The task"), ("status", "success or exception")],
        "Durations of background tasks' activations, in seconds.",
    ),
    metric(
        None,
        Kind::Gauge,
        TASK_AGE,
        TASK,
        "When a background task last succeeded, in seconds since 1970.",
    ),
    metric(
        None,
        Kind::Gauge,
        BUILD_INFO,
        &[("version", "The program's version")],
        "Always 1.",
    ),
    metric(
        None,
        Kind::Histogram,
        "fleetwright_store_seconds",
        STORE,
        "Durations of transactions, in seconds.",
    ),
    metric(
        None,
        Kind::Histogram,
        "fleetwright_store_wait_seconds",
        &[("engine", "sqlite or postgres")],
        "How long transactions waited for a connection, in seconds.",
    ),
    metric(
        None,
        Kind::Counter,
        "fleetwright_store_retries_total",
        &[("name", "The transaction")],
        "Transactions that ran again after a conflict.",
    ),
    metric(
        None,
        Kind::Counter,
        "fleetwright_store_conflicts_total",
        &[
            ("name", "The transaction"),
            ("statement", "The statement that conflicted"),
        ],
        "Attempts of transactions that failed with a conflict.",
    ),
];

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
