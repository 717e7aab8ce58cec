//! Counts the workers of pools and launch configs.

use domain::counts::{self, Counts};
use domain::id::{LaunchConfigId, PoolId};
use engine::pools::PoolError;
use store::StoreError;

use super::wire::StatsReply;
use crate::api::{call::Call, error::ApiError, reply::Reply};

/// Stands for workers without a launch config.
const UNKNOWN: &str = "unknown";

pub(super) async fn of_launch_configs(call: Call) -> Result<Reply, ApiError> {
    let id = call.pool_id()?;
    let pool_id = id.clone();
    let read = call.scan("worker_counts_by_launch_config", move |tx| {
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
    let stats = rows
        .iter()
        .map(|(config, counts)| StatsReply::new(&pool_id, Some(config), counts));
    Reply::list("launchConfigStats", stats, None)
}

pub(super) async fn of_pools(call: Call) -> Result<Reply, ApiError> {
    let page = call.page::<(String,)>()?;
    let (after, limit) = (page.after_id()?, page.limit_and_one());
    let read = call.scan("pool_stats", move |tx| {
        let pools = store::pools::list(tx, after.as_ref(), limit)?;
        let counts = match (pools.first(), pools.last()) {
            (Some(first), Some(last)) => store::worker_counts::between(tx, &first.id, &last.id)?,
            _ => Vec::new(),
        };
        let ids: Vec<PoolId> = pools.into_iter().map(|pool| pool.id).collect();
        Ok::<_, StoreError>((ids, counts))
    });
    let (mut ids, by_pool) = read.await?;
    let token = page.cut(&mut ids, |id| (id.to_string(),));
    let show = |id| StatsReply::new(id, None, &counts::of_pool(&by_pool, id));
    Reply::list("workerPoolsStats", ids.iter().map(show), token)
}
