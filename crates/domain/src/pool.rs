//! Worker pools: their limits, their providers and their owner.

use serde_json::{Map, Value};

use crate::Version;
use crate::id::{ConfigurationId, PoolId, ProviderId};
use crate::time::Timestamp;

/// Maximum number of launch configs of a pool. They are written in one transaction, which blocks
/// all other writes on SQLite.
pub const MAX_LAUNCH_CONFIGS: usize = 2_000;

/// The definition of a pool, as its author wrote it.
#[derive(Clone, Debug, PartialEq)]
pub struct PoolDefinition {
    /// The first provider, for launch configs that name none.
    pub provider_id: ProviderId,
    /// In their order, without the first provider.
    pub further_provider_ids: Vec<ProviderId>,
    pub description: String,
    /// Without the launch configs, which are separate rows.
    pub config: Map<String, Value>,
    pub owner: String,
    pub email_on_error: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Pool {
    pub id: PoolId,
    pub definition: PoolDefinition,
    /// Providers that the pool no longer uses and that may still have workers in it.
    pub previous_provider_ids: Vec<ProviderId>,
    /// The worker configuration that it is made from; `None` if it was created by hand.
    pub worker_configuration_id: Option<ConfigurationId>,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub version: Version,
}

impl PoolDefinition {
    fn provider_ids(&self) -> impl Iterator<Item = &ProviderId> {
        std::iter::once(&self.provider_id).chain(&self.further_provider_ids)
    }

    fn has_provider(&self, provider_id: &ProviderId) -> bool {
        self.provider_ids().any(|id| id == provider_id)
    }
}

impl Pool {
    pub fn new(id: PoolId, definition: PoolDefinition, now: Timestamp) -> Self {
        Self {
            id,
            definition,
            previous_provider_ids: Vec::new(),
            worker_configuration_id: None,
            created: now,
            last_modified: now,
            version: Version::FIRST,
        }
    }

    /// Replaces the definition. Removed providers are remembered until their workers have stopped.
    pub fn redefine(&mut self, definition: PoolDefinition, now: Timestamp) {
        let previous = &mut self.previous_provider_ids;
        for left in self.definition.provider_ids() {
            if !previous.contains(left) {
                previous.push(left.clone());
            }
        }
        previous.retain(|id| !definition.has_provider(id));
        self.definition = definition;
        self.last_modified = now;
    }

    /// The first provider, then the others in their order.
    pub fn provider_ids(&self) -> impl Iterator<Item = &ProviderId> {
        self.definition.provider_ids()
    }

    /// Whether new workers may come from this provider.
    pub fn has_provider(&self, provider_id: &ProviderId) -> bool {
        self.definition.has_provider(provider_id)
    }

    /// Whether workers of this provider may belong to the pool.
    pub fn knows_provider(&self, provider_id: &ProviderId) -> bool {
        self.has_provider(provider_id) || self.previous_provider_ids.contains(provider_id)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// With one provider, or with several: "one two".
    fn definition(providers: &str) -> PoolDefinition {
        let mut ids = providers.split(' ').map(|id| id.parse().unwrap());
        PoolDefinition {
            provider_id: ids.next().unwrap(),
            further_provider_ids: ids.collect(),
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
    fn every_provider_that_is_left_is_remembered_and_none_that_is_kept() {
        assert_eq!(pool_through(&["a b c", "b"]), ["a", "c"]);
        assert_eq!(pool_through(&["a b", "b a"]), Vec::<String>::new());
        assert_eq!(pool_through(&["a b", "c", "b d"]), ["a", "c"]);
    }

    #[test]
    fn a_pool_knows_the_providers_that_it_has_and_those_that_it_has_left() {
        let start = Timestamp::from_millis(0);
        let mut pool = Pool::new("a/b".parse().unwrap(), definition("one two"), start);
        pool.redefine(definition("two three"), start);
        let ids: Vec<_> = pool.provider_ids().map(ProviderId::as_str).collect();
        assert_eq!(ids, ["two", "three"]);
        let of = |id: &str| {
            let id = id.parse().unwrap();
            (pool.has_provider(&id), pool.knows_provider(&id))
        };
        assert_eq!(of("three"), (true, true));
        assert_eq!(of("one"), (false, true));
        assert_eq!(of("four"), (false, false));
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
