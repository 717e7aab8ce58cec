//! The effects of budgets on a snapshot: on bids, the maximum, and the reasons.

use crate::budgets::{BudgetRoom, BudgetStep, MoneyBudget, micros_of};
use crate::plan::{Offer, Settings};
use crate::time::Timestamp;

/// Refuses the bids that no budget has money for.
pub(super) fn refuse_bids(offers: &mut [Offer], rooms: &[BudgetRoom]) {
    for offer in offers {
        let Ok(bid) = &offer.bid else {
            continue;
        };
        let price = bid.price.map(micros_of);
        let mut refusals = rooms.iter();
        if let Some(why) = refusals.find_map(|room| room.refusal(&offer.provider_id, price)) {
            offer.bid = Err(why);
        }
    }
}

/// Lowers the maximum, and returns a text about each budget that has reached a step.
pub(super) fn limit(
    budgets: &[MoneyBudget],
    settings: &mut Settings,
    now: Timestamp,
) -> Vec<String> {
    let lines = budgets.iter().filter_map(|budget| {
        if let Some((max, line)) = budget.lowered(settings.max_capacity, now) {
            settings.max_capacity = max;
            return Some(line);
        }
        let has_step = budget.state(now).step > BudgetStep::Within;
        has_step.then(|| budget.text(now))
    });
    lines.collect()
}
