//! The catalog of providers for rule sets: whether they launch workers, and where.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::id::{LaunchConfigId, PoolId, ProviderId};

/// Conditions of a provider's place, such as `region` and `availabilityZone`.
pub type Place = BTreeMap<String, String>;

/// Where the workers of a provider come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerSource {
    /// Launches from launch configs.
    Launches,
    /// Declarations by people.
    Declarations,
    /// The provider has no workers.
    Nothing,
}

/// The catalog entry of a provider.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderEntry {
    pub takes: WorkerSource,
    /// In the provider's order. An empty list is one place without conditions.
    pub places: Vec<Place>,
    /// The JSON pointer in a launch config where the value of a condition belongs, by the
    /// condition's name. It is set there unless a rule sets a value.
    #[serde(default)]
    pub fills: BTreeMap<String, String>,
}

/// All providers that rule sets can opt in to, as they were when a configuration was compiled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderCatalog {
    pub providers: BTreeMap<ProviderId, ProviderEntry>,
    /// Known providers that do not work now, with the reason.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub out_of_service: BTreeMap<ProviderId, String>,
    /// Without a server the providers are not known: each named provider is assumed to launch
    /// workers and to offer no places.
    #[serde(default)]
    pub is_assumed: bool,
    /// The ids of completed launch configs, once the providers were asked.
    #[serde(default, skip_serializing_if = "CompletedIds::is_empty")]
    pub completed: CompletedIds,
}

/// The ids of launch configs that providers complete with their own values: by pool, provider, and
/// the id from the rules alone.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CompletedIds(BTreeMap<String, OfPool>);

type OfPool = BTreeMap<String, BTreeMap<String, String>>;

impl CompletedIds {
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn add(
        &mut self,
        pool_id: &PoolId,
        provider_id: &ProviderId,
        by_rules: &LaunchConfigId,
        known: &LaunchConfigId,
    ) {
        let of_pool = self.0.entry(pool_id.to_string()).or_default();
        let of_provider = of_pool.entry(provider_id.to_string()).or_default();
        of_provider.insert(by_rules.to_string(), known.to_string());
    }

    /// Copies the ids of a pool from a previous compilation.
    pub fn take_over(&mut self, pool_id: &PoolId, before: &Self) {
        if let Some(of_pool) = before.0.get(pool_id.as_str()) {
            self.0.insert(pool_id.to_string(), of_pool.clone());
        }
    }

    /// `None` if the id is the one from the rules.
    pub(super) fn id(
        &self,
        pool_id: &PoolId,
        provider_id: &ProviderId,
        by_rules: &LaunchConfigId,
    ) -> Option<LaunchConfigId> {
        let of_provider = self.0.get(pool_id.as_str())?.get(provider_id.as_str())?;
        of_provider.get(by_rules.as_str())?.parse().ok()
    }
}

impl ProviderEntry {
    pub fn launching(places: Vec<Place>) -> Self {
        Self {
            takes: WorkerSource::Launches,
            places,
            fills: BTreeMap::new(),
        }
    }
}

impl ProviderCatalog {
    /// A catalog that accepts every provider.
    pub fn assumed() -> Self {
        Self {
            is_assumed: true,
            ..Self::default()
        }
    }

    pub fn of(&self, id: &ProviderId) -> Option<ProviderEntry> {
        let known = self.providers.get(id).cloned();
        known.or_else(|| {
            self.is_assumed
                .then(|| ProviderEntry::launching(Vec::new()))
        })
    }

    /// Whether a configuration that opts in to these providers would compile to the same pools.
    pub fn is_same_for(&self, other: &Self, named: &BTreeSet<String>) -> bool {
        let known = |catalog: &Self| -> BTreeSet<ProviderId> {
            let ids = catalog
                .providers
                .keys()
                .chain(catalog.out_of_service.keys());
            ids.cloned().collect()
        };
        let asked = |catalog: &Self| -> BTreeMap<ProviderId, ProviderEntry> {
            let named = named.iter().filter_map(|name| name.parse().ok());
            named
                .filter_map(|id| {
                    Some((ProviderId::clone(&id), catalog.providers.get(&id)?.clone()))
                })
                .collect()
        };
        self.is_assumed == other.is_assumed
            && known(self) == known(other)
            && asked(self) == asked(other)
    }

    /// Whether this provider exists, working or not.
    pub fn knows(&self, name: &str) -> bool {
        let mut ids = self.providers.keys().chain(self.out_of_service.keys());
        ids.any(|id| id.as_str() == name)
    }

    /// The stored form.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }

    pub fn from_json(stored: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(stored)
    }
}
