//! Number and capacity of workers by state, read from an index only.

use domain::counts::{Counts, StateCount};
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::worker::WorkerState;

use crate::engine::{ALL_ROWS, BadRow, Result, Row, Table, Tx, statements};

/// Groups of workers have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("workers", 2);

statements! { TABLE;
    BETWEEN "worker_counts_between" =
        "SELECT worker_pool_id, state, COUNT(*), CAST(SUM(capacity) AS BIGINT) FROM workers \
         WHERE worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, state ORDER BY worker_pool_id, state LIMIT $3";
    BY_PROVIDER "worker_counts_by_provider_between" =
        "SELECT worker_pool_id, state, COUNT(*), CAST(SUM(capacity) AS BIGINT), provider_id \
         FROM workers WHERE state <> 'stopped' AND worker_pool_id >= $1 AND worker_pool_id <= $2 \
         GROUP BY worker_pool_id, provider_id, state ORDER BY worker_pool_id, provider_id, state \
         LIMIT $3";
    BY_LAUNCH_CONFIG "worker_counts_by_launch_config" =
        "SELECT COALESCE(launch_config_id, ''), state, COUNT(*), CAST(SUM(capacity) AS BIGINT) \
         FROM workers WHERE worker_pool_id = $1 GROUP BY COALESCE(launch_config_id, ''), state \
         ORDER BY 1, 2 LIMIT $2";
    BY_STATE "worker_count_by_state" =
        "SELECT '', state, COUNT(*), CAST(SUM(capacity) AS BIGINT) FROM workers \
         GROUP BY state ORDER BY state LIMIT $1";
}

pub type PoolAndProvider = (PoolId, ProviderId);

/// The workers of one pool.
pub fn of_pool(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Counts> {
    let groups = between(tx, pool_id, pool_id)?;
    Ok(groups
        .into_iter()
        .next()
        .map(|(_, counts)| counts)
        .unwrap_or_default())
}

/// The workers of all pools from the first to the last, ordered by pool. Pools without workers are
/// absent.
pub fn between(tx: &mut Tx<'_>, first: &PoolId, last: &PoolId) -> Result<Vec<(PoolId, Counts)>> {
    let values = [first.as_str().into(), last.as_str().into(), ALL_ROWS.into()];
    Ok(collect(tx.rows(&BETWEEN, &values, |row| {
        group(row, |id| Ok(id.parse()?))
    })?))
}

/// The workers that are not stopped, of all pools from the first to the last, ordered by pool and
/// provider.
pub fn by_provider_between(
    tx: &mut Tx<'_>,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<(PoolAndProvider, Counts)>> {
    let values = [first.as_str().into(), last.as_str().into(), ALL_ROWS.into()];
    Ok(collect(tx.rows(&BY_PROVIDER, &values, |row| {
        group(row, |id| Ok((id.parse()?, row.text(4)?.parse()?)))
    })?))
}

/// The workers of a pool by launch config; workers without one come first.
pub fn by_launch_config(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> Result<Vec<(Option<LaunchConfigId>, Counts)>> {
    let values = [pool_id.as_str().into(), ALL_ROWS.into()];
    let parse = |id: &str| -> Result<Option<LaunchConfigId>, BadRow> {
        match id {
            "" => Ok(None),
            id => Ok(Some(id.parse()?)),
        }
    };
    Ok(collect(tx.rows(&BY_LAUNCH_CONFIG, &values, |row| {
        group(row, parse)
    })?))
}

/// The workers of all pools together.
pub fn by_state(tx: &mut Tx<'_>) -> Result<Counts> {
    let groups = collect(tx.rows(&BY_STATE, &[ALL_ROWS.into()], |row| group(row, |_| Ok(())))?);
    Ok(groups
        .into_iter()
        .next()
        .map(|((), counts)| counts)
        .unwrap_or_default())
}

struct Group<K> {
    key: K,
    state: WorkerState,
    tally: StateCount,
}

fn group<K>(
    row: &Row<'_>,
    parse: impl FnOnce(&str) -> Result<K, BadRow>,
) -> Result<Group<K>, BadRow> {
    Ok(Group {
        key: parse(row.text(0)?)?,
        state: row.text(1)?.parse()?,
        tally: StateCount {
            count: row.number(2)?,
            capacity: row.number(3)?,
        },
    })
}

/// The database sorted by key, so the states of one key are neighbours.
fn collect<K: PartialEq>(groups: Vec<Group<K>>) -> Vec<(K, Counts)> {
    let mut collected: Vec<(K, Counts)> = Vec::new();
    for Group { key, state, tally } in groups {
        match collected.last_mut() {
            Some((last, counts)) if *last == key => *counts.of(state) = tally,
            _ => {
                let mut counts = Counts::default();
                *counts.of(state) = tally;
                collected.push((key, counts));
            }
        }
    }
    collected
}
