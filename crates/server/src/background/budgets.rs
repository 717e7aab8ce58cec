//! Measures what is spent of budgets, and announces their steps.
//!
//! Plans estimate what was spent since the last measure, so a late measure frees no money.

use std::sync::Arc;

use async_trait::async_trait;
use domain::budgets::{MoneyBudget, dollars};
use domain::time::Timestamp;
use engine::{Engine, budgets};
use metrics::gauge;

use super::driver::{ActivationResult, BackgroundTask, summary};
use crate::telemetry::{BUDGET_LEFT, BUDGET_LIMIT, BUDGET_SPENT};

pub struct Budgets(pub Arc<Engine>);

#[async_trait]
impl BackgroundTask for Budgets {
    fn name(&self) -> String {
        "budgets".to_owned()
    }

    async fn activate(&mut self) -> ActivationResult {
        let measured = budgets::measure(&self.0).await?;
        // As measured: until the next metrics, an estimate would be too high.
        let now = self.0.clock.now();
        for budget in &measured.budgets {
            show(budget, now);
        }
        Ok(summary(&[("measured", measured.n_changed)]))
    }
}

fn show(budget: &MoneyBudget, now: Timestamp) {
    let labels = [
        ("budgetId", budget.id.to_string()),
        ("per", budget.period.to_string()),
    ];
    let state = budget.state(now);
    gauge!(BUDGET_LIMIT, &labels).set(dollars(budget.amount));
    gauge!(BUDGET_SPENT, &labels).set(dollars(state.spent));
    gauge!(BUDGET_LEFT, &labels).set(dollars(state.left(budget.amount)));
}
