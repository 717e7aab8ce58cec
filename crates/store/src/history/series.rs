//! Writes series: the facts that they count, and their points.
//!
//! Levels are read directly. Counts are differences: each row of a source says how much of it is in
//! the series. So a count that was missed for a while is in the next point, and none twice.

use std::collections::BTreeMap;

use domain::series::{DAYS_KEPT_MS, SeriesStep, Values};
use domain::time::Timestamp;
use domain::worker::WorkerState;

use crate::cost::cost_accounts::cost_up_to;
use crate::engine::{ALL_ROWS, Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("points", 3);

/// Rows of one statement.
const CHUNK: usize = 1_000;

/// Adds the points of minutes to a longer point.
macro_rules! add_to_point {
    () => {
        "ON CONFLICT (span, since, series) DO UPDATE SET \
         waiting = points.waiting + excluded.waiting, \
         requested = points.requested + excluded.requested, \
         booting = points.booting + excluded.booting, idle = points.idle + excluded.idle, \
         busy = points.busy + excluded.busy, leaving = points.leaving + excluded.leaving, \
         most_waiting = CASE WHEN excluded.most_waiting > points.most_waiting \
         THEN excluded.most_waiting ELSE points.most_waiting END, \
         most_requested = CASE WHEN excluded.most_requested > points.most_requested \
         THEN excluded.most_requested ELSE points.most_requested END, \
         most_booting = CASE WHEN excluded.most_booting > points.most_booting \
         THEN excluded.most_booting ELSE points.most_booting END, \
         most_idle = CASE WHEN excluded.most_idle > points.most_idle \
         THEN excluded.most_idle ELSE points.most_idle END, \
         most_busy = CASE WHEN excluded.most_busy > points.most_busy \
         THEN excluded.most_busy ELSE points.most_busy END, \
         most_leaving = CASE WHEN excluded.most_leaving > points.most_leaving \
         THEN excluded.most_leaving ELSE points.most_leaving END, \
         most_capacity = CASE WHEN excluded.most_capacity > points.most_capacity \
         THEN excluded.most_capacity ELSE points.most_capacity END, \
         launched = points.launched + excluded.launched, \
         refused = points.refused + excluded.refused, failed = points.failed + excluded.failed, \
         cost = points.cost + excluded.cost, waited = points.waited + excluded.waited"
    };
}

statements! { TABLE;
    LAST "series_last_time" =
        "SELECT since FROM series_times WHERE span = 60000 ORDER BY since DESC LIMIT 1";
    WORKERS "series_count_workers" =
        "SELECT worker_pool_id, COALESCE(launch_config_id, ''), state, draining, \
         CAST(SUM(capacity) AS BIGINT) FROM workers WHERE state <> 'stopped' \
         GROUP BY worker_pool_id, state, launch_config_id, draining ORDER BY 1, 2, 3, 4 LIMIT $1";
    TASKS "series_count_tasks" =
        "SELECT w.worker_pool_id, COALESCE(w.launch_config_id, ''), w.draining, COUNT(*) \
         FROM claimed_tasks AS c JOIN workers AS w ON w.worker_pool_id = c.task_queue_id \
         AND w.worker_group = c.worker_group AND w.worker_id = c.worker_id \
         WHERE c.taken_until > $1 AND w.state = 'running' \
         GROUP BY w.worker_pool_id, w.launch_config_id, w.draining ORDER BY 1, 2, 3 LIMIT $2";
    REQUESTED "series_count_requested" =
        "SELECT worker_pool_id, launch_config_id, \
         CAST(SUM((machines - made) * capacity_each) AS BIGINT) \
         FROM launches WHERE state IN ('open', 'unknown') \
         GROUP BY worker_pool_id, launch_config_id ORDER BY 1, 2 LIMIT $1";
    LAUNCHES "series_count_launches" =
        "SELECT token, worker_pool_id, launch_config_id, made, counted_made, refused, \
         counted_refused, never_registered, counted_never_registered FROM (SELECT launches.*, \
         CASE WHEN state = 'refused' THEN machines WHEN state = 'accepted' THEN failed ELSE 0 END \
         AS refused FROM launches WHERE last_event >= $1) AS recent \
         WHERE made <> counted_made OR refused <> counted_refused \
         OR never_registered <> counted_never_registered ORDER BY last_event LIMIT $2";
    COUNT_LAUNCHES "series_note_launches" =
        "UPDATE launches SET counted_made = CAST(v.value ->> 1 AS BIGINT), \
         counted_refused = CAST(v.value ->> 2 AS BIGINT), \
         counted_never_registered = CAST(v.value ->> 3 AS BIGINT) \
         FROM json_each($1) AS v WHERE token = v.value ->> 0";
    // A machine that ended before its last charge is refunded later.
    COSTS "series_count_costs" = concat!(
        "SELECT a.account, a.worker_pool_id, a.launch_config_id, \
         a.charged + COALESCE(m.micros, 0), a.counted FROM cost_accounts AS a \
         LEFT JOIN (SELECT account, CAST(SUM(", cost_up_to!("until"), " - (",
        cost_up_to!("since"), ")) AS BIGINT) AS micros FROM (\
         SELECT account, price, started, charged AS since, \
         CASE WHEN ended < $1 THEN ended ELSE $1 END AS until \
         FROM meters WHERE price IS NOT NULL) AS open WHERE until > since GROUP BY account) AS m \
         ON m.account = a.account WHERE a.currency <> '' \
         AND a.charged + COALESCE(m.micros, 0) <> a.counted ORDER BY a.account LIMIT $2");
    COUNT_COSTS "series_note_costs" =
        "UPDATE cost_accounts SET counted = CAST(v.value ->> 1 AS BIGINT) \
         FROM json_each($1) AS v WHERE account = CAST(v.value ->> 0 AS BIGINT)";
    WAITS "series_count_waits" =
        "SELECT account, worker_pool_id, charged, counted FROM wait_accounts \
         WHERE charged <> counted ORDER BY account LIMIT $1";
    COUNT_WAITS "series_note_waits" =
        "UPDATE wait_accounts SET counted = CAST(v.value ->> 1 AS BIGINT) \
         FROM json_each($1) AS v WHERE account = CAST(v.value ->> 0 AS BIGINT)";
    MAXIMA "series_list_maxima" =
        "SELECT worker_pool_id, maximum FROM series \
         WHERE launch_config_id = '' AND maximum <> 0 ORDER BY worker_pool_id LIMIT $1";
    OPEN "series_open" =
        "INSERT INTO series (worker_pool_id, launch_config_id) \
         SELECT v.value ->> 0, v.value ->> 1 FROM json_each($1) AS v \
         WHERE NOT EXISTS (SELECT 1 FROM series AS s WHERE s.worker_pool_id = v.value ->> 0 \
         AND s.launch_config_id = v.value ->> 1) ON CONFLICT DO NOTHING";
    NOTE_MINUTE "series_note_minute" =
        "INSERT INTO series_times (span, since, minutes) VALUES (60000, $1, 1) \
         ON CONFLICT (span, since) DO NOTHING";
    NOTE_TIME "series_note_time" =
        "INSERT INTO series_times (span, since, minutes) VALUES ($1, $2, 1) \
         ON CONFLICT (span, since) DO UPDATE SET minutes = series_times.minutes + 1";
    ADD "series_add_points" =
        "INSERT INTO points (span, since, series, waiting, requested, booting, idle, busy, \
         leaving, launched, refused, failed, cost, waited) \
         SELECT 60000, CAST($1 AS BIGINT), s.series, CAST(v.value ->> 2 AS BIGINT), \
         CAST(v.value ->> 3 AS BIGINT), CAST(v.value ->> 4 AS BIGINT), \
         CAST(v.value ->> 5 AS BIGINT), CAST(v.value ->> 6 AS BIGINT), \
         CAST(v.value ->> 7 AS BIGINT), CAST(v.value ->> 8 AS BIGINT), \
         CAST(v.value ->> 9 AS BIGINT), CAST(v.value ->> 10 AS BIGINT), \
         CAST(v.value ->> 11 AS BIGINT), CAST(v.value ->> 12 AS BIGINT) \
         FROM json_each($2) AS v CROSS JOIN series AS s WHERE s.worker_pool_id = v.value ->> 0 \
         AND s.launch_config_id = v.value ->> 1 ON CONFLICT DO NOTHING";
    ROLL_UP "series_roll_up" = concat!(
        "INSERT INTO points (span, since, series, waiting, requested, booting, idle, busy, \
         leaving, most_waiting, most_requested, most_booting, most_idle, most_busy, most_leaving, \
         most_capacity, launched, refused, failed, cost, waited) \
         SELECT CAST($1 AS BIGINT), CAST($2 AS BIGINT), p.series, p.waiting, p.requested, \
         p.booting, p.idle, p.busy, p.leaving, p.waiting, p.requested, p.booting, p.idle, p.busy, \
         p.leaving, p.requested + p.booting + p.idle + p.busy + p.leaving, p.launched, p.refused, \
         p.failed, p.cost, p.waited FROM points AS p WHERE p.span = 60000 AND p.since = $3 ",
        add_to_point!());
    ADD_MAXIMA "series_add_maxima" =
        "INSERT INTO series_maxima (series, since, maximum) \
         SELECT s.series, CAST($1 AS BIGINT), CAST(v.value ->> 1 AS BIGINT) \
         FROM json_each($2) AS v CROSS JOIN series AS s WHERE s.worker_pool_id = v.value ->> 0 \
         AND s.launch_config_id = '' ON CONFLICT (series, since) \
         DO UPDATE SET maximum = excluded.maximum";
    SET_MAXIMA "series_set_maxima" =
        "UPDATE series SET maximum = CAST(v.value ->> 1 AS BIGINT) FROM json_each($1) AS v \
         WHERE worker_pool_id = v.value ->> 0 AND launch_config_id = ''";
    FORGET_POINTS "series_forget_points" =
        "DELETE FROM points WHERE (span, since, series) IN (SELECT span, since, series \
         FROM points WHERE span = $1 AND since < $2 ORDER BY since LIMIT $3)";
    FORGET_TIMES "series_forget_times" =
        "DELETE FROM series_times WHERE (span, since) IN (SELECT span, since \
         FROM series_times WHERE span = $1 AND since < $2 ORDER BY since LIMIT $3)";
    // The maximum before holds until the next one, so the last one before is kept. Of each period,
    // the last one is kept.
    THIN_MAXIMA "series_thin_maxima" =
        "DELETE FROM series_maxima WHERE (series, since) IN (\
         SELECT m.series, m.since FROM series_maxima AS m WHERE m.since < $1 \
         AND EXISTS (SELECT 1 FROM series_maxima AS n WHERE n.series = m.series \
         AND n.since > m.since AND n.since < m.since - m.since % $2 + $2) \
         ORDER BY m.series, m.since LIMIT $3)";
    UNUSED "series_list_unused" =
        "SELECT s.series FROM series AS s WHERE s.maximum = 0 AND s.worker_pool_id <> '' \
         AND NOT EXISTS (SELECT 1 FROM points AS p \
         WHERE p.span = 86400000 AND p.series = s.series) ORDER BY s.series LIMIT $1";
    DELETE_UNUSED "series_delete_unused" =
        "DELETE FROM series WHERE series IN (SELECT s.series FROM json_each($1) AS v \
         CROSS JOIN series AS s WHERE s.series = CAST(v.value ->> 0 AS BIGINT) AND s.maximum = 0 \
         AND NOT EXISTS (SELECT 1 FROM points AS p \
         WHERE p.span = 86400000 AND p.series = s.series))";
    DELETE_MAXIMA "series_delete_maxima" =
        "DELETE FROM series_maxima WHERE series IN (SELECT CAST(v.value ->> 0 AS BIGINT) \
         FROM json_each($1) AS v) \
         AND NOT EXISTS (SELECT 1 FROM series AS s WHERE s.series = series_maxima.series)";
}

/// The pool and the launch config; an empty text stands for all.
pub type SeriesName = (String, String);

/// Units of running workers, of workers that boot, and so on.
pub struct WorkerGroup {
    pub name: SeriesName,
    pub state: WorkerState,
    pub is_draining: bool,
    pub capacity: i64,
}

/// A launch with machines that are not in the series yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncountedLaunch {
    pub token: String,
    pub name: SeriesName,
    pub made: i64,
    pub counted_made: i64,
    pub refused: i64,
    pub counted_refused: i64,
    pub never_registered: i64,
    pub counted_never_registered: i64,
}

/// An account whose sum is not in the series yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncountedCost {
    pub account: i64,
    pub name: SeriesName,
    pub total: i64,
    pub counted: i64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UncountedWait {
    pub account: i64,
    pub pool: String,
    pub total: i64,
    pub counted: i64,
}

from_row! { WorkerGroup { name, state, is_draining, capacity } }
from_row! { UncountedLaunch {
    token, name, made, counted_made, refused, counted_refused, never_registered,
    counted_never_registered
} }
from_row! { UncountedCost { account, name, total, counted } }
from_row! { UncountedWait { account, pool, total, counted } }

/// The last minute that was recorded.
pub fn last(tx: &mut Tx<'_>) -> Result<Option<Timestamp>> {
    tx.row(&LAST, ())
}

/// The workers that are not stopped.
pub fn workers(tx: &mut Tx<'_>) -> Result<Vec<WorkerGroup>> {
    tx.rows(&WORKERS, ALL_ROWS)
}

/// The number of claimed tasks of running workers, by series and by whether the worker was asked
/// to stop.
pub fn tasks(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<(SeriesName, bool, i64)>> {
    tx.plan_for_values()?;
    tx.rows(&TASKS, (now, ALL_ROWS))
}

/// The units that launches without an answer may still make.
pub fn requested(tx: &mut Tx<'_>) -> Result<Vec<(SeriesName, i64)>> {
    tx.rows(&REQUESTED, ALL_ROWS)
}

/// Launches with an event since this moment whose machines are not counted.
pub fn uncounted_launches(tx: &mut Tx<'_>, since: Timestamp) -> Result<Vec<UncountedLaunch>> {
    tx.rows(&LAUNCHES, (since, ALL_ROWS))
}

/// Accounts with money that is not counted, including the cost of machines up to now.
pub fn uncounted_costs(tx: &mut Tx<'_>, now: Timestamp) -> Result<Vec<UncountedCost>> {
    tx.plan_for_values()?;
    tx.rows(&COSTS, (now, ALL_ROWS))
}

/// Accounts with waiting time that is not counted.
pub fn uncounted_waits(tx: &mut Tx<'_>) -> Result<Vec<UncountedWait>> {
    tx.rows(&WAITS, ALL_ROWS)
}

/// The last maximum of each pool, and of all pools (with an empty name), without zeros.
pub fn maxima(tx: &mut Tx<'_>) -> Result<BTreeMap<String, i64>> {
    let maxima: Vec<(String, i64)> = tx.rows(&MAXIMA, ALL_ROWS)?;
    Ok(maxima.into_iter().collect())
}

/// The rows whose counts are in the sample.
#[derive(Clone, Debug, Default)]
pub struct Counted {
    pub launches: Vec<UncountedLaunch>,
    pub costs: Vec<UncountedCost>,
    pub waits: Vec<UncountedWait>,
}

/// Everything about a minute.
#[derive(Clone, Debug, Default)]
pub struct Sample {
    /// Series without values are left out.
    pub values: BTreeMap<SeriesName, Values>,
    /// The maxima that changed; an empty name is all pools.
    pub maxima: Vec<(String, i64)>,
    pub counted: Counted,
}

/// Writes the points of a minute, and adds them to those of its hour and day. `false`: the minute
/// was recorded before, and nothing was written.
pub fn record(tx: &mut Tx<'_>, minute: Timestamp, sample: &Sample) -> Result<bool> {
    if tx.execute(&NOTE_MINUTE, minute)? == 0 {
        return Ok(false);
    }
    tx.plan_for_values()?;
    let names: Vec<&SeriesName> = sample.values.keys().collect();
    for names in names.chunks(CHUNK) {
        tx.run(&OPEN, to_json(&names))?;
    }
    let pools: Vec<(&str, &str)> = sample
        .maxima
        .iter()
        .map(|(id, _)| (id.as_str(), ""))
        .collect();
    for pools in pools.chunks(CHUNK) {
        tx.run(&OPEN, to_json(&pools))?;
    }
    let rows: Vec<_> = sample.values.iter().map(row_of).collect();
    for rows in rows.chunks(CHUNK) {
        tx.run(&ADD, (minute, to_json(&rows)))?;
    }
    for step in [SeriesStep::Hour, SeriesStep::Day] {
        let span = step.millis();
        let since = minute.start_of(span);
        tx.run(&NOTE_TIME, (span, since))?;
        tx.run(&ROLL_UP, (span, since, minute))?;
    }
    for maxima in sample.maxima.chunks(CHUNK) {
        let maxima = to_json(&maxima);
        tx.run(&ADD_MAXIMA, (minute, maxima.as_str()))?;
        tx.run(&SET_MAXIMA, maxima.as_str())?;
    }
    note_counted(tx, &sample.counted)?;
    Ok(true)
}

type PointRow<'a> = (&'a str, &'a str, [i64; 11]);

fn row_of<'a>(((pool, config), values): (&'a SeriesName, &Values)) -> Vec<serde_json::Value> {
    let (levels, tallies) = (&values.levels, &values.tallies);
    let (pool, config, numbers): PointRow<'a> = (
        pool,
        config,
        [
            levels.waiting,
            levels.requested,
            levels.booting,
            levels.idle,
            levels.busy,
            levels.leaving,
            tallies.launched,
            tallies.refused,
            tallies.failed,
            tallies.cost,
            tallies.waited,
        ],
    );
    let names = [pool.into(), config.into()];
    let numbers = numbers.into_iter().map(serde_json::Value::from);
    names.into_iter().chain(numbers).collect()
}

fn note_counted(tx: &mut Tx<'_>, counted: &Counted) -> Result<()> {
    for launches in counted.launches.chunks(CHUNK) {
        let rows = launches.iter();
        let rows: Vec<_> = rows
            .map(|row| {
                (
                    row.token.as_str(),
                    row.made,
                    row.refused,
                    row.never_registered,
                )
            })
            .collect();
        tx.run(&COUNT_LAUNCHES, to_json(&rows))?;
    }
    for costs in counted.costs.chunks(CHUNK) {
        let rows: Vec<_> = costs.iter().map(|row| (row.account, row.total)).collect();
        tx.run(&COUNT_COSTS, to_json(&rows))?;
    }
    for waits in counted.waits.chunks(CHUNK) {
        let rows: Vec<_> = waits.iter().map(|row| (row.account, row.total)).collect();
        tx.run(&COUNT_WAITS, to_json(&rows))?;
    }
    Ok(())
}

/// Deletes points and times of this step that are too old. Call it again while it returns the
/// limit.
pub fn forget(tx: &mut Tx<'_>, step: SeriesStep, now: Timestamp, limit: u32) -> Result<u64> {
    let span = step.millis();
    let before = now.plus_millis(-step.kept_ms()).start_of(span);
    // A recorded time without a point means zero, so the times are deleted before their points.
    let n_times = tx.execute(&FORGET_TIMES, (span, before, limit))?;
    let n_points = match n_times {
        0 => tx.execute(&FORGET_POINTS, (span, before, limit))?,
        _ => 0,
    };
    Ok(n_times.max(n_points))
}

/// Keeps only the last maximum of each hour, day, and three years. Call it again while it returns
/// the limit.
pub fn thin_maxima(tx: &mut Tx<'_>, now: Timestamp, limit: u32) -> Result<u64> {
    let steps = [
        (SeriesStep::Minute.kept_ms(), SeriesStep::Hour.millis()),
        (SeriesStep::Hour.kept_ms(), SeriesStep::Day.millis()),
        (SeriesStep::Day.kept_ms(), DAYS_KEPT_MS),
    ];
    let mut most = 0;
    for (kept_ms, span) in steps {
        let before = now.plus_millis(-kept_ms).start_of(span);
        most = most.max(tx.execute(&THIN_MAXIMA, (before, span, limit))?);
    }
    Ok(most)
}

/// Series without a point and without a maximum, at most `limit`. This looks at all series.
pub fn list_unused(tx: &mut Tx<'_>, limit: u32) -> Result<Vec<i64>> {
    tx.rows(&UNUSED, limit)
}

/// Deletes those of these series that are still unused, with their earlier maxima.
pub fn delete_unused(tx: &mut Tx<'_>, series: &[i64]) -> Result<u64> {
    let series: Vec<[i64; 1]> = series.iter().map(|series| [*series]).collect();
    let series = to_json(&series);
    let deleted = tx.execute(&DELETE_UNUSED, series.as_str())?;
    tx.run(&DELETE_MAXIMA, series.as_str())?;
    Ok(deleted)
}
