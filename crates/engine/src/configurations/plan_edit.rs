//! Plans an edit without writing: the changes of pools and launch configs, the workers and prices.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use domain::Version;
use domain::configuration::{
    Compilation, CompletedLaunchConfig, Configuration, PoolChange, PoolDifference, ProviderCatalog,
    RuleChange, VersionRecord, difference, rule_changes,
};
use domain::id::{ConfigurationId, ImageName, LaunchConfigId, PoolId};
use domain::launch_config::LaunchConfig;
use domain::time::Timestamp;
use store::StoreError;

use super::compilation_cache::{PreviousState, Purpose};
use super::edit::compile;
use super::provider_catalog::provider_catalog;
use super::validate_pools::validate_pools;
use super::{ConfigurationError, conflicts};
use crate::Engine;

#[derive(Default)]
pub struct EditPlan {
    /// The current version; `None`: the configuration does not exist.
    pub version: Option<Version>,
    pub rules: Vec<(String, RuleChange)>,
    pub pools: Vec<PoolDifference>,
    /// The number of pools after the edit.
    pub n_pools: usize,
    /// Reasons why the edit would be refused.
    pub conflicts: Vec<String>,
    /// Images that have to be created first.
    pub missing_images: BTreeSet<ImageName>,
    pub impact: EditImpact,
}

/// The workers and prices of the changed launch configs.
#[derive(Default)]
pub struct EditImpact {
    /// Workers that are not stopped.
    workers: BTreeMap<(PoolId, LaunchConfigId), u64>,
    /// Dollars per hour and machine.
    prices: BTreeMap<(PoolId, LaunchConfigId), f64>,
}

/// Refuses what an edit refuses.
pub async fn plan_edit(
    engine: &Engine,
    now: Timestamp,
    id: &ConfigurationId,
    wanted: Configuration,
    adopts: bool,
) -> Result<EditPlan, ConfigurationError> {
    let before = PreviousState::load(engine, Purpose::Question, id, None).await?;
    let before = before.as_ref();
    let compilation = before.and_then(|before| before.compilation.clone());
    let market = Arc::new(provider_catalog(engine));
    let mut after = compile(
        engine,
        Purpose::Question,
        compilation.clone(),
        wanted,
        market,
    )
    .await?;
    let judged = validate_pools(engine, Purpose::Question, before, &after).await?;
    after.complete(judged.completed.clone());
    let missing_images = judged.missing_images.clone();
    let rules = before.map(|before| rule_changes(&before.configuration, &after.configuration));
    let mut pools = difference(compilation.as_deref(), Some(&after));
    let pool_ids = after.pools.iter().map(|pool| pool.pool_id().clone());
    let wanted = conflicts::ConflictCheck {
        id: id.clone(),
        pools: pool_ids.collect(),
        judged,
        adopts,
    };
    let conflicts = conflicts::find_conflicts(engine, now, wanted, &mut pools).await?;
    Ok(EditPlan {
        version: before.map(|before| before.stored.version),
        rules: rules.unwrap_or_default(),
        impact: EditImpact::of(engine, &pools, now).await?,
        pools,
        n_pools: after.pools.len(),
        conflicts,
        missing_images,
    })
}

pub async fn compare_versions(
    engine: &Engine,
    from: VersionRecord,
    to: VersionRecord,
) -> Result<EditPlan, ConfigurationError> {
    let compared = engine.compilations.run_limited(Purpose::Question, move || {
        let compiled = |record: &VersionRecord| {
            let configuration = Configuration::parse(&record.document).ok()?;
            let market = ProviderCatalog::from_json(&record.market).ok()?;
            Compilation::new(configuration, Arc::new(market)).ok()
        };
        let (before, after) = (compiled(&from), compiled(&to));
        let rules = match (&before, &after) {
            (Some(before), Some(after)) => {
                rule_changes(&before.configuration, &after.configuration)
            }
            (_, _) => Vec::new(),
        };
        EditPlan {
            rules,
            pools: difference(before.as_ref(), after.as_ref()),
            n_pools: after.map_or(0, |after| after.pools.len()),
            ..EditPlan::default()
        }
    });
    Ok(compared.await?)
}

impl EditImpact {
    async fn of(engine: &Engine, pools: &[PoolDifference], now: Timestamp) -> store::Result<Self> {
        let ids: Vec<PoolId> = pools
            .iter()
            .filter(|pool| pool.change != PoolChange::Created)
            .map(|pool| pool.worker_type.pool_id().clone())
            .collect();
        let read = engine.store.scan("configuration_outdated", move |tx| {
            let mut workers = BTreeMap::new();
            for id in ids {
                for (config, counts) in store::worker_counts::by_launch_config(tx, &id)? {
                    let live =
                        counts.requested.count + counts.running.count + counts.stopping.count;
                    if let Some(config) = config {
                        workers.insert((id.clone(), config), live);
                    }
                }
            }
            Ok::<_, StoreError>(workers)
        });
        let mut impact = Self {
            workers: read.await?,
            prices: BTreeMap::new(),
        };
        for pool in pools {
            let replaced = pool
                .replaced
                .iter()
                .flat_map(|replaced| [&replaced.before, &replaced.after]);
            for way in pool.created.iter().chain(&pool.archived).chain(replaced) {
                impact.read_price(engine, pool, way, now);
            }
        }
        Ok(impact)
    }

    /// Uses only prices that the provider has cached.
    fn read_price(
        &mut self,
        engine: &Engine,
        pool: &PoolDifference,
        way: &CompletedLaunchConfig,
        now: Timestamp,
    ) {
        let Some(machines) = engine.providers.machines(&way.provider_id) else {
            return;
        };
        let pool_id = pool.worker_type.pool_id();
        let launch_config = LaunchConfig {
            pool_id: pool_id.clone(),
            id: way.id.clone(),
            archived: false,
            position: 0,
            configuration: way.configuration.clone(),
            created: now,
            last_modified: now,
            version: Version::FIRST,
        };
        let bid = machines.first_bid(&launch_config, now).ok();
        if let Some(price) = bid.and_then(|bid| bid.price) {
            self.prices.insert((pool_id.clone(), way.id.clone()), price);
        }
    }

    pub fn workers(&self, pool: &PoolDifference, id: &LaunchConfigId) -> u64 {
        let key = (pool.worker_type.pool_id().clone(), id.clone());
        self.workers.get(&key).copied().unwrap_or(0)
    }

    pub fn price(&self, pool: &PoolDifference, id: &LaunchConfigId) -> Option<f64> {
        let key = (pool.worker_type.pool_id().clone(), id.clone());
        self.prices.get(&key).copied()
    }
}
