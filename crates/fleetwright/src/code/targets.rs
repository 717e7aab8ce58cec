//! Checks that the pool and launch config of an override exist, or will be created.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::change::{Change, Plan};
use super::definitions::worker_types;
use super::kind::Kind;
use super::server::read_one;
use crate::client::{Call, Client, WORKER_MANAGER};
use crate::failure::{Exit, Failure};

/// Maximum number of launch configs of a pool that a server lists in a preview.
const MAX_PREVIEWED: usize = 500;

/// The launch configs that a pool has or will have.
#[derive(Debug, PartialEq)]
enum Known {
    /// The pool does not exist and will not be created.
    NoPool,
    Listed(BTreeSet<String>),
    /// The pool exists or will be created; its launch configs are unknown.
    Pool,
}

impl Plan {
    /// Runs after all other planning: the target may be created by the plan itself.
    pub(super) async fn check_targets(&mut self, client: &Client) -> Result<(), Failure> {
        let mut known = BTreeMap::new();
        for (_, pool, config) in asked(&self.changes) {
            let asks_more = config.is_some() && known.get(pool) == Some(&Known::Pool);
            if asks_more || !known.contains_key(pool) {
                let found = self.known(pool, config.is_some(), client).await?;
                known.insert(pool.to_owned(), found);
            }
        }
        let problems = problems(&self.changes, &known);
        self.errors.extend(problems);
        Ok(())
    }

    async fn known(&self, pool: &str, in_full: bool, client: &Client) -> Result<Known, Failure> {
        let made = self.made_by(pool);
        let stored = match read_one(client, Kind::WorkerPool, pool).await {
            Err(failure) if failure.exit == Exit::NotAllowed => return Ok(Known::Pool),
            read => read?.is_some(),
        };
        let mut ids = match (made, stored) {
            (None, false) => return Ok(Known::NoPool),
            (Some(Known::Listed(ids)), _) => ids,
            (None, true) => BTreeSet::new(),
            (Some(unknown @ (Known::Pool | Known::NoPool)), _) => return Ok(unknown),
        };
        if !in_full {
            return Ok(Known::Pool);
        }
        if stored {
            match launch_configs(pool, client).await {
                Err(failure) if failure.exit == Exit::NotAllowed => return Ok(Known::Pool),
                read => ids.extend(read?),
            }
        }
        Ok(Known::Listed(ids))
    }

    /// The launch configs that this plan creates for a pool, if it creates or changes the pool.
    fn made_by(&self, pool: &str) -> Option<Known> {
        let written = self.changes.iter().filter(|change| change.after.is_some());
        let mut makers = written.filter(|change| makes(change, pool));
        let maker = makers.next()?;
        if maker.kind == Kind::WorkerPool {
            let ids = self.made.get(pool).cloned();
            return Some(Known::Listed(ids.unwrap_or_default()));
        }
        let Some(effects) = &maker.effects else {
            return Some(Known::Pool);
        };
        let mut pools = effects["pools"].as_array().into_iter().flatten();
        let same = Known::Listed(BTreeSet::new());
        let effects = pools.find(|effects| effects["workerPoolId"] == pool);
        Some(effects.map_or(same, previewed_ids))
    }
}

fn makes(change: &Change, pool: &str) -> bool {
    match change.kind {
        Kind::WorkerPool => change.id == pool,
        Kind::WorkerConfiguration => {
            let content = change.after.as_ref();
            content.is_some_and(|content| worker_types(content).contains(pool))
        }
        Kind::Role | Kind::Client | Kind::Image | Kind::Override | Kind::Budget => false,
    }
}

fn previewed_ids(pool: &Value) -> Known {
    let mut ids = BTreeSet::new();
    for (list, key) in [("created", "launchConfigId"), ("replaced", "after")] {
        let listed = pool[list].as_array().map(Vec::as_slice);
        let listed = listed.unwrap_or_default();
        if listed.len() >= MAX_PREVIEWED {
            return Known::Pool;
        }
        let listed = listed.iter().filter_map(|way| way[key].as_str());
        ids.extend(listed.map(str::to_owned));
    }
    Known::Listed(ids)
}

/// The pool and launch config of each override to write.
fn asked(changes: &[Change]) -> impl Iterator<Item = (&Change, &str, Option<&str>)> {
    let overrides = changes
        .iter()
        .filter(|change| change.kind == Kind::Override);
    overrides.filter_map(|change| {
        let content = change.after.as_ref()?;
        let pool = content["workerPoolId"].as_str()?;
        Some((change, pool, content["launchConfigId"].as_str()))
    })
}

fn problems(changes: &[Change], known: &BTreeMap<String, Known>) -> Vec<String> {
    let problems = asked(changes).filter_map(|(change, pool, config)| {
        let error = match (known.get(pool)?, config) {
            (Known::NoPool, _) => format!("pool {pool} does not exist"),
            (Known::Listed(ids), Some(config)) if !ids.contains(config) => {
                format!("pool {pool} has no launch config {config}")
            }
            (Known::Listed(_) | Known::Pool, _) => return None,
        };
        Some(format!("{}: {}: {error}", change.origin(), change.title()))
    });
    problems.collect()
}

/// Lists the launch configs, also archived ones: their workers may still run.
async fn launch_configs(pool: &str, client: &Client) -> Result<BTreeSet<String>, Failure> {
    const KEY: &str = "workerPoolLaunchConfigs";
    let call = Call::get(WORKER_MANAGER, &["worker-pool", pool, "launch-configs"])
        .query("includeArchived", Some(true))
        .to(format!("list the launch configs of pool {pool}"));
    let document = client.pages(&call, KEY, None).await?;
    let listed = document[KEY].as_array().into_iter().flatten();
    let ids = listed.filter_map(|config| config["launchConfigId"].as_str());
    Ok(ids.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use testing::sizes_around;

    use super::*;

    #[test]
    fn of_more_launch_configs_than_a_plan_lists_nothing_is_known() {
        for count in sizes_around("fleetwright::code::targets::MAX_PREVIEWED", MAX_PREVIEWED) {
            let ways = (0..count).map(|number| json!({"launchConfigId": format!("lc{number}")}));
            let pool = json!({"created": ways.collect::<Vec<_>>(), "replaced": [{"before": "a", "after": "b"}]});
            match previewed_ids(&pool) {
                Known::Listed(ids) => {
                    assert!(count < MAX_PREVIEWED, "{count}");
                    assert_eq!(ids.len(), count + 1);
                    assert!(ids.contains("b") && !ids.contains("a"));
                }
                Known::Pool => assert!(count >= MAX_PREVIEWED, "{count}"),
                Known::NoPool => panic!("{count}"),
            }
        }
    }
}
