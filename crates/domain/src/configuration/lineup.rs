//! The launch configs of a compiled pool after their providers completed them, each with its own
//! id.

use std::collections::BTreeMap;

use rules::Attributes;
use serde_json::{Map, Value};

use super::compiled::CompiledProvider;
use super::provider_catalog::WorkerSource;
use crate::id::{BadId, LaunchConfigId, PoolId, ProviderId};
use crate::launch_config::{
    has_own_id, id_for_second_provider, id_of, set_id, set_provider, take_host_mark,
};

pub struct Lineup {
    pool_id: PoolId,
    configs: Vec<CompletedLaunchConfig>,
    places: BTreeMap<LaunchConfigId, usize>,
}

/// A launch config in the form in which it is stored.
#[derive(Clone, Debug, PartialEq)]
pub struct CompletedLaunchConfig {
    pub id: LaunchConfigId,
    pub provider_id: ProviderId,
    pub attributes: Attributes,
    pub configuration: Map<String, Value>,
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineupError {
    #[error(transparent)]
    Id(#[from] BadId),
    #[error(
        "With {attributes}: the launch config of the provider {provider_id} would have the id {id} of another \
         launch config in {pool_id} (with {other}): an id can stand for one launch config only"
    )]
    Taken {
        id: LaunchConfigId,
        pool_id: PoolId,
        provider_id: ProviderId,
        attributes: Attributes,
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

    /// Adds a launch config and returns its id. The pool's provider is that of the first launch
    /// config; the others name theirs.
    pub fn add(
        &mut self,
        provider: &CompiledProvider,
        attributes: &Attributes,
        is_of_first: bool,
        mut completed: Map<String, Value>,
    ) -> Result<LaunchConfigId, LineupError> {
        if provider.takes == WorkerSource::Launches {
            take_host_mark(&mut completed);
        }
        if !is_of_first {
            set_provider(&mut completed, &provider.id);
        }
        let mut id = id_of(&self.pool_id, &completed)?;
        let is_twin = |other: &CompletedLaunchConfig| other.provider_id != provider.id;
        if self.known(&id).is_some_and(is_twin) && !has_own_id(&completed) {
            // The same content, launched by another provider.
            id = id_for_second_provider(&self.pool_id, &provider.id, &completed)?;
            set_id(&mut completed, &id);
        }
        if let Some(other) = self.known(&id) {
            // Its provider may have made the same content from two launch configs.
            let same = !is_twin(other) && other.configuration == completed;
            return match same {
                true => Ok(id),
                false => Err(self.taken(id, other, provider, attributes)),
            };
        }
        self.places.insert(id.clone(), self.configs.len());
        self.configs.push(CompletedLaunchConfig {
            id: id.clone(),
            provider_id: provider.id.clone(),
            attributes: attributes.clone(),
            configuration: completed,
        });
        Ok(id)
    }

    /// The launch configs in their order.
    pub fn into_configs(self) -> Vec<CompletedLaunchConfig> {
        self.configs
    }

    fn known(&self, id: &LaunchConfigId) -> Option<&CompletedLaunchConfig> {
        self.configs.get(*self.places.get(id)?)
    }

    fn taken(
        &self,
        id: LaunchConfigId,
        other: &CompletedLaunchConfig,
        provider: &CompiledProvider,
        attributes: &Attributes,
    ) -> LineupError {
        LineupError::Taken {
            id,
            pool_id: self.pool_id.clone(),
            provider_id: provider.id.clone(),
            attributes: attributes.clone(),
            other: other.attributes.clone(),
        }
    }
}
