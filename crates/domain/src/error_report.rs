//! Errors that happened to a pool's workers, and the statistics over them.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use crate::id::{ErrorId, LaunchConfigId, PoolId};
use crate::time::{DAY_MS, HOUR_MS, Timestamp};

#[derive(Clone, Debug, PartialEq)]
pub struct ErrorReport {
    pub pool_id: PoolId,
    pub error_id: ErrorId,
    pub reported: Timestamp,
    /// `creation-error`, `termination-error`, … or whatever a worker reports.
    pub kind: String,
    pub title: String,
    pub description: String,
    pub extra: Map<String, Value>,
    pub launch_config_id: Option<LaunchConfigId>,
}

impl ErrorReport {
    /// The code of an error that has none.
    pub const OTHER: &'static str = "other";

    /// The code under which the statistics count this error. Google's errors have it in
    /// `errorCode`.
    pub fn code(&self) -> &str {
        ["code", "errorCode"]
            .into_iter()
            .find_map(|key| self.extra.get(key).and_then(Value::as_str))
            .filter(|code| !code.is_empty())
            .unwrap_or(Self::OTHER)
    }
}

/// How often each name occurred.
pub type Tallies = BTreeMap<String, u64>;

/// Counts over the stored errors of one pool or of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorStats {
    /// By the start of each of the last 7 days, today included.
    pub daily: Tallies,
    /// By the start of each of the last 24 hours, this one included.
    pub hourly: Tallies,
    pub title: Tallies,
    pub code: Tallies,
    pub worker_pool: Tallies,
    /// Only for one pool; `unknown` for errors without one.
    pub launch_config: Tallies,
}

impl ErrorStats {
    pub const DAYS: i64 = 7;
    pub const HOURS: i64 = 24;

    /// Statistics over nothing, with every day and hour of the windows at zero.
    pub fn empty(now: Timestamp) -> Self {
        Self {
            daily: window(now, DAY_MS, Self::DAYS),
            hourly: window(now, HOUR_MS, Self::HOURS),
            ..Self::default()
        }
    }

    pub fn count_day(&mut self, start: Timestamp, count: u64) {
        count_in(&mut self.daily, start, count);
    }

    pub fn count_hour(&mut self, start: Timestamp, count: u64) {
        count_in(&mut self.hourly, start, count);
    }

    pub fn total(&self) -> u64 {
        self.daily.values().sum()
    }
}

fn window(now: Timestamp, period_ms: i64, periods: i64) -> Tallies {
    let last = now.start_of(period_ms);
    (0..periods)
        .map(|back| (last.plus_millis(-back * period_ms).to_string(), 0))
        .collect()
}

/// Ignores a time outside the window.
fn count_in(window: &mut Tallies, start: Timestamp, count: u64) {
    if let Some(total) = window.get_mut(&start.to_string()) {
        *total += count;
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn report(extra: Value) -> ErrorReport {
        ErrorReport {
            pool_id: "a/b".parse().unwrap(),
            error_id: "AAAAAAAAQACAAAAAAAAAAA".parse().unwrap(),
            reported: Timestamp::from_millis(0),
            kind: "creation-error".to_owned(),
            title: "Instance Creation Error".to_owned(),
            description: String::new(),
            extra: extra.as_object().unwrap().clone(),
            launch_config_id: None,
        }
    }

    #[test]
    fn the_code_of_an_error_is_found_under_both_names() {
        assert_eq!(report(json!({"code": "Throttled"})).code(), "Throttled");
        assert_eq!(
            report(json!({"errorCode": "QUOTA_EXCEEDED"})).code(),
            "QUOTA_EXCEEDED"
        );
        assert_eq!(report(json!({"code": 3})).code(), "other");
        assert_eq!(report(json!({})).code(), "other");
    }

    #[test]
    fn the_windows_are_seven_days_and_twenty_four_hours_even_when_nothing_happened() {
        let stats = ErrorStats::empty("2026-09-21T14:13:20Z".parse().unwrap());
        assert_eq!(
            (stats.daily.len(), stats.hourly.len(), stats.total()),
            (7, 24, 0)
        );
        assert!(stats.daily.contains_key("2026-09-15T00:00:00.000Z"));
        assert!(stats.hourly.contains_key("2026-09-20T15:00:00.000Z"));
    }

    #[test]
    fn errors_before_the_window_are_not_counted() {
        let now: Timestamp = "2026-09-21T14:13:20Z".parse().unwrap();
        let mut stats = ErrorStats::empty(now);
        stats.count_day(now.start_of(DAY_MS), 2);
        stats.count_day(now.start_of(DAY_MS).plus_millis(-7 * DAY_MS), 5);
        assert_eq!(stats.total(), 2);
    }
}
