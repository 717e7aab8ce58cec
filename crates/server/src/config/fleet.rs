//! The section `[fleet]`: how often pools and machines are looked at, and for how long decisions are remembered.

use std::collections::BTreeMap;
use std::time::Duration;

use engine::rate_limit::RateLimits;
use serde::Deserialize;

/// More of one pool are a matter for whoever evaluates events.
const MAX_KEPT_RUNS: u32 = 100_000;

#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fleet {
    /// All pools are looked at this often, beside the moments at which something happens to one of them.
    pub round_seconds: u64,
    /// All machines are looked at this often.
    pub scan_seconds: u64,
    /// What was decided and launched is remembered this long.
    pub history_days: u32,
    /// So many of the last task runs are remembered for each pool, and of each worker the last 20 of them.
    pub kept_task_runs: u32,
    /// How often the cloud of a provider is called, by the provider's id.
    pub rate_limits: BTreeMap<String, RateLimits>,
}

impl Default for Fleet {
    fn default() -> Self {
        Self {
            round_seconds: 10,
            scan_seconds: 20,
            history_days: 30,
            kept_task_runs: 2_000,
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

    /// What is wrong with the values, if something is: the key and the problem.
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
    fn what_would_spin_or_forget_at_once_or_never_is_refused() {
        assert_eq!(Fleet::default().problem(), None);
        for (text, key) in [
            ("round_seconds = 0", "fleet.round_seconds"),
            ("scan_seconds = 0", "fleet.scan_seconds"),
            ("history_days = 0", "fleet.history_days"),
            ("kept_task_runs = 100001", "fleet.kept_task_runs"),
            ("rate_limits.aws.reads_per_second = 0", "fleet.rate_limits"),
            ("rate_limits.aws.ends_per_second = nan", "fleet.rate_limits"),
        ] {
            let fleet: Fleet = toml::from_str(text).unwrap();
            assert_eq!(fleet.problem().map(|(key, _)| key), Some(key));
        }
    }
}
