//! When launched machines came to each step, from the decision to the first claim.

use std::cmp::Reverse;
use std::collections::HashMap;

use domain::id::{LaunchConfigId, LaunchToken, PoolId, ProviderId, WorkerGroup};
use domain::phases::MachineMoments;
use domain::time::Timestamp;
use domain::worker::Terms;

use crate::engine::{Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("workers", 3);

/// The newest of these machines. People declare hosts, and nothing starts them.
macro_rules! newest {
    ($machines:literal, $order:literal) => {
        concat!(
            "SELECT worker_pool_id, provider_id, launch_config_id, worker_group, created, \
             registered, first_claim, terms FROM workers WHERE ",
            $machines,
            " ORDER BY ",
            $order,
        )
    };
}

statements! { TABLE;
    MACHINES "machine_moment_list" = newest!(
        "worker_pool_id = $1 AND created >= $2 AND launch_config_id = $3",
        "created DESC, worker_group DESC, worker_id DESC LIMIT $4");
    OF_POOL "machine_moment_list_of_pool" = newest!(
        "worker_pool_id = $1 AND created >= $2 AND launch_config_id IS NOT NULL AND declared = 0",
        "created DESC, worker_group DESC, worker_id DESC LIMIT $3");
    LIVE "machine_moment_list_live" = newest!(
        "state <> 'stopped' AND created >= $1 AND launch_config_id IS NOT NULL AND declared = 0",
        "created DESC, worker_pool_id DESC, worker_group DESC, worker_id DESC LIMIT $2");
    STOPPED "machine_moment_list_stopped" = newest!(
        "state = 'stopped' AND created >= $1 AND launch_config_id IS NOT NULL AND declared = 0",
        "created DESC, worker_pool_id DESC, worker_group DESC, worker_id DESC LIMIT $2");
    LAUNCHES "machine_moment_launches" =
        "SELECT l.token, l.created, l.asked FROM json_each($1) AS v \
         CROSS JOIN launches AS l WHERE l.token = v.value ->> 0 LIMIT $2";
}

struct MachineRow {
    pool_id: PoolId,
    provider_id: ProviderId,
    launch_config_id: LaunchConfigId,
    region: WorkerGroup,
    created: Timestamp,
    registered: Option<Timestamp>,
    first_claim: Option<Timestamp>,
    terms: Terms,
}

/// A machine with what started it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StartedMachine {
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub launch_config_id: LaunchConfigId,
    pub moments: MachineMoments,
}

struct LaunchRow {
    token: LaunchToken,
    created: Timestamp,
    asked: Option<Timestamp>,
}

from_row! { MachineRow {
    pool_id, provider_id, launch_config_id, region, created, registered, first_claim, terms
} }
from_row! { LaunchRow { token, created, asked } }

/// The machines that were made since then, the newest first. The moments of launches that are no
/// longer stored are not known.
pub fn list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    id: &LaunchConfigId,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<MachineMoments>> {
    let machines: Vec<MachineRow> = tx.rows(&MACHINES, (pool_id, since, id, limit))?;
    let started = with_launches(tx, machines, limit)?;
    Ok(started.into_iter().map(|machine| machine.moments).collect())
}

/// The machines of a pool, or of all, that were made since then, the newest first.
pub fn list_all(
    tx: &mut Tx<'_>,
    pool_id: Option<&PoolId>,
    since: Timestamp,
    limit: u32,
) -> Result<Vec<StartedMachine>> {
    let machines: Vec<MachineRow> = match pool_id {
        Some(pool_id) => tx.rows(&OF_POOL, (pool_id, since, limit))?,
        None => {
            let mut machines: Vec<MachineRow> = tx.rows(&LIVE, (since, limit))?;
            machines.extend(tx.rows::<MachineRow>(&STOPPED, (since, limit))?);
            machines.sort_by_key(|machine| Reverse(machine.created));
            machines.truncate(limit as usize);
            machines
        }
    };
    with_launches(tx, machines, limit)
}

fn with_launches(
    tx: &mut Tx<'_>,
    machines: Vec<MachineRow>,
    limit: u32,
) -> Result<Vec<StartedMachine>> {
    let tokens = machines.iter();
    let tokens = tokens.filter_map(|machine| machine.terms.launch_token.as_deref());
    let mut tokens: Vec<(&str,)> = tokens.map(|token| (token,)).collect();
    tokens.sort_unstable();
    tokens.dedup();
    let launches: Vec<LaunchRow> = match tokens.is_empty() {
        true => Vec::new(),
        false => tx.rows(&LAUNCHES, (&to_json(&tokens), limit))?,
    };
    let launches: HashMap<&str, &LaunchRow> = launches
        .iter()
        .map(|launch| (launch.token.as_str(), launch))
        .collect();
    let started = machines.into_iter().map(|machine| {
        let token = machine.terms.launch_token.as_deref();
        let ended = machine.terms.stopped_at.map(Timestamp::from_millis);
        let launch = token.and_then(|token| launches.get(token));
        let moments = MachineMoments {
            region: machine.region,
            decided: launch.map(|launch| launch.created),
            requested: launch.and_then(|launch| launch.asked),
            accepted: machine.created,
            registered: machine.registered,
            // A worker that was asked to stop before it claimed has its end there.
            first_claim: machine.first_claim.filter(|at| Some(*at) != ended),
        };
        StartedMachine {
            pool_id: machine.pool_id,
            provider_id: machine.provider_id,
            launch_config_id: machine.launch_config_id,
            moments,
        }
    });
    Ok(started.collect())
}
