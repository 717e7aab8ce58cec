//! Workers that started since a moment, for canaries of images.

use domain::id::{LaunchConfigId, LaunchToken, PoolId, WorkerGroup, WorkerId};
use domain::time::Timestamp;
use domain::worker::WorkerState;

use crate::engine::{Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("workers", 3);

statements! { TABLE;
    SINCE "started_worker_list" =
        "SELECT worker_group, worker_id, launch_config_id, created, registered, first_claim, \
         state, draining FROM workers WHERE worker_pool_id = $1 AND created >= $2 \
         AND launch_config_id IN (SELECT v.value ->> 0 FROM json_each($3) AS v) ORDER BY created, worker_group, worker_id LIMIT $4";
    REFUSED "started_worker_list_refused" =
        "SELECT token, launch_config_id, machines, created FROM launches \
         WHERE worker_pool_id = $1 AND created >= $2 AND state = 'refused' \
         AND cause = 'configuration' \
         AND launch_config_id IN (SELECT v.value ->> 0 FROM json_each($3) AS v) \
         ORDER BY created LIMIT $4";
}

/// A worker that was launched.
#[derive(Clone, Debug, PartialEq)]
pub struct StartedWorker {
    pub group: WorkerGroup,
    pub id: WorkerId,
    pub launch_config_id: LaunchConfigId,
    pub created: Timestamp,
    pub registered: Option<Timestamp>,
    pub first_claim: Option<Timestamp>,
    pub state: WorkerState,
    /// It was asked to stop.
    pub is_draining: bool,
}

/// A launch that the provider refused because of the launch config.
#[derive(Clone, Debug, PartialEq)]
pub struct RefusedLaunch {
    pub token: LaunchToken,
    pub launch_config_id: LaunchConfigId,
    pub machines: u32,
    pub created: Timestamp,
}

from_row! { StartedWorker {
    group, id, launch_config_id, created, registered, first_claim, state, is_draining
} }
from_row! { RefusedLaunch { token, launch_config_id, machines, created } }

/// The workers of these launch configs that were launched since then, in the order of their
/// creation.
pub fn list(
    tx: &mut Tx<'_>,
    pool: &PoolId,
    configs: &[&LaunchConfigId],
    since: Timestamp,
    limit: u32,
) -> Result<Vec<StartedWorker>> {
    tx.rows(&SINCE, (pool, since, &ids(configs), limit))
}

fn ids(configs: &[&LaunchConfigId]) -> String {
    let rows: Vec<[&str; 1]> = configs.iter().map(|id| [id.as_str()]).collect();
    to_json(&rows)
}

/// The launches that were refused since then because of these launch configs.
pub fn list_refused(
    tx: &mut Tx<'_>,
    pool: &PoolId,
    configs: &[&LaunchConfigId],
    since: Timestamp,
    limit: u32,
) -> Result<Vec<RefusedLaunch>> {
    tx.rows(&REFUSED, (pool, since, &ids(configs), limit))
}
