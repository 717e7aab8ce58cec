//! Budgets: limits of the money for machines.
//!
//! - Money is in millionths. The money spent is measured now and then. Between two measures each
//!   machine counts as running on, so an estimate is never too low.
//! - Each machine that runs or is to come reserves its price for an hour. A new machine is
//!   launched if what is left after that covers its hour; the first one if anything is left.
//! - A budget ends no machine. Its steps only concern launches and the maximum.

mod period;
mod room;
mod scope;

use crate::Version;
use crate::cost::Currency;
use crate::id::{BudgetId, PoolId, ProviderId, names, text_in_json};
use crate::time::{HOUR_MS, Timestamp};

pub use period::{BudgetPeriod, PeriodSpan};
pub use room::{BudgetRoom, dollars, micros_of, money};
pub use scope::{BudgetScope, PoolPattern};

/// The amount that a budget may have, in millionths.
pub const MAX_AMOUNT_MICROS: i64 = 1_000_000_000_000_000;

/// Not `Budget`, which limits the launches of one plan.
#[derive(Clone, Debug, PartialEq)]
pub struct MoneyBudget {
    pub id: BudgetId,
    pub scope: BudgetScope,
    pub period: BudgetPeriod,
    /// The limit of a period, in millionths of the currency.
    pub amount: i64,
    pub currency: Currency,
    pub shares: StepShares,
    pub description: String,
    pub created: Timestamp,
    pub last_modified: Timestamp,
    pub spending: Spending,
    pub version: Version,
}

/// At which shares of the amount something follows, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StepShares {
    pub warn_at: u32,
    pub lower_at: u32,
    /// From then on, the maximum of each pool is this part of its maximum.
    pub lower_to: u32,
}

/// The last measure, with the machines that plans have launched since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Spending {
    pub measured: Timestamp,
    /// Spent in the period of that moment.
    pub micros: i64,
    /// The price per hour of all machines that run or are to come.
    pub hourly: i64,
    /// Their number, also of those without a known price.
    pub machines: u64,
    /// Those of them that plans launched for a price, and not hosts that people declared.
    pub launched: u64,
}

/// The money of one owner for machines of one provider in one pool.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpentBy {
    pub pool_id: PoolId,
    pub provider_id: ProviderId,
    pub owner: String,
    pub micros: i64,
    /// As in [`Spending`].
    pub hourly: i64,
    pub machines: u64,
    pub launched: u64,
}

/// The consequence of a share that is spent; each step includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BudgetStep {
    Within,
    Warned,
    Lowered,
    Spent,
}

names! {
    BudgetStep, "not a step of a budget (within, warned, lowered, spent)",
    Within = "within",
    Warned = "warned",
    Lowered = "lowered",
    Spent = "spent",
}

text_in_json!(BudgetStep);

/// A budget at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BudgetState {
    pub span: PeriodSpan,
    pub spent: i64,
    /// For the next hour of the machines that run or are to come.
    pub reserved: i64,
    pub step: BudgetStep,
}

/// The budget is not valid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadBudget {
    #[error("the amount of a budget is between 0 and {}", money(MAX_AMOUNT_MICROS))]
    Amount,
    #[error(
        "the shares of a budget are percentages in this order: `warnAtPercent` at least 1, \
         `lowerAtPercent` not below it and at most 100; `lowerToPercent` is at most 100"
    )]
    Shares,
    #[error("the owner of pools has a name")]
    NoOwner,
}

impl Default for StepShares {
    fn default() -> Self {
        Self {
            warn_at: 80,
            lower_at: 90,
            lower_to: 50,
        }
    }
}

impl BudgetState {
    /// The money for machines that do not run yet; not below 0.
    pub fn left(&self, amount: i64) -> i64 {
        let taken = self.spent.saturating_add(self.reserved);
        amount.saturating_sub(taken).max(0)
    }
}

impl Spending {
    /// Nothing was spent, and no machine runs.
    pub fn none(now: Timestamp) -> Self {
        Self {
            measured: now,
            micros: 0,
            hourly: 0,
            machines: 0,
            launched: 0,
        }
    }

    /// The money spent in the period up to now, at most.
    fn in_period(&self, span: &PeriodSpan, now: Timestamp) -> i64 {
        // The clock was set back into an earlier period: until the next measure, what was spent
        // later counts.
        if self.measured >= span.end {
            return self.micros;
        }
        let (known, since) = match span.contains(self.measured) {
            true => (self.micros, self.measured),
            // A new period has begun since.
            false => (0, span.start),
        };
        let elapsed_ms = now.millis_since(since).max(0);
        known.saturating_add(cost_of(self.hourly, elapsed_ms))
    }
}

/// The cost of a time in milliseconds at a price per hour, rounded up.
fn cost_of(hourly: i64, elapsed_ms: i64) -> i64 {
    let exact = i128::from(hourly) * i128::from(elapsed_ms);
    let hours = i128::from(HOUR_MS);
    i64::try_from((exact + hours - 1).div_euclid(hours)).unwrap_or(i64::MAX)
}

impl MoneyBudget {
    pub fn check(&self) -> Result<(), BadBudget> {
        if !(0..=MAX_AMOUNT_MICROS).contains(&self.amount) {
            return Err(BadBudget::Amount);
        }
        let shares = self.shares;
        let in_order = (1..=shares.lower_at).contains(&shares.warn_at) && shares.lower_at <= 100;
        if !in_order || shares.lower_to > 100 {
            return Err(BadBudget::Shares);
        }
        match &self.scope {
            BudgetScope::Owner(owner) if owner.trim().is_empty() => Err(BadBudget::NoOwner),
            BudgetScope::Owner(_) | BudgetScope::Pools(_) | BudgetScope::Provider(_) => Ok(()),
        }
    }

    /// Whether the other budget limits the same money in the same way.
    pub fn has_same_effect(&self, other: &Self) -> bool {
        self.scope == other.scope
            && self.period == other.period
            && self.amount == other.amount
            && self.currency == other.currency
            && self.shares == other.shares
            && self.description == other.description
    }

    pub fn state(&self, now: Timestamp) -> BudgetState {
        let span = self.period.span(now);
        let spent = self.spending.in_period(&span, now);
        BudgetState {
            span,
            spent,
            reserved: self.spending.hourly,
            step: self.step_at(spent),
        }
    }

    /// The step when this much is spent.
    pub fn step_at(&self, spent: i64) -> BudgetStep {
        let reaches =
            |percent: u32| i128::from(spent) * 100 >= i128::from(self.amount) * i128::from(percent);
        if reaches(100) {
            BudgetStep::Spent
        } else if reaches(self.shares.lower_at) {
            BudgetStep::Lowered
        } else if reaches(self.shares.warn_at) {
            BudgetStep::Warned
        } else {
            BudgetStep::Within
        }
    }

    /// The state after a plan has launched machines: the price of each in millionths per hour, if
    /// it is known, and their number.
    pub fn launched(mut self, machines: impl Iterator<Item = (Option<i64>, u32)>) -> Self {
        let spending = &mut self.spending;
        for (price, count) in machines {
            let hourly = price.unwrap_or(0).saturating_mul(i64::from(count));
            spending.hourly = spending.hourly.saturating_add(hourly);
            spending.machines = spending.machines.saturating_add(u64::from(count));
            if hourly > 0 {
                spending.launched = spending.launched.saturating_add(u64::from(count));
            }
        }
        self
    }

    /// The same with what was measured now; the rows are of all pools, for its present period.
    pub fn measured(mut self, rows: &[SpentBy], now: Timestamp) -> Self {
        let mut spending = Spending::none(now);
        let scope = &self.scope;
        let own = rows.iter();
        for row in own.filter(|row| scope.has(&row.pool_id, &row.owner, &row.provider_id)) {
            spending.micros = spending.micros.saturating_add(row.micros);
            spending.hourly = spending.hourly.saturating_add(row.hourly);
            spending.machines = spending.machines.saturating_add(row.machines);
            spending.launched = spending.launched.saturating_add(row.launched);
        }
        self.spending = spending;
        self
    }

    /// Whether a measure says more than an earlier one. While nothing runs, it does not.
    pub fn has_news_since(&self, earlier: &Self) -> bool {
        let (new, old) = (&self.spending, &earlier.spending);
        let is_same_period = self.period.span(old.measured).contains(new.measured);
        let quiet = new.machines == 0 && old.machines == 0 && new.micros == old.micros;
        !(quiet && is_same_period)
    }

    /// The lowered maximum of a pool with this maximum, and a text about it.
    pub fn lowered(&self, max_capacity: u64, now: Timestamp) -> Option<(u64, String)> {
        let state = self.state(now);
        // A budget of one provider leaves the maximum to the others.
        if state.step < BudgetStep::Lowered || self.scope.provider_id().is_some() {
            return None;
        }
        let part = u128::from(max_capacity) * u128::from(self.shares.lower_to) / 100;
        // The last unit stays until all is spent.
        let lowered = u64::try_from(part).unwrap_or(u64::MAX).max(1);
        let text = || {
            format!(
                "maxCapacity {lowered} instead of {max_capacity}: at least {} % of budget {} is \
                 spent",
                self.shares.lower_at, self.id
            )
        };
        (lowered < max_capacity).then(|| (lowered, text()))
    }

    /// A sentence for people: the money spent, reserved and left, and when that changes.
    pub fn text(&self, now: Timestamp) -> String {
        let state = self.state(now);
        let (id, scope, period) = (&self.id, &self.scope, self.period);
        let (spent, amount) = (money(state.spent), money(self.amount));
        let (end, each) = (state.span.end, period.with_article());
        let left = match state.step {
            BudgetStep::Spent => "nothing is launched".to_owned(),
            BudgetStep::Within | BudgetStep::Warned | BudgetStep::Lowered => format!(
                "{} are reserved for the next hour of {}, {} are left",
                money(state.reserved),
                counted(self.spending.machines),
                money(state.left(self.amount))
            ),
        };
        format!(
            "budget {id} ({scope}): {spent} of {amount} {each} are spent, {left}; the next \
             {period} begins at {end}, or raise the budget"
        )
    }
}

pub(crate) fn counted(machines: u64) -> String {
    match machines {
        1 => "1 machine".to_owned(),
        count => format!("{count} machines"),
    }
}

#[cfg(test)]
mod tests;
