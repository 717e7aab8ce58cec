//! The money that a budget leaves for one plan.

use serde::{Deserialize, Serialize};

use super::{BudgetStep, MoneyBudget};
use crate::id::{BudgetId, ProviderId};
use crate::time::Timestamp;

/// The money that a budget leaves for the launches of a plan; a part of the plan's input.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct BudgetRoom {
    pub budget_id: BudgetId,
    /// Only its machines are limited; `None`: those of all providers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub provider_id: Option<ProviderId>,
    pub step: BudgetStep,
    /// For the next hour of new machines, in millionths; not below 0.
    pub left: i64,
    /// Whether something is left, and no machine that was launched for a price runs or is to come:
    /// one may be launched, although its hour costs more.
    pub is_untouched: bool,
    /// When the next period begins.
    pub until: Timestamp,
    /// For people.
    pub text: String,
}

impl MoneyBudget {
    pub fn room(&self, now: Timestamp) -> BudgetRoom {
        let state = self.state(now);
        BudgetRoom {
            budget_id: self.id.clone(),
            provider_id: self.scope.provider_id().cloned(),
            step: state.step,
            left: state.left(self.amount),
            is_untouched: state.step != BudgetStep::Spent && self.spending.launched == 0,
            until: state.span.end,
            text: self.text(now),
        }
    }
}

impl BudgetRoom {
    pub fn limits(&self, provider_id: &ProviderId) -> bool {
        self.provider_id.as_ref().is_none_or(|id| id == provider_id)
    }

    /// How many machines at this price per hour may be launched; without a known price, any
    /// number until all is spent.
    pub fn affords(&self, price: Option<i64>) -> u64 {
        if self.step == BudgetStep::Spent {
            return 0;
        }
        let Some(price) = price.filter(|price| *price > 0) else {
            return u64::MAX;
        };
        let machines = u64::try_from(self.left / price).unwrap_or(0);
        machines.max(u64::from(self.is_untouched))
    }

    /// Reserves an hour of each of these machines.
    pub fn take(&mut self, price: Option<i64>, machines: u64) {
        if machines == 0 {
            return;
        }
        self.is_untouched = false;
        let machines = i64::try_from(machines).unwrap_or(i64::MAX);
        let taken = price.unwrap_or(0).saturating_mul(machines);
        self.left = self.left.saturating_sub(taken).max(0);
    }

    /// Whether no launch config of the pool may be launched any more.
    pub fn is_spent(&self) -> bool {
        self.step == BudgetStep::Spent && self.provider_id.is_none()
    }

    /// Whether it lowers the maximum of the pool.
    pub fn is_lowering(&self) -> bool {
        self.step >= BudgetStep::Lowered && self.provider_id.is_none()
    }

    /// Whether `refusal` said this.
    pub fn has_said(&self, why: &str) -> bool {
        why.contains(&format!("budget {} ", self.budget_id))
    }

    /// The money that is left, in few words: explanations have the text of each budget once.
    pub(crate) fn brief(&self) -> String {
        let id = &self.budget_id;
        match self.step {
            BudgetStep::Spent => format!("budget {id} is spent"),
            BudgetStep::Within | BudgetStep::Warned | BudgetStep::Lowered => {
                format!("budget {id} has {} left", money(self.left))
            }
        }
    }

    /// Why it refuses a launch config with this price; `None`: it does not.
    pub fn refusal(&self, provider_id: &ProviderId, price: Option<i64>) -> Option<String> {
        if !self.limits(provider_id) || self.affords(price) > 0 {
            return None;
        }
        let brief = self.brief();
        Some(match (self.step, price) {
            (BudgetStep::Spent, _) | (_, None) => brief,
            (_, Some(price)) => format!("an hour of it costs {}: {brief}", money(price)),
        })
    }
}

/// A price in dollars, in millionths.
#[expect(
    clippy::cast_possible_truncation,
    reason = "bids have a maximum price, and a higher one becomes the largest number"
)]
pub fn micros_of(dollars: f64) -> i64 {
    (dollars * 1e6).round() as i64
}

/// `$1.50`; with at least two decimals, and as many as it needs.
pub fn money(micros: i64) -> String {
    let sign = if micros < 0 { "-" } else { "" };
    let (whole, part) = (
        micros.unsigned_abs() / 1_000_000,
        micros.unsigned_abs() % 1_000_000,
    );
    let part = format!("{part:06}");
    let trimmed = part.trim_end_matches('0');
    let decimals = match trimmed.len() {
        0..=2 => part.get(..2).unwrap_or_default(),
        _ => trimmed,
    };
    match decimals {
        "00" => format!("{sign}${whole}"),
        decimals => format!("{sign}${whole}.{decimals}"),
    }
}

/// Millionths in dollars, for JSON.
#[expect(
    clippy::cast_precision_loss,
    reason = "amounts have a maximum below which every millionth is exact"
)]
pub fn dollars(micros: i64) -> f64 {
    micros as f64 / 1e6
}
