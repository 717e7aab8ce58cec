//! Relays: servers of datacentres that ask for credentials on behalf of the hosts there.

use serde_json::Value;

use crate::id::RelayId;
use crate::time::{SECOND_MS, Timestamp};

/// A relay is silent when this many announcements are missing.
const MISSING_ANNOUNCEMENTS: i64 = 3;

/// A relay as it last announced itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Relay {
    pub id: RelayId,
    pub first_seen: Timestamp,
    pub last_seen: Timestamp,
    pub interval_seconds: u32,
    /// The announcement, as the contract defines it.
    pub announcement: Value,
}

impl Relay {
    /// When the last announcement came, if the next ones are missing.
    pub fn silent_since(&self, now: Timestamp) -> Option<Timestamp> {
        let patience_ms = MISSING_ANNOUNCEMENTS * i64::from(self.interval_seconds) * SECOND_MS;
        (now.millis_since(self.last_seen) > patience_ms).then_some(self.last_seen)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_relay_is_silent_after_three_missing_announcements() {
        let at = Timestamp::from_millis;
        let relay = Relay {
            id: "mdc1".parse().unwrap(),
            first_seen: at(0),
            last_seen: at(5_000),
            interval_seconds: 30,
            announcement: Value::Null,
        };
        assert_eq!(relay.silent_since(at(0)), None, "its clock may be ahead");
        assert_eq!(relay.silent_since(at(95_000)), None);
        assert_eq!(relay.silent_since(at(95_001)), Some(at(5_000)));
    }
}
