//! Sets up logs and metrics, and names all of them.

pub mod catalogue;
mod escape;
#[cfg(test)]
pub(crate) mod lines;
mod mozlog;
pub mod taskcluster;
mod traces;

use std::io::IsTerminal;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use engine::measures::{
    LAUNCHES, LIFETIME_SECONDS, PHASE_SECONDS, POOL_PROVISION_SECONDS, PROVISION_SECONDS,
    REGISTRATION_SECONDS, REGISTRATIONS_REFUSED, STARTUP_SECONDS, Stopwatch,
};
use engine::taskcluster_records::TARGET;
use metrics::{counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram};
use metrics_exporter_prometheus::{
    Matcher, PrometheusBuilder, PrometheusHandle, PrometheusRecorder,
};
use tracing_subscriber::EnvFilter;

use self::catalogue::{Kind, METRICS, TASKCLUSTER_METRICS};
use self::mozlog::Mozlog;
pub use self::traces::{TRACE_PARENT, TracedRequest, Traces, TracesError};

use crate::config::{Log, LogFormat};
use crate::log_repeats::Repeats;

/// Gauges and counters without updates disappear after this time.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10 * 60);

pub const HTTP_REQUESTS: &str = "http_requests_total";
pub const HTTP_SECONDS: &str = "http_request_duration_seconds";
pub const AUTH_SUCCESS: &str = "auth_success_total";
pub const AUTH_FAILURE: &str = "auth_failure_total";
pub const CONNECTIONS_CLOSED: &str = "fleetwright_connections_closed_total";
pub const EXISTING_CAPACITY: &str = "worker_manager_existing_capacity";
pub const REQUESTED_CAPACITY: &str = "worker_manager_requested_capacity";
pub const STOPPING_CAPACITY: &str = "worker_manager_stopping_capacity";
pub const BUILD_INFO: &str = "fleetwright_build_info";
pub const POOLS: &str = "fleetwright_worker_pools";
pub const WORKERS: &str = "fleetwright_workers";
pub const TASKS: &str = "fleetwright_tasks";
pub const OLDEST_PENDING: &str = "fleetwright_oldest_pending_task_seconds";
pub const WAITING: &str = "fleetwright_waiting_tasks";
pub const CAPACITY: &str = "fleetwright_capacity";
pub const CAPACITY_MAXIMUM: &str = "fleetwright_capacity_maximum";
pub const COST_PER_HOUR: &str = "fleetwright_cost_per_hour";
pub const COST_TODAY: &str = "fleetwright_cost_today";
pub const POOL_ERRORS: &str = "fleetwright_worker_pool_errors";
pub const PROBLEMS: &str = "fleetwright_problems";
pub const SPANS: &str = "fleetwright_spans_total";
pub const PROVIDER_UP: &str = "fleetwright_provider_in_service";
pub const OUTBOX_DEPTH: &str = "fleetwright_outbox_events";
pub const BROKER_UP: &str = "fleetwright_broker_up";
pub const BROKER_WAITING: &str = "fleetwright_broker_waiting_events";
pub const BROKER_LAG: &str = "fleetwright_broker_lag_seconds";
pub const EVENTS_PUBLISHED: &str = "fleetwright_broker_published_events_total";
pub const EVENT_LISTENERS: &str = "fleetwright_event_listeners";
pub const OUTCOMES: &str = "fleetwright_task_runs_total";
pub const BAD_OUTCOMES: &str = "fleetwright_task_run_messages_dropped_total";
pub const NOTICES: &str = "fleetwright_notices_total";
pub const NOTICES_UP: &str = "fleetwright_notices_up";
pub const IMAGE_BUILDS: &str = "fleetwright_image_builds_total";
pub const IMAGE_BUILD_SECONDS: &str = "fleetwright_image_build_seconds";
pub const IMAGE_UPLOADS: &str = "fleetwright_image_uploads_total";
pub const IMAGE_UPLOAD_SECONDS: &str = "fleetwright_image_upload_seconds";
pub const IMAGE_AGE: &str = "fleetwright_image_age_seconds";
pub const IMAGE_CANARY_STARTS: &str = "fleetwright_image_canary_starts";
pub const IMAGE_CANARY_EVIDENCE: &str = "fleetwright_image_canary_evidence";
pub const IMAGE_REQUESTS: &str = "fleetwright_image_build_requests";
pub const IMAGE_BUILDS_RUNNING: &str = "fleetwright_image_builds_running";
pub const IMAGE_BUILDERS: &str = "fleetwright_image_builders";
pub const BUDGET_LIMIT: &str = "fleetwright_budget_limit";
pub const BUDGET_SPENT: &str = "fleetwright_budget_spent";
pub const BUDGET_LEFT: &str = "fleetwright_budget_left";
pub const TASK_SECONDS: &str = "iterate_duration_seconds";
pub const TASK_AGE: &str = "fleetwright_task_last_success_timestamp_seconds";

/// Libraries with records that say nothing new, unless the filter names them: errors that we handle
/// and log ourselves, and notices of the database about our migrations.
const QUIET_LIBRARIES: [(&str, &str); 2] = [("lapin", "off"), ("tokio_postgres", "warn")];

/// Durations of requests, in seconds.
const REQUEST_BUCKETS: [f64; 11] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.5, 1.0, 5.0,
];
/// Where many series need no more than a mean, and the number of slow ones.
const SLOW_BUCKETS: [f64; 1] = [1.0];
/// Durations in the life of a worker or an image, in seconds.
const WORKER_BUCKETS: [f64; 12] = [
    1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1_200.0, 1_800.0, 3_600.0, 86_400.0,
];
/// Durations of the steps of a machine, from its decision to its first claim, in seconds.
const PHASE_BUCKETS: [f64; 12] = [
    0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0,
];

/// A set of metrics. The program has one; each test has its own.
#[derive(Clone)]
pub struct Telemetry {
    recorder: Arc<PrometheusRecorder>,
    handle: PrometheusHandle,
}

impl Default for Telemetry {
    fn default() -> Self {
        let recorder = Arc::new(builder().build_recorder());
        metrics::with_local_recorder(&recorder, || {
            describe_metrics();
            // Set from the start, so that an alert finds the series.
            counter!(REGISTRATIONS_REFUSED, "providerId" => "unknown").increment(0);
        });
        Self {
            handle: recorder.handle(),
            recorder,
        }
    }
}

impl Telemetry {
    /// The metrics of this process: from the first call on, all threads record here.
    pub fn of_process() -> Self {
        static INSTALLED: OnceLock<Telemetry> = OnceLock::new();
        let installed = INSTALLED.get_or_init(|| {
            let telemetry = Self::default();
            // Fails only if a test has installed a recorder; then ours stays empty.
            let _ = metrics::set_global_recorder(telemetry.recorder());
            telemetry
        });
        installed.clone()
    }

    /// For tests, whose threads record here only.
    pub fn recorder(&self) -> Arc<PrometheusRecorder> {
        Arc::clone(&self.recorder)
    }

    /// All metrics in the format of Prometheus.
    pub fn render(&self) -> String {
        metrics::with_local_recorder(&self.recorder, || {
            gauge!(BUILD_INFO, "version" => env!("CARGO_PKG_VERSION")).set(1.0);
        });
        self.handle.render()
    }

    /// Keeps histograms from growing; call it periodically.
    pub fn tidy(&self) {
        self.handle.run_upkeep();
    }

    pub fn request(
        &self,
        service: &'static str,
        name: &'static str,
        method: String,
        status: u16,
        took: Duration,
    ) {
        let status = status.to_string();
        counter!(HTTP_REQUESTS, "service" => service, "name" => name, "method" => method.clone(),
            "status" => status.clone())
        .increment(1);
        histogram!(HTTP_SECONDS, "service" => service, "name" => name, "method" => method,
            "status" => status)
        .record(took.as_secs_f64());
    }
}

/// Registers the descriptions of all metrics.
fn describe_metrics() {
    for metric in METRICS.iter().chain(TASKCLUSTER_METRICS) {
        match metric.kind {
            Kind::Counter => describe_counter!(metric.name, metric.description),
            Kind::Gauge => describe_gauge!(metric.name, metric.description),
            Kind::Histogram => describe_histogram!(metric.name, metric.description),
        }
    }
}

fn builder() -> PrometheusBuilder {
    let matchers = [
        (HTTP_SECONDS, &REQUEST_BUCKETS[..]),
        (TASK_SECONDS, &REQUEST_BUCKETS[..]),
        ("fleetwright_store_seconds", &REQUEST_BUCKETS[..]),
        ("fleetwright_transaction_seconds", &SLOW_BUCKETS[..]),
        ("fleetwright_store_wait_seconds", &REQUEST_BUCKETS[..]),
        (LAUNCHES, &WORKER_BUCKETS[..]),
        (PHASE_SECONDS, &PHASE_BUCKETS[..]),
        (REGISTRATION_SECONDS, &WORKER_BUCKETS[..]),
        (PROVISION_SECONDS, &WORKER_BUCKETS[..]),
        (POOL_PROVISION_SECONDS, &PHASE_BUCKETS[..]),
        (STARTUP_SECONDS, &WORKER_BUCKETS[..]),
        (LIFETIME_SECONDS, &WORKER_BUCKETS[..]),
        (IMAGE_BUILD_SECONDS, &WORKER_BUCKETS[..]),
        (IMAGE_UPLOAD_SECONDS, &WORKER_BUCKETS[..]),
    ];
    let builder = PrometheusBuilder::new()
        .idle_timeout(metrics_util::MetricKindMask::GAUGE, Some(IDLE_TIMEOUT));
    matchers
        .into_iter()
        .fold(builder, |builder, (name, buckets)| {
            builder
                .set_buckets_for_metric(Matcher::Full(name.to_owned()), buckets)
                .expect("the lists of buckets are not empty")
        })
}

/// Starts logging to standard error. Only the first call of a process has an effect.
pub fn log_to_stderr(log: &Log) -> Result<(), String> {
    let mut filter = log.filter.clone();
    for (library, level) in QUIET_LIBRARIES {
        if !log.filter.contains(library) {
            filter.push_str(&format!(",{library}={level}"));
        }
    }
    // Records for programs that read Taskcluster's log.
    let level = match log.format {
        LogFormat::Taskcluster => "info",
        LogFormat::Pretty | LogFormat::Json => "off",
    };
    filter.push_str(&format!(",{TARGET}={level}"));
    let filter = EnvFilter::try_new(filter).map_err(|problem| {
        format!(
            "log.filter: {:?} is not a valid filter: {problem}",
            log.filter
        )
    })?;
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(std::io::stderr);
    let interval = Duration::from_secs(log.repeat_seconds.into());
    let watch = Stopwatch::start();
    let elapsed = move || watch.elapsed();
    let _ = match log.format {
        LogFormat::Pretty => builder
            .fmt_fields(escape::fields())
            .with_target(false)
            .map_event_format(|inner| Repeats::new(inner, log.format, interval, elapsed))
            .try_init(),
        // The JSON format escapes by itself.
        LogFormat::Json => builder
            .json()
            .flatten_event(true)
            .with_current_span(true)
            .map_event_format(|inner| Repeats::new(inner, log.format, interval, elapsed))
            .try_init(),
        LogFormat::Taskcluster => builder
            .json()
            .event_format(Repeats::new(Mozlog::new(), log.format, interval, elapsed))
            .try_init(),
    };
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recorded_metrics_can_be_read() {
        let telemetry = Telemetry::default();
        let took = Duration::from_millis(3);
        metrics::with_local_recorder(&telemetry.recorder(), || {
            telemetry.request("worker-manager", "ping", "GET".to_owned(), 200, took);
        });
        let text = telemetry.render();
        assert!(text.contains(r#"http_requests_total{service="worker-manager",name="ping""#));
        assert!(text.contains("fleetwright_build_info{version="));
        assert!(text.contains("# HELP http_requests_total Requests answered."));
        assert!(text.contains("# HELP http_request_duration_seconds Seconds that requests took."));
    }

    #[test]
    fn two_sets_of_metrics_share_nothing() {
        let (one, other) = (Telemetry::default(), Telemetry::default());
        metrics::with_local_recorder(&one.recorder(), || counter!(OUTCOMES).increment(1));
        assert!(one.render().contains(OUTCOMES));
        assert!(!other.render().contains(OUTCOMES));
    }

    #[test]
    fn every_histogram_has_buckets() {
        let telemetry = Telemetry::default();
        let histograms = METRICS.iter();
        let histograms = histograms.filter(|metric| metric.kind == Kind::Histogram);
        for metric in histograms {
            metrics::with_local_recorder(&telemetry.recorder(), || {
                histogram!(metric.name).record(1.0);
            });
            let line = format!("# TYPE {} histogram", metric.name);
            assert!(telemetry.render().contains(&line), "{}", metric.name);
        }
    }

    #[test]
    fn an_invalid_filter_is_named() {
        let log = Log {
            filter: "a=b=c".to_owned(),
            ..Log::default()
        };
        assert!(log_to_stderr(&log).unwrap_err().starts_with("log.filter"));
    }
}
