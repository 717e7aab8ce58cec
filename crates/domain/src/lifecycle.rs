//! How long workers last and their credentials with them, as their pool's `lifecycle` says.
//!
//! What a pool says when a worker is made stays true for that worker: it is written into its terms.

use serde_json::{Map, Value};

use crate::id::LaunchToken;
use crate::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use crate::worker::Terms;

/// What a pool that says nothing gets: four days.
pub const DEFAULT_REREGISTRATION_MS: i64 = 96 * HOUR_MS;
/// How long a worker may go without claiming work by default: two hours.
pub const DEFAULT_INACTIVITY_MS: i64 = 2 * HOUR_MS;

/// How long a worker that has registered may take to ask for work for the first time by default.
pub const DEFAULT_FIRST_CLAIM_MS: i64 = 30 * MINUTE_MS;
/// How long an idle worker is kept by default: pools of short tasks do not boot one for each gap, and
/// clouds charge for a minute at least.
pub const DEFAULT_IDLE_HOLD_MS: i64 = MINUTE_MS;

/// The pool's own re-registration time-out, in milliseconds, if it states one.
pub fn reregistration_timeout(config: &Map<String, Value>) -> Option<i64> {
    stated(config, "reregistrationTimeout")
}

/// The terms of a worker that is being launched now, by its pool's config and what it is told to be.
pub fn at_launch(
    pool_config: &Map<String, Value>,
    now: Timestamp,
    worker_config: Value,
    launch_token: &LaunchToken,
) -> Terms {
    let reregistration = reregistration_timeout(pool_config).unwrap_or(DEFAULT_REREGISTRATION_MS);
    let registration = stated(pool_config, "registrationTimeout").unwrap_or(reregistration);
    let first_limit = registration.min(reregistration);
    let inactivity = stated(pool_config, "queueInactivityTimeout").unwrap_or(DEFAULT_INACTIVITY_MS);
    let first_claim = stated(pool_config, "firstClaimTimeout").unwrap_or(DEFAULT_FIRST_CLAIM_MS);
    Terms {
        terminate_after: Some(now.plus_millis(first_limit).as_millis()),
        reregistration_timeout: Some(reregistration),
        queue_inactivity_timeout: Some(inactivity),
        first_claim_timeout: Some(first_claim),
        idle_hold_ms: Some(idle_hold(&worker_config)),
        launch_token: Some(launch_token.to_string()),
        worker_config: Some(worker_config),
        ..Terms::default()
    }
}

/// A number of seconds that the pool's `lifecycle` states, in milliseconds.
fn stated(config: &Map<String, Value>, name: &str) -> Option<i64> {
    let seconds = config.get("lifecycle")?.get(name)?.as_i64()?;
    // Zero counts as not said, as it always has; less would mean that no worker ever lives.
    (seconds > 0).then(|| seconds.saturating_mul(SECOND_MS))
}

/// How long a worker waits for work before it asks whether it should go: generic-worker's setting or ours. Zero means
/// that it never asks, so it says nothing of how long to keep it.
fn idle_hold(worker_config: &Value) -> i64 {
    let seconds = [
        "/genericWorker/config/idleTimeoutSecs",
        "/fleetwright/idleTimeoutSeconds",
    ]
    .into_iter()
    .find_map(|place| worker_config.pointer(place)?.as_i64());
    match seconds {
        Some(seconds) if seconds > 0 => seconds.saturating_mul(SECOND_MS),
        Some(_) | None => DEFAULT_IDLE_HOLD_MS,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn timeout(config: Value) -> Option<i64> {
        reregistration_timeout(config.as_object().unwrap())
    }

    fn terms(lifecycle: Value, worker_config: Value) -> Terms {
        let config = json!({"lifecycle": lifecycle});
        let token = "fN1SbArXTPSVFNUvaOlinQ".parse().unwrap();
        let now = Timestamp::from_millis(1_000_000);
        at_launch(config.as_object().unwrap(), now, worker_config, &token)
    }

    #[test]
    fn a_pool_may_say_how_long_credentials_last() {
        let of = |seconds: i64| timeout(json!({"lifecycle": {"reregistrationTimeout": seconds}}));
        assert_eq!(of(60), Some(60_000));
        assert_eq!((of(0), of(-5)), (None, None));
        assert_eq!(of(i64::MAX), Some(i64::MAX));
        assert_eq!(timeout(json!({"lifecycle": {}})), None);
        assert_eq!(timeout(json!({})), None);
    }

    #[test]
    fn a_pool_that_says_nothing_gives_four_days_and_two_hours() {
        let terms = terms(json!({}), json!({"a": 1}));
        assert_eq!(terms.terminate_after, Some(1_000_000 + 345_600_000));
        assert_eq!(terms.reregistration_timeout, Some(345_600_000));
        assert_eq!(terms.queue_inactivity_timeout, Some(7_200_000));
        assert_eq!(terms.first_claim_timeout, Some(1_800_000));
        assert_eq!(terms.idle_hold_ms, Some(60_000));
        assert_eq!(terms.worker_config, Some(json!({"a": 1})));
        assert_eq!(
            terms.launch_token.as_deref(),
            Some("fN1SbArXTPSVFNUvaOlinQ")
        );
    }

    #[test]
    fn the_registration_time_out_counts_only_if_it_is_the_shorter_one() {
        let both = |registration: i64, reregistration: i64| {
            let lifecycle = json!({"registrationTimeout": registration,
                "reregistrationTimeout": reregistration});
            terms(lifecycle, json!({})).terminate_after
        };
        assert_eq!(both(1_800, 3_600), Some(2_800_000));
        assert_eq!(both(3_600, 1_800), Some(2_800_000));
        assert_eq!(both(0, 1_800), Some(2_800_000));
        assert_eq!(both(-1, 1_800), Some(2_800_000));
    }

    #[test]
    fn both_kinds_of_workers_can_say_how_long_they_wait_for_work() {
        let hold = |worker_config| terms(json!({}), worker_config).idle_hold_ms;
        let generic = json!({"genericWorker": {"config": {"idleTimeoutSecs": 900}}});
        assert_eq!(hold(generic), Some(900_000));
        let ours = |seconds: i64| hold(json!({"fleetwright": {"idleTimeoutSeconds": seconds}}));
        assert_eq!(ours(7), Some(7_000));
        assert_eq!(ours(i64::MAX), Some(i64::MAX));
        let default = Some(DEFAULT_IDLE_HOLD_MS);
        assert_eq!((ours(0), ours(-1)), (default, default));
        assert_eq!(hold(json!({"fleetwright": "soon"})), default);
        assert_eq!(hold(Value::Null), default);
    }
}
