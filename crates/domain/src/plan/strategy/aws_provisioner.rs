//! The strategy `aws-provisioner`: RFC 124's formula, and its bids on spot markets.

use rand::Rng;

use super::super::health::Condition;
use super::super::need::{Load, exact};
use super::super::settings::MAX_RATIO;
use super::super::spot_bids::{self, Choice, NoBid, Pricing};
use super::super::{NO_MAX_PRICE, Offer, Settings};
use super::Strategy;
use super::usable_offers::UsableOffers;
use crate::demand::Demand;
use crate::time::Timestamp;

pub(super) struct AwsProvisioner;

impl Strategy for AwsProvisioner {
    fn default_ratio(&self) -> f64 {
        0.0
    }

    fn min_ratio(&self) -> f64 {
        -MAX_RATIO
    }

    /// A multiple of the running capacity may wait.
    fn most_pending(&self, settings: &Settings) -> f64 {
        let max = exact(settings.max_capacity);
        max + max * settings.scaling_ratio.max(0.0)
    }

    fn target(&self, _settings: &Settings, demand: &Demand) -> f64 {
        exact(demand.pending) + exact(demand.claimed)
    }

    /// RFC 124's formula exactly. It ignores claimed tasks. So it would launch once more for each
    /// worker that has registered and not claimed yet. A pool that keeps spare capacity would count
    /// its own idle workers as busy, and grow up to its maximum. Unless the strategy is literal,
    /// such workers are counted.
    fn need(&self, settings: &Settings, load: &Load) -> f64 {
        let (ratio, max) = (settings.scaling_ratio, exact(settings.max_capacity));
        let wanted_pending = (ratio * load.running + 0.5).floor();
        let spare = if settings.literal {
            0.0
        } else if ratio < 0.0 {
            load.idle()
        } else {
            load.fresh.min(load.idle())
        };
        let change = load.pending - load.coming - wanted_pending - spare;
        let existing = load.running + load.coming;
        if change + existing >= max {
            max - existing
        } else {
            change.max(exact(settings.min_capacity) - existing)
        }
    }

    /// The formula cannot distinguish idle workers from busy workers while tasks wait, so then all
    /// stay.
    fn keep(&self, settings: &Settings, load: &Load, _target: f64) -> f64 {
        if load.pending > 0.0 {
            return f64::INFINITY;
        }
        let busy = load.claimed.min(exact(settings.max_capacity));
        busy.max(exact(settings.least()))
    }

    fn condition(&self, settings: &Settings, offer: &Offer, now: Timestamp) -> Condition {
        if settings.literal {
            offer.health.condition_without_memory(&offer.tries, now)
        } else {
            offer.health.condition(&offer.tries, now)
        }
    }

    fn max_price(&self, settings: &Settings, offer: &Offer) -> Result<Option<f64>, NoBid> {
        if settings.literal {
            return Ok(None);
        }
        // A quote depends neither on the limit nor on the source.
        let (max_price, _) = pricing(settings).quote(&choice(offer, 0, 0))?;
        Ok(max_price)
    }

    /// Bids at random among all usable offers.
    fn choose(&self, offers: &mut UsableOffers<'_>, rng: &mut dyn Rng) {
        offers.usable.sort_by_key(|offer| offer.index);
        let usable = offers.usable.iter().enumerate();
        let usable: Vec<usize> = usable
            .filter(|(_, offer)| offer.weight.is_some())
            .map(|(at, _)| at)
            .collect();
        let choices: Vec<Choice> = usable
            .iter()
            .map(|at| &offers.usable[*at])
            .map(|offer| choice(offer.offer, offer.left, offer.source))
            .collect();
        let pricing = pricing(&offers.snapshot.settings);
        let Ok(round) = spot_bids::round(&pricing, &choices, offers.budget.clone(), rng) else {
            return;
        };
        if let Some(alarm) = round.alarm {
            offers.notes.alarm(format!(
                "no bid is made: for a choice that was drawn, {alarm}"
            ));
        }
        for bid in round.bids {
            let at = usable[bid.choice];
            // Bids for the same launch config share its maximum, which a round does not know.
            if offers.usable[at].can_give(&offers.budget) {
                offers.usable[at].max_price = bid.price;
                offers.take(at);
            }
        }
    }
}

fn pricing(settings: &Settings) -> Pricing {
    Pricing {
        min_price: settings.min_price,
        max_price: (settings.max_price < NO_MAX_PRICE).then_some(settings.max_price),
        literal: settings.literal,
    }
}

fn choice(offer: &Offer, limit: u64, source: usize) -> Choice {
    let bid = offer.bid.as_ref().ok();
    Choice {
        capacity: offer.capacity_each.max(1),
        utility: bid.map_or(1.0, |bid| bid.utility),
        price: bid.and_then(|bid| bid.price),
        limit,
        source,
    }
}
