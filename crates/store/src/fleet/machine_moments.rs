//! When machines of a launch config came to each step, from the decision to the first claim.

use std::collections::HashMap;

use domain::id::{LaunchConfigId, LaunchToken, PoolId, WorkerGroup};
use domain::phases::MachineMoments;
use domain::time::Timestamp;
use domain::worker::Terms;

use crate::engine::{Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("workers", 3);

statements! { TABLE;
    MACHINES "machine_moment_list" =
        "SELECT worker_group, created, registered, first_claim, terms FROM workers \
         WHERE worker_pool_id = $1 AND created >= $2 AND launch_config_id = $3 \
         ORDER BY created DESC, worker_group DESC, worker_id DESC LIMIT $4";
    LAUNCHES "machine_moment_launches" =
        "SELECT l.token, l.created, l.asked FROM json_each($1) AS v \
         CROSS JOIN launches AS l WHERE l.token = v.value ->> 0 LIMIT $2";
}

struct MachineRow {
    region: WorkerGroup,
    created: Timestamp,
    registered: Option<Timestamp>,
    first_claim: Option<Timestamp>,
    terms: Terms,
}

struct LaunchRow {
    token: LaunchToken,
    created: Timestamp,
    asked: Option<Timestamp>,
}

from_row! { MachineRow { region, created, registered, first_claim, terms } }
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
    let moments = machines.iter().map(|machine| {
        let token = machine.terms.launch_token.as_deref();
        let ended = machine.terms.stopped_at.map(Timestamp::from_millis);
        let launch = token.and_then(|token| launches.get(token));
        MachineMoments {
            region: machine.region.clone(),
            decided: launch.map(|launch| launch.created),
            requested: launch.and_then(|launch| launch.asked),
            accepted: machine.created,
            registered: machine.registered,
            // A worker that was asked to stop before it claimed has its end there.
            first_claim: machine.first_claim.filter(|at| Some(*at) != ended),
        }
    });
    Ok(moments.collect())
}
