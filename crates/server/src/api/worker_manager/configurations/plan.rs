//! What an edit would do, before it is done: to pools, launch configs, running workers, and to what they cost.

use std::collections::BTreeMap;
use std::sync::Arc;

use cloud::BidRequest;
use domain::Version;
use domain::configuration::{
    Compilation, Configuration, Market, PoolChange, PoolDifference, Replaced, RuleChange,
    ValueChange, VersionRecord, Way, difference, rule_changes,
};
use domain::id::{LaunchConfigId, PoolId};
use domain::launch_config::LaunchConfig;
use domain::time::Timestamp;
use serde_json::{Map, Value, json};
use store::StoreError;

use super::super::super::call::Call;
use super::super::super::error::ApiError;
use super::super::super::reply::Reply;
use super::authority::Touched;
use super::cache::usable;
use super::edit::compile;
use super::judge::{Before, judge};
use super::market::market;
use super::wire::ConfigurationBody;
use super::{adoption, authority};
use crate::app::App;

/// Of each list in a plan, so many are shown; the rest is counted.
const MAX_SHOWN: usize = 500;

pub(super) async fn plan(mut call: Call) -> Result<Reply, ApiError> {
    let id = call.configuration_id()?;
    let body: ConfigurationBody = call.body()?;
    let wanted = super::parse(&call, &body)?;
    authority::warrant(&mut call, &Touched::whole(&wanted, body.adopt_pools)).await?;
    let (adopts, named) = (body.adopt_pools, id.clone());
    let read = call.app.engine.store.read("configuration_get", move |tx| {
        store::configuration_get(tx, &named)
    });
    let known = read.await?;
    let before = match &known {
        Some(known) => Some(usable(&call.app, known).await?),
        None => None,
    };
    let configuration = before.as_ref().map(|(configuration, _)| configuration);
    let compilation = before.as_ref().and_then(|(_, known)| known.as_ref().ok());
    let market = Arc::new(market(&call.app));
    let mut after = compile(&call.app, compilation.cloned(), wanted, market).await?;
    let was = configuration.map(|configuration| Before {
        configuration,
        compilation: compilation.map(|compilation| &**compilation),
    });
    // What providers would refuse is refused here, too.
    let judged = judge(&call.app, was, &after).await?;
    after.complete(judged.completed.clone());
    let rules = configuration.map(|before| rule_changes(before, &after.configuration));
    let rules = rules.unwrap_or_default();
    let before = compilation.map(|compilation| &**compilation);
    let mut pools = difference(before, Some(&after));
    let pool_ids = after.pools.iter().map(|pool| pool.pool_id().clone());
    let wanted = adoption::Wanted {
        id: id.clone(),
        pools: pool_ids.collect(),
        judged,
        adopts,
    };
    let conflicts = adoption::compare(&call, wanted, &mut pools).await?;
    let outlook = Outlook::of(&call.app, &pools, call.now).await?;
    let mut reply = outlook.reply(&pools, after.pools.len());
    reply["workerConfigurationId"] = json!(id.as_str());
    reply["version"] = json!(known.as_ref().map(|known| known.version.0));
    reply["rules"] = rules_json(&rules);
    reply["conflicts"] = json!(conflicts);
    Reply::json(&reply)
}

/// Two versions of a configuration next to each other.
pub(super) async fn versions(
    app: &App,
    from: VersionRecord,
    to: VersionRecord,
) -> Result<Value, ApiError> {
    let compared = app.compilations.in_turn(move || {
        let compiled = |record: &VersionRecord| {
            let configuration = Configuration::parse(&record.document).ok()?;
            let market = Market::from_json(&record.market).ok()?;
            Compilation::new(configuration, Arc::new(market)).ok()
        };
        let (before, after) = (compiled(&from), compiled(&to));
        let rules = match (&before, &after) {
            (Some(before), Some(after)) => {
                rule_changes(&before.configuration, &after.configuration)
            }
            (_, _) => Vec::new(),
        };
        let pools = difference(before.as_ref(), after.as_ref());
        let mut reply =
            Outlook::default().reply(&pools, after.map_or(0, |after| after.pools.len()));
        reply["from"] = version_json(from.version);
        reply["to"] = version_json(to.version);
        reply["rules"] = rules_json(&rules);
        reply
    });
    compared.await
}

fn version_json(version: Version) -> Value {
    json!(version.0)
}

/// What is known about the launch configs of a plan beyond themselves.
#[derive(Default)]
struct Outlook {
    /// Workers that are not stopped.
    workers: BTreeMap<(PoolId, LaunchConfigId), u64>,
    /// Dollars per hour and machine.
    prices: BTreeMap<(PoolId, LaunchConfigId), f64>,
}

impl Outlook {
    async fn of(app: &App, pools: &[PoolDifference], now: Timestamp) -> Result<Self, ApiError> {
        let ids: Vec<PoolId> = pools
            .iter()
            .filter(|pool| pool.change != PoolChange::Created)
            .map(|pool| pool.worker_type.pool_id().clone())
            .collect();
        let read = app.engine.store.scan("configuration_outdated", move |tx| {
            let mut workers = BTreeMap::new();
            for id in ids {
                for (config, counts) in store::worker_counts_by_launch_config(tx, &id)? {
                    let live =
                        counts.requested.count + counts.running.count + counts.stopping.count;
                    if let Some(config) = config {
                        workers.insert((id.clone(), config), live);
                    }
                }
            }
            Ok::<_, StoreError>(workers)
        });
        let mut outlook = Self {
            workers: read.await?,
            prices: BTreeMap::new(),
        };
        for pool in pools {
            let replaced = pool
                .replaced
                .iter()
                .flat_map(|replaced| [&replaced.before, &replaced.after]);
            for way in pool.created.iter().chain(&pool.archived).chain(replaced) {
                outlook.ask_price(app, pool, way, now);
            }
        }
        Ok(outlook)
    }

    /// From what the provider knows already.
    fn ask_price(&mut self, app: &App, pool: &PoolDifference, way: &Way, now: Timestamp) {
        let Ok(provider) = app.engine.providers.get(&way.provider_id) else {
            return;
        };
        let Some(machines) = provider.machines() else {
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
        let bids = machines.bids(&BidRequest {
            pool_id,
            launch_configs: &[launch_config],
            now,
        });
        let price = bids
            .into_iter()
            .next()
            .and_then(Result::ok)
            .and_then(|bid| bid.price);
        if let Some(price) = price {
            self.prices.insert((pool_id.clone(), way.id.clone()), price);
        }
    }

    fn workers(&self, pool: &PoolDifference, id: &LaunchConfigId) -> u64 {
        let key = (pool.worker_type.pool_id().clone(), id.clone());
        self.workers.get(&key).copied().unwrap_or(0)
    }

    fn price(&self, pool: &PoolDifference, id: &LaunchConfigId) -> Option<f64> {
        let key = (pool.worker_type.pool_id().clone(), id.clone());
        self.prices.get(&key).copied()
    }

    fn reply(&self, pools: &[PoolDifference], n_pools: usize) -> Value {
        let mut totals = Totals::default();
        let shown: Vec<Value> = pools
            .iter()
            .map(|pool| self.pool(pool, &mut totals))
            .collect();
        let unchanged = n_pools
            - pools
                .iter()
                .filter(|pool| pool.change != PoolChange::Removed)
                .count()
                .min(n_pools);
        json!({
            "pools": shown,
            "unchangedPools": unchanged,
            "launchConfigs": {
                "created": totals.created,
                "replaced": totals.replaced,
                "updated": totals.updated,
                "archived": totals.archived,
                "kept": totals.kept,
            },
            "outdatedWorkers": totals.outdated,
            "costDifference": totals.cost.map(rounded),
        })
    }

    fn pool(&self, pool: &PoolDifference, totals: &mut Totals) -> Value {
        let mut outdated = 0;
        let mut cost: Option<f64> = None;
        let mut replaced = Vec::new();
        for change in &pool.replaced {
            let workers = self.workers(pool, &change.before.id);
            let (old, new) = (
                self.price(pool, &change.before.id),
                self.price(pool, &change.after.id),
            );
            if let (Some(old), Some(new)) = (old, new) {
                #[expect(clippy::cast_precision_loss, reason = "nobody has 2^53 workers")]
                let difference = (new - old) * workers as f64;
                cost = Some(cost.unwrap_or(0.0) + difference);
            }
            outdated += workers;
            if replaced.len() < MAX_SHOWN {
                replaced.push(json!({
                    "providerId": change.after.provider_id.as_str(),
                    "conditions": conditions(&change.after),
                    "before": change.before.id.as_str(),
                    "after": change.after.id.as_str(),
                    "values": values_json(&change.values),
                    "workers": workers,
                    "priceBefore": old,
                    "priceAfter": new,
                }));
            }
        }
        outdated += pool
            .archived
            .iter()
            .map(|way| self.workers(pool, &way.id))
            .sum::<u64>();
        totals.add(pool, outdated, cost);
        json!({
            "workerPoolId": pool.worker_type.pool_id().as_str(),
            "change": change_word(pool.change),
            "settings": values_json(&pool.settings),
            "created": self.ways(pool, &pool.created),
            "replaced": replaced,
            "updated": self.updates(&pool.updated, pool),
            "archived": self.ways(pool, &pool.archived),
            "kept": pool.n_kept,
            "outdatedWorkers": outdated,
            "costDifference": cost.map(rounded),
        })
    }

    fn updates(&self, updated: &[Replaced], pool: &PoolDifference) -> Vec<Value> {
        let shown = updated.iter().take(MAX_SHOWN).map(|update| {
            json!({
                "providerId": update.after.provider_id.as_str(),
                "launchConfigId": update.after.id.as_str(),
                "conditions": conditions(&update.after),
                "values": values_json(&update.values),
                "workers": self.workers(pool, &update.after.id),
            })
        });
        shown.collect()
    }

    fn ways(&self, pool: &PoolDifference, ways: &[Way]) -> Vec<Value> {
        let shown = ways.iter().take(MAX_SHOWN).map(|way| {
            json!({
                "providerId": way.provider_id.as_str(),
                "launchConfigId": way.id.as_str(),
                "conditions": conditions(way),
                "workers": self.workers(pool, &way.id),
                "price": self.price(pool, &way.id),
            })
        });
        shown.collect()
    }
}

/// Over all pools of a plan.
#[derive(Default)]
struct Totals {
    created: usize,
    replaced: usize,
    updated: usize,
    archived: usize,
    kept: usize,
    outdated: u64,
    /// Dollars per hour that the running workers would cost more, as far as prices are known.
    cost: Option<f64>,
}

impl Totals {
    fn add(&mut self, pool: &PoolDifference, outdated: u64, cost: Option<f64>) {
        self.created += pool.created.len();
        self.replaced += pool.replaced.len();
        self.updated += pool.updated.len();
        self.archived += pool.archived.len();
        self.kept += pool.n_kept;
        self.outdated += outdated;
        if let Some(cost) = cost {
            self.cost = Some(self.cost.unwrap_or(0.0) + cost);
        }
    }
}

/// To a ten-thousandth of a dollar.
fn rounded(dollars: f64) -> f64 {
    (dollars * 10_000.0).round() / 10_000.0
}

fn change_word(change: PoolChange) -> &'static str {
    match change {
        PoolChange::Created => "created",
        PoolChange::Changed => "changed",
        PoolChange::Removed => "removed",
        PoolChange::Adopted => "adopted",
    }
}

fn conditions(way: &Way) -> Map<String, Value> {
    let presented = way.presented.iter();
    presented
        .map(|(name, value)| (name.to_owned(), json!(value)))
        .collect()
}

fn values_json(changes: &[ValueChange]) -> Vec<Value> {
    let shown = changes.iter().take(MAX_SHOWN).map(|change| {
        let mut shown = json!({"pointer": change.pointer});
        if let Some(before) = &change.before {
            shown["before"] = before.clone();
        }
        if let Some(after) = &change.after {
            shown["after"] = after.clone();
        }
        shown
    });
    shown.collect()
}

fn rules_json(changes: &[(String, RuleChange)]) -> Value {
    let shown = changes
        .iter()
        .take(MAX_SHOWN)
        .map(|(id, change)| match change {
            RuleChange::Added => json!({"ruleId": id, "change": "added"}),
            RuleChange::Removed => json!({"ruleId": id, "change": "removed"}),
            RuleChange::Moved => json!({"ruleId": id, "change": "moved"}),
            RuleChange::Changed(values) => {
                json!({"ruleId": id, "change": "changed", "values": values_json(values)})
            }
        });
    shown.collect()
}
