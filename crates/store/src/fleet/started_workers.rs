//! Workers that started since a moment, for canaries of images.

use std::collections::BTreeMap;

use domain::id::{ImageName, LaunchConfigId, LaunchToken, PoolId, WorkerKey};
use domain::time::Timestamp;
use domain::worker::WorkerState;
use serde_json::Value;

use crate::engine::{ALL_ROWS, Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("workers", 3);

macro_rules! of_configs {
    ($table:literal) => {
        concat!(
            " FROM json_each($1) AS v CROSS JOIN ",
            $table,
            " AS w WHERE w.worker_pool_id = v.value ->> 0 AND w.launch_config_id = v.value ->> 1 \
             AND w.created >= CAST(v.value ->> 2 AS BIGINT)"
        )
    };
}

statements! { TABLE;
    SINCE "started_worker_list" = concat!(
        "SELECT w.worker_pool_id, w.worker_group, w.worker_id, w.launch_config_id, w.created, \
         w.registered, w.first_claim, w.state, w.draining, w.provider_data", of_configs!("workers"),
        " ORDER BY w.created, w.worker_pool_id, w.worker_group, w.worker_id LIMIT $2");
    REFUSED "started_worker_list_refused" = concat!(
        "SELECT w.worker_pool_id, w.token, w.launch_config_id, w.machines, w.created",
        of_configs!("launches"),
        " AND w.state = 'refused' AND w.cause = 'configuration' ORDER BY w.created, w.token LIMIT $2");
    // Each state, so that the index by state and launch config is used.
    OPEN "started_worker_count_open" =
        "SELECT c.canary_of, COUNT(*) \
         FROM json_each($1) AS v CROSS JOIN launch_configs AS c CROSS JOIN workers AS w \
         WHERE c.canary_of = v.value ->> 0 AND w.worker_pool_id = c.worker_pool_id \
         AND w.state IN ('requested', 'running') AND w.launch_config_id = c.launch_config_id \
         AND w.first_claim IS NULL \
         AND ((w.registered IS NULL AND w.created >= $2) OR w.registered >= $3) \
         GROUP BY c.canary_of ORDER BY c.canary_of LIMIT $4";
    AWAITED "started_worker_count_awaited" =
        "SELECT c.canary_of, CAST(SUM(l.machines - l.made) AS BIGINT) \
         FROM json_each($1) AS v CROSS JOIN launch_configs AS c CROSS JOIN launches AS l \
         WHERE c.canary_of = v.value ->> 0 AND l.worker_pool_id = c.worker_pool_id \
         AND l.launch_config_id = c.launch_config_id AND l.state IN ('open', 'unknown') \
         GROUP BY c.canary_of ORDER BY c.canary_of LIMIT $2";
}

/// A launch config of a pool, and from when on its machines are looked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedSince {
    pub pool: PoolId,
    pub launch_config_id: LaunchConfigId,
    pub since: Timestamp,
}

/// A worker that was launched.
#[derive(Clone, Debug, PartialEq)]
pub struct StartedWorker {
    pub key: WorkerKey,
    pub launch_config_id: LaunchConfigId,
    pub created: Timestamp,
    pub registered: Option<Timestamp>,
    pub first_claim: Option<Timestamp>,
    pub state: WorkerState,
    /// It was asked to stop.
    pub is_draining: bool,
    /// The notes of its provider.
    pub provider_data: Value,
}

/// A launch that the provider refused because of the launch config.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedLaunch {
    pub pool: PoolId,
    pub token: LaunchToken,
    pub launch_config_id: LaunchConfigId,
    pub machines: u32,
    pub created: Timestamp,
}

from_row! { StartedWorker {
    key, launch_config_id, created, registered, first_claim, state, is_draining, provider_data
} }
from_row! { RefusedLaunch { pool, token, launch_config_id, machines, created } }

/// The workers of these launch configs, in the order of their creation.
pub fn list(tx: &mut Tx<'_>, configs: &[StartedSince], limit: u32) -> Result<Vec<StartedWorker>> {
    tx.rows(&SINCE, (&to_json(&rows(configs)), limit))
}

/// The launches that were refused because of these launch configs.
pub fn list_refused(
    tx: &mut Tx<'_>,
    configs: &[StartedSince],
    limit: u32,
) -> Result<Vec<RefusedLaunch>> {
    tx.rows(&REFUSED, (&to_json(&rows(configs)), limit))
}

/// Since when machines count as starting.
#[derive(Clone, Copy, Debug)]
pub struct OpenSince {
    /// They were created since, and have not registered, …
    pub created: Timestamp,
    /// … or they registered since, and have not asked for work.
    pub registered: Timestamp,
}

/// How many machines of the canaries of these images are starting or awaited, in all pools. Images
/// without such machines are absent.
pub fn count_open(
    tx: &mut Tx<'_>,
    images: &[ImageName],
    since: OpenSince,
) -> Result<BTreeMap<ImageName, u64>> {
    let names: Vec<[&str; 1]> = images.iter().map(|image| [image.as_str()]).collect();
    let names = to_json(&names);
    let values = (&names, since.created, since.registered, ALL_ROWS);
    let starting: Vec<(ImageName, u64)> = tx.rows(&OPEN, values)?;
    let awaited: Vec<(ImageName, u64)> = tx.rows(&AWAITED, (&names, ALL_ROWS))?;
    let mut open = BTreeMap::new();
    for (image, machines) in starting.into_iter().chain(awaited) {
        *open.entry(image).or_default() += machines;
    }
    Ok(open)
}

fn rows(configs: &[StartedSince]) -> Vec<(&str, &str, i64)> {
    let rows = configs.iter().map(|of| {
        let StartedSince {
            pool,
            launch_config_id,
            since,
        } = of;
        (pool.as_str(), launch_config_id.as_str(), since.as_millis())
    });
    rows.collect()
}
