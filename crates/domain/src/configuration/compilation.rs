//! Compiles a worker configuration to pools and launch configs, and recompiles only what an edit
//! changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rules::{Attributes, Evaluator};

use super::compiled::{CompiledLaunchConfig, CompiledPool, CompiledProvider};
use super::compiler::Compiler;
use super::problem::Problems;
use super::provider_catalog::{CompletedIds, ProviderCatalog, WorkerSource};
use super::{Configuration, WorkerType};
use crate::id::{LaunchConfigId, PoolId, ProviderId};
use crate::launch_config::{id_of, without_id};

/// A configuration with all pools that it makes.
#[derive(Clone, Debug)]
pub struct Compilation {
    pub configuration: Configuration,
    pub catalog: Arc<ProviderCatalog>,
    evaluator: Evaluator,
    /// One pool for each worker type, in their order. Pools that an edit did not change are shared
    /// with the previous compilation.
    pub pools: Vec<Arc<CompiledPool>>,
}

impl Compilation {
    pub fn new(
        configuration: Configuration,
        catalog: Arc<ProviderCatalog>,
    ) -> Result<Self, Problems> {
        let evaluator = Evaluator::new(&configuration.rules);
        let mut compiler = Compiler::new(&evaluator, &catalog, &configuration.launch_config_ids);
        let worker_types = configuration.worker_types.iter();
        let pools: Vec<_> = worker_types
            .filter_map(|worker_type| compiler.pool(worker_type))
            .collect();
        compiler.finish()?;
        Ok(Self {
            configuration,
            catalog,
            evaluator,
            pools,
        })
    }

    /// Compiles the next version; pools that the edit does not change are taken over.
    pub fn succeed(
        &self,
        next: Configuration,
        catalog: Arc<ProviderCatalog>,
    ) -> Result<Self, Problems> {
        let (evaluator, change) = self.evaluator.succeed(&next.rules);
        let known: BTreeMap<&WorkerType, &Arc<CompiledPool>> = self
            .pools
            .iter()
            .map(|pool| (&pool.worker_type, pool))
            .collect();
        let named = next.named_providers();
        // All providers that rules name decide which keys are sections and which are misspelt.
        let is_comparable = named == self.configuration.named_providers()
            && next.launch_config_ids == self.configuration.launch_config_ids
            && self.catalog.is_same_for(&catalog, &named);
        let mut compiler = Compiler::new(&evaluator, &catalog, &next.launch_config_ids);
        let mut pools = Vec::with_capacity(next.worker_types.len());
        for worker_type in &next.worker_types {
            let before = known.get(worker_type).copied();
            let pool = match before {
                Some(before) if is_comparable && !before.is_touched(&change) => {
                    compiler.take_over(before);
                    Some(Arc::clone(before))
                }
                Some(before) => {
                    let pool = compiler.pool(worker_type);
                    pool.map(|pool| {
                        if *pool == **before {
                            Arc::clone(before)
                        } else {
                            pool
                        }
                    })
                }
                None => compiler.pool(worker_type),
            };
            pools.extend(pool);
        }
        compiler.finish()?;
        Ok(Self {
            configuration: next,
            catalog,
            evaluator,
            pools,
        })
    }

    /// The computed ids with given ones that no launch config has.
    pub fn unused_given_ids(&self) -> BTreeSet<LaunchConfigId> {
        let mut unused = self.configuration.launch_config_ids.computed();
        for pool in &self.pools {
            for (_, config) in pool.launch_configs() {
                let content = without_id(&config.configuration);
                if let Ok(computed) = id_of(pool.pool_id(), &content) {
                    unused.remove(&computed);
                }
            }
        }
        unused
    }

    /// A provider of a pool whose places are assumed: neither in the catalog, nor listed with
    /// `exact`.
    pub fn provider_with_assumed_places(&self) -> Option<&ProviderId> {
        self.pools.iter().find_map(|pool| {
            let values = self.evaluator.evaluate(&pool.worker_type.attributes());
            let is_exact = |id: &ProviderId| {
                let options = values.get("providers").and_then(|all| all.get(id.as_str()));
                options.is_some_and(|options| options["exact"] == true)
            };
            let is_assumed = |provider: &&CompiledProvider| {
                provider.takes == WorkerSource::Launches
                    && !self.catalog.providers.contains_key(&provider.id)
                    && !is_exact(&provider.id)
            };
            let mut providers = pool.providers.iter();
            providers.find(is_assumed).map(|provider| &provider.id)
        })
    }

    /// Stores the ids of launch configs that providers completed.
    pub fn complete(&mut self, completed: CompletedIds) {
        if self.catalog.completed != completed {
            Arc::make_mut(&mut self.catalog).completed = completed;
        }
    }

    /// The approximate size of its launch configs.
    pub fn n_bytes(&self) -> usize {
        self.pools.iter().map(|pool| pool.n_bytes).sum()
    }

    pub fn evaluator(&self) -> &Evaluator {
        &self.evaluator
    }

    pub fn pool(&self, id: &PoolId) -> Option<&Arc<CompiledPool>> {
        self.pools
            .iter()
            .find(|pool| pool.worker_type.pool_id() == id)
    }

    /// The id of a launch config of a pool after its provider completed it.
    pub fn known_id(
        &self,
        pool: &CompiledPool,
        provider_id: &ProviderId,
        config: &CompiledLaunchConfig,
    ) -> LaunchConfigId {
        let known = self
            .catalog
            .completed
            .id(pool.pool_id(), provider_id, &config.id);
        known.unwrap_or_else(|| config.id.clone())
    }

    /// The attributes of all evaluations of this configuration.
    pub fn evaluated_attributes(&self) -> Vec<Attributes> {
        let mut all = Vec::new();
        for pool in &self.pools {
            all.push(pool.worker_type.attributes());
            for provider in &pool.providers {
                all.extend(provider.evaluated().cloned());
            }
        }
        all
    }
}
