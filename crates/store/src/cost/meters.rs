//! Meters: one for each machine whose cost is not settled, and the runs on it.
//!
//! The transaction that charges a machine moves its meter, and the transaction that settles it
//! deletes its meter. Both name the moment up to which it was charged, so no time is charged twice.

use std::collections::{BTreeMap, HashMap};

use domain::cost::{Charge, CostKind, Currency, Life, Meter, MeteredRun, Uses};
use domain::id::WorkerKey;
use domain::run_outcome::RunOutcome;
use domain::time::{DAY_MS, Timestamp};
use domain::worker::Worker;

use crate::cost::cost_accounts;
use crate::engine::{
    ALL_ROWS, Cells, FromRow as _, Result, Table, Tx, from_row, statements, to_json,
};

static TABLE: Table = Table::unlisted("meters", 3);

/// Reading stops at this many runs, and the charge continues with fewer machines.
const MAX_RUNS: u32 = 2_000;

macro_rules! of_worker {
    ($pool:literal, $group:literal, $id:literal) => {
        concat!(
            "worker_pool_id = ",
            $pool,
            " AND worker_group = ",
            $group,
            " AND worker_id = ",
            $id
        )
    };
}

/// Of the same worker as a meter.
macro_rules! of_meter {
    ($pool:literal, $table:literal) => {
        concat!(
            $pool,
            " = m.worker_pool_id AND ",
            $table,
            ".worker_group = m.worker_group AND ",
            $table,
            ".worker_id = m.worker_id"
        )
    };
}

/// Whether people declared this worker and may still want it: it runs, no launch made it, and its
/// pool has its provider. Such a worker lives until somebody removes it.
macro_rules! is_kept {
    () => {
        "w.state = 'running' AND w.launch_config_id IS NULL AND EXISTS (\
         SELECT 1 FROM worker_pools AS p WHERE p.worker_pool_id = w.worker_pool_id \
         AND (p.provider_id = w.provider_id OR p.further_provider_ids <> \
         REPLACE(p.further_provider_ids, '\"' || w.provider_id || '\"', '')))"
    };
}

/// The names of the next expired workers, whose rows are about to be deleted.
macro_rules! expired_workers {
    () => {
        concat!(
            "SELECT w.worker_pool_id, w.worker_group, w.worker_id FROM workers AS w \
             WHERE w.expires < $1 AND NOT (",
            $crate::cost::meters::is_kept!(),
            ") ORDER BY w.expires LIMIT $2"
        )
    };
}

pub(crate) use {expired_workers, is_kept};

statements! { TABLE;
    INSERT "meter_insert" =
        "INSERT INTO meters (worker_pool_id, worker_group, worker_id, price, started, charged, \
         due, kind, account) SELECT $1, $2, $3, CAST($4 AS BIGINT), CAST($5 AS BIGINT), \
         CAST($5 AS BIGINT), CAST($5 AS BIGINT), $6, account FROM cost_accounts \
         WHERE worker_pool_id = $1 AND launch_config_id = $7 AND provider_id = $8 \
         AND owner = COALESCE((SELECT owner FROM worker_pools WHERE worker_pool_id = $1), '') \
         AND currency = $9 ON CONFLICT (worker_pool_id, worker_group, worker_id) \
         DO UPDATE SET leaving = NULL, ended = NULL";
    LEAVING "meter_note_leaving" = concat!(
        "UPDATE meters SET leaving = $1 WHERE ", of_worker!("$2", "$3", "$4"),
        " AND leaving IS NULL");
    ENDED "meter_note_ended" = concat!(
        "UPDATE meters SET ended = CASE WHEN $1 > started THEN $1 ELSE started END, due = 0 \
         WHERE ", of_worker!("$2", "$3", "$4"), " AND ended IS NULL");
    EXPIRED "meter_end_expired" = concat!(
        "UPDATE meters SET ended = CASE WHEN ended IS NOT NULL THEN ended \
         WHEN $1 > started THEN $1 ELSE started END, due = 0, first_claim = (\
         SELECT w.first_claim FROM workers AS w WHERE w.worker_pool_id = meters.worker_pool_id \
         AND w.worker_group = meters.worker_group AND w.worker_id = meters.worker_id) \
         WHERE (worker_pool_id, worker_group, worker_id) IN (", expired_workers!(), ")");
    ADD_RUNS "metered_run_insert" =
        "INSERT INTO metered_runs (worker_pool_id, worker_group, worker_id, task_id, run_id, \
         started, resolved, reason) SELECT m.worker_pool_id, m.worker_group, m.worker_id, \
         v.value ->> 3, CAST(v.value ->> 4 AS BIGINT), CAST(v.value ->> 5 AS BIGINT), \
         CAST(v.value ->> 6 AS BIGINT), v.value ->> 7 FROM json_each($1) AS v \
         CROSS JOIN meters AS m WHERE m.worker_pool_id = v.value ->> 0 \
         AND m.worker_group = v.value ->> 1 AND m.worker_id = v.value ->> 2 \
         ON CONFLICT DO NOTHING";
    // The limit comes first, so that no worker is looked up in vain. Many are due at one moment,
    // and any of them will do: to order them reads all. With a plain MIN(claimed), an index in the
    // order of the claims would be read from its beginning, through those of the entire queue.
    DUE "meter_list_due" = concat!(
        "SELECT m.worker_pool_id, m.worker_group, m.worker_id, m.account, m.price, m.started, \
         m.charged, m.leaving, m.ended, COALESCE((SELECT w.first_claim FROM workers AS w WHERE ",
        of_meter!("w.worker_pool_id", "w"), "), m.first_claim), \
         (SELECT CASE WHEN w.draining = 1 THEN w.advised END FROM workers AS w WHERE ",
        of_meter!("w.worker_pool_id", "w"), "), \
         (SELECT q.last_task_ended FROM queue_workers AS q WHERE ",
        of_meter!("q.task_queue_id", "q"), "), \
         (SELECT MIN(c.claimed + 0) FROM claimed_tasks AS c WHERE ",
        of_meter!("c.task_queue_id", "c"), ") FROM (SELECT * FROM meters WHERE due <= $1 \
         ORDER BY due LIMIT $2) AS m \
         ORDER BY m.due, m.worker_pool_id, m.worker_group, m.worker_id");
    IS_DUE "meter_is_due" = "SELECT due FROM meters WHERE due <= $1 ORDER BY due LIMIT 1";
    RUNS "metered_run_list" =
        "SELECT r.worker_pool_id, r.worker_group, r.worker_id, r.started, r.resolved, r.reason \
         FROM json_each($1) AS v CROSS JOIN metered_runs AS r \
         WHERE r.worker_pool_id = v.value ->> 0 AND r.worker_group = v.value ->> 1 \
         AND r.worker_id = v.value ->> 2 LIMIT $2";
    MOVE "meter_update" = concat!(
        "UPDATE meters SET charged = $1, due = $2, kind = $3 WHERE ",
        of_worker!("$4", "$5", "$6"), " AND charged = $7");
    DELETE "meter_delete" = concat!(
        "DELETE FROM meters WHERE ", of_worker!("$1", "$2", "$3"), " AND charged = $4");
    DELETE_RUNS "metered_run_delete" = concat!(
        "DELETE FROM metered_runs WHERE ", of_worker!("$1", "$2", "$3"));
    // The worker need not have ended a run with one of these reasons, so the machine may have ended
    // before. When that becomes known, the time that is taken back has the use of the run.
    DELETE_CHARGED_RUNS "metered_run_delete_charged" = concat!(
        "DELETE FROM metered_runs WHERE ", of_worker!("$1", "$2", "$3"),
        " AND resolved <= $4 AND (reason NOT IN ('canceled', 'claim-expired', \
         'deadline-exceeded', 'worker-shutdown') OR resolved <= $5)");
}

/// A machine whose end becomes known later than this has ended that long ago for its account.
const MAX_UNSEEN_MS: i64 = DAY_MS;

/// A machine whose charge is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueMeter {
    pub key: WorkerKey,
    /// The number of its account.
    pub account: i64,
    pub meter: Meter,
    pub life: Life,
}

/// The row of a meter, and what other tables know about its machine.
struct DueRow {
    key: WorkerKey,
    account: i64,
    price: Option<i64>,
    started: Timestamp,
    charged: Timestamp,
    leaving: Option<Timestamp>,
    ended: Option<Timestamp>,
    first_claim: Option<Timestamp>,
    advised: Option<Timestamp>,
    last_task_ended: Option<Timestamp>,
    running_since: Option<Timestamp>,
}

from_row! { DueRow {
    key, account, price, started, charged, leaving, ended, first_claim, advised,
    last_task_ended, running_since
} }

/// Starts the meter of a new worker.
pub(crate) fn insert(tx: &mut Tx<'_>, worker: &Worker) -> Result<()> {
    let launch_config = worker.launch_config_id.as_ref();
    let launch_config = launch_config.map_or("", |id| id.as_str());
    let currency = worker.price.map_or("", |_| Currency::Usd.as_str());
    let provider = &worker.provider_id;
    cost_accounts::open(tx, &worker.key.pool_id, launch_config, provider, currency)?;
    let made = worker.terms.made_at.map(Timestamp::from_millis);
    let (price, started) = (&worker.price, made.unwrap_or(worker.created));
    let account = (launch_config, provider, currency);
    let kind = CostKind::Booting.as_str();
    tx.run(&INSERT, (&worker.key, price, started, kind, account))?;
    Ok(())
}

/// Records when a machine began to stop.
pub fn note_leaving(tx: &mut Tx<'_>, key: &WorkerKey, at: Timestamp) -> Result<()> {
    tx.run(&LEAVING, (at, key))
}

/// Records when a machine ended; it is charged soon.
pub fn note_ended(tx: &mut Tx<'_>, key: &WorkerKey, at: Timestamp) -> Result<()> {
    tx.run(&ENDED, (at, key))
}

/// Ends the meters of the next expired workers, whose rows are about to be deleted.
pub(crate) fn end_expired(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<()> {
    tx.run(&EXPIRED, (now, limit))
}

/// Keeps runs until their time is charged. Runs on machines without a meter are skipped.
pub(crate) fn add_runs(tx: &mut Tx<'_>, outcomes: &[RunOutcome]) -> Result<()> {
    let rows = outcomes.iter().filter_map(|outcome| {
        let (started, resolved) = (outcome.started?, outcome.resolved);
        let WorkerKey { pool_id, group, id } = &outcome.worker;
        let worker = (pool_id.as_str(), group.as_str(), id.as_str());
        Some((
            worker.0,
            worker.1,
            worker.2,
            outcome.task_id.as_str(),
            outcome.run_id,
            started.as_millis(),
            resolved.as_millis(),
            outcome.reason.as_str(),
        ))
    });
    let rows: Vec<_> = rows.collect();
    if rows.is_empty() {
        return Ok(());
    }
    tx.run(&ADD_RUNS, to_json(&rows))
}

pub fn is_due(tx: &mut Tx<'_>, now: Timestamp) -> Result<bool> {
    tx.exists(&IS_DUE, now)
}

/// The machines whose charge is due, at most `limit`, with all facts about them.
pub fn list_due(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<Vec<DueMeter>> {
    let mut due: Vec<DueRow> = tx.rows(&DUE, (now, limit))?;
    let mut runs = list_runs(tx, &due, MAX_RUNS)?;
    let n_runs: usize = runs.values().map(Vec::len).sum();
    if n_runs >= MAX_RUNS as usize && due.len() > 1 {
        due.truncate(1);
        runs = list_runs(tx, &due, ALL_ROWS)?;
    }
    let due = due.into_iter().map(|row| {
        let runs = runs.remove(&row.key).unwrap_or_default();
        due_meter(row, runs)
    });
    Ok(due.collect())
}

fn list_runs(
    tx: &mut Tx<'_>,
    due: &[DueRow],
    limit: u32,
) -> Result<HashMap<WorkerKey, Vec<MeteredRun>>> {
    let keys: Vec<[&str; 3]> = due
        .iter()
        .map(|DueRow { key, .. }| [key.pool_id.as_str(), key.group.as_str(), key.id.as_str()])
        .collect();
    let found = tx.rows_with(&RUNS, (to_json(&keys), limit), |row| {
        let mut cells = Cells::of(row);
        let key = WorkerKey::read(&mut cells)?;
        let (started, resolved, reason) = cells.next()?;
        Ok((
            key,
            MeteredRun {
                started,
                resolved,
                reason,
            },
        ))
    });
    let mut runs: HashMap<WorkerKey, Vec<MeteredRun>> = HashMap::new();
    for (key, run) in found? {
        runs.entry(key).or_default().push(run);
    }
    Ok(runs)
}

fn due_meter(row: DueRow, runs: Vec<MeteredRun>) -> DueMeter {
    let noted = runs.iter().map(|run| run.resolved).max();
    let noted = noted.map_or(row.charged, |noted| noted.max(row.charged));
    DueMeter {
        key: row.key,
        account: row.account,
        meter: Meter {
            price: row.price,
            started: row.started,
            charged: row.charged,
            ended: row.ended,
        },
        life: Life {
            first_claim: row.first_claim,
            leaving: row.leaving.into_iter().chain(row.advised).min(),
            runs,
            running_since: row.running_since,
            lacks_runs: row.last_task_ended.is_some_and(|at| at > noted),
        },
    }
}

/// Writes the charges of these machines into their accounts and moves their meters. A meter that
/// goes on is due again at the given moment.
pub fn charge(tx: &mut Tx<'_>, charges: &[(DueMeter, Charge, Timestamp)]) -> Result<()> {
    let mut hours: BTreeMap<(Timestamp, i64), Uses> = BTreeMap::new();
    for (due, charge, _) in charges {
        for (hour, uses) in &charge.hours {
            *hours.entry((*hour, due.account)).or_default() += *uses;
        }
    }
    // Sorted, so that two transactions that write the same rows do not wait for each other.
    for ((hour, account), uses) in &hours {
        cost_accounts::add(tx, *hour, *account, uses)?;
    }
    for (due, charge, again) in charges {
        let (key, before) = (&due.key, due.meter.charged);
        if charge.is_settled {
            tx.execute_guarded(&DELETE, (key, before))?;
            tx.run(&DELETE_RUNS, key)?;
            continue;
        }
        let moved = (charge.charged, *again, charge.kind.as_str());
        tx.execute_guarded(&MOVE, (moved, key, before))?;
        if !due.life.runs.is_empty() {
            let unseen = charge.charged.plus_millis(-MAX_UNSEEN_MS);
            tx.run(&DELETE_CHARGED_RUNS, (key, charge.charged, unseen))?;
        }
    }
    Ok(())
}
