//! Launches: written before the provider is asked for machines, so that no machine is lost.

use domain::Version;
use domain::facts::{RecentLaunch, Starting};
use domain::id::{LaunchConfigId, LaunchToken, PoolId, ProviderId};
use domain::launch::{Launch, LaunchState, StoredLaunch};
use domain::market::OfferingId;
use domain::supply::AwaitedLaunches;
use domain::time::Timestamp;

use crate::engine::{
    ALL_ROWS, BadRow, Cells, Entity, Field, FromRow, Result, Table, Tx, Value, columns, from_row,
    statements,
};

columns! { launch: Launch(StoredLaunch) {
    token: Key "token",
    pool_id: Fixed "worker_pool_id",
    provider_id: Fixed "provider_id",
    launch_config_id: Fixed "launch_config_id",
    offering: Fixed "offering",
    machines: Fixed "machines",
    capacity_each: Fixed "capacity_each",
    max_price: Fixed "max_price",
    price: Fixed "price",
    state: Mutable ["state", "cause", "problem"],
    asked: Mutable "asked",
    made: Mutable "made",
    plan: Fixed "plan",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    version: Version "version",
}
also {
    Mutable "last_event" = launch.last_modified,
    Mutable "failed" = launch.failed_machines(),
    Fixed "registered" = 0_u32,
    Fixed "never_registered" = 0_u32,
} }

impl Field for LaunchState {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        let (cause, problem) = match self {
            Self::Open | Self::Accepted => (None, None),
            Self::Refused { cause, problem } => (Some(cause.as_str()), Some(problem)),
            Self::Unknown { problem } | Self::Withdrawn { problem } => (None, Some(problem)),
        };
        values.extend([self.as_str().into(), cause.into(), problem.into()]);
    }
}

impl FromRow for LaunchState {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let state: String = cells.next()?;
        let cause: Option<String> = cells.next()?;
        let problem = cells.next::<Option<String>>()?.unwrap_or_default();
        Ok(match state.as_str() {
            "open" => Self::Open,
            "accepted" => Self::Accepted,
            "unknown" => Self::Unknown { problem },
            "withdrawn" => Self::Withdrawn { problem },
            _ => Self::Refused {
                cause: cause.unwrap_or_default().parse()?,
                problem,
            },
        })
    }
}

from_row! { AwaitedLaunches { pool_id, launch_config_id, provider_id, is_old, capacity } }

static TABLE: Table = Table::of::<Launch>("launches");

statements! { TABLE;
    GET "launch_get" =
        "SELECT {columns} FROM launches WHERE token = $1";
    INSERT "launch_insert" = "INSERT INTO launches ({written}) VALUES ({values})";
    UPDATE "launch_update" =
        "UPDATE launches SET last_failure = COALESCE($1, last_failure), {changes} WHERE {key}";
    LIST_PENDING "launch_list_pending" =
        "SELECT {columns} FROM launches WHERE provider_id = $1 \
         AND state IN ('open', 'unknown') AND (last_modified, token) > ($2, $3) \
         ORDER BY last_modified, token LIMIT $4";
    LIST_OF_POOL "launch_list" =
        "SELECT {columns} FROM launches WHERE worker_pool_id = $1 \
         ORDER BY created DESC LIMIT $2";
    LIST_OF_POOL_UNTIL "launch_list_until" =
        "SELECT {columns} FROM launches WHERE worker_pool_id = $1 AND created <= $2 \
         ORDER BY created DESC LIMIT $3";
    LIST_BY_TIME "launch_list_by_time" =
        "SELECT {columns} FROM launches WHERE (created, token) > ($1, $2) AND created < $3 \
         ORDER BY created, token LIMIT $4";
    PENDING_BETWEEN "launch_pending_between" =
        "SELECT worker_pool_id, launch_config_id, provider_id, \
         CAST(CASE WHEN created < $1 OR state = 'unknown' AND last_modified < $2 THEN 1 ELSE 0 END \
         AS BIGINT), \
         CAST(SUM((machines - made) * capacity_each) AS BIGINT) \
         FROM launches WHERE state IN ('open', 'unknown') \
         AND worker_pool_id >= $3 AND worker_pool_id <= $4 \
         GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $5";
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
         WHERE token = $2 RETURNING offering, provider_id, created";
    CLAIMED "launch_note_claimed" =
        "UPDATE launches SET claimed = claimed + 1 WHERE token = $1";
    SILENT "launch_note_silent" =
        "UPDATE launches SET last_failure = $1, last_event = $1 \
         WHERE token = $2 AND registered > claimed";
    NEVER_REGISTERED "launch_note_never_registered" =
        "UPDATE launches SET never_registered = never_registered + 1, last_failure = $1, \
         last_event = $1 WHERE token = $2 RETURNING offering, provider_id, created";
    OFFERING "launch_offering" =
        "SELECT offering, provider_id, created FROM launches WHERE token = $1";
    LAST_OFFERING "launch_last_offering" =
        "SELECT offering, provider_id, created FROM launches WHERE worker_pool_id = $1 \
         AND launch_config_id = $2 AND offering IS NOT NULL ORDER BY created DESC LIMIT 1";
    // Machines of unknown launches that were found count as made. Others are expected until their
    // answer has been lost for a while.
    STARTING "launch_starting" =
        "SELECT launch_config_id, provider_id, created, CAST(SUM(expected \
         - registered - never_registered) AS BIGINT), capacity_each, offering FROM (\
         SELECT launches.*, CASE WHEN state = 'open' OR state = 'unknown' AND last_modified >= $1 \
         THEN machines WHEN state IN ('unknown', 'accepted') THEN made ELSE 0 END AS expected \
         FROM launches WHERE worker_pool_id = $2 AND created >= $3) AS recent \
         WHERE expected > registered + never_registered \
         GROUP BY launch_config_id, provider_id, created, capacity_each, offering \
         ORDER BY created, launch_config_id, provider_id, capacity_each, offering LIMIT $4";
    PENDING_OFFERINGS "launch_pending_by_offering" =
        "SELECT launch_config_id, offering, CAST(SUM((machines - made) * capacity_each) AS BIGINT) \
         FROM launches WHERE worker_pool_id = $1 AND created >= $2 \
         AND (state = 'open' OR state = 'unknown' AND last_modified >= $3) AND offering IS NOT NULL \
         GROUP BY launch_config_id, offering ORDER BY launch_config_id, offering LIMIT $4";
    RECENT "launch_recent" =
        "SELECT launch_config_id, created, state, cause, problem FROM launches \
         WHERE worker_pool_id = $1 ORDER BY created DESC, token LIMIT $2";
    SURVIVORS "launch_survivors" =
        "SELECT CAST(COALESCE(SUM(made - registered - never_registered), 0) AS BIGINT) \
         FROM launches WHERE offering = $1 AND created > $2 AND created <= $3 \
         AND state = 'accepted' AND made > registered + never_registered";
    DELETE "launch_delete_before" =
        "DELETE FROM launches WHERE token IN (SELECT token FROM launches \
         WHERE created < $1 AND state IN ('accepted', 'refused', 'withdrawn') \
         ORDER BY created LIMIT $2)";
}

pub fn get(tx: &mut Tx<'_>, token: &LaunchToken) -> Result<Option<Launch>> {
    tx.row(&GET, token)
}

pub fn insert(tx: &mut Tx<'_>, launch: &Launch) -> Result<()> {
    tx.run(&INSERT, launch.inserted())
}

/// Writes the mutable columns, and the time of the last failure if machines failed, unless another
/// transaction changed the row since it was read. Returns the new version.
pub fn update(tx: &mut Tx<'_>, launch: &Launch) -> Result<Version> {
    let failure = (launch.failed_machines() > 0).then_some(launch.last_modified);
    let values = (&failure, launch.updated());
    tx.execute_guarded(&UPDATE, values)?;
    Ok(launch.version.next())
}

/// The launches of a provider whose result is not known, the longest waiting first.
pub fn list_pending(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    after: Option<(Timestamp, &LaunchToken)>,
    limit: u32,
) -> Result<Vec<Launch>> {
    let after = after.map_or((i64::MIN, ""), |(since, token)| {
        (since.as_millis(), token.as_str())
    });
    tx.rows(&LIST_PENDING, (provider_id, after, limit))
}

/// Ordered from newest to oldest.
pub fn list(tx: &mut Tx<'_>, pool_id: &PoolId, limit: u32) -> Result<Vec<Launch>> {
    tx.rows(&LIST_OF_POOL, (pool_id, limit))
}

/// The launches of a pool that were decided up to this moment, newest first.
pub fn list_until(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    until: Timestamp,
    limit: u32,
) -> Result<Vec<Launch>> {
    tx.rows(&LIST_OF_POOL_UNTIL, (pool_id, until, limit))
}

/// The launches of all pools after this place that were decided before `until`, oldest first.
pub fn list_by_time(
    tx: &mut Tx<'_>,
    after: (Timestamp, &str),
    until: Timestamp,
    limit: u32,
) -> Result<Vec<Launch>> {
    tx.rows(&LIST_BY_TIME, (after, until, limit))
}

/// The capacity that launches without an answer may still add, of all pools from the first to the
/// last. Launches are old if they were decided before the first time, or if their answer was lost
/// before the second one.
pub fn pending_between(
    tx: &mut Tx<'_>,
    before: (Timestamp, Timestamp),
    first: &PoolId,
    last: &PoolId,
) -> Result<Vec<AwaitedLaunches>> {
    tx.rows(&PENDING_BETWEEN, (before, first, last, ALL_ROWS))
}

/// Number of machines that launches without an answer may still create, in all pools.
pub fn pending_machines(tx: &mut Tx<'_>, provider_id: &ProviderId) -> Result<u64> {
    tx.number(&PENDING_MACHINES, provider_id)
}

/// The providers that may still create machines for a pool.
pub fn pending_providers(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Vec<ProviderId>> {
    tx.rows(&PENDING_PROVIDERS, (pool_id, ALL_ROWS))
}

/// The providers that have launches without an answer, including providers that are no longer
/// configured.
pub fn unsettled_providers(tx: &mut Tx<'_>) -> Result<Vec<ProviderId>> {
    tx.rows(&UNSETTLED_PROVIDERS, ALL_ROWS)
}

/// The launch of a machine, as far as the memory of its offering needs it.
#[derive(Clone, Debug, PartialEq)]
pub struct LaunchOrigin {
    pub offering: Option<OfferingId>,
    pub provider_id: ProviderId,
    pub created: Timestamp,
}

from_row! { LaunchOrigin { offering, provider_id, created } }
from_row! { RecentLaunch { launch_config_id, since, state } }
from_row! { Starting { launch_config_id, provider_id, since, machines, capacity_each, offering } }

/// Records that one of the launch's machines has registered.
pub fn note_registered(
    tx: &mut Tx<'_>,
    token: &LaunchToken,
    now: Timestamp,
) -> Result<Option<LaunchOrigin>> {
    tx.row(&REGISTERED, (now, token))
}

pub fn origin(tx: &mut Tx<'_>, token: &LaunchToken) -> Result<Option<LaunchOrigin>> {
    tx.row(&OFFERING, token)
}

/// The newest launch of this launch config that has an offering.
pub fn last_with_offering(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    id: &LaunchConfigId,
) -> Result<Option<LaunchOrigin>> {
    tx.row(&LAST_OFFERING, (pool_id, id))
}

/// The machines of a pool that have not registered, or that launches without an answer may still
/// make, the oldest first. Launches before `since` are left out.
pub fn starting(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    since: Timestamp,
    lost_since: Timestamp,
) -> Result<Vec<Starting>> {
    tx.rows(&STARTING, (lost_since, pool_id, since, ALL_ROWS))
}

/// The units that launches without an answer may still make, by launch config and offering. Older
/// launches than `since` are left out, and those whose answer was lost before `lost_since`.
pub fn pending_by_offering(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    since: Timestamp,
    lost_since: Timestamp,
) -> Result<Vec<(LaunchConfigId, OfferingId, u64)>> {
    tx.rows(&PENDING_OFFERINGS, (pool_id, since, lost_since, ALL_ROWS))
}

/// The last launches of a pool, the newest first.
pub fn recent(tx: &mut Tx<'_>, pool_id: &PoolId, limit: u32) -> Result<Vec<RecentLaunch>> {
    tx.rows(&RECENT, (pool_id, limit))
}

/// The number of machines of an offering that exist and have not registered, of launches after the
/// first moment and until the second.
pub fn survivors(
    tx: &mut Tx<'_>,
    offering: &OfferingId,
    after: Timestamp,
    until: Timestamp,
) -> Result<u64> {
    tx.number(&SURVIVORS, (offering, after, until))
}

/// Records that one of the launch's machines has asked for work for the first time.
pub(crate) fn note_claimed(tx: &mut Tx<'_>, token: &LaunchToken) -> Result<()> {
    tx.run(&CLAIMED, token)
}

/// Records that a registered machine of the launch has ended. It counts as a failure while fewer
/// machines have asked for work than have registered.
pub fn note_silent(tx: &mut Tx<'_>, token: &LaunchToken, now: Timestamp) -> Result<()> {
    tx.run(&SILENT, (now, token))
}

/// Records that one of the launch's machines has ended without registering.
pub fn note_never_registered(
    tx: &mut Tx<'_>,
    token: &LaunchToken,
    now: Timestamp,
) -> Result<Option<LaunchOrigin>> {
    tx.row(&NEVER_REGISTERED, (now, token))
}

/// Deletes launches whose result is known. Call it again while it returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE, (before, limit))
}
