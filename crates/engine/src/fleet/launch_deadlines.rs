//! How long a launch may be outstanding: time limits of its steps, and when its outcome is final.

use std::time::Duration;

use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS};

/// A launch waits at most this long for one of the permits of its provider.
const MAX_PERMIT_WAIT_MS: i64 = 30 * SECOND_MS;
pub(super) const MAX_PERMIT_WAIT: Duration =
    Duration::from_millis(MAX_PERMIT_WAIT_MS.cast_unsigned());
/// From the decision to the start of the call. Later, the launch is withdrawn and the next plan
/// decides.
pub(super) const MAX_CALL_START_MS: i64 = MINUTE_MS;
/// From writing that a process calls the cloud until it does.
pub(super) const MAX_CALL_DELAY_MS: i64 = 10 * SECOND_MS;
/// The time limit of the call. After it, the cloud may or may not have made the machines.
const MAX_CALL_MS: i64 = MINUTE_MS;
pub(super) const MAX_CALL: Duration = Duration::from_millis(MAX_CALL_MS.cast_unsigned());
/// A cloud lists a machine at most this long after it made it.
const MAX_LISTING_LAG_MS: i64 = 2 * MINUTE_MS;
/// The largest difference between the clocks of two processes.
const MAX_CLOCK_SKEW_MS: i64 = 30 * SECOND_MS;

/// A launch whose call was not started within this time is withdrawn.
pub(super) const WITHDRAW_AFTER_MS: i64 = MAX_CALL_START_MS + MAX_CLOCK_SKEW_MS;
/// A list of machines this long after the call shows all machines of the launch.
pub(super) const SETTLED_AFTER_MS: i64 =
    MAX_CALL_DELAY_MS + MAX_CALL_MS + MAX_LISTING_LAG_MS + MAX_CLOCK_SKEW_MS;
/// Launches of a cloud that cannot be listed for this long count as failed. Their machines are
/// ended when the cloud can be listed again.
pub(super) const GIVE_UP_AFTER_MS: i64 = 6 * HOUR_MS;
/// A machine of an unknown launch is ended this long after it was first seen, if it is seen again.
pub(super) const UNKNOWN_MACHINE_GRACE_MS: i64 = HOUR_MS;
/// During a shutdown, a process waits at most this long for the answers of its launches.
pub(super) const SHUTDOWN_WAIT: Duration = Duration::from_secs(15);

const _: () = assert!(MAX_PERMIT_WAIT_MS < MAX_CALL_START_MS);
const _: () = assert!(GIVE_UP_AFTER_MS > SETTLED_AFTER_MS);
