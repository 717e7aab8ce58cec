//! Errors of all pools, grouped by their cause.

use std::collections::HashMap;

use domain::error_report::ErrorReport;
use domain::id::{LaunchConfigId, PoolId};
use domain::time::{HOUR_MS, Timestamp};

use crate::engine::{
    ALL_ROWS, BadRow, Cells, FromRow, Result, Table, Tx, from_row, statements, to_json,
};
use crate::fleet::worker_supply::launch_config;
use crate::history::worker_errors;

/// Places of a cause that are named, those with the most errors.
pub const NAMED: u32 = 10;

static TABLE: Table = Table::joined("worker_errors", &[("e", &worker_errors::TABLE)]);

/// Errors since (`$1`) and until (`$2`) then, of these pools (`$4`), or of all if `$3` says so.
macro_rules! errors {
    ($more:literal) => {
        concat!(
            " FROM worker_errors AS e WHERE e.reported >= $1 AND e.reported <= $2 AND ($3 = 'all' \
             OR e.worker_pool_id IN (SELECT v.value ->> 0 FROM json_each($4) AS v)) ",
            $more
        )
    };
}

/// Errors of causes (`$1`) since (`$2`) and until (`$3`) then, of these pools (`$5`), or of all if
/// `$4` says so.
macro_rules! errors_of_causes {
    ($more:literal) => {
        concat!(
            " FROM worker_errors AS e WHERE e.cause IN (\
             SELECT member.value ->> 0 FROM json_each($1) AS member) AND e.reported >= $2 AND e.reported <= $3 \
             AND ($4 = 'all' OR e.worker_pool_id IN (SELECT v.value ->> 0 FROM json_each($5) AS v)) ",
            $more
        )
    };
}

macro_rules! causes {
    ($after:literal, $order:literal) => {
        concat!(
            "SELECT e.cause, COUNT(*), MIN(e.reported), MAX(e.reported)",
            errors!("GROUP BY e.cause HAVING "),
            $after,
            " ORDER BY ",
            $order,
            " LIMIT $7"
        )
    };
}

/// The places of each cause with the most errors, and how many places it has.
macro_rules! places {
    ($place:literal, $more:literal) => {
        concat!(
            "SELECT cause, pool, config, errors, places FROM (SELECT cause, pool, config, errors, \
             ROW_NUMBER() OVER (PARTITION BY cause ORDER BY errors DESC, pool, config) AS place, \
             COUNT(*) OVER (PARTITION BY cause) AS places FROM (SELECT e.cause AS cause, \
             e.worker_pool_id AS pool, ",
            $place,
            " AS config, COUNT(*) AS errors",
            errors_of_causes!($more),
            "GROUP BY 1, 2, 3) AS counted) AS ranked WHERE place <= $6 ORDER BY cause, place \
             LIMIT $7"
        )
    };
}

statements! { TABLE;
    NEWEST "error_cause_list_newest" = causes!(
        "(MAX(e.reported), e.cause) < ($5, $6)", "MAX(e.reported) DESC, e.cause DESC");
    MOST "error_cause_list_most" = causes!(
        "(COUNT(*), e.cause) < ($5, $6)", "COUNT(*) DESC, e.cause DESC");
    TREND "error_cause_trend" = concat!(
        "SELECT e.cause, e.reported / 3600000, COUNT(*)",
        errors_of_causes!("GROUP BY 1, 2 ORDER BY 1, 2 LIMIT $6"));
    POOLS "error_cause_pools" = places!("''", "");
    CONFIGS "error_cause_launch_configs" =
        places!("e.launch_config_id", "AND e.launch_config_id IS NOT NULL ");
    // The newest error of a cause is known by its time. Of several at one time it is any one, and
    // always the same.
    EXAMPLES "error_cause_examples" =
        "SELECT e.cause, {columns} FROM json_each($1) AS c CROSS JOIN worker_errors AS e \
         WHERE e.cause = c.value ->> 0 AND e.reported = CAST(c.value ->> 1 AS BIGINT) \
         AND e.error_id = (SELECT MAX(m.error_id) FROM worker_errors AS m \
         WHERE m.cause = c.value ->> 0 AND m.reported = CAST(c.value ->> 1 AS BIGINT) \
         AND ($2 = 'all' OR m.worker_pool_id IN (SELECT v.value ->> 0 FROM json_each($3) AS v))) \
         LIMIT $4";
    POOLS_WITH "error_cause_pools_with_errors" =
        "SELECT DISTINCT worker_pool_id FROM worker_errors WHERE reported >= $1 \
         ORDER BY worker_pool_id LIMIT $2";
}

/// Which errors count.
#[derive(Clone, Debug)]
pub struct CauseFilter {
    pub since: Timestamp,
    /// The moment of the first page: errors that come meanwhile move no cause between pages.
    pub until: Timestamp,
    /// `None`: those of all pools.
    pub pools: Option<Vec<PoolId>>,
}

/// The order of causes, with the last cause of the page before.
#[derive(Clone, Debug)]
pub enum CauseOrder {
    Newest(Option<(Timestamp, String)>),
    Most(Option<(u64, String)>),
}

/// The errors of one cause.
#[derive(Clone, Debug, PartialEq)]
pub struct CauseCount {
    pub cause: String,
    pub errors: u64,
    pub first: Timestamp,
    pub last: Timestamp,
}

from_row! { CauseCount { cause, errors, first, last } }

/// A pool, or a launch config, with errors of a cause.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CausePlace {
    pub pool_id: PoolId,
    pub launch_config_id: Option<LaunchConfigId>,
    pub errors: u64,
}

/// The places of a cause: those with the most errors, and the number of all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CausePlaces {
    pub named: Vec<CausePlace>,
    pub all: u64,
}

/// Details of the causes of a page.
#[derive(Clone, Debug, Default)]
pub struct CauseDetails {
    /// Errors by the start of their hour.
    pub trend: HashMap<String, Vec<(Timestamp, u64)>>,
    pub pools: HashMap<String, CausePlaces>,
    pub launch_configs: HashMap<String, CausePlaces>,
    /// One of the newest errors.
    pub examples: HashMap<String, ErrorReport>,
}

struct PlaceRow {
    cause: String,
    place: CausePlace,
    places: u64,
}

impl FromRow for PlaceRow {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        Ok(Self {
            cause: cells.next()?,
            place: CausePlace {
                pool_id: cells.next()?,
                launch_config_id: launch_config(cells)?,
                errors: cells.next()?,
            },
            places: cells.next()?,
        })
    }
}

/// The pools with errors since then.
pub fn pools_with_errors(tx: &mut Tx<'_>, since: Timestamp) -> Result<Vec<PoolId>> {
    tx.rows(&POOLS_WITH, (since, ALL_ROWS))
}

/// The causes, in this order.
pub fn list(
    tx: &mut Tx<'_>,
    filter: &CauseFilter,
    order: &CauseOrder,
    limit: u32,
) -> Result<Vec<CauseCount>> {
    let (is_all, pools) = filter.pools_json();
    let errors = (filter.since, filter.until, is_all, pools.as_str());
    match order {
        CauseOrder::Newest(after) => {
            let after = after.as_ref();
            let after = after.map_or((i64::MAX, ""), |(at, cause)| (at.as_millis(), cause));
            tx.rows(&NEWEST, (errors, after, limit))
        }
        CauseOrder::Most(after) => {
            let after = after.as_ref().map_or((i64::MAX, ""), |(errors, cause)| {
                (i64::try_from(*errors).unwrap_or(i64::MAX), cause.as_str())
            });
            tx.rows(&MOST, (errors, after, limit))
        }
    }
}

/// The details of these causes. The trend begins at `trend_since`.
pub fn details(
    tx: &mut Tx<'_>,
    filter: &CauseFilter,
    causes: &[CauseCount],
    trend_since: Timestamp,
) -> Result<CauseDetails> {
    let mut details = CauseDetails::default();
    if causes.is_empty() {
        return Ok(details);
    }
    let (is_all, pools) = filter.pools_json();
    let names: Vec<[&str; 1]> = causes.iter().map(|it| [it.cause.as_str()]).collect();
    let names = to_json(&names);
    let of_pools = (is_all, pools.as_str());
    let trend: Vec<(String, i64, u64)> = tx.rows(
        &TREND,
        (
            names.as_str(),
            (trend_since, filter.until),
            of_pools,
            ALL_ROWS,
        ),
    )?;
    for (cause, hour, errors) in trend {
        let start = Timestamp::from_millis(hour.saturating_mul(HOUR_MS));
        details
            .trend
            .entry(cause)
            .or_default()
            .push((start, errors));
    }
    for (statement, places) in [
        (&POOLS, &mut details.pools),
        (&CONFIGS, &mut details.launch_configs),
    ] {
        let time = (filter.since, filter.until);
        let values = (names.as_str(), time, of_pools, NAMED, ALL_ROWS);
        let rows: Vec<PlaceRow> = tx.rows(statement, values)?;
        for row in rows {
            let of_cause = places.entry(row.cause).or_default();
            of_cause.all = row.places;
            of_cause.named.push(row.place);
        }
    }
    let newest = causes.iter();
    let newest: Vec<(&str, i64)> = newest
        .map(|it| (it.cause.as_str(), it.last.as_millis()))
        .collect();
    let examples: Vec<(String, ErrorReport)> =
        tx.rows(&EXAMPLES, (to_json(&newest), of_pools, ALL_ROWS))?;
    details.examples = examples.into_iter().collect();
    Ok(details)
}

impl CauseFilter {
    /// Whether all pools count, and the list of those that count otherwise.
    fn pools_json(&self) -> (&'static str, String) {
        match &self.pools {
            None => ("all", "[]".to_owned()),
            Some(pools) => {
                let pools: Vec<[&str; 1]> = pools.iter().map(|id| [id.as_str()]).collect();
                ("some", to_json(&pools))
            }
        }
    }
}
