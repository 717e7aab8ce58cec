//! The resources of a pool at a provider, such as a network or a group of its own: made before the
//! first launch there, released after the last machine.

use serde_json::Value;

use crate::Version;
use crate::id::{PoolId, ProviderId, names};
use crate::time::{HOUR_MS, MINUTE_MS, Timestamp};

/// The pause after a failure, doubled with each further one.
const FIRST_PAUSE_MS: i64 = MINUTE_MS;
const LONGEST_PAUSE_MS: i64 = HOUR_MS;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ResourcesState {
    /// The provider is asked to make them. They may exist.
    Preparing,
    /// Machines may be launched with them.
    Ready,
    /// The provider is asked to remove them. Nothing is launched there until then.
    Releasing,
}

names! {
    ResourcesState, "not a state of resources (preparing, ready, releasing)",
    Preparing = "preparing",
    Ready = "ready",
    Releasing = "releasing",
}

/// One row for each pool and provider. It is written before the provider is asked for the first
/// time, so that a crash leaves no resource without a row.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolResources {
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub state: ResourcesState,
    /// The provider's own data; only the provider reads it.
    pub data: Value,
    /// The last failure, or empty.
    pub problem: String,
    /// Failures in a row.
    pub n_failures: u32,
    /// The provider is not asked again before.
    pub next_try: Timestamp,
    pub version: Version,
}

impl PoolResources {
    pub fn new(pool_id: PoolId, provider_id: ProviderId, now: Timestamp) -> Self {
        Self {
            pool_id,
            provider_id,
            state: ResourcesState::Preparing,
            data: Value::Null,
            problem: String::new(),
            n_failures: 0,
            next_try: now,
            version: Version::FIRST,
        }
    }

    /// The provider has made them.
    pub fn complete(mut self, data: Value) -> Self {
        self.state = ResourcesState::Ready;
        self.data = data;
        self.succeed()
    }

    /// From now on they are removed.
    pub fn release(mut self) -> Self {
        self.state = ResourcesState::Releasing;
        self.succeed()
    }

    /// The provider failed; it is asked again after a pause.
    pub fn fail(mut self, problem: String, now: Timestamp) -> Self {
        let doubled = FIRST_PAUSE_MS << self.n_failures.min(16);
        self.next_try = now.plus_millis(doubled.min(LONGEST_PAUSE_MS));
        self.n_failures = self.n_failures.saturating_add(1);
        self.problem = problem;
        self
    }

    fn succeed(mut self) -> Self {
        self.problem = String::new();
        self.n_failures = 0;
        self
    }

    /// Whether the provider may be asked now. After the clock was set back, no pause is longer than
    /// the longest one.
    pub fn is_due(&self, now: Timestamp) -> bool {
        self.next_try <= now || self.next_try.millis_since(now) > LONGEST_PAUSE_MS
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_pause_after_a_failure_doubles_up_to_an_hour_and_ends_with_a_success() {
        let at = Timestamp::from_millis;
        let mut row = PoolResources::new("a/b".parse().unwrap(), "p".parse().unwrap(), at(0));
        assert!(row.is_due(at(0)));
        let mut pauses = Vec::new();
        for _ in 0..8 {
            row = row.fail("no".to_owned(), at(0));
            pauses.push(row.next_try.as_millis() / MINUTE_MS);
            assert!(!row.is_due(at(0)));
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 60, 60]);
        let mut endless = row.clone();
        endless.n_failures = u32::MAX;
        assert_eq!(endless.fail(String::new(), at(0)).n_failures, u32::MAX);
        // The clock was set back by a day.
        assert!(row.is_due(at(-24 * HOUR_MS)));
        let row = row.complete(json!({"group": "g"}));
        assert_eq!((row.n_failures, row.problem.as_str()), (0, ""));
        assert_eq!(row.release().state, ResourcesState::Releasing);
    }
}
