//! Workers: single rows, and lists for the scan (by key).

use domain::Version;
use domain::id::{LaunchConfigId, OfferingId, PoolId, ProviderId, WorkerGroup, WorkerKey};
use domain::time::Timestamp;
use domain::worker::{PreviousSecret, StoredWorker, Worker};

use crate::cost::meters::{self, expired_workers, is_kept};
use crate::engine::{
    ALL_ROWS, BadRow, Cells, Entity, Field, FromRow, Result, Table, Tx, Value, columns, from_row,
    statements, to_json,
};
use crate::fleet::launches;

/// Length at which a list of rows to write is sent.
const LIST_BYTES: usize = 1024 * 1024;

columns! { worker: Worker(StoredWorker) {
    key: Key ["worker_pool_id", "worker_group", "worker_id"],
    provider_id: Mutable "provider_id",
    launch_config_id: Mutable "launch_config_id",
    state: Mutable "state",
    capacity: Mutable "capacity",
    price: Mutable "price",
    created: Fixed "created",
    expires: Mutable "expires",
    last_modified: Mutable "last_modified",
    last_checked: Mutable "last_checked",
    terms: Mutable "terms",
    provider_data: Mutable "provider_data",
    secret: Mutable "secret",
    previous_secret: Mutable ["previous_secret", "previous_secret_until"],
    version: Version "version",
}
also {
    Mutable "draining" = worker.terms.is_draining(),
    Mutable "registered" = worker.terms.registered_at,
    Mutable "offering" = worker.terms.offering.as_ref().map(OfferingId::as_str),
    Mutable "idle_hold" = worker.terms.idle_hold_ms,
    Mutable "advised" = worker.terms.advice.as_ref().map(|advice| advice.decided_at),
    Mutable "advice_reason" = worker.terms.advice.as_ref().map(|advice| &advice.reason),
    Fixed "declared" = worker.is_declared(),
} }

impl Field for Option<PreviousSecret> {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        values.push(self.as_ref().map(|secret| &secret.digest).into());
        values.push(self.as_ref().map(|secret| secret.until).into());
    }
}

impl FromRow for Option<PreviousSecret> {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (digest, until): (Option<_>, Option<_>) = (cells.next()?, cells.next()?);
        match (digest, until) {
            (Some(digest), Some(until)) => Ok(Some(PreviousSecret { digest, until })),
            (None, _) => Ok(None),
            (Some(_), None) => Err(BadRow("a previous secret has no end".to_owned())),
        }
    }
}

impl Field for WorkerKey {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        values.extend([
            self.pool_id.as_str().into(),
            self.group.as_str().into(),
            self.id.as_str().into(),
        ]);
    }
}

from_row! { WorkerKey { pool_id, group, id } }

pub(crate) static TABLE: Table = Table::of::<Worker>("workers");

statements! { TABLE;
    GET "worker_get" =
        "SELECT {columns} FROM workers \
         WHERE worker_pool_id = $1 AND worker_group = $2 AND worker_id = $3";
    SOME "worker_get_some" =
        "SELECT {columns} FROM json_each($1) AS v CROSS JOIN workers \
         WHERE worker_pool_id = v.value ->> 0 AND worker_group = v.value ->> 1 \
         AND worker_id = v.value ->> 2 ORDER BY worker_group, worker_id";
    INSERT "worker_insert" =
        "INSERT INTO workers ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "worker_update" =
        "UPDATE workers SET {changes} WHERE {key}";
    ADVISE "worker_advise" =
        "UPDATE workers SET terms = v.value ->> 4, \
         draining = CAST(v.value ->> 5 AS BIGINT), advised = CAST(v.value ->> 6 AS BIGINT), \
         advice_reason = v.value ->> 7, version = version + 1 FROM json_each($1) AS v \
         WHERE worker_pool_id = v.value ->> 0 AND worker_group = v.value ->> 1 \
         AND worker_id = v.value ->> 2 AND version = CAST(v.value ->> 3 AS BIGINT)";
    // Adding '' keeps PostgreSQL from the index of running workers, and so on the primary key.
    WITHOUT_CLAIM "worker_list_without_claim" =
        "SELECT worker_pool_id, worker_group, worker_id FROM json_each($1) AS v \
         CROSS JOIN workers WHERE worker_pool_id = v.value ->> 0 \
         AND worker_group = v.value ->> 1 AND worker_id = v.value ->> 2 \
         AND first_claim IS NULL AND state || '' = 'running'";
    FIRST_CLAIM "worker_note_first_claim" =
        "UPDATE workers SET first_claim = $1 WHERE worker_pool_id = $2 AND worker_group = $3 \
         AND worker_id = $4 AND first_claim IS NULL AND state = 'running' RETURNING {columns}";
    KEEP_DECLARED "worker_keep_declared" = concat!(
        "UPDATE workers SET expires = $1, version = version + 1 \
         WHERE (worker_pool_id, worker_group, worker_id) IN (\
         SELECT w.worker_pool_id, w.worker_group, w.worker_id FROM workers AS w \
         WHERE w.expires < $2 AND ", is_kept!(), " ORDER BY w.expires LIMIT $3)");
    DELETE_EXPIRED "worker_delete_expired" = concat!(
        "DELETE FROM workers WHERE (worker_pool_id, worker_group, worker_id) IN (",
        expired_workers!(), ")");
    LIST_LIVE "worker_list_live" =
        "SELECT {columns} FROM workers WHERE provider_id = $1 AND state <> 'stopped' \
         AND worker_group = $2 AND (worker_pool_id, worker_id) > ($3, $4) \
         ORDER BY worker_pool_id, worker_id LIMIT $5";
    NEXT_GROUP "worker_next_live_group" =
        "SELECT worker_group FROM workers WHERE provider_id = $1 AND state <> 'stopped' \
         AND worker_group > $2 ORDER BY worker_group LIMIT 1";
    LIVE_PROVIDERS "worker_live_providers" =
        "SELECT DISTINCT provider_id FROM workers WHERE worker_pool_id = $1 \
         AND state <> 'stopped' ORDER BY provider_id LIMIT $2";
    MACHINES "worker_live_machines" =
        "SELECT COUNT(*) FROM workers WHERE provider_id = $1 AND state <> 'stopped'";
    STOPPING "worker_list_stopping" =
        "SELECT {columns} FROM workers WHERE state = 'stopping' AND provider_id = $1 \
         AND (worker_pool_id, worker_group, worker_id) > ($2, $3, $4) \
         ORDER BY worker_pool_id, worker_group, worker_id LIMIT $5";
    REQUESTED "worker_list_requested" =
        "SELECT {columns} FROM workers WHERE worker_pool_id = $1 AND state = 'requested' \
         AND launch_config_id = $2 AND created < $3 \
         ORDER BY created, worker_group, worker_id LIMIT $4";
    WORKING "worker_list_working" =
        "SELECT {columns} FROM workers \
         WHERE (worker_pool_id, worker_group, worker_id) > ($1, $2, $3) \
         AND (state = 'requested' OR state = 'running') AND created < $4 \
         ORDER BY worker_pool_id, worker_group, worker_id LIMIT $5";
    CHECKED "worker_note_checked" =
        "UPDATE workers SET last_checked = $1 WHERE provider_id = $2 AND state <> 'stopped' \
         AND worker_group = $3 AND (worker_pool_id, worker_id) >= ($4, $5) \
         AND (worker_pool_id, worker_id) <= ($6, $7) AND last_checked < $8";
}

pub fn get(tx: &mut Tx<'_>, key: &WorkerKey) -> Result<Option<Worker>> {
    tx.row(&GET, key)
}

/// These workers, as far as they exist, ordered by group and id.
pub fn get_some<'k>(
    tx: &mut Tx<'_>,
    keys: impl IntoIterator<Item = &'k WorkerKey>,
) -> Result<Vec<Worker>> {
    let keys: Vec<(&str, &str, &str)> = keys.into_iter().map(parts).collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    tx.rows(&SOME, to_json(&keys))
}

/// Starts the meter of its machine, too. Returns `false` and changes nothing if the key exists.
pub fn insert(tx: &mut Tx<'_>, worker: &Worker) -> Result<bool> {
    tx.touch(worker.key.pool_id.as_str());
    let exists = |tx: &mut Tx<'_>| Ok(get(tx, &worker.key)?.is_some());
    let is_new = tx.insert_unless(&INSERT, worker.inserted(), exists)?;
    if is_new {
        meters::insert(tx, worker)?;
    }
    Ok(is_new)
}

/// Like `insert`, of a worker that was looked for and not found. If another transaction has
/// inserted it since, this one has lost a race.
pub fn insert_new(tx: &mut Tx<'_>, worker: &Worker) -> Result<()> {
    tx.touch(worker.key.pool_id.as_str());
    tx.insert_new(&INSERT, worker)?;
    meters::insert(tx, worker)
}

/// Writes the mutable columns, unless another transaction changed the row since it was read.
/// Returns the new version.
pub fn update(tx: &mut Tx<'_>, worker: &Worker) -> Result<Version> {
    tx.touch(worker.key.pool_id.as_str());
    tx.update(&UPDATE, worker)?;
    Ok(worker.version.next())
}

/// Writes the advice to workers of a pool, unless another transaction changed one of them since it
/// was read.
pub fn advise(tx: &mut Tx<'_>, pool_id: &PoolId, workers: &[Worker]) -> Result<()> {
    let (mut rows, mut n_rows) = (String::new(), 0);
    for (number, worker) in workers.iter().enumerate() {
        rows.push(if n_rows == 0 { '[' } else { ',' });
        rows.push_str(&advice_row(worker));
        n_rows += 1;
        if rows.len() >= LIST_BYTES || number + 1 == workers.len() {
            rows.push(']');
            tx.touch(pool_id.as_str());
            if tx.execute(&ADVISE, &rows)? < n_rows {
                return Err(tx.lost_race());
            }
            (rows, n_rows) = (String::new(), 0);
        }
    }
    Ok(())
}

fn advice_row(worker: &Worker) -> String {
    let advice = worker.terms.advice.as_ref();
    to_json(&(
        worker.key.pool_id.as_str(),
        worker.key.group.as_str(),
        worker.key.id.as_str(),
        worker.version.0,
        to_json(&worker.terms),
        i64::from(worker.terms.is_draining()),
        advice.map(|advice| advice.decided_at),
        advice.map(|advice| &advice.reason),
    ))
}

/// Those of these workers that run, and of which no request for work was recorded, ordered by key.
pub fn without_claim<'k>(
    tx: &mut Tx<'_>,
    keys: impl IntoIterator<Item = &'k WorkerKey>,
) -> Result<Vec<WorkerKey>> {
    let keys: Vec<(&str, &str, &str)> = keys.into_iter().map(parts).collect();
    if keys.is_empty() {
        return Ok(Vec::new());
    }
    let mut found: Vec<WorkerKey> = tx.rows(&WITHOUT_CLAIM, to_json(&keys))?;
    found.sort_unstable();
    Ok(found)
}

/// Records the first time at which a worker asked the queue for work, in its row and in the row of
/// its launch. Returns the worker; `None` if it was recorded before, or if no such worker runs. The
/// versions of the rows do not change.
pub fn note_first_claim(
    tx: &mut Tx<'_>,
    key: &WorkerKey,
    now: Timestamp,
) -> Result<Option<Worker>> {
    tx.touch_nothing();
    let worker: Option<Worker> = tx.row(&FIRST_CLAIM, (now, key))?;
    let token = worker.as_ref();
    let token = token.and_then(|worker| worker.terms.launch_token.as_ref()?.parse().ok());
    if let Some(token) = token {
        launches::note_claimed(tx, &token)?;
    }
    Ok(worker)
}

/// Moves the expiration of declared workers that live to this time, if it is before the other one,
/// and returns how many. Call it again while it returns the limit.
pub fn keep_declared(
    tx: &mut Tx<'_>,
    until: Timestamp,
    before: Timestamp,
    limit: u32,
) -> Result<u64> {
    tx.execute(&KEEP_DECLARED, (until, before, limit))
}

/// Deletes expired workers, and ends their meters; but no declared worker that lives. Call it again
/// while it returns the limit.
pub fn delete_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    meters::end_expired(tx, now, limit)?;
    tx.execute(&DELETE_EXPIRED, (now, limit))
}

/// The workers of a provider in a group that are not stopped, in all pools, ordered by pool and id.
pub fn list_live(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    group: &WorkerGroup,
    after: Option<&WorkerKey>,
    limit: u32,
) -> Result<Vec<Worker>> {
    let (pool_id, _, id) = after.map(parts).unwrap_or_default();
    tx.rows(&LIST_LIVE, (provider_id, group, pool_id, id, limit))
}

/// The groups after this one in which a provider has workers that are not stopped, at most
/// `limit`. It runs one statement for each group, on an index: there are many workers, but few
/// groups.
pub fn live_groups(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    after: Option<&WorkerGroup>,
    limit: u32,
) -> Result<Vec<WorkerGroup>> {
    let mut groups: Vec<WorkerGroup> = Vec::new();
    while groups.len() < limit as usize {
        let after = groups.last().or(after).map_or("", WorkerGroup::as_str);
        match tx.row(&NEXT_GROUP, (provider_id, after))? {
            Some(group) => groups.push(group),
            None => break,
        }
    }
    Ok(groups)
}

/// The providers that have workers in a pool that are not stopped.
pub fn live_providers(tx: &mut Tx<'_>, pool_id: &PoolId) -> Result<Vec<ProviderId>> {
    tx.rows(&LIVE_PROVIDERS, (pool_id, ALL_ROWS))
}

/// Number of workers of a provider that are not stopped, in all pools.
pub fn live_machines(tx: &mut Tx<'_>, provider_id: &ProviderId) -> Result<u64> {
    tx.number(&MACHINES, provider_id)
}

/// The workers of a provider that are stopping, ordered by key.
pub fn list_stopping(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    after: Option<&WorkerKey>,
    limit: u32,
) -> Result<Vec<Worker>> {
    tx.rows(
        &STOPPING,
        (provider_id, after.map(parts).unwrap_or_default(), limit),
    )
}

/// The requested workers of a pool that were made before this moment, the oldest first.
pub fn list_requested(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    launch_config_id: &LaunchConfigId,
    before: Timestamp,
    limit: u32,
) -> Result<Vec<Worker>> {
    tx.rows(&REQUESTED, (pool_id, launch_config_id, before, limit))
}

/// The requested and running workers of all pools that were made before this moment, ordered by
/// key.
pub fn list_working(
    tx: &mut Tx<'_>,
    after: (&str, &str, &str),
    before: Timestamp,
    limit: u32,
) -> Result<Vec<Worker>> {
    tx.rows(&WORKING, (after, before, limit))
}

/// Records the time of a check of one page of a provider's workers in one group. Rows that were
/// checked since `unless_since` are left unchanged, and no row's version changes.
pub fn note_checked(
    tx: &mut Tx<'_>,
    provider_id: &ProviderId,
    first: &WorkerKey,
    last: &WorkerKey,
    now: Timestamp,
    unless_since: Timestamp,
) -> Result<u64> {
    let page = (
        &first.group,
        &first.pool_id,
        &first.id,
        &last.pool_id,
        &last.id,
    );
    tx.touch_nothing();
    tx.execute(&CHECKED, (now, provider_id, page, unless_since))
}

fn parts(key: &WorkerKey) -> (&str, &str, &str) {
    (key.pool_id.as_str(), key.group.as_str(), key.id.as_str())
}
