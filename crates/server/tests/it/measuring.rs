//! Metrics of a test's own: tests of one process do not see each other's.

use metrics::LocalRecorderGuard;
use server::telemetry::Telemetry;

/// Ends the recording when it is dropped.
pub(crate) type Measuring = LocalRecorderGuard<'static>;

/// From now on everything that this thread measures is recorded here, and nowhere else.
pub(crate) fn measure_here(telemetry: &Telemetry) -> Measuring {
    // The guard borrows the recorder. A test process is short-lived, so the recorder may live as
    // long.
    metrics::set_default_local_recorder(Box::leak(Box::new(telemetry.recorder())))
}
