//! The time limits of workers and their credentials, from the `lifecycle` of their pool.
//!
//! The limits are copied into the terms of a worker when it is made, and stay valid for that
//! worker.

use serde_json::{Map, Value};

use crate::id::LaunchToken;
use crate::time::{HOUR_MS, MINUTE_MS, SECOND_MS, Timestamp};
use crate::worker::Terms;

/// The default: four days.
pub const DEFAULT_REREGISTRATION_MS: i64 = 96 * HOUR_MS;
/// How long a worker may not claim work, by default: two hours.
pub const DEFAULT_INACTIVITY_MS: i64 = 2 * HOUR_MS;

/// How long a registered worker may take until it first asks for work, by default.
pub const DEFAULT_FIRST_CLAIM_MS: i64 = 30 * MINUTE_MS;
/// How long an idle worker is kept, by default. Pools of short tasks then do not boot a worker for
/// each gap, and clouds charge for at least a minute.
pub const DEFAULT_IDLE_HOLD_MS: i64 = MINUTE_MS;

/// The pool's own re-registration timeout in milliseconds, if it is set.
pub fn reregistration_timeout(config: &Map<String, Value>) -> Option<i64> {
    stated(config, "reregistrationTimeout")
}

/// How long a machine may take to register, in milliseconds, if the pool sets it.
pub fn registration_timeout(config: &Map<String, Value>) -> Option<i64> {
    stated(config, "registrationTimeout")
}

/// How long a worker may not ask for work until it is ended, in milliseconds.
pub fn inactivity_timeout(config: &Map<String, Value>) -> i64 {
    stated(config, "queueInactivityTimeout").unwrap_or(DEFAULT_INACTIVITY_MS)
}

/// How long a registered worker may take until it first asks for work, in milliseconds.
pub fn first_claim_timeout(config: &Map<String, Value>) -> i64 {
    stated(config, "firstClaimTimeout").unwrap_or(DEFAULT_FIRST_CLAIM_MS)
}

/// The terms of a worker that is launched now, from its pool's config and its worker config.
pub fn at_launch(
    pool_config: &Map<String, Value>,
    now: Timestamp,
    worker_config: Value,
    launch_token: &LaunchToken,
) -> Terms {
    let reregistration = reregistration_timeout(pool_config).unwrap_or(DEFAULT_REREGISTRATION_MS);
    let registration = registration_timeout(pool_config).unwrap_or(reregistration);
    let first_limit = registration.min(reregistration);
    Terms {
        terminate_after: Some(now.plus_millis(first_limit).as_millis()),
        reregistration_timeout: Some(reregistration),
        queue_inactivity_timeout: Some(inactivity_timeout(pool_config)),
        first_claim_timeout: Some(first_claim_timeout(pool_config)),
        idle_hold_ms: Some(idle_hold(&worker_config)),
        launch_token: Some(launch_token.to_string()),
        worker_config: Some(worker_config),
        ..Terms::default()
    }
}

/// A number of seconds in the pool's `lifecycle`, in milliseconds.
fn stated(config: &Map<String, Value>, name: &str) -> Option<i64> {
    let seconds = config.get("lifecycle")?.get(name)?.as_i64()?;
    // Zero counts as not set, as it always did; a negative value would end every worker at once.
    (seconds > 0).then(|| seconds.saturating_mul(SECOND_MS))
}

/// How long a worker waits for work before it asks whether it should stop: the setting of
/// generic-worker or ours. Zero means that it never asks, so it sets no limit.
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
