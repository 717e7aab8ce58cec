//! Errors that happened to a pool's workers, and the statistics over them.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value, json};

use crate::id::{ErrorId, LaunchConfigId, PoolId, WorkerKey};
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

/// Bytes of `extra` as JSON. Whatever a worker adds beyond this is left out.
const MAX_EXTRA_BYTES: usize = 64 << 10;
/// Says in `extra` what was left out.
const OMITTED: &str = "omitted";
/// The worker that reported an error, in `extra`.
const WORKER_GROUP: &str = "workerGroup";
const WORKER_ID: &str = "workerId";

/// The kind of the report that counts what a worker reports above the limit.
pub const FURTHER_ERRORS: &str = "further-errors";
const COUNT: &str = "count";

/// The `extra` of a report of this worker, without the largest values if it is too large: a report
/// that lacks details is better than none.
pub fn extra_of_worker(key: &WorkerKey, mut extra: Map<String, Value>) -> Map<String, Value> {
    extra.remove(WORKER_GROUP);
    extra.remove(WORKER_ID);
    let n_bytes = |(name, value): &(String, Value)| {
        // With quotes, colon and comma; the name may need escapes.
        json!(name).to_string().len() + value.to_string().len() + 2
    };
    let members: Vec<(String, Value)> = extra.into_iter().collect();
    let mut sizes: Vec<(usize, usize)> = members.iter().map(n_bytes).enumerate().collect();
    sizes.sort_by_key(|(_, n_bytes)| *n_bytes);
    let (mut room, mut omitted) = (MAX_EXTRA_BYTES, BTreeSet::new());
    for (place, n_bytes) in sizes {
        match room.checked_sub(n_bytes) {
            Some(rest) => room = rest,
            None => drop(omitted.insert(place)),
        }
    }
    let members = members.into_iter().enumerate();
    let kept = members.filter(|(place, _)| !omitted.contains(place));
    let mut extra: Map<String, Value> = kept.map(|(_, member)| member).collect();
    if !omitted.is_empty() {
        let text = format!(
            "{} values, which do not fit into {MAX_EXTRA_BYTES} bytes",
            omitted.len()
        );
        extra.insert(OMITTED.to_owned(), json!(text));
    }
    extra.insert(WORKER_GROUP.to_owned(), json!(key.group.as_str()));
    extra.insert(WORKER_ID.to_owned(), json!(key.id.as_str()));
    extra
}

impl ErrorReport {
    /// The code of an error that has none.
    pub const OTHER: &'static str = "other";

    /// The worker that reported it, if one did.
    pub fn reporter(&self) -> Option<String> {
        let [group, id] = [WORKER_GROUP, WORKER_ID].map(|key| self.extra.get(key)?.as_str());
        Some(format!("{}/{}", group?, id?))
    }

    /// Makes it the report that counts further errors of its worker.
    pub fn begin_counting(&mut self, limit: u32) {
        FURTHER_ERRORS.clone_into(&mut self.kind);
        "Further errors of a worker are only counted".clone_into(&mut self.title);
        self.description = format!(
            "This worker reported more than {limit} errors within an hour \
             (`worker_manager.max_error_reports_per_hour`). The further ones of this hour are \
             counted here, and their texts are not stored."
        );
        let worker = [WORKER_GROUP, WORKER_ID];
        self.extra.retain(|key, _| worker.contains(&key.as_str()));
        self.count_further();
    }

    pub fn count_further(&mut self) {
        let count = self.extra.get(COUNT).and_then(Value::as_u64).unwrap_or(0);
        self.extra
            .insert(COUNT.to_owned(), json!(count.saturating_add(1)));
    }

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

    fn worker() -> WorkerKey {
        WorkerKey::parse("a/b".parse().unwrap(), "g", "w").unwrap()
    }

    #[test]
    fn the_largest_values_of_a_worker_are_left_out() {
        let overhead = json!({"big": ""}).to_string().len() - 1;
        for size in testing::sizes_around("bytes of extra", MAX_EXTRA_BYTES) {
            let mut extra = Map::new();
            extra.insert(
                "big".to_owned(),
                json!("x".repeat(size.saturating_sub(overhead))),
            );
            let kept = extra_of_worker(&worker(), extra.clone());
            assert_eq!(kept.contains_key("big"), size <= MAX_EXTRA_BYTES, "{size}");
            assert_eq!(kept.contains_key(OMITTED), size > MAX_EXTRA_BYTES, "{size}");
            // Small values stay beside a large one, and the size is limited in any case.
            extra.insert("code".to_owned(), json!("x"));
            let kept = extra_of_worker(&worker(), extra);
            assert_eq!(kept["code"], "x");
            assert!(Value::Object(kept).to_string().len() < MAX_EXTRA_BYTES + 200);
        }
        let many = (0..100_000).map(|number| (number.to_string(), Value::Null));
        let kept = extra_of_worker(&worker(), many.collect());
        assert!(Value::Object(kept).to_string().len() < MAX_EXTRA_BYTES + 200);
    }

    #[test]
    fn a_worker_names_itself_and_no_other() {
        let lie = report(json!({"workerGroup": "x", "workerId": "y"})).extra;
        let mut own = report(json!({}));
        assert_eq!(own.reporter(), None);
        own.extra = extra_of_worker(&worker(), lie);
        assert_eq!(own.reporter().as_deref(), Some("g/w"));
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
