//! Budgets, the steps that were announced, and what the machines of all scopes cost.

use domain::Version;
use domain::budgets::{
    BudgetPeriod, BudgetScope, BudgetStep, MoneyBudget, Spending, SpentBy, StepShares,
};
use domain::id::{BudgetId, ProviderId};
use domain::pool::Pool;
use domain::time::Timestamp;

use crate::cost::cost_accounts::cost_up_to;
use crate::engine::{
    ALL_ROWS, BadRow, Cells, Field, FromRow, Result, Table, Tx, Value, columns, from_row,
    statements,
};

columns! { row: MoneyBudget {
    id: Key "budget_id",
    scope: Mutable ["worker_pools", "owner", "provider_id"],
    period: Mutable "period",
    amount: Mutable "amount",
    currency: Mutable "currency",
    shares: Mutable ["warn_at", "lower_at", "lower_to"],
    description: Mutable "description",
    created: Fixed "created",
    last_modified: Mutable "last_modified",
    spending: Mutable ["measured", "spent", "hourly", "machines", "launched"],
    version: Version "version",
} }

impl Field for BudgetScope {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        let (pools, owner, provider) = match self {
            Self::Pools(pattern) => (Some(pattern.as_str()), None, None),
            Self::Owner(owner) => (None, Some(owner.as_str()), None),
            Self::Provider(id) => (None, None, Some(id.as_str())),
        };
        values.extend([pools.into(), owner.into(), provider.into()]);
    }
}

impl FromRow for BudgetScope {
    fn read(cells: &mut Cells<'_, '_>) -> Result<Self, BadRow> {
        let (pools, owner, provider): (Option<String>, Option<String>, Option<ProviderId>) =
            (cells.next()?, cells.next()?, cells.next()?);
        match (pools, owner, provider) {
            (Some(pools), None, None) => Ok(Self::Pools(pools.parse()?)),
            (None, Some(owner), None) => Ok(Self::Owner(owner)),
            (None, None, Some(provider)) => Ok(Self::Provider(provider)),
            _ => Err(BadRow("it does not name exactly one scope".to_owned())),
        }
    }
}

impl Field for StepShares {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        values.extend([
            self.warn_at.into(),
            self.lower_at.into(),
            self.lower_to.into(),
        ]);
    }
}

impl Field for Spending {
    fn write<'a>(&'a self, values: &mut Vec<Value<'a>>) {
        values.extend([self.measured.into(), self.micros.into(), self.hourly.into()]);
        self.machines.write(values);
        self.launched.write(values);
    }
}

from_row! { StepShares { warn_at, lower_at, lower_to } }
from_row! { Spending { measured, micros, hourly, machines, launched } }
from_row! { SpentBy { pool_id, provider_id, owner, micros, hourly, machines, launched } }

static TABLE: Table = Table::of::<MoneyBudget>("budgets");

statements! { TABLE;
    GET "budget_get" = "SELECT {columns} FROM budgets WHERE budget_id = $1";
    INSERT "budget_insert" =
        "INSERT INTO budgets ({written}) VALUES ({values}) ON CONFLICT DO NOTHING";
    UPDATE "budget_update" = "UPDATE budgets SET {changes} WHERE {key}";
    DELETE "budget_delete" = "DELETE FROM budgets WHERE budget_id = $1 AND version = $2";
    LIST "budget_list" =
        "SELECT {columns} FROM budgets WHERE budget_id > $1 ORDER BY budget_id LIMIT $2";
    LIMITING "budget_list_limiting" =
        "SELECT {columns} FROM budgets WHERE worker_pools IN ($1, $2, '*') OR owner = $3 \
         OR provider_id IS NOT NULL ORDER BY budget_id LIMIT $4";
    NOTE_STEP "budget_note_step" =
        "INSERT INTO budget_steps (budget_id, period, began, step, created) \
         VALUES ($1, $2, $3, $4, $5) ON CONFLICT DO NOTHING";
    DELETE_STEPS "budget_delete_steps_before" =
        "DELETE FROM budget_steps WHERE (budget_id, period, began, step) IN (\
         SELECT budget_id, period, began, step FROM budget_steps WHERE created < $1 \
         ORDER BY created LIMIT $2)";
    ACCOUNTED "budget_spent_by_accounts" =
        "SELECT a.worker_pool_id, a.provider_id, a.owner, CAST(SUM(c.useful + c.booting + c.idle \
         + c.failed + c.leaving + c.lost) AS BIGINT), CAST(0 AS BIGINT), CAST(0 AS BIGINT), \
         CAST(0 AS BIGINT) \
         FROM costs AS c JOIN cost_accounts AS a ON a.account = c.account WHERE c.began >= $1 \
         GROUP BY a.worker_pool_id, a.provider_id, a.owner \
         ORDER BY a.worker_pool_id, a.provider_id, a.owner LIMIT $2";
    METERED "budget_spent_by_machines" = concat!(
        "SELECT worker_pool_id, provider_id, owner, CAST(SUM(CASE WHEN until > since THEN ",
        cost_up_to!("until"), " - (", cost_up_to!("since"), ") ELSE 0 END) AS BIGINT), \
         CAST(SUM(price * live) AS BIGINT), CAST(SUM(live) AS BIGINT), \
         CAST(SUM(CASE WHEN price > 0 THEN live ELSE 0 END) AS BIGINT) FROM (\
         SELECT a.worker_pool_id, a.provider_id, a.owner, COALESCE(m.price, 0) AS price, \
         m.started, CASE WHEN m.ended IS NULL THEN 1 ELSE 0 END AS live, \
         CASE WHEN m.charged > $1 THEN m.charged ELSE $1 END AS since, \
         CASE WHEN m.ended < $2 THEN m.ended ELSE $2 END AS until \
         FROM meters AS m JOIN cost_accounts AS a ON a.account = m.account) AS machines \
         GROUP BY worker_pool_id, provider_id, owner \
         ORDER BY worker_pool_id, provider_id, owner LIMIT $3");
    TO_COME "budget_machines_to_come" =
        "SELECT l.worker_pool_id, l.provider_id, COALESCE(p.owner, ''), CAST(0 AS BIGINT), \
         CAST(SUM((l.machines - l.made) * COALESCE(l.price, 0)) AS BIGINT), \
         CAST(SUM(l.machines - l.made) AS BIGINT), \
         CAST(SUM(CASE WHEN l.price > 0 THEN l.machines - l.made ELSE 0 END) AS BIGINT) \
         FROM launches AS l LEFT JOIN worker_pools AS p ON p.worker_pool_id = l.worker_pool_id \
         WHERE l.state IN ('open', 'unknown') \
         GROUP BY l.worker_pool_id, l.provider_id, p.owner \
         ORDER BY l.worker_pool_id, l.provider_id, p.owner LIMIT $1";
}

pub fn get(tx: &mut Tx<'_>, id: &BudgetId) -> Result<Option<MoneyBudget>> {
    tx.row(&GET, id)
}

/// Returns `false` and changes nothing if the id exists already.
pub fn insert(tx: &mut Tx<'_>, row: &MoneyBudget) -> Result<bool> {
    tx.insert(&INSERT, row)
}

/// Writes all columns but the id, unless another transaction changed the row since it was read.
/// Returns the new version.
pub fn update(tx: &mut Tx<'_>, row: &MoneyBudget) -> Result<Version> {
    tx.update(&UPDATE, row)?;
    Ok(row.version.next())
}

/// Deletes a budget, unless another transaction changed it since it was read.
pub fn delete(tx: &mut Tx<'_>, row: &MoneyBudget) -> Result<()> {
    tx.execute_guarded(&DELETE, (&row.id, row.version))
}

/// Ordered by id.
pub fn list(tx: &mut Tx<'_>, after: Option<&BudgetId>, limit: u32) -> Result<Vec<MoneyBudget>> {
    tx.rows(&LIST, (after.map_or("", BudgetId::as_str), limit))
}

/// All budgets, ordered by id.
pub fn list_all(tx: &mut Tx<'_>) -> Result<Vec<MoneyBudget>> {
    list(tx, None, ALL_ROWS)
}

/// The budgets that limit machines of this pool, ordered by id.
pub fn list_limiting(tx: &mut Tx<'_>, pool: &Pool) -> Result<Vec<MoneyBudget>> {
    let (first, _) = pool.id.parts();
    let (siblings, owner) = (format!("{first}/*"), pool.definition.owner.as_str());
    let values = (&pool.id, siblings.as_str(), owner, ALL_ROWS);
    let mut budgets: Vec<MoneyBudget> = tx.rows(&LIMITING, values)?;
    budgets.retain(|budget| budget.scope.concerns(pool));
    Ok(budgets)
}

/// Records that a step of a period is announced. Returns `false` if it was before.
pub fn note_step(
    tx: &mut Tx<'_>,
    (id, period): (&BudgetId, BudgetPeriod),
    began: Timestamp,
    step: BudgetStep,
    now: Timestamp,
) -> Result<bool> {
    let values = (id, period.as_str(), began, step.as_str(), now);
    Ok(tx.execute(&NOTE_STEP, values)? == 1)
}

/// Forgets announced steps. Call it again while it returns the limit.
pub fn delete_steps_before(tx: &mut Tx<'_>, before: Timestamp, limit: u32) -> Result<u64> {
    tx.execute(&DELETE_STEPS, (before, limit))
}

/// The money spent from a moment up to now, by pool, provider and owner: the sums of the accounts,
/// and the cost of machines since their last charge.
pub fn spent_by(tx: &mut Tx<'_>, since: Timestamp, now: Timestamp) -> Result<Vec<SpentBy>> {
    tx.plan_for_values()?;
    let mut rows: Vec<SpentBy> = tx.rows(&ACCOUNTED, (since, ALL_ROWS))?;
    let metered: Vec<SpentBy> = tx.rows(&METERED, (since, now, ALL_ROWS))?;
    rows.extend(metered);
    Ok(rows)
}

/// The machines that launches without an answer may still make.
pub fn to_come(tx: &mut Tx<'_>) -> Result<Vec<SpentBy>> {
    tx.rows(&TO_COME, ALL_ROWS)
}
