//! The worker's settings from the worker configuration of its pool.
//!
//! Our own keys are under `fleetwright`. Two keys of generic-worker's configuration have the same
//! meaning here and are read too, so that a pool can change between the workers.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::identity::{Kind, MAX_CAPACITY};

/// Time that a launched worker waits for work before it asks whether to stop.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_secs(60);
/// Ten years, far below the limit of timers.
const MAX_SECONDS: u64 = 10 * 365 * 24 * 60 * 60;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Settings {
    /// Tasks at a time.
    pub(crate) capacity: u32,
    /// Time without a task after which the worker asks whether to stop; `None`: never.
    pub(crate) idle_timeout: Option<Duration>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadSettings {
    #[error(
        "worker configuration: fleetwright.{0} is unknown; the known keys are capacity and idleTimeoutSeconds"
    )]
    Unknown(String),
    #[error("worker configuration: {key} must be an integer from {least} to {most}")]
    Number {
        key: &'static str,
        least: u64,
        most: u64,
    },
}

impl Settings {
    /// Reads the settings. The provider's capacity overrides the configuration, since the fleet
    /// counts on it.
    pub(crate) fn read(
        config: &Map<String, Value>,
        capacity: Option<u32>,
        kind: Kind,
    ) -> Result<Self, BadSettings> {
        let ours = config.get("fleetwright");
        if let Some(unknown) = ours.and_then(Value::as_object).and_then(unknown_key) {
            return Err(BadSettings::Unknown(unknown));
        }
        let keys = ["fleetwright.capacity", "genericWorker.config.capacity"];
        let configured = number(config, keys, 1, u64::from(MAX_CAPACITY))?;
        let keys = [
            "fleetwright.idleTimeoutSeconds",
            "genericWorker.config.idleTimeoutSecs",
        ];
        let seconds = number(config, keys, 0, MAX_SECONDS)?;
        let idle_timeout = match (seconds, kind) {
            (Some(0), _) | (None, Kind::Static) => None,
            (Some(seconds), _) => Some(Duration::from_secs(seconds)),
            (None, Kind::Launched) => Some(DEFAULT_IDLE_TIMEOUT),
        };
        let configured = configured.and_then(|number| u32::try_from(number).ok());
        Ok(Self {
            capacity: capacity.or(configured).unwrap_or(1),
            idle_timeout,
        })
    }
}

fn unknown_key(ours: &Map<String, Value>) -> Option<String> {
    let known = ["capacity", "idleTimeoutSeconds"];
    ours.keys()
        .find(|key| !known.contains(&key.as_str()))
        .cloned()
}

/// The number under the first of the keys that is set.
fn number(
    config: &Map<String, Value>,
    keys: [&'static str; 2],
    least: u64,
    most: u64,
) -> Result<Option<u64>, BadSettings> {
    for key in keys {
        let (section, path) = key.split_once('.').unwrap_or((key, ""));
        let pointer = format!("/{}", path.replace('.', "/"));
        let section = config.get(section);
        if let Some(value) = section.and_then(|section| section.pointer(&pointer)) {
            let number = value.as_u64().filter(|n| (least..=most).contains(n));
            let wrong = BadSettings::Number { key, least, most };
            return number.map(Some).ok_or(wrong);
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(config: &Value, capacity: Option<u32>, kind: Kind) -> Result<Settings, BadSettings> {
        Settings::read(config.as_object().unwrap(), capacity, kind)
    }

    #[test]
    fn a_launched_worker_stops_after_a_minute_and_a_static_one_stays() {
        let launched = read(&json!({}), None, Kind::Launched).unwrap();
        assert_eq!(launched.capacity, 1);
        assert_eq!(launched.idle_timeout, Some(Duration::from_secs(60)));
        let standing = read(&json!({}), Some(3), Kind::Static).unwrap();
        assert_eq!((standing.capacity, standing.idle_timeout), (3, None));
    }

    #[test]
    fn our_keys_go_before_those_of_generic_worker() {
        let theirs = json!({"config": {"idleTimeoutSecs": 7, "capacity": 4}, "files": []});
        let both = json!({"fleetwright": {"idleTimeoutSeconds": 2}, "genericWorker": theirs});
        let settings = read(&both, None, Kind::Launched).unwrap();
        assert_eq!(settings.idle_timeout, Some(Duration::from_secs(2)));
        assert_eq!(settings.capacity, 4);
        let settings = read(&json!({"genericWorker": theirs}), Some(1), Kind::Launched).unwrap();
        assert_eq!(settings.idle_timeout, Some(Duration::from_secs(7)));
        assert_eq!(settings.capacity, 1);
    }

    #[test]
    fn zero_seconds_mean_that_it_stays() {
        let config = json!({"fleetwright": {"idleTimeoutSeconds": 0}});
        let settings = read(&config, None, Kind::Launched).unwrap();
        assert_eq!(settings.idle_timeout, None);
    }

    #[test]
    fn invalid_settings_are_named() {
        for (config, part) in [
            (
                json!({"fleetwright": {"idleTimeout": 3}}),
                "fleetwright.idleTimeout is unknown",
            ),
            (
                json!({"fleetwright": {"idleTimeoutSeconds": -1}}),
                "fleetwright.idleTimeoutSeconds must",
            ),
            (
                json!({"fleetwright": {"capacity": 1_001}}),
                "from 1 to 1000",
            ),
            (
                json!({"genericWorker": {"config": {"idleTimeoutSecs": "9"}}}),
                "idleTimeoutSecs must",
            ),
        ] {
            let problem = read(&config, None, Kind::Launched).unwrap_err().to_string();
            assert!(problem.contains(part), "{problem}");
        }
    }
}
