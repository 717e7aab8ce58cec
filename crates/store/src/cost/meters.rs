//! Meters: one for each machine whose cost is not settled, and the runs on it.
//!
//! The transaction that charges a machine moves its meter, and the transaction that settles it
//! deletes its meter. Both name the moment up to which it was charged, so no time is charged twice.

use std::collections::{BTreeMap, HashMap};

use domain::cost::{Charge, CostKind, Currency, Life, Meter, MeteredRun, Uses, next_charge};
use domain::id::{ProviderId, WorkerKey};
use domain::run_outcome::RunOutcome;
use domain::time::{DAY_MS, Timestamp};
use domain::worker::Worker;

use crate::cost::cost_accounts;
use crate::engine::{
    ALL_ROWS, Cells, FromRow as _, Result, Table, Tx, from_row, statements, to_json,
};

static TABLE: Table = Table::unlisted("meters", 3);

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
        "w.state = 'running' AND w.declared = 1 AND EXISTS (\
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
         CAST($5 AS BIGINT), CAST($6 AS BIGINT), $7, account FROM cost_accounts \
         WHERE worker_pool_id = $1 AND launch_config_id = $8 AND provider_id = $9 \
         AND owner = COALESCE((SELECT owner FROM worker_pools WHERE worker_pool_id = $1), '') \
         AND currency = $10 ON CONFLICT (worker_pool_id, worker_group, worker_id) \
         DO UPDATE SET leaving = NULL, ended = NULL";
    // From now on, with the time that is not charged yet.
    REASSIGN "meter_reassign" =
        "UPDATE meters SET price = CAST($1 AS BIGINT), account = (\
         SELECT account FROM cost_accounts WHERE worker_pool_id = $2 AND launch_config_id = $3 \
         AND provider_id = $4 \
         AND owner = COALESCE((SELECT owner FROM worker_pools WHERE worker_pool_id = $2), '') \
         AND currency = $5) WHERE worker_pool_id = $2 AND worker_group = $6 AND worker_id = $7 \
         AND ended IS NULL";
    LEAVING "meter_note_leaving" = concat!(
        "UPDATE meters SET leaving = $1 WHERE ", of_worker!("$2", "$3", "$4"),
        " AND leaving IS NULL");
    ENDED "meter_note_ended" = concat!(
        "UPDATE meters SET ended = CASE WHEN $1 > started THEN $1 ELSE started END, due = 0, \
         kind = 'unknown' WHERE ", of_worker!("$2", "$3", "$4"), " AND ended IS NULL");
    EXPIRED "meter_end_expired" = concat!(
        "UPDATE meters SET ended = CASE WHEN ended IS NOT NULL THEN ended \
         WHEN $1 > started THEN $1 ELSE started END, due = 0, kind = 'unknown', first_claim = (\
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
        of_meter!("c.task_queue_id", "c"), "), CAST(COALESCE((SELECT 1 FROM metered_runs AS r \
         WHERE ", of_meter!("r.worker_pool_id", "r"), " LIMIT 1), 0) AS BIGINT) \
         FROM (SELECT * FROM meters WHERE due <= $1 ORDER BY due LIMIT $2) AS m \
         ORDER BY m.due, m.worker_pool_id, m.worker_group, m.worker_id");
    IS_DUE "meter_is_due" = "SELECT due FROM meters WHERE due <= $1 ORDER BY due LIMIT 1";
    RUNS "metered_run_list" =
        "SELECT r.worker_pool_id, r.worker_group, r.worker_id, r.started, r.resolved, r.reason \
         FROM json_each($1) AS v CROSS JOIN metered_runs AS r \
         WHERE r.worker_pool_id = v.value ->> 0 AND r.worker_group = v.value ->> 1 \
         AND r.worker_id = v.value ->> 2 AND r.resolved > CAST(v.value ->> 3 AS BIGINT) LIMIT $2";
    FIRST_RUNS "metered_run_list_first" = concat!(
        "SELECT started, resolved, reason FROM metered_runs WHERE ", of_worker!("$1", "$2", "$3"),
        " AND resolved > $4 ORDER BY started LIMIT $5");
    LAST_RUNS "metered_run_list_last" = concat!(
        "SELECT started, resolved, reason FROM metered_runs WHERE ", of_worker!("$1", "$2", "$3"),
        " AND resolved > $4 AND started < $5 ORDER BY resolved DESC LIMIT $6");
    // The run that ended last is among those that began last.
    HAS_RUN_UNTIL "metered_run_reaches" = concat!(
        "SELECT resolved FROM metered_runs WHERE ", of_worker!("$1", "$2", "$3"),
        " AND resolved >= $4 ORDER BY started DESC LIMIT 1");
    MOVE "meter_update" =
        "UPDATE meters SET charged = CAST(v.value ->> 4 AS BIGINT), \
         due = CAST(v.value ->> 5 AS BIGINT), kind = v.value ->> 6 FROM json_each($1) AS v \
         WHERE worker_pool_id = v.value ->> 0 AND worker_group = v.value ->> 1 \
         AND worker_id = v.value ->> 2 AND charged = CAST(v.value ->> 3 AS BIGINT)";
    DELETE "meter_delete" = concat!(
        "DELETE FROM meters WHERE ", of_worker!("$1", "$2", "$3"), " AND charged = $4");
    DELETE_RUNS "metered_run_delete" = concat!(
        "DELETE FROM metered_runs WHERE ", of_worker!("$1", "$2", "$3"));
    // The worker need not have ended a run with one of these reasons, so the machine may have ended
    // before. When that becomes known, the time that is taken back has the use of the run.
    DELETE_CHARGED_RUNS "metered_run_delete_charged" = concat!(
        "DELETE FROM metered_runs WHERE ", of_worker!("$1", "$2", "$3"),
        " AND started <= $4 AND resolved <= $4 AND (reason NOT IN ('canceled', \
         'claim-expired', 'deadline-exceeded', 'worker-shutdown') OR resolved <= $5)");
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
    /// Whether it has any runs, also those that matter for no charge.
    has_runs: bool,
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
    has_runs: bool,
}

from_row! { MeteredRun { started, resolved, reason } }

from_row! { DueRow {
    key, account, price, started, charged, leaving, ended, first_claim, advised,
    last_task_ended, running_since, has_runs
} }

/// Starts the meter of a new worker.
pub(crate) fn insert(tx: &mut Tx<'_>, worker: &Worker) -> Result<()> {
    let account = open_account(tx, worker)?;
    let made = worker.terms.made_at.map(Timestamp::from_millis);
    let (price, started) = (&worker.price, made.unwrap_or(worker.created));
    let kind = CostKind::Booting.as_str();
    let due = next_charge(&worker.key, worker.created);
    tx.run(&INSERT, (&worker.key, price, started, due, kind, account))?;
    Ok(())
}

/// Charges a worker to its launch config at its price from now on; both have changed.
pub fn reassign(tx: &mut Tx<'_>, worker: &Worker) -> Result<()> {
    let account = open_account(tx, worker)?;
    let WorkerKey { pool_id, group, id } = &worker.key;
    tx.run(&REASSIGN, (&worker.price, pool_id, account, group, id))
}

/// The account of a worker: its launch config, its provider, and the currency of its price.
fn open_account<'a>(
    tx: &mut Tx<'_>,
    worker: &'a Worker,
) -> Result<(&'a str, &'a ProviderId, &'static str)> {
    let launch_config = worker.launch_config_id.as_ref();
    let launch_config = launch_config.map_or("", |id| id.as_str());
    let currency = worker.price.map_or("", |_| Currency::Usd.as_str());
    let provider = &worker.provider_id;
    cost_accounts::open(tx, &worker.key.pool_id, launch_config, provider, currency)?;
    Ok((launch_config, provider, currency))
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
            // Two servers whose clocks differ may have written them.
            started.min(resolved).as_millis(),
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

/// Machines whose charge is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueMeters {
    pub meters: Vec<DueMeter>,
    /// Perhaps more machines are due.
    pub has_more: bool,
}

/// The machines whose charge is due, at most `limit`, with all facts about them.
///
/// If they have more runs than `max_runs`, they are fewer, but at least one. A machine that has
/// more by itself comes with some of them: enough to charge a part of its time.
pub fn list_due(tx: &mut Tx<'_>, now: Timestamp, limit: u32, max_runs: u32) -> Result<DueMeters> {
    let mut due: Vec<DueRow> = tx.rows(&DUE, (now, limit))?;
    let mut has_more = due.len() >= limit as usize;
    loop {
        let (mut runs, n_runs) = list_runs(tx, &due, max_runs.saturating_add(1))?;
        let fits = n_runs <= max_runs as usize;
        if !fits && due.len() > 1 {
            due.truncate(due.len() / 2);
            has_more = true;
            continue;
        }
        let mut meters = Vec::new();
        for row in due {
            let life = match fits {
                true => row.life(runs.remove(&row.key).unwrap_or_default()),
                false => life_in_part(tx, &row, max_runs)?,
            };
            meters.push(row.with(life));
        }
        return Ok(DueMeters { meters, has_more });
    }
}

/// The runs of these machines that matter for their next charge, at most `limit`, and how many.
fn list_runs(
    tx: &mut Tx<'_>,
    due: &[DueRow],
    limit: u32,
) -> Result<(HashMap<WorkerKey, Vec<MeteredRun>>, usize)> {
    let machines = due.iter().map(|row| {
        let WorkerKey { pool_id, group, id } = &row.key;
        let since = row.matters_since().as_millis();
        (pool_id.as_str(), group.as_str(), id.as_str(), since)
    });
    let machines: Vec<_> = machines.collect();
    let found = tx.rows_with(&RUNS, (to_json(&machines), limit), |row| {
        let mut cells = Cells::of(row);
        Ok((WorkerKey::read(&mut cells)?, MeteredRun::read(&mut cells)?))
    })?;
    let n_runs = found.len();
    let mut runs: HashMap<WorkerKey, Vec<MeteredRun>> = HashMap::new();
    for (key, run) in found {
        runs.entry(key).or_default().push(run);
    }
    Ok((runs, n_runs))
}

/// The facts about a machine with more than `max_runs` runs. The runs are those of the first part
/// of the time that is to be charged, or of the last part of the time that is to be taken back.
fn life_in_part(tx: &mut Tx<'_>, row: &DueRow, max_runs: u32) -> Result<Life> {
    let since = row.matters_since();
    let is_charged_too_far = since < row.charged;
    let mut limit = max_runs.saturating_add(1);
    let (runs, edge) = loop {
        let mut runs: Vec<MeteredRun> = match is_charged_too_far {
            true => tx.rows(&LAST_RUNS, (&row.key, since, row.charged, limit))?,
            false => tx.rows(&FIRST_RUNS, (&row.key, since, limit))?,
        };
        if runs.len() < limit as usize {
            break (runs, None);
        }
        let edge = runs.pop().map(|run| match is_charged_too_far {
            true => run.resolved,
            false => run.started,
        });
        let gets_on = edge.is_some_and(|edge| match is_charged_too_far {
            true => edge < row.charged,
            false => edge > row.charged,
        });
        if gets_on {
            break (runs, edge);
        }
        // All of them cover one moment.
        limit = limit.saturating_mul(2).min(ALL_ROWS);
    };
    let mut life = row.life(runs);
    // The run that ended last may be before or after those that were read.
    if let Some(last) = row.last_task_ended {
        let is_known = last <= row.charged || tx.exists(&HAS_RUN_UNTIL, (&row.key, last))?;
        life.lacks_runs = !is_known;
    }
    match is_charged_too_far {
        true => life.runs_since = edge,
        false => life.runs_until = edge,
    }
    Ok(life)
}

impl DueRow {
    /// Runs that ended before decide about no time that is charged now, or taken back.
    fn matters_since(&self) -> Timestamp {
        self.ended
            .map_or(self.charged, |ended| ended.min(self.charged))
    }

    fn life(&self, runs: Vec<MeteredRun>) -> Life {
        let noted = runs.iter().map(|run| run.resolved).max();
        let noted = noted.map_or(self.charged, |noted| noted.max(self.charged));
        Life {
            first_claim: self.first_claim,
            leaving: self.leaving.into_iter().chain(self.advised).min(),
            runs,
            runs_since: None,
            runs_until: None,
            running_since: self.running_since,
            lacks_runs: self.last_task_ended.is_some_and(|at| at > noted),
        }
    }

    fn with(self, life: Life) -> DueMeter {
        DueMeter {
            key: self.key,
            account: self.account,
            meter: Meter {
                price: self.price,
                started: self.started,
                charged: self.charged,
                ended: self.ended,
            },
            life,
            has_runs: self.has_runs,
        }
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
    let mut charged: BTreeMap<i64, i64> = BTreeMap::new();
    for ((_, account), uses) in &hours {
        *charged.entry(*account).or_default() += uses.total().micros;
    }
    cost_accounts::charge(tx, &charged)?;
    let mut moved = Vec::new();
    for (due, charge, again) in charges {
        let (key, before) = (&due.key, due.meter.charged);
        if charge.is_settled {
            tx.execute_guarded(&DELETE, (key, before))?;
            if due.has_runs {
                tx.run(&DELETE_RUNS, key)?;
            }
            continue;
        }
        moved.push((
            key.pool_id.as_str(),
            key.group.as_str(),
            key.id.as_str(),
            before.as_millis(),
            charge.charged.as_millis(),
            again.as_millis(),
            charge.kind.as_str(),
        ));
        if due.has_runs {
            let unseen = charge.charged.plus_millis(-MAX_UNSEEN_MS);
            tx.run(&DELETE_CHARGED_RUNS, (key, charge.charged, unseen))?;
        }
    }
    // One statement, since a machine that only runs costs nothing else.
    if !moved.is_empty() && tx.execute(&MOVE, to_json(&moved))? != moved.len() as u64 {
        return Err(tx.lost_race());
    }
    Ok(())
}
