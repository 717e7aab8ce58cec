//! From a worker configuration to pools and launch configs, again and again, doing only what an edit touches.

use std::collections::BTreeMap;
use std::sync::Arc;

use rules::{Attributes, Evaluator};

use super::compiled::{CompiledLaunchConfig, CompiledPool};
use super::compiler::Compiler;
use super::market::{Completed, Market};
use super::problem::Problems;
use super::{Configuration, WorkerType};
use crate::id::{LaunchConfigId, PoolId, ProviderId};

/// A configuration and all that follows from it.
#[derive(Clone, Debug)]
pub struct Compilation {
    pub configuration: Configuration,
    pub market: Arc<Market>,
    evaluator: Evaluator,
    /// One for each worker type, in their order. Those that an edit did not touch are the same as before.
    pub pools: Vec<Arc<CompiledPool>>,
}

impl Compilation {
    pub fn new(configuration: Configuration, market: Arc<Market>) -> Result<Self, Problems> {
        let evaluator = Evaluator::new(&configuration.rules);
        let mut compiler = Compiler::new(&evaluator, &market, &configuration.launch_config_ids);
        let worker_types = configuration.worker_types.iter();
        let pools: Vec<_> = worker_types
            .filter_map(|worker_type| compiler.pool(worker_type))
            .collect();
        compiler.finish()?;
        Ok(Self {
            configuration,
            market,
            evaluator,
            pools,
        })
    }

    /// Compiles the next version; pools to which the edit makes no difference are taken over.
    pub fn succeed(&self, next: Configuration, market: Arc<Market>) -> Result<Self, Problems> {
        let (evaluator, change) = self.evaluator.succeed(&next.rules);
        let known: BTreeMap<&WorkerType, &Arc<CompiledPool>> = self
            .pools
            .iter()
            .map(|pool| (&pool.worker_type, pool))
            .collect();
        let named = next.named_providers();
        // What is a section and what a misspelt setting depends on all providers that rules name.
        let is_comparable = named == self.configuration.named_providers()
            && next.launch_config_ids == self.configuration.launch_config_ids
            && self.market.is_same_for(&market, &named);
        let mut compiler = Compiler::new(&evaluator, &market, &next.launch_config_ids);
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
            market,
            evaluator,
            pools,
        })
    }

    /// Providers have been asked: this is what they made of launch configs.
    pub fn complete(&mut self, completed: Completed) {
        if self.market.completed != completed {
            Arc::make_mut(&mut self.market).completed = completed;
        }
    }

    /// About how much room its launch configs take.
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

    /// Under which id a launch config of a pool is known.
    pub fn known_id(
        &self,
        pool: &CompiledPool,
        provider_id: &ProviderId,
        config: &CompiledLaunchConfig,
    ) -> LaunchConfigId {
        let known = self
            .market
            .completed
            .id(pool.pool_id(), provider_id, &config.id);
        known.unwrap_or_else(|| config.id.clone())
    }

    /// Everything that this configuration evaluates.
    pub fn presentations(&self) -> Vec<Attributes> {
        let mut all = Vec::new();
        for pool in &self.pools {
            all.push(pool.worker_type.presented());
            for provider in &pool.providers {
                all.extend(
                    provider
                        .launch_configs
                        .iter()
                        .map(|config| config.presented.clone()),
                );
                all.extend(provider.disabled.iter().chain(&provider.repeated).cloned());
            }
        }
        all
    }
}
