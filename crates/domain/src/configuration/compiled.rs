//! What follows from a worker configuration: pools, their providers and launch configs.

use std::sync::Arc;

use rules::{Attributes, RuleSetDiff};
use serde_json::{Map, Value};

use super::WorkerType;
use super::market::Takes;
use crate::id::{LaunchConfigId, PoolId, ProviderId};

#[derive(Debug, PartialEq)]
pub struct CompiledPool {
    pub worker_type: WorkerType,
    pub owner: String,
    pub description: String,
    pub email_on_error: bool,
    /// Without launch configs.
    pub config: Map<String, Value>,
    pub providers: Vec<CompiledProvider>,
    pub payload_schema: Option<Arc<Value>>,
    pub check_payload: bool,
    /// How much room its launch configs take, about.
    pub(super) n_bytes: usize,
}

#[derive(Debug, PartialEq)]
pub struct CompiledProvider {
    pub id: ProviderId,
    pub takes: Takes,
    pub section: String,
    /// What the pool's config holds for a provider whose workers are declared by people.
    pub declared: Map<String, Value>,
    pub launch_configs: Vec<CompiledLaunchConfig>,
    /// Evaluations in which a rule says `disabled: true`.
    pub disabled: Vec<Attributes>,
    /// Evaluations that gave a launch config which another had given already.
    pub repeated: Vec<Attributes>,
}

#[derive(Debug, PartialEq)]
pub struct CompiledLaunchConfig {
    /// By what the rules say: its provider may complete it, and then it is known by another.
    pub id: LaunchConfigId,
    /// The first evaluation that gave it.
    pub presented: Attributes,
    /// As its provider wants it.
    pub configuration: Map<String, Value>,
    /// Where it is another one than the pool's.
    pub payload_schema: Option<Arc<Value>>,
}

impl CompiledPool {
    pub fn pool_id(&self) -> &PoolId {
        self.worker_type.pool_id()
    }

    /// Whether any of its providers launches workers.
    pub fn launches(&self) -> bool {
        let mut providers = self.providers.iter();
        providers.any(|provider| provider.takes == Takes::Launches)
    }

    /// With the provider of each.
    pub fn launch_configs(&self) -> impl Iterator<Item = (&ProviderId, &CompiledLaunchConfig)> {
        self.providers.iter().flat_map(|provider| {
            provider
                .launch_configs
                .iter()
                .map(|config| (&provider.id, config))
        })
    }

    /// In how many places it was evaluated.
    pub(super) fn n_places(&self) -> usize {
        let places = self.providers.iter().map(CompiledProvider::n_places);
        places.sum()
    }

    pub(super) fn is_touched(&self, change: &RuleSetDiff) -> bool {
        let presented = self.worker_type.presented();
        change.affects(&presented)
            || change.may_affect(&presented)
                && self.providers.iter().any(|provider| {
                    let configs = provider
                        .launch_configs
                        .iter()
                        .map(|config| &config.presented);
                    configs
                        .chain(&provider.disabled)
                        .chain(&provider.repeated)
                        .any(|presented| change.affects(presented))
                })
    }
}

impl CompiledProvider {
    pub(super) fn n_places(&self) -> usize {
        self.launch_configs.len() + self.disabled.len() + self.repeated.len()
    }
}
