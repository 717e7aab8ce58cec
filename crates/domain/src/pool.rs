//! A worker pool: what workers there should be, from which provider, and who answers for them.

use serde_json::{Map, Value};

use crate::Version;
use crate::id::{PoolId, ProviderId};
use crate::launch_config::LaunchConfig;
use crate::time::Timestamp;

/// What an author says about a pool.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolDefinition {
    pub provider_id: ProviderId,
    pub description: String,
    /// Without the launch configs, which are rows of their own.
    pub config: Map<String, Value>,
    pub owner: String,
    pub email_on_error: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub id: PoolId,
    pub definition: PoolDefinition,
    /// Providers that the pool has left and that may still have workers in it.
    pub previous_provider_ids: Vec<ProviderId>,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

impl Pool {
    pub fn new(id: PoolId, definition: PoolDefinition, now: Timestamp) -> Self {
        Self {
            id,
            definition,
            previous_provider_ids: Vec::new(),
            created: now,
            last_modified: now,
            version: Version::FIRST,
        }
    }

    /// Replaces the definition. A provider that is left is remembered until its workers are gone.
    pub fn redefine(&mut self, definition: PoolDefinition, now: Timestamp) {
        let left = &self.definition.provider_id;
        if *left != definition.provider_id {
            if !self.previous_provider_ids.contains(left) {
                self.previous_provider_ids.push(left.clone());
            }
            self.previous_provider_ids
                .retain(|id| *id != definition.provider_id);
        }
        self.definition = definition;
        self.last_modified = now;
    }

    /// May workers of this provider belong to the pool?
    pub fn knows_provider(&self, provider_id: &ProviderId) -> bool {
        self.definition.provider_id == *provider_id
            || self.previous_provider_ids.contains(provider_id)
    }

    /// The config as clients see it: with the active launch configs in place, if there are any.
    pub fn assembled_config(&self, active: &[LaunchConfig]) -> Map<String, Value> {
        let mut config = self.definition.config.clone();
        if !active.is_empty() {
            let list = active.iter().map(LaunchConfig::with_id).collect();
            config.insert("launchConfigs".to_owned(), Value::Array(list));
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn definition(provider: &str) -> PoolDefinition {
        PoolDefinition {
            provider_id: provider.parse().unwrap(),
            description: String::new(),
            config: Map::new(),
            owner: "ops@example.com".to_owned(),
            email_on_error: false,
        }
    }

    fn pool_through(providers: &[&str]) -> Vec<String> {
        let start = Timestamp::from_millis(0);
        let mut pool = Pool::new("a/b".parse().unwrap(), definition(providers[0]), start);
        for provider in &providers[1..] {
            pool.redefine(definition(provider), start);
        }
        pool.previous_provider_ids
            .iter()
            .map(ToString::to_string)
            .collect()
    }

    #[test]
    fn a_provider_that_is_left_is_remembered_once() {
        assert_eq!(pool_through(&["one", "two"]), ["one"]);
        assert_eq!(pool_through(&["one", "one"]), Vec::<String>::new());
        assert_eq!(
            pool_through(&["one", "two", "three", "two"]),
            ["one", "three"]
        );
        assert_eq!(pool_through(&["one", "two", "one"]), ["two"]);
    }

    #[test]
    fn without_active_launch_configs_the_key_is_absent() {
        let pool = Pool::new(
            "a/b".parse().unwrap(),
            definition("one"),
            Timestamp::from_millis(0),
        );
        assert!(!pool.assembled_config(&[]).contains_key("launchConfigs"));
    }
}
