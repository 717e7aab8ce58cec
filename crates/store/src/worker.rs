//! Workers, one at a time.

use domain::Version;
use domain::id::{LaunchConfigId, WorkerKey};
use domain::time::Timestamp;
use domain::worker::{PreviousSecret, StoredWorker, Worker};

use crate::error::StoreError;
use crate::launch;
use crate::row::{BadRow, Row};
use crate::statement::{Table, statements};
use crate::tx::Tx;
use crate::value::to_json;

pub(crate) static TABLE: Table = Table {
    name: "workers",
    key_columns: 3,
};

macro_rules! columns {
    () => {
        "worker_pool_id, worker_group, worker_id, provider_id, launch_config_id, state, capacity, \
         created, expires, last_modified, last_checked, terms, provider_data, secret, \
         previous_secret, previous_secret_until, version"
    };
}
pub(crate) use columns;

statements! { TABLE;
    GET "worker_get" = concat!(
        "SELECT ", columns!(), " FROM workers \
         WHERE worker_pool_id = $1 AND worker_group = $2 AND worker_id = $3");
    INSERT "worker_insert" = concat!(
        "INSERT INTO workers (", columns!(), ", draining, registered, idle_hold, advised, \
         advice_reason) VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, \
         $16, $17, $18, $19, $20, $21, $22) ON CONFLICT DO NOTHING");
    UPDATE "worker_update" =
        "UPDATE workers SET provider_id = $1, launch_config_id = $2, state = $3, capacity = $4, \
         expires = $5, last_modified = $6, last_checked = $7, terms = $8, provider_data = $9, \
         secret = $10, previous_secret = $11, previous_secret_until = $12, draining = $13, \
         registered = $14, idle_hold = $15, advised = $16, advice_reason = $17, \
         version = version + 1 \
         WHERE worker_pool_id = $18 AND worker_group = $19 AND worker_id = $20 AND version = $21";
    FIRST_CLAIM "worker_note_first_claim" =
        "UPDATE workers SET first_claim = $1 WHERE worker_pool_id = $2 AND worker_group = $3 \
         AND worker_id = $4 AND first_claim IS NULL AND state = 'running'";
    DELETE_EXPIRED "worker_delete_expired" =
        "DELETE FROM workers WHERE (worker_pool_id, worker_group, worker_id) IN (\
         SELECT worker_pool_id, worker_group, worker_id FROM workers \
         WHERE expires < $1 ORDER BY expires LIMIT $2)";
}

pub fn worker_get(tx: &mut Tx<'_>, key: &WorkerKey) -> Result<Option<Worker>, StoreError> {
    let values = [
        key.pool_id.as_str().into(),
        key.group.as_str().into(),
        key.id.as_str().into(),
    ];
    tx.row(&GET, &values, worker)
}

/// `false` if there is one of this key already, whatever its state; nothing changes then.
pub fn worker_insert(tx: &mut Tx<'_>, worker: &Worker) -> Result<bool, StoreError> {
    let terms = to_json(&worker.terms);
    let provider_data = worker.provider_data.to_string();
    let previous = worker.previous_secret.as_ref();
    let advice = worker.terms.advice.as_ref();
    let n_inserted = tx.execute(
        &INSERT,
        &[
            worker.key.pool_id.as_str().into(),
            worker.key.group.as_str().into(),
            worker.key.id.as_str().into(),
            worker.provider_id.as_str().into(),
            worker
                .launch_config_id
                .as_ref()
                .map(LaunchConfigId::as_str)
                .into(),
            worker.state.as_str().into(),
            worker.capacity.into(),
            worker.created.into(),
            worker.expires.into(),
            worker.last_modified.into(),
            worker.last_checked.into(),
            (&terms).into(),
            (&provider_data).into(),
            worker.secret.as_ref().into(),
            previous.map(|secret| &secret.digest).into(),
            previous.map(|secret| secret.until).into(),
            worker.version.into(),
            worker.terms.is_draining().into(),
            worker.terms.registered_at.into(),
            worker.terms.idle_hold_ms.into(),
            advice.map(|advice| advice.decided_at).into(),
            advice.map(|advice| &advice.reason).into(),
        ],
    )?;
    Ok(n_inserted > 0)
}

/// Writes what can change, if nobody changed it since it was read. Returns the new version.
pub fn worker_update(tx: &mut Tx<'_>, worker: &Worker) -> Result<Version, StoreError> {
    let terms = to_json(&worker.terms);
    let provider_data = worker.provider_data.to_string();
    let previous = worker.previous_secret.as_ref();
    let advice = worker.terms.advice.as_ref();
    tx.execute_guarded(
        &UPDATE,
        &[
            worker.provider_id.as_str().into(),
            worker
                .launch_config_id
                .as_ref()
                .map(LaunchConfigId::as_str)
                .into(),
            worker.state.as_str().into(),
            worker.capacity.into(),
            worker.expires.into(),
            worker.last_modified.into(),
            worker.last_checked.into(),
            (&terms).into(),
            (&provider_data).into(),
            worker.secret.as_ref().into(),
            previous.map(|secret| &secret.digest).into(),
            previous.map(|secret| secret.until).into(),
            worker.terms.is_draining().into(),
            worker.terms.registered_at.into(),
            worker.terms.idle_hold_ms.into(),
            advice.map(|advice| advice.decided_at).into(),
            advice.map(|advice| &advice.reason).into(),
            worker.key.pool_id.as_str().into(),
            worker.key.group.as_str().into(),
            worker.key.id.as_str().into(),
            worker.version.into(),
        ],
    )?;
    Ok(worker.version.next())
}

/// Notes that a worker asked the queue for work, on its row and on that of its launch. Both are written once in its
/// life: `false`, if this was known, or if no such worker runs. No row's version changes.
pub fn worker_note_first_claim(
    tx: &mut Tx<'_>,
    key: &WorkerKey,
    now: Timestamp,
) -> Result<bool, StoreError> {
    let values = [
        now.into(),
        key.pool_id.as_str().into(),
        key.group.as_str().into(),
        key.id.as_str().into(),
    ];
    if tx.execute(&FIRST_CLAIM, &values)? == 0 {
        return Ok(false);
    }
    let worker = worker_get(tx, key)?;
    let token = worker.and_then(|worker| worker.terms.launch_token.as_ref()?.parse().ok());
    if let Some(token) = token {
        launch::note_claimed(tx, &token)?;
    }
    Ok(true)
}

/// Deletes them whatever their state. As many as the limit means: ask again.
pub fn worker_delete_expired(
    tx: &mut Tx<'_>,
    now: Timestamp,
    limit: u32,
) -> Result<u64, StoreError> {
    tx.execute(&DELETE_EXPIRED, &[now.into(), limit.into()])
}

pub(crate) fn worker(row: &Row<'_>) -> Result<Worker, BadRow> {
    worker_from(row, 0)
}

/// Reads a worker whose columns begin at the given one.
pub(crate) fn worker_from(row: &Row<'_>, first: usize) -> Result<Worker, BadRow> {
    let previous_secret = match row.optional_text(first + 14)? {
        Some(digest) => Some(PreviousSecret {
            digest: digest.to_owned(),
            until: row.time(first + 15)?,
        }),
        None => None,
    };
    Ok(Worker::from_stored(StoredWorker {
        key: WorkerKey {
            pool_id: row.text(first)?.parse()?,
            group: row.text(first + 1)?.parse()?,
            id: row.text(first + 2)?.parse()?,
        },
        provider_id: row.text(first + 3)?.parse()?,
        launch_config_id: row.optional_text(first + 4)?.map(str::parse).transpose()?,
        state: row.text(first + 5)?.parse()?,
        capacity: row.number(first + 6)?,
        created: row.time(first + 7)?,
        expires: row.time(first + 8)?,
        last_modified: row.time(first + 9)?,
        last_checked: row.time(first + 10)?,
        terms: row.json(first + 11)?,
        provider_data: row.json(first + 12)?,
        secret: row.optional_text(first + 13)?.map(str::to_owned),
        previous_secret,
        version: row.version(first + 16)?,
    }))
}
