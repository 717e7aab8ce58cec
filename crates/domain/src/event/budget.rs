//! The event of a step of a budget.

use serde_json::{Value, json};

use crate::budgets::{BudgetStep, MoneyBudget, dollars};
use crate::id::BudgetId;
use crate::time::Timestamp;

/// A dot would begin another word of the key.
pub(super) fn routing_key(id: &BudgetId, step: BudgetStep) -> String {
    format!("primary.{}.{step}._", id.as_str().replace('.', "_"))
}

pub(super) fn payload(budget: &MoneyBudget, step: BudgetStep, at: Timestamp) -> Value {
    let state = budget.state(at);
    json!({
        "budgetId": budget.id.as_str(),
        "step": step.as_str(),
        "scope": budget.scope.to_string(),
        "per": budget.period.as_str(),
        "limit": dollars(budget.amount),
        "spent": dollars(state.spent),
        "currency": budget.currency.as_str(),
        "periodBegins": state.span.start.to_string(),
        "periodEnds": state.span.end.to_string(),
        "text": budget.text(at),
        "timestamp": at.to_string(),
    })
}
