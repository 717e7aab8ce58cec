//! Launches: written before any cloud hears of them, so that none is forgotten.

use domain::Version;
use domain::id::{LaunchToken, PoolId, ProviderId};
use domain::launch::{Launch, LaunchState, StoredLaunch};
use domain::supply::AwaitedLaunches;
use domain::time::Timestamp;

use crate::error::StoreError;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::{ALL_ROWS, Tx};

static TABLE: Table = Table {
    name: "launches",
    key_columns: 1,
};

macro_rules! columns {
    () => {
        "token, worker_pool_id, provider_id, launch_config_id, machines, capacity_each, max_price, \
         state, cause, problem, made, plan, created, last_modified, version, asked"
    };
}

statements! { TABLE;
    GET "launch_get" = concat!("SELECT ", columns!(), " FROM launches WHERE token = $1");
    INSERT "launch_insert" = concat!(
        "INSERT INTO launches (", columns!(), ", failed, registered, never_registered, last_event) \
         VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, 0, 0, 0, \
         $17)");
    UPDATE "launch_update" =
        "UPDATE launches SET state = $1, cause = $2, problem = $3, made = $4, last_modified = $5, \
         last_event = $5, failed = $6, last_failure = COALESCE($7, last_failure), asked = $8, \
         version = version + 1 WHERE token = $9 AND version = $10";
    LIST_PENDING "launch_list_pending" = concat!(
        "SELECT ", columns!(), " FROM launches WHERE provider_id = $1 \
         AND state IN ('open', 'unknown') AND (last_modified, token) > ($2, $3) \
         ORDER BY last_modified, token LIMIT $4");
    LIST_OF_POOL "launch_list" = concat!(
        "SELECT ", columns!(), " FROM launches WHERE worker_pool_id = $1 \
         ORDER BY created DESC LIMIT $2");
    PENDING_BETWEEN "launch_pending_between" =
        "SELECT worker_pool_id, launch_config_id, provider_id, \
         CAST(CASE WHEN created < $1 THEN 1 ELSE 0 END AS BIGINT), \
         CAST(SUM((machines - made) * capacity_each) AS BIGINT) \
         FROM launches WHERE state IN ('open', 'unknown') \
         AND worker_pool_id >= $2 AND worker_pool_id <= $3 \
         GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $4";
    PENDING_MACHINES "launch_pending_machines" =
        "SELECT CAST(COALESCE(SUM(machines - made), 0) AS BIGINT) FROM launches \
         WHERE provider_id = $1 AND state IN ('open', 'unknown')";
    PENDING_PROVIDERS "launch_pending_providers" =
        "SELECT DISTINCT provider_id FROM launches WHERE worker_pool_id = $1 \
         AND state IN ('open', 'unknown') ORDER BY provider_id LIMIT $2";
    UNSETTLED_PROVIDERS "launch_unsettled_providers" =
        "SELECT DISTINCT provider_id FROM launches WHERE state IN ('open', 'unknown') \
         ORDER BY provider_id LIMIT $1";
    REGISTERED "launch_note_registered" =
        "UPDATE launches SET registered = registered + 1, last_registered = $1, last_event = $1 \
         WHERE token = $2";
    CLAIMED "launch_note_claimed" =
        "UPDATE launches SET claimed = claimed + 1 WHERE token = $1";
    SILENT "launch_note_silent" =
        "UPDATE launches SET last_failure = $1, last_event = $1 \
         WHERE token = $2 AND registered > claimed";
    NEVER_REGISTERED "launch_note_never_registered" =
        "UPDATE launches SET never_registered = never_registered + 1, last_failure = $1, \
         last_event = $1 WHERE token = $2";
    DELETE "launch_delete_before" =
        "DELETE FROM launches WHERE token IN (SELECT token FROM launches \
         WHERE created < $1 AND state IN ('accepted', 'refused', 'withdrawn') ORDER BY created LIMIT $2)";
}

pub fn launch_get(tx: &mut Tx<'_>, token: &LaunchToken) -> Result<Option<Launch>, StoreError> {
    tx.row(&GET, &[token.as_str().into()], launch)
}

pub fn launch_insert(tx: &mut Tx<'_>, launch: &Launch) -> Result<(), StoreError> {
    let (cause, problem) = state_columns(&launch.state);
    tx.execute(
        &INSERT,
        &[
            launch.token.as_str().into(),
            launch.pool_id.as_str().into(),
            launch.provider_id.as_str().into(),
            launch.launch_config_id.as_str().into(),
            launch.machines.into(),
            launch.capacity_each.into(),
            launch.max_price.map(micros).into(),
            launch.state.as_str().into(),
            cause.into(),
            problem.into(),
            launch.made.into(),
            launch.plan.into(),
            launch.created.into(),
            launch.last_modified.into(),
            launch.version.into(),
            launch.asked.into(),
            launch.last_modified.into(),
        ],
    )
    .map(drop)
}

/// Writes state and count, if nobody changed them since they were read. Returns the new version.
pub fn launch_update(tx: &mut Tx<'_>, launch: &Launch) -> Result<Version, StoreError> {
    let (cause, problem) = state_columns(&launch.state);
    let failed = launch.not_made();
    tx.execute_guarded(
        &UPDATE,
        &[
            launch.state.as_str().into(),
            cause.into(),
            problem.into(),
            launch.made.into(),
            launch.last_modified.into(),
            failed.into(),
            (failed > 0).then_some(launch.last_modified).into(),
            launch.asked.into(),
            launch.token.as_str().into(),
            launch.version.into(),
        ],
    )?;
    Ok(launch.version.next())
}

/// Those of a provider whose outcome is not known, longest waiting first.
pub fn launch_list_pending(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    after: Option<(Timestamp, &LaunchToken)>,
    limit: u32,
) -> Result<Vec<Launch>, StoreError> {
    let (since, token) = after.map_or((i64::MIN, ""), |(since, token)| {
        (since.as_millis(), token.as_str())
    });
    let values = [
        provider_id.as_str().into(),
        since.into(),
        token.into(),
        limit.into(),
    ];
    tx.rows(&LIST_PENDING, &values, launch)
}

/// Newest first.
pub fn launch_list(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    limit: u32,
) -> Result<Vec<Launch>, StoreError> {
    let values = [pool_id.as_str().into(), limit.into()];
    tx.rows(&LIST_OF_POOL, &values, launch)
}

/// What may still come of launches without an answer, of all pools from the first to the last.
pub fn launch_pending_between(
    tx: &mut Tx<'_>,
    before: Timestamp,
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<AwaitedLaunches>, StoreError> {
    let values = [
        before.into(),
        first.as_str().into(),
        last.as_str().into(),
        ALL_ROWS.into(),
    ];
    tx.rows(&PENDING_BETWEEN, &values, |row| {
        Ok(AwaitedLaunches {
            pool_id: row.text(0)?.parse()?,
            launch_config_id: row.text(1)?.parse()?,
            provider_id: row.text(2)?.parse()?,
            is_old: row.integer(3)? != 0,
            capacity: row.number(4)?,
        })
    })
}

/// The machines that may still come of launches without an answer, of all pools.
pub fn launch_pending_machines(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
) -> Result<u64, StoreError> {
    let values = [provider_id.as_str().into()];
    let found = tx.row(&PENDING_MACHINES, &values, |row| row.number(0))?;
    Ok(found.unwrap_or(0))
}

/// Which providers may still make machines for a pool.
pub fn launch_pending_providers(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
) -> Result<Vec<ProviderId>, StoreError> {
    let values = [pool_id.as_str().into(), ALL_ROWS.into()];
    tx.rows(&PENDING_PROVIDERS, &values, |row| {
        Ok(row.text(0)?.parse()?)
    })
}

/// Which providers have launches without an answer, also those that are configured no longer.
pub fn launch_unsettled_providers(tx: &mut Tx<'_>) -> Result<Vec<ProviderId>, StoreError> {
    tx.rows(&UNSETTLED_PROVIDERS, &[ALL_ROWS.into()], |row| {
        Ok(row.text(0)?.parse()?)
    })
}

/// One of its machines has proved itself.
pub fn launch_note_registered(
    tx: &mut Tx<'_>,
    token: &LaunchToken,
    now: Timestamp,
) -> Result<(), StoreError> {
    let values = [now.into(), token.as_str().into()];
    tx.execute(&REGISTERED, &values).map(drop)
}

/// One of its machines has asked for work for the first time.
pub(crate) fn note_claimed(tx: &mut Tx<'_>, token: &LaunchToken) -> Result<(), StoreError> {
    tx.execute(&CLAIMED, &[token.as_str().into()]).map(drop)
}

/// One of its machines has ended that had registered, and perhaps never asked for work.
pub fn launch_note_silent(
    tx: &mut Tx<'_>,
    token: &LaunchToken,
    now: Timestamp,
) -> Result<(), StoreError> {
    let values = [now.into(), token.as_str().into()];
    tx.execute(&SILENT, &values).map(drop)
}

/// One of its machines has ended without ever having proved itself.
pub fn launch_note_never_registered(
    tx: &mut Tx<'_>,
    token: &LaunchToken,
    now: Timestamp,
) -> Result<(), StoreError> {
    let values = [now.into(), token.as_str().into()];
    tx.execute(&NEVER_REGISTERED, &values).map(drop)
}

/// Only those that are settled. As many as the limit means: ask again.
pub fn launch_delete_before(
    tx: &mut Tx<'_>,
    before: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    tx.execute(&DELETE, &[before.into(), limit.into()])
}

fn state_columns(state: &LaunchState) -> (Option<&'static str>, Option<&str>) {
    match state {
        LaunchState::Open | LaunchState::Accepted => (None, None),
        LaunchState::Refused { cause, problem } => (Some(cause.as_str()), Some(problem)),
        LaunchState::Unknown { problem } | LaunchState::Withdrawn { problem } => {
            (None, Some(problem))
        }
    }
}

#[expect(
    clippy::cast_possible_truncation,
    reason = "a price beyond what fits is cut to what fits"
)]
fn micros(dollars: f64) -> i64 {
    (dollars * 1_000_000.0).round() as i64
}

#[expect(
    clippy::cast_precision_loss,
    reason = "prices have far fewer digits than an f64 holds"
)]
fn dollars(micros: i64) -> f64 {
    micros as f64 / 1_000_000.0
}

fn launch(row: &Row<'_>) -> Result<Launch, BadRow> {
    let problem = row.optional_text(9)?.unwrap_or_default().to_owned();
    let state = match row.text(7)? {
        "open" => LaunchState::Open,
        "accepted" => LaunchState::Accepted,
        "unknown" => LaunchState::Unknown { problem },
        "withdrawn" => LaunchState::Withdrawn { problem },
        _ => LaunchState::Refused {
            cause: row.text(8)?.parse()?,
            problem,
        },
    };
    Ok(Launch::from_stored(StoredLaunch {
        token: row.text(0)?.parse()?,
        pool_id: row.text(1)?.parse()?,
        provider_id: row.text(2)?.parse()?,
        launch_config_id: row.text(3)?.parse()?,
        machines: row.number(4)?,
        capacity_each: row.number(5)?,
        max_price: row.optional_integer(6)?.map(dollars),
        state,
        made: row.number(10)?,
        plan: row.integer(11)?,
        created: row.time(12)?,
        last_modified: row.time(13)?,
        version: row.version(14)?,
        asked: row.optional_time(15)?,
    }))
}
