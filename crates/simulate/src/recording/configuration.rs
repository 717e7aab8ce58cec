//! The configuration of the pools of a simulation, present or changed.

use std::collections::{BTreeMap, BTreeSet};

use domain::id::{LaunchConfigId, PoolId, ProviderId};
use serde_json::{Map, Value};

use super::Recording;

/// The pools of a simulation, by id.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Configuration(pub BTreeMap<PoolId, ConfiguredPool>);

/// The configuration of a pool, present or changed.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ConfiguredPool {
    /// Without launch configs.
    pub config: Map<String, Value>,
    pub launch_configs: Vec<ConfiguredLaunchConfig>,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ConfiguredLaunchConfig {
    pub id: LaunchConfigId,
    pub provider_id: ProviderId,
    pub configuration: Map<String, Value>,
}

impl Configuration {
    /// As the pools are configured now. Hosts that people declare are never launched.
    pub fn present(recording: &Recording) -> Self {
        let pools = recording.pools.iter().map(|pool| {
            let configs = pool.launch_configs.iter();
            let configs = configs
                .filter(|config| recording.launches_at(&config.provider_id))
                .map(|config| ConfiguredLaunchConfig {
                    id: config.launch_config_id.clone(),
                    provider_id: config.provider_id.clone(),
                    configuration: config.configuration.clone(),
                });
            let configured = ConfiguredPool {
                config: pool.config.clone(),
                launch_configs: configs.collect(),
            };
            (pool.worker_pool_id.clone(), configured)
        });
        Self(pools.collect())
    }

    /// The pools that launch workers. The others cannot be simulated.
    pub fn launching(&self) -> BTreeSet<PoolId> {
        let pools = self.0.iter();
        let launching = pools.filter(|(_, pool)| !pool.launch_configs.is_empty());
        launching.map(|(id, _)| id.clone()).collect()
    }

    /// Only these pools.
    pub fn only(mut self, pools: &BTreeSet<PoolId>) -> Self {
        self.0.retain(|id, _| pools.contains(id));
        self
    }

    /// Sets a key of the config of all pools.
    pub fn set(&mut self, key: &str, value: &Value) {
        for pool in self.0.values_mut() {
            pool.config.insert(key.to_owned(), value.clone());
        }
    }
}
