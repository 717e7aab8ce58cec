//! Cost accounts: time and money of machines by hour, and later by day.
//!
//! Sums include the machines whose cost is not settled, up to the moment that is asked for.

use std::collections::BTreeMap;

use domain::cost::{CostKind, CostScope, Currency, Spent, Uses};
use domain::id::{LaunchConfigId, PoolId, ProviderId};
use domain::time::{DAY_MS, Timestamp};

use crate::engine::{Result, Statement, Table, Tx, Value, statements, to_json};

static TABLE: Table = Table::unlisted("cost_accounts", 1);

/// The columns of amounts, in the order of `CostKind::CHARGED`.
macro_rules! amounts {
    () => {
        "useful_ms, booting_ms, idle_ms, failed_ms, leaving_ms, lost_ms, \
         useful, booting, idle, failed, leaving, lost"
    };
}

macro_rules! add_to_row {
    () => {
        "ON CONFLICT (began, hours, account) DO UPDATE SET \
         useful_ms = costs.useful_ms + excluded.useful_ms, \
         booting_ms = costs.booting_ms + excluded.booting_ms, \
         idle_ms = costs.idle_ms + excluded.idle_ms, \
         failed_ms = costs.failed_ms + excluded.failed_ms, \
         leaving_ms = costs.leaving_ms + excluded.leaving_ms, \
         lost_ms = costs.lost_ms + excluded.lost_ms, \
         useful = costs.useful + excluded.useful, booting = costs.booting + excluded.booting, \
         idle = costs.idle + excluded.idle, failed = costs.failed + excluded.failed, \
         leaving = costs.leaving + excluded.leaving, lost = costs.lost + excluded.lost"
    };
}

/// Money by currency, of hours and days that began from one moment up to another.
macro_rules! charged {
    ($scope:literal) => {
        concat!(
            "SELECT a.currency, CAST(SUM(c.useful + c.booting + c.idle + c.failed + c.leaving \
             + c.lost) AS BIGINT) FROM cost_accounts AS a CROSS JOIN costs AS c \
             WHERE c.account = a.account AND c.began >= $1 AND c.began < $2 AND ",
            $scope,
            " = $3 AND a.currency <> '' GROUP BY a.currency ORDER BY a.currency"
        )
    };
}

/// The cost of a machine up to a moment: its price times the time since its start. In SQL, because
/// reports sum over all machines that run.
macro_rules! cost_up_to {
    ($moment:literal) => {
        concat!(
            "price * ((",
            $moment,
            " - started) / 3600000) \
             + price * ((",
            $moment,
            " - started) % 3600000) / 3600000"
        )
    };
}
pub(crate) use cost_up_to;

/// Time of meters that is not charged yet, from one moment up to another.
macro_rules! uncharged {
    ($columns:literal, $scope:literal) => {
        concat!(
            "SELECT ",
            $columns,
            ", m.price, m.started, \
             CASE WHEN m.charged > $1 THEN m.charged ELSE $1 END AS since, \
             CASE WHEN m.ended < $2 THEN m.ended ELSE $2 END AS until \
             FROM cost_accounts AS a CROSS JOIN meters AS m \
             WHERE ",
            $scope,
            " = $3 AND m.account = a.account"
        )
    };
}

macro_rules! accrued {
    ($scope:literal) => {
        concat!(
            "SELECT currency, CAST(SUM(",
            cost_up_to!("until"),
            " - (",
            cost_up_to!("since"),
            ")) AS BIGINT) FROM (",
            uncharged!("a.currency", $scope),
            ") AS open \
             WHERE currency <> '' AND until > since GROUP BY currency ORDER BY currency"
        )
    };
}

statements! { TABLE;
    OPEN "cost_account_open" =
        "INSERT INTO cost_accounts (worker_pool_id, launch_config_id, provider_id, owner, \
         currency) SELECT $1, $2, $3, \
         COALESCE((SELECT owner FROM worker_pools WHERE worker_pool_id = $1), ''), $4 \
         WHERE NOT EXISTS (SELECT 1 FROM cost_accounts WHERE worker_pool_id = $1 \
         AND launch_config_id = $2 AND provider_id = $3 AND owner = \
         COALESCE((SELECT owner FROM worker_pools WHERE worker_pool_id = $1), '') \
         AND currency = $4) ON CONFLICT DO NOTHING";
    FIND "cost_account_find" =
        "SELECT account FROM cost_accounts WHERE worker_pool_id = $1 AND launch_config_id = $2 \
         AND provider_id = $3 AND currency = $4 AND owner = \
         COALESCE((SELECT owner FROM worker_pools WHERE worker_pool_id = $1), '')";
    ADD "cost_add" = concat!(
        "INSERT INTO costs (began, hours, account, ", amounts!(), ") VALUES ($1, 1, $2, $3, $4, \
         $5, $6, $7, $8, $9, $10, $11, $12, $13, $14) ", add_to_row!());
    CHARGE "cost_account_charge" =
        "UPDATE cost_accounts SET charged = cost_accounts.charged \
         + CAST(v.value ->> 1 AS BIGINT) FROM json_each($1) AS v \
         WHERE account = CAST(v.value ->> 0 AS BIGINT)";
    OLDEST_HOUR "cost_oldest_hour" =
        "SELECT began FROM costs WHERE hours = 1 ORDER BY began LIMIT 1";
    FOLD "cost_fold" = concat!(
        "INSERT INTO costs (began, hours, account, ", amounts!(), ") \
         SELECT CAST($1 AS BIGINT), 24, account, ", amounts!(), " FROM costs \
         WHERE began = $2 AND hours = 1 ", add_to_row!());
    DELETE_HOUR "cost_delete_hour" = "DELETE FROM costs WHERE began = $1 AND hours = 1";
    DELETE_BEFORE "cost_delete_before" =
        "DELETE FROM costs WHERE (began, hours, account) IN (SELECT began, hours, account \
         FROM costs WHERE began < $1 ORDER BY began LIMIT $2)";
    // An account may be needed again as long as machines of its launch config may start.
    DELETE_UNUSED "cost_account_delete_unused" =
        "DELETE FROM cost_accounts WHERE account IN (SELECT a.account FROM cost_accounts AS a \
         WHERE NOT EXISTS (SELECT 1 FROM costs AS c WHERE c.account = a.account) \
         AND NOT EXISTS (SELECT 1 FROM meters AS m WHERE m.account = a.account) \
         AND NOT EXISTS (SELECT 1 FROM launch_configs AS l \
         WHERE l.worker_pool_id = a.worker_pool_id AND l.launch_config_id = a.launch_config_id) \
         AND (a.launch_config_id <> '' OR NOT EXISTS (SELECT 1 FROM worker_pools AS p \
         WHERE p.worker_pool_id = a.worker_pool_id)) ORDER BY a.account LIMIT $1)";
    CHARGED "cost_charged" = charged!("''");
    CHARGED_POOL "cost_charged_of_pool" = charged!("a.worker_pool_id");
    CHARGED_PROVIDER "cost_charged_of_provider" = charged!("a.provider_id");
    CHARGED_OWNER "cost_charged_of_owner" = charged!("a.owner");
    ACCRUED "cost_accrued" = accrued!("''");
    ACCRUED_POOL "cost_accrued_of_pool" = accrued!("a.worker_pool_id");
    ACCRUED_PROVIDER "cost_accrued_of_provider" = accrued!("a.provider_id");
    ACCRUED_OWNER "cost_accrued_of_owner" = accrued!("a.owner");
}

/// The statements and the parameter of a scope: charged, and accrued since.
fn of_scope(scope: &CostScope) -> (&'static Statement, &'static Statement, &str) {
    match scope {
        CostScope::All => (&CHARGED, &ACCRUED, ""),
        CostScope::Pool(id) => (&CHARGED_POOL, &ACCRUED_POOL, id.as_str()),
        CostScope::Provider(id) => (&CHARGED_PROVIDER, &ACCRUED_PROVIDER, id.as_str()),
        CostScope::Owner(owner) => (&CHARGED_OWNER, &ACCRUED_OWNER, owner),
    }
}

/// The money spent from one moment up to another, for each currency, with what running machines
/// have cost by then.
///
/// `since` is the beginning of an hour, or of a day if it is more than two days ago. `until` is
/// now, or the beginning of an hour or day.
pub fn spent(
    tx: &mut Tx<'_>,
    scope: &CostScope,
    since: Timestamp,
    until: Timestamp,
) -> Result<Vec<Spent>> {
    let (charged, accrued, name) = of_scope(scope);
    let mut spent: Vec<Spent> = Vec::new();
    for statement in [charged, accrued] {
        let rows: Vec<(Currency, i64)> = tx.rows(statement, (since, until, name))?;
        for (currency, micros) in rows {
            match spent.iter_mut().find(|known| known.currency == currency) {
                Some(known) => known.micros = known.micros.saturating_add(micros),
                None => spent.push(Spent { currency, micros }),
            }
        }
    }
    Ok(spent)
}

/// Opens the account of a machine of this pool, unless it exists.
pub(crate) fn open(
    tx: &mut Tx<'_>,
    pool_id: &PoolId,
    launch_config: &str,
    provider_id: &ProviderId,
    currency: &str,
) -> Result<()> {
    let account = (pool_id, launch_config, provider_id, currency);
    tx.run(&OPEN, account)
}

/// Adds to the money that was ever charged to these accounts.
pub(crate) fn charge(tx: &mut Tx<'_>, micros: &BTreeMap<i64, i64>) -> Result<()> {
    let rows: Vec<(i64, i64)> = micros.iter().map(|(key, value)| (*key, *value)).collect();
    if rows.is_empty() {
        return Ok(());
    }
    tx.run(&CHARGE, to_json(&rows))
}

/// Adds to the amounts of an hour.
pub(crate) fn add(tx: &mut Tx<'_>, hour: Timestamp, account: i64, uses: &Uses) -> Result<()> {
    let charged = CostKind::CHARGED.map(|kind| uses.get(kind));
    let times = charged.iter().map(|amount| Value::from(amount.ms));
    let money = charged.iter().map(|amount| Value::from(amount.micros));
    let amounts: Vec<Value<'_>> = times.chain(money).collect();
    tx.run(&ADD, (hour, account, amounts))
}

/// Adds the costs of machines that no meter has: a demo makes up its past. The account is that of
/// the launch config at the provider.
pub fn record(
    tx: &mut Tx<'_>,
    (pool_id, launch_config, provider_id): (&PoolId, &LaunchConfigId, &ProviderId),
    hours: &BTreeMap<Timestamp, Uses>,
) -> Result<()> {
    let currency = Currency::Usd.as_str();
    open(tx, pool_id, launch_config.as_str(), provider_id, currency)?;
    let account = (pool_id, launch_config, provider_id, currency);
    let account: Option<i64> = tx.row(&FIND, account)?;
    for (hour, uses) in hours {
        if let Some(account) = account {
            add(tx, *hour, account, uses)?;
        }
    }
    Ok(())
}

/// The oldest hour that is not added to its day.
pub fn oldest_hour(tx: &mut Tx<'_>) -> Result<Option<Timestamp>> {
    tx.row(&OLDEST_HOUR, ())
}

/// Adds the oldest hour that began before this moment to its day. `false`: none is left.
pub fn fold_hour(tx: &mut Tx<'_>, before: Timestamp) -> Result<bool> {
    let Some(hour) = oldest_hour(tx)?.filter(|hour| *hour < before) else {
        return Ok(false);
    };
    tx.run(&FOLD, (hour.start_of(DAY_MS), hour))?;
    tx.run(&DELETE_HOUR, hour)?;
    Ok(true)
}

/// Deletes the costs of hours and days that began before this moment. Call it again while it
/// returns the limit.
pub fn delete_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_BEFORE, (before, limit))
}

/// Deletes accounts without costs of which no machine can start any more. Call it again while it
/// returns the limit.
pub fn delete_unused(tx: &mut Tx<'_>, limit: u32) -> Result<u64> {
    tx.plan_for_values()?;
    tx.execute(&DELETE_UNUSED, limit)
}
