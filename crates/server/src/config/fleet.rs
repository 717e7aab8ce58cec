//! The section `[fleet]`: the intervals of planning and scanning, and the retention of decisions.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::rate_limit::RateLimits;
use serde::Deserialize;

/// For longer histories, evaluate the events.
const MAX_KEPT_RUNS: u32 = 100_000;
/// Simulations read a recording into memory.
const MAX_RECORDED: u32 = 10_000_000;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fleet {
    /// Interval of the decisions on all pools, besides those that changes trigger.
    pub round_seconds: u64,
    /// Interval of the scans of all machines.
    pub scan_seconds: u64,
    /// Retention of decisions and launches.
    pub history_days: u32,
    /// Number of recent task runs that are kept per pool, including the last 20 of each worker.
    pub kept_task_runs: u32,
    /// Retention of the recorded history, which `fleetwright simulate recorded` replays.
    pub recording_days: u32,
    /// Maximum number of recorded runs, and of recorded workers.
    pub recorded_runs: u32,
    /// Limits of the calls to the providers' clouds, by provider id.
    pub rate_limits: BTreeMap<String, RateLimits>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            round_seconds: 10,
            scan_seconds: 20,
            history_days: 30,
            kept_task_runs: 2_000,
            recording_days: 8,
            recorded_runs: 1_000_000,
            rate_limits: BTreeMap::new(),
        }
    }
}

impl Fleet {
    pub fn round(&self) -> Duration {
        Duration::from_secs(self.round_seconds)
    }

    pub fn scan(&self) -> Duration {
        Duration::from_secs(self.scan_seconds)
    }

    /// The key and the problem of the first invalid value.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        if self.round_seconds == 0 {
            return Some(("fleet.round_seconds", "must be at least 1"));
        }
        if self.scan_seconds == 0 {
            return Some(("fleet.scan_seconds", "must be at least 1"));
        }
        if self.history_days == 0 {
            return Some(("fleet.history_days", "must be at least 1"));
        }
        if self.kept_task_runs > MAX_KEPT_RUNS {
            return Some(("fleet.kept_task_runs", "must be at most 100000"));
        }
        if self.recorded_runs > MAX_RECORDED {
            return Some(("fleet.recorded_runs", "must be at most 10000000"));
        }
        if !self.rate_limits.values().all(RateLimits::are_valid) {
            let problem = "must have rates from 0.01 to 10000 a second";
            return Some(("fleet.rate_limits", problem));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_cause_a_busy_loop_or_a_useless_retention_are_refused() {
        assert_eq!(Fleet::default().problem(), None);
        for (text, key) in [
            ("round_seconds = 0", "fleet.round_seconds"),
            ("scan_seconds = 0", "fleet.scan_seconds"),
            ("history_days = 0", "fleet.history_days"),
            ("kept_task_runs = 100001", "fleet.kept_task_runs"),
            ("recorded_runs = 10000001", "fleet.recorded_runs"),
            ("rate_limits.aws.reads_per_second = 0", "fleet.rate_limits"),
            ("rate_limits.aws.ends_per_second = nan", "fleet.rate_limits"),
        ] {
            let fleet: Fleet = toml::from_str(text).unwrap();
            assert_eq!(fleet.problem().map(|(key, _)| key), Some(key));
        }
    }
}
