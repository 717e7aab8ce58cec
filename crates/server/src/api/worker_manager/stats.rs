//! Counts the workers of pools and launch configs.

use domain::counts::{self, Counts};
use domain::id::{LaunchConfigId, PoolId};
use engine::pools::PoolError;
use serde::Serialize;
use store::StoreError;

use super::super::call::Call;
use super::super::error::ApiError;
use super::super::reply::Reply;
use super::wire::StatsReply;

/// Stands for workers without a launch config.
const UNKNOWN: &str = "unknown";

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct LaunchConfigStatsReply {
    launch_config_stats: Vec<StatsReply>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PoolsStatsReply {
    worker_pools_stats: Vec<StatsReply>,
    #[serde(skip_serializing_if = "Option::is_none")]
    continuation_token: Option<String>,
}

pub(super) async fn of_launch_configs(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let pool_id = id.to_string();
    let read = call
        .app
        .engine
        .store
        .scan("worker_counts_by_launch_config", move |tx| {
            store::pools::get(tx, &id)?.ok_or(PoolError::NoSuchPool)?;
            Ok::<_, PoolError>(store::worker_counts::by_launch_config(tx, &id)?)
        });
    let name = |config: Option<LaunchConfigId>| {
        config.map_or_else(|| UNKNOWN.to_owned(), |id| id.to_string())
    };
    let mut rows: Vec<(String, Counts)> = read
        .await?
        .into_iter()
        .map(|(config, counts)| (name(config), counts))
        .collect();
    if rows.is_empty() {
        // For compatibility, a pool without workers has one row of zeros.
        rows.push((UNKNOWN.to_owned(), Counts::default()));
    }
    rows.sort_by(|(a, _), (b, _)| a.cmp(b));
    let launch_config_stats = rows
        .into_iter()
        .map(|(config, counts)| StatsReply::new(pool_id.clone(), Some(config), &counts))
        .collect();
    Reply::json(&LaunchConfigStatsReply {
        launch_config_stats,
    })
}

pub(super) async fn of_pools(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let after = page
        .after
        .as_ref()
        .map(|(id,)| id.parse::<PoolId>())
        .transpose()?;
    let limit = page.limit_and_one();
    let read = call.app.engine.store.scan("pool_stats", move |tx| {
        let pools = store::pools::list(tx, after.as_ref(), limit)?;
        let counts = match (pools.first(), pools.last()) {
            (Some(first), Some(last)) => store::worker_counts::between(tx, &first.id, &last.id)?,
            _ => Vec::new(),
        };
        let ids: Vec<PoolId> = pools.into_iter().map(|pool| pool.id).collect();
        Ok::<_, StoreError>((ids, counts))
    });
    let (mut ids, by_pool) = read.await?;
    let continuation_token = page.cut(&mut ids, |id| (id.to_string(),));
    let worker_pools_stats = ids
        .iter()
        .map(|id| {
            let counts = counts::of_pool(&by_pool, id);
            StatsReply::new(id.to_string(), None, &counts)
        })
        .collect();
    Reply::json(&PoolsStatsReply {
        worker_pools_stats,
        continuation_token,
    })
}
