//! Reports about costs: sums of accounts and of machines that run, by pool, day and so on.

use domain::cost::{Amount, CostGrouping, CostKind, CostLine, CostScope, Uses};
use domain::time::{DAY_MS, Timestamp};

use crate::cost::cost_accounts::cost_up_to;
use crate::engine::{ALL_ROWS, BadRow, Cells, FromRow, Result, Statement, Table, Tx, statements};

/// Sums have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("costs", 2);

macro_rules! sum {
    ($column:literal) => {
        concat!(", CAST(SUM(c.", $column, ") AS BIGINT)")
    };
}

/// The accounts of a scope: an empty name selects all.
macro_rules! in_scope {
    ($pool:literal, $provider:literal, $owner:literal) => {
        concat!(
            "(",
            $pool,
            " = '' OR a.worker_pool_id = ",
            $pool,
            ") AND (",
            $provider,
            " = '' OR a.provider_id = ",
            $provider,
            ") AND (",
            $owner,
            " = '' OR a.owner = ",
            $owner,
            ")"
        )
    };
}

/// The accounts, from one moment up to another.
macro_rules! charged {
    ($name:literal) => {
        concat!(
            "SELECT ",
            $name,
            ", a.currency",
            sum!("useful_ms"),
            sum!("booting_ms"),
            sum!("idle_ms"),
            sum!("failed_ms"),
            sum!("leaving_ms"),
            sum!("lost_ms"),
            sum!("useful"),
            sum!("booting"),
            sum!("idle"),
            sum!("failed"),
            sum!("leaving"),
            sum!("lost"),
            " FROM costs AS c CROSS JOIN cost_accounts AS a WHERE a.account = c.account \
             AND c.began >= $1 AND c.began < $2 AND ",
            in_scope!("$3", "$4", "$5"),
            " GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT $6"
        )
    };
}

/// The time of machines that is not charged yet, from one moment up to another.
macro_rules! uncharged {
    ($name:literal) => {
        concat!(
            "SELECT one, other, currency, kind, CAST(SUM(until - since) AS BIGINT), \
             CAST(SUM(CASE WHEN price IS NULL THEN 0 ELSE ",
            cost_up_to!("until"),
            " - (",
            cost_up_to!("since"),
            ") END) AS BIGINT) FROM (SELECT ",
            $name,
            ", a.currency, \
             m.kind, m.price, m.started, \
             CASE WHEN m.charged > $1 THEN m.charged ELSE $1 END AS since, \
             CASE WHEN m.ended < $2 THEN m.ended ELSE $2 END AS until \
             FROM meters AS m CROSS JOIN cost_accounts AS a WHERE a.account = m.account AND ",
            in_scope!("$3", "$4", "$5"),
            ") AS open WHERE until > since GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT $6"
        )
    };
}

statements! { TABLE;
    ALL "cost_sum" = charged!("'' AS one, '' AS other");
    POOL "cost_sum_by_pool" = charged!("a.worker_pool_id AS one, '' AS other");
    LAUNCH_CONFIG "cost_sum_by_launch_config" =
        charged!("a.worker_pool_id AS one, a.launch_config_id AS other");
    PROVIDER "cost_sum_by_provider" = charged!("a.provider_id AS one, '' AS other");
    OWNER "cost_sum_by_owner" = charged!("a.owner AS one, '' AS other");
    DAY "cost_sum_by_day" =
        charged!("CAST(c.began - c.began % 86400000 AS TEXT) AS one, '' AS other");
    OPEN "cost_open" = uncharged!("'' AS one, '' AS other");
    OPEN_POOL "cost_open_by_pool" = uncharged!("a.worker_pool_id AS one, '' AS other");
    OPEN_LAUNCH_CONFIG "cost_open_by_launch_config" =
        uncharged!("a.worker_pool_id AS one, a.launch_config_id AS other");
    OPEN_PROVIDER "cost_open_by_provider" = uncharged!("a.provider_id AS one, '' AS other");
    OPEN_OWNER "cost_open_by_owner" = uncharged!("a.owner AS one, '' AS other");
    FIRST_OPEN "cost_first_open" = "SELECT MIN(charged) FROM meters";
}

/// A sum of accounts.
struct ChargedRow {
    names: [String; 2],
    is_priced: bool,
    uses: Uses,
}

/// A sum over machines that run.
struct OpenRow {
    names: [String; 2],
    is_priced: bool,
    kind: CostKind,
    amount: Amount,
}

impl FromRow for ChargedRow {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let names = [cells.next()?, cells.next()?];
        let currency: String = cells.next()?;
        let mut amounts = [Amount::default(); CostKind::ALL.len()];
        for amount in &mut amounts {
            amount.ms = cells.next()?;
        }
        for amount in &mut amounts {
            amount.micros = cells.next()?;
        }
        Ok(Self {
            names,
            is_priced: !currency.is_empty(),
            uses: Uses::new(amounts),
        })
    }
}

impl FromRow for OpenRow {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let names = [cells.next()?, cells.next()?];
        let currency: String = cells.next()?;
        Ok(Self {
            names,
            is_priced: !currency.is_empty(),
            kind: cells.next()?,
            amount: Amount {
                ms: cells.next()?,
                micros: cells.next()?,
            },
        })
    }
}

/// The statements of a grouping: accounts, and machines that run.
fn statements_of(by: CostGrouping) -> (&'static Statement, &'static Statement) {
    match by {
        CostGrouping::Kind => (&ALL, &OPEN),
        CostGrouping::Pool => (&POOL, &OPEN_POOL),
        CostGrouping::LaunchConfig => (&LAUNCH_CONFIG, &OPEN_LAUNCH_CONFIG),
        CostGrouping::Provider => (&PROVIDER, &OPEN_PROVIDER),
        CostGrouping::Owner => (&OWNER, &OPEN_OWNER),
        CostGrouping::Day => (&DAY, &OPEN),
    }
}

/// One line for each name, with what machines that run have cost by `until`.
///
/// `since` is the beginning of an hour, or of a day if hours of that time may be days already.
pub fn lines(
    tx: &mut Tx<'_>,
    by: CostGrouping,
    scope: &CostScope,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<CostLine>> {
    let (charged, open) = statements_of(by);
    let scope = match scope {
        CostScope::All => ("", "", ""),
        CostScope::Pool(id) => (id.as_str(), "", ""),
        CostScope::Provider(id) => ("", id.as_str(), ""),
        CostScope::Owner(owner) => ("", "", owner.as_str()),
    };
    let mut lines = Vec::new();
    let rows: Vec<ChargedRow> = tx.rows(charged, (since, until, scope, ALL_ROWS))?;
    for row in rows {
        lines.push(CostLine::new(named(by, row.names), row.is_priced, row.uses));
    }
    // By day, each day of machines that run is a sum of its own.
    let mut from = match by {
        CostGrouping::Day => first_open(tx, since)?.map_or(until, |first| first.max(since)),
        CostGrouping::Kind
        | CostGrouping::Pool
        | CostGrouping::LaunchConfig
        | CostGrouping::Provider
        | CostGrouping::Owner => since,
    };
    while from < until {
        let day = from.start_of(DAY_MS);
        let to = match by {
            CostGrouping::Day => day.plus_millis(DAY_MS).min(until),
            CostGrouping::Kind
            | CostGrouping::Pool
            | CostGrouping::LaunchConfig
            | CostGrouping::Provider
            | CostGrouping::Owner => until,
        };
        let rows: Vec<OpenRow> = tx.rows(open, (from, to, scope, ALL_ROWS))?;
        for mut row in rows {
            if by == CostGrouping::Day {
                row.names = [day.as_millis().to_string(), String::new()];
            }
            let mut uses = Uses::default();
            uses.add(row.kind, row.amount);
            lines.push(CostLine::new(named(by, row.names), row.is_priced, uses));
        }
        from = to;
    }
    Ok(lines)
}

/// Up to when the machine that was charged longest ago was charged.
fn first_open(tx: &mut Tx<'_>, since: Timestamp) -> Result<Option<Timestamp>> {
    let first: Option<Option<Timestamp>> = tx.row(&FIRST_OPEN, ())?;
    Ok(first.flatten().map(|first| first.max(since)))
}

/// Days are shown as dates.
fn named(by: CostGrouping, names: [String; 2]) -> [String; 2] {
    let [one, other] = names;
    let date = || {
        let at = Timestamp::from_millis(one.parse().ok()?);
        Some(at.to_string().chars().take(10).collect())
    };
    match by {
        CostGrouping::Day => [date().unwrap_or(one), other],
        CostGrouping::Kind
        | CostGrouping::Pool
        | CostGrouping::LaunchConfig
        | CostGrouping::Provider
        | CostGrouping::Owner => [one, other],
    }
}
