//! How long a worker's credentials last, as its pool's `lifecycle` says.

use serde_json::{Map, Value};

use crate::time::{HOUR_MS, SECOND_MS};

/// What a pool that says nothing gets: four days.
pub const DEFAULT_REREGISTRATION_MS: i64 = 96 * HOUR_MS;

/// The pool's own re-registration time-out, in milliseconds, if it states one.
pub fn reregistration_timeout(config: &Map<String, Value>) -> Option<i64> {
    let seconds = config
        .get("lifecycle")?
        .get("reregistrationTimeout")?
        .as_i64()?;
    // Zero counts as not said, as it always has.
    (seconds != 0).then(|| seconds.saturating_mul(SECOND_MS))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn timeout(config: Value) -> Option<i64> {
        reregistration_timeout(config.as_object().unwrap())
    }

    #[test]
    fn a_pool_may_say_how_long_credentials_last() {
        assert_eq!(
            timeout(json!({"lifecycle": {"reregistrationTimeout": 60}})),
            Some(60_000)
        );
        assert_eq!(
            timeout(json!({"lifecycle": {"reregistrationTimeout": 0}})),
            None
        );
        assert_eq!(timeout(json!({"lifecycle": {}})), None);
        assert_eq!(timeout(json!({})), None);
    }
}
