//! What the providers present to rule sets: whether they launch workers, and where.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::id::ProviderId;

/// Conditions that a provider presents together: `region` and `availabilityZone`, say.
pub type Place = BTreeMap<String, String>;

/// What a provider does with the pools that opt in to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Takes {
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
pub struct Wares {
    pub takes: Takes,
    /// In the provider's order. None at all means: one, about which there is nothing to say.
    pub places: Vec<Place>,
    /// Where in a launch config a condition's value belongs, as a JSON pointer, by the condition's name: it is put
    /// there unless a rule put something there.
    #[serde(default)]
    pub fills: BTreeMap<String, String>,
}

/// All providers that rule sets can opt in to.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Market {
    #[serde(with = "by_id")]
    pub providers: BTreeMap<ProviderId, Wares>,
    /// Known, and not able to say anything now, and why.
    #[serde(skip)]
    pub out_of_service: BTreeMap<ProviderId, String>,
    /// Without a server nobody knows its providers: each that is named is taken to launch workers and to present nothing.
    #[serde(default)]
    pub is_assumed: bool,
}

impl Wares {
    pub fn launching(places: Vec<Place>) -> Self {
        Self {
            takes: Takes::Launches,
            places,
            fills: BTreeMap::new(),
        }
    }
}

impl Market {
    /// Where nobody is known and everybody is welcome.
    pub fn assumed() -> Self {
        Self {
            is_assumed: true,
            ..Self::default()
        }
    }

    pub fn of(&self, id: &ProviderId) -> Option<Wares> {
        let known = self.providers.get(id).cloned();
        known.or_else(|| self.is_assumed.then(|| Wares::launching(Vec::new())))
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
    use serde::{Deserialize, Deserializer, Serializer};

    use super::{ProviderId, Wares};

    pub(super) fn serialize<S: Serializer>(
        providers: &BTreeMap<ProviderId, Wares>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_map(providers.iter().map(|(id, wares)| (id.as_str(), wares)))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<BTreeMap<ProviderId, Wares>, D::Error> {
        let named = BTreeMap::<String, Wares>::deserialize(deserializer)?;
        let parsed = named
            .into_iter()
            .map(|(id, wares)| id.parse().map(|id| (id, wares)).map_err(D::Error::custom));
        parsed.collect()
    }
}
