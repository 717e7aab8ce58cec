//! The result of a worker configuration: pools, their providers and launch configs.

use std::sync::Arc;

use rules::{Attributes, RuleSetDiff};
use serde_json::{Map, Value};

use super::WorkerType;
use super::provider_catalog::WorkerSource;
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
    /// The approximate size of its launch configs.
    pub(super) n_bytes: usize,
}

#[derive(Debug, PartialEq)]
pub struct CompiledProvider {
    pub id: ProviderId,
    pub takes: WorkerSource,
    pub section: String,
    /// The part of the pool's config for a provider whose workers are declared by people.
    pub declared: Map<String, Value>,
    /// The evaluation that gave it.
    pub declared_at: Option<Attributes>,
    pub launch_configs: Vec<CompiledLaunchConfig>,
    /// Evaluations in which a rule sets `disabled: true`.
    pub disabled: Vec<Attributes>,
    /// Evaluations with the same launch config as another evaluation.
    pub repeated: Vec<Attributes>,
}

#[derive(Debug, PartialEq)]
pub struct CompiledLaunchConfig {
    /// The id from the rules alone: the provider may complete the launch config and change its id.
    pub id: LaunchConfigId,
    /// The first evaluation that gave it.
    pub attributes: Attributes,
    /// The launch config in its provider's format.
    pub configuration: Map<String, Value>,
    /// Present if it differs from the pool's.
    pub payload_schema: Option<Arc<Value>>,
}

impl CompiledPool {
    pub fn pool_id(&self) -> &PoolId {
        self.worker_type.pool_id()
    }

    /// Whether any of its providers launches workers.
    pub fn launches(&self) -> bool {
        let mut providers = self.providers.iter();
        providers.any(|provider| provider.takes == WorkerSource::Launches)
    }

    /// Each with its provider.
    pub fn launch_configs(&self) -> impl Iterator<Item = (&ProviderId, &CompiledLaunchConfig)> {
        self.providers.iter().flat_map(|provider| {
            provider
                .launch_configs
                .iter()
                .map(|config| (&provider.id, config))
        })
    }

    /// The number of places in which it was evaluated.
    pub(super) fn n_places(&self) -> usize {
        let evaluated = self.providers.iter().flat_map(CompiledProvider::evaluated);
        evaluated.count()
    }

    pub(super) fn is_touched(&self, change: &RuleSetDiff) -> bool {
        let attributes = self.worker_type.attributes();
        change.affects(&attributes)
            || change.may_affect(&attributes)
                && self.providers.iter().any(|provider| {
                    let mut evaluated = provider.evaluated();
                    evaluated.any(|attributes| change.affects(attributes))
                })
    }
}

impl CompiledProvider {
    /// The attributes of all its evaluations.
    pub(super) fn evaluated(&self) -> impl Iterator<Item = &Attributes> {
        let configs = self.launch_configs.iter().map(|config| &config.attributes);
        let configs = configs.chain(&self.declared_at);
        configs.chain(&self.disabled).chain(&self.repeated)
    }
}
