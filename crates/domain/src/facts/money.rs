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

/// The effects of budgets on the settings of a pool.
pub(super) struct LimitedByMoney {
    /// About each budget that has reached a step.
    pub(super) lines: Vec<String>,
    /// The maximum that they lowered.
    pub(super) lowered_from: Option<u64>,
}

/// Lowers the maximum.
pub(super) fn limit(
    budgets: &[MoneyBudget],
    settings: &mut Settings,
    now: Timestamp,
) -> LimitedByMoney {
    let before = settings.max_capacity;
    let lines = budgets.iter().filter_map(|budget| {
        if let Some((max, line)) = budget.lowered(settings.max_capacity, now) {
            settings.max_capacity = max;
            return Some(line);
        }
        let has_step = budget.state(now).step > BudgetStep::Within;
        has_step.then(|| budget.text(now))
    });
    LimitedByMoney {
        lines: lines.collect(),
        lowered_from: (settings.max_capacity < before).then_some(before),
    }
}
