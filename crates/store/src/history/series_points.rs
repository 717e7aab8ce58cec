//! Reads the points of series.

use domain::id::PoolId;
use domain::series::{FleetCounts, FleetLevels, Period, Point, SeriesKey, Values};
use domain::time::Timestamp;

use crate::engine::{ALL_ROWS, Result, Table, Tx, from_row, statements, to_json};

static TABLE: Table = Table::unlisted("points", 3);

/// The values of a point; those of a series without one are zero.
macro_rules! values {
    () => {
        "COALESCE(p.waiting, 0), COALESCE(p.requested, 0), COALESCE(p.booting, 0), \
         COALESCE(p.idle, 0), COALESCE(p.busy, 0), COALESCE(p.leaving, 0), \
         COALESCE(p.launched, 0), COALESCE(p.refused, 0), COALESCE(p.failed, 0), \
         COALESCE(p.cost, 0), COALESCE(p.waited, 0), \
         COALESCE(p.most_waiting, p.waiting, 0), COALESCE(p.most_requested, p.requested, 0), \
         COALESCE(p.most_booting, p.booting, 0), COALESCE(p.most_idle, p.idle, 0), \
         COALESCE(p.most_busy, p.busy, 0), COALESCE(p.most_leaving, p.leaving, 0)"
    };
}

/// Of these pools, from points of this span, until a time; at most a number of rows.
macro_rules! parts {
    ($pools:literal, $span:literal, $until:literal, $limit:literal) => {
        // A point is looked up by its key: the times of one series are not beside each other.
        concat!(
            "SELECT n.worker_pool_id, (t.since - $1) / $2, \
             CAST(MAX(COALESCE(p.most_waiting, p.waiting)) AS BIGINT), \
             CAST(MAX(COALESCE(p.most_capacity, \
             p.requested + p.booting + p.idle + p.busy + p.leaving)) AS BIGINT) \
             FROM series AS n CROSS JOIN series_times AS t CROSS JOIN points AS p WHERE ",
            $pools,
            " AND n.launch_config_id = '' AND t.span = ",
            $span,
            " AND t.since >= $1 AND t.since < ",
            $until,
            " AND p.span = t.span AND p.since = t.since AND p.series = n.series \
             GROUP BY 1, 2 ORDER BY 1, 2 LIMIT ",
            $limit
        )
    };
}

statements! { TABLE;
    FIND "series_find" =
        "SELECT series FROM series WHERE worker_pool_id = $1 AND launch_config_id = $2";
    POINTS "series_points" = concat!(
        "SELECT t.since, t.minutes, ", values!(), " FROM series_times AS t LEFT JOIN points AS p \
         ON p.span = t.span AND p.since = t.since AND p.series = $1 \
         WHERE t.span = $2 AND t.since >= $3 AND t.since < $4 ORDER BY t.since LIMIT $5");
    MAXIMA "series_maxima_between" =
        "SELECT since, maximum FROM series_maxima WHERE series = $1 AND since < $2 \
         AND since >= COALESCE((SELECT MAX(o.since) FROM series_maxima AS o \
         WHERE o.series = $1 AND o.since <= $3), 0) ORDER BY since LIMIT $4";
    TIMES "series_times_by_part" =
        "SELECT (since - $1) / $2, COUNT(*) FROM series_times \
         WHERE span = $3 AND since >= $1 AND since < $4 GROUP BY 1 ORDER BY 1 LIMIT $5";
    POOLS "series_pools" =
        "SELECT worker_pool_id FROM worker_pools WHERE worker_pool_id > $1 \
         ORDER BY worker_pool_id LIMIT $2";
    PARTS "series_parts" = parts!("n.worker_pool_id >= $3 AND n.worker_pool_id <= $4",
        "$5", "$6", "$7");
    PARTS_OF_NAMED "series_parts_of_named" = parts!(
        "n.worker_pool_id IN (SELECT member.value ->> 0 FROM json_each($3) AS member)",
        "$4", "$5", "$6");
}

from_row! { FleetLevels { waiting, requested, booting, idle, busy, leaving } }
from_row! { FleetCounts { launched, refused, failed, cost, waited } }
from_row! { Values { levels, tallies } }
from_row! { Point { minutes, values, highest } }

/// The points that were recorded, and the maxima from the last one before on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SeriesPoints {
    pub points: Vec<(Timestamp, Point)>,
    pub maxima: Vec<(Timestamp, i64)>,
}

/// The points of a series. A series that was never recorded is at zero.
pub fn read(tx: &mut Tx<'_>, key: &SeriesKey, period: &Period) -> Result<SeriesPoints> {
    let series: i64 = tx.row(&FIND, key.names())?.unwrap_or(0);
    let (from, until) = (period.from, period.until);
    let time = (period.step.millis(), from, until);
    Ok(SeriesPoints {
        points: tx.rows(&POINTS, (series, time, ALL_ROWS))?,
        maxima: tx.rows(&MAXIMA, (series, until, from, ALL_ROWS))?,
    })
}

/// A part of a time, of one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PoolPart {
    pub pool_id: PoolId,
    pub part: i64,
    /// The most tasks that waited at once, and the most units.
    pub waiting: i64,
    pub capacity: i64,
}

from_row! { PoolPart { pool_id, part, waiting, capacity } }

/// The next pools, in the order of their ids.
pub fn pools(tx: &mut Tx<'_>, after: Option<&PoolId>, limit: u32) -> Result<Vec<PoolId>> {
    tx.rows(&POOLS, (after.map_or("", PoolId::as_str), limit))
}

/// A time that is cut into parts of equal length.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parts {
    /// Of the points that are read.
    pub span_ms: i64,
    pub from: Timestamp,
    pub until: Timestamp,
    pub part_ms: i64,
}

/// How many points of each part were recorded. Parts without any are left out.
pub fn recorded_parts(tx: &mut Tx<'_>, parts: &Parts) -> Result<Vec<(i64, u64)>> {
    let values = (parts.from, parts.part_ms, parts.span_ms, parts.until);
    tx.rows(&TIMES, (values, ALL_ROWS))
}

/// The parts of the pools from the first to the last. Parts at zero are left out.
pub fn parts(
    tx: &mut Tx<'_>,
    (first, last): (&PoolId, &PoolId),
    parts: &Parts,
) -> Result<Vec<PoolPart>> {
    tx.plan_for_values()?;
    let time = (parts.from, parts.part_ms);
    tx.rows(
        &PARTS,
        (time, first, last, parts.span_ms, parts.until, ALL_ROWS),
    )
}

/// The parts of these pools. Parts at zero are left out.
pub fn parts_of_named(tx: &mut Tx<'_>, pools: &[PoolId], parts: &Parts) -> Result<Vec<PoolPart>> {
    tx.plan_for_values()?;
    let names: Vec<[&str; 1]> = pools.iter().map(|id| [id.as_str()]).collect();
    let values = (parts.from, parts.part_ms, to_json(&names));
    tx.rows(
        &PARTS_OF_NAMED,
        (values, parts.span_ms, parts.until, ALL_ROWS),
    )
}
