//! How long each step of a launch may take, and from that, when its outcome is certain.

use std::time::Duration;

use domain::time::{HOUR_MS, MINUTE_MS, SECOND_MS};

/// A launch waits no longer for its place among the launches of its provider.
const MAX_WAIT_MS: i64 = 30 * SECOND_MS;
pub(super) const MAX_WAIT: Duration = Duration::from_millis(MAX_WAIT_MS.cast_unsigned());
/// From the decision until a process begins to ask the cloud. Then the launch is withdrawn, and
/// the next plan decides anew.
pub(super) const MAX_DECIDED_MS: i64 = MINUTE_MS;
/// From writing down that a process asks the cloud until it does.
pub(super) const MAX_HAND_OVER_MS: i64 = 10 * SECOND_MS;
/// One call. A cloud that has not answered by then may have made the machines, or not.
const MAX_CALL_MS: i64 = MINUTE_MS;
pub(super) const MAX_CALL: Duration = Duration::from_millis(MAX_CALL_MS.cast_unsigned());
/// A cloud lists a machine this long after it made it, at the latest.
const MAX_LISTING_LAG_MS: i64 = 2 * MINUTE_MS;
/// Clocks of two processes differ by no more than this.
const MAX_CLOCK_SKEW_MS: i64 = 30 * SECOND_MS;

/// A launch that nobody has begun to ask for by then is withdrawn.
pub(super) const WITHDRAW_MS: i64 = MAX_DECIDED_MS + MAX_CLOCK_SKEW_MS;
/// A list of machines this long after a cloud was asked shows all that this launch made.
pub(super) const SETTLE_MS: i64 =
    MAX_HAND_OVER_MS + MAX_CALL_MS + MAX_LISTING_LAG_MS + MAX_CLOCK_SKEW_MS;
/// Launches of a cloud that cannot be listed for this long are given up. Machines that they made
/// are found and ended when it can be listed again.
pub(super) const GIVE_UP_MS: i64 = 6 * HOUR_MS;

const _: () = assert!(MAX_WAIT_MS < MAX_DECIDED_MS);
const _: () = assert!(GIVE_UP_MS > SETTLE_MS);
