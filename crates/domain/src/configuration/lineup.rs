//! The launch configs of a compiled pool as their providers completed them, each under an id of its own.

use std::collections::BTreeMap;

use rules::Attributes;
use serde_json::{Map, Value};

use super::compiled::{CompiledLaunchConfig, CompiledProvider};
use crate::id::{BadId, LaunchConfigId, PoolId, ProviderId};
use crate::launch_config::{give_id, has_own_id, id_of, id_of_twin, steer_to};

pub struct Lineup {
    pool_id: PoolId,
    configs: Vec<LinedUp>,
    places: BTreeMap<LaunchConfigId, usize>,
}

/// A launch config as it will be stored.
#[derive(Clone, Debug, PartialEq)]
pub struct LinedUp {
    pub id: LaunchConfigId,
    pub provider_id: ProviderId,
    pub presented: Attributes,
    pub configuration: Map<String, Value>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum NotLinedUp {
    #[error(transparent)]
    Id(#[from] BadId),
    #[error(
        "With {presented}: the launch config of the provider {provider_id} would have the id {id}, which is that of another \
         one in {pool_id} (with {other}): an id can stand for one launch config only"
    )]
    Taken {
        id: LaunchConfigId,
        pool_id: PoolId,
        provider_id: ProviderId,
        presented: Attributes,
        other: Attributes,
    },
}

impl Lineup {
    pub fn new(pool_id: &PoolId) -> Self {
        Self {
            pool_id: pool_id.clone(),
            configs: Vec::new(),
            places: BTreeMap::new(),
        }
    }

    /// Returns under which id it is known. The provider of the first one is the pool's; others say their own.
    pub fn add(
        &mut self,
        provider: &CompiledProvider,
        config: &CompiledLaunchConfig,
        is_of_first: bool,
        mut completed: Map<String, Value>,
    ) -> Result<LaunchConfigId, NotLinedUp> {
        if !is_of_first {
            steer_to(&mut completed, &provider.id);
        }
        let mut id = id_of(&self.pool_id, &completed)?;
        let is_twin = |other: &LinedUp| other.provider_id != provider.id;
        if self.known(&id).is_some_and(is_twin) && !has_own_id(&completed) {
            // The same content, launched by somebody else.
            id = id_of_twin(&self.pool_id, &provider.id, &completed)?;
            give_id(&mut completed, &id);
        }
        if let Some(other) = self.known(&id) {
            // Its provider may have made the same of two.
            let same = !is_twin(other) && other.configuration == completed;
            return match same {
                true => Ok(id),
                false => Err(self.taken(id, other, provider, config)),
            };
        }
        self.places.insert(id.clone(), self.configs.len());
        self.configs.push(LinedUp {
            id: id.clone(),
            provider_id: provider.id.clone(),
            presented: config.presented.clone(),
            configuration: completed,
        });
        Ok(id)
    }

    /// In their order.
    pub fn into_configs(self) -> Vec<LinedUp> {
        self.configs
    }

    fn known(&self, id: &LaunchConfigId) -> Option<&LinedUp> {
        self.configs.get(*self.places.get(id)?)
    }

    fn taken(
        &self,
        id: LaunchConfigId,
        other: &LinedUp,
        provider: &CompiledProvider,
        config: &CompiledLaunchConfig,
    ) -> NotLinedUp {
        NotLinedUp::Taken {
            id,
            pool_id: self.pool_id.clone(),
            provider_id: provider.id.clone(),
            presented: config.presented.clone(),
            other: other.presented.clone(),
        }
    }
}
