//! What the providers present to rule sets: whether they launch workers, and where.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::id::{LaunchConfigId, PoolId, ProviderId};

/// Conditions that a provider presents together: `region` and `availabilityZone`, say.
pub type Place = BTreeMap<String, String>;

/// What a provider does with the pools that opt in to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WorkerSource {
    /// It launches workers from launch configs.
    Launches,
    /// Its workers are declared by people.
    Declarations,
    /// Neither.
    Nothing,
}

/// What one provider presents.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderEntry {
    pub takes: WorkerSource,
    /// In the provider's order. None at all means: one, about which there is nothing to say.
    pub places: Vec<Place>,
    /// Where in a launch config a condition's value belongs, as a JSON pointer, by the condition's name: it is put
    /// there unless a rule put something there.
    #[serde(default)]
    pub fills: BTreeMap<String, String>,
}

/// All providers that rule sets can opt in to, and what they said when a configuration was compiled.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct ProviderCatalog {
    #[serde(with = "by_id")]
    pub providers: BTreeMap<ProviderId, ProviderEntry>,
    /// Known, and not able to say anything now, and why.
    #[serde(with = "by_id", default, skip_serializing_if = "BTreeMap::is_empty")]
    pub out_of_service: BTreeMap<ProviderId, String>,
    /// Without a server nobody knows its providers: each that is named is taken to launch workers and to present nothing.
    #[serde(default)]
    pub is_assumed: bool,
    /// What they made of launch configs, once they have been asked.
    #[serde(default, skip_serializing_if = "CompletedIds::is_empty")]
    pub completed: CompletedIds,
}

/// The ids of launch configs that providers complete with values of their own, by pool, provider, and the id by what
/// the rules alone say.
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

    /// What is known of a pool stays as it was.
    pub fn take_over(&mut self, pool_id: &PoolId, before: &Self) {
        if let Some(of_pool) = before.0.get(pool_id.as_str()) {
            self.0.insert(pool_id.to_string(), of_pool.clone());
        }
    }

    /// `None`: it is the one by the rules.
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
    /// Where nobody is known and everybody is welcome.
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

    /// Whether a configuration that opts in to these providers would come out the same.
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

    /// Whether there is such a provider, be it able to say something or not.
    pub fn knows(&self, name: &str) -> bool {
        let mut ids = self.providers.keys().chain(self.out_of_service.keys());
        ids.any(|id| id.as_str() == name)
    }

    /// As it is stored.
    pub fn to_json(&self) -> Value {
        serde_json::to_value(self).unwrap_or_else(|_| json!({}))
    }

    pub fn from_json(stored: &Value) -> Result<Self, serde_json::Error> {
        Self::deserialize(stored)
    }
}

mod by_id {
    use std::collections::BTreeMap;

    use serde::de::Error as _;
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::ProviderId;

    pub(super) fn serialize<T: Serialize, S: Serializer>(
        providers: &BTreeMap<ProviderId, T>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(providers.iter().map(|(id, about)| (id.as_str(), about)))
    }

    pub(super) fn deserialize<'de, T: Deserialize<'de>, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<ProviderId, T>, D::Error> {
        let named = BTreeMap::<String, T>::deserialize(deserializer)?;
        let parsed = named
            .into_iter()
            .map(|(id, about)| id.parse().map(|id| (id, about)).map_err(D::Error::custom));
        parsed.collect()
    }
}
