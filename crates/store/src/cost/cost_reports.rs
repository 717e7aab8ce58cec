//! Reports about costs: sums of accounts and of machines that run, by pool, day and so on.

use domain::cost::{Amount, CostGrouping, CostKind, CostLine, CostScope, Uses};
use domain::time::{DAY_MS, Timestamp};

use crate::cost::cost_accounts::cost_up_to;
use crate::engine::{BadRow, Cells, FromRow, Result, Statement, Table, Tx, statements};

/// Sums have no key but the columns by which they are grouped.
static TABLE: Table = Table::unlisted("costs", 2);

macro_rules! sum {
    ($column:literal) => {
        concat!(", CAST(SUM(c.", $column, ") AS BIGINT) AS ", $column)
    };
}

macro_rules! sums {
    () => {
        concat!(
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
            sum!("lost")
        )
    };
}

/// The accounts of one pool, provider or owner; the other names are empty.
macro_rules! in_scope {
    () => {
        " AND ($3 = '' OR a.worker_pool_id = $3) AND ($4 = '' OR a.provider_id = $4) \
         AND ($5 = '' OR a.owner = $5)"
    };
}

/// The accounts, from one moment up to another. They are summed by number, and then by name.
macro_rules! charged {
    ($name:literal, $scope:expr, $limit:literal) => {
        concat!(
            "SELECT ",
            $name,
            ", a.currency",
            sums!(),
            " FROM (SELECT a.account",
            sums!(),
            " FROM cost_accounts AS a CROSS JOIN costs AS c WHERE c.account = a.account \
             AND c.began >= $1 AND c.began < $2",
            $scope,
            " GROUP BY a.account) AS c CROSS JOIN cost_accounts AS a \
             WHERE a.account = c.account GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT ",
            $limit
        )
    };
}

/// The accounts by day.
macro_rules! charged_by_day {
    ($scope:expr, $limit:literal) => {
        concat!(
            "SELECT CAST(c.day AS TEXT), '', c.currency",
            sums!(),
            " FROM (SELECT c.began - c.began % 86400000 AS day, a.currency",
            sums!(),
            " FROM costs AS c CROSS JOIN cost_accounts AS a WHERE a.account = c.account \
             AND c.began >= $1 AND c.began < $2",
            $scope,
            " GROUP BY 1, 2) AS c GROUP BY 1, 2, 3 ORDER BY 1, 2, 3 LIMIT ",
            $limit
        )
    };
}

/// The time of machines that is not charged yet, from one moment up to another.
macro_rules! uncharged {
    ($name:literal, $scope:expr, $limit:literal) => {
        concat!(
            "SELECT ",
            $name,
            ", a.currency, open.kind, CAST(SUM(open.ms) AS BIGINT), \
             CAST(SUM(open.micros) AS BIGINT) FROM (SELECT account, kind, \
             SUM(until - since) AS ms, SUM(CASE WHEN price IS NULL THEN 0 ELSE ",
            cost_up_to!("until"),
            " - (",
            cost_up_to!("since"),
            ") END) AS micros FROM (SELECT a.account, m.kind, m.price, m.started, \
             CASE WHEN m.charged > $1 THEN m.charged ELSE $1 END AS since, \
             CASE WHEN m.ended < $2 THEN m.ended ELSE $2 END AS until \
             FROM cost_accounts AS a CROSS JOIN meters AS m WHERE m.account = a.account",
            $scope,
            ") AS m WHERE until > since GROUP BY account, kind) AS open \
             CROSS JOIN cost_accounts AS a WHERE a.account = open.account \
             GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4 LIMIT ",
            $limit
        )
    };
}

// A statement for all accounts is one of its own: PostgreSQL plans a statement for any names, and
// expects few accounts of each.
macro_rules! of_all {
    ($macro:ident, $name:literal) => {
        $macro!($name, "", "$3 OFFSET $4")
    };
}

macro_rules! of_scope {
    ($macro:ident, $name:literal) => {
        $macro!($name, in_scope!(), "$6 OFFSET $7")
    };
}

statements! { TABLE;
    ALL "cost_sum" = of_all!(charged, "'', ''");
    POOL "cost_sum_by_pool" = of_all!(charged, "a.worker_pool_id, ''");
    LAUNCH_CONFIG "cost_sum_by_launch_config" =
        of_all!(charged, "a.worker_pool_id, a.launch_config_id");
    PROVIDER "cost_sum_by_provider" = of_all!(charged, "a.provider_id, ''");
    OWNER "cost_sum_by_owner" = of_all!(charged, "a.owner, ''");
    DAY "cost_sum_by_day" = charged_by_day!("", "$3 OFFSET $4");
    OPEN "cost_open" = of_all!(uncharged, "'', ''");
    OPEN_POOL "cost_open_by_pool" = of_all!(uncharged, "a.worker_pool_id, ''");
    OPEN_LAUNCH_CONFIG "cost_open_by_launch_config" =
        of_all!(uncharged, "a.worker_pool_id, a.launch_config_id");
    OPEN_PROVIDER "cost_open_by_provider" = of_all!(uncharged, "a.provider_id, ''");
    OPEN_OWNER "cost_open_by_owner" = of_all!(uncharged, "a.owner, ''");
    ALL_OF "cost_sum_of" = of_scope!(charged, "'', ''");
    POOL_OF "cost_sum_by_pool_of" = of_scope!(charged, "a.worker_pool_id, ''");
    LAUNCH_CONFIG_OF "cost_sum_by_launch_config_of" =
        of_scope!(charged, "a.worker_pool_id, a.launch_config_id");
    PROVIDER_OF "cost_sum_by_provider_of" = of_scope!(charged, "a.provider_id, ''");
    OWNER_OF "cost_sum_by_owner_of" = of_scope!(charged, "a.owner, ''");
    DAY_OF "cost_sum_by_day_of" = charged_by_day!(in_scope!(), "$6 OFFSET $7");
    OPEN_OF "cost_open_of" = of_scope!(uncharged, "'', ''");
    OPEN_POOL_OF "cost_open_by_pool_of" = of_scope!(uncharged, "a.worker_pool_id, ''");
    OPEN_LAUNCH_CONFIG_OF "cost_open_by_launch_config_of" =
        of_scope!(uncharged, "a.worker_pool_id, a.launch_config_id");
    OPEN_PROVIDER_OF "cost_open_by_provider_of" = of_scope!(uncharged, "a.provider_id, ''");
    OPEN_OWNER_OF "cost_open_by_owner_of" = of_scope!(uncharged, "a.owner, ''");
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
        let mut amounts = [Amount::default(); CostKind::CHARGED.len()];
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

/// The statements of a grouping, for accounts and for machines that run: of all, and of a scope.
fn statements_of(by: CostGrouping) -> [[&'static Statement; 2]; 2] {
    match by {
        CostGrouping::Kind => [[&ALL, &OPEN], [&ALL_OF, &OPEN_OF]],
        CostGrouping::Pool => [[&POOL, &OPEN_POOL], [&POOL_OF, &OPEN_POOL_OF]],
        CostGrouping::LaunchConfig => [
            [&LAUNCH_CONFIG, &OPEN_LAUNCH_CONFIG],
            [&LAUNCH_CONFIG_OF, &OPEN_LAUNCH_CONFIG_OF],
        ],
        CostGrouping::Provider => [
            [&PROVIDER, &OPEN_PROVIDER],
            [&PROVIDER_OF, &OPEN_PROVIDER_OF],
        ],
        CostGrouping::Owner => [[&OWNER, &OPEN_OWNER], [&OWNER_OF, &OPEN_OWNER_OF]],
        CostGrouping::Day => [[&DAY, &OPEN], [&DAY_OF, &OPEN_OF]],
    }
}

/// The sums of a time, of all accounts or of those of a scope.
fn sums<R: FromRow>(
    tx: &mut Tx<'_>,
    [of_all, of_scope]: [&'static Statement; 2],
    scope: &CostScope,
    time: (Timestamp, Timestamp),
) -> Result<Vec<R>> {
    let scope = match scope {
        CostScope::All => return tx.rows_in_pages(of_all, time),
        CostScope::Pool(id) => (id.as_str(), "", ""),
        CostScope::Provider(id) => ("", id.as_str(), ""),
        CostScope::Owner(owner) => ("", "", owner.as_str()),
    };
    tx.rows_in_pages(of_scope, (time, scope))
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
    tx.plan_for_values()?;
    let [[charged, open], [charged_of, open_of]] = statements_of(by);
    let mut lines = Vec::new();
    let rows: Vec<ChargedRow> = sums(tx, [charged, charged_of], scope, (since, until))?;
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
        let rows: Vec<OpenRow> = sums(tx, [open, open_of], scope, (from, to))?;
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
