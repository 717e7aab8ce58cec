//! The strategy `weighted`: as Taskcluster's worker-manager, with the weights of RFC 191.

use rand::Rng;

use super::super::need::{Load, exact};
use super::super::notes::Notes;
use super::super::spot_bids::Budget;
use super::super::{Settings, Snapshot};
use super::Strategy;
use super::market::{Lot, Market};
use crate::demand::Demand;

pub(super) struct Weighted;

impl Strategy for Weighted {
    fn default_ratio(&self) -> f64 {
        1.0
    }

    fn min_ratio(&self) -> f64 {
        0.0
    }

    /// A share of the tasks is served, after those that idle workers take.
    fn most_pending(&self, settings: &Settings) -> f64 {
        let max = exact(settings.max_capacity);
        if settings.scaling_ratio > 0.0 {
            max + max / settings.scaling_ratio
        } else {
            max
        }
    }

    fn target(&self, settings: &Settings, demand: &Demand) -> f64 {
        (exact(demand.pending) + exact(demand.claimed)) * settings.scaling_ratio
    }

    /// Idle workers will take waiting tasks, and machines on their way will take others. The ratio
    /// applies before machines on their way are subtracted: otherwise every look at the same backlog
    /// would start some more.
    fn need(&self, settings: &Settings, load: &Load) -> f64 {
        let backlog = (load.pending - load.idle()).max(0.0);
        let by_demand = backlog * settings.scaling_ratio - load.coming;
        let existing = load.running + load.coming;
        by_demand
            .max(exact(settings.least()) - existing)
            .min(exact(settings.max_capacity) - existing)
    }

    /// An idle worker that a waiting task will take is not one too many, whatever the ratio says.
    fn keep(&self, settings: &Settings, load: &Load, target: f64) -> f64 {
        let max = exact(settings.max_capacity);
        target.max((load.pending + load.claimed).min(max))
    }

    /// Draws in proportion to weight, with replacement, one machine at a time.
    fn choose(&self, market: &mut Market<'_>, rng: &mut dyn Rng) {
        let mut weights = Vec::with_capacity(market.lots.len());
        while market.budget.is_open() {
            weigh(&market.lots, &market.budget, &mut weights);
            let total: f64 = weights.iter().sum();
            let mut point = fraction(rng) * total;
            let mut drawn = None;
            for (at, weight) in weights.iter().enumerate() {
                if *weight > 0.0 {
                    drawn = Some(at);
                    if point < *weight {
                        break;
                    }
                    point -= weight;
                }
            }
            match drawn {
                Some(at) => market.take(at),
                None => break,
            }
        }
    }
}

/// The weights for the next draw: initial weight times health times RFC 191's balance of shares, by
/// which 10 and 5 running units make 0.33 and 0.67. The balance follows each draw. In the long run
/// launch configs share in proportion to the square roots of their weights.
fn weigh(lots: &[Lot<'_>], budget: &Budget, weights: &mut Vec<f64>) {
    let open = || {
        lots.iter()
            .filter(|lot| lot.weight.is_some() && lot.can_give(budget))
    };
    let total: f64 = open().map(|lot| lot.live).sum();
    let balanced = open().nth(1).is_some() && total > 0.0;
    weights.clear();
    weights.extend(lots.iter().map(|lot| match lot.weight {
        Some(weight) if lot.can_give(budget) => {
            let share = if balanced { lot.live / total } else { 0.0 };
            weight * (1.0 - share)
        }
        Some(_) | None => 0.0,
    }));
}

/// How likely each offer is to give the next machine, in the order of the offers.
pub fn chances(snapshot: &Snapshot) -> Vec<f64> {
    let mut notes = Notes::default();
    let budget = Budget {
        wanted: 1.0,
        units: u64::MAX,
        machines: 1,
        rooms: snapshot.rooms(),
    };
    let market = Market::open(snapshot, budget, &mut notes);
    let mut weights = Vec::new();
    weigh(&market.lots, &market.budget, &mut weights);
    let total: f64 = weights.iter().sum();
    let mut chances = vec![0.0; snapshot.offers.len()];
    for (lot, weight) in market.lots.iter().zip(weights) {
        if total > 0.0 {
            chances[lot.index] = weight / total;
        }
    }
    chances
}

/// From 0 to just below 1.
fn fraction(rng: &mut dyn Rng) -> f64 {
    exact(rng.next_u64() >> 11) / exact(1 << 53)
}
