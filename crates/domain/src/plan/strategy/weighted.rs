//! The strategy `weighted`: as Taskcluster's worker-manager, with the weights of RFC 191.

use rand::Rng;

use super::super::Settings;
use super::super::cover::{self, Kind};
use super::super::need::{Load, exact, whole};
use super::super::spot_bids::Budget;
use super::Strategy;
use super::usable_offers::{Balance, UsableOffer, UsableOffers};
use crate::demand::Demand;

pub(super) struct Weighted;

impl Strategy for Weighted {
    fn default_ratio(&self) -> f64 {
        1.0
    }

    fn min_ratio(&self) -> f64 {
        0.0
    }

    /// Workers serve a share of the tasks, after those that idle workers take.
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

    /// Idle workers will take waiting tasks, and coming machines will take others. The ratio
    /// applies before coming machines are subtracted: otherwise each plan for the same backlog
    /// would start some more.
    fn need(&self, settings: &Settings, load: &Load) -> f64 {
        let backlog = (load.pending - load.idle()).max(0.0);
        let by_demand = backlog * settings.scaling_ratio - load.coming;
        let existing = load.running + load.coming;
        by_demand
            .max(exact(settings.least()) - existing)
            .min(exact(settings.max_capacity) - existing)
    }

    /// An idle worker that a waiting task will use is not surplus, whatever the ratio.
    fn keep(&self, settings: &Settings, load: &Load, target: f64) -> f64 {
        let max = exact(settings.max_capacity);
        target.max((load.pending + load.claimed).min(max))
    }

    fn weights(&self, offers: &UsableOffers<'_>) -> Option<Vec<f64>> {
        let mut weights = Vec::new();
        weigh(&offers.usable, &offers.budget, &mut weights);
        Some(weights)
    }

    /// Draws in proportion to weight, with replacement, one machine at a time.
    fn choose(&self, offers: &mut UsableOffers<'_>, rng: &mut dyn Rng) {
        let mut weights = Vec::with_capacity(offers.usable.len());
        while offers.budget.is_open() {
            weigh(&offers.usable, &offers.budget, &mut weights);
            match draw(&weights, rng) {
                Some(at) => offers.take(at),
                None => break,
            }
        }
    }
}

/// The weights for the next draw: initial weight times health times RFC 191's balance of shares.
/// The balance follows each draw. In the long run launch configs share in proportion to the square
/// roots of their weights.
fn weigh(usable: &[UsableOffer<'_>], budget: &Budget, weights: &mut Vec<f64>) {
    let balance = Balance::of(usable, budget);
    weights.clear();
    weights.extend(usable.iter().map(|offer| match offer.weight {
        Some(weight) if offer.can_give(budget) => weight * balance.share(offer.live),
        Some(_) | None => 0.0,
    }));
    keep_cheapest_bids(usable, budget, weights);
}

/// Of several bids for one launch config, the one that the cheapest cover of the need takes next.
fn keep_cheapest_bids(usable: &[UsableOffer<'_>], budget: &Budget, weights: &mut [f64]) {
    let mut start = 0;
    while let Some(first) = usable.get(start) {
        // The offers of a launch config are next to each other.
        let own = usable[start..].iter();
        let end = start + own.take_while(|offer| offer.group == first.group).count();
        if end - start > 1 {
            let (own, weights) = (&usable[start..end], &mut weights[start..end]);
            let best = cover::next(&kinds(own, weights), whole(budget.wanted));
            for (at, weight) in weights.iter_mut().enumerate() {
                if best != Some(at) {
                    *weight = 0.0;
                }
            }
        }
        start = end;
    }
}

/// The machines of these offers at their prices; if one has no price, each unit costs the same.
fn kinds(offers: &[UsableOffer<'_>], weights: &[f64]) -> Vec<Kind> {
    let has_prices = offers
        .iter()
        .all(|offer| offer.offer.price_of_utility().is_some());
    let offers = offers.iter().zip(weights);
    let kind = |(usable, weight): (&UsableOffer<'_>, &f64)| {
        let price = usable.offer.price_of_utility().filter(|_| has_prices);
        Kind {
            units: usable.each,
            cost: price.unwrap_or_else(|| f64::from(usable.each)),
            limit: if *weight > 0.0 { usable.left } else { 0 },
        }
    };
    offers.map(kind).collect()
}

/// Draws an index with a chance in proportion to its weight; `None` if all weights are 0.
pub(super) fn draw(weights: &[f64], rng: &mut dyn Rng) -> Option<usize> {
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
    drawn
}

/// From 0 to just below 1.
pub(super) fn fraction(rng: &mut dyn Rng) -> f64 {
    exact(rng.next_u64() >> 11) / exact(1 << 53)
}
