//! Names of the metrics that workflows record, and a stopwatch.

use std::time::{Duration, Instant};

pub const REGISTRATION_SECONDS: &str = "worker_manager_worker_registration_seconds";
pub const PROVISION_SECONDS: &str = "worker_manager_worker_provision_seconds";
/// With `metrics.taskcluster_names`.
pub const POOL_PROVISION_SECONDS: &str = "worker_manager_worker_pool_provision_seconds";
pub const STARTUP_SECONDS: &str = "worker_manager_worker_startup_seconds";
pub const LIFETIME_SECONDS: &str = "worker_manager_worker_lifetime_seconds";
pub const PHASE_SECONDS: &str = "fleetwright_machine_phase_seconds";
pub const REGISTRATION_FAILURES: &str = "worker_manager_worker_registration_failures_total";
pub const REGISTRATIONS_REFUSED: &str = "fleetwright_registrations_refused_total";
pub const LAUNCHES: &str = "fleetwright_launch_seconds";
pub const CLOUD_CALLS: &str = "fleetwright_cloud_calls_total";
pub const CLOUD_RATE: &str = "fleetwright_cloud_calls_per_second_limit";
pub const LEFTOVERS: &str = "fleetwright_leftovers_removed_total";
pub const STRATEGY_REQUESTS: &str = "fleetwright_strategy_requests_total";
pub const IMAGE_STEPS: &str = "fleetwright_image_steps_total";
pub const CLOCK_STEPS: &str = "fleetwright_clock_steps_total";
pub const CLOCK_SKEW: &str = "fleetwright_clock_skew_seconds";
pub const DEMAND_FAILURES: &str = "fleetwright_demand_unknown_total";

/// Milliseconds as seconds, for metrics.
pub fn seconds(millis: i64) -> f64 {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a metric needs no more digits than a double"
    )]
    let seconds = millis as f64 / 1_000.0;
    seconds
}

/// Measures elapsed time for metrics; decisions never depend on it.
pub struct Stopwatch(Instant);

impl Stopwatch {
    #[expect(
        clippy::disallowed_methods,
        reason = "the one place that measures elapsed time"
    )]
    pub fn start() -> Self {
        Self(Instant::now())
    }

    pub fn elapsed(&self) -> Duration {
        self.0.elapsed()
    }
}
